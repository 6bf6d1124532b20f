//! What a cache was lent for what is below it: memory of the engine's, a store that caches share.
use std::ptr::null;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::c::*;
use crate::handle::Raw;
use crate::status::refused;

/// Kept, never looked at.
#[derive(Default)]
#[allow(dead_code)]
pub struct Given {
    /// Memory in which the tiers have their slots.
    pub arrays: Vec<Array>,
    /// While it is there, its store refuses to be closed.
    pub lease: Option<Py<PyAny>>,
}

/// Kept while it is attached, and with the handle to its end: whoever uses that may reach it. Its
/// lock is held by whoever attaches or detaches.
#[derive(Default)]
pub struct Lent(Mutex<Raw<Given>>);

impl Lent {
    /// Its lock, for who attaches or detaches. Nobody waits for it: a function of a remote store
    /// may want it as well, for whose end a detach waits.
    pub fn held(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Raw<Given>>> {
        self.at_once().ok_or_else(|| {
            let why = "another thread attaches or detaches the tiers";
            refused(py, RKV_STATUS_INVALID_STATE, why)
        })
    }

    /// The same; nothing while another thread has it.
    pub fn at_once(&self) -> Option<MutexGuard<'_, Raw<Given>>> {
        match self.0.try_lock() {
            Ok(given) => Some(given),
            Err(TryLockError::Poisoned(given)) => Some(given.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// All of it, for the end of the handle. To let go of an array may run somebody's code.
    pub fn take(&mut self) -> Given {
        std::mem::take(&mut self.0.get_mut().unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// What `remote` leads to, and the lease that keeps it. Of an address nobody knows whose it is.
pub fn remote(
    given: Option<&Bound<'_, PyAny>>,
) -> PyResult<(*const rkv_remote_store, Option<Py<PyAny>>)> {
    let Some(given) = given else { return Ok((null(), None)) };
    if let Some(lend) = given.getattr_opt("_lend")? {
        let (address, lease): (usize, Py<PyAny>) = lend.call0()?.extract()?;
        return Ok((address as *const rkv_remote_store, Some(lease)));
    }
    let address: usize = given.extract().map_err(|reason: PyErr| {
        if !reason.is_instance_of::<PyTypeError>(given.py()) {
            return reason;
        }
        let kind = given.get_type();
        PyTypeError::new_err(format!("remote: a radixkv.net.Store is needed, not {kind}"))
    })?;
    Ok((address as *const rkv_remote_store, None))
}
