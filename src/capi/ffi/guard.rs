//! The boundary. Into the library: failures become a status and a message, panics too. Out of it,
//! to the engine's functions: none may unwind, for what is in the middle of a call of the library
//! can't be left by an exception, which C++ throws, nor by the end of its thread.
use super::status::{rkv_status, set_last_error, set_last_shortage};
use crate::capi::library::{RKV_LOG_ERROR, log};
use crate::error::{Error, Message, text};
use crate::lock::was_left;
use crate::memory::OutOfMemory;
use std::any::Any;
use std::io::{Write, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(all(not(test), panic = "abort"))]
const _: () = panic!("radixkv needs panic=unwind: the C ABI turns panics into RKV_STATUS_INTERNAL");

/// Why a call failed.
pub(crate) struct Fail {
    status: rkv_status,
    reason: Reason,
}

/// Kept as it is until the message is written, which needs no memory.
enum Reason {
    Refused(Error),
    Text(Message),
}

impl Fail {
    pub(crate) fn too_small(needed: usize, capacity: usize, name: &str) -> Self {
        let message = text!("{name} has room for {capacity}, {needed} are needed");
        Self { status: rkv_status::BufferTooSmall, reason: Reason::Text(message) }
    }

    /// What was started goes on.
    pub(crate) fn pending(what: &'static str) -> Self {
        Self { status: rkv_status::Pending, reason: Reason::Text(what.into()) }
    }

    pub(crate) fn poisoned() -> Self {
        Error::Poisoned.into()
    }

    /// The same, saying in which part of an argument.
    pub(crate) fn within(self, place: &str) -> Self {
        let reason = match self.reason {
            Reason::Refused(error) => Reason::Refused(error.within(place)),
            text => text,
        };
        Self { reason, ..self }
    }
}

impl From<OutOfMemory> for Fail {
    fn from(refused: OutOfMemory) -> Self {
        Error::from(refused).into()
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Argument(_) => rkv_status::InvalidArgument,
            Error::StaleNode(_) => rkv_status::StaleNode,
            Error::StaleSequence(_) | Error::RetainedSequence(_) | Error::LiveSequence(_) => {
                rkv_status::StaleSequence
            }
            Error::StalePin(_) => rkv_status::StalePin,
            Error::StaleLock(_) => rkv_status::StaleLock,
            Error::StaleTicket(_) => rkv_status::StaleTicket,
            Error::Storage(_) => rkv_status::Storage,
            Error::State(_) | Error::NoShortage => rkv_status::InvalidState,
            Error::Unsupported(_) => rkv_status::Unsupported,
            Error::OutOfPages(shortage) => {
                set_last_shortage(*shortage);
                rkv_status::OutOfPages
            }
            Error::OutOfSlots(..) => rkv_status::OutOfSlots,
            Error::OutOfMemory(_) | Error::DeviceMemory(_) => rkv_status::OutOfMemory,
            Error::Device { .. } => rkv_status::Device,
            Error::Busy => rkv_status::Busy,
            Error::Pending(_) | Error::Loading(_) => rkv_status::Pending,
            Error::Corrupt(_) => rkv_status::Corrupt,
            Error::Poisoned => rkv_status::Poisoned,
        };
        Self { status, reason: Reason::Refused(error) }
    }
}

/// Runs `body`; a failure or a panic becomes a status and the thread's message.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Fail>) -> rkv_status {
    guard_with(body, || {})
}

/// The same, with something to do after a panic.
#[inline]
pub(crate) fn guard_with(
    body: impl FnOnce() -> Result<(), Fail>,
    after_panic: impl FnOnce(),
) -> rkv_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => rkv_status::Ok,
        Ok(Err(fail)) => failed(fail),
        // The panic was another call's, which says so.
        Err(payload) if was_left(&*payload) => failed(Fail::poisoned()),
        Err(payload) => {
            after_panic();
            panicked(payload)
        }
    }
}

#[cold]
fn failed(fail: Fail) -> rkv_status {
    match fail.reason {
        Reason::Refused(error) => set_last_error(error),
        Reason::Text(text) => set_last_error(text),
    }
    fail.status
}

/// The status of one item of a call over many, and its message.
#[inline]
pub(crate) fn item_status(done: Result<(), Fail>, name: &str, at: usize) -> rkv_status {
    match done {
        Ok(()) => rkv_status::Ok,
        Err(fail) => item_failed(fail, name, at),
    }
}

#[cold]
fn item_failed(fail: Fail, name: &str, at: usize) -> rkv_status {
    match fail.reason {
        Reason::Refused(error) => set_last_error(format_args!("{name}[{at}]: {error}")),
        Reason::Text(text) => set_last_error(format_args!("{name}[{at}]: {text}")),
    }
    fail.status
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> rkv_status {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    set_last_error(format_args!("internal error, please report it: {text}"));
    // Dropping the payload may panic too: contain that, and give up only what it carried.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    rkv_status::Internal
}

/// The name of the log callback, which is not told of itself.
pub(crate) const LOG_CALLBACK: &str = "the callback of rkv_set_log_callback()";

/// Runs a callback. One that doesn't return, but unwinds, ends the process with a message that
/// names it. Its type is "C-unwind", or the compiler would take it for granted that it returns.
#[inline]
pub(crate) fn call_back<R>(name: &'static str, callback: impl FnOnce() -> R) -> R {
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
