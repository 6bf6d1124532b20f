//! What calls return, as exceptions: the classes stand in errors.py, one for each status.
use std::ffi::CStr;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::c::*;
use crate::record::Shortage;

static ERRORS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The library's last message on this thread.
fn message() -> String {
    let mut buffer = [0_u8; 1024];
    // SAFETY: the size is the buffer's.
    unsafe { rkv_last_error_message(buffer.as_mut_ptr().cast(), buffer.len()) };
    let text = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

fn shortage() -> Option<Shortage> {
    let mut found = rkv_shortage::sized();
    // SAFETY: a struct of the size that it states.
    let status = unsafe { rkv_last_shortage(&mut found) };
    (status == RKV_STATUS_OK).then_some(Shortage(found))
}

/// The exception of a status, with a message. `needed` is what a buffer that was too small lacks.
pub fn error(py: Python<'_>, status: i32, message: &str, needed: Option<u64>) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let made = ERRORS.get_or_try_init(py, || {
            PyResult::Ok(py.import("radixkv.errors")?.getattr("make")?.unbind())
        })?;
        let short = if status == RKV_STATUS_OUT_OF_PAGES { shortage() } else { None };
        let value = made.bind(py).call1((status, message, short, needed))?;
        Ok(PyErr::from_value(value))
    };
    build().unwrap_or_else(|failed| failed)
}

/// An error that this package found, with a status that the library would have returned.
pub fn refused(py: Python<'_>, status: i32, message: &str) -> PyErr {
    error(py, status, message, None)
}

/// Nothing for success, else the exception with the library's message. To be called on the thread
/// that made the call, before another.
#[inline]
pub fn check(py: Python<'_>, status: i32) -> PyResult<()> {
    if status == RKV_STATUS_OK { Ok(()) } else { Err(error(py, status, &message(), None)) }
}

/// `check` for calls that say how much room a list needs.
#[inline]
pub fn check_room(py: Python<'_>, status: i32, needed: usize) -> PyResult<()> {
    if status == RKV_STATUS_BUFFER_TOO_SMALL {
        return Err(error(py, status, &message(), Some(needed as u64)));
    }
    check(py, status)
}

/// The exception of a batch of which items failed: that of the last, with the status of each.
pub fn batch_error(py: Python<'_>, statuses: &[i32]) -> PyErr {
    let failed = statuses.iter().rev().find(|status| **status != RKV_STATUS_OK);
    let made = error(py, *failed.unwrap_or(&RKV_STATUS_INTERNAL), &message(), None);
    match made.value(py).setattr("statuses", statuses.to_vec()) {
        Ok(()) => made,
        Err(reason) => reason,
    }
}

/// The release of the library, e.g. "0.2.0".
#[pyfunction]
pub fn version() -> PyResult<String> {
    // SAFETY: a static string.
    let text = unsafe { CStr::from_ptr(rkv_version_string()) };
    text.to_str().map(str::to_owned).map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

/// The version of the library's ABI. It grows with every addition.
#[pyfunction]
pub fn abi_version() -> u32 {
    // SAFETY: takes nothing.
    unsafe { rkv_abi_version() }
}

/// What the library has, a set of the bits FEATURE_RADIX_INDEX, FEATURE_BLOCK_HASH_INDEX and
/// FEATURE_CUDA.
#[pyfunction]
pub fn features() -> u64 {
    // SAFETY: takes nothing.
    unsafe { rkv_features() }
}
