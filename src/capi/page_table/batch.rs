//! What kernels want to know of rows: slot mapping, and the arrays of a batch.
use crate::capi::ffi::{
    AbiElement, AbiStruct, GivenElements, check_zero, fill, out_slice, read_struct, rkv_status,
    slice, with,
};
use crate::capi::page_table::rkv_page_table;
use crate::memory::try_collect;
use crate::paging::BatchRow;

/// One sequence of a batch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_page_table_batch_row {
    /// A slot in use.
    pub slot: u32,
    /// Positions of the row that the batch attends to, the new ones included.
    pub position_count: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_page_table_batch_row {
    const V1: usize = 8;
}

/// Where rkv_page_table_read_batch() writes the arrays that paged attention kernels take.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_page_table_batch_arrays {
    /// sizeof(rkv_page_table_batch_arrays).
    pub struct_size: u32,
    /// Zero.
    pub reserved: u32,
    /// Receives row_count + 1 offsets into `indices`, the first 0.
    pub indptr: *mut i32,
    /// Receives the pages of all rows, one row after another.
    pub indices: *mut i32,
    /// Room in `indices`.
    pub indices_capacity: usize,
    /// Receives, for each row, the positions in its last page: 1 to page_size; 0 for an empty row.
    pub last_page_len: *mut i32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_page_table_batch_arrays {
    const NAME: &'static str = "arrays";
    const V1: usize = 40;
}

/// Where positions of a row lie in KV memory: page * page_size + offset in the page, for each. When
/// the call fails because another thread made the row shorter meanwhile, a part may be written.
///
/// @param table the page table
/// @param slot a slot in use
/// @param positions count positions of the row, in any order
/// @param count how many
/// @param out_mapping receives count entries
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the position that the row has no page
/// for; RKV_STATUS_POISONED
/// @par Cost
/// O(positions); shared lock, in portions
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_read_slot_mapping(
    table: *const rkv_page_table,
    slot: u32,
    positions: *const u64,
    count: usize,
    out_mapping: *mut i64,
) -> rkv_status {
    // SAFETY: the caller's contract on table, positions and out_mapping.
    unsafe {
        with(table, |shared| {
            let positions = slice(positions, count, "positions")?;
            let into = out_slice(out_mapping, count, count, "out_mapping")?;
            shared.slot_mapping(slot, positions, |at, value| {
                into[at].write(value);
            })?;
            Ok(())
        })
    }
}

/// The arrays that paged attention kernels take, for a batch of rows.
///
/// @param table the page table
/// @param rows row_count rows, in the order of the batch
/// @param row_count how many
/// @param element_size sizeof(rkv_page_table_batch_row)
/// @param arrays where to write; (NULL, 0) for indices asks for the count: then nothing else is
/// written, unless there are no indices
/// @param out_index_count receives the number of indices, also on RKV_STATUS_BUFFER_TOO_SMALL
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_BUFFER_TOO_SMALL;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(pages of the rows); shared lock, in portions of whole rows
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_page_table_read_batch(
    table: *const rkv_page_table,
    rows: *const rkv_page_table_batch_row,
    row_count: usize,
    element_size: usize,
    arrays: *const rkv_page_table_batch_arrays,
    out_index_count: *mut usize,
) -> rkv_status {
    // SAFETY: the caller's contract on table, rows, arrays and out_index_count.
    unsafe {
        with(table, |shared| {
            let arrays = read_struct(arrays)?;
            check_zero(arrays.reserved, "arrays.reserved")?;
            let size = (element_size, "element_size");
            let rows = GivenElements::new(rows, row_count, size, "rows")?;
            let rows =
                try_collect(rows.iter().map(|row| BatchRow {
                    slot: row.slot,
                    positions: row.position_count as usize,
                }))?;
            let made = shared.batch(&rows)?;
            let indices = bytemuck::cast_slice(made.indices());
            let capacity = arrays.indices_capacity;
            let names = ["arrays.indices", "out_index_count"];
            let fill_indices = || fill(indices, arrays.indices, capacity, out_index_count, names);
            if arrays.indices.is_null() && !indices.is_empty() {
                return fill_indices();
            }
            let indptr = out_slice(arrays.indptr, row_count + 1, row_count + 1, "arrays.indptr")?;
            let last =
                out_slice(arrays.last_page_len, row_count, row_count, "arrays.last_page_len")?;
            fill_indices()?;
            indptr.write_copy_of_slice(made.indptr());
            last.write_copy_of_slice(made.last_page_len());
            Ok(())
        })
    }
}
