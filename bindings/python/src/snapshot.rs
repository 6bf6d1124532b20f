//! Snapshot caches: Python objects by token list, found by their longest prefix.
use std::ptr::{null, null_mut};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::c::*;
use crate::handle::{Closable, Handle, Raw, ending, filled, long};
use crate::record::{SnapshotInsertResult, SnapshotStats};
use crate::snapshot_kept::{Kept, settle};
use crate::snapshot_pin::Pin;
use crate::space::{Namespace, Space};
use crate::status::check;
use crate::tokens::TokenArg;

/// A store of opaque states by token list that finds the longest stored prefix: for engines whose
/// KV isn't paged, and for recurrent models. A snapshot is any Python object; the cache keeps a
/// reference until the entry goes and nobody has it pinned. Tokens are text alone, as in Cache.
///
/// entry_limit: entries at most; 0 disables the cache.
/// byte_limit: bytes of all snapshots, by their `size_bytes`; None for no limit.
///
/// A context manager: leaving it closes the cache.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct SnapshotCache {
    pub handle: Closable<rkv_snapshot_cache>,
    /// Whether there is a byte limit.
    is_bounded: bool,
}

impl Drop for SnapshotCache {
    /// What it let go of would wait for a call of another one, and pins would keep the rest.
    fn drop(&mut self) {
        // With an interpreter that is ending all goes anyway: `Handle` knows how.
        // SAFETY: this may be asked at any time.
        let is_there = unsafe { pyo3::ffi::Py_IsInitialized() } != 0;
        if is_there && !self.handle.is_closed() {
            ending(|py| self.close(py));
        }
    }
}

impl SnapshotCache {
    /// What counts for an object whose size nobody states: its bytes, where it has any.
    fn size_of(&self, data: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        match Array::of(data, "data", false) {
            Ok(array) => Ok(Some((array.count * array.item_size) as u64)),
            // A limit by sizes that are all 0 would bound nothing.
            Err(_) if self.is_bounded => {
                Err(PyValueError::new_err("size_bytes: it is needed with byte_limit"))
            }
            Err(_) => Ok(Some(0)),
        }
    }
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
        let handle = Closable::new(Handle::new(cache));
        Ok(SnapshotCache { handle, is_bounded: byte_limit.is_some() })
    }

    /// Ends the cache and lets go of every snapshot that nobody has pinned; pins keep theirs. The
    /// directory, if there is one, is free for another cache.
    fn close(&self, py: Python<'_>) {
        if let Some(cache) = self.handle.take() {
            // Objects of pins keep the library's cache, and would keep the directory and the other
            // snapshots with it.
            let gone = long(py, true, || {
                // From here on nobody attaches anything any more.
                let given = cache.lent.at_once();
                // SAFETY: a live handle. What they return is whether there was a directory, and
                // whether the cache has failed, which keeps its snapshots, or is of the process
                // that this one was forked from, which keeps them too.
                let status = unsafe {
                    let status = rkv_snapshot_cache_detach(cache.raw(), 0);
                    rkv_snapshot_cache_clear(cache.raw());
                    status
                };
                // What is still attached, or just now, keeps it until the handle ends.
                let is_detached = matches!(status, RKV_STATUS_OK | RKV_STATUS_PENDING);
                let given = given.filter(|_| is_detached);
                let gone = given.map(|mut given| Raw(std::mem::take(&mut given.0)));
                drop(cache);
                gone
            });
            drop(gone);
        }
        settle(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    /// The rkv_snapshot_cache pointer, for C code in the same process. What that inserts is found
    /// here without an object.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.address(py)
    }

    /// Stores a snapshot, any object, for a token list, in the place of an earlier one if there is
    /// one. `size_bytes` counts for the byte limit; None: what `data` has as bytes or an array, and
    /// of any other object 0, which a cache with a byte limit has to be told. `next_token` is what
    /// the model predicts after these. With `trimmable` the engine can take the end of the state
    /// away. Least recently used ones go for the limits.
    ///
    /// With `parts`, dense arrays on the host that the state is made of, it may be written below
    /// memory, and what comes back is a copy of them, not the object. They are not copied before,
    /// and must not change; `size_bytes` is theirs together unless it is stated. Such a snapshot is
    /// let go of by the next call of a snapshot cache.
    ///
    /// Raises InvalidArgument, ValueError; the snapshot was not taken then.
    #[pyo3(signature = (
        tokens, data, size_bytes=None, *, next_token=None, space=None, trimmable=false, parts=None
    ))]
    #[allow(clippy::too_many_arguments)] // named ones, in Python
    fn insert(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        data: Bound<'_, PyAny>,
        size_bytes: Option<u64>,
        next_token: Option<u32>,
        space: Option<&Bound<'_, Namespace>>,
        trimmable: bool,
        parts: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<SnapshotInsertResult> {
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let space = Space::of(space);
        let size_bytes = match size_bytes {
            None if parts.is_none() => self.size_of(&data)?,
            stated => stated,
        };
        let kept = Kept::new(data, parts)?;
        let parts = kept.parts();
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let args = rkv_snapshot_cache_insert_args {
            flags: flag(trimmable, RKV_SNAPSHOT_INSERT_TRIMMABLE)
                | flag(!parts.is_empty(), RKV_SNAPSHOT_INSERT_STORABLE),
            space: space.c(),
            tokens: tokens.c(),
            size_bytes: size_bytes
                .unwrap_or_else(|| parts.iter().map(|part| part.size_bytes).sum()),
            destructor: kept.destructor(),
            has_next_token: u32::from(next_token.is_some()),
            next_token: next_token.unwrap_or(0),
            parts: if parts.is_empty() { null() } else { parts.as_ptr() },
            part_count: parts.len() as u64,
            part_size: if parts.is_empty() { 0 } else { size_of::<rkv_snapshot_part>() as u64 },
            data: kept.give(),
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
            // SAFETY: the library did not take the box.
            drop(unsafe { Kept::take_back(args.data) });
        }
        let is_done = check(py, status);
        settle(py);
        is_done?;
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
        });
        settle(py);
        Ok(Pin::of(py, cache, found?))
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
        let call = Raw((space.c(), tokens.c(), &raw mut removed));
        let status = long(py, tokens.is_long(), || {
            let (space, tokens, removed) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_snapshot_cache_remove(cache.raw(), space, tokens, removed) }
        });
        let is_done = check(py, status);
        settle(py);
        is_done.map(|()| removed)
    }

    /// Removes every entry. Pinned snapshots stay until their pins are released.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_snapshot_cache_clear(cache.raw()) });
        let is_done = check(py, status);
        settle(py);
        is_done
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
