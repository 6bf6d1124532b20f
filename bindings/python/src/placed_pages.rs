//! What an engine with rows of places does with pages behind a publish.
use std::ptr::addr_of_mut;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::c::*;
use crate::engine_row::held;
use crate::place_tables::{longs, numbers};
use crate::placed_rows::{Beside, PlacedRows};
use crate::status::check;

#[pymethods]
impl PlacedRows {
    /// The pages [first, end) of the last publish, by their index in the prefix, of group 0 or 1.
    ///
    /// Returns (given, published), two new arrays of uint32: those of the places, and those that
    /// the cache has. They differ where it had a page for the same tokens already. Raises
    /// ValueError for pages that the last publish did not have; a refused one had none.
    #[pyo3(signature = (first, end, *, group=0))]
    fn pages<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        end: usize,
        group: u32,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let state = held(py, &self.state)?;
        let (given, published) = state.part(group, first, end)?;
        Ok((numbers(py, "u4", given)?, numbers(py, "u4", published)?))
    }

    /// Where the last publish found the cache to have other pages than the request for the same
    /// tokens, [first, end) by their index in the prefix: puts the cache's into the request's row,
    /// which is the one of that publish. With a window the mapping follows, of whose pages the
    /// cache has taken over those that it lacked.
    ///
    /// Returns (pages, window's pages), two new arrays of int64: those of the request that nobody
    /// has any more, for the engine to free. Raises ValueError: then nothing has changed.
    fn share<'py>(
        &self,
        py: Python<'py>,
        row: usize,
        first: usize,
        end: usize,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let state = held(py, &self.state)?;
        let rows = self.rows()?;
        let (given, published) = state.part(0, first, end)?;
        let message = "mapping: it is needed with a window";
        let windows = match (self.beside, &self.mapping) {
            (Beside::Windows, None) => return Err(PyValueError::new_err(message)),
            (Beside::Windows, Some(mapping)) => Some((mapping, state.part(1, first, end)?)),
            _ => None,
        };
        rows.put(row, first, published, self.page_size)?;
        let (mut pages, mut freed) = (Vec::with_capacity(given.len()), Vec::new());
        let others = given.iter().zip(published).enumerate();
        for (at, (&page, &known)) in others.filter(|(_, (page, known))| page != known) {
            pages.push(page);
            let Some((mapping, (mine, theirs))) = windows else { continue };
            if mine[at] == 0 {
                continue;
            }
            mapping.clear(page, self.page_size);
            if mine[at] == theirs[at] {
                mapping.set(known, mine[at], self.page_size);
            } else {
                freed.push(mine[at]);
            }
        }
        Ok((longs(py, &pages)?, longs(py, &freed)?))
    }

    /// The pages of the positions [start, end) of a row that are the request's own: `start` begins
    /// a page, `end` may lie within one. The mapping becomes 0 there.
    ///
    /// Returns (pages, window's pages), two new arrays of int64, for the engine to free. Raises
    /// ValueError: then nothing has changed.
    fn release<'py>(
        &self,
        py: Python<'py>,
        row: usize,
        start: usize,
        end: usize,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let _held = held(py, &self.state)?;
        let rows = self.rows()?;
        if !start.is_multiple_of(self.page_size) {
            let message = format!("start: {start} begins no page");
            return Err(PyValueError::new_err(message));
        }
        // More than a row has is refused, before memory is asked for.
        let count = end.saturating_sub(start).min(rows.width);
        let mut pages = vec![0; count.div_ceil(self.page_size)];
        rows.divide((row, start, end), self.page_size, &mut pages)?;
        let mut windows = Vec::new();
        if let Some(mapping) = &self.mapping {
            for &page in &pages {
                let window = mapping.window(page, self.page_size)?;
                if window != 0 {
                    windows.push(window);
                }
            }
            self.clear(&pages);
        }
        Ok((longs(py, &pages)?, longs(py, &windows)?))
    }

    /// With states, where the state lies that a lock of a match protects: a new array of int64 with
    /// its page of pool 1. Raises StaleLock.
    fn locked_state<'py>(&self, py: Python<'py>, lock: u64) -> PyResult<Bound<'py, PyAny>> {
        let _held = held(py, &self.state)?;
        let cache = self.cache.get().handle.get(py)?;
        let (mut found, mut count) = (rkv_locked_page::zeroed(), 0);
        let size = size_of::<rkv_locked_page>();
        let into = addr_of_mut!(found);
        // SAFETY: a live handle, room for one: a lock protects one state of a group.
        check(py, unsafe {
            rkv_cache_read_locked_pages(cache.raw(), lock, 1, into, size, 1, &mut count)
        })?;
        longs(py, &[found.page][..count])
    }

    /// The pages of pool 1 that the cache has, in order, as a new array of int64: for checks.
    fn window_pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = held(py, &self.state)?;
        let pages = (0..).zip(&state.hangs_on).filter(|(_, hangs_on)| **hangs_on != 0);
        longs(py, &pages.map(|(page, _)| page).collect::<Vec<u32>>())
    }

    /// The window's pages, in order, that the cache did not take with a page, for want of memory in
    /// the middle of a long list: a new array of int64. The mapping has them, for the request that
    /// goes on; `evict()` returns them when the page of full attention goes, or after another
    /// request has given the cache one that hangs there. Where pool 1 is short of pages and has
    /// no others, `evict()` lets pages of full attention go for them that nobody has locked.
    fn stray_pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        longs(py, &held(py, &self.state)?.strays.all())
    }

    /// How many `stray_pages()` there are, or were before the call that is under way. It raises no
    /// Busy, so that any thread can ask, such as one that watches the one at work.
    #[getter]
    fn stray_page_count(&self) -> usize {
        self.stray_page_count.load(Relaxed)
    }
}
