//! Rows of places: for engines that allocate their pages themselves, such as SGLang.
use std::ops::Range;
use std::ptr::null_mut;
use std::slice::from_ref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::c::*;
use crate::cache::Cache;
use crate::engine_row::held;
use crate::handle::{Raw, long};
use crate::page_numbers::{divide_places, page_of, place_at, places_of};
use crate::place_tables::{Mapping, Rows, longs};
use crate::record::InsertResult;
use crate::space::{Namespace, Space};
use crate::status::{check, refused};
use crate::strays::Strays;
use crate::tokens::TokenArg;

/// Pages for which a call of the library gets room to say that they are gone.
const EVICTED_AT_ONCE: usize = 1 << 14;
/// Pages of full attention that go at a time, at least, for the strays that hang on some of them.
const FOR_STRAYS_AT_ONCE: usize = 64;

/// What requests give to a cache over external pools, and what it gives back, for an engine that
/// knows its KV by places: one for each position, page number * page_size and up. `publish()` is a
/// checkpoint of a request and `evict()` makes room, each in one call: between two steps of an
/// engine, when the processor's caches have other things in them, a dozen of NumPy's take longer
/// than the cache.
///
/// The page table has one group of layers; or two, of which the second, a sliding window or a
/// recurrent state, has pool 1. Of each page that the cache has there, this remembers the page of
/// full attention that it hangs on: so there is one object for a cache, through which all inserts
/// and evictions go. One thread uses it at a time; another one gets Busy.
///
/// rows: an array of int32 or int64 with a row of places for each of the engine's requests. It is
///     kept, read and, by `share()`, written where it lies; None where it lies on a GPU.
/// mapping: with a window, an array of int64 that has for each place of full attention that of the
///     window, 0 for none. It is kept, read and, where a page of the window's goes, written.
///
/// Raises Unsupported for other groups; TypeError, ValueError naming the argument.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct PlacedRows {
    pub cache: Py<Cache>,
    pub page_size: usize,
    pub beside: Beside,
    rows: Option<Rows>,
    pub mapping: Option<Mapping>,
    pub state: Mutex<State>,
    /// Of `state`, for those who cannot have it now.
    pub stray_page_count: AtomicUsize,
}

/// What the page table has beside full attention, in pool 1.
#[derive(Clone, Copy, PartialEq)]
pub enum Beside {
    Nothing,
    Windows,
    States,
}

/// The pages of the last publish in a pool, by their index in the prefix.
#[derive(Default)]
pub struct Pages {
    given: Vec<u32>,
    /// Those that the cache has.
    published: Vec<u32>,
}

#[derive(Default)]
pub struct State {
    pub full: Pages,
    /// Of pool 1.
    pub beside: Pages,
    /// By page of pool 1: the page of pool 0 that it hangs on, 0 where the cache has none.
    pub hangs_on: Vec<u32>,
    pub strays: Strays,
    /// The pages of the last publish, by their index in the prefix; none after a refused one.
    last: Range<usize>,
    evicted: Vec<rkv_evicted_page>,
    /// Of an eviction that failed in its midst: the next one tells of them.
    gone: Gone,
}

/// Pages that an eviction took.
#[derive(Default)]
struct Gone {
    full: Vec<u32>,
    beside: Vec<u32>,
    /// Pages of full attention, gone or not, whose page of pool 1 went.
    bare: Vec<u32>,
}

impl Pages {
    fn make_room(&mut self, count: usize) {
        self.given.resize(count.max(self.given.len()), 0);
        self.published.resize(count.max(self.published.len()), 0);
    }
}

impl State {
    /// Some pages of the last publish, of a group: given, and published.
    pub fn part(&self, group: u32, first: usize, end: usize) -> PyResult<(&[u32], &[u32])> {
        let pages = if group == 0 { &self.full } else { &self.beside };
        // What lies elsewhere in both is of publishes before, of other tokens.
        let asked = (first >= self.last.start && end <= self.last.end).then_some(first..end);
        let part = asked.and_then(|it| pages.given.get(it.clone()).zip(pages.published.get(it)));
        part.ok_or_else(|| {
            let Range { start, end: last } = self.last;
            let message = format!("first, end: {first} to {end} of pages {start} to {last}");
            PyValueError::new_err(message)
        })
    }

    /// Notes what hangs on the pages [first, end) of the last publish.
    fn note(&mut self, first: usize, end: usize, beside: Beside) {
        for at in first..end {
            let (page, full) = (self.beside.published[at], self.full.published[at]);
            if page != 0 {
                *self.hanger(page) = full;
                self.strays.taken(full, page);
            } else if beside == Beside::Windows && self.beside.given[at] != 0 {
                self.beside.published[at] = self.strays.left(full, self.beside.given[at]);
            } else {
                continue;
            }
            // It has one again: the next eviction is not to say that it went.
            if !self.gone.bare.is_empty() {
                self.gone.bare.retain(|bare| *bare != full);
            }
        }
    }

    /// The page that a page of pool 1 hangs on.
    fn hanger(&mut self, page: u32) -> &mut u32 {
        let at = page as usize;
        self.hangs_on.resize(self.hangs_on.len().max(at + 1), 0);
        &mut self.hangs_on[at]
    }
}

impl PlacedRows {
    /// The window's pages of those that are given.
    fn read_windows(
        &self,
        state: &mut State,
        (first, end): (usize, usize),
        places: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        state.beside.make_room(end);
        let into = &mut state.beside.given[first..end];
        match (&self.mapping, places) {
            (_, Some(places)) => {
                let places = places_of(places, "window_places")?;
                let places = places.exactly("window_places", into.len())?;
                for (at, page) in into.iter_mut().enumerate() {
                    *page = page_of(place_at(&places, at), self.page_size, "window_places")?;
                }
            }
            (Some(mapping), None) => {
                for (page, &full) in into.iter_mut().zip(&state.full.given[first..end]) {
                    *page = mapping.window(full, self.page_size)?;
                }
            }
            (None, None) => {
                let message = "window_places: they are needed without a mapping";
                return Err(PyValueError::new_err(message));
            }
        }
        Ok(())
    }

    pub fn rows(&self) -> PyResult<&Rows> {
        self.rows.as_ref().ok_or_else(|| PyValueError::new_err("row: there is no table of rows"))
    }

    pub fn clear(&self, pages: &[u32]) {
        if let Some(mapping) = &self.mapping {
            pages.iter().for_each(|&page| mapping.clear(page, self.page_size));
        }
    }

    /// Inserts the pages from one on, and locks the prefix.
    fn insert(
        &self,
        py: Python<'_>,
        state: &mut State,
        tokens: &TokenArg<'_>,
        space: &Space,
        (from_node, first, end): (u64, usize, usize),
        recent: bool,
    ) -> PyResult<rkv_cache_insert_result> {
        let cache = self.cache.get().handle.get(py)?;
        let beside = rkv_group_row {
            group: 1,
            reserved: 0,
            pages: state.beside.given.as_ptr(),
            page_count: end,
            published_pages: state.beside.published.as_mut_ptr(),
        };
        let groups = if self.beside == Beside::Nothing { &[] } else { from_ref(&beside) };
        let args = rkv_cache_insert_args {
            flags: RKV_INSERT_LOCK,
            space: space.c(),
            tokens: tokens.c(),
            pages: state.full.given.as_ptr(),
            page_count: end,
            from_node,
            from_token_index: (first * self.page_size) as u64,
            from_page_index: first as u64,
            groups: groups.as_ptr(),
            group_count: groups.len(),
            group_size: size_of::<rkv_group_row>(),
            ..rkv_cache_insert_args::sized()
        };
        let mut done = rkv_cache_insert_result::sized();
        let mut found = rkv_cache_match_result::sized();
        let into = state.full.published.as_mut_ptr();
        let call = Raw((&raw const args, into, &raw mut done, &raw mut found));
        let status = long(py, (end - first) * self.page_size > 256, || {
            let (args, into, done, found) = call.get();
            // SAFETY: a live handle, arguments that are kept, room for every page.
            unsafe {
                let status = rkv_cache_insert(cache.raw(), args, into, done);
                if status == RKV_STATUS_OK && recent {
                    // A match makes what lies before recent, too. Where it fails, it does not.
                    let (space, tokens) = ((*args).space, (*args).tokens);
                    rkv_cache_match(cache.raw(), space, tokens, 0, null_mut(), 0, found);
                }
                status
            }
        });
        check(py, status)?;
        Ok(done)
    }

    /// Evicts until a pool has got so many pages.
    fn evict_pool(
        &self,
        py: Python<'_>,
        state: &mut State,
        (pool, page_count): (u32, usize),
    ) -> PyResult<()> {
        let cache = self.cache.get().handle.get(py)?;
        let mut wanted = page_count;
        while wanted > 0 {
            let (mut count, mut freed) = (0, 0);
            // A page of full attention takes one of the window's along. The call ends early when
            // there may be too little room for the next one.
            let room = 2 * wanted.min(EVICTED_AT_ONCE) + RKV_GROUP_LIMIT as usize;
            state.evicted.resize_with(room.max(state.evicted.len()), rkv_evicted_page::zeroed);
            let into = Raw((state.evicted.as_mut_ptr(), &raw mut count, &raw mut freed));
            let status = long(py, true, || {
                let (into, gone, freed) = into.get();
                let size = size_of::<rkv_evicted_page>();
                // SAFETY: a live handle, room as stated.
                unsafe {
                    rkv_cache_evict_pool(cache.raw(), pool, wanted, into, size, room, gone, freed)
                }
            });
            check(py, status)?;
            for at in 0..count {
                let rkv_evicted_page { group, page } = state.evicted[at];
                if group == 0 {
                    state.gone.full.push(page);
                    if let Some(stray) = state.strays.gone(page) {
                        state.gone.beside.push(stray);
                        state.gone.bare.push(page);
                    }
                } else {
                    let bare = std::mem::take(state.hanger(page));
                    state.gone.beside.push(page);
                    state.gone.bare.push(bare);
                }
            }
            if count == 0 {
                break;
            }
            wanted = wanted.saturating_sub(freed);
        }
        Ok(())
    }

    /// Evicts until either pool has got so many pages.
    fn evict_both(
        &self,
        py: Python<'_>,
        state: &mut State,
        (page_count, window_page_count): (usize, usize),
    ) -> PyResult<()> {
        let left = |state: &State| {
            let there = state.strays.loose().len() + state.gone.beside.len();
            window_page_count.saturating_sub(there)
        };
        self.evict_pool(py, state, (0, page_count.saturating_sub(state.gone.full.len())))?;
        self.evict_pool(py, state, (1, left(state)))?;
        // What is not locked has no window any more, so no request finds it: no harm is done where
        // a page has no stray.
        while left(state) > 0 && state.strays.hang() {
            let before = state.gone.full.len();
            self.evict_pool(py, state, (0, left(state).max(FOR_STRAYS_AT_ONCE)))?;
            if state.gone.full.len() == before {
                break;
            }
        }
        Ok(())
    }
}

#[pymethods]
impl PlacedRows {
    #[new]
    #[pyo3(signature = (cache, *, rows=None, mapping=None))]
    fn new(
        cache: &Bound<'_, Cache>,
        rows: Option<&Bound<'_, PyAny>>,
        mapping: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = cache.py();
        let table = cache.get().table.get();
        let beside = match table.groups.as_slice() {
            [_] => Beside::Nothing,
            [_, other] if other.kind == RKV_GROUP_WINDOW && other.pool == 1 => Beside::Windows,
            [_, other] if other.kind == RKV_GROUP_STATE && other.pool == 1 => Beside::States,
            _ => {
                let message = "PlacedRows: one group of layers is needed, or a window or a state \
                               in pool 1 beside it";
                return Err(refused(py, RKV_STATUS_UNSUPPORTED, message));
            }
        };
        Ok(PlacedRows {
            page_size: table.page_size as usize,
            beside,
            rows: rows.map(Rows::of).transpose()?,
            mapping: mapping.map(Mapping::of).transpose()?,
            cache: cache.clone().unbind(),
            state: Mutex::default(),
            stray_page_count: AtomicUsize::new(0),
        })
    }

    /// Publishes the pages of a request's positions [from_token_index, length), whole pages of
    /// them, locks the whole prefix, makes it recent, and undoes the lock from before. Pages that
    /// were computed before `Cache.clear()` cleared the namespace are not to be published.
    ///
    /// tokens: all of them from the beginning of the prefix on; more may follow.
    /// row: the request's number in `rows`. Instead `places` may have those of the positions. Of a
    ///     page only the first place is read, which has to begin one.
    /// window_places: with a window, and without a mapping: the window's place of each page.
    /// state: with states, the page of pool 1 that has the one after `length` positions; 0 for
    ///     none. Whether the cache took it is the result's `claimed_group_page_count`.
    /// space: its namespace; also with `from_node`: what becomes recent is looked up there.
    /// from_node, from_token_index: go on from an earlier result, by its `node` and its pages.
    /// lock: a lock to undo; 0 for none.
    /// recent: False for a request that goes on, whose prefix nothing evicts while it is locked:
    ///     what lies before the new pages becomes recent with the last publish.
    ///
    /// Returns an InsertResult. Where it has duplicates, the cache has other pages than the
    /// request: `pages()`. When memory runs out in the middle of a long list, it has fewer pages,
    /// or window's pages that the cache did not take are among `stray_pages()`. Raises
    /// InvalidArgument, e.g. for a page that is the cache's already, ValueError, TypeError,
    /// StaleNode, OutOfMemory: then nothing has changed. StaleLock: the cache has the pages, and
    /// there is no new lock.
    #[pyo3(signature = (tokens, length, row=None, *, places=None, window_places=None, space=None,
                        from_node=0, from_token_index=0, lock=0, state=0, recent=true))]
    #[allow(clippy::too_many_arguments)]
    fn publish(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        length: usize,
        row: Option<usize>,
        places: Option<&Bound<'_, PyAny>>,
        window_places: Option<&Bound<'_, PyAny>>,
        space: Option<&Bound<'_, Namespace>>,
        from_node: u64,
        from_token_index: usize,
        lock: u64,
        state: u32,
        recent: bool,
    ) -> PyResult<InsertResult> {
        let start = from_token_index;
        if start > length
            || !length.is_multiple_of(self.page_size)
            || !start.is_multiple_of(self.page_size)
        {
            let message = format!("length: {start} to {length} are no whole pages");
            return Err(PyValueError::new_err(message));
        }
        let tokens = TokenArg::head(tokens, "tokens", length)?;
        let (first, end) = (start / self.page_size, length / self.page_size);
        let mut kept = held(py, &self.state)?;
        kept.last = 0..0;
        kept.full.make_room(end);
        let into = &mut kept.full.given[first..end];
        match (row, places) {
            (Some(row), None) => self.rows()?.divide((row, start, length), self.page_size, into)?,
            (None, Some(places)) => {
                let places = places_of(places, "places")?.exactly("places", length - start)?;
                divide_places(&places, self.page_size, into)?;
            }
            _ => return Err(PyTypeError::new_err("row, places: one of them is needed")),
        }
        match self.beside {
            Beside::Nothing => {}
            Beside::Windows => self.read_windows(&mut kept, (first, end), window_places)?,
            Beside::States => {
                kept.beside.make_room(end);
                let into = &mut kept.beside.given[first..end];
                into.fill(0);
                if let Some(last) = into.last_mut() {
                    *last = state;
                }
            }
        }
        let space = Space::of(space);
        let part = (from_node, first, end);
        let done = self.insert(py, &mut kept, &tokens, &space, part, recent)?;
        kept.last = first..done.page_count as usize;
        if self.beside != Beside::Nothing {
            kept.note(first, done.page_count as usize, self.beside);
            self.stray_page_count.store(kept.strays.count(), Relaxed);
        }
        if lock != 0 {
            let cache = self.cache.get().handle.get(py)?;
            // SAFETY: a live handle.
            let undone = check(py, unsafe { rkv_cache_unlock(cache.raw(), lock) });
            if undone.is_err() {
                // The caller won't hear of the new one.
                // SAFETY: a live handle.
                unsafe { rkv_cache_unlock(cache.raw(), done.lock) };
            }
            undone?;
        }
        Ok(InsertResult(done))
    }

    /// Evicts until pool 0 has got so many pages, and pool 1 `window_page_count`, of a window or of
    /// states, or there are no more to be had. The mapping becomes 0 where a page of the window's
    /// has gone. When all else of pool 1 is locked, pages of pool 0 go for the `stray_pages()` on
    /// them, also more than were asked for: without a window nobody finds them.
    ///
    /// Returns (pages, pages of pool 1, bare), three new arrays of int64: those that went of either
    /// pool, strays among them, for the engine to free, and those of pool 0, gone or not, whose
    /// page of pool 1 went, for a mapping that lies elsewhere. What went before a call failed comes
    /// with the next one. Raises Unsupported with one group: `Cache.evict()`.
    fn evict<'py>(
        &self,
        py: Python<'py>,
        page_count: usize,
        window_page_count: usize,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        if self.beside == Beside::Nothing {
            let message = "PlacedRows.evict: there is one group; Cache.evict() does it";
            return Err(refused(py, RKV_STATUS_UNSUPPORTED, message));
        }
        let mut state = held(py, &self.state)?;
        let told = state.gone.bare.len();
        let done = self.evict_both(py, &mut state, (page_count, window_page_count));
        self.clear(&state.gone.bare[told..]);
        let made = done.and_then(|()| {
            let Gone { full, beside, bare } = &state.gone;
            let beside = [state.strays.loose(), beside].concat();
            Ok((longs(py, full)?, longs(py, &beside)?, longs(py, bare)?))
        });
        if made.is_ok() {
            state.strays.forget_loose();
            state.gone = Gone::default();
        }
        self.stray_page_count.store(state.strays.count(), Relaxed);
        made
    }
}
