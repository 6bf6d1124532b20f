//! The journal: which pages came into a cache and left it, read into the caller's arrays.
use pyo3::prelude::*;

use crate::array::Array;
use crate::c::*;
use crate::cache::Cache;
use crate::handle::{Raw, long};
use crate::page_table::PageTable;
use crate::record::{ContentsResult, JournalResult};
use crate::status::{check, error};

/// The arrays of one call.
struct Room {
    records: Array,
    pages: Array,
    tokens: Array,
    items: Array,
}

impl Room {
    fn of(
        records: &Bound<'_, PyAny>,
        pages: &Bound<'_, PyAny>,
        tokens: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (record, item) = ("journal_record", "journal_item");
        Ok(Room {
            records: Array::structs::<rkv_journal_record>(records, "records", record, true)?,
            pages: Array::integers(pages, "pages", 4, true)?,
            tokens: Array::integers(tokens, "tokens", 4, true)?,
            items: Array::structs::<rkv_journal_item>(items, "items", item, true)?,
        })
    }

    fn c(&self) -> rkv_journal_buffers {
        rkv_journal_buffers {
            records: self.records.data(),
            record_size: size_of::<rkv_journal_record>(),
            record_capacity: self.records.count,
            pages: self.pages.data(),
            page_capacity: self.pages.count,
            tokens: self.tokens.data(),
            token_capacity: self.tokens.count,
            items: self.items.data(),
            item_size: size_of::<rkv_journal_item>(),
            item_capacity: self.items.count,
            ..rkv_journal_buffers::sized()
        }
    }
}

/// Of a BufferTooSmall: what the first record needs, as (records, pages, tokens, items).
fn refuse(py: Python<'_>, status: i32, needs: (u64, u64, u64, u64)) -> PyResult<()> {
    if status != RKV_STATUS_BUFFER_TOO_SMALL {
        return check(py, status);
    }
    let message = format!(
        "the first record needs room for {} pages, {} tokens and {} items",
        needs.1, needs.2, needs.3
    );
    let made = error(py, status, &message, Some(needs.0));
    made.value(py).setattr("needs", needs)?;
    Err(made)
}

/// The part that both journals have: `call` is a function of the library on a live handle.
fn read(
    py: Python<'_>,
    room: &Room,
    call: impl FnOnce(*const rkv_journal_buffers, *mut rkv_cache_read_journal_result) -> i32 + Send,
) -> PyResult<JournalResult> {
    let (buffers, mut done) = (room.c(), rkv_cache_read_journal_result::sized());
    let raw = Raw((&raw const buffers, &raw mut done));
    let status = long(py, true, || {
        let (buffers, done) = raw.get();
        call(buffers, done)
    });
    let needs = (done.record_count, done.page_count, done.token_count, done.item_count);
    refuse(py, status, needs)?;
    Ok(JournalResult(done))
}

#[pymethods]
impl Cache {
    /// Reads records after a number, as many whole ones as fit: `records` (dtypes.journal_record)
    /// say where in `pages` (uint32), `tokens` (uint32) and `items` (dtypes.journal_item) their
    /// parts lie. `radixkv.Journal` does this with arrays that it keeps.
    ///
    /// Returns a JournalResult. Raises InvalidState without `journal_bytes`; BufferTooSmall when
    /// not even one record fits: its `needs` are (records, pages, tokens, items).
    fn read_journal(
        &self,
        py: Python<'_>,
        after_number: u64,
        records: &Bound<'_, PyAny>,
        pages: &Bound<'_, PyAny>,
        tokens: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
    ) -> PyResult<JournalResult> {
        let cache = self.handle.get(py)?;
        let room = Room::of(records, pages, tokens, items)?;
        read(py, &room, |buffers, done| {
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_cache_read_journal(cache.raw(), after_number, buffers, done) }
        })
    }

    /// Tells what the cache holds, as records of stored pages: what a reader of the journal begins
    /// with. Call it with 0, then with `next_page` until that is 0; then read the journal after the
    /// `number` of the first call. The arrays are those of `read_journal()`.
    fn read_contents(
        &self,
        py: Python<'_>,
        first_page: u32,
        records: &Bound<'_, PyAny>,
        pages: &Bound<'_, PyAny>,
        tokens: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
    ) -> PyResult<ContentsResult> {
        let cache = self.handle.get(py)?;
        let room = Room::of(records, pages, tokens, items)?;
        let (buffers, mut done) = (room.c(), rkv_cache_read_contents_result::sized());
        let raw = Raw((&raw const buffers, &raw mut done));
        let status = long(py, true, || {
            let (buffers, done) = raw.get();
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_cache_read_contents(cache.raw(), first_page, buffers, done) }
        });
        let needs = (done.record_count, done.page_count, done.token_count, done.item_count);
        refuse(py, status, needs)?;
        Ok(ContentsResult(done))
    }
}

#[pymethods]
impl PageTable {
    /// `Cache.read_journal()` of the cache that the table has, or of the last one that it had: the
    /// removal of all pages by `Cache.close()` can be read here alone.
    fn read_journal(
        &self,
        py: Python<'_>,
        after_number: u64,
        records: &Bound<'_, PyAny>,
        pages: &Bound<'_, PyAny>,
        tokens: &Bound<'_, PyAny>,
        items: &Bound<'_, PyAny>,
    ) -> PyResult<JournalResult> {
        let table = self.handle.get(py)?;
        let room = Room::of(records, pages, tokens, items)?;
        read(py, &room, |buffers, done| {
            // SAFETY: a live handle, room as stated.
            unsafe { rkv_page_table_read_journal(table.raw(), after_number, buffers, done) }
        })
    }
}
