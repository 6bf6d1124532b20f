//! Why a call failed, and how a thread is told.
use crate::capi::rkv_net_status;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A status and what it means here.
#[derive(Debug)]
pub struct Failure {
    pub status: rkv_net_status,
    pub message: String,
}

impl Failure {
    pub fn argument(message: impl Into<String>) -> Self {
        Self { status: rkv_net_status::InvalidArgument, message: message.into() }
    }

    pub fn state(message: impl Into<String>) -> Self {
        Self { status: rkv_net_status::InvalidState, message: message.into() }
    }

    pub fn network(message: impl Into<String>) -> Self {
        Self { status: rkv_net_status::Network, message: message.into() }
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Calls `read` with the message of the last failure of this thread.
pub fn with_last<R>(read: impl FnOnce(&str) -> R) -> R {
    // None in a thread, or a process, that ends: its message may be gone.
    let message = LAST.try_with(|last| last.borrow().clone());
    read(&message.unwrap_or_default())
}

/// Runs a call: a failure or a panic becomes a status and the thread's message.
pub fn guard(body: impl FnOnce() -> Result<(), Failure>) -> rkv_net_status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return rkv_net_status::Ok,
        Ok(Err(failure)) => failure,
        Err(_) => Failure {
            status: rkv_net_status::Internal,
            message: "internal error, please report it".to_owned(),
        },
    };
    // There is no place for it in a thread, or a process, that ends.
    let _ = LAST.try_with(|last| last.replace(failure.message));
    failure.status
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    static HAS_FAILED: AtomicBool = AtomicBool::new(false);

    /// Goes after the thread's message, for it was there before.
    struct Late;

    impl Drop for Late {
        fn drop(&mut self) {
            let late = || {
                let status = guard(|| Err(Failure::argument("late")));
                status == rkv_net_status::InvalidArgument && with_last(str::is_empty)
            };
            HAS_FAILED.store(catch_unwind(late).unwrap_or(false), Ordering::SeqCst);
        }
    }

    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }

    /// E03: who ends may call once more.
    #[test]
    fn e03_a_thread_that_ends_may_fail() {
        let run = || {
            LATE.set(Some(Late));
            assert!(guard(|| Err(Failure::argument("first"))) == rkv_net_status::InvalidArgument);
        };
        std::thread::spawn(run).join().unwrap();
        assert!(HAS_FAILED.load(Ordering::SeqCst), "it panicked");
    }
}
