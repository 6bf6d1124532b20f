//! Caches over several groups of layers.
use pyo3::prelude::*;

use crate::array::{Array, empty};
use crate::c::*;
use crate::cache::Cache;
use crate::handle::{Raw, filled, listed, long};
use crate::record::GroupDepths;
use crate::space::{Namespace, Space};
use crate::status::check;
use crate::tokens::TokenArg;

#[pymethods]
impl Cache {
    /// How far a prompt is known, and how far it can be reused, with several groups of layers.
    /// Changes nothing.
    ///
    /// Returns (depths, costs): a GroupDepths, and a new array of `dtypes.group_cost` that says for
    /// each group how many positions can't be reused because of it.
    #[pyo3(signature = (tokens, *, space=None))]
    fn probe_groups<'py>(
        &self,
        py: Python<'py>,
        tokens: &Bound<'py, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
    ) -> PyResult<(GroupDepths, Bound<'py, PyAny>)> {
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let space = Space::of(space);
        let costs = empty(py, RKV_GROUP_LIMIT as usize, "group_cost")?;
        let into = Array::structs::<rkv_group_cost>(&costs, "costs", "group_cost", true)?;
        let mut count = 0;
        let depths = filled(py, |out| {
            let call = Raw((space.c(), tokens.c(), into.data(), &raw mut count, out));
            long(py, tokens.is_long(), || {
                let (space, tokens, costs, count, out) = call.get();
                let (size, room) = (size_of::<rkv_group_cost>(), RKV_GROUP_LIMIT as usize);
                // SAFETY: a live handle, room as stated.
                unsafe {
                    rkv_cache_probe_groups(
                        cache.raw(),
                        space,
                        tokens,
                        costs,
                        size,
                        room,
                        count,
                        out,
                    )
                }
            })
        })?;
        let costs = costs.get_item(pyo3::types::PySlice::new(py, 0, count as isize, 1))?;
        Ok((GroupDepths(depths), costs))
    }

    /// Each group in numbers: what the cache has of it, and what it cost since the cache was
    /// created. A new array of `dtypes.group_stats`.
    fn group_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (cache, size) = (self.handle.get(py)?, size_of::<rkv_group_stats>());
        listed(py, "group_stats", |into, room, count| {
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_cache_read_group_stats(cache.raw(), into.cast(), size, room, count) }
        })
    }

    /// The pages of a group, 1 and up, that a lock protects: of a match with `lock`, those that the
    /// prefix needs. Those of group 0 come with the match. A new array of `dtypes.locked_page`.
    /// Raises StaleLock.
    fn locked_pages<'py>(
        &self,
        py: Python<'py>,
        lock: u64,
        group: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (cache, size) = (self.handle.get(py)?, size_of::<rkv_locked_page>());
        listed(py, "locked_page", |into, room, count| {
            // SAFETY: a live handle, room as stated.
            unsafe {
                rkv_cache_read_locked_pages(
                    cache.raw(),
                    lock,
                    group,
                    into.cast(),
                    size,
                    room,
                    count,
                )
            }
        })
    }

    /// Evicts until a pool has got so many pages, or there are no more to be had. `evicted`, an
    /// array of `dtypes.evicted_page`, receives every page that went, of all pools; with an
    /// external pool it must be given.
    ///
    /// Returns (pages that went, pages that the pool got).
    #[pyo3(signature = (pool, page_count, evicted=None))]
    fn evict_pool(
        &self,
        py: Python<'_>,
        pool: u32,
        page_count: usize,
        evicted: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(usize, usize)> {
        let cache = self.handle.get(py)?;
        let structs = |it| Array::structs::<rkv_evicted_page>(it, "evicted", "evicted_page", true);
        let evicted = evicted.map(structs).transpose()?;
        let (into, room) = match &evicted {
            Some(array) => (array.data(), array.count),
            None => (std::ptr::null_mut(), 0),
        };
        let (mut gone, mut freed) = (0, 0);
        let call = Raw((into, &raw mut gone, &raw mut freed));
        let status = long(py, true, || {
            let (into, gone, freed) = call.get();
            let size = size_of::<rkv_evicted_page>();
            // SAFETY: a live handle, room as stated.
            unsafe {
                rkv_cache_evict_pool(cache.raw(), pool, page_count, into, size, room, gone, freed)
            }
        });
        check(py, status)?;
        Ok((gone, freed))
    }
}
