//! Snapshot caches: Python objects by token list, found by their longest prefix.
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use crate::c::*;
use crate::handle::{Closable, Handle, Raw, filled, long};
use crate::record::{SnapshotInsertResult, SnapshotStats};
use crate::space::{Namespace, Space};
use crate::status::{check, refused};
use crate::tokens::TokenArg;

/// A store of opaque states by token list that finds the longest stored prefix: for engines whose
/// KV isn't paged, and for recurrent models. A snapshot is any Python object; the cache keeps a
/// reference until the entry goes and nobody has it pinned. Tokens are text alone, as in Cache.
///
/// entry_limit: entries at most; 0 disables the cache.
/// byte_limit: bytes of all snapshots by the sizes that were stated; None for no limit.
///
/// A context manager: leaving it closes the cache.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct SnapshotCache {
    handle: Closable<rkv_snapshot_cache>,
}

/// Lets go of a snapshot. The library holds no lock here, so waiting for the interpreter is fine.
///
/// # Safety
/// Called once by the library, with an object that `insert` gave it.
unsafe extern "C" fn let_go(data: *mut c_void, _size: u64, _user_data: *mut c_void) {
    Python::attach(|py| {
        // SAFETY: the reference that `insert` gave away.
        drop(unsafe { Bound::from_owned_ptr(py, data.cast()) });
    });
}

#[pymethods]
impl SnapshotCache {
    #[new]
    #[pyo3(signature = (*, entry_limit=1024, byte_limit=None))]
    fn new(py: Python<'_>, entry_limit: u64, byte_limit: Option<u64>) -> PyResult<Self> {
        let config = rkv_snapshot_cache_config {
            entry_limit,
            byte_limit: byte_limit.unwrap_or(u64::MAX),
            ..rkv_snapshot_cache_config::sized()
        };
        let mut cache = null_mut();
        // SAFETY: a whole config.
        check(py, unsafe { rkv_snapshot_cache_create(&config, &mut cache) })?;
        Ok(SnapshotCache { handle: Closable::new(Handle::new(cache)) })
    }

    /// Ends the cache and lets go of every snapshot that nobody has pinned; pins keep theirs.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.handle.close(py);
    }

    /// The rkv_snapshot_cache pointer, for C code in the same process.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.address(py)
    }

    /// Stores a snapshot, any object, for a token list, in the place of an earlier one if there is
    /// one. `size_bytes` counts for the byte limit. `next_token` is what the model predicts after
    /// these. With `trimmable` the engine can take the end of the state away. Least recently used
    /// ones go for the limits.
    ///
    /// Raises InvalidArgument; the snapshot was not taken then.
    #[pyo3(signature = (
        tokens, data, size_bytes=0, *, next_token=None, space=None, trimmable=false
    ))]
    #[allow(clippy::too_many_arguments)] // named ones, in Python
    fn insert(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        data: Bound<'_, PyAny>,
        size_bytes: u64,
        next_token: Option<u32>,
        space: Option<&Bound<'_, Namespace>>,
        trimmable: bool,
    ) -> PyResult<SnapshotInsertResult> {
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let space = Space::of(space);
        let args = rkv_snapshot_cache_insert_args {
            flags: if trimmable { RKV_SNAPSHOT_INSERT_TRIMMABLE } else { 0 },
            space: space.c(),
            tokens: tokens.c(),
            data: data.clone().into_ptr().cast(),
            size_bytes,
            destructor: Some(let_go),
            has_next_token: u32::from(next_token.is_some()),
            next_token: next_token.unwrap_or(0),
            ..rkv_snapshot_cache_insert_args::sized()
        };
        let mut done = rkv_snapshot_cache_insert_result::sized();
        let call = Raw((&args, &raw mut done));
        let status = long(py, tokens.is_long(), || {
            let (args, done) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_snapshot_cache_insert(cache.raw(), args, done) }
        });
        if status != RKV_STATUS_OK {
            // SAFETY: the library did not take the reference.
            drop(unsafe { Bound::from_owned_ptr(py, args.data.cast()) });
        }
        check(py, status)?;
        Ok(SnapshotInsertResult(done))
    }

    /// Finds the snapshot of the longest stored prefix and pins it. Returns a Pin, or None when
    /// there is none. With `trimmable` a trimmable one counts with the tokens that it has in common
    /// with `tokens`.
    #[pyo3(name = "match", signature = (tokens, *, space=None, trimmable=false))]
    fn match_(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
        trimmable: bool,
    ) -> PyResult<Option<Pin>> {
        let flags = if trimmable { RKV_SNAPSHOT_MATCH_TRIMMABLE } else { 0 };
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let space = Space::of(space);
        let found = filled(py, |out| {
            let call = Raw((space.c(), tokens.c(), out));
            long(py, tokens.is_long(), || {
                let (space, tokens, out) = call.get();
                // SAFETY: a live handle, arguments that are kept.
                unsafe { rkv_snapshot_cache_match(cache.raw(), space, tokens, flags, out) }
            })
        })?;
        if found.pin == 0 {
            return Ok(None);
        }
        // SAFETY: an object that `insert` gave; the pin keeps it until there is a count of our own.
        let data = unsafe { Bound::from_borrowed_ptr(py, found.data.cast()) }.unbind();
        let (id, data) = (AtomicU64::new(found.pin), Mutex::new(Some(data)));
        Ok(Some(Pin { cache, id, data, found: Raw(found) }))
    }

    /// Tokens that `match()` would find. Changes nothing.
    #[pyo3(signature = (tokens, *, space=None))]
    fn probe(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let (space, mut count) = (Space::of(space), 0);
        let call = Raw((space.c(), tokens.c(), &raw mut count));
        let status = long(py, tokens.is_long(), || {
            let (space, tokens, count) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_snapshot_cache_probe(cache.raw(), space, tokens, count) }
        });
        check(py, status)?;
        Ok(count)
    }

    /// Removes the entry of exactly these tokens. Returns whether there was one.
    #[pyo3(signature = (tokens, *, space=None))]
    fn remove(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
    ) -> PyResult<bool> {
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let (space, mut removed) = (Space::of(space), false);
        // SAFETY: a live handle, arguments that are kept.
        check(py, unsafe {
            rkv_snapshot_cache_remove(cache.raw(), space.c(), tokens.c(), &mut removed)
        })?;
        Ok(removed)
    }

    /// Removes every entry. Pinned snapshots stay until their pins are released.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_snapshot_cache_clear(cache.raw()) });
        check(py, status)
    }

    /// Counters, at one moment.
    fn stats(&self, py: Python<'_>) -> PyResult<SnapshotStats> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        filled(py, |out| unsafe { rkv_snapshot_cache_read_stats(cache.raw(), out) })
            .map(SnapshotStats)
    }

    /// Checks every invariant, a pass over the cache: for tests. Raises Corrupt.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_snapshot_cache_check(cache.raw()) });
        check(py, status)
    }
}

/// A snapshot that was found, pinned until `release()`, the end of its `with`, or of the object.
#[pyclass(frozen, module = "radixkv")]
pub struct Pin {
    /// It may outlive its Python object: pins are released on a cache that was closed, too.
    cache: Arc<Handle<rkv_snapshot_cache>>,
    /// 0 once released.
    id: AtomicU64,
    /// None once released.
    data: Mutex<Option<Py<PyAny>>>,
    found: Raw<rkv_snapshot_cache_match_result>,
}

impl Pin {
    fn end(&self, py: Python<'_>) -> i32 {
        drop(self.data.lock().unwrap_or_else(PoisonError::into_inner).take());
        match self.id.swap(0, Ordering::AcqRel) {
            0 => RKV_STATUS_STALE_PIN,
            // SAFETY: a live handle.
            id => long(py, false, || unsafe { rkv_snapshot_cache_release(self.cache.raw(), id) }),
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if *self.id.get_mut() != 0 {
            Python::attach(|py| self.end(py));
        }
    }
}

#[pymethods]
impl Pin {
    /// The snapshot. Raises StalePin after `release()`.
    #[getter]
    fn data(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let data = self.data.lock().unwrap_or_else(PoisonError::into_inner);
        match &*data {
            Some(data) => Ok(data.clone_ref(py)),
            None => Err(refused(py, RKV_STATUS_STALE_PIN, "the pin was released")),
        }
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

    /// Bytes, as they were stated.
    #[getter]
    fn size_bytes(&self) -> u64 {
        self.found.get().size_bytes
    }

    /// Whether it is that of all tokens: with `next_token` no forward pass is needed.
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
        match self.end(py) {
            RKV_STATUS_STALE_PIN => Err(refused(py, RKV_STATUS_STALE_PIN, "the pin was released")),
            status => check(py, status),
        }
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Releases it unless that was done inside the block.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.end(py) {
            RKV_STATUS_STALE_PIN => Ok(()),
            status => check(py, status),
        }
    }
}
