//! What the reference engine knows of text: the `tokenizers` and `minijinja` crates behind the C
//! functions of engine_text.h, where they are described. A panic ends the process.
use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

mod chat;
mod date;
mod pieces;
mod text;

use text::Text;

type OnBytes = extern "C" fn(to: *mut c_void, bytes: *const c_char, count: usize);
type OnIds = extern "C" fn(to: *mut c_void, ids: *const u32, count: usize);

fn tell(on_bytes: OnBytes, to: *mut c_void, text: &str) {
    on_bytes(to, text.as_ptr().cast(), text.len());
}

/// # Safety
/// `bytes` points at `count` bytes.
unsafe fn text_of<'a>(bytes: *const c_char, count: usize) -> Cow<'a, str> {
    if count == 0 {
        return "".into();
    }
    // SAFETY: as the caller promises.
    String::from_utf8_lossy(unsafe { slice::from_raw_parts(bytes.cast(), count) })
}

/// # Safety
/// `folder` is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn engine_text_open(
    folder: *const c_char,
    on_error: OnBytes,
    to: *mut c_void,
) -> *mut Text {
    // SAFETY: as the caller promises.
    let folder = unsafe { CStr::from_ptr(folder) };
    match Text::open(Path::new(OsStr::from_bytes(folder.to_bytes()))) {
        Ok(text) => Box::into_raw(Box::new(text)),
        Err(reason) => {
            tell(on_error, to, &reason);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// `text` is from engine_text_open() and not used any more; or NULL.
#[unsafe(no_mangle)]
unsafe extern "C" fn engine_text_close(text: *mut Text) {
    if !text.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(text) });
    }
}

/// # Safety
/// `text` is open, `bytes` points at `count` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn engine_text_encode(
    text: &Text,
    bytes: *const c_char,
    count: usize,
    begins: bool,
    on_ids: OnIds,
    to: *mut c_void,
) {
    // SAFETY: as the caller promises.
    let ids = text.encode(&unsafe { text_of(bytes, count) }, begins);
    on_ids(to, ids.as_ptr(), ids.len());
}

/// # Safety
/// `text` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn engine_text_token(text: &Text, id: u32, count: &mut usize) -> *const c_char {
    let piece = text.piece(id);
    *count = piece.len();
    piece.as_ptr().cast()
}

/// # Safety
/// `text` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn engine_text_special(text: &Text, id: u32, count: &mut usize) -> *const c_char {
    let name = text.special(id);
    *count = name.len();
    name.as_ptr().cast()
}

/// # Safety
/// `text` is open, `messages` points at `count` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn engine_text_chat(
    text: &Text,
    messages: *const c_char,
    count: usize,
    on_result: OnBytes,
    to: *mut c_void,
) -> bool {
    // SAFETY: as the caller promises.
    let result = text.chat(&unsafe { text_of(messages, count) });
    tell(on_result, to, result.as_ref().unwrap_or_else(|reason| reason));
    result.is_ok()
}
