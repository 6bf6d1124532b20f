//! The growing rows of an engine's requests, behind the calls that its scheduler makes in a step.
use std::sync::{MutexGuard, OnceLock};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyTuple};

use crate::c::*;
use crate::cache::Cache;
use crate::growing_row::{GrowingRow, State, ids_of};
use crate::handle::filled;
use crate::status::refused;

/// The rows of an engine's requests by their names, with the calls that vLLM's scheduler makes to
/// its KVCacheManager for each request in each step: in compiled code, as most of them find that
/// the step neither needs nor fills a page. A subclass adds the calls that are seldom made.
///
/// Of a request it reads `request_id`, `num_computed_tokens`, `num_tokens`, `status` and
/// `all_token_ids`. The subclass has `begin_row(request)`, which returns a new GrowingRow, and
/// with `tells` also `published(request, pages, first, end)`, which is told of the pages
/// [first, end) that a call gave to the cache. `__init__` has to be called once.
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
    publishes: bool,
    tells: bool,
}

impl Inner {
    fn row<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, GrowingRow>>> {
        match self.rows.bind(name.py()).get_item(name)? {
            Some(row) => Ok(Some(row.cast_into()?)),
            None => Ok(None),
        }
    }

    /// What is computed before this position fills no page.
    fn unpublished_before(&self, state: &State) -> usize {
        if self.publishes { (state.published + 1) * self.page_size } else { usize::MAX }
    }

    /// A step that ends before this position neither needs nor fills a page.
    fn quiet_before(&self, state: &State) -> usize {
        self.unpublished_before(state).min(state.pages.len() * self.page_size + 1)
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

    fn made<'py>(&self, py: Python<'py>, pages: &[u32]) -> PyResult<Bound<'py, PyAny>> {
        if pages.is_empty() {
            return Ok(self.empty.bind(py).clone());
        }
        self.blocks.bind(py).call1((PyList::new(py, pages)?,))
    }
}

fn number(request: &Bound<'_, PyAny>, name: &Bound<'_, pyo3::types::PyString>) -> PyResult<usize> {
    request.getattr(name)?.extract()
}

impl RequestRows {
    fn inner(&self, py: Python<'_>) -> PyResult<&Inner> {
        self.inner.get().ok_or_else(|| {
            refused(py, RKV_STATUS_INVALID_STATE, "RequestRows.__init__() was not called")
        })
    }

    /// Gives a row pages up to `end` and publishes what is computed. The new pages as the engine's
    /// object, or nothing when there are too few.
    fn extend<'py>(
        this: &Bound<'py, Self>,
        row: &GrowingRow,
        mut state: MutexGuard<'_, State>,
        request: &Bound<'py, PyAny>,
        (end, computed): (usize, usize),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = this.py();
        let inner = this.get().inner(py)?;
        let computed = if inner.publishes { computed } else { 0 };
        let known = state.tokens.len();
        let added = if computed > known {
            let part = PySlice::new(py, known as isize, computed as isize, 1);
            ids_of(&request.getattr(intern!(py, "all_token_ids"))?.get_item(part)?)?
        } else {
            Vec::new()
        };
        let before = state.published;
        let Some(held) = row.grow(py, &mut state, &added, end, computed)? else {
            return Ok(None);
        };
        let fresh = inner.made(py, &state.pages[held..])?;
        if inner.tells && state.published > before {
            let told = (request, PyList::new(py, &state.pages)?, before, state.published);
            // Who is told may ask for the row.
            drop(state);
            this.call_method1(intern!(py, "published"), told)?;
        }
        Ok(Some(fresh))
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
    /// with a `status` in `waiting` leaves `watermark` pages to those that run. Without `publishes`
    /// nothing is given to the cache.
    #[pyo3(signature = (
        cache, *, blocks, empty, waiting, max_positions, watermark=0, publishes=true, tells=false
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
        publishes: bool,
        tells: bool,
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
            publishes,
            tells,
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
        let inner = this.get().inner(py)?;
        let found = inner.row(&request.getattr(intern!(py, "request_id"))?)?;
        let before = number(request, intern!(py, "num_computed_tokens"))?;
        let mut began = false;
        if let Some(row) = &found {
            let state = row.get().state(py)?;
            if before + num_new_tokens + num_lookahead_tokens < inner.quiet_before(&state) {
                return Ok(Some(inner.empty.bind(py).clone()));
            }
            began = !state.pages.is_empty();
        }
        if num_external_computed_tokens > 0 || delay_cache_blocks || num_encoder_tokens > 0 {
            let message = "tokens that were computed elsewhere, or by an encoder";
            return Err(pyo3::exceptions::PyNotImplementedError::new_err(message));
        }
        if num_new_tokens == 0 && num_new_computed_tokens == 0 {
            let message = "num_new_tokens: 0, with no computed tokens to take over";
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        }
        let row = match found {
            Some(row) if began => row,
            _ => this.call_method1(intern!(py, "begin_row"), (request,))?.cast_into()?,
        };
        let row = row.get();
        let mut state = row.state(py)?;
        if num_new_computed_tokens > 0 {
            row.begin(py, &mut state, num_new_computed_tokens / inner.page_size)?;
        }
        let computed = (before + num_new_computed_tokens).min(inner.max_positions);
        let end = (computed + num_new_tokens + num_lookahead_tokens).min(inner.max_positions);
        let token_count = number(request, intern!(py, "num_tokens"))?;
        // Tokens that may be taken back, e.g. drafts, are not published.
        let known = (computed + num_new_tokens).min(token_count);
        let mut fits = true;
        if full_sequence_must_fit || reserved_blocks > 0 || inner.watermark > 0 {
            let mut needed = end.div_ceil(inner.page_size) + reserved_blocks;
            if full_sequence_must_fit {
                let whole = token_count.min(inner.max_positions);
                needed = needed.max(whole.div_ceil(inner.page_size));
            }
            if inner.watermark > 0 && has_scheduled_reqs {
                let status = request.getattr(intern!(py, "status"))?;
                if inner.waiting.bind(py).contains(status)? {
                    needed += inner.watermark;
                }
            }
            fits = needed <= state.pages.len() + inner.available(py)?;
        } else if end <= state.pages.len() * inner.page_size
            && known < inner.unpublished_before(&state)
        {
            // It fills a page with a token that is to come, as an asynchronous scheduler does.
            return Ok(Some(inner.empty.bind(py).clone()));
        }
        let fresh = if fits {
            Self::extend(this, row, state, request, (end, known))?
        } else {
            drop(state);
            None
        };
        if fresh.is_none() && num_new_computed_tokens > 0 {
            row.let_go(py, &mut *row.state(py)?)?;
        }
        Ok(fresh)
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
        let row = row.get();
        let state = row.state(py)?;
        if num_computed_tokens >= inner.unpublished_before(&state) {
            Self::extend(this, row, state, request, (0, num_computed_tokens))?;
        }
        Ok(())
    }

    /// All pages of a request.
    fn get_blocks<'py>(
        &self,
        py: Python<'py>,
        request_id: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inner = self.inner(py)?;
        match inner.row(request_id)? {
            Some(row) => inner.made(py, &row.get().state(py)?.pages),
            None => Ok(inner.empty.bind(py).clone()),
        }
    }

    /// Tokens of a request that others find.
    fn estimate_cached_tokens(&self, request: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = request.py();
        let inner = self.inner(py)?;
        match inner.row(&request.getattr(intern!(py, "request_id"))?)? {
            Some(row) => Ok(row.get().state(py)?.published * inner.page_size),
            None => Ok(0),
        }
    }

    /// Ends or preempts a request: what it published stays in the cache.
    fn free(&self, request: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = request.py();
        let inner = self.inner(py)?;
        let name = request.getattr(intern!(py, "request_id"))?;
        if let Some(row) = inner.row(&name)? {
            inner.rows.bind(py).del_item(&name)?;
            let row = row.get();
            row.let_go(py, &mut *row.state(py)?)?;
        }
        Ok(())
    }
}
