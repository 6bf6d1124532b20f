//! Numbers from C: flags, fields that must be zero, counts.
use crate::error::{Error, text};

/// Refuses flags that nobody defined yet.
#[inline]
pub(crate) fn check_flags(flags: u32, known: u32, name: &str) -> Result<(), Error> {
    if flags & !known == 0 { Ok(()) } else { Err(unknown_bit(name)) }
}

#[cold]
fn unknown_bit(name: &str) -> Error {
    Error::argument(text!("{name} has an unknown bit"))
}

/// Refuses a value in a field that has no meaning yet.
#[inline]
pub(crate) fn check_zero(reserved: u32, name: &str) -> Result<(), Error> {
    if reserved == 0 { Ok(()) } else { Err(not_zero(name)) }
}

#[cold]
fn not_zero(name: &str) -> Error {
    Error::argument(text!("{name} must be zero"))
}

/// A count that has to fit in memory.
#[inline]
pub(crate) fn count_of(value: u64, name: &str) -> Result<usize, Error> {
    usize::try_from(value).map_err(|_| out_of_range(value, name))
}

#[cold]
fn out_of_range(value: u64, name: &str) -> Error {
    Error::argument(text!("{name} {value} is out of range"))
}

/// A limit: more than there are is all, however many.
#[inline]
pub(crate) fn at_most(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
