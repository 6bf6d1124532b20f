//! Locks as context managers.
use pyo3::prelude::*;

use crate::c::*;
use crate::cache::Cache;
use crate::status::check;

/// A lock that a caller took, from `Cache.hold()`.
#[pyclass(frozen, module = "radixkv")]
pub struct Lock {
    pub cache: Py<Cache>,
    /// The lock's id; 0 for none.
    #[pyo3(get)]
    pub id: u64,
}

#[pymethods]
impl Lock {
    /// Undoes the lock. Raises StaleLock when it was undone already.
    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.cache.get().handle.get(py)?;
        // SAFETY: a live handle.
        check(py, unsafe { rkv_cache_unlock(cache.raw(), self.id) })
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Undoes the lock unless that was done inside the block.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let Ok(cache) = self.cache.get().handle.get(py) else { return Ok(()) };
        // SAFETY: a live handle.
        match unsafe { rkv_cache_unlock(cache.raw(), self.id) } {
            // There was none, or it is undone.
            RKV_STATUS_STALE_LOCK => Ok(()),
            status => check(py, status),
        }
    }
}
