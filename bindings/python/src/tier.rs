//! What is below the pages of a cache: host memory, a directory, a store that caches share.
use std::ffi::CString;
use std::ptr::null;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::{Array, Kind};
use crate::c::*;
use crate::cache::Cache;
use crate::handle::{Raw, filled, long, milliseconds};
use crate::lent::{self, Given};
use crate::record::{FetchResult, PrefetchResult, TierStats};
use crate::sequence::Sequence;
use crate::space::{Namespace, Space};
use crate::status::check;
use crate::tokens::TokenArg;

/// A path as the library takes it, of all that Python takes for one.
pub fn directory(path: Option<Bound<'_, PyAny>>) -> PyResult<Option<CString>> {
    let Some(path) = path else { return Ok(None) };
    let path: Vec<u8> = path.py().import("os")?.call_method1("fsencode", (&path,))?.extract()?;
    let refused = |_| PyValueError::new_err("directory: has a NUL");
    CString::new(path).map(Some).map_err(refused)
}

/// Milliseconds until a deadline; None is no deadline.
fn deadline_ms(deadline: Option<f64>) -> PyResult<u64> {
    deadline.map_or(Ok(u64::MAX), |seconds| milliseconds(seconds, "deadline"))
}

fn look_flag(look_only: bool) -> u32 {
    if look_only { RKV_FETCH_LOOK_ONLY } else { 0 }
}

/// A pool as the caller tells it: bytes of a page, bytes of host memory, and where that is.
type Pool<'py> = (u64, u64, Option<Bound<'py, PyAny>>);

/// The same for the library, and what keeps the memory. Bytes that are not told are all of it.
fn pool(
    (page_bytes, host_bytes, memory): &Pool<'_>,
    name: &str,
) -> PyResult<(rkv_tier_pool_config, Option<Array>)> {
    let memory = memory.as_ref().map(|it| Array::of(it, name, true)?.on_host(name)).transpose()?;
    let room = memory.as_ref().map(|it| (it.count * it.item_size) as u64);
    let host_bytes = match room {
        Some(room) if *host_bytes == 0 => room,
        Some(room) if *host_bytes > room => {
            let message = format!("{name}: {host_bytes} bytes are needed, {room} are there");
            return Err(PyValueError::new_err(message));
        }
        _ => *host_bytes,
    };
    let host_memory = memory.as_ref().map_or(std::ptr::null_mut(), Array::data);
    Ok((rkv_tier_pool_config { page_bytes: *page_bytes, host_bytes, host_memory }, memory))
}

#[pymethods]
impl Cache {
    /// Puts host memory, and perhaps a directory and a store that caches share, below the pages of
    /// a cache that has a journal (`journal_bytes`). Pages that are published are copied there, and
    /// found again when they were evicted; what the directory has already is found at once. Nothing
    /// that happens to any of them later fails a call: a page that can't be had is computed. The
    /// engine carries the copies out, see `poll()`.
    ///
    /// page_bytes: of a page in all layers together: what a copy moves.
    /// host_bytes: of host memory, at most: as many pages as fit.
    /// host_memory: where those are, a dense array on the host that can be written, pinned say, and
    ///     that nobody else touches; it is kept until `detach_tiers()` or `close()`. Without
    ///     host_bytes, all of it. None: memory of the library's own.
    /// pools: of a page table with several pools, a TierPool for each, in order, in the place of
    ///     the three before.
    /// directory: made if it is not there, with its parents; this cache's alone. None for none.
    /// disk_bytes: of data in it, at most.
    /// fingerprint: 32 bytes, a digest of model, quantisation, layout, rank and whatever else
    ///     changes what the bytes of a page mean; a directory of another one is refused. None for
    ///     zeros.
    /// store_after_uses: when a page is copied to host memory: 0 as soon as it is published, n when
    ///     n fetches have asked for what follows it, 255 at most, None when it is about to be
    ///     evicted.
    /// worker_count: requests that are under way to the disk at once, as many to read as to write.
    /// commit_interval_ms: from a write to its commit, at most, while the disk keeps up.
    /// event_fd: an eventfd that becomes readable when there is something to `poll()` for. Read it
    ///     before, not after: what comes is announced once, and not again until the next poll.
    /// remote: a `radixkv.net.Store`, which is kept, and can't be closed, until `detach_tiers()` or
    ///     `close()`; or the address of an rkv_remote_store, a number that nothing is checked of:
    ///     what it leads to must stay until then, and until calls in other threads have ended.
    /// remote_timeout_ms: a call to it takes that long at most; 0 for 2000.
    /// agree: nothing that was fetched is used before `Sequence.agree()`, for ranks that compute
    ///     one model together.
    /// threads: the directory is written by threads, also where the system has io_uring.
    ///
    /// Lets other Python threads run. Raises InvalidArgument and ValueError naming the argument;
    /// InvalidState when the cache has tiers, or no journal; Unsupported with an external pool;
    /// StorageError when the directory cannot be used: another process or cache has it, it was made
    /// by another version or for another fingerprint, or the system refuses.
    #[pyo3(
        signature = (
            page_bytes=0, host_bytes=0, *, host_memory=None, pools=Vec::new(), directory=None,
            disk_bytes=0, fingerprint=None, store_after_uses=Some(0), worker_count=8,
            commit_interval_ms=250, event_fd=None, remote=None, remote_timeout_ms=0, agree=false,
            threads=false
        ),
        text_signature = "($self, page_bytes=0, host_bytes=0, *, host_memory=None, pools=(), \
            directory=None, disk_bytes=0, fingerprint=None, store_after_uses=0, worker_count=8, \
            commit_interval_ms=250, event_fd=None, remote=None, remote_timeout_ms=0, agree=False, \
            threads=False)"
    )]
    #[allow(clippy::too_many_arguments)] // named ones, in Python
    fn attach_tiers(
        &self,
        py: Python<'_>,
        page_bytes: u64,
        host_bytes: u64,
        host_memory: Option<Bound<'_, PyAny>>,
        pools: Vec<Pool<'_>>,
        directory: Option<Bound<'_, PyAny>>,
        disk_bytes: u64,
        fingerprint: Option<[u8; 32]>,
        store_after_uses: Option<u32>,
        worker_count: u32,
        commit_interval_ms: u32,
        event_fd: Option<i32>,
        remote: Option<Bound<'_, PyAny>>,
        remote_timeout_ms: u32,
        agree: bool,
        threads: bool,
    ) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        let directory = self::directory(directory)?;
        let (whole, memory) = pool(&(page_bytes, host_bytes, host_memory), "host_memory")?;
        let mut kept: Vec<_> = memory.into_iter().collect();
        let mut list = Vec::new();
        for (at, given) in pools.iter().enumerate() {
            let (pool, memory) = pool(given, &format!("pools[{at}]: host_memory"))?;
            list.push(pool);
            kept.extend(memory);
        }
        let (remote, lease) = lent::remote(remote.as_ref())?;
        let mut config = rkv_tier_config::sized();
        // SAFETY: a struct of the size that is stated.
        check(py, unsafe { rkv_tier_config_init(&mut config, size_of_val(&config)) })?;
        config.flags = (if agree { RKV_TIERS_AGREE } else { 0 })
            | (if threads { RKV_TIERS_THREADS } else { 0 });
        config.page_bytes = whole.page_bytes;
        config.host_bytes = whole.host_bytes;
        config.host_memory = whole.host_memory;
        config.directory = directory.as_ref().map_or(null(), |path| path.as_ptr());
        config.disk_bytes = disk_bytes;
        config.fingerprint = fingerprint.unwrap_or_default();
        config.store_after_uses = store_after_uses.unwrap_or(u32::MAX);
        config.worker_count = worker_count;
        config.commit_interval_ms = commit_interval_ms;
        config.event_fd = event_fd.unwrap_or(config.event_fd);
        config.remote = remote;
        config.remote_timeout_ms = remote_timeout_ms;
        config.pools = if list.is_empty() { null() } else { list.as_ptr() };
        config.pool_count = list.len();
        config.pool_size = size_of::<rkv_tier_pool_config>();
        let mut given = cache.lent.held(py)?;
        let call = Raw(&raw const config);
        let status = long(py, true, || {
            // SAFETY: a live handle, a config that is kept, memory and a store that stay until they
            // are detached.
            unsafe { rkv_cache_attach_tiers(cache.raw(), call.get()) }
        });
        check(py, status)?;
        given.0 = Given { arrays: kept, lease };
        Ok(())
    }

    /// Takes the tiers away, after waiting for what is being written, so many seconds at most.
    /// Returns whether all of it was. What was committed is found when the directory is attached
    /// again; host memory is given up. Raises InvalidState when there are none, or copies or
    /// fetches go on.
    #[pyo3(signature = (timeout=60.0))]
    fn detach_tiers(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let (cache, timeout) = (self.handle.get(py)?, milliseconds(timeout, "timeout")?);
        let mut given = cache.lent.held(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_cache_detach_tiers(cache.raw(), timeout) });
        let in_time = status != RKV_STATUS_PENDING;
        if in_time {
            check(py, status)?;
        }
        let gone = std::mem::take(&mut given.0);
        // To let go of an array may run somebody's code.
        drop(given);
        drop(gone);
        Ok(in_time)
    }

    /// Waits until what was copied to host memory before the call is committed in the directory,
    /// and what was cleared is gone from there, so many seconds at most. Returns whether it is.
    /// Copies that are still to be carried out are not waited for. Raises InvalidState without
    /// tiers.
    #[pyo3(signature = (timeout=60.0))]
    fn flush_tiers(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let (cache, timeout) = (self.handle.get(py)?, milliseconds(timeout, "timeout")?);
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_cache_flush_tiers(cache.raw(), timeout) });
        if status == RKV_STATUS_PENDING {
            return Ok(false);
        }
        check(py, status)?;
        Ok(true)
    }

    /// Gives up pages of host memory and of the directory until no more bytes than these are in
    /// use, ends of prefixes first; None leaves either as it is. They may grow again, up to what
    /// they were attached with. Raises InvalidState without tiers.
    #[pyo3(signature = (host_bytes=None, disk_bytes=None))]
    fn shrink_tiers(
        &self,
        py: Python<'_>,
        host_bytes: Option<u64>,
        disk_bytes: Option<u64>,
    ) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        let (host, disk) = (host_bytes.unwrap_or(u64::MAX), disk_bytes.unwrap_or(u64::MAX));
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_cache_shrink_tiers(cache.raw(), host, disk) });
        check(py, status)
    }

    /// Gives copies to carry out, loads first, and the fetches that have ended: for once in each
    /// step of an engine, or when its eventfd is readable. It never waits.
    ///
    /// jobs: an array of `dtypes.copy_job` for copies; no more than 64 come at once. Each is to be
    ///     told to `complete()`. Its page stays what it is until then. A load (`COPY_LOAD`) writes
    ///     to a page that only its sequence has; a store (`COPY_STORE`) reads one that is
    ///     published: begin it after what computes the page. `radixkv.host_page()` is the memory at
    ///     `host`; `Runner.copy_tier_pages()` carries copies out.
    /// ends: an array of `dtypes.fetch_end` for fetches that have ended, each once.
    ///
    /// Returns (copies, fetches): how much of both arrays was filled. Raises InvalidState without
    /// tiers.
    #[pyo3(signature = (jobs=None, ends=None))]
    fn poll(
        &self,
        py: Python<'_>,
        jobs: Option<&Bound<'_, PyAny>>,
        ends: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(u64, u64)> {
        let cache = self.handle.get(py)?;
        let jobs = jobs
            .map(|it| Array::structs::<rkv_copy_job>(it, "jobs", "copy_job", true))
            .transpose()?;
        let ends = ends
            .map(|it| Array::structs::<rkv_fetch_end>(it, "ends", "fetch_end", true))
            .transpose()?;
        let room = |array: &Option<Array>| array.as_ref().map_or(0, |array| array.count);
        let (job_room, end_room) = (room(&jobs), room(&ends));
        let found: rkv_cache_poll_result = filled(py, |out| {
            let jobs = jobs.as_ref().map_or(std::ptr::null_mut(), Array::data);
            let ends = ends.as_ref().map_or(std::ptr::null_mut(), Array::data);
            let call = Raw((jobs, ends, out));
            long(py, true, || {
                let (jobs, ends, out) = call.get();
                let sizes = (size_of::<rkv_copy_job>(), size_of::<rkv_fetch_end>());
                // SAFETY: a live handle, room as stated.
                unsafe {
                    rkv_cache_poll(
                        cache.raw(),
                        jobs,
                        sizes.0,
                        job_room,
                        ends,
                        sizes.1,
                        end_room,
                        out,
                    )
                }
            })
        })?;
        Ok((found.job_count, found.end_count))
    }

    /// Says that copies are done, all bytes of them, or with `good=False` that they failed: what a
    /// store would have kept is not found then, and what a load would have brought is computed.
    ///
    /// jobs: those of `poll()`: an array of `dtypes.copy_job`, or of 64-bit integers, the `job` of
    ///     each. All or none are taken.
    ///
    /// Raises InvalidArgument, also for what is no copy that goes on; InvalidState without tiers.
    #[pyo3(signature = (jobs, *, good=true))]
    fn complete(&self, py: Python<'_>, jobs: &Bound<'_, PyAny>, good: bool) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        let array = Array::of(jobs, "jobs", false)?.readable("jobs")?;
        let given: Vec<u64> = match (array.kind, array.item_size) {
            // SAFETY: the size was checked.
            (Kind::Integer, 8) => unsafe { array.read::<u64>() }.to_vec(),
            (Kind::Struct, size) if size == size_of::<rkv_copy_job>() => {
                // SAFETY: likewise.
                unsafe { array.read::<rkv_copy_job>() }.iter().map(|copy| copy.job).collect()
            }
            _ => {
                let message = "jobs: an array of radixkv.dtypes.copy_job or of 64-bit integers \
                               is needed";
                return Err(pyo3::exceptions::PyTypeError::new_err(message));
            }
        };
        let from = Raw(given.as_ptr());
        let status = long(py, true, || {
            // SAFETY: a live handle, so many numbers.
            unsafe { rkv_cache_complete(cache.raw(), from.get(), given.len(), good) }
        });
        check(py, status)
    }

    /// Starts to bring what the tiers have of a prompt to host memory, before a sequence begins
    /// with it: of a request that waits for its turn, or of a session that is expected. A hint: it
    /// takes no page of the device, fetches go first, and no event says that it has ended.
    ///
    /// tokens: the prompt, or as much of it as is known.
    /// deadline: seconds after which no more is brought; None for none, 0 brings nothing.
    /// look_only: say what there is and bring nothing; the remote store is not asked.
    ///
    /// Returns a PrefetchResult. Raises InvalidState without tiers.
    #[pyo3(signature = (tokens, *, space=None, deadline=None, look_only=false))]
    fn prefetch(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
        deadline: Option<f64>,
        look_only: bool,
    ) -> PyResult<PrefetchResult> {
        let (cache, deadline) = (self.handle.get(py)?, deadline_ms(deadline)?);
        let tokens = TokenArg::of(tokens, "tokens")?;
        let (space, flags) = (Space::of(space), look_flag(look_only));
        let found = filled(py, |out| {
            let call = Raw((space.c(), tokens.c(), out));
            long(py, true, || {
                let (space, tokens, out) = call.get();
                // SAFETY: a live handle, arguments that are kept.
                unsafe { rkv_cache_prefetch(cache.raw(), space, tokens, deadline, flags, out) }
            })
        })?;
        Ok(PrefetchResult(found))
    }

    /// Gives a prefetch up, by `PrefetchResult.prefetch`; one that has ended is not missed. What it
    /// brought stays in host memory until that needs the room. Raises InvalidArgument for one that
    /// was never begun; InvalidState without tiers.
    fn cancel_prefetch(&self, py: Python<'_>, prefetch: u64) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_cache_cancel_prefetch(cache.raw(), prefetch) });
        check(py, status)
    }

    /// Counters of what is below the pages, tier by tier; all zero when nothing is.
    fn tier_stats(&self, py: Python<'_>) -> PyResult<TierStats> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        filled(py, |out| unsafe { rkv_cache_read_tier_stats(cache.raw(), out) }).map(TierStats)
    }
}

#[pymethods]
impl Sequence {
    /// Starts to bring what the tiers have of the sequence beyond what it reuses, into its own
    /// pages. For one that has computed nothing beyond what it has published, and before the copies
    /// of `copies()` are carried out. `Cache.poll()` says when it has ended, and how many positions
    /// need not be computed; until then plans, `publish()` and `retain()` raise Pending. What can't
    /// be had, or doesn't come in time, is left to compute.
    ///
    /// deadline: seconds after which no more is brought; None for none but remote_timeout_ms, 0
    ///     takes only what host memory has.
    /// look_only: say what could be fetched and fetch nothing; the remote store is not asked.
    ///
    /// Returns a FetchResult; `is_open` is 0 when nothing is to be waited for. Never waits for the
    /// disk. Raises Pending when a fetch of the sequence is open; InvalidState without tiers.
    #[pyo3(signature = (deadline=None, *, look_only=false))]
    fn fetch(
        &self,
        py: Python<'_>,
        deadline: Option<f64>,
        look_only: bool,
    ) -> PyResult<FetchResult> {
        let ((cache, id), deadline) = (self.live(py)?, deadline_ms(deadline)?);
        let found = filled(py, |out| {
            let call = Raw(out);
            long(py, true, || {
                let flags = look_flag(look_only);
                // SAFETY: a live handle, room for what was found.
                unsafe { rkv_sequence_fetch(cache.raw(), id, deadline, flags, call.get()) }
            })
        })?;
        Ok(FetchResult(found))
    }

    /// Makes it reuse no more positions than all ranks can: the least of what the `position_count`
    /// of `dtypes.fetch_end` or, where nothing was fetched, `info().cached_position_count` says on
    /// each. With `agree` tiers a fetch ends by this, and nothing of it is used before.
    ///
    /// Returns how many it reuses now; where that is less than was asked for, all ranks agree once
    /// more on the least. Raises Pending while its fetch goes on; OutOfPages, and nothing changed;
    /// InvalidState without tiers, or when it has computed.
    fn agree(&self, py: Python<'_>, position_count: u64) -> PyResult<u64> {
        let ((cache, id), mut agreed) = (self.live(py)?, 0);
        let call = Raw(&raw mut agreed);
        let status = long(py, true, || {
            // SAFETY: a live handle.
            unsafe { rkv_sequence_agree(cache.raw(), id, position_count, call.get()) }
        });
        check(py, status)?;
        Ok(agreed)
    }
}
