//! Plans: the rows of one step as arrays.
use super::handle::{Handle, Object, Opaque, destroy, with};
use super::pointer::{AbiStruct, check_fit, out, read_struct, slice, write_struct};
use super::runner::rkv_runner;
use super::sequence::rkv_sequence_id;
use super::status::rkv_status;
use super::token::rkv_region;
use crate::attention::{Capacity, Region};
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::memory::{Arc, OutOfMemory};
use crate::runner::{Plan, PlanRow};
use crate::sequence::ComputedRow;
use std::ffi::c_void;

/// What one step computes: new positions of any mix of rows, prefill chunks and decodes alike. Made
/// once by rkv_plan_create() and set anew for each step; its memory is reused.
pub struct rkv_plan {
    // Opaque to C and to debug information: behind the pointer lies a Handle.
    _private: [u8; 0],
}

impl Object for Plan {
    fn is_poisoned(&self) -> bool {
        self.runner().is_poisoned()
    }

    fn poison(&self) {
        self.runner().poison();
    }
}

impl Opaque for rkv_plan {
    type Object = Plan;
    const NAME: &'static str = "plan";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvplan\0");
}

/// New positions of one row. An array element: its layout never changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_plan_row {
    /// The sequence; 0 for a row of the page table that is no sequence's: `slot`.
    pub sequence: rkv_sequence_id,
    /// The row's slot; not read with a sequence.
    pub slot: u32,
    /// Number of regions.
    pub region_count: u32,
    /// Positions of the row that attend to each other in both directions, see
    /// rkv_tokens_regions(): ascending, disjoint, none cut by the first or the last new position.
    /// Regions behind the new positions are fine. NULL when there are none.
    pub regions: *const rkv_region,
    /// The first new position: K and V of all positions before are in the row's pages.
    pub start: u64,
    /// New positions, at least 1. The row has pages for them, none of which the cache owns.
    pub count: u64,
}

/// Flag of rkv_plan_capacity: rows may have regions.
pub const RKV_PLAN_REGIONS: u32 = 1;
/// Flag of rkv_plan_capacity: rows that begin with the same pages do not attend to those together.
/// On CUDA a captured call launches fewer kernels then.
pub const RKV_PLAN_SEPARATE: u32 = 2;

/// The largest step that a plan is to take.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_plan_capacity {
    /// sizeof(rkv_plan_capacity).
    pub struct_size: u32,
    /// RKV_PLAN_REGIONS, RKV_PLAN_SEPARATE.
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

/// The arrays of a plan, as paged attention kernels take them. They belong to the plan: good until
/// it is set again or destroyed.
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
    /// For each new position, where it lies: page * page_size + offset in the page.
    pub slot_mapping: *const i64,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_plan_arrays {
    const NAME: &'static str = "out_arrays";
    const V1: usize = 56;
}

fn row_of(raw: &rkv_plan_row) -> ComputedRow {
    match raw.sequence {
        0 => ComputedRow::Slot(raw.slot),
        id => ComputedRow::Sequence(SequenceId(id)),
    }
}

/// Creates a plan without rows.
///
/// @param runner the runner that it is for; lives until the plan is destroyed too
/// @param out_plan receives the plan, owned by the caller
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_POISONED
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_create(
    runner: *mut rkv_runner,
    out_plan: *mut *mut rkv_plan,
) -> rkv_status {
    // SAFETY: the caller's contract on runner and out_plan.
    unsafe {
        with(runner, |runner| {
            let into = out(out_plan, "out_plan")?;
            let plan = Arc::new(Plan::new(runner.clone())?)?;
            into.write(Handle::new(plan)?.into_raw());
            Ok(())
        })
    }
}

/// Destroys a plan. NULL is allowed and does nothing.
///
/// @param plan the plan
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_destroy(plan: *mut rkv_plan) {
    // SAFETY: the caller's contract: from rkv_plan_create(), not destroyed yet.
    unsafe { destroy(plan, |_| {}) }
}

/// Sets what the next step computes.
///
/// Copies that begun sequences wait for (see rkv_sequence_info.copy_position_count) are carried
/// out in every layer, and confirmed. Several plans may be set before the first is computed. A plan
/// is good until a row of it is released, truncated, or publishes what the plan computes.
///
/// @param plan the plan
/// @param rows row_count rows, in the order in which q, k, v and out hold their new positions; no
/// row twice
/// @param row_count how many; 0 empties the plan
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the row: no pages for its new
/// positions, pages that the cache owns, a region that is cut, ...; or what is more than was given
/// to rkv_plan_reserve(); RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_INVALID_STATE;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_POISONED. On failure the plan is as before.
/// @par Thread safety
/// any thread, while nobody else computes or releases these rows
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_set(
    plan: *mut rkv_plan,
    rows: *const rkv_plan_row,
    row_count: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on plan and rows.
    unsafe {
        with(plan, |plan| {
            let rows = slice(rows, row_count, "rows")?;
            // The regions of all rows, one row after another.
            let mut regions = Vec::new();
            for row in rows {
                let given = slice(row.regions, row.region_count as usize, "rows: regions")?;
                regions.try_reserve(given.len()).map_err(OutOfMemory::from)?;
                for region in given {
                    regions.push(region_of(region)?);
                }
            }
            let (mut given, mut left) = (Vec::new(), &*regions);
            given.try_reserve_exact(rows.len()).map_err(OutOfMemory::from)?;
            for raw in rows {
                let (regions, rest) = left.split_at(raw.region_count as usize);
                left = rest;
                given.push(PlanRow {
                    row: row_of(raw),
                    start: position(raw.start, "start")?,
                    count: position(raw.count, "count")?,
                    regions,
                });
            }
            Ok(plan.set(&given)?)
        })
    }
}

fn position(value: u64, name: &str) -> Result<usize, Error> {
    let refused = |_| Error::argument(text!("rows: {name} {value} is out of range"));
    usize::try_from(value).map_err(refused)
}

fn region_of(raw: &rkv_region) -> Result<Region, Error> {
    Ok(Region { start: position(raw.start, "regions")?, end: position(raw.end, "regions")? })
}

/// Makes room for every step up to a size, and refuses larger ones from then on.
///
/// CUDA: the plan's memory on the device is allocated here, none of it moves afterwards, and calls
/// may be captured into a graph, which then serves every step of such a size; see
/// rkv_plan_upload(). Once a call was captured nothing can be reserved any more.
///
/// @param plan the plan; if it was set, that step fits
/// @param capacity the largest step
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when a call was
/// captured; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_UNSUPPORTED; RKV_STATUS_DEVICE;
/// RKV_STATUS_POISONED. On failure the plan is as before.
/// @par Thread safety
/// any thread; nobody computes the plan meanwhile
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
    if raw.flags & !(RKV_PLAN_REGIONS | RKV_PLAN_SEPARATE) != 0 {
        return Err(Error::argument(text!("capacity.flags {:#x} is unknown", raw.flags)));
    }
    let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    let row_positions = match raw.row_position_count {
        0 => raw.position_count,
        given => given,
    };
    Ok(Capacity {
        rows: size(raw.row_count),
        positions: size(raw.position_count),
        row_positions: size(row_positions),
        pages: size(raw.page_count),
        regions: raw.flags & RKV_PLAN_REGIONS != 0,
        cascade: raw.flags & RKV_PLAN_SEPARATE == 0,
    })
}

/// Sends what the first call after rkv_plan_set() would send, once: the step's arrays, and the
/// copies that its sequences wait for, which are confirmed. On the CPU there is nothing to send.
///
/// CUDA: a captured call sends nothing, so a step is sent by this before its calls are captured,
/// and before a graph is launched that computes it: rkv_plan_set(), rkv_plan_upload(),
/// cuGraphLaunch(), on one stream.
///
/// @param plan a plan that was set
/// @param stream CUDA: the CUstream to work on, which is not being captured. NULL on the CPU
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_INVALID_STATE when the plan has
/// no rows, or they changed since; RKV_STATUS_STALE_SEQUENCE; RKV_STATUS_OUT_OF_MEMORY;
/// RKV_STATUS_DEVICE; RKV_STATUS_POISONED. On failure copies are open as before, and the step is to
/// be sent again.
/// @par Thread safety
/// any thread, as rkv_runner_append_prefill()
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_plan_upload(plan: *mut rkv_plan, stream: *mut c_void) -> rkv_status {
    // SAFETY: the caller's contract on plan, its rows and the stream.
    unsafe { with(plan, |plan| Ok(plan.upload(stream)?)) }
}

/// The arrays of a plan, for an engine with kernels of its own.
///
/// @param plan the plan
/// @param out_arrays receives pointers to them; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
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
            plan.with_batch(|batch| {
                let made = rkv_plan_arrays {
                    struct_size: 0,
                    row_count: batch.rows().len() as u32,
                    position_count: batch.query_count() as u64,
                    query_indptr: batch.query_indptr().as_ptr(),
                    indptr: batch.page_indptr().as_ptr(),
                    indices: batch.pages().as_ptr().cast(),
                    last_page_len: batch.last_page_len().as_ptr(),
                    slot_mapping: batch.slot_mapping().as_ptr(),
                };
                write_struct(out_arrays, &made)
            })
        })
    }
}
