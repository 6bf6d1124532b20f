//! The date, which templates ask for as Python's strftime() says it. That is C's.
use std::ffi::CString;
use std::{mem, ptr};

/// No date that a prompt has is as long.
const MOST_BYTES: usize = 1024;

/// The local time.
pub fn now(format: &str) -> Result<String, String> {
    let wrong = |reason: &str| format!("strftime_now: {reason}");
    if format.is_empty() {
        return Ok(String::new());
    }
    let format = CString::new(format).map_err(|error| wrong(&error.to_string()))?;
    let mut text = vec![0_u8; MOST_BYTES];
    // SAFETY: time() takes NULL, numbers and pointers of a tm may be zero, the format ends with
    // one, and the text has as many bytes as it is said to have.
    let count = unsafe {
        let seconds = libc::time(ptr::null_mut());
        let mut time: libc::tm = mem::zeroed();
        if libc::localtime_r(&seconds, &mut time).is_null() {
            return Err(wrong("there is no time"));
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &time)
    };
    if count == 0 {
        return Err(wrong("the date would be empty, or too long"));
    }
    text.truncate(count);
    Ok(String::from_utf8_lossy(&text).into_owned())
}
