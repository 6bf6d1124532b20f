//! The growing rows of an engine's requests, behind the calls that its scheduler makes in a step.
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};

use crate::c::*;
use crate::cache::Cache;
use crate::engine_request::{Step, computed_of, number};
use crate::engine_row::EngineRow;
use crate::group_row::GroupRow;
use crate::handle::filled;
use crate::request_row::{Row, end_late, is_late, published, release, with};
use crate::row_source::ids_of;
use crate::status::refused;

/// The rows of an engine's requests by their names, with the calls that vLLM's scheduler makes to
/// its KVCacheManager for each request in each step: in compiled code, as most of them find that
/// the step neither needs nor fills a page. A subclass adds the calls that are seldom made.
///
/// Of a request it reads `request_id`, `num_computed_tokens`, `num_output_placeholders`,
/// `num_tokens`, `status` and `all_token_ids`, with several groups of layers also
/// `num_in_flight_tokens`. The subclass has `begin_row(request)`, which returns a new GrowingRow,
/// or a GroupRow with several groups, and with `tells` also `published(request, pages, first,
/// end)`, which is told of the pages [first, end) that a call gave to the cache. With several
/// groups `pages` is a list of lists. `__init__` has to be called once.
#[pyclass(frozen, subclass, weakref, module = "radixkv")]
pub struct RequestRows {
    inner: OnceLock<Inner>,
}

struct Inner {
    cache: Py<Cache>,
    rows: Py<PyDict>,
    page_size: usize,
    /// What makes the engine's object of a list of pages, and that of none.
    blocks: Py<PyAny>,
    empty: Py<PyAny>,
    waiting: Py<PyTuple>,
    max_positions: usize,
    watermark: usize,
    most: Vec<usize>,
    publishes: bool,
    /// Whether the pages of a step are given to the cache before it is computed.
    ahead: bool,
    tells: bool,
    /// Pages of states that are only there once this step is computed.
    new_states: Mutex<Vec<u32>>,
    /// Whether a request was refused for one of them, in this step and in the one before.
    waits: [AtomicBool; 2],
    /// New pages of attention, where the engine zeroes them.
    new_pages: Option<Mutex<Vec<u32>>>,
}

impl Inner {
    fn row<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Option<Row<'py>>> {
        self.rows.bind(name.py()).get_item(name)?.map(Row::of).transpose()
    }

    /// What is computed before this position fills no page.
    fn unpublished_before<R: EngineRow>(&self, state: &R::State) -> usize {
        if self.publishes && !R::is_late(state) {
            (R::published(state) + 1) * self.page_size
        } else {
            usize::MAX
        }
    }

    /// A step that ends before this position neither needs nor fills a page. One that fills the
    /// last page may leave a state there, also where the page is not published yet.
    fn quiet_before<R: EngineRow>(&self, state: &R::State) -> usize {
        let end = R::page_count(state) * self.page_size + usize::from(!R::SLIDES);
        self.unpublished_before::<R>(state).min(end)
    }

    /// Pages that are free, or free when they are asked for.
    fn available(&self, py: Python<'_>) -> PyResult<usize> {
        let table = self.cache.get().table.get().handle.get(py)?;
        // SAFETY: a live handle.
        let stats = filled::<rkv_page_table_stats>(py, |out| unsafe {
            rkv_page_table_read_stats(table.raw(), out)
        })?;
        Ok((stats.free_page_count + stats.reclaimable_page_count) as usize)
    }

    /// The engine's object of the pages from a place on.
    fn made<'py, R: EngineRow>(
        &self,
        py: Python<'py>,
        state: &R::State,
        first: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if R::page_count(state) == first {
            return Ok(self.empty.bind(py).clone());
        }
        self.blocks.bind(py).call1((R::pages(py, state, first)?,))
    }

    fn all<'py, R: EngineRow>(&self, py: Python<'py>, row: &R) -> PyResult<Bound<'py, PyAny>> {
        self.made::<R>(py, &*row.state(py)?, 0)
    }

    /// Whether a step that ends there neither needs nor fills a page: nothing then, and otherwise
    /// whether the row has pages.
    fn busy<R: EngineRow>(&self, py: Python<'_>, row: &R, end: usize) -> PyResult<Option<bool>> {
        let state = row.state(py)?;
        Ok((end >= self.quiet_before::<R>(&state)).then(|| R::page_count(&state) > 0))
    }
}

fn list(pages: &Mutex<Vec<u32>>) -> MutexGuard<'_, Vec<u32>> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RequestRows {
    fn inner(&self, py: Python<'_>) -> PyResult<&Inner> {
        self.inner.get().ok_or_else(|| {
            refused(py, RKV_STATUS_INVALID_STATE, "RequestRows.__init__() was not called")
        })
    }

    /// Gives a row pages up to `end` and publishes what is computed. The new pages as the engine's
    /// object, or nothing when there are too few.
    fn extend<'py, R: EngineRow>(
        this: &Bound<'py, Self>,
        row: &R,
        mut state: MutexGuard<'_, R::State>,
        request: &Bound<'py, PyAny>,
        (end, computed): (usize, usize),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = this.py();
        let inner = this.get().inner(py)?;
        let computed = if inner.publishes && !R::is_late(&state) { computed } else { 0 };
        let known = R::token_count(&state);
        let added = if computed > known {
            let part = PySlice::new(py, known as isize, computed as isize, 1);
            ids_of(&request.getattr(intern!(py, "all_token_ids"))?.get_item(part)?)?
        } else {
            Vec::new()
        };
        let before = R::published(&state);
        let Some(held) = row.grow(py, &mut state, &added, end, computed)? else {
            return Ok(None);
        };
        let fresh = inner.made::<R>(py, &state, held)?;
        if let Some(pages) = &inner.new_pages {
            R::attended(&state, held, &mut list(pages));
        }
        let published = R::published(&state);
        if published > before {
            R::drain_states(&mut state, &mut list(&inner.new_states));
            if inner.tells {
                let told = (request, R::pages(py, &state, 0)?, before, published);
                // Who is told may ask for the row.
                drop(state);
                this.call_method1(intern!(py, "published"), told)?;
            }
        }
        Ok(Some(fresh))
    }

    fn publish<R: EngineRow>(
        this: &Bound<'_, Self>,
        row: &R,
        request: &Bound<'_, PyAny>,
        computed: usize,
    ) -> PyResult<()> {
        let (py, state) = (this.py(), row.state(this.py())?);
        if computed >= this.get().inner(py)?.unpublished_before::<R>(&state) {
            Self::extend(this, row, state, request, (0, computed))?;
        }
        Ok(())
    }

    /// Publishes what was computed, and is not published yet.
    fn publish_computed(
        this: &Bound<'_, Self>,
        row: &Row<'_>,
        request: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let computed = computed_of(request)?;
        with!(row, row => Self::publish(this, row.get(), request, computed))
    }

    /// The same of a row that ends, where that waits until then or for the next call.
    fn end(this: &Bound<'_, Self>, row: &Row<'_>, request: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = this.py();
        let was_late = with!(row, row => end_late(py, row.get())?);
        if this.get().inner(py)?.ahead && !was_late {
            return Ok(());
        }
        Self::publish_computed(this, row, request)
    }

    fn allocate<'py, R: EngineRow>(
        this: &Bound<'py, Self>,
        row: &R,
        request: &Bound<'py, PyAny>,
        step: &Step,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = this.py();
        let inner = this.get().inner(py)?;
        let computed = (step.before + step.found).min(inner.max_positions);
        let token_count = number(request, intern!(py, "num_tokens"))?;
        if R::SLIDES && !inner.ahead && step.found == 0 {
            // What a window passes is given up as the row's own unless the cache has it before.
            Self::publish(this, row, request, computed.min(token_count))?;
        }
        let mut state = row.state(py)?;
        if step.found > 0 {
            row.begin(py, &mut state, step.found / inner.page_size)?;
        }
        // A state is copied before the step that leaves it is computed: others wait for the next.
        let waits = R::SLIDES && step.found > 0 && R::rests_on(&state, &list(&inner.new_states));
        let mut fits = !waits;
        let end = (computed + step.new + step.lookahead).min(inner.max_positions);
        // Tokens that may be taken back, as drafts and those of a step that may, are not published.
        let known = if inner.ahead { computed + step.new } else { computed }.min(token_count);
        if R::SLIDES {
            // Steps that are under way still read what is behind their windows.
            let in_flight = number(request, intern!(py, "num_in_flight_tokens"))?;
            row.slide(py, &mut state, computed.saturating_sub(in_flight))?;
        }
        if fits && (step.is_whole || step.reserved > 0 || inner.watermark > 0) {
            // What others reserve limits this step alone, not the whole request.
            let mut needed = R::needed(&state, end.div_ceil(inner.page_size), &[]) + step.reserved;
            if step.is_whole {
                let whole = token_count.min(inner.max_positions).div_ceil(inner.page_size);
                needed = needed.max(R::needed(&state, whole, &inner.most));
            }
            if inner.watermark > 0 && step.has_others {
                let status = request.getattr(intern!(py, "status"))?;
                if inner.waiting.bind(py).contains(status)? {
                    needed += inner.watermark;
                }
            }
            fits = needed == 0 || needed <= inner.available(py)?;
        } else if fits
            && end <= R::page_count(&state) * inner.page_size
            && known < inner.unpublished_before::<R>(&state)
        {
            // It fills a page with a token that is to come, as an asynchronous scheduler does.
            row.step_ends(&mut state, end);
            return Ok(Some(inner.empty.bind(py).clone()));
        }
        let fresh = if fits {
            Self::extend(this, row, state, request, (end, known))?
        } else {
            drop(state);
            None
        };
        if fresh.is_none() && step.found > 0 {
            let mut state = row.state(py)?;
            row.let_go(py, &mut state)?;
            if waits {
                R::has_waited(&mut state);
                inner.waits[0].store(true, Relaxed);
            }
        }
        Ok(fresh)
    }
}

#[pymethods]
impl RequestRows {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        RequestRows { inner: OnceLock::new() }
    }

    /// `blocks` makes the engine's object of a list of pages, `empty` is that of none. A request
    /// with a `status` in `waiting` leaves `watermark` pages to those that run. `most` says how
    /// many pages of each group a request holds at most, for one that has to fit as a whole.
    /// Without `publishes` nothing is given to the cache, and without `ahead` the pages of a step
    /// are given to it by the next call for the request alone, as for an engine that may take a
    /// step back before anybody computes it. With `zeroes` new pages of attention, of
    /// a GroupRow, are kept for `take_new_block_ids()`.
    #[pyo3(signature = (
        cache, *, blocks, empty, waiting, max_positions, watermark=0, most=None, publishes=true,
        ahead=true, tells=false, zeroes=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn __init__(
        &self,
        cache: &Bound<'_, Cache>,
        blocks: Py<PyAny>,
        empty: Py<PyAny>,
        waiting: Py<PyTuple>,
        max_positions: usize,
        watermark: usize,
        most: Option<Vec<usize>>,
        publishes: bool,
        ahead: bool,
        tells: bool,
        zeroes: bool,
    ) -> PyResult<()> {
        let py = cache.py();
        let page_size = cache.get().table.get().page_size as usize;
        let (rows, cache) = (PyDict::new(py).unbind(), cache.clone().unbind());
        let made = Inner {
            cache,
            rows,
            page_size,
            blocks,
            empty,
            waiting,
            max_positions,
            watermark,
            most: most.unwrap_or_default(),
            publishes,
            ahead,
            tells,
            new_states: Mutex::default(),
            waits: Default::default(),
            new_pages: zeroes.then(Mutex::default),
        };
        self.inner.set(made).map_err(|_| {
            refused(py, RKV_STATUS_INVALID_STATE, "RequestRows.__init__() was called before")
        })
    }

    /// The rows by name: the dict itself.
    #[getter]
    fn rows(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        Ok(self.inner(py)?.rows.clone_ref(py))
    }

    /// Pages that are free, or free when they are asked for.
    #[getter]
    fn available_page_count(&self, py: Python<'_>) -> PyResult<usize> {
        self.inner(py)?.available(py)
    }

    /// Pages for the tokens that a step computes: the new ones, or None when there are too few, and
    /// then nothing has changed. Publishes the whole pages among them.
    ///
    /// Raises NotImplementedError for tokens that were computed elsewhere, ValueError for none.
    #[pyo3(signature = (
        request, num_new_tokens, num_new_computed_tokens=0, new_computed_blocks=None,
        num_lookahead_tokens=0, num_external_computed_tokens=0, delay_cache_blocks=false,
        num_encoder_tokens=0, full_sequence_must_fit=false, reserved_blocks=0,
        has_scheduled_reqs=true, skip_zeroing_group_ids=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn allocate_slots<'py>(
        this: &Bound<'py, Self>,
        request: &Bound<'py, PyAny>,
        num_new_tokens: usize,
        num_new_computed_tokens: usize,
        new_computed_blocks: Option<&Bound<'py, PyAny>>,
        num_lookahead_tokens: usize,
        num_external_computed_tokens: usize,
        delay_cache_blocks: bool,
        num_encoder_tokens: usize,
        full_sequence_must_fit: bool,
        reserved_blocks: usize,
        has_scheduled_reqs: bool,
        skip_zeroing_group_ids: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let _ = (new_computed_blocks, skip_zeroing_group_ids);
        let py = this.py();
        if num_external_computed_tokens > 0 || delay_cache_blocks || num_encoder_tokens > 0 {
            let message = "tokens that were computed elsewhere, or by an encoder";
            return Err(pyo3::exceptions::PyNotImplementedError::new_err(message));
        }
        if num_new_tokens == 0 && num_new_computed_tokens == 0 {
            let message = "num_new_tokens: 0, with no computed tokens to take over";
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        }
        let inner = this.get().inner(py)?;
        let found = inner.row(&request.getattr(intern!(py, "request_id"))?)?;
        let before = number(request, intern!(py, "num_computed_tokens"))?;
        let mut began = false;
        if let Some(row) = &found {
            let end = before + num_new_tokens + num_lookahead_tokens;
            match with!(row, row => inner.busy(py, row.get(), end)?) {
                None => return Ok(Some(inner.empty.bind(py).clone())),
                Some(has_pages) => began = has_pages,
            }
        }
        let row = match found {
            Some(row) if began => row,
            _ => Row::of(this.call_method1(intern!(py, "begin_row"), (request,))?)?,
        };
        let step = Step {
            before,
            found: num_new_computed_tokens,
            new: num_new_tokens,
            lookahead: num_lookahead_tokens,
            is_whole: full_sequence_must_fit,
            reserved: reserved_blocks,
            has_others: has_scheduled_reqs,
        };
        with!(row, row => Self::allocate(this, row.get(), request, &step))
    }

    /// `row.depths(limit)` of a request that is to begin. One that would go on from a state which
    /// this step leaves is refused, and whoever stands behind it waits too: in the next step it has
    /// more. But another request may still be in prefill then, and leave a newer state each time.
    /// So the prefix of one that has waited before ends at a state that is there, whenever its turn
    /// comes; and in the step after one in which somebody waited, if that is half of it or more.
    fn depths(
        &self,
        py: Python<'_>,
        row: &Bound<'_, GroupRow>,
        limit: usize,
    ) -> PyResult<(usize, usize)> {
        let (found, known) = row.get().depths(py, limit)?;
        let inner = self.inner(py)?;
        if !inner.waits[1].load(Relaxed) && !row.get().waited(py)? {
            return Ok((found, known));
        }
        let new_states = list(&inner.new_states).clone();
        let count = row.get().without_waiting(py, found, &new_states)?;
        Ok((count, if found == known { count } else { known }))
    }

    /// Lets others find the full pages among the first tokens.
    fn cache_blocks(
        this: &Bound<'_, Self>,
        request: &Bound<'_, PyAny>,
        num_computed_tokens: usize,
    ) -> PyResult<()> {
        let py = this.py();
        let inner = this.get().inner(py)?;
        let Some(row) = inner.row(&request.getattr(intern!(py, "request_id"))?)? else {
            return Ok(());
        };
        with!(row, row => Self::publish(this, row.get(), request, num_computed_tokens))
    }

    /// All pages of a request.
    fn get_blocks<'py>(
        &self,
        py: Python<'py>,
        request_id: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner(py)?;
        match inner.row(request_id)? {
            Some(row) => with!(row, row => inner.all(py, row.get())),
            None => Ok(inner.empty.bind(py).clone()),
        }
    }

    /// Tokens of a request that others find.
    fn estimate_cached_tokens(
        this: &Bound<'_, Self>,
        request: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let py = request.py();
        let inner = this.get().inner(py)?;
        let Some(row) = inner.row(&request.getattr(intern!(py, "request_id"))?)? else {
            return Ok(0);
        };
        if inner.publishes && with!(&row, row => is_late(py, row.get())?) {
            // They will, when it ends.
            return Ok(computed_of(request)? / inner.page_size * inner.page_size);
        }
        if !inner.ahead {
            Self::publish_computed(this, &row, request)?;
        }
        Ok(with!(row, row => published(py, row.get())?) * inner.page_size)
    }

    /// Ends or preempts a request: what it published stays in the cache.
    fn free(this: &Bound<'_, Self>, request: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = request.py();
        let inner = this.get().inner(py)?;
        let name = request.getattr(intern!(py, "request_id"))?;
        let Some(row) = inner.row(&name)? else { return Ok(()) };
        let published = Self::end(this, &row, request);
        inner.rows.bind(py).del_item(&name)?;
        with!(row, row => release(py, row.get()))?;
        published
    }

    /// The new pages of attention since the last call, with `zeroes`.
    fn take_new_block_ids(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let pages = self.inner(py)?.new_pages.as_ref();
        Ok(pages.map(|pages| std::mem::take(&mut *list(pages))).unwrap_or_default())
    }

    /// Ends the time in which nobody goes on from the states that the last step leaves.
    fn new_step_starts(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner(py)?;
        list(&inner.new_states).clear();
        inner.waits[1].store(inner.waits[0].swap(false, Relaxed), Relaxed);
        Ok(())
    }
}
