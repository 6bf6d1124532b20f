//! An eventfd of the caller's, by which a sleeping engine is woken.
use super::guard::Fail;
use crate::error::{Error, text};
use crate::memory::try_box;
use crate::tier::Wake;
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// What makes an eventfd readable; nothing for -1.
pub(crate) fn wake_of(fd: i32) -> Result<Option<Wake>, Fail> {
    if fd == -1 {
        return Ok(None);
    }
    let refuse = |what| Err(Error::argument(text!("config.event_fd {fd} is {what}")).into());
    match file_type(fd) {
        None => refuse("not open"),
        // A config that was zeroed instead of initialised has standard input here, and what is
        // written to wake somebody would go into that.
        Some(found) if cfg!(target_os = "linux") && found != UNTYPED => refuse("no eventfd"),
        Some(_) => Ok(Some(try_box(move || signal(fd))?)),
    }
}

/// Linux has no type for files without an inode of their own. Eventfds are such, and of the others
/// most refuse what is written.
const UNTYPED: libc::mode_t = 0;

/// Of what type an open file is.
fn file_type(fd: c_int) -> Option<libc::mode_t> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for what is told. To ask changes nothing, whatever the number is.
    let done = unsafe { libc::fstat(fd, found.as_mut_ptr()) };
    // SAFETY: it was written.
    (done == 0).then(|| unsafe { found.assume_init() }.st_mode & libc::S_IFMT)
}

fn signal(fd: c_int) {
    let one = 1_u64;
    // SAFETY: eight readable bytes. What fails when the count is at its end: it is readable.
    unsafe { libc::write(fd, (&raw const one).cast(), size_of::<u64>()) };
}
