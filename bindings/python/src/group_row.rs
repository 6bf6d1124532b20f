//! The pages of a request in several groups of layers, in rows that only grow.
use std::array::from_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::c::*;
use crate::cache::Cache;
use crate::engine_row::{EngineRow, held};
use crate::group_lane::{Kind, Lane, lanes_of};
use crate::growing_row::{ids_of, text};
use crate::handle::{Raw, long};
use crate::space::{Namespace, Space};
use crate::status::{check, refused};
use crate::tokens::LONG;

/// The pages of a request in each of several groups of layers, which draw from one pool, from
/// `Cache.group_row()`: what GrowingRow is for one group. Lists of pages are by the numbers that
/// the engine has for its groups; 0 is a place without a page.
///
/// A page that no token to come attends to is given up by `slide()`, not before: steps that are
/// under way still read and write it. The row has one lock, which goes along with what it
/// publishes. A group of states has a page where a step ends; it is published when that is the end
/// of a page. One thread uses the row at a time; another one gets Busy.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct GroupRow {
    pub cache: Py<Cache>,
    pub space: Space,
    pub page_size: usize,
    state: Mutex<GroupState>,
}

#[derive(Default)]
pub struct GroupState {
    pub tokens: Vec<u32>,
    /// By the engine's numbers.
    pub lanes: Vec<Lane>,
    pub page_count: usize,
    pub published: usize,
    /// Where the published pages end, and the lock on it.
    pub node: u64,
    pub lock: u64,
    /// Pages of states that were published since the engine asked.
    pub new_states: Vec<u32>,
}

#[pymethods]
impl Cache {
    /// A row that only grows in each group of layers, for a prompt; see GroupRow. It has no pages
    /// yet. `order` has the page table's number of each of the engine's groups, in the engine's
    /// order; None when they are the same.
    ///
    /// Raises Unsupported for chunks, sinks, draft states, and groups of several pools,
    /// InvalidArgument for an order that does not name each group once.
    #[pyo3(signature = (tokens, *, order=None, space=None))]
    fn group_row(
        this: &Bound<'_, Self>,
        tokens: &Bound<'_, PyAny>,
        order: Option<Vec<u32>>,
        space: Option<&Bound<'_, Namespace>>,
    ) -> PyResult<GroupRow> {
        let py = this.py();
        let tokens = ids_of(tokens)?;
        let table = this.get().table.get();
        let page_size = table.page_size as usize;
        let order = order.unwrap_or_else(|| (0..table.groups.len() as u32).collect());
        let lanes = lanes_of(py, &table.groups, &order)?;
        let state = GroupState { tokens, lanes, ..GroupState::default() };
        Ok(GroupRow {
            cache: this.clone().unbind(),
            space: Space::of(space),
            page_size,
            state: Mutex::new(state),
        })
    }
}

impl GroupRow {
    /// Fills in the pages that a lock of so many pages protects.
    fn map(&self, py: Python<'_>, state: &mut GroupState, full: &[u32], lock: u64) -> PyResult<()> {
        for lane in &mut state.lanes {
            lane.resize(full.len());
            if lane.number == 0 {
                lane.pages.copy_from_slice(full);
                continue;
            }
            for it in self.locked(py, lock, lane.number, full.len())? {
                lane.pages[it.page_index as usize] = it.page;
            }
            lane.slid = lane.kind.first_needed(full.len() * self.page_size, self.page_size);
        }
        Ok(())
    }

    /// The pages of a group that the lock on so many pages protects.
    pub fn locked(
        &self,
        py: Python<'_>,
        lock: u64,
        group: u32,
        page_count: usize,
    ) -> PyResult<Vec<rkv_locked_page>> {
        let cache = self.cache.get().handle.get(py)?;
        let mut pages = Vec::with_capacity(page_count);
        let (size, mut count) = (size_of::<rkv_locked_page>(), 0);
        // SAFETY: a live handle, room as stated, of which the call writes `count`.
        unsafe {
            let (into, room) = (pages.as_mut_ptr(), pages.capacity());
            let status =
                rkv_cache_read_locked_pages(cache.raw(), lock, group, into, size, room, &mut count);
            check(py, status)?;
            pages.set_len(count);
        }
        Ok(pages)
    }

    fn unlock(&self, py: Python<'_>, lock: u64) -> PyResult<()> {
        let cache = self.cache.get().handle.get(py)?;
        // SAFETY: a live handle.
        check(py, unsafe { rkv_cache_unlock(cache.raw(), lock) })
    }

    fn free(&self, py: Python<'_>, pages: &[u32]) -> PyResult<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let table = self.cache.get().table.get().handle.get(py)?;
        // SAFETY: a live handle, pages that were this row's alone.
        check(py, unsafe { rkv_page_table_free_pages(table.raw(), pages.as_ptr(), pages.len()) })
    }
}

impl EngineRow for GroupRow {
    type State = GroupState;
    const SLIDES: bool = true;

    fn state(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, GroupState>> {
        held(py, &self.state)
    }

    fn page_count(state: &GroupState) -> usize {
        state.page_count
    }

    fn published(state: &GroupState) -> usize {
        state.published
    }

    fn token_count(state: &GroupState) -> usize {
        state.tokens.len()
    }

    fn needed(state: &GroupState, page_count: usize, most: &[usize]) -> usize {
        let lanes = state.lanes.iter().enumerate();
        lanes
            .map(|(at, lane)| {
                let wanted = most.get(at).map_or(page_count, |&most| page_count.min(most));
                lane.grown_by(wanted.saturating_sub(state.page_count))
            })
            .sum()
    }

    fn begin(&self, py: Python<'_>, state: &mut GroupState, page_count: usize) -> PyResult<()> {
        if state.page_count > 0 {
            return Err(refused(py, RKV_STATUS_INVALID_STATE, "the row has pages"));
        }
        if page_count > state.tokens.len() / self.page_size {
            let message = format!("page_count: {page_count}, of {} tokens", state.tokens.len());
            return Err(refused(py, RKV_STATUS_INVALID_ARGUMENT, &message));
        }
        if page_count == 0 {
            return Ok(());
        }
        let tokens = text(&state.tokens[..page_count * self.page_size]);
        let mut full = vec![0; page_count];
        let mut found = rkv_cache_match_result::sized();
        let call = Raw((self.space.c(), &raw const tokens, full.as_mut_ptr(), &raw mut found));
        let cache = self.cache.get().handle.get(py)?;
        let status = long(py, tokens.count >= LONG, || {
            let (space, tokens, full, found) = call.get();
            // SAFETY: a live handle, arguments that are kept, room for every whole page.
            unsafe {
                rkv_cache_match(cache.raw(), space, tokens, RKV_MATCH_LOCK, full, page_count, found)
            }
        });
        check(py, status)?;
        drop(cache);
        if found.page_count as usize != page_count {
            if found.lock != 0 {
                self.unlock(py, found.lock)?;
            }
            let message = "the pages were evicted since they were found";
            return Err(refused(py, RKV_STATUS_STALE_NODE, message));
        }
        (state.page_count, state.published) = (page_count, page_count);
        state.node = found.node;
        state.lock = found.lock;
        self.map(py, state, &full, found.lock)
    }

    fn rests_on(state: &GroupState, pages: &[u32]) -> bool {
        let mut lanes = state.lanes.iter();
        lanes.any(|lane| {
            lane.kind == Kind::State && lane.pages.last().is_some_and(|page| pages.contains(page))
        })
    }

    fn drain_states(state: &mut GroupState, into: &mut Vec<u32>) {
        into.append(&mut state.new_states);
    }

    fn attended(state: &GroupState, first: usize, into: &mut Vec<u32>) {
        for lane in state.lanes.iter().filter(|lane| lane.kind != Kind::State) {
            into.extend_from_slice(&lane.pages[first..]);
        }
    }

    fn slide(&self, py: Python<'_>, state: &mut GroupState, processed: usize) -> PyResult<()> {
        let (mut gone, page_count) = (Vec::new(), state.page_count);
        let mut is_locked = false;
        for lane in &mut state.lanes {
            let end = lane.kind.first_needed(processed, self.page_size).min(page_count);
            if end > lane.slid {
                is_locked |= lane.slid < state.published;
                lane.drain_own(lane.slid, end, &mut gone);
                lane.slid = end;
            }
        }
        self.free(py, &gone)?;
        if is_locked && state.lock != 0 {
            let cache = self.cache.get().handle.get(py)?;
            // SAFETY: a live handle.
            check(py, unsafe { rkv_cache_slide_lock(cache.raw(), state.lock, processed as u64) })?;
        }
        Ok(())
    }

    fn step_ends(&self, state: &mut GroupState, position: usize) {
        if !position.is_multiple_of(self.page_size) || position > state.page_count * self.page_size
        {
            return;
        }
        let Some(at) = (position / self.page_size).checked_sub(1) else { return };
        for lane in &mut state.lanes {
            if lane.kind == Kind::State && lane.own[at] {
                lane.left[at] = lane.pages[at];
            }
        }
    }

    fn grow(
        &self,
        py: Python<'_>,
        state: &mut GroupState,
        added: &[u32],
        positions: usize,
        computed: usize,
    ) -> PyResult<Option<usize>> {
        let (known, held) = (state.tokens.len(), state.page_count);
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
            let mut fresh = vec![0; Self::needed(state, wanted, &[])];
            let table = self.cache.get().table.get().handle.get(py)?;
            let (into, count) = (Raw(fresh.as_mut_ptr()), fresh.len());
            let status = long(py, count > 16, || {
                // SAFETY: a live handle, room for as many pages.
                unsafe { rkv_page_table_allocate_pages(table.raw(), count, into.get()) }
            });
            if status == RKV_STATUS_OUT_OF_PAGES {
                return Ok(None);
            }
            check(py, status)?;
            let mut rest = &fresh[..];
            for lane in &mut state.lanes {
                let (part, others) = rest.split_at(lane.grown_by(wanted - held));
                lane.resize(wanted);
                let at = wanted - part.len();
                lane.pages[at..].copy_from_slice(part);
                lane.own[at..].fill(true);
                rest = others;
            }
            state.page_count = wanted;
        }
        self.step_ends(state, positions);
        state.tokens.extend_from_slice(added);
        let before = state.published;
        if let Err(reason) = self.publish(py, state, whole) {
            // What others may have found by now stays.
            if state.published == before {
                let mut fresh = Vec::new();
                for lane in &mut state.lanes {
                    lane.drain_own(held, wanted, &mut fresh);
                    lane.resize(held);
                }
                state.page_count = held;
                state.tokens.truncate(known);
                self.free(py, &fresh)?;
            }
            return Err(reason);
        }
        Ok(Some(held))
    }

    fn let_go(&self, py: Python<'_>, state: &mut GroupState) -> PyResult<()> {
        let (mut gone, page_count) = (Vec::new(), state.page_count);
        for lane in &mut state.lanes {
            lane.drain_own(lane.slid, page_count, &mut gone);
            lane.slid = 0;
            lane.resize(0);
        }
        let lock = std::mem::take(&mut state.lock);
        (state.page_count, state.published, state.node) = (0, 0, 0);
        if lock != 0 {
            self.unlock(py, lock)?;
        }
        self.free(py, &gone)
    }

    fn pages<'py>(
        py: Python<'py>,
        state: &GroupState,
        first: usize,
    ) -> PyResult<Bound<'py, PyList>> {
        let lists = state.lanes.iter().map(|lane| PyList::new(py, &lane.pages[first..]));
        PyList::new(py, lists.collect::<PyResult<Vec<_>>>()?)
    }
}

#[pymethods]
impl GroupRow {
    /// Its pages: a list for each group.
    #[getter(pages)]
    fn all_pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Self::pages(py, &*EngineRow::state(self, py)?, 0)
    }

    /// How many places it has in each group.
    #[getter(page_count)]
    fn held_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(EngineRow::state(self, py)?.page_count)
    }

    /// How many tokens it knows.
    #[getter(token_count)]
    fn known_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(EngineRow::state(self, py)?.tokens.len())
    }

    /// How many of its leading places others find, by these pages or by those of another request.
    #[getter]
    fn published_page_count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(EngineRow::state(self, py)?.published)
    }

    /// Of each group, the pages that are the row's alone.
    #[getter]
    fn private_pages(&self, py: Python<'_>) -> PyResult<Vec<Vec<u32>>> {
        let state = EngineRow::state(self, py)?;
        let own = |lane: &Lane| {
            let pages = lane.pages.iter().zip(&lane.own);
            pages.filter_map(|(&page, &is_own)| is_own.then_some(page)).collect()
        };
        Ok(state.lanes.iter().map(own).collect())
    }

    /// How many whole pages of its first `limit` tokens every group can reuse.
    fn probe(&self, py: Python<'_>, limit: usize) -> PyResult<usize> {
        let state = EngineRow::state(self, py)?;
        let cache = self.cache.get().handle.get(py)?;
        let tokens = text(&state.tokens[..limit.min(state.tokens.len())]);
        let (mut count, mut positions) = (0, 0);
        let call = Raw((self.space.c(), &raw const tokens, &raw mut count, &raw mut positions));
        let status = long(py, tokens.count >= LONG, || {
            let (space, tokens, count, positions) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_cache_probe(cache.raw(), space, tokens, count, positions) }
        });
        check(py, status)?;
        Ok(count / self.page_size)
    }

    /// How many whole pages of its first `limit` tokens every group can reuse, and how many are
    /// known in group 0: where a state is missing that the next request could go on from.
    fn depths(&self, py: Python<'_>, limit: usize) -> PyResult<(usize, usize)> {
        let state = EngineRow::state(self, py)?;
        let cache = self.cache.get().handle.get(py)?;
        let tokens = text(&state.tokens[..limit.min(state.tokens.len())]);
        let mut costs: [_; RKV_GROUP_LIMIT as usize] = from_fn(|_| rkv_group_cost::zeroed());
        let (mut depths, mut count) = (rkv_group_depths::sized(), 0);
        let into = (costs.as_mut_ptr(), &raw mut count, &raw mut depths);
        let call = Raw((self.space.c(), &raw const tokens, into));
        let status = long(py, tokens.count >= LONG, || {
            let (space, tokens, (costs, count, depths)) = call.get();
            let (size, room) = (size_of::<rkv_group_cost>(), RKV_GROUP_LIMIT as usize);
            // SAFETY: a live handle, arguments that are kept, room as stated.
            unsafe {
                let cache = cache.raw();
                rkv_cache_probe_groups(cache, space, tokens, costs, size, room, count, depths)
            }
        });
        check(py, status)?;
        let pages = |positions: u64| positions as usize / self.page_size;
        Ok((pages(depths.position_count), pages(depths.known_position_count)))
    }

    /// The pages that `take()` would take, a list for each group, without holding them.
    fn look<'py>(&self, py: Python<'py>, page_count: usize) -> PyResult<Bound<'py, PyList>> {
        let mut state = EngineRow::state(self, py)?;
        self.begin(py, &mut state, page_count)?;
        let pages = Self::pages(py, &state, 0);
        self.let_go(py, &mut state)?;
        pages
    }

    /// Begins the row with so many pages that `probe()` found, and locks them. Raises InvalidState
    /// when it has pages, InvalidArgument for more than its tokens fill, StaleNode when they were
    /// evicted since.
    fn take(&self, py: Python<'_>, page_count: usize) -> PyResult<()> {
        self.begin(py, &mut *EngineRow::state(self, py)?, page_count)
    }

    /// Lets go of what no token from position `processed` on needs: those before it are computed.
    #[pyo3(name = "slide")]
    fn slide_to(&self, py: Python<'_>, processed: usize) -> PyResult<()> {
        self.slide(py, &mut *EngineRow::state(self, py)?, processed)
    }

    /// Adds tokens, gives the row pages for its first `positions`, where a step ends, and publishes
    /// the whole pages among the first `computed`, of which the tokens are known. Evicts when the
    /// pool is short. Of states there is one new page, in the last place.
    ///
    /// Returns the new pages as lists, None when there are too few: nothing has changed then.
    /// Raises InvalidArgument when more is computed than known or has pages, StaleNode when the
    /// namespace was cleared since the row began, and OutOfMemory: what was not published then is
    /// the row's own.
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
            Some(held) => Self::pages(py, &state, held).map(Some),
            None => Ok(None),
        }
    }

    /// Gives its pages back; what it published stays in the cache. The tokens stay: it can begin
    /// again, as after a preemption.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.let_go(py, &mut *EngineRow::state(self, py)?)
    }
}

impl Drop for GroupRow {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut state = std::mem::take(state);
        if state.page_count > 0 {
            // Of a cache that is closed there is nothing left to give back.
            Python::attach(|py| drop(self.let_go(py, &mut state)));
        }
    }
}
