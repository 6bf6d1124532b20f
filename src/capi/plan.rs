//! Plans: the rows of one step as arrays.
use super::handle::{Handle, Object, Opaque, destroy, with};
use super::pointer::{AbiStruct, check_fit, out, slice, write_struct};
use super::runner::rkv_runner;
use super::sequence::rkv_sequence_id;
use super::status::rkv_status;
use super::token::rkv_region;
use crate::attention::Region;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::runner::{Plan, PlanRow};
use crate::sequence::ComputedRow;
use std::sync::Arc;

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
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
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
            into.write(Handle::into_raw(Arc::new(Plan::new(runner.clone()))));
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
/// Copies that begun sequences wait for (see rkv_sequence_state.copy_position_count) are carried
/// out in every layer, and confirmed. Several plans may be set before the first is computed. A plan
/// is good until a row of it is released, truncated, or publishes what the plan computes.
///
/// @param plan the plan
/// @param rows row_count rows, in the order in which q, k, v and out hold their new positions; no
/// row twice
/// @param row_count how many; 0 empties the plan
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the row: no pages for its new
/// positions, pages that the cache owns, a region that is cut, ...; RKV_STATUS_STALE_SEQUENCE;
/// RKV_STATUS_INVALID_STATE; RKV_STATUS_POISONED. On failure the plan is as before.
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
            let mut regions: Vec<Vec<Region>> = Vec::new();
            let rows = slice(rows, row_count, "rows")?;
            for row in rows {
                let given = slice(row.regions, row.region_count as usize, "rows: regions")?;
                if !given.is_empty() {
                    regions.push(given.iter().map(region_of).collect::<Result<_, _>>()?);
                }
            }
            let mut regions = regions.iter();
            let mut given = Vec::with_capacity(rows.len());
            for raw in rows {
                given.push(PlanRow {
                    row: row_of(raw),
                    start: position(raw.start, "start")?,
                    count: position(raw.count, "count")?,
                    regions: match raw.region_count {
                        0 => &[],
                        _ => regions.next().expect("made above"),
                    },
                });
            }
            Ok(plan.set(&given)?)
        })
    }
}

fn position(value: u64, name: &str) -> Result<usize, Error> {
    usize::try_from(value).map_err(|_| Error::argument(format!("rows: {name} {value} is absurd")))
}

fn region_of(raw: &rkv_region) -> Result<Region, Error> {
    Ok(Region { start: position(raw.start, "regions")?, end: position(raw.end, "regions")? })
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
