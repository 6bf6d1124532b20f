//! The journal: which pages came into the cache and left it, in order, and what is held now.
mod buffers;

use crate::capi::cache::rkv_cache;
use crate::capi::ffi::{
    AbiElement, AbiStruct, Fail, check_fit, read_struct, rkv_status, with, write_struct,
};
use crate::capi::journal::buffers::{Buffers, Counts};
use crate::capi::page_table::rkv_page_table;
use crate::store::Shared;

/// Kind of an rkv_journal_record: pages came in, one after another in a prefix.
pub const RKV_JOURNAL_STORED: u32 = 1;
/// Kind of an rkv_journal_record: pages left, the first of them first.
pub const RKV_JOURNAL_REMOVED: u32 = 2;
/// Kind of an rkv_journal_record: pages went to another tier. No library writes it yet.
pub const RKV_JOURNAL_MOVED: u32 = 3;
/// Kind of an rkv_journal_record: rkv_cache_clear() cleared a namespace. Nothing that was stored in
/// it before can be found any more. It names no pages: each is removed when it goes.
pub const RKV_JOURNAL_CLEARED: u32 = 4;

/// Reason of an rkv_journal_record: evicted to make room, inside a call that allocates.
pub const RKV_REASON_CAPACITY: u32 = 1;
/// Reason of an rkv_journal_record: evicted by rkv_cache_evict() or rkv_cache_evict_pool().
pub const RKV_REASON_CALLER: u32 = 2;
/// Reason of an rkv_journal_record: cleared by rkv_cache_clear(). Of removed pages: they were
/// cleared before, and nobody holds them any more.
pub const RKV_REASON_INVALIDATED: u32 = 3;
/// Reason of an rkv_journal_record: another page took its place. No library writes it yet.
pub const RKV_REASON_REPLACED: u32 = 4;
/// Reason of an rkv_journal_record: the cache was destroyed.
pub const RKV_REASON_DESTROYED: u32 = 5;
/// Reason of an rkv_journal_record: a path had more checkpoints than
/// rkv_cache_config.checkpoint_limit.
pub const RKV_REASON_LIMIT: u32 = 6;

/// What happened to some pages. An array element: it may grow, see record_size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct rkv_journal_record {
    /// One higher than that of the record before.
    pub number: u64,
    /// RKV_JOURNAL_STORED, RKV_JOURNAL_REMOVED or RKV_JOURNAL_CLEARED. Expect others.
    pub kind: u32,
    /// Of removed pages and of a cleared namespace, why: an RKV_REASON_. Expect others. Else 0.
    pub reason: u32,
    /// Group of the pages. A page of a group beside the first hangs on the page of group 0 that has
    /// the same positions, and is removed before that one is.
    pub group: u32,
    /// Of stored pages, the page of group 0 before the first one; 0 at the beginning of a prefix,
    /// and for removed ones.
    pub parent_page: u32,
    /// Of stored pages, the position in the prefix at which the first one begins.
    pub first_position: u64,
    /// Where in the buffer of pages its pages begin.
    pub page_index: u64,
    /// Pages.
    pub page_count: u64,
    /// Where in the buffer of tokens its tokens begin.
    pub token_index: u64,
    /// Tokens: page_count * page_size of stored pages, else 0.
    pub token_count: u64,
    /// Where in the buffer of items its items begin.
    pub item_index: u64,
    /// Items.
    pub item_count: u64,
    /// Of stored pages, and of a cleared namespace: the flags of the rkv_namespace, and the fields
    /// below likewise.
    pub namespace_flags: u32,
    /// Zero.
    pub reserved: u32,
    /// LoRA adapter.
    pub lora_id: u64,
    /// Version of the weights or of the adapter.
    pub epoch: u64,
    /// Digest of an image on which all KV depends.
    pub image_digest: [u8; 16],
    /// What separates tenants.
    pub salt: [u8; 32],
    /// Of stored pages of a group beside the first, where in the buffer of pages those of group 0
    /// with the same positions begin, page_count of them. Else page_index.
    pub group_0_page_index: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_journal_record {
    const V1: usize = 152;
}

/// Positions of a record that are not text: a coordinate, a size, or an image, of which pages may
/// hold a part. An array element: it may grow, see item_size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct rkv_journal_item {
    /// RKV_TOKEN_COORD, RKV_TOKEN_SIZE or RKV_TOKEN_IMAGE.
    pub kind: u32,
    /// The first of the positions, counted from the beginning of the record's first page.
    pub position: u32,
    /// How many positions.
    pub position_count: u32,
    /// Of an image, how many positions of it stand before those.
    pub image_offset: u32,
    /// Positions of the whole image; 0 for the other kinds.
    pub image_position_count: u32,
    /// Bin of a coordinate or of a width; else 0.
    pub bin: u32,
    /// Bin of a height; else 0.
    pub height_bin: u32,
    /// Zero.
    pub reserved: u32,
    /// Content digest of an image; else zero.
    pub digest: [u8; 16],
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_journal_item {
    const V1: usize = 48;
}

/// Where records are read to: room of the caller's, for one call after another.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_journal_buffers {
    /// sizeof(rkv_journal_buffers).
    pub struct_size: u32,
    /// Zero.
    pub flags: u32,
    /// Receives records. With all four buffers NULL and without room, how much all need is asked.
    pub records: *mut rkv_journal_record,
    /// sizeof(rkv_journal_record).
    pub record_size: usize,
    /// Room in records.
    pub record_capacity: usize,
    /// Receives the pages of the records.
    pub pages: *mut u32,
    /// Room in pages.
    pub page_capacity: usize,
    /// Receives an id for each position of stored pages; RKV_TEXT_ID_LIMIT where an item says what
    /// is there.
    pub tokens: *mut u32,
    /// Room in tokens.
    pub token_capacity: usize,
    /// Receives the items of the records, in the order of their positions.
    pub items: *mut rkv_journal_item,
    /// sizeof(rkv_journal_item).
    pub item_size: usize,
    /// Room in items.
    pub item_capacity: usize,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_journal_buffers {
    const NAME: &'static str = "buffers";
    const V1: usize = 88;
}

/// What was read of a journal.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rkv_cache_read_journal_result {
    /// sizeof(rkv_cache_read_journal_result).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Records read; with RKV_STATUS_BUFFER_TOO_SMALL, 1.
    pub record_count: u64,
    /// What they have in the buffer of pages: their pages, and of groups beside the first those of
    /// group 0 too. With RKV_STATUS_BUFFER_TOO_SMALL, that of the first record that is there.
    pub page_count: u64,
    /// Their tokens; likewise.
    pub token_count: u64,
    /// Their items; likewise.
    pub item_count: u64,
    /// The after_number of the next call: all records up to it were read, or are lost.
    pub last_number: u64,
    /// The number of the newest record.
    pub newest_number: u64,
    /// The number of the oldest record that is still there; newest_number + 1 for none.
    pub oldest_number: u64,
    /// Records after after_number that were overwritten before they were read. More than 0: start
    /// again with rkv_cache_read_contents().
    pub lost_count: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_read_journal_result {
    const NAME: &'static str = "out_result";
    const V1: usize = 72;
}

/// What was told of a cache's contents.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rkv_cache_read_contents_result {
    /// sizeof(rkv_cache_read_contents_result).
    pub struct_size: u32,
    /// The first_page of the next call; 0 when all pages were told. Page numbers of pool 0, and
    /// behind them places for the pages of the other pools.
    pub next_page: u32,
    /// Records; with RKV_STATUS_BUFFER_TOO_SMALL, 1.
    pub record_count: u64,
    /// What they have in the buffer of pages: their pages, and of groups beside the first those of
    /// group 0 too. With RKV_STATUS_BUFFER_TOO_SMALL, that of the first record.
    pub page_count: u64,
    /// Their tokens; likewise.
    pub token_count: u64,
    /// Their items; likewise.
    pub item_count: u64,
    /// The number of the newest record when the call began. Of the first call: the after_number of
    /// the first rkv_cache_read_journal().
    pub number: u64,
    /// The number of the newest record when the call ended. Of the last call: with all records up
    /// to it applied, what was told is right.
    pub newest_number: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_cache_read_contents_result {
    const NAME: &'static str = "out_result";
    const V1: usize = 56;
}

/// Reads records of the journal: which pages came into the cache and left it, in order, whichever
/// call caused it. Needs rkv_cache_config.journal_bytes.
///
/// A record is complete in itself: its pages may be gone. As many whole records are read as fit,
/// up to the newest one that there was when the call began. The ring has room for so many; a
/// reader that is too slow sees lost_count.
///
/// @param cache the cache
/// @param after_number the number of the last record that is known; 0 to begin with the first
/// @param buffers where to
/// @param out_result receives how much was read; set its struct_size first. With
/// RKV_STATUS_BUFFER_TOO_SMALL it says what the first record needs
/// @return RKV_STATUS_OK, also when there is nothing new; RKV_STATUS_BUFFER_TOO_SMALL when not even
/// one record fits; RKV_STATUS_INVALID_STATE when the cache has no journal;
/// RKV_STATUS_INVALID_ARGUMENT, also for an after_number that is beyond the newest record;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(words of the records); shared lock, in slices
/// @par Thread safety
/// any thread, any number at once, beside calls that change the cache: lets waiting threads in
/// after every few microseconds
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_read_journal(
    cache: *const rkv_cache,
    after_number: u64,
    buffers: *const rkv_journal_buffers,
    out_result: *mut rkv_cache_read_journal_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe { with(cache, |shared| read_journal(shared, after_number, buffers, out_result)) }
}

/// The same for the cache that a page table has, or for the last one that it had: the removal of
/// all pages by rkv_cache_destroy() can be read here alone. Records of a cache that is gone stay
/// until the page table has another cache; the numbers of that one go on from them.
///
/// @param table the page table
/// @param after_number the number of the last record that is known; 0 to begin with the first
/// @param buffers where to
/// @param out_result as in rkv_cache_read_journal()
/// @return as rkv_cache_read_journal()
/// @par Cost
/// O(words of the records); shared lock, in slices
/// @par Thread safety
/// any thread, as rkv_cache_read_journal()
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_read_journal(
    table: *const rkv_page_table,
    after_number: u64,
    buffers: *const rkv_journal_buffers,
    out_result: *mut rkv_cache_read_journal_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe { with(table, |shared| read_journal(shared, after_number, buffers, out_result)) }
}

/// # Safety
/// The caller's contract on the pointers, per the header.
unsafe fn read_journal(
    shared: &Shared,
    after_number: u64,
    buffers: *const rkv_journal_buffers,
    out_result: *mut rkv_cache_read_journal_result,
) -> Result<(), Fail> {
    // SAFETY: the caller's contract.
    let mut buffers = unsafe {
        check_fit(out_result)?;
        Buffers::new(&read_struct(buffers)?)?
    };
    let read = shared.read_journal(after_number, &mut |record| buffers.take(record))?;
    let (Counts { records, pages, tokens, items }, too_small) = buffers.counts();
    let made = rkv_cache_read_journal_result {
        struct_size: 0,
        reserved: 0,
        record_count: records as u64,
        page_count: pages as u64,
        token_count: tokens as u64,
        item_count: items as u64,
        // Who asks for the room, or has not enough, has read nothing.
        last_number: if buffers.are_written() { read.last } else { after_number },
        newest_number: read.newest,
        oldest_number: read.oldest,
        lost_count: read.lost,
    };
    // SAFETY: the caller's contract.
    unsafe { write_struct(out_result, &made)? };
    too_small.map_or(Ok(()), Err)
}

/// Tells what the cache holds, by page number and pool by pool, as records of stored pages: what a
/// reader of the journal begins with, and begins again with when records were lost.
///
/// Call it until next_page is 0, then go on with rkv_cache_read_journal() after the number of the
/// first call. The cache may change all the while, and pages are told as they are when their turn
/// comes. A stored page replaces whatever was known of that page number of its group, and a removed
/// page that is not known is passed over: with all records up to the newest_number of the last call
/// applied, the result is exactly what the cache held at that record, and so after each record that
/// follows.
///
/// @param cache the cache
/// @param first_page the page to begin with: 0, then rkv_cache_read_contents_result.next_page
/// @param buffers where to
/// @param out_result receives how much was told; set its struct_size first. With
/// RKV_STATUS_BUFFER_TOO_SMALL it says what the first record needs
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL when not even one record fits;
/// RKV_STATUS_INVALID_STATE when the cache has no journal; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_OUT_OF_MEMORY for the room of one record; RKV_STATUS_POISONED
/// @par Cost
/// O(words of the records + pages looked at); shared lock, in slices
/// @par Thread safety
/// any thread, as rkv_cache_read_journal()
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_cache_read_contents(
    cache: *const rkv_cache,
    first_page: u32,
    buffers: *const rkv_journal_buffers,
    out_result: *mut rkv_cache_read_contents_result,
) -> rkv_status {
    // SAFETY: the caller's contract on all pointers.
    unsafe {
        with(cache, |shared| {
            check_fit(out_result)?;
            let mut buffers = Buffers::new(&read_struct(buffers)?)?;
            let told = shared.read_contents(first_page, &mut |record| buffers.take(record))?;
            let (Counts { records, pages, tokens, items }, too_small) = buffers.counts();
            let written = buffers.are_written();
            let made = rkv_cache_read_contents_result {
                struct_size: 0,
                next_page: if written { told.next_page } else { first_page },
                record_count: records as u64,
                page_count: pages as u64,
                token_count: tokens as u64,
                item_count: items as u64,
                number: told.number,
                newest_number: told.newest,
            };
            write_struct(out_result, &made)?;
            too_small.map_or(Ok(()), Err)
        })
    }
}
