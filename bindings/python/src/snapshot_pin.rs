//! Pins: snapshots that were found, and the bytes of those that can be written.
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::c::*;
use crate::handle::{Handle, Raw, ending, long};
use crate::snapshot_kept::{Kept, settle};
use crate::status::{check, refused};

/// A snapshot that was found, pinned until `release()`, the end of its `with`, or of the object.
#[pyclass(frozen, module = "radixkv")]
pub struct Pin {
    /// It may outlive its Python object: pins are released on a cache that was closed, too.
    cache: Arc<Handle<rkv_snapshot_cache>>,
    state: Mutex<State>,
    found: Raw<rkv_snapshot_cache_match_result>,
}

struct State {
    /// 0 once released.
    id: u64,
    /// None once released, for a copy, and for what C code inserted.
    data: Option<Py<PyAny>>,
    /// Views of its parts that somebody has.
    views: usize,
}

impl Pin {
    /// What a match or a fetch found; None for a miss.
    pub fn of(
        py: Python<'_>,
        cache: Arc<Handle<rkv_snapshot_cache>>,
        found: rkv_snapshot_cache_match_result,
    ) -> Option<Self> {
        if found.pin == 0 {
            return None;
        }
        let data = match found.is_copy {
            0 => Kept::object_of(py, found.data),
            _ => None,
        };
        let state = Mutex::new(State { id: found.pin, data, views: 0 });
        Some(Pin { cache, state, found: Raw(found) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the pin; false if it has ended before.
    fn end(&self, py: Python<'_>) -> PyResult<bool> {
        let (id, data) = {
            let mut state = self.state();
            if state.views != 0 {
                let why = "parts of the pin are still in use: release their memoryviews first";
                return Err(PyBufferError::new_err(why));
            }
            (std::mem::take(&mut state.id), state.data.take())
        };
        drop(data);
        if id == 0 {
            return Ok(false);
        }
        // SAFETY: a live handle.
        let call = || unsafe { rkv_snapshot_cache_release(self.cache.raw(), id) };
        let is_done = check(py, long(py, false, call));
        settle(py);
        is_done.map(|()| true)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.state.get_mut().unwrap_or_else(PoisonError::into_inner).id != 0 {
            // Nobody is left to be told.
            let _ = ending(|py| self.end(py));
        }
    }
}

fn released(py: Python<'_>) -> PyErr {
    refused(py, RKV_STATUS_STALE_PIN, "the pin was released")
}

#[pymethods]
impl Pin {
    /// The snapshot; None for a copy, and for what C code inserted. Raises StalePin after
    /// `release()`.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let state = self.state();
        let (id, data) = (state.id, state.data.as_ref().map(|data| data.clone_ref(py)));
        drop(state);
        if id == 0 { Err(released(py)) } else { Ok(data) }
    }

    /// Whether it was read from below memory: then there is no object, and `parts()` has the bytes.
    #[getter]
    fn is_copy(&self) -> bool {
        self.found.get().is_copy != 0
    }

    /// The parts that its insert was given, as bytes that cannot be written; empty for a snapshot
    /// without. While one of these memoryviews, or an array on it, is there, `release()` raises
    /// BufferError. Raises StalePin after `release()`. The cache may have been closed.
    fn parts<'py>(this: &Bound<'py, Self>) -> PyResult<Vec<Bound<'py, PyMemoryView>>> {
        let (py, pin) = (this.py(), this.get());
        let id = pin.state().id;
        if id == 0 {
            return Err(released(py));
        }
        let (cache, size) = (pin.cache.raw(), size_of::<rkv_snapshot_part>());
        let mut count = 0;
        // SAFETY: a live handle; nothing is written but the count.
        let status =
            unsafe { rkv_snapshot_cache_read_parts(cache, id, null_mut(), size, 0, &mut count) };
        if status != RKV_STATUS_BUFFER_TOO_SMALL {
            check(py, status)?;
        }
        let none = || rkv_snapshot_part { data: null_mut(), size_bytes: 0 };
        let mut parts: Vec<_> = (0..count).map(|_| none()).collect();
        let into = parts.as_mut_ptr();
        // SAFETY: a live handle, and room for as many as it says.
        check(py, unsafe {
            rkv_snapshot_cache_read_parts(cache, id, into, size, count, &mut count)
        })?;
        let view = |part: rkv_snapshot_part| {
            let part = Part { pin: this.clone().unbind(), bytes: Raw(part) };
            PyMemoryView::from(Bound::new(py, part)?.as_any())
        };
        parts.into_iter().map(view).collect()
    }

    /// Tokens that it covers.
    #[getter]
    fn token_count(&self) -> u64 {
        self.found.get().token_count
    }

    /// Tokens of those that the list begins with: fewer only with `trimmable`. The rest begins at
    /// this index.
    #[getter]
    fn common_token_count(&self) -> u64 {
        self.found.get().common_token_count
    }

    /// Tokens in common with what `fetch()` would have brought at that time, when they are more;
    /// else 0.
    #[getter]
    fn fetchable_token_count(&self) -> u64 {
        self.found.get().fetchable_token_count
    }

    /// Bytes, as they were stated.
    #[getter]
    fn size_bytes(&self) -> u64 {
        self.found.get().size_bytes
    }

    /// Whether it is that of all tokens: with `next_token` no forward pass is needed. False of what
    /// `Fetch.take()` gives: compare token_count.
    #[getter]
    fn full_hit(&self) -> bool {
        self.found.get().full_hit != 0
    }

    /// The token that the model predicts after those that it covers, or None.
    #[getter]
    fn next_token(&self) -> Option<u32> {
        let found = self.found.get();
        (found.has_next_token != 0).then_some(found.next_token)
    }

    /// Ends the pin. Raises StalePin the second time.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.end(py)? { Ok(()) } else { Err(released(py)) }
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Releases it unless that was done inside the block. After an exception whose frames have
    /// memoryviews of its parts, it ends with those.
    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        let ended = self.end(py).map(drop);
        // What is under way is what the caller has to hear of.
        let is_raised = exception.get_item(0).is_ok_and(|kind| !kind.is_none());
        if is_raised { Ok(()) } else { ended }
    }
}

/// What a memoryview of a part stands on: it keeps the pin.
#[pyclass(frozen, module = "radixkv")]
struct Part {
    pin: Py<Pin>,
    bytes: Raw<rkv_snapshot_part>,
}

#[pymethods]
impl Part {
    /// # Safety
    /// Called by the interpreter, with a view to fill.
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let part = this.get();
        let rkv_snapshot_part { data, size_bytes } = part.bytes.get();
        let start = NonNull::new(data.cast_mut()).unwrap_or(NonNull::dangling()).as_ptr();
        let is_there = {
            let mut state = part.pin.get().state();
            let is_there = state.id != 0;
            state.views += usize::from(is_there);
            is_there
        };
        // Without the lock: what refuses makes an exception, for which the interpreter may collect,
        // and let go of another view.
        if !is_there {
            return Err(PyBufferError::new_err("the pin was released"));
        }
        let length = size_bytes as ffi::Py_ssize_t;
        // SAFETY: the bytes stay while the pin does, which is not released while there are views.
        if unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), start, length, 1, flags) } != 0 {
            part.pin.get().state().views -= 1;
            return Err(PyErr::fetch(this.py()));
        }
        Ok(())
    }

    /// # Safety
    /// Called by the interpreter, once for each view.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.pin.get().state().views -= 1;
    }
}
