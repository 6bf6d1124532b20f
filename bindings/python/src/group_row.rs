//! The pages of a request in several groups of layers, in rows that only grow.
use std::array::from_fn;
use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::c::*;
use crate::cache::Cache;
use crate::engine_row::{Ends, EngineRow, held, row_methods};
use crate::group_lane::{Kind, Lane, lanes_of};
use crate::handle::{LONG_LIST, Raw, long};
use crate::row_source::{Source, begun, evicted, ids_of, text};
use crate::space::Namespace;
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
    pub source: Source,
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
    /// The latest clear when it began.
    pub began: u64,
    /// Gives its pages to the cache when it ends.
    pub late: bool,
    /// Pages of states that were published since the engine asked.
    pub new_states: Vec<u32>,
    /// It was refused once, as it would go on from a state that the same step leaves.
    waited: bool,
}

#[pymethods]
impl Cache {
    /// A row that only grows in each group of layers, for a prompt; see GroupRow. It has no pages
    /// yet. `order` has the page table's number of each of the engine's groups, in the engine's
    /// order; None when they are the same. `late` as for `growing_row()`.
    ///
    /// Raises Unsupported for chunks, sinks, draft states, and groups of several pools,
    /// InvalidArgument for an order that does not name each group once.
    #[pyo3(signature = (tokens, *, order=None, space=None, late=false))]
    fn group_row(
        this: &Bound<'_, Self>,
        tokens: &Bound<'_, PyAny>,
        order: Option<Vec<u32>>,
        space: Option<&Bound<'_, Namespace>>,
        late: bool,
    ) -> PyResult<GroupRow> {
        let py = this.py();
        let tokens = ids_of(tokens)?;
        let groups = &this.get().table.get().groups;
        let order = order.unwrap_or_else(|| (0..groups.len() as u32).collect());
        let lanes = lanes_of(py, groups, &order)?;
        let state = Mutex::new(GroupState { tokens, lanes, late, ..GroupState::default() });
        Ok(GroupRow { source: Source::new(this, space)?, state })
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
            lane.slid =
                lane.kind.first_needed(full.len() * self.source.page_size, self.source.page_size);
        }
        Ok(())
    }

    /// Whether the request was refused once, as it would have gone on from such a state.
    pub fn waited(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(EngineRow::state(self, py)?.waited)
    }

    /// Of `found` pages those that a request is to begin with in a step that leaves `new_states`,
    /// which it has waited for, or somebody has in the step before. Who has not waited yet does
    /// where more than half is at stake.
    pub fn without_waiting(
        &self,
        py: Python<'_>,
        found: usize,
        new_states: &[u32],
    ) -> PyResult<usize> {
        let (mut count, mut has_waited) = (found, false);
        while count > 0 {
            let mut state = EngineRow::state(self, py)?;
            has_waited = state.waited;
            self.begin(py, &mut state, count)?;
            let is_new = Self::rests_on(&state, new_states);
            self.let_go(py, &mut state)?;
            drop(state);
            if !is_new {
                break;
            }
            count = self.depths(py, count * self.source.page_size - 1)?.0;
        }
        Ok(if has_waited || count >= found - count { count } else { found })
    }

    /// The pages of a group that the lock on so many pages protects.
    pub fn locked(
        &self,
        py: Python<'_>,
        lock: u64,
        group: u32,
        page_count: usize,
    ) -> PyResult<Vec<rkv_locked_page>> {
        let cache = self.source.cache.get().handle.get(py)?;
        let mut pages = Vec::with_capacity(page_count);
        let (size, mut count, room) = (size_of::<rkv_locked_page>(), 0, pages.capacity());
        let call = Raw((pages.as_mut_ptr(), &raw mut count));
        let status = long(py, room > LONG_LIST, || {
            let (into, count) = call.get();
            // SAFETY: a live handle, room as stated.
            unsafe {
                rkv_cache_read_locked_pages(cache.raw(), lock, group, into, size, room, count)
            }
        });
        check(py, status)?;
        // SAFETY: the call wrote `count`.
        unsafe { pages.set_len(count) };
        Ok(pages)
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

    #[inline]
    fn is_late(state: &GroupState) -> bool {
        state.late
    }

    fn end_late(state: &mut GroupState) {
        state.late = false;
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
            return Err(begun(py));
        }
        if page_count > state.tokens.len() / self.source.page_size {
            let message = format!("page_count: {page_count}, of {} tokens", state.tokens.len());
            return Err(refused(py, RKV_STATUS_INVALID_ARGUMENT, &message));
        }
        if page_count == 0 {
            return Ok(());
        }
        let tokens = &state.tokens[..page_count * self.source.page_size];
        let mut full = vec![0; page_count];
        let found = self.source.find(py, tokens, RKV_MATCH_LOCK, &mut full)?;
        if found.page_count as usize != page_count {
            self.source.unlock(py, found.lock)?;
            return Err(evicted(py));
        }
        if let Err(reason) = self.map(py, state, &full, found.lock) {
            for lane in &mut state.lanes {
                lane.slid = 0;
                lane.resize(0);
            }
            self.source.unlock(py, found.lock)?;
            return Err(reason);
        }
        (state.page_count, state.published) = (page_count, page_count);
        state.node = found.node;
        state.lock = found.lock;
        Ok(())
    }

    fn rests_on(state: &GroupState, pages: &[u32]) -> bool {
        let mut lanes = state.lanes.iter();
        lanes.any(|lane| {
            lane.kind == Kind::State && lane.pages.last().is_some_and(|page| pages.contains(page))
        })
    }

    fn has_waited(state: &mut GroupState) {
        state.waited = true;
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
            let end = lane.kind.first_needed(processed, self.source.page_size).min(page_count);
            if end > lane.slid {
                is_locked |= lane.slid < state.published;
                lane.drain_own(lane.slid, end, &mut gone);
                lane.slid = end;
            }
        }
        self.source.free(py, &gone)?;
        if is_locked && state.lock != 0 {
            let cache = self.source.cache.get().handle.get(py)?;
            // SAFETY: a live handle.
            check(py, unsafe { rkv_cache_slide_lock(cache.raw(), state.lock, processed as u64) })?;
        }
        Ok(())
    }

    fn step_ends(&self, state: &mut GroupState, position: usize) -> Ends {
        let mut ends = Ends::default();
        if position == 0
            || !position.is_multiple_of(self.source.page_size)
            || position > state.page_count * self.source.page_size
        {
            return ends;
        }
        ends.at = position / self.source.page_size - 1;
        for (number, lane) in state.lanes.iter_mut().enumerate() {
            if lane.kind == Kind::State && lane.own[ends.at] && lane.left[ends.at] == 0 {
                lane.left[ends.at] = lane.pages[ends.at];
                ends.lanes |= 1 << number;
            }
        }
        ends
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
        if held == 0 {
            state.began = self.source.begins(py)?;
        }
        let places = self.source.places(py, (known + added.len(), held), (positions, computed))?;
        let Some((wanted, whole)) = places else { return Ok(None) };
        if wanted > held {
            let mut fresh = vec![0; Self::needed(state, wanted, &[])];
            if !self.source.allocate(py, &mut fresh)? {
                return Ok(None);
            }
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
        let ends = self.step_ends(state, positions);
        state.tokens.extend_from_slice(added);
        let before = state.published;
        if let Err(reason) = self.publish(py, state, whole) {
            // Nobody makes the step: where it was to end it leaves no state.
            for (number, lane) in state.lanes.iter_mut().enumerate() {
                if ends.lanes >> number & 1 != 0 && ends.at >= state.published {
                    lane.left[ends.at] = 0;
                }
            }
            // What others may have found by now stays.
            if state.published == before {
                let mut fresh = Vec::new();
                for lane in &mut state.lanes {
                    lane.drain_own(held, wanted, &mut fresh);
                    lane.resize(held);
                }
                state.page_count = held;
                state.tokens.truncate(known);
                self.source.free(py, &fresh)?;
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
        let undone = self.source.unlock(py, lock);
        // They are the table's: they go back also where the cache was closed.
        self.source.free(py, &gone)?;
        undone
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

row_methods!(GroupRow);

#[pymethods]
impl GroupRow {
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
        let cache = self.source.cache.get().handle.get(py)?;
        let tokens = text(&state.tokens[..limit.min(state.tokens.len())]);
        let (mut count, mut positions) = (0, 0);
        let call =
            Raw((self.source.space.c(), &raw const tokens, &raw mut count, &raw mut positions));
        let status = long(py, tokens.count >= LONG, || {
            let (space, tokens, count, positions) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_cache_probe(cache.raw(), space, tokens, count, positions) }
        });
        check(py, status)?;
        Ok(count / self.source.page_size)
    }

    /// How many whole pages of its first `limit` tokens every group can reuse, and how many are
    /// known in group 0: where a state is missing that the next request could go on from.
    pub fn depths(&self, py: Python<'_>, limit: usize) -> PyResult<(usize, usize)> {
        let state = EngineRow::state(self, py)?;
        let cache = self.source.cache.get().handle.get(py)?;
        let tokens = text(&state.tokens[..limit.min(state.tokens.len())]);
        let mut costs: [_; RKV_GROUP_LIMIT as usize] = from_fn(|_| rkv_group_cost::zeroed());
        let (mut depths, mut count) = (rkv_group_depths::sized(), 0);
        let into = (costs.as_mut_ptr(), &raw mut count, &raw mut depths);
        let call = Raw((self.source.space.c(), &raw const tokens, into));
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
        let pages = |positions: u64| positions as usize / self.source.page_size;
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

    /// Lets go of what no token from position `processed` on needs: those before it are computed.
    #[pyo3(name = "slide")]
    fn slide_to(&self, py: Python<'_>, processed: usize) -> PyResult<()> {
        self.slide(py, &mut *EngineRow::state(self, py)?, processed)
    }
}
