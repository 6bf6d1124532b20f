//! The log hook: silent unless the engine asks.
use super::callback::{self, LOG_CALLBACK};
use std::ffi::{CString, c_char, c_void};
use std::sync::Once;

/// Level of rkv_set_log_callback(): nothing.
pub const RKV_LOG_OFF: u32 = 0;
/// Level of a message: something is broken, e.g. a caught panic with its place in the source.
pub const RKV_LOG_ERROR: u32 = 1;

/// Receives a log message. `message` is NUL-terminated and good during the call only. Called from
/// any thread. It must not call back into the library, nor throw, longjmp or end its thread: the
/// process would end, see Callbacks at the top.
pub type rkv_log_callback =
    Option<unsafe extern "C-unwind" fn(level: u32, message: *const c_char, user_data: *mut c_void)>;

struct Sink {
    max_level: u32,
    callback: unsafe extern "C-unwind" fn(u32, *const c_char, *mut c_void),
    user_data: *mut c_void,
}
// SAFETY: the header demands that the callback may run on any thread; user_data is only passed on.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static SINK: parking_lot::RwLock<Option<Sink>> = parking_lot::RwLock::new(None);

/// Sends a message to the engine's callback; false when there is none for this level.
pub(super) fn log(level: u32, message: &str) -> bool {
    let sink = SINK.read();
    let Some(sink) = sink.as_ref().filter(|sink| level <= sink.max_level) else {
        return false;
    };
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    callback::call(LOG_CALLBACK, || {
        // SAFETY: the callback is valid until replaced, and replacing waits for this read lock.
        unsafe { (sink.callback)(level, text.as_ptr(), sink.user_data) };
    });
    true
}

/// Sends the place and text of panics to the log, when the engine has one. The shared library has
/// its own standard library, so only its own panics pass here.
pub(super) fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !log(RKV_LOG_ERROR, &info.to_string()) {
                before(info);
            }
        }));
    });
}

/// Sets where the library logs to, for the whole process. When it returns, the earlier callback is
/// no longer running and will not be called again. Without a callback only panics, that is bugs,
/// are written to standard error.
///
/// @param max_level RKV_LOG_OFF or RKV_LOG_ERROR; a message of a higher level is not sent
/// @param callback receives the messages; NULL for none, which is the default
/// @param user_data passed to the callback
/// @par Thread safety
/// any thread, but not from inside the callback
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_set_log_callback(
    max_level: u32,
    callback: rkv_log_callback,
    user_data: *mut c_void,
) {
    *SINK.write() = callback.map(|callback| Sink { max_level, callback, user_data });
}
