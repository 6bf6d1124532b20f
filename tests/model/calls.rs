//! How calls are made: just so. `tests/out_of_memory.rs` makes the same ones otherwise.
use super::abi::{Library, Status};

/// A call, by the name of its function.
pub fn call(_: &str, _: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    made()
}

/// A call over many items, which writes their statuses.
pub fn call_many(
    _: &'static str,
    _: &Library,
    statuses: &mut [Status],
    made: &mut dyn FnMut(&mut [Status]) -> Status,
) -> Status {
    made(statuses)
}

/// Calls that need no memory.
pub fn call_sure(_: &str, _: Option<&Library>, made: &mut dyn FnMut() -> Status) -> Status {
    made()
}

/// Whether what follows can't be compared any more.
pub fn ends_here() -> bool {
    false
}

/// Whether calls run out of memory.
pub const MEMORY_FAILS: bool = false;
