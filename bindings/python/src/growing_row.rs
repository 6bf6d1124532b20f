//! Rows that only grow: for engines whose block tables are append-only, such as vLLM's.
use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::c::*;
use crate::cache::Cache;
use crate::engine_row::{EngineRow, held, row_methods};
use crate::row_source::{Source, all_published, begun, evicted, ids_of, room_to_tell};
use crate::space::Namespace;
use crate::status::refused;

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
    source: Source,
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
    /// The latest clear when it began.
    began: u64,
    /// Gives its pages to the cache when it ends.
    late: bool,
    /// What the last match found.
    found: Vec<u32>,
    found_node: u64,
}

#[pymethods]
impl Cache {
    /// A row that only grows, for a prompt; see GrowingRow. It has no pages yet. Raises
    /// Unsupported with several groups of layers, and from its methods with an external pool.
    ///
    /// With `late` RequestRows gives its pages to the cache when the request ends, not before: one
    /// that may not be answered from the cache would hold its own pages and, by their lock, those
    /// of the cache with the same tokens.
    #[pyo3(signature = (tokens, *, space=None, late=false))]
    fn growing_row(
        this: &Bound<'_, Self>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
        late: bool,
    ) -> PyResult<GrowingRow> {
        let py = this.py();
        let tokens = ids_of(tokens)?;
        if this.get().table.get().groups.len() > 1 {
            let message = "growing_row: one group of layers is needed";
            return Err(refused(py, RKV_STATUS_UNSUPPORTED, message));
        }
        let state = Mutex::new(State { tokens, late, ..State::default() });
        Ok(GrowingRow { source: Source::new(this, space)?, state })
    }
}

impl GrowingRow {
    /// Finds the whole pages of the first tokens.
    fn find(&self, py: Python<'_>, state: &mut State, limit: usize, flags: u32) -> PyResult<u64> {
        let tokens = &state.tokens[..limit.min(state.tokens.len())];
        let mut pages = std::mem::take(&mut state.found);
        pages.resize(tokens.len() / self.source.page_size, 0);
        let found = self.source.find(py, tokens, flags, &mut pages)?;
        pages.truncate(found.page_count as usize);
        (state.found, state.found_node) = (pages, found.node);
        Ok(found.lock)
    }

    /// Gives the tokens and pages up to `end` pages to the cache.
    fn publish(&self, py: Python<'_>, state: &mut State, end: usize) -> PyResult<()> {
        let first = state.published;
        let mut there = room_to_tell(first, end);
        let (pages, on) = (state.pages.as_ptr(), (state.node, state.lock, state.began));
        let more = (&[][..], &mut there[..]);
        let done = self.source.insert(py, &state.tokens, pages, on, (first, end), more)?;
        let reached = done.page_count as usize;
        (state.node, state.lock, state.published) = (done.node, done.lock, reached);
        if done.duplicate_page_count > 0 {
            let State { pages, duplicates, .. } = state;
            let others = (first..reached).filter(|&at| there.get(at) != Some(&pages[at]));
            duplicates.extend(others.map(|at| pages[at]));
        }
        all_published(py, reached, end)
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
    fn is_late(state: &State) -> bool {
        state.late
    }

    fn end_late(state: &mut State) {
        state.late = false;
    }

    #[inline]
    fn needed(state: &State, page_count: usize, _most: &[usize]) -> usize {
        page_count.saturating_sub(state.pages.len())
    }

    fn begin(&self, py: Python<'_>, state: &mut State, page_count: usize) -> PyResult<()> {
        if !state.pages.is_empty() {
            return Err(begun(py));
        }
        if page_count > state.found.len() {
            let message = format!("page_count: {page_count}, and {} were found", state.found.len());
            return Err(refused(py, RKV_STATUS_INVALID_ARGUMENT, &message));
        }
        if page_count == 0 {
            return Ok(());
        }
        let mut locked = None;
        if page_count == state.found.len() {
            // Inserts nothing and locks the end. A lock alone could be had of what was cleared
            // since, too, where others hold it.
            let (pages, on) = (state.found.as_ptr(), (state.found_node, 0, 0));
            let places = (page_count, page_count);
            let done = self.source.insert(py, &state.tokens, pages, on, places, (&[], &mut []));
            locked = done.ok().map(|done| done.lock);
        }
        let lock = match locked {
            Some(lock) => lock,
            None => {
                // Part of it, or nodes came and went since: find it again.
                let before = state.found.clone();
                let lock =
                    self.find(py, state, page_count * self.source.page_size, RKV_MATCH_LOCK)?;
                if state.found != before[..page_count] {
                    self.source.unlock(py, lock)?;
                    return Err(evicted(py));
                }
                lock
            }
        };
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
        if held == 0 {
            state.began = self.source.begins(py)?;
        }
        let places = self.source.places(py, (known + added.len(), held), (positions, computed))?;
        let Some((wanted, whole)) = places else { return Ok(None) };
        if wanted > held {
            state.pages.resize(wanted, 0);
            let there = self.source.allocate(py, &mut state.pages[held..]);
            if !matches!(there, Ok(true)) {
                state.pages.truncate(held);
                return there.map(|_| None);
            }
        }
        state.tokens.extend_from_slice(added);
        let before = state.published;
        if whole > before
            && let Err(reason) = self.publish(py, state, whole)
        {
            // What others may have found by now stays.
            if state.published == before {
                state.tokens.truncate(known);
                let fresh = state.pages.split_off(held);
                self.source.free(py, &fresh)?;
            }
            return Err(reason);
        }
        Ok(Some(held))
    }

    fn let_go(&self, py: Python<'_>, state: &mut State) -> PyResult<()> {
        let mut private = std::mem::take(&mut state.pages).split_off(state.published);
        private.append(&mut state.duplicates);
        let lock = std::mem::take(&mut state.lock);
        (state.published, state.node) = (0, 0);
        let undone = self.source.unlock(py, lock);
        // They are the table's: they go back also where the cache was closed.
        self.source.free(py, &private)?;
        undone
    }

    fn pages<'py>(py: Python<'py>, state: &State, first: usize) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &state.pages[first..])
    }
}

row_methods!(GrowingRow);

#[pymethods]
impl GrowingRow {
    /// The pages of the longest cached prefix among its first `limit` tokens, as a list; it has
    /// none of them yet.
    #[pyo3(name = "match")]
    fn match_<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyList>> {
        let mut state = EngineRow::state(self, py)?;
        self.find(py, &mut state, limit, 0)?;
        PyList::new(py, &state.found)
    }
}
