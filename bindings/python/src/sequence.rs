//! Sequences, one by one: an object that releases what it names.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::c::*;
use crate::cache::Cache;
use crate::handle::{Handle, Raw, ending, filled, listed, long};
use crate::record::{PublishResult, SequenceInfo};
use crate::status::{check, refused};
use crate::tokens::TokenArg;

/// A live sequence of a cache: a prompt, its row of pages, and the lock on what it shares. From
/// `Cache.begin()`, `continue_from()` or `fork()`.
///
/// It owns the sequence: leaving its `with`, `release()`, or the end of the object releases it.
/// `detach()` gives the id to code that works with ids, as the batch verbs do. After any of these,
/// and when the cache is closed, its methods raise StaleSequence or InvalidState. One from
/// `Cache.sequence()` owns nothing unless asked to.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct Sequence {
    cache: Py<Cache>,
    /// 0 when the sequence is no longer this object's.
    id: AtomicU64,
    /// Whether it ends with this object.
    owned: bool,
}

impl Sequence {
    pub fn new(cache: Py<Cache>, id: u64) -> Self {
        Sequence { cache, id: AtomicU64::new(id), owned: true }
    }

    /// One that somebody else ends, by its id.
    pub fn borrowed(cache: Py<Cache>, id: u64) -> Self {
        Sequence { cache, id: AtomicU64::new(id), owned: false }
    }

    pub fn live(&self, py: Python<'_>) -> PyResult<(Arc<Handle<rkv_cache>>, u64)> {
        let cache = self.cache.get().handle.get(py)?;
        match self.id.load(Ordering::Acquire) {
            0 => Err(refused(py, RKV_STATUS_STALE_SEQUENCE, "the sequence was released")),
            id => Ok((cache, id)),
        }
    }

    /// Takes the sequence away from the object: only one caller gets it.
    fn take(&self, py: Python<'_>) -> PyResult<(Arc<Handle<rkv_cache>>, u64)> {
        let (cache, id) = self.live(py)?;
        match self.id.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok((cache, id)),
            Err(_) => Err(refused(py, RKV_STATUS_STALE_SEQUENCE, "the sequence was released")),
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let id = *self.id.get_mut();
        if id == 0 || !self.owned {
            return;
        }
        ending(|py| {
            if let Ok(cache) = self.cache.get().handle.get(py) {
                // SAFETY: a live handle. One that is stale by now was ended by its id.
                long(py, true, || unsafe { rkv_sequence_release(cache.raw(), id) });
            }
        });
    }
}

#[pymethods]
impl Sequence {
    /// The id that the batch verbs and plans take. Raises StaleSequence after `release()`.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.live(py)?.1)
    }

    /// The cache that it lives in.
    #[getter]
    fn cache(&self, py: Python<'_>) -> Py<Cache> {
        self.cache.clone_ref(py)
    }

    /// Its row in the page table.
    #[getter]
    fn slot(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.info(py)?.0.slot)
    }

    /// Gives the sequence up without ending it, and returns its id.
    fn detach(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.take(py)?.1)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    /// Releases the sequence unless it ended inside the block, or is not this object's to end.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        if !self.owned {
            return Ok(());
        }
        let Ok((cache, id)) = self.take(py) else { return Ok(()) };
        // SAFETY: a live handle.
        match long(py, true, || unsafe { rkv_sequence_release(cache.raw(), id) }) {
            RKV_STATUS_STALE_SEQUENCE => Ok(()),
            status => check(py, status),
        }
    }

    /// The sequence as it stands: where computing starts (`cached_position_count`), and whether
    /// `copies()` are to be carried out and confirmed before (`copy_count`).
    fn info(&self, py: Python<'_>) -> PyResult<SequenceInfo> {
        let (cache, id) = self.live(py)?;
        // SAFETY: a live handle.
        filled(py, |out| unsafe { rkv_sequence_read_info(cache.raw(), id, out) }).map(SequenceInfo)
    }

    /// The pages of its row in a group of layers, as a new array of uint32; 0 where a window has
    /// passed. Never write to the first `info().shared_page_count` of them.
    #[pyo3(signature = (first_index=0, *, group=0))]
    fn pages<'py>(
        &self,
        py: Python<'py>,
        first_index: usize,
        group: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (cache, id) = self.live(py)?;
        listed(py, "u4", |into, room, count| {
            let into = into.cast();
            // SAFETY: a live handle, room as stated.
            unsafe {
                rkv_sequence_read_group_row(cache.raw(), id, group, first_index, into, room, count)
            }
        })
    }

    /// The page copies that it waits for, as a new array of `dtypes.page_copy`: carry them out in
    /// every layer before it computes, then `confirm_copies()`. A runner does both by itself.
    fn copies<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let ((cache, id), size) = (self.live(py)?, size_of::<rkv_page_copy>());
        listed(py, "page_copy", |into, room, count| {
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_sequence_read_copies(cache.raw(), id, into.cast(), size, room, count) }
        })
    }

    /// Says that its copies are done. Raises InvalidState when none is open.
    fn confirm_copies(&self, py: Python<'_>) -> PyResult<()> {
        let (cache, id) = self.live(py)?;
        // SAFETY: a live handle.
        check(py, unsafe { rkv_sequence_confirm_copies(cache.raw(), id) })
    }

    /// Allocates the pages that it lacks for its first positions, for a prompt that began with
    /// `allocate`. Raises OutOfPages: nothing has changed then.
    fn allocate(&self, py: Python<'_>, position_count: u64) -> PyResult<()> {
        let (cache, id) = self.live(py)?;
        let status = long(py, true, || {
            // SAFETY: a live handle.
            unsafe { rkv_sequence_allocate(cache.raw(), id, position_count) }
        });
        check(py, status)
    }

    /// Adds tokens, e.g. the one just decoded, and the pages they need. All or nothing. Raises
    /// OutOfPages. For many sequences `Cache.append_many()` is quicker.
    fn append(&self, py: Python<'_>, tokens: &Bound<'_, PyAny>) -> PyResult<()> {
        let (cache, id) = self.live(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let call = Raw(tokens.c());
        let status = long(py, tokens.count() > 64, || {
            // SAFETY: a live handle, tokens that are kept.
            unsafe { rkv_sequence_append(cache.raw(), id, call.get()) }
        });
        check(py, status)
    }

    /// Takes the last positions off, e.g. draft tokens that were refused. Raises InvalidArgument
    /// for fewer than the prompt's or the published ones.
    ///
    /// With a state group, the state after `position_count` becomes the sequence's, of those that
    /// the last step left in the group's row, one behind each token: `Group.state()`.
    fn truncate(&self, py: Python<'_>, position_count: u64) -> PyResult<()> {
        let (cache, id) = self.live(py)?;
        let status = long(py, true, || {
            // SAFETY: a live handle.
            unsafe { rkv_sequence_truncate(cache.raw(), id, position_count) }
        });
        check(py, status)
    }

    /// Publishes the whole pages among its first positions, whose KV is written, so that others
    /// find them. Raises InvalidState when a copy is not confirmed yet, InvalidArgument.
    fn publish(&self, py: Python<'_>, computed_position_count: u64) -> PyResult<PublishResult> {
        let (cache, id) = self.live(py)?;
        let mut done = rkv_sequence_publish_result::sized();
        let call = Raw(&raw mut done);
        let status = long(py, true, || {
            // SAFETY: a live handle.
            unsafe { rkv_sequence_publish(cache.raw(), id, computed_position_count, call.get()) }
        });
        check(py, status)?;
        Ok(PublishResult(done))
    }

    /// What the last `publish()` did in the groups beside the first, whose pages its result counts.
    /// A new array of `dtypes.published_group`.
    fn published<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let ((cache, id), size) = (self.live(py)?, size_of::<rkv_published_group>());
        listed(py, "published_group", |into, room, count| {
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_sequence_read_published(cache.raw(), id, into.cast(), size, room, count) }
        })
    }

    /// Ends it: its private pages return to the pool, what it published stays in the cache. Raises
    /// StaleSequence the second time.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let (cache, id) = self.take(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_sequence_release(cache.raw(), id) });
        check(py, status)
    }

    /// Ends it, but keeps it for `Cache.continue_from()` and `Cache.fork()` under its id.
    ///
    /// Returns the id, or None when it was released instead: it has more pages than all retained
    /// ones may have, its namespace was cleared since it began, or pages that a fetch brought were
    /// not published for want of memory, which `publish()` before tries again.
    fn retain(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let (cache, id) = self.live(py)?;
        let mut retained = false;
        let call = Raw(&raw mut retained);
        // Others may give way to it, which takes a while. SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_sequence_retain(cache.raw(), id, call.get()) });
        check(py, status)?;
        self.id.store(0, Ordering::Release);
        Ok(retained.then_some(id))
    }

    /// Begins to save its recurrent states where it is; all that is computed must be published and
    /// end with a page. Returns the number of copies to carry out and confirm. Raises OutOfPages,
    /// Unsupported without a state group.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<usize> {
        let ((cache, id), mut count) = (self.live(py)?, 0);
        let call = Raw(&raw mut count);
        // It may evict. SAFETY: a live handle.
        let status =
            long(py, true, || unsafe { rkv_sequence_checkpoint(cache.raw(), id, call.get()) });
        check(py, status)?;
        Ok(count)
    }

    /// Ends it like `release()`, and leaves its recurrent states to the cache as checkpoints: where
    /// all that was computed is published, ends with a page, and is what the states are after.
    /// Returns how many. Raises Unsupported without a state group.
    fn donate(&self, py: Python<'_>) -> PyResult<usize> {
        let ((cache, id), mut count) = (self.live(py)?, 0);
        let call = Raw(&raw mut count);
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_sequence_donate(cache.raw(), id, call.get()) });
        check(py, status)?;
        self.id.store(0, Ordering::Release);
        Ok(count)
    }

    /// Lets its windows slide without publishing: pages that the next position does not need go
    /// back to their pools.
    fn slide(&self, py: Python<'_>, computed_position_count: u64) -> PyResult<()> {
        let (cache, id) = self.live(py)?;
        let status = long(py, true, || {
            // SAFETY: a live handle.
            unsafe { rkv_sequence_slide(cache.raw(), id, computed_position_count) }
        });
        check(py, status)
    }

    fn __repr__(&self) -> String {
        format!("Sequence(id={:#x})", self.id.load(Ordering::Acquire))
    }
}
