//! Caches: match, probe, insert, evict, locks, and what can be seen of the index.
use std::ptr::{null, null_mut};

use pyo3::prelude::*;

use crate::array::{Array, output};
use crate::c::*;
use crate::clears::Clears;
use crate::handle::{Closable, Handle, LONG_LIST, Raw, filled, listed, long};
use crate::lock::Lock;
use crate::page_table::PageTable;
use crate::record::{CacheStats, ClearResult, InsertResult, Match, NodeInfo};
use crate::space::{Namespace, Space};
use crate::status::{check, check_room};
use crate::tokens::TokenArg;

/// The prefix index over one page table: which published pages hold which tokens. Sequences live
/// in it. Every method may be called from any thread.
///
/// table: the page table; it takes one cache at a time, and lives as long.
/// index: "radix", exact comparison of tokens, or "block_hash", pages by their digests.
/// whole_pages: share whole pages only, reuse no part of a page by copy.
/// retained_sequence_limit, retained_page_limit: bounds of `Sequence.retain()`; 0: 1024 sequences,
///     half of the pages.
/// journal_bytes: bytes of the ring that `read_journal()` reads; 0 for no journal.
/// checkpoint_limit: checkpoints of a state group that a path keeps at most, the last one included;
///     those where several prompts go on stay besides. 0: any number.
///
/// Tokens are an array of 32-bit integers (numpy, array.array, a torch tensor on the CPU), which is
/// used where it lies; 64-bit arrays and lists are copied first. `space` is a Namespace, None for
/// the default one.
///
/// A context manager: leaving it closes the cache. Raises Busy when the table has a cache,
/// InvalidArgument, Unsupported.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct Cache {
    pub handle: Closable<rkv_cache>,
    /// For rows that insert without a node.
    pub clears: Clears,
    /// The page table.
    #[pyo3(get)]
    pub table: Py<PageTable>,
}

#[pymethods]
impl Cache {
    #[new]
    #[pyo3(signature = (table, *, index="radix", whole_pages=false, retained_sequence_limit=0,
                        retained_page_limit=0, journal_bytes=0, checkpoint_limit=0))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        table: Py<PageTable>,
        index: &str,
        whole_pages: bool,
        retained_sequence_limit: u32,
        retained_page_limit: u32,
        journal_bytes: u64,
        checkpoint_limit: u64,
    ) -> PyResult<Self> {
        let index = match index {
            "radix" => RKV_INDEX_RADIX,
            "block_hash" => RKV_INDEX_BLOCK_HASH,
            other => {
                let message = format!("index: 'radix' or 'block_hash' is needed, not {other:?}");
                return Err(pyo3::exceptions::PyValueError::new_err(message));
            }
        };
        let config = rkv_cache_config {
            flags: if whole_pages { RKV_CACHE_WHOLE_PAGES } else { 0 },
            index,
            retained_sequence_limit,
            retained_page_limit,
            journal_bytes,
            checkpoint_limit,
            ..rkv_cache_config::sized()
        };
        let on = table.get().handle.get(py)?;
        let mut cache = null_mut();
        let call = Raw(&raw mut cache);
        // SAFETY: a live handle, a whole config.
        let status = long(py, true, || unsafe { rkv_cache_create(on.raw(), &config, call.get()) });
        check(py, status)?;
        let handle = Closable::new(Handle::new(cache));
        Ok(Cache { handle, clears: Clears::default(), table })
    }

    /// Ends the cache: its sequences end, all cached pages return to the pool. It is not waited for
    /// calls that run in other threads: the last of them ends it then. Sequence and Lock objects
    /// can't be used any more. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    /// The rkv_cache pointer, for C code in the same process. Good until the cache is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.address(py)
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Finds the longest cached prefix and refreshes its recency. `pages`, an array of uint32 with
    /// room for len(tokens) // page_size, receives its whole pages in order. With `lock` the match
    /// is locked in the same step: undo with `unlock(match.lock)`. Without, another thread may
    /// evict the pages at once.
    ///
    /// Returns a Match; that nothing matched is no error. Raises BufferTooSmall.
    #[pyo3(name = "match", signature = (tokens, pages=None, *, space=None, lock=false))]
    fn match_(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        pages: Option<&Bound<'_, PyAny>>,
        space: Option<&Bound<'_, Namespace>>,
        lock: bool,
    ) -> PyResult<Match> {
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let pages = pages.map(|it| Array::integers(it, "pages", 4, true)).transpose()?;
        let (into, room) = output(&pages);
        let space = Space::of(space);
        let flags = if lock { RKV_MATCH_LOCK } else { 0 };
        let mut found = rkv_cache_match_result::sized();
        let call = Raw((space.c(), tokens.c(), into, &raw mut found));
        let status = long(py, tokens.is_long(), || {
            let (space, tokens, into, found) = call.get();
            // SAFETY: a live handle, arguments that are kept, room as stated.
            unsafe { rkv_cache_match(cache.raw(), space, tokens, flags, into, room, found) }
        });
        check_room(py, status, found.page_count as usize)?;
        Ok(Match(found))
    }

    /// Tokens that `match()` would find. Changes nothing and takes no lock: for routers and for
    /// admission, from any number of threads.
    #[pyo3(signature = (tokens, *, space=None))]
    fn probe(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        space: Option<&Bound<'_, Namespace>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let space = Space::of(space);
        let (mut count, mut positions) = (0, 0);
        let call = Raw((space.c(), tokens.c(), &raw mut count, &raw mut positions));
        let status = long(py, tokens.is_long(), || {
            let (space, tokens, count, positions) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            unsafe { rkv_cache_probe(cache.raw(), space, tokens, count, positions) }
        });
        check(py, status)?;
        Ok(count)
    }

    /// Publishes the whole pages of a prefix. `pages` (uint32) has the prefix' pages from its
    /// beginning, at least one for each whole page of the tokens. The cache claims those for which
    /// it has none yet; where it has another one for the same tokens, that stays, and the caller's
    /// is a duplicate. `published` (uint32, as long) receives the page that the cache has at each
    /// place: map those instead. With an external pool it must be given. Pages that were computed
    /// before `clear()` cleared the namespace are not to be inserted.
    ///
    /// from_node, from_token_index, from_page_index: go on from an earlier match, by its `node`,
    ///     `token_count` and `page_count`; what lies before is not compared again.
    /// lock: lock what was inserted in the same step; undo with `unlock(result.lock)`.
    /// moved_lock: with `lock`, one on `from_node`, which moves to the new end: none is taken.
    ///     Of further groups it protects all pages from there on, until `slide_lock()`.
    /// groups: (group, pages, published or None) for each further group of layers.
    ///
    /// Raises InvalidArgument for a page that is not private or given twice, StaleNode; a failed
    /// insert changes nothing.
    #[pyo3(signature = (tokens, pages, *, published=None, space=None, lock=false, from_node=0,
                        from_token_index=0, from_page_index=0, groups=Vec::new(), moved_lock=0),
           text_signature = "($self, tokens, pages, *, published=None, space=None, lock=False, \
                             from_node=0, from_token_index=0, from_page_index=0, groups=(), \
                             moved_lock=0)")]
    #[allow(clippy::too_many_arguments)]
    fn insert(
        &self,
        py: Python<'_>,
        tokens: &Bound<'_, PyAny>,
        pages: &Bound<'_, PyAny>,
        published: Option<&Bound<'_, PyAny>>,
        space: Option<&Bound<'_, Namespace>>,
        lock: bool,
        from_node: u64,
        from_token_index: u64,
        from_page_index: u64,
        groups: Vec<(u32, Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)>,
        moved_lock: u64,
    ) -> PyResult<InsertResult> {
        let cache = self.handle.get(py)?;
        let tokens = TokenArg::of(tokens, "tokens")?;
        let pages = Array::integers(pages, "pages", 4, false)?;
        let into = |it: &Bound<'_, PyAny>, name: &str, count| {
            Array::integers(it, name, 4, true)?.at_least(name, count)
        };
        let published = published.map(|it| into(it, "published", pages.count)).transpose()?;
        let mut kept = Vec::new();
        let mut rows = Vec::new();
        for (group, pages, published) in &groups {
            let pages = Array::integers(pages, "groups: pages", 4, false)?;
            let count = pages.count;
            let published =
                published.as_ref().map(|it| into(it, "groups: published", count)).transpose()?;
            rows.push(rkv_group_row {
                group: *group,
                reserved: 0,
                pages: pages.data(),
                page_count: count,
                published_pages: output(&published).0,
            });
            kept.push((pages, published));
        }
        let space = Space::of(space);
        let args = rkv_cache_insert_args {
            flags: if lock { RKV_INSERT_LOCK } else { 0 },
            space: space.c(),
            tokens: tokens.c(),
            pages: pages.data(),
            page_count: pages.count,
            from_node,
            from_token_index,
            from_page_index,
            groups: if rows.is_empty() { null() } else { rows.as_ptr() },
            group_count: rows.len(),
            group_size: size_of::<rkv_group_row>(),
            lock: moved_lock,
            ..rkv_cache_insert_args::sized()
        };
        let mut done = rkv_cache_insert_result::sized();
        let call = Raw((&args, output(&published).0, &raw mut done));
        let is_long = tokens.count().saturating_sub(from_token_index as usize) > 256;
        let status = long(py, is_long, || {
            let (args, published, done) = call.get();
            // SAFETY: a live handle, arguments that are kept, room for every page.
            unsafe { rkv_cache_insert(cache.raw(), args, published, done) }
        });
        check(py, status)?;
        Ok(InsertResult(done))
    }

    /// Evicts pages, least recently used first. `pages`, an array of uint32, receives them; with
    /// one, no more are evicted than it has room for. With an external pool it must be given.
    ///
    /// Returns how many were evicted; fewer than asked is no error: the rest is locked.
    #[pyo3(signature = (page_count, pages=None))]
    fn evict(
        &self,
        py: Python<'_>,
        page_count: usize,
        pages: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<usize> {
        let cache = self.handle.get(py)?;
        let pages = pages.map(|it| Array::integers(it, "pages", 4, true)).transpose()?;
        let (into, room) = output(&pages);
        let mut count = 0;
        let call = Raw((into, &raw mut count));
        let status = long(py, true, || {
            let (into, count) = call.get();
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_cache_evict(cache.raw(), page_count, into, room, count) }
        });
        check(py, status)?;
        Ok(count)
    }

    /// Whether the cache owns a page.
    fn contains_page(&self, py: Python<'_>, page: u32) -> PyResult<bool> {
        let (cache, mut contains) = (self.handle.get(py)?, false);
        // SAFETY: a live handle.
        check(py, unsafe { rkv_cache_contains_page(cache.raw(), page, &mut contains) })?;
        Ok(contains)
    }

    /// Protects a node and all its ancestors from eviction. Returns the lock's id; a node can have
    /// any number. Raises StaleNode.
    fn lock(&self, py: Python<'_>, node: u64) -> PyResult<u64> {
        let (cache, mut lock) = (self.handle.get(py)?, 0);
        // SAFETY: a live handle.
        check(py, unsafe { rkv_cache_lock(cache.raw(), node, &mut lock) })?;
        Ok(lock)
    }

    /// Lets go of pages of further groups that a lock protects and no token from a position on
    /// attends to: of windows and chunks those that were passed, and states of fewer positions.
    /// Raises StaleLock.
    fn slide_lock(&self, py: Python<'_>, lock: u64, position: u64) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        let status = long(py, true, || {
            // SAFETY: a live handle.
            unsafe { rkv_cache_slide_lock(cache.raw(), lock, position) }
        });
        check(py, status)
    }

    /// Undoes one lock. Raises StaleLock when it was undone already.
    fn unlock(&self, py: Python<'_>, lock: u64) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        check(py, unsafe { rkv_cache_unlock(cache.raw(), lock) })
    }

    /// A lock's id as a context manager: leaving it unlocks. `with cache.hold(match.lock): ...`; of
    /// lock 0, that of a match which found nothing, it does nothing.
    fn hold(this: Py<Self>, lock: u64) -> Lock {
        Lock { cache: this, id: lock }
    }

    /// Clears namespaces while requests run: when weights or an adapter change, or a tenant leaves.
    /// Without a flag, exactly `space`; with flags, all namespaces that have these fields like
    /// `space`; with `everything`, all. What a lock or a sequence holds stays for its holder. Pages
    /// that were computed before are not to be inserted: `insert()` can't know.
    #[pyo3(signature = (space=None, *, lora=false, image=false, salt=false, epoch=false,
                        everything=false))]
    #[allow(clippy::too_many_arguments)]
    fn clear(
        &self,
        py: Python<'_>,
        space: Option<&Bound<'_, Namespace>>,
        lora: bool,
        image: bool,
        salt: bool,
        epoch: bool,
        everything: bool,
    ) -> PyResult<ClearResult> {
        let cache = self.handle.get(py)?;
        let space = Space::of(space);
        let chosen = [
            (lora, RKV_CLEAR_LORA),
            (image, RKV_CLEAR_IMAGE),
            (salt, RKV_CLEAR_SALT),
            (epoch, RKV_CLEAR_EPOCH),
            (everything, RKV_CLEAR_EVERYTHING),
        ];
        let flags = chosen.iter().filter(|entry| entry.0).fold(0, |flags, entry| flags | entry.1);
        let flags = if flags == 0 { RKV_CLEAR_NAMESPACE } else { flags };
        let args =
            rkv_cache_clear_args { flags, space: space.c(), ..rkv_cache_clear_args::sized() };
        let mut done = rkv_cache_clear_result::sized();
        let call = Raw((&args, &raw mut done, &space));
        let status = long(py, true, || {
            let (args, done, space) = call.get();
            // SAFETY: a live handle, arguments that are kept.
            let clear = || unsafe { rkv_cache_clear(cache.raw(), args, done) };
            self.clears.clear((flags, space), clear)
        });
        check(py, status)?;
        Ok(ClearResult(done))
    }

    /// Counters, at one moment. Waits for no eviction.
    fn stats(&self, py: Python<'_>) -> PyResult<CacheStats> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        filled(py, |out| unsafe { rkv_cache_read_stats(cache.raw(), out) }).map(CacheStats)
    }

    /// Checks every invariant of the index. Takes a pass over it: for tests. Raises Corrupt with
    /// what is wrong.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_cache_check(cache.raw()) });
        check(py, status)
    }

    /// What can be seen of a node. Raises StaleNode.
    fn node_info(&self, py: Python<'_>, node: u64) -> PyResult<NodeInfo> {
        let cache = self.handle.get(py)?;
        // SAFETY: a live handle.
        filled(py, |out| unsafe { rkv_node_read_info(cache.raw(), node, out) }).map(NodeInfo)
    }

    /// Pages of a node's own segment, as a new array of uint32. Raises StaleNode.
    fn node_pages<'py>(&self, py: Python<'py>, node: u64) -> PyResult<Bound<'py, PyAny>> {
        let cache = self.handle.get(py)?;
        listed(py, "u4", |into, room, count| {
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_node_read_pages(cache.raw(), node, into.cast(), room, count) }
        })
    }

    /// Children of a node in the order of their first pages, as a new array of uint64. Raises
    /// StaleNode.
    fn node_children<'py>(&self, py: Python<'py>, node: u64) -> PyResult<Bound<'py, PyAny>> {
        let cache = self.handle.get(py)?;
        listed(py, "u8", |into, room, count| {
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_node_read_children(cache.raw(), node, into.cast(), room, count) }
        })
    }

    /// The namespaces that the cache has pages of or locks in, each with the node of its root.
    fn namespaces(&self, py: Python<'_>) -> PyResult<Vec<(Namespace, u64)>> {
        let (cache, size) = (self.handle.get(py)?, size_of::<rkv_namespace>());
        let mut room = 16;
        loop {
            let mut spaces = vec![rkv_namespace::zeroed(); room];
            let (mut roots, mut count) = (vec![0; room], 0);
            let call = Raw((spaces.as_mut_ptr(), roots.as_mut_ptr(), &raw mut count));
            let status = long(py, room > LONG_LIST, || {
                let (into, roots, count) = call.get();
                // SAFETY: a live handle, room as stated.
                unsafe { rkv_cache_read_namespaces(cache.raw(), into, size, roots, room, count) }
            });
            if status != RKV_STATUS_BUFFER_TOO_SMALL {
                check(py, status)?;
                let found = spaces[..count].iter().map(Namespace::from_c);
                return Ok(found.zip(roots).collect());
            }
            room = count;
        }
    }

    /// The tree as text: "json", or "dot" for Graphviz.
    #[pyo3(signature = (format="json"))]
    fn dump(&self, py: Python<'_>, format: &str) -> PyResult<String> {
        let cache = self.handle.get(py)?;
        let format = match format {
            "json" => RKV_DUMP_JSON,
            "dot" => RKV_DUMP_DOT,
            other => {
                let message = format!("format: 'json' or 'dot' is needed, not {other:?}");
                return Err(pyo3::exceptions::PyValueError::new_err(message));
            }
        };
        let mut room = 1 << 16;
        loop {
            let (mut text, mut bytes) = (vec![0_u8; room], 0);
            let call = Raw((text.as_mut_ptr(), &raw mut bytes));
            let status = long(py, true, || {
                let (into, bytes) = call.get();
                // SAFETY: a live handle, room as stated.
                unsafe { rkv_cache_dump(cache.raw(), format, into.cast(), room, bytes) }
            });
            if status != RKV_STATUS_BUFFER_TOO_SMALL {
                check(py, status)?;
                text.truncate(bytes - 1);
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            room = bytes;
        }
    }
}
