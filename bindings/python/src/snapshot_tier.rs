//! What is below the memory of a snapshot cache: a directory, and fetches from it.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::c::*;
use crate::handle::{Handle, Raw, ending, filled, long, milliseconds};
use crate::lent;
use crate::record::SnapshotTierStats;
use crate::snapshot::SnapshotCache;
use crate::snapshot_kept::settle;
use crate::snapshot_pin::Pin;
use crate::space::{Namespace, Space};
use crate::status::{check, refused};
use crate::tier;
use crate::tokens::TokenArg;

#[pymethods]
impl SnapshotCache {
    /// Puts a directory below memory, a store that caches share, or both: snapshots with `parts`
    /// are written to them from now on, and those that are in the directory already are found at
    /// once. Attach before the first insert.
    ///
    /// directory: made if it isn't there; this cache's alone until `detach()`.
    /// byte_limit: bytes of data in it, at most; least recently used snapshots go.
    /// fingerprint: 32 bytes that say what the snapshots are good for, a digest of model,
    ///     quantisation, layout; a directory of another one is refused. None for zeros.
    /// write_after_matches: when a snapshot is written: 0 as soon as it is inserted, n when n
    ///     matches have found it, None when it leaves memory.
    /// worker_count: threads that read, and as many that write.
    /// waiting_byte_limit: bytes of snapshots that wait to be written, at most.
    /// commit_interval_ms: from a write to its commit, at most, while the disk keeps up.
    /// event_fd: an eventfd that becomes readable when something was read or written. Read it
    ///     before you ask for the fetches, not after.
    /// remote: a `radixkv.net.Store`, which is kept, and can't be closed, until `detach()` or
    ///     `close()`; or the address of an rkv_remote_store, a number that nothing is checked of:
    ///     what it leads to must stay until then. What it has is found by `fetch()` alone.
    /// remote_timeout_ms: a call to it takes that long at most; 0 for 2000.
    ///
    /// Raises StorageError when the directory cannot be used: another process or cache has it, it
    /// was made by another version or for another fingerprint, or the system refuses;
    /// InvalidState when there is one; InvalidArgument.
    #[pyo3(
        signature = (
            directory=None, byte_limit=0, *, fingerprint=None, write_after_matches=Some(0),
            worker_count=8, waiting_byte_limit=None, commit_interval_ms=250, event_fd=None,
            remote=None, remote_timeout_ms=0
        ),
        text_signature = "($self, directory=None, byte_limit=0, *, fingerprint=None, \
            write_after_matches=0, worker_count=8, waiting_byte_limit=None, \
            commit_interval_ms=250, event_fd=None, remote=None, remote_timeout_ms=0)"
    )]
    #[allow(clippy::too_many_arguments)] // named ones, in Python
    fn attach(
        &self,
        py: Python<'_>,
        directory: Option<Bound<'_, PyAny>>,
        byte_limit: u64,
        fingerprint: Option<[u8; 32]>,
        write_after_matches: Option<u32>,
        worker_count: u32,
        waiting_byte_limit: Option<u64>,
        commit_interval_ms: u32,
        event_fd: Option<i32>,
        remote: Option<Bound<'_, PyAny>>,
        remote_timeout_ms: u32,
    ) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        let directory = tier::directory(directory)?;
        let (remote, lease) = lent::remote(remote.as_ref())?;
        let mut config = rkv_snapshot_tier_config::sized();
        // SAFETY: a struct of the size that is stated.
        check(py, unsafe { rkv_snapshot_tier_config_init(&mut config, size_of_val(&config)) })?;
        config.directory = directory.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
        config.remote = remote;
        config.remote_timeout_ms = remote_timeout_ms;
        config.byte_limit = byte_limit;
        config.fingerprint = fingerprint.unwrap_or_default();
        config.write_after_matches = write_after_matches.unwrap_or(u32::MAX);
        config.worker_count = worker_count;
        config.waiting_byte_limit = waiting_byte_limit.unwrap_or(config.waiting_byte_limit);
        config.commit_interval_ms = commit_interval_ms;
        config.event_fd = event_fd.unwrap_or(config.event_fd);
        let mut given = cache.lent.held(py)?;
        // `close()` may have come between, and lets go of what was attached before it.
        let _open = self.handle.get(py)?;
        let call = Raw(&raw const config);
        // SAFETY: a live handle, a config that is kept, a store that stays until it is detached.
        let attach = || unsafe { rkv_snapshot_cache_attach(cache.raw(), call.get()) };
        let is_done = check(py, long(py, true, attach));
        if is_done.is_ok() {
            given.0.lease = lease;
        }
        drop(given);
        settle(py);
        is_done
    }

    /// Takes the directory away, after waiting for what is being written, so many seconds at most.
    /// Returns whether all of it was. What was committed is found when it is attached again;
    /// snapshots in memory stay. Raises InvalidState when there is none.
    #[pyo3(signature = (timeout=60.0))]
    fn detach(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let cache = self.handle.get(py)?;
        let mut given = cache.lent.held(py)?;
        let in_time = self.wait(py, timeout, rkv_snapshot_cache_detach)?;
        let gone = std::mem::take(&mut given.0);
        drop(given);
        drop(gone);
        Ok(in_time)
    }

    /// Waits until everything that is being written is committed, so many seconds at most: after a
    /// crash it is there. Returns whether it is. Raises InvalidState without a directory.
    #[pyo3(signature = (timeout=60.0))]
    fn flush(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        self.wait(py, timeout, rkv_snapshot_cache_flush)
    }

    /// Starts to bring the longest prefix below memory into it, if it is longer than what memory
    /// has. Returns a Fetch, or None when there is nothing to bring. Never waits for the disk.
    #[pyo3(signature = (tokens, *, space=None, trimmable=false))]
    fn fetch(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
        trimmable: bool,
    ) -> PyResult<Option<Fetch>> {
        let flags = if trimmable { RKV_SNAPSHOT_MATCH_TRIMMABLE } else { 0 };
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let space = Space::of(space);
        let found = filled(py, |out| {
            let call = Raw((space.c(), tokens.c(), out));
            long(py, true, || {
                let (space, tokens, out) = call.get();
                // SAFETY: a live handle, arguments that are kept.
                unsafe { rkv_snapshot_cache_fetch(cache.raw(), space, tokens, flags, out) }
            })
        });
        settle(py);
        let found = found?;
        let ticket = AtomicU64::new(found.ticket);
        Ok((found.ticket != 0).then_some(Fetch { cache, ticket, found }))
    }

    /// Counters of what is below memory; all zero when nothing is.
    fn tier_stats(&self, py: Python<'_>) -> PyResult<SnapshotTierStats> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        let read = |out| unsafe { rkv_snapshot_cache_read_tier_stats(cache.raw(), out) };
        let stats = filled(py, read);
        settle(py);
        stats.map(SnapshotTierStats)
    }
}

impl SnapshotCache {
    fn wait(
        &self,
        py: Python<'_>,
        timeout: f64,
        call: unsafe extern "C" fn(*mut rkv_snapshot_cache, u64) -> i32,
    ) -> PyResult<bool> {
        let (cache, timeout) = (self.handle.get(py)?, milliseconds(timeout, "timeout")?);
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { call(cache.raw(), timeout) });
        let is_done = match status {
            RKV_STATUS_PENDING => Ok(false),
            _ => check(py, status).map(|()| true),
        };
        settle(py);
        is_done
    }
}

/// A snapshot that is on its way from below memory. `take()`, `cancel()`, the end of its `with` or
/// of the object ends it.
#[pyclass(frozen, module = "radixkv")]
pub struct Fetch {
    cache: Arc<Handle<rkv_snapshot_cache>>,
    /// 0 once it has ended.
    ticket: AtomicU64,
    found: rkv_snapshot_cache_fetch_result,
}

impl Fetch {
    /// Ends it; whether it went on until now.
    fn end(&self, py: Python<'_>) -> PyResult<bool> {
        let ticket = self.ticket.swap(0, Ordering::AcqRel);
        if ticket == 0 {
            return Ok(false);
        }
        // SAFETY: a live handle.
        let status =
            long(py, true, || unsafe { rkv_snapshot_cache_cancel(self.cache.raw(), ticket) });
        let is_done = match status {
            // With the directory all fetches ended.
            RKV_STATUS_STALE_TICKET => Ok(false),
            _ => check(py, status).map(|()| true),
        };
        settle(py);
        is_done
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if *self.ticket.get_mut() != 0 {
            // Nobody is left to be told.
            let _ = ending(|py| self.end(py));
        }
    }
}

fn ended(py: Python<'_>) -> PyErr {
    refused(py, RKV_STATUS_STALE_TICKET, "the fetch has ended")
}

#[pymethods]
impl Fetch {
    /// Tokens of the snapshot that it brings.
    #[getter]
    fn token_count(&self) -> u64 {
        self.found.token_count
    }

    /// Of those, how many the list begins with: fewer only with `trimmable`.
    #[getter]
    fn common_token_count(&self) -> u64 {
        self.found.common_token_count
    }

    /// What the snapshot takes.
    #[getter]
    fn size_bytes(&self) -> u64 {
        self.found.size_bytes
    }

    /// Takes what it has brought. Returns a Pin, or None when the snapshot could not be had, and
    /// the fetch has ended then. Raises Pending while it goes on: ask again, or sleep on the
    /// eventfd of `attach()`; StaleTicket when it has ended before, or with the directory.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Pin>> {
        let ticket = self.ticket.load(Ordering::Acquire);
        if ticket == 0 {
            return Err(ended(py));
        }
        let found = filled(py, |out| {
            let call = Raw(out);
            long(py, true, || {
                // SAFETY: a live handle, and room for what was found.
                unsafe { rkv_snapshot_cache_take(self.cache.raw(), ticket, call.get()) }
            })
        });
        settle(py);
        let found = found?;
        self.ticket.store(0, Ordering::Release);
        Ok(Pin::of(py, self.cache.clone(), found))
    }

    /// Gives it up. Raises StaleTicket when it has ended.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        if self.end(py)? { Ok(()) } else { Err(ended(py)) }
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Gives it up unless it has ended inside the block.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.end(py).map(drop)
    }
}
