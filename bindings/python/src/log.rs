//! The library's log messages, handed to Python.
//!
//! A message may come from any thread, and while the library holds a lock for which a thread with
//! the interpreter's lock waits. So the callback touches nothing of Python: it queues the message,
//! and asks the interpreter to call `deliver` on the main thread when that runs Python code next.
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::c::*;

/// Messages that wait at most; the oldest go first.
const LIMIT: usize = 1024;

static WAITING: Mutex<VecDeque<(u32, String)>> = Mutex::new(VecDeque::new());
/// And the highest level of the messages that it gets.
static RECEIVER: Mutex<Option<(Py<PyAny>, u32)>> = Mutex::new(None);

/// # Safety
/// Called by the library, with a string.
unsafe extern "C" fn queue(level: u32, message: *const c_char, _user_data: *mut c_void) {
    // SAFETY: NUL-terminated, good during the call.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.len() == LIMIT {
        waiting.pop_front();
    }
    waiting.push_back((level, text));
    drop(waiting);
    // SAFETY: needs no lock of the interpreter. When its list is full, another call is pending.
    unsafe { ffi::Py_AddPendingCall(Some(deliver), null_mut()) };
}

/// Called by the interpreter, on its main thread.
extern "C" fn deliver(_: *mut c_void) -> c_int {
    Python::attach(|py| {
        // Let go of before it is called: it may set another one.
        let receiver = {
            let now = RECEIVER.lock().unwrap_or_else(PoisonError::into_inner);
            now.as_ref().map(|(receiver, _)| receiver.clone_ref(py))
        };
        loop {
            let next = WAITING.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let (Some((level, text)), Some(receiver)) = (next, &receiver) else { return 0 };
            if let Err(reason) = receiver.call1(py, (level, text)) {
                reason.write_unraisable(py, Some(receiver.bind(py)));
            }
        }
    })
}

/// Sets where the library logs to, for the whole process: `receiver(level, message)` is called on
/// the main thread, between two steps of its Python code. Messages wait until then, 1024 at most;
/// an exception of the receiver's goes to sys.unraisablehook. None stops it. Messages tell of bugs
/// of the library alone, e.g. a caught panic.
#[pyfunction]
#[pyo3(signature = (receiver, level=RKV_LOG_ERROR), text_signature = "(receiver, level=1)")]
pub fn set_log(py: Python<'_>, receiver: Option<Py<PyAny>>, level: u32) -> PyResult<()> {
    if let Some(given) = receiver.as_ref().map(|it| it.bind(py)).filter(|it| !it.is_callable()) {
        let message = format!("receiver: a callable is needed, not {}", given.get_type().name()?);
        return Err(PyTypeError::new_err(message));
    }
    let is_set = receiver.is_some();
    let earlier = {
        let mut now = RECEIVER.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *now, receiver.map(|receiver| (receiver, level)))
    };
    drop(earlier);
    let callback: rkv_log_callback = if is_set { Some(queue) } else { None };
    // Waits for a callback that runs, which never waits for the interpreter.
    // SAFETY: the callback is a function of this module, which is never unloaded.
    py.detach(|| unsafe { rkv_set_log_callback(level, callback, null_mut()) });
    Ok(())
}

/// Sends a message the way the library does, e.g. to see that a receiver is set up: one above the
/// receiver's level is not sent.
#[pyfunction]
pub fn log_message(py: Python<'_>, level: u32, message: std::ffi::CString) {
    let now = RECEIVER.lock().unwrap_or_else(PoisonError::into_inner);
    let is_sent =
        level != RKV_LOG_OFF && now.as_ref().is_some_and(|(_, highest)| level <= *highest);
    drop(now);
    if is_sent {
        // SAFETY: a string, as the library would pass.
        py.detach(|| unsafe { queue(level, message.as_ptr(), null_mut()) });
    }
}
