//! Page tables: pools of pages, and a row of pages for each slot.
use std::ptr::{null, null_mut};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::{Array, output};
use crate::c::*;
use crate::handle::{Closable, Handle, LONG_LIST, Raw, filled, listed, long};
use crate::pickle::{Remade, by_method};
use crate::record::{PageTableStats, PoolStats};
use crate::status::{check, check_room};

/// A group of layers that share one row of pages: how far back they look. Made by `full()`,
/// `window()`, `chunk()` and `state()`; `pool` is the index of the pool that its pages come from.
#[pyclass(frozen, from_py_object, module = "radixkv")]
#[derive(Clone)]
pub struct Group(rkv_group_config);

#[pymethods]
impl Group {
    /// Full attention: a prefix can be reused when all its pages are there.
    #[staticmethod]
    #[pyo3(signature = (*, pool=0))]
    fn full(pool: u32) -> Self {
        Group(rkv_group_config { kind: RKV_GROUP_FULL, pool, ..rkv_group_config::zeroed() })
    }

    /// A sliding window: a query sees the last `window` positions, its own included, and the first
    /// `sinks`.
    #[staticmethod]
    #[pyo3(signature = (window, *, sinks=0, pool=0))]
    fn window(window: u32, sinks: u32, pool: u32) -> Self {
        let (kind, zero) = (RKV_GROUP_WINDOW, rkv_group_config::zeroed());
        Group(rkv_group_config { kind, pool, window, sinks, ..zero })
    }

    /// Chunked attention: a query sees its own chunk of so many positions.
    #[staticmethod]
    #[pyo3(signature = (chunk, *, pool=0))]
    fn chunk(chunk: u32, pool: u32) -> Self {
        Group(rkv_group_config { kind: RKV_GROUP_CHUNK, pool, chunk, ..rkv_group_config::zeroed() })
    }

    /// Recurrent layers: a prefix can be reused where a checkpoint of the state was saved.
    /// `draft_state_count` states more are for tokens that may be taken back.
    #[staticmethod]
    #[pyo3(signature = (*, pool=0, draft_state_count=0))]
    fn state(pool: u32, draft_state_count: u32) -> Self {
        let (kind, zero) = (RKV_GROUP_STATE, rkv_group_config::zeroed());
        Group(rkv_group_config { kind, pool, draft_state_count, ..zero })
    }

    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Remade<'py>> {
        let (group, named) = (&this.get().0, PyDict::new(this.py()));
        named.set_item("pool", group.pool)?;
        match group.kind {
            RKV_GROUP_FULL => by_method(this, ("full",), Some(&named)),
            RKV_GROUP_WINDOW => {
                named.set_item("sinks", group.sinks)?;
                by_method(this, ("window", group.window), Some(&named))
            }
            RKV_GROUP_CHUNK => by_method(this, ("chunk", group.chunk), Some(&named)),
            _ => {
                named.set_item("draft_state_count", group.draft_state_count)?;
                by_method(this, ("state",), Some(&named))
            }
        }
    }

    fn __repr__(&self) -> String {
        let pool = self.0.pool;
        match self.0.kind {
            RKV_GROUP_FULL => format!("Group.full(pool={pool})"),
            RKV_GROUP_WINDOW => {
                format!("Group.window({}, sinks={}, pool={pool})", self.0.window, self.0.sinks)
            }
            RKV_GROUP_CHUNK => format!("Group.chunk({}, pool={pool})", self.0.chunk),
            _ => {
                let drafts = self.0.draft_state_count;
                format!("Group.state(pool={pool}, draft_state_count={drafts})")
            }
        }
    }
}

/// A pool of physical pages, and one row of pages for each slot. Page 0 is reserved as the target
/// of padding: it is never handed out.
///
/// page_count: pages, the reserved one included; 0 with `pools`.
/// page_size: positions of a page, 1 to 65,536; a runner takes up to 256.
/// slot_count: sequences alive at once.
/// row_page_limit: longest row in pages; 0: as many as there are pages.
/// external: the engine has an allocator of its own. `Cache.insert()` claims its pages,
///     `Cache.evict()` gives them back; there are no slots and no sequences.
/// groups: the groups of the model's layers, the first of them full; empty for one full group.
/// pools: pages of each pool; empty for one pool of `page_count`.
///
/// A context manager: leaving it closes the table. Raises InvalidArgument naming the field.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct PageTable {
    pub handle: Closable<rkv_page_table>,
    /// Positions of a page.
    #[pyo3(get)]
    pub page_size: u32,
    pub groups: Vec<rkv_group_config>,
}

#[pymethods]
impl PageTable {
    #[new]
    #[pyo3(signature = (page_count=0, *, page_size=16, slot_count=256, row_page_limit=0,
                        external=false, groups=Vec::new(), pools=Vec::new()),
           text_signature = "(page_count=0, *, page_size=16, slot_count=256, row_page_limit=0, \
                             external=False, groups=(), pools=())")]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        page_count: u32,
        page_size: u32,
        slot_count: u32,
        row_page_limit: u32,
        external: bool,
        groups: Vec<Group>,
        pools: Vec<u32>,
    ) -> PyResult<Self> {
        let groups: Vec<_> = groups.into_iter().map(|group| group.0).collect();
        let pool = |page_count| rkv_pool_config { page_count, reserved: 0 };
        let pools: Vec<_> = pools.into_iter().map(pool).collect();
        let config = rkv_page_table_config {
            page_size,
            page_count,
            slot_count,
            row_page_limit,
            flags: if external { RKV_PAGE_TABLE_EXTERNAL_POOL } else { 0 },
            groups: if groups.is_empty() { null() } else { groups.as_ptr() },
            group_count: groups.len(),
            group_size: size_of::<rkv_group_config>(),
            pools: if pools.is_empty() { null() } else { pools.as_ptr() },
            pool_count: pools.len(),
            pool_size: size_of::<rkv_pool_config>(),
            ..rkv_page_table_config::sized()
        };
        let mut table = null_mut();
        let call = Raw((&config, &raw mut table));
        let status = long(py, true, || {
            let (config, table) = call.get();
            // SAFETY: the lists are as long as stated.
            unsafe { rkv_page_table_create(config, table) }
        });
        check(py, status)?;
        let groups = if groups.is_empty() { vec![Group::full(0).0] } else { groups };
        Ok(PageTable { handle: Closable::new(Handle::new(table)), page_size, groups })
    }

    /// Gives the table up; a cache, a plan or a runner on it keeps its pages alive. The last call
    /// that runs in another thread ends it. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.handle.close(py);
    }

    /// The rkv_page_table pointer, for C code in the same process. Good until the table is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.address(py)
    }

    /// Whether `close()` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Pages by state and slots in use, at one moment. Waits for no eviction.
    fn stats(&self, py: Python<'_>) -> PyResult<PageTableStats> {
        let table = self.handle.get(py)?;
        // SAFETY: a live handle.
        filled(py, |out| unsafe { rkv_page_table_read_stats(table.raw(), out) }).map(PageTableStats)
    }

    /// Pages of one pool by state. Raises InvalidArgument for a pool that there is not.
    fn pool_stats(&self, py: Python<'_>, pool: u32) -> PyResult<PoolStats> {
        let table = self.handle.get(py)?;
        // SAFETY: a live handle.
        filled(py, |out| unsafe { rkv_page_table_read_pool_stats(table.raw(), pool, out) })
            .map(PoolStats)
    }

    /// Proves page by page that each is in exactly one state. Takes a pass over pages, rows and
    /// index: for tests. Raises Corrupt with what is wrong.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let table = self.handle.get(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_page_table_check(table.raw()) });
        check(py, status)
    }

    /// Takes a slot with an empty row, for an engine that keeps rows itself. Raises OutOfSlots.
    fn allocate_slot(&self, py: Python<'_>) -> PyResult<u32> {
        let (table, mut slot) = (self.handle.get(py)?, 0);
        // SAFETY: a live handle.
        check(py, unsafe { rkv_page_table_allocate_slot(table.raw(), &mut slot) })?;
        Ok(slot)
    }

    /// Empties a row and gives its slot back; its private pages return to the pool. Raises
    /// InvalidArgument for a slot that is not in use, InvalidState when a sequence owns it.
    fn free_slot(&self, py: Python<'_>, slot: u32) -> PyResult<()> {
        let table = self.handle.get(py)?;
        // SAFETY: a live handle.
        check(py, unsafe { rkv_page_table_free_slot(table.raw(), slot) })
    }

    /// Fills `pages`, an array of uint32, with pages that are in no row yet; evicts when the pool
    /// is short. All or nothing. Raises OutOfPages, whose `shortage` has the numbers.
    #[pyo3(signature = (pages, *, pool=0))]
    fn allocate_pages(&self, py: Python<'_>, pages: &Bound<'_, PyAny>, pool: u32) -> PyResult<()> {
        let table = self.handle.get(py)?;
        let pages = Array::integers(pages, "pages", 4, true)?;
        let (into, count) = (Raw(pages.data()), pages.count);
        let status = long(py, count > 16, || {
            // SAFETY: a live handle, an array of `count`.
            unsafe { rkv_page_table_allocate_pool_pages(table.raw(), pool, count, into.get()) }
        });
        check(py, status)
    }

    /// Returns private pages that are in no row to their pool. Raises InvalidArgument naming the
    /// page that is free, cached, mapped or given twice: then none was freed.
    #[pyo3(signature = (pages, *, pool=0))]
    fn free_pages(&self, py: Python<'_>, pages: &Bound<'_, PyAny>, pool: u32) -> PyResult<()> {
        let table = self.handle.get(py)?;
        let pages = Array::integers(pages, "pages", 4, false)?;
        let (from, count) = (Raw(pages.data()), pages.count);
        let status = long(py, count > LONG_LIST, || {
            // SAFETY: a live handle, an array of `count`.
            unsafe { rkv_page_table_free_pool_pages(table.raw(), pool, from.get(), count) }
        });
        check(py, status)
    }

    /// Appends pages, an array of uint32, to a row whose present length is `first_index`. Raises
    /// InvalidArgument, InvalidState when a sequence owns the slot.
    fn map(
        &self,
        py: Python<'_>,
        slot: u32,
        first_index: usize,
        pages: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let table = self.handle.get(py)?;
        let pages = Array::integers(pages, "pages", 4, false)?;
        let (from, count) = (Raw(pages.data()), pages.count);
        let status = long(py, count > LONG_LIST, || {
            // SAFETY: a live handle, an array of `count`.
            unsafe { rkv_page_table_map(table.raw(), slot, first_index, from.get(), count) }
        });
        check(py, status)
    }

    /// Makes a row long enough: allocates and maps what is missing, evicting when the pool is
    /// short. All or nothing. Raises OutOfPages.
    fn reserve(&self, py: Python<'_>, slot: u32, position_count: usize) -> PyResult<()> {
        let table = self.handle.get(py)?;
        let status = long(py, true, || {
            // SAFETY: a live handle.
            unsafe { rkv_page_table_reserve(table.raw(), slot, position_count) }
        });
        check(py, status)
    }

    /// Whether a row could be made long enough now, by eviction if need be; slot None asks for a
    /// new one. The answer holds until somebody else allocates.
    #[pyo3(signature = (slot, position_count))]
    fn can_reserve(
        &self,
        py: Python<'_>,
        slot: Option<u32>,
        position_count: usize,
    ) -> PyResult<bool> {
        let (table, mut can) = (self.handle.get(py)?, false);
        let slot = slot.unwrap_or(RKV_NO_SLOT);
        // SAFETY: a live handle.
        check(py, unsafe {
            rkv_page_table_can_reserve(table.raw(), slot, position_count, &mut can)
        })?;
        Ok(can)
    }

    /// Positions that a row has pages for.
    fn row_capacity(&self, py: Python<'_>, slot: u32) -> PyResult<usize> {
        let (table, mut count) = (self.handle.get(py)?, 0);
        // SAFETY: a live handle.
        check(py, unsafe { rkv_page_table_row_capacity(table.raw(), slot, &mut count) })?;
        Ok(count)
    }

    /// The pages of a row from an index on, as a new array of uint32.
    #[pyo3(signature = (slot, first_index=0))]
    fn row<'py>(
        &self,
        py: Python<'py>,
        slot: u32,
        first_index: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let table = self.handle.get(py)?;
        listed(py, "u4", |pages, room, count| {
            // SAFETY: a live handle, an array of `room`.
            unsafe {
                rkv_page_table_read_row(table.raw(), slot, first_index, pages.cast(), room, count)
            }
        })
    }

    /// Writes the pages of a row from an index on to `pages`, an array of uint32. Returns how many
    /// they are. Raises BufferTooSmall, whose `needed` says how much room there must be.
    #[pyo3(signature = (slot, pages, first_index=0))]
    fn read_row(
        &self,
        py: Python<'_>,
        slot: u32,
        pages: &Bound<'_, PyAny>,
        first_index: usize,
    ) -> PyResult<usize> {
        let table = self.handle.get(py)?;
        let pages = Array::integers(pages, "pages", 4, true)?;
        let (mut count, room) = (0, pages.count);
        let call = Raw((pages.data(), &raw mut count));
        let status = long(py, room > LONG_LIST, || {
            let (into, count) = call.get();
            // SAFETY: a live handle, an array of `room`.
            unsafe { rkv_page_table_read_row(table.raw(), slot, first_index, into, room, count) }
        });
        check_room(py, status, count)?;
        Ok(count)
    }

    /// Where positions of a row lie in KV memory: page * page_size + offset, for each of
    /// `positions` (uint64) into `mapping` (int64), which is as long. Raises InvalidArgument naming
    /// the position that the row has no page for.
    fn read_slot_mapping(
        &self,
        py: Python<'_>,
        slot: u32,
        positions: &Bound<'_, PyAny>,
        mapping: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let table = self.handle.get(py)?;
        let positions = Array::integers(positions, "positions", 8, false)?;
        let count = positions.count;
        let mapping = Array::integers(mapping, "mapping", 8, true)?.exactly("mapping", count)?;
        let call = Raw((positions.data(), mapping.data()));
        let status = long(py, count > LONG_LIST, || {
            let (from, into) = call.get();
            // SAFETY: a live handle, arrays of `count`.
            unsafe { rkv_page_table_read_slot_mapping(table.raw(), slot, from, count, into) }
        });
        check(py, status)
    }

    /// The arrays that paged attention kernels take, for a batch of rows. `slots` and
    /// `position_counts` (uint32) name n rows and the positions that each attends to; `indptr`
    /// (int32, n + 1), `indices` (int32) and `last_page_len` (int32, n) are written. With `indices`
    /// None only the count is returned.
    ///
    /// Returns the number of indices. Raises BufferTooSmall, InvalidArgument.
    #[pyo3(signature = (slots, position_counts, indptr, indices, last_page_len))]
    #[allow(clippy::too_many_arguments)]
    fn read_batch(
        &self,
        py: Python<'_>,
        slots: &Bound<'_, PyAny>,
        position_counts: &Bound<'_, PyAny>,
        indptr: &Bound<'_, PyAny>,
        indices: Option<&Bound<'_, PyAny>>,
        last_page_len: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let table = self.handle.get(py)?;
        let slots = Array::integers(slots, "slots", 4, false)?;
        let n = slots.count;
        let counts = Array::integers(position_counts, "position_counts", 4, false)?
            .exactly("position_counts", n)?;
        let indptr = Array::integers(indptr, "indptr", 4, true)?.exactly("indptr", n + 1)?;
        let indices = indices.map(|it| Array::integers(it, "indices", 4, true)).transpose()?;
        let last = Array::integers(last_page_len, "last_page_len", 4, true)?
            .exactly("last_page_len", n)?;
        // SAFETY: 32-bit integers, as was checked.
        let rows: Vec<_> = unsafe { slots.read::<u32>().iter().zip(counts.read::<u32>()) }
            .map(|(slot, count)| rkv_page_table_batch_row { slot: *slot, position_count: *count })
            .collect();
        let (into, room) = output(&indices);
        let arrays = rkv_page_table_batch_arrays {
            indptr: indptr.data(),
            indices: into.cast(),
            indices_capacity: room,
            last_page_len: last.data(),
            ..rkv_page_table_batch_arrays::sized()
        };
        let (mut count, size) = (0, size_of::<rkv_page_table_batch_row>());
        let call = Raw((&arrays, rows.as_ptr(), &raw mut count));
        let status = long(py, n > 8, || {
            let (arrays, rows, count) = call.get();
            // SAFETY: a live handle; the arrays are as long as checked.
            unsafe { rkv_page_table_read_batch(table.raw(), rows, n, size, arrays, count) }
        });
        if !(into.is_null() && status == RKV_STATUS_BUFFER_TOO_SMALL) {
            check_room(py, status, count)?;
        }
        Ok(count)
    }
}
