//! Rows that only grow: for engines whose block tables are append-only, such as vLLM's.
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::c::*;
use crate::cache::Cache;
use crate::engine_row::{EngineRow, held};
use crate::handle::{Raw, long};
use crate::space::{Namespace, Space};
use crate::status::{check, refused};
use crate::tokens::TokenArg;

/// The pages of a request in an engine that never exchanges a page it has handed out, from
/// `Cache.growing_row()`.
///
/// A Sequence takes over the cache's page where another request has published the same tokens. An
/// engine whose kernels go on with the pages that they were told of can't follow that. Here such a
/// page of the row's own stays private to it, and is free when the row is released.
///
/// The row has no slot in the page table, and keeps its tokens, so that nothing is passed twice.
/// It holds one lock, on the prefix that it has published. It releases everything when it goes.
/// One thread uses it at a time; another one gets Busy.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct GrowingRow {
    cache: Py<Cache>,
    space: Space,
    page_size: usize,
    state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    tokens: Vec<u32>,
    pages: Vec<u32>,
    /// Leading pages that were given to the cache.
    published: usize,
    /// Of those, the ones that it did not take: private, and in no row.
    duplicates: Vec<u32>,
    /// Where the published pages end, and the lock on it.
    node: u64,
    lock: u64,
    /// What the last match found.
    found: Vec<u32>,
    found_node: u64,
}

/// The ids of a list of text.
pub fn ids_of(tokens: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    TokenArg::of(tokens, "tokens")?.to_vec().ok_or_else(|| {
        let message = "tokens: a growing row takes text alone";
        refused(tokens.py(), RKV_STATUS_UNSUPPORTED, message)
    })
}

/// Tokens as the library takes them.
pub fn text(tokens: &[u32]) -> rkv_tokens {
    let ids = if tokens.is_empty() { std::ptr::null() } else { tokens.as_ptr() };
    rkv_tokens { ids, count: tokens.len(), ..rkv_tokens::sized() }
}

#[pymethods]
impl Cache {
    /// A row that only grows, for a prompt; see GrowingRow. It has no pages yet. Raises
    /// Unsupported with several groups of layers, and from its methods with an external pool.
    #[pyo3(signature = (tokens, *, space=None))]
    fn growing_row(
        this: &Bound<'_, Self>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
    ) -> PyResult<GrowingRow> {
        let py = this.py();
        let tokens = ids_of(tokens)?;
        let table = this.get().table.get();
        if table.groups.len() > 1 {
            let message = "growing_row: one group of layers is needed";
            return Err(refused(py, RKV_STATUS_UNSUPPORTED, message));
        }
        Ok(GrowingRow {
            cache: this.clone().unbind(),
            space: Space::of(space),
            page_size: table.page_size as usize,
            state: Mutex::new(State { tokens, ..State::default() }),
        })
    }
}

impl GrowingRow {
    /// Finds the whole pages of the first tokens.
    fn find(&self, py: Python<'_>, state: &mut State, limit: usize, flags: u32) -> PyResult<u64> {
        let cache = self.cache.get().handle.get(py)?;
        let tokens = text(&state.tokens[..limit.min(state.tokens.len())]);
        state.found.resize(tokens.count / self.page_size, 0);
        let mut result = rkv_cache_match_result::sized();
        let call = Raw((self.space.c(), &raw const tokens, state.found.as_mut_ptr()));
        let (room, into) = (state.found.len(), Raw(&raw mut result));
        let status = long(py, tokens.count >= crate::tokens::LONG, || {
            let (space, tokens, found) = call.get();
            // SAFETY: a live handle, arguments that are kept, room for every whole page.
            unsafe { rkv_cache_match(cache.raw(), space, tokens, flags, found, room, into.get()) }
        });
        if status != RKV_STATUS_OK {
            state.found.clear();
            check(py, status)?;
        }
        state.found.truncate(result.page_count as usize);
        state.found_node = result.node;
        Ok(result.lock)
    }

    /// Gives the tokens and pages up to `end` pages to the cache.
    fn publish(&self, py: Python<'_>, state: &mut State, end: usize) -> PyResult<()> {
        let cache = self.cache.get().handle.get(py)?;
        let first = state.published;
        let tokens = text(&state.tokens[..end * self.page_size]);
        let args = rkv_cache_insert_args {
            flags: RKV_INSERT_LOCK,
            space: self.space.c(),
            tokens: &tokens,
            pages: state.pages.as_ptr(),
            page_count: end,
            from_node: state.node,
            from_token_index: (first * self.page_size) as u64,
            from_page_index: first as u64,
            lock: state.lock,
            ..rkv_cache_insert_args::sized()
        };
        let mut done = rkv_cache_insert_result::sized();
        let call = Raw((&raw const args, &raw mut done));
        let status = long(py, end - first > 16, || {
            let (args, done) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_cache_insert(cache.raw(), args, std::ptr::null_mut(), done) }
        });
        check(py, status)?;
        (state.node, state.lock, state.published) = (done.node, done.lock, end);
        // The cache knows prefixes: what it has already comes first.
        let known = first..first + done.duplicate_page_count as usize;
        state.duplicates.extend_from_slice(&state.pages[known]);
        Ok(())
    }
}

impl EngineRow for GrowingRow {
    type State = State;

    fn state(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        held(py, &self.state)
    }

    #[inline]
    fn page_count(state: &State) -> usize {
        state.pages.len()
    }

    #[inline]
    fn published(state: &State) -> usize {
        state.published
    }

    #[inline]
    fn token_count(state: &State) -> usize {
        state.tokens.len()
    }

    #[inline]
    fn needed(state: &State, page_count: usize, _most: &[usize]) -> usize {
        page_count.saturating_sub(state.pages.len())
    }

    fn begin(&self, py: Python<'_>, state: &mut State, page_count: usize) -> PyResult<()> {
        if !state.pages.is_empty() {
            return Err(refused(py, RKV_STATUS_INVALID_STATE, "the row has pages"));
        }
        if page_count > state.found.len() {
            let message = format!("page_count: {page_count}, and {} were found", state.found.len());
            return Err(refused(py, RKV_STATUS_INVALID_ARGUMENT, &message));
        }
        if page_count == 0 {
            return Ok(());
        }
        let cache = self.cache.get().handle.get(py)?;
        let mut lock = 0;
        let whole = page_count == state.found.len();
        // SAFETY: a live handle.
        if !whole || unsafe { rkv_cache_lock(cache.raw(), state.found_node, &mut lock) } != 0 {
            // Part of it, or nodes came and went since: find it again.
            let before = state.found.clone();
            lock = self.find(py, state, page_count * self.page_size, RKV_MATCH_LOCK)?;
            if state.found != before[..page_count] {
                if lock != 0 {
                    // SAFETY: a live handle.
                    check(py, unsafe { rkv_cache_unlock(cache.raw(), lock) })?;
                }
                let message = "the pages were evicted since they were found";
                return Err(refused(py, RKV_STATUS_STALE_NODE, message));
            }
        }
        state.pages.extend_from_slice(&state.found);
        (state.published, state.node, state.lock) = (page_count, state.found_node, lock);
        Ok(())
    }

    fn grow(
        &self,
        py: Python<'_>,
        state: &mut State,
        added: &[u32],
        positions: usize,
        computed: usize,
    ) -> PyResult<Option<usize>> {
        let (known, held) = (state.tokens.len(), state.pages.len());
        let wanted = positions.div_ceil(self.page_size).max(held);
        let whole = computed / self.page_size;
        if computed > known + added.len() || whole > wanted {
            let message = format!(
                "computed: {computed}, with {} tokens and {wanted} pages",
                known + added.len()
            );
            return Err(refused(py, RKV_STATUS_INVALID_ARGUMENT, &message));
        }
        if wanted > held {
            let table = self.cache.get().table.get().handle.get(py)?;
            state.pages.resize(wanted, 0);
            let into = Raw(state.pages[held..].as_mut_ptr());
            let status = long(py, wanted - held > 16, || {
                // SAFETY: a live handle, room for as many pages.
                unsafe { rkv_page_table_allocate_pages(table.raw(), wanted - held, into.get()) }
            });
            if status != RKV_STATUS_OK {
                state.pages.truncate(held);
                let short = status == RKV_STATUS_OUT_OF_PAGES;
                return if short { Ok(None) } else { check(py, status).map(|()| None) };
            }
        }
        state.tokens.extend_from_slice(added);
        if whole > state.published
            && let Err(reason) = self.publish(py, state, whole)
        {
            state.tokens.truncate(known);
            let fresh = state.pages.split_off(held);
            let table = self.cache.get().table.get().handle.get(py)?;
            // SAFETY: a live handle, pages that were allocated above.
            let status =
                unsafe { rkv_page_table_free_pages(table.raw(), fresh.as_ptr(), fresh.len()) };
            debug_assert_eq!(status, RKV_STATUS_OK);
            return Err(reason);
        }
        Ok(Some(held))
    }

    fn let_go(&self, py: Python<'_>, state: &mut State) -> PyResult<()> {
        let cache = self.cache.get().handle.get(py)?;
        let table = self.cache.get().table.get().handle.get(py)?;
        let mut private = std::mem::take(&mut state.pages).split_off(state.published);
        private.append(&mut state.duplicates);
        let lock = std::mem::take(&mut state.lock);
        (state.published, state.node) = (0, 0);
        // SAFETY: live handles, pages that are this row's alone.
        unsafe {
            if lock != 0 {
                check(py, rkv_cache_unlock(cache.raw(), lock))?;
            }
            let (from, count) = (private.as_ptr(), private.len());
            check(py, rkv_page_table_free_pages(table.raw(), from, count))
        }
    }

    fn pages<'py>(py: Python<'py>, state: &State, first: usize) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &state.pages[first..])
    }
}

#[pymethods]
impl GrowingRow {
    /// Its pages, as a list.
    #[getter(pages)]
    fn all_pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Self::pages(py, &*EngineRow::state(self, py)?, 0)
    }

    /// How many pages it has.
    #[getter(page_count)]
    fn held_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(EngineRow::state(self, py)?.pages.len())
    }

    /// How many tokens it knows.
    #[getter(token_count)]
    fn known_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(EngineRow::state(self, py)?.tokens.len())
    }

    /// How many of its leading pages others find, by these pages or by those of another request.
    #[getter]
    fn published_page_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(EngineRow::state(self, py)?.published)
    }

    /// The pages of the longest cached prefix among its first `limit` tokens, as a list; it has
    /// none of them yet.
    #[pyo3(name = "match")]
    fn match_<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let mut state = EngineRow::state(self, py)?;
        self.find(py, &mut state, limit, 0)?;
        PyList::new(py, &state.found)
    }

    /// Begins the row with the first pages of the last match, and locks them. Raises
    /// InvalidArgument for more than were found, InvalidState when it has pages, StaleNode when
    /// they were evicted since.
    fn take(&self, py: Python<'_>, page_count: usize) -> PyResult<()> {
        self.begin(py, &mut *EngineRow::state(self, py)?, page_count)
    }

    /// Adds tokens, gives the row pages for its first `positions`, and publishes the whole pages
    /// among the first `computed`, of which the tokens are known: a page that is published is not
    /// written again. Evicts when the pool is short.
    ///
    /// Returns the new pages as a list, None when there are too few: nothing has changed then.
    /// Raises InvalidArgument when more is computed than known or has pages, StaleNode when the
    /// namespace was cleared since the row began.
    #[pyo3(signature = (tokens, positions, computed))]
    fn extend<'py>(
        &self,
        py: Python<'py>,
        tokens: Option<&Bound<'py, PyAny>>,
        positions: usize,
        computed: usize,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let added = tokens.map(ids_of).transpose()?.unwrap_or_default();
        let mut state = EngineRow::state(self, py)?;
        match self.grow(py, &mut state, &added, positions, computed)? {
            Some(held) => PyList::new(py, &state.pages[held..]).map(Some),
            None => Ok(None),
        }
    }

    /// Gives its pages back; what it published stays in the cache. The tokens stay: it can begin
    /// again, as after a preemption.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.let_go(py, &mut *EngineRow::state(self, py)?)
    }
}

impl Drop for GrowingRow {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut state = std::mem::take(state);
        if !state.pages.is_empty() {
            // Of a cache that is closed there is nothing left to give back.
            Python::attach(|py| drop(self.let_go(py, &mut state)));
        }
    }
}
