//! The log hook: silent unless the engine asks.
use crate::capi::ffi::{LOG_CALLBACK, call_back};
use parking_lot::{RwLock, const_rwlock};
use std::ffi::{CString, c_char, c_void};
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Level of rkv_set_log_callback(): nothing.
pub const RKV_LOG_OFF: u32 = 0;
/// Level of a message: something is broken, e.g. a caught panic with its place in the source.
pub const RKV_LOG_ERROR: u32 = 1;

/// Receives a log message. `message` is NUL-terminated and valid only during the call. Called from
/// any thread. It must not call back into the library, nor throw, longjmp or end its thread: the
/// process would end, see Callbacks at the top.
pub type rkv_log_callback =
    Option<unsafe extern "C-unwind" fn(level: u32, message: *const c_char, user_data: *mut c_void)>;

#[derive(Clone, Copy)]
struct Sink {
    max_level: u32,
    callback: unsafe extern "C-unwind" fn(u32, *const c_char, *mut c_void),
    user_data: *mut c_void,
}
// SAFETY: the header demands that the callback may run on any thread; user_data is only passed on.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static FIRST: RwLock<Option<Sink>> = const_rwlock(None);
/// The lock in use. A child process may need another one than its parent.
static SINK: AtomicPtr<RwLock<Option<Sink>>> = AtomicPtr::new((&raw const FIRST).cast_mut());

fn sink() -> &'static RwLock<Option<Sink>> {
    // SAFETY: it is `FIRST`, or was leaked by `renew_lock`.
    unsafe { &*SINK.load(Ordering::Acquire) }
}

/// Makes another lock if somebody holds this one, in a child process, in which nobody gives it
/// back: a thread of the parent, or this thread when its callback forked. A callback that was being
/// replaced is gone.
#[cfg(all(unix, not(miri)))]
pub(crate) fn renew_lock() {
    let lock = sink();
    if lock.is_locked() {
        let kept = lock.try_read().and_then(|kept| *kept);
        SINK.store(Box::into_raw(Box::new(RwLock::new(kept))), Ordering::Release);
    }
}

/// Sends a message to the engine's callback; false when there is none for this level.
pub(crate) fn log(level: u32, message: &str) -> bool {
    let sink = sink().read();
    let Some(sink) = sink.as_ref().filter(|sink| level <= sink.max_level) else {
        return false;
    };
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    call_back(LOG_CALLBACK, || {
        // SAFETY: the callback is valid until replaced, and replacing waits for this read lock.
        unsafe { (sink.callback)(level, text.as_ptr(), sink.user_data) };
    });
    true
}

/// Sends the place and text of panics to the log, when the engine has one. The shared library has
/// its own standard library, so only its own panics pass here.
pub(crate) fn install_panic_hook() {
    // No Once: a child process could wait for a thread that is not there.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.swap(true, Ordering::Relaxed) {
        return;
    }
    // Where the hook finds it, so that it captures nothing and its box takes no memory.
    static BEFORE: OnceLock<PanicHook> = OnceLock::new();
    let _ = BEFORE.set(std::panic::take_hook());
    std::panic::set_hook(Box::new(|info| {
        if !log(RKV_LOG_ERROR, &info.to_string())
            && let Some(before) = BEFORE.get()
        {
            before(info);
        }
    }));
}

type PanicHook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// Sets where the library logs to, for the whole process. When it returns, the earlier callback is
/// no longer running and will not be called again. Without a callback, and with RKV_LOG_OFF, only
/// panics, that is bugs, are written to standard error; what a callback threw is written there in
/// any case.
///
/// @param max_level RKV_LOG_OFF or RKV_LOG_ERROR; a message of a higher level is not sent
/// @param callback receives the messages; NULL for none, which is the default
/// @param user_data passed to the callback
/// @par Cost
/// O(1); a lock of its own, which log messages share
/// @par Thread safety
/// any thread, but not from inside the callback
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_set_log_callback(
    max_level: u32,
    callback: rkv_log_callback,
    user_data: *mut c_void,
) {
    *sink().write() = callback.map(|callback| Sink { max_level, callback, user_data });
}
