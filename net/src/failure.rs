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
    LAST.with_borrow(|message| read(message))
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
    LAST.set(failure.message);
    failure.status
}
