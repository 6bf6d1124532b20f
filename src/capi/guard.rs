//! The boundary: failures become a status and a message, panics too.
use super::status::{rkv_status, set_last_error, set_last_shortage};
use crate::error::{Error, Message, text};
use crate::memory::OutOfMemory;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[cfg(all(not(test), panic = "abort"))]
const _: () = panic!("radixkv needs panic=unwind: the C ABI turns panics into RKV_STATUS_INTERNAL");

/// Why a call failed.
pub(super) struct Fail {
    status: rkv_status,
    reason: Reason,
}

/// Kept as it is until the message is written, which needs no memory.
enum Reason {
    Refused(Error),
    Text(Message),
}

impl Fail {
    pub(super) fn too_small(needed: usize, capacity: usize, name: &str) -> Self {
        let message = text!("{name} has room for {capacity}, {needed} are needed");
        Self { status: rkv_status::BufferTooSmall, reason: Reason::Text(message) }
    }

    pub(super) fn poisoned() -> Self {
        Error::Poisoned.into()
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
            Error::StaleSequence(_) => rkv_status::StaleSequence,
            Error::StalePin(_) => rkv_status::StalePin,
            Error::StaleLock(_) => rkv_status::StaleLock,
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
            Error::Pending(_) => rkv_status::Pending,
            Error::Corrupt(_) => rkv_status::Corrupt,
            Error::Poisoned => rkv_status::Poisoned,
        };
        Self { status, reason: Reason::Refused(error) }
    }
}

/// Runs `body`; a failure or a panic becomes a status and the thread's message.
#[inline]
pub(super) fn guard(body: impl FnOnce() -> Result<(), Fail>) -> rkv_status {
    guard_with(body, || {})
}

/// The same, with something to do after a panic.
#[inline]
pub(super) fn guard_with(
    body: impl FnOnce() -> Result<(), Fail>,
    after_panic: impl FnOnce(),
) -> rkv_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => rkv_status::Ok,
        Ok(Err(fail)) => failed(fail),
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
pub(super) fn item_status(done: Result<(), Fail>, name: &str, at: usize) -> rkv_status {
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
