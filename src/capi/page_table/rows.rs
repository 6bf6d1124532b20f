//! Slots and their rows, and pages that are in no row.
use super::groups::{rkv_page_table_allocate_pool_pages, rkv_page_table_free_pool_pages};
use super::rkv_page_table;
use crate::capi::ffi::{Fail, check_out, out, put, rkv_status, slice, with};

/// "No slot yet", for rkv_page_table_can_reserve().
pub const RKV_NO_SLOT: u32 = 4294967295;

/// Takes a slot with an empty row.
///
/// @param table the page table
/// @param out_slot receives the slot, below slot_count
/// @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_SLOTS; RKV_STATUS_UNSUPPORTED with an external pool;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_allocate_slot(
    table: *mut rkv_page_table,
    out_slot: *mut u32,
) -> rkv_status {
    // SAFETY: the caller's contract on table and out_slot.
    unsafe {
        with(table, |shared| {
            let into = out(out_slot, "out_slot")?;
            into.write(shared.turn().allocate_slot()?);
            Ok(())
        })
    }
}

/// Empties a row and gives the slot back. Private pages of the row return to the pool; cached pages
/// stay with the cache, and their lock is undone after this: see rkv_cache_insert().
///
/// @param table the page table
/// @param slot a slot from rkv_page_table_allocate_slot()
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT when the slot is not in use;
/// RKV_STATUS_INVALID_STATE when a sequence owns it; RKV_STATUS_POISONED
/// @par Cost
/// O(pages of the row); lock, in slices: meanwhile the row is shorter already
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_free_slot(
    table: *mut rkv_page_table,
    slot: u32,
) -> rkv_status {
    // SAFETY: the caller's contract on table.
    unsafe { with(table, |shared| Ok(shared.turn().erase(slot)?)) }
}

/// Allocates pages that are in no row yet, evicting from the cache when the pool is short. All or
/// nothing; what cannot be satisfied is refused before anything is evicted, as
/// rkv_last_shortage() says.
///
/// @param table the page table
/// @param page_count how many
/// @param pages receives page_count pages, private to the caller
/// @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(); RKV_STATUS_UNSUPPORTED
/// with an external pool; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(pages + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_allocate_pages(
    table: *mut rkv_page_table,
    page_count: usize,
    pages: *mut u32,
) -> rkv_status {
    // SAFETY: the same contract.
    unsafe { rkv_page_table_allocate_pool_pages(table, 0, page_count, pages) }
}

/// Returns pages that are private and in no row to the pool.
///
/// @param table the page table
/// @param pages page_count different pages from rkv_page_table_allocate_pages()
/// @param page_count how many
/// @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool; RKV_STATUS_INVALID_ARGUMENT
/// naming the page that is free, cached, mapped, out of range or given twice: then none was freed;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(pages); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_free_pages(
    table: *mut rkv_page_table,
    pages: *const u32,
    page_count: usize,
) -> rkv_status {
    // SAFETY: the same contract.
    unsafe { rkv_page_table_free_pool_pages(table, 0, pages, page_count) }
}

/// Appends pages to a row. Rows are mapped strictly in order.
///
/// A private page must be in no row yet; it becomes the row's. A cached page may be in any number
/// of rows; keep the node that owns it locked for as long as the row maps it.
///
/// @param table the page table
/// @param slot a slot from rkv_page_table_allocate_slot()
/// @param first_index index in the row of the first page: the row's present length
/// @param pages page_count pages
/// @param page_count how many
/// @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a sequence owns the slot, or another
/// thread made the row longer during the call: the first of the pages may be mapped then, and the
/// row tells; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(pages); lock, in slices: meanwhile the row has the first of them already
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_map(
    table: *mut rkv_page_table,
    slot: u32,
    first_index: usize,
    pages: *const u32,
    page_count: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on table and pages.
    unsafe {
        with(table, |shared| {
            let pages = slice(pages, page_count, "pages")?;
            Ok(shared.turn().map(slot, first_index, pages)?)
        })
    }
}

/// Makes a row long enough for a number of positions: allocates and maps what is missing, evicting
/// when the pool is short. All or nothing. A row that is long enough stays as it is.
///
/// @param table the page table
/// @param slot a slot from rkv_page_table_allocate_slot()
/// @param position_count positions that the row must hold
/// @return RKV_STATUS_OK; RKV_STATUS_OUT_OF_PAGES, see rkv_last_shortage(); RKV_STATUS_UNSUPPORTED
/// with an external pool; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a sequence
/// owns the slot, or another thread freed the slot during the call; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(new pages + evictions); lock, in slices
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_reserve(
    table: *mut rkv_page_table,
    slot: u32,
    position_count: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on table.
    unsafe { with(table, |shared| Ok(shared.reserve_row(slot, position_count)?)) }
}

/// Whether a row could be made long enough now, by eviction if need be. Nothing is evicted.
///
/// @param table the page table
/// @param slot a slot in use, or RKV_NO_SLOT for a new one (a free slot is then needed as well)
/// @param position_count positions that the row must hold
/// @param out_can receives the answer
/// @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread; the answer holds until somebody else allocates
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_can_reserve(
    table: *const rkv_page_table,
    slot: u32,
    position_count: usize,
    out_can: *mut bool,
) -> rkv_status {
    // SAFETY: the caller's contract on table and out_can.
    unsafe {
        with(table, |shared| {
            let slot = (slot != RKV_NO_SLOT).then_some(slot);
            put(shared.read().can_reserve(slot, position_count)?, out_can, "out_can")
        })
    }
}

/// Positions that a row has pages for.
///
/// @param table the page table
/// @param slot a slot in use
/// @param out_position_count receives pages of the row * page_size
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_row_capacity(
    table: *const rkv_page_table,
    slot: u32,
    out_position_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on table and out_position_count.
    unsafe {
        with(table, |shared| {
            put(shared.read().row_capacity(slot)?, out_position_count, "out_position_count")
        })
    }
}

/// Copies a row from a page on. When the call fails because another thread changed the row
/// meanwhile, a part may be written.
///
/// @param table the page table
/// @param slot a slot in use, also one that a sequence owns
/// @param first_index the first page to copy, at most the row's length
/// @param pages receives the pages from first_index to the end of the row; (NULL, 0) asks for the
/// count
/// @param capacity room in pages
/// @param out_count receives the number of pages from first_index to the end of the row, also on
/// RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_BUFFER_TOO_SMALL; RKV_STATUS_INVALID_ARGUMENT;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(pages copied); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_read_row(
    table: *const rkv_page_table,
    slot: u32,
    first_index: usize,
    pages: *mut u32,
    capacity: usize,
    out_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on table, pages and out_count.
    unsafe {
        with(table, |shared| {
            check_out(pages, capacity, "pages")?;
            check_out(out_count, 1, "out_count")?;
            let begin = |count: usize| {
                put(count, out_count, "out_count")?;
                if !pages.is_null() && count > capacity {
                    return Err(Fail::too_small(count, capacity, "pages"));
                }
                Ok(!pages.is_null())
            };
            shared.row_from(slot, first_index, begin, |at, some| {
                pages.add(at).copy_from_nonoverlapping(some.as_ptr(), some.len());
            })
        })
    }
}
