//! An eventfd of the caller's, by which a sleeping engine is woken.
use super::guard::Fail;
use crate::error::{Error, text};
use crate::memory::try_box;
use crate::tier::Wake;
use std::ffi::c_int;

/// What makes an eventfd readable; nothing for -1.
pub(crate) fn wake_of(fd: i32) -> Result<Option<Wake>, Fail> {
    match fd {
        -1 => Ok(None),
        fd if is_open(fd) => Ok(Some(try_box(move || signal(fd))?)),
        fd => Err(Error::argument(text!("config.event_fd {fd} is not open")).into()),
    }
}

fn is_open(fd: c_int) -> bool {
    // SAFETY: asking for the flags of a number changes nothing, whatever it is.
    fd >= 0 && unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1
}

fn signal(fd: c_int) {
    let one = 1_u64;
    // SAFETY: eight readable bytes. What fails when the count is at its end: it is readable.
    unsafe { libc::write(fd, (&raw const one).cast(), size_of::<u64>()) };
}
