//! Where the pages of an engine's rows come from and go to: the library's calls for them.
use std::ptr::{null, null_mut};
use std::sync::Arc;

use pyo3::prelude::*;

use crate::c::*;
use crate::cache::Cache;
use crate::handle::{Handle, LONG_LIST, Raw, filled, long};
use crate::space::{Namespace, Space};
use crate::status::{check, refused};
use crate::tokens::{LONG, TokenArg};

/// From so many pages on a call lets other threads run.
const MANY: usize = 16;

/// The ids of a list of text.
pub fn ids_of(tokens: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    TokenArg::of(tokens, "tokens")?.to_vec().ok_or_else(|| {
        let message = "tokens: a growing row takes text alone";
        refused(tokens.py(), RKV_STATUS_UNSUPPORTED, message)
    })
}

/// Tokens as the library takes them.
pub fn text(tokens: &[u32]) -> rkv_tokens {
    let ids = if tokens.is_empty() { null() } else { tokens.as_ptr() };
    rkv_tokens { ids, count: tokens.len(), ..rkv_tokens::sized() }
}

/// A cache, and the namespace of a request in it.
pub struct Source {
    pub cache: Py<Cache>,
    /// Kept, so that pages can go back when the PageTable was closed.
    table: Arc<Handle<rkv_page_table>>,
    pub space: Space,
    pub page_size: usize,
}

impl Source {
    pub fn new(cache: &Bound<'_, Cache>, space: Option<&Bound<'_, Namespace>>) -> PyResult<Self> {
        let table = cache.get().table.get();
        let (page_size, table) = (table.page_size as usize, table.handle.get(cache.py())?);
        Ok(Source { cache: cache.clone().unbind(), table, space: Space::of(space), page_size })
    }

    /// The whole pages of a prefix, as many as are found; `pages` has room for all.
    pub fn find(
        &self,
        py: Python<'_>,
        tokens: &[u32],
        flags: u32,
        pages: &mut [u32],
    ) -> PyResult<rkv_cache_match_result> {
        let cache = self.cache.get().handle.get(py)?;
        let (tokens, room) = (text(tokens), pages.len());
        let mut found = rkv_cache_match_result::sized();
        let into = (pages.as_mut_ptr(), &raw mut found);
        let call = Raw((self.space.c(), &raw const tokens, into));
        let status = long(py, tokens.count >= LONG, || {
            let (space, tokens, (pages, found)) = call.get();
            // SAFETY: a live handle, arguments that are kept, room for every whole page.
            unsafe { rkv_cache_match(cache.raw(), space, tokens, flags, pages, room, found) }
        });
        check(py, status)?;
        Ok(found)
    }

    /// How many pages a row has when it has places for so many positions, at least those that it
    /// holds, and how many of them are whole when so many of its tokens are computed. Nothing for
    /// more new pages than there are: nobody has to ask for memory to be told so.
    pub fn places(
        &self,
        py: Python<'_>,
        (known, held): (usize, usize),
        (positions, computed): (usize, usize),
    ) -> PyResult<Option<(usize, usize)>> {
        let wanted = positions.div_ceil(self.page_size).max(held);
        let whole = computed / self.page_size;
        if computed > known || whole > wanted {
            let message = format!("computed: {computed}, with {known} tokens and {wanted} pages");
            return Err(refused(py, RKV_STATUS_INVALID_ARGUMENT, &message));
        }
        // Full attention, which every table has, takes a page for each place.
        let is_beyond = wanted - held > MANY && (wanted - held) as u64 > self.page_count(py)?;
        Ok((!is_beyond).then_some((wanted, whole)))
    }

    /// Pages of the pool that rows draw from, whoever has them.
    fn page_count(&self, py: Python<'_>) -> PyResult<u64> {
        // SAFETY: a live handle.
        let stats = filled(py, |out: *mut rkv_pool_stats| unsafe {
            rkv_page_table_read_pool_stats(self.table.raw(), 0, out)
        });
        Ok(stats?.total_page_count)
    }

    /// Takes as many pages as there is room for. Whether there were enough: else none is taken.
    pub fn allocate(&self, py: Python<'_>, into: &mut [u32]) -> PyResult<bool> {
        let (table, start, count) = (&self.table, Raw(into.as_mut_ptr()), into.len());
        let status = long(py, count > MANY, || {
            // SAFETY: a live handle, room for as many pages.
            unsafe { rkv_page_table_allocate_pages(table.raw(), count, start.get()) }
        });
        if status == RKV_STATUS_OUT_OF_PAGES {
            return Ok(false);
        }
        check(py, status)?;
        Ok(true)
    }

    /// A row has no pages yet, so that all it publishes is computed from now on: what `insert()`
    /// is told as `began`.
    pub fn begins(&self, py: Python<'_>) -> PyResult<u64> {
        let cache = self.cache.get();
        cache.handle.check_process(py)?;
        Ok(cache.clears.latest())
    }

    /// Publishes the pages from `first` to `end` of a prefix that ends behind `from`, with a lock
    /// that goes along; refused where the namespace was cleared since the row began. `more` are
    /// what groups give besides. `published` receives the cache's page at each place, or is empty.
    pub fn insert(
        &self,
        py: Python<'_>,
        tokens: &[u32],
        pages: *const u32,
        (from, lock, began): (u64, u64, u64),
        (first, end): (usize, usize),
        (more, published): (&[rkv_group_row], &mut [u32]),
    ) -> PyResult<rkv_cache_insert_result> {
        debug_assert!(published.is_empty() || published.len() == end);
        let into = if published.is_empty() { null_mut() } else { published.as_mut_ptr() };
        let cache = self.cache.get().handle.get(py)?;
        let tokens = text(&tokens[..end * self.page_size]);
        let args = rkv_cache_insert_args {
            flags: RKV_INSERT_LOCK,
            space: self.space.c(),
            tokens: &tokens,
            pages,
            page_count: end,
            from_node: from,
            from_token_index: (first * self.page_size) as u64,
            from_page_index: first as u64,
            groups: more.as_ptr(),
            group_count: more.len(),
            group_size: size_of::<rkv_group_row>(),
            lock,
            ..rkv_cache_insert_args::sized()
        };
        let mut done = rkv_cache_insert_result::sized();
        let clears = &self.cache.get().clears;
        let call = Raw((&raw const args, into, &raw mut done, &self.space));
        let status = long(py, end - first > MANY, || {
            let (args, into, done, space) = call.get();
            // SAFETY: a live handle, arguments that are kept, rows with as many pages.
            let insert = || unsafe { rkv_cache_insert(cache.raw(), args, into, done) };
            if from == 0 { clears.insert((space, began), insert) } else { insert() }
        });
        // After a node it is the library that says so: its lock goes along, nothing else is amiss.
        let cleared = if from == 0 { RKV_STATUS_STALE_NODE } else { RKV_STATUS_INVALID_STATE };
        if status == cleared {
            let message = "the namespace was cleared since the row began";
            return Err(refused(py, RKV_STATUS_STALE_NODE, message));
        }
        check(py, status)?;
        Ok(done)
    }

    /// Undoes a lock, if there is one.
    pub fn unlock(&self, py: Python<'_>, lock: u64) -> PyResult<()> {
        if lock == 0 {
            return Ok(());
        }
        let cache = self.cache.get().handle.get(py)?;
        // SAFETY: a live handle.
        check(py, unsafe { rkv_cache_unlock(cache.raw(), lock) })
    }

    /// Frees pages that were a row's alone.
    pub fn free(&self, py: Python<'_>, pages: &[u32]) -> PyResult<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let (table, from, count) = (&self.table, Raw(pages.as_ptr()), pages.len());
        let status = long(py, count > LONG_LIST, || {
            // SAFETY: a live handle, pages that were this row's alone.
            unsafe { rkv_page_table_free_pages(table.raw(), from.get(), count) }
        });
        check(py, status)
    }
}

/// The row to begin has pages.
pub fn begun(py: Python<'_>) -> PyErr {
    refused(py, RKV_STATUS_INVALID_STATE, "the row has pages")
}

/// What was found is not there any more.
pub fn evicted(py: Python<'_>) -> PyErr {
    refused(py, RKV_STATUS_STALE_NODE, "the pages were evicted since they were found")
}

/// Raises when the cache took fewer pages than it was given; those are the cache's all the same.
pub fn all_published(py: Python<'_>, reached: usize, end: usize) -> PyResult<()> {
    if reached < end {
        let message = "a part of a request was not published";
        return Err(refused(py, RKV_STATUS_OUT_OF_MEMORY, message));
    }
    Ok(())
}

/// Room for what `Source::insert` is to say of the pages from `first` to `end`: none for a page
/// alone. Several may come in portions, between which others publish: then any of them may be the
/// ones that the cache had already.
pub fn room_to_tell(first: usize, end: usize) -> Vec<u32> {
    vec![0; if end > first + 1 { end } else { 0 }]
}
