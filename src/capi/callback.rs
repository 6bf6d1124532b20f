//! Calls of the engine's functions. None may unwind: what is in the middle of a call of the library
//! can't be left by an exception, which C++ throws, nor by the end of its thread.
use super::log::{RKV_LOG_ERROR, log};
use std::io::{Write, stderr};

/// The name of the log callback, which is not told of itself.
pub(super) const LOG_CALLBACK: &str = "the callback of rkv_set_log_callback()";

/// Runs a callback. One that doesn't return, but unwinds, ends the process with a message that
/// names it. Its type is "C-unwind", or the compiler would take it for granted that it returns.
#[inline]
pub(super) fn call<R>(name: &'static str, callback: impl FnOnce() -> R) -> R {
    let bound = MustReturn(name);
    let result = callback();
    std::mem::forget(bound);
    result
}

struct MustReturn(&'static str);

impl Drop for MustReturn {
    /// Comes only while the callback unwinds. The same happens to panics, which are exceptions of
    /// another language unless they are of this very library.
    fn drop(&mut self) {
        let name = self.0;
        let told = "threw an exception or ended its thread, as no callback may: the process ends";
        // Who can't be told at all is not told.
        let _ = writeln!(stderr(), "radixkv: {name} {told}");
        if name != LOG_CALLBACK {
            log(RKV_LOG_ERROR, &format!("{name} {told}"));
        }
        std::process::abort();
    }
}
