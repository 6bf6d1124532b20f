//! Plans: the rows of one step as arrays.
mod row;

pub use row::*;

use crate::attention::Capacity;
use crate::capi::ffi::{
    AbiStruct, GivenElements, Handle, Object, Opaque, at_most, check_fit, check_flags, count_of,
    destroy, out, read_struct, rkv_status, slice, with, write_struct,
};
use crate::capi::page_table::rkv_page_table;
use crate::capi::sequence::rkv_sequence_id;
use crate::error::{Error, text};
use crate::group::GroupKind;
use crate::memory::{Arc, OutOfMemory};
use crate::paging::BatchArrays;
use crate::plan::{Compact, Plan, PlanRow, Step};
use row::{mask_of, region_of, row_of, tree_masks};

/// What one step computes: new positions of any mix of rows, prefill chunks and decodes alike. Made
/// once by rkv_plan_create() and set anew for each step; its memory is reused. An engine with
/// kernels of its own reads its arrays, any runner over the same page table computes it.
pub struct rkv_plan {
    // Opaque to C and to debug information: behind the pointer lies a Handle.
    _private: [u8; 0],
}

impl Object for Plan {
    fn is_poisoned(&self) -> bool {
        self.shared().is_poisoned()
    }

    fn poison(&self) {
        self.shared().poison();
    }
}

impl Opaque for rkv_plan {
    type Object = Plan;
    const NAME: &'static str = "plan";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvplan\0");
}

/// Flag of rkv_plan_capacity: rows may have regions.
pub const RKV_PLAN_REGIONS: u32 = 1;
/// Flag of rkv_plan_capacity: rows that begin with the same pages do not attend to those together.
/// On CUDA a captured call launches fewer kernels then.
pub const RKV_PLAN_SEPARATE: u32 = 2;

/// Flag of rkv_plan_capacity: rows may have tree masks.
pub const RKV_PLAN_TREES: u32 = 4;

/// The largest step that a plan is to take.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_plan_capacity {
    /// sizeof(rkv_plan_capacity).
    pub struct_size: u32,
    /// RKV_PLAN_REGIONS, RKV_PLAN_SEPARATE, RKV_PLAN_TREES.
    pub flags: u32,
    /// Rows.
    pub row_count: u64,
    /// New positions of all rows.
    pub position_count: u64,
    /// New positions of one row. 0: position_count.
    pub row_position_count: u64,
    /// Pages of all rows up to their last new position; one that two rows share counts twice.
    pub page_count: u64,
}
// SAFETY: integers, no padding.
unsafe impl AbiStruct for rkv_plan_capacity {
    const NAME: &'static str = "capacity";
    const V1: usize = 40;
}

/// The arrays of a plan, as paged attention kernels take them, of group 0; rkv_plan_view_group()
/// has the pages of the others. They belong to the plan: good until it is set again, reserved or
/// destroyed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_plan_arrays {
    /// sizeof(rkv_plan_arrays).
    pub struct_size: u32,
    /// Rows.
    pub row_count: u32,
    /// New positions of all rows.
    pub position_count: u64,
    /// row_count + 1 offsets: the new positions of row i are query_indptr[i] to
    /// query_indptr[i + 1].
    pub query_indptr: *const i32,
    /// row_count + 1 offsets into `indices`, the first 0.
    pub indptr: *const i32,
    /// The pages of all rows up to their last new position, one row after another.
    pub indices: *const i32,
    /// For each row, the positions in its last page: 1 to page_size.
    pub last_page_len: *const i32,
    /// For each new position, where it lies: page * page_size + offset in the page; -1 for a query
    /// of a row with RKV_MASK_CONTEXT.
    pub slot_mapping: *const i64,
    /// Copies of all groups that were open when the plan was set: before the step is computed, the
    /// first positions of one page are copied to another one in every layer of the group, and of a
    /// STATE group the whole page. Then rkv_sequence_confirm_copies(), for each sequence. A runner
    /// does both for its group, see rkv_runner_prepare_plan().
    pub copy_count: u64,
    /// For each copy, the sequence that waits for it; those of a sequence are neighbours.
    pub copy_sequence: *const rkv_sequence_id,
    /// For each copy, the group of layers whose pages these are.
    pub copy_group: *const i32,
    /// For each copy, the page to copy from.
    pub copy_source_page: *const i32,
    /// For each copy, the page to copy to.
    pub copy_target_page: *const i32,
    /// For each copy, how many positions.
    pub copy_position_count: *const i32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_plan_arrays {
    const NAME: &'static str = "out_arrays";
    const V1: usize = 104;
}

/// Flag of rkv_plan_view_group(): only pages that new positions are in or attend to.
pub const RKV_PLAN_COMPACT: u32 = 1;

/// The pages of a plan's rows in one group. They belong to the plan: good until it is set again,
/// reserved or destroyed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_plan_group_arrays {
    /// sizeof(rkv_plan_group_arrays).
    pub struct_size: u32,
    /// Rows, those of the plan in its order.
    pub row_count: u32,
    /// row_count + 1 offsets into `indices`, the first 0.
    pub indptr: *const i32,
    /// The pages of all rows up to their last new position, one row after another; 0 is a hole,
    /// where the row has no page. With RKV_PLAN_COMPACT only the pages that new positions are in or
    /// attend to: of sinks, then of the window or chunk. Of a STATE group the page of each row's
    /// state, and its draft_state_count pages for states after draft tokens.
    pub indices: *const i32,
    /// For each row, the positions in its last page: 1 to page_size; 1 in a STATE group.
    pub last_page_len: *const i32,
    /// For each new position, where it lies: page * page_size + offset in the page; -1 for a query
    /// of a row with RKV_MASK_CONTEXT. NULL in a STATE group.
    pub slot_mapping: *const i64,
    /// For each row, the position at which the first page begins that is none of the sinks'. NULL:
    /// 0 for all, as in a FULL or STATE group and without RKV_PLAN_COMPACT.
    pub first_position: *const i64,
    /// For each row, how many pages of sinks are in front of that one. NULL: 0 for all, or they are
    /// among the others.
    pub sink_page_count: *const i32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_plan_group_arrays {
    const NAME: &'static str = "out_arrays";
    const V1: usize = 56;
}

/// Creates a plan without rows. It needs no runner, and computes nothing by itself.
///
/// @param table the page table whose rows it is over; lives until the plan is destroyed too
/// @param out_plan receives the plan, owned by the caller
/// @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED with an external pool;
/// RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED
/// @par Cost
/// O(slot_count); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_create(
    table: *mut rkv_page_table,
    out_plan: *mut *mut rkv_plan,
) -> rkv_status {
    // SAFETY: the caller's contract on table and out_plan.
    unsafe {
        with(table, |shared| {
            let into = out(out_plan, "out_plan")?;
            let plan = Arc::new(Plan::new(shared.clone())?)?;
            into.write(Handle::new(plan)?.into_raw());
            Ok(())
        })
    }
}

/// Destroys a plan, and what runners keep with it, memory on a device included. NULL is allowed and
/// does nothing. Runners and plans can be destroyed in any order.
///
/// @param plan the plan
/// @par Cost
/// O(1), and what runners keep with it; no lock
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_destroy(plan: *mut rkv_plan) {
    // SAFETY: the caller's contract: from rkv_plan_create(), not destroyed yet.
    unsafe { destroy(plan, |_| {}) }
}

/// Sets what the next step computes: checks the rows and fills the arrays. Nothing is copied or
/// computed yet.
///
/// Several plans may be set before the first is computed. A plan is good until a row of it is
/// released, truncated, publishes what the plan computes, or gives up a page in any group: where a
/// window slides, by publishing or by rkv_sequence_slide(), the plan is set after that. Copies that
/// begun sequences wait for (see rkv_sequence_read_copies()) stay open until they are carried out:
/// by the first rkv_runner_append_prefill() of the step, by rkv_runner_prepare_plan(), or by the
/// engine, which finds them among the arrays.
///
/// @param plan the plan
/// @param rows row_count rows, in the order in which q, k, v and out hold their new positions; no
/// row twice
/// @param row_count how many; 0 empties the plan
/// @param element_size sizeof(rkv_plan_row)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the row: no pages for its new
/// positions, in some group none any more for what they attend to, pages that the cache owns, a
/// region that is cut, a tree mask with a later position, ...; or what is more than was given to
/// rkv_plan_reserve(); RKV_STATUS_PENDING while a fetch of a row's sequence is open, and with
/// several groups while rkv_sequence_agree() of it goes on; RKV_STATUS_STALE_SEQUENCE;
/// RKV_STATUS_INVALID_STATE for the slot of a sequence, or while children are still to copy a row's
/// state; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. On failure the plan is as before.
/// @par Cost
/// O(positions + pages of the rows in all groups); shared lock, in portions of whole rows
/// @par Thread safety
/// any thread; waits for calls that compute the plan
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_set(
    plan: *mut rkv_plan,
    rows: *const rkv_plan_row,
    row_count: usize,
    element_size: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on plan and rows.
    unsafe {
        with(plan, |plan| {
            let rows = GivenElements::new(rows, row_count, (element_size, "element_size"), "rows")?;
            // The regions of all rows, one row after another. A step without any needs no memory.
            let mut regions = Vec::new();
            for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.region_count > 0) {
                let count = row.region_count as usize;
                // Named when it is wrong: a name takes memory.
                let given = slice(row.regions, count, "regions")
                    .or_else(|_| slice(row.regions, count, &text!("rows[{at}].regions")))?;
                regions.try_reserve(given.len()).map_err(OutOfMemory::from)?;
                for region in given {
                    regions.push(region_of(region)?);
                }
            }
            let mut left = &*regions;
            Ok(plan.set_from(rows.iter().map(|raw| {
                let (regions, rest) = left.split_at(raw.region_count as usize);
                left = rest;
                Ok(PlanRow {
                    row: row_of(&raw),
                    start: count_of(raw.start, "start")?,
                    count: count_of(raw.count, "count")?,
                    mask: mask_of(&raw)?,
                    regions,
                    tree_masks: tree_masks(&raw)?,
                })
            }))?)
        })
    }
}

/// Makes room for every step up to a size, and refuses larger ones from then on. Setting such a
/// step takes no more memory, unless rows have regions or tree masks.
///
/// For CUDA graphs, together with rkv_runner_reserve_plan(). Once a call was captured nothing can
/// be reserved any more.
///
/// @param plan the plan; if it was set, that step fits
/// @param capacity the largest step
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a call was
/// captured; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. On failure the plan is as before, but
/// without memory for all of it what rkv_plan_view() named may lie elsewhere: it is to be asked
/// again.
/// @par Cost
/// O(capacity); no lock
/// @par Thread safety
/// any thread; waits for calls that compute the plan
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_reserve(
    plan: *mut rkv_plan,
    capacity: *const rkv_plan_capacity,
) -> rkv_status {
    // SAFETY: the caller's contract on plan and capacity.
    unsafe { with(plan, |plan| Ok(plan.reserve(&capacity_of(&read_struct(capacity)?)?)?)) }
}

fn capacity_of(raw: &rkv_plan_capacity) -> Result<Capacity, Error> {
    let known = RKV_PLAN_REGIONS | RKV_PLAN_SEPARATE | RKV_PLAN_TREES;
    check_flags(raw.flags, known, "capacity.flags")?;
    let row_positions = match raw.row_position_count {
        0 => raw.position_count,
        given => given,
    };
    Ok(Capacity {
        rows: at_most(raw.row_count),
        positions: at_most(raw.position_count),
        row_positions: at_most(row_positions),
        pages: at_most(raw.page_count),
        regions: raw.flags & RKV_PLAN_REGIONS != 0,
        trees: raw.flags & RKV_PLAN_TREES != 0,
        cascade: raw.flags & RKV_PLAN_SEPARATE == 0,
    })
}

/// Whether a plan that was set may still be computed. Runners look by themselves; this is for an
/// engine with kernels of its own, right before it starts them. It does not ask whether copies of
/// the plan's rows were carried out: those are the engine's to know (rkv_plan_arrays.copy_count).
///
/// @param plan the plan
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when the plan has
/// no rows, or naming the row that changed since: other pages, or the cache owns them by now;
/// RKV_STATUS_PENDING when a fetch of a row's sequence was begun since; RKV_STATUS_STALE_SEQUENCE;
/// RKV_STATUS_POISONED
/// @par Cost
/// O(rows + pages of their new positions); shared lock, in portions of whole rows
/// @par Thread safety
/// any thread; the answer is good until a row is released, truncated, published or slid
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_check(plan: *const rkv_plan) -> rkv_status {
    // SAFETY: the caller's contract on plan.
    unsafe {
        with(plan, |plan| {
            plan.to_compute()?;
            Ok(())
        })
    }
}

/// The arrays of a plan, for an engine with kernels of its own.
///
/// @param plan the plan
/// @param out_arrays receives pointers to them; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); waits for rkv_plan_set()
/// @par Thread safety
/// any thread; nobody may set or destroy the plan while the arrays are read
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_view(
    plan: *const rkv_plan,
    out_arrays: *mut rkv_plan_arrays,
) -> rkv_status {
    // SAFETY: the caller's contract on plan and out_arrays.
    unsafe {
        with(plan, |plan| {
            check_fit(out_arrays)?;
            let current = plan.current();
            let (batch, copies) = (current.step().batch(), current.step().copies());
            let made = rkv_plan_arrays {
                struct_size: 0,
                row_count: batch.rows().len() as u32,
                position_count: batch.query_count() as u64,
                query_indptr: batch.query_indptr().as_ptr(),
                indptr: batch.page_indptr().as_ptr(),
                indices: batch.pages().as_ptr().cast(),
                last_page_len: batch.last_page_len().as_ptr(),
                slot_mapping: batch.slot_mapping().as_ptr(),
                copy_count: copies.count() as u64,
                // A SequenceId is its number.
                copy_sequence: copies.sequences().as_ptr().cast(),
                copy_group: copies.groups().as_ptr(),
                copy_source_page: copies.sources().as_ptr(),
                copy_target_page: copies.targets().as_ptr(),
                copy_position_count: copies.positions().as_ptr(),
            };
            write_struct(out_arrays, &made)
        })
    }
}

/// The pages of a plan's rows in one group, for an engine with kernels of its own. Which positions
/// are new is among the arrays of rkv_plan_view().
///
/// Where a window has passed, pages are holes or still in the row; RKV_PLAN_COMPACT leaves out
/// both.
///
/// @param plan the plan
/// @param group the group; 0 is allowed
/// @param flags RKV_PLAN_COMPACT or 0
/// @param out_arrays receives pointers to them; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a row is a
/// slot's and no sequence's, and the group not 0; RKV_STATUS_POISONED
/// @par Cost
/// O(1); waits for rkv_plan_set()
/// @par Thread safety
/// any thread; nobody may set or destroy the plan while the arrays are read
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_view_group(
    plan: *const rkv_plan,
    group: u32,
    flags: u32,
    out_arrays: *mut rkv_plan_group_arrays,
) -> rkv_status {
    // SAFETY: the caller's contract on plan and out_arrays.
    unsafe {
        with(plan, |plan| {
            check_fit(out_arrays)?;
            check_flags(flags, RKV_PLAN_COMPACT, "flags")?;
            let current = plan.current();
            write_struct(out_arrays, &group_arrays(current.step(), group as usize, flags)?)
        })
    }
}

fn group_arrays(step: &Step, group: usize, flags: u32) -> Result<rkv_plan_group_arrays, Error> {
    let start = |list: Option<&[i64]>| list.map_or(std::ptr::null(), <[i64]>::as_ptr);
    let of = |pages: &BatchArrays, slot_mapping: Option<&[i64]>| rkv_plan_group_arrays {
        struct_size: 0,
        row_count: pages.last_page_len().len() as u32,
        indptr: pages.indptr().as_ptr(),
        indices: pages.indices().as_ptr().cast(),
        last_page_len: pages.last_page_len().as_ptr(),
        slot_mapping: start(slot_mapping),
        first_position: std::ptr::null(),
        sink_page_count: std::ptr::null(),
    };
    let (batch, hung) = match group {
        0 => (step.batch(), None),
        _ => step.group(group).map(|of_group| (of_group.batch(), Some(of_group)))?,
    };
    let Some(hung) = hung else {
        return Ok(of(batch.arrays(), Some(batch.slot_mapping())));
    };
    if hung.kind() == GroupKind::State {
        return Ok(of(hung.compact().pages, None));
    }
    if flags & RKV_PLAN_COMPACT == 0 {
        return Ok(of(batch.arrays(), Some(batch.slot_mapping())));
    }
    let Compact { pages, first_positions, sink_pages } = hung.compact();
    Ok(rkv_plan_group_arrays {
        first_position: start(first_positions),
        sink_page_count: sink_pages.map_or(std::ptr::null(), <[i32]>::as_ptr),
        ..of(pages, Some(batch.slot_mapping()))
    })
}
