//! Memory for indexes that is got from the system beforehand.
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::c::*;
use crate::handle::{filled, long};
use crate::record::IndexMemoryStats;
use crate::status::check;

/// Gets memory from the system for the indexes of all caches of this process: once, before they
/// are created. It is touched now and kept to the end of the process. What finds no room in it
/// comes from malloc(), as all does without a reserve. `huge_pages` is "off", "try" or "require";
/// raises Unsupported when they are required and the system has not so many.
#[pyfunction]
#[pyo3(signature = (byte_count, *, huge_pages="try"))]
pub fn reserve_index_memory(py: Python<'_>, byte_count: u64, huge_pages: &str) -> PyResult<()> {
    let pages = match huge_pages {
        "off" => RKV_HUGE_PAGES_OFF,
        "try" => RKV_HUGE_PAGES_TRY,
        "require" => RKV_HUGE_PAGES_REQUIRE,
        _ => return Err(PyValueError::new_err("huge_pages is \"off\", \"try\" or \"require\"")),
    };
    // SAFETY: numbers only.
    let status = long(py, true, || unsafe { rkv_reserve_index_memory(byte_count, pages) });
    check(py, status)
}

/// What is reserved for indexes, and how much of it they use.
#[pyfunction]
pub fn index_memory_stats(py: Python<'_>) -> PyResult<IndexMemoryStats> {
    // SAFETY: `out` is writable.
    filled(py, |out| unsafe { rkv_read_index_memory_stats(out) }).map(IndexMemoryStats)
}
