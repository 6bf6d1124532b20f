//! A row of a plan as it is handed over.
use crate::attention::{Region, RowMask, TREE_POSITIONS_MAX};
use crate::capi::ffi::{AbiElement, at_most, check_zero, count_of};
use crate::capi::sequence::rkv_sequence_id;
use crate::capi::token::rkv_region;
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::sequence::ComputedRow;

/// New positions of one row. An array element.
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
    /// New positions, at least 1. The row has pages for them, none of which the cache owns. The
    /// sequence's row in every other group has them too, and the pages that new positions attend
    /// to; a slot has pages of group 0 alone.
    pub count: u64,
    /// `count` masks of a draft's tree, one for each new position: bit j says that it sees the
    /// row's new position j. It sees itself in any case, and no position behind it, whose bits are
    /// zero; at most 64 new positions, no regions. Positions before `start` it sees as ever, and a
    /// window or chunk is measured as if those that it sees came one behind another. NULL: each
    /// sees all new ones before it.
    pub tree_masks: *const u64,
    /// RKV_MASK_CAUSAL, RKV_MASK_BIDIRECTIONAL or RKV_MASK_CONTEXT. The last two in a page table
    /// without WINDOW and CHUNK groups, and without regions and tree masks.
    pub mask: u32,
    /// Zero.
    pub reserved: u32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiElement for rkv_plan_row {
    const V1: usize = 40;
}

/// Mask of rkv_plan_row: a new position sees those before it and itself, and what regions and tree
/// masks say.
pub const RKV_MASK_CAUSAL: u32 = 0;
/// Mask of rkv_plan_row: a new position sees all positions up to the last new one, those behind it
/// too, as an encoder's do. In a capacity that is RKV_PLAN_REGIONS.
pub const RKV_MASK_BIDIRECTIONAL: u32 = 1;
/// Mask of rkv_plan_row: `count` queries that are no positions of the row see its first `start`,
/// whose K and V are in the pages: cross attention, or a part of a context whose result
/// rkv_runner_merge_states() merges with others. Nothing is written, whoever owns the pages.
pub const RKV_MASK_CONTEXT: u32 = 2;

pub(super) fn row_of(raw: &rkv_plan_row) -> ComputedRow {
    match raw.sequence {
        0 => ComputedRow::Slot(raw.slot),
        id => ComputedRow::Sequence(SequenceId(id)),
    }
}

pub(super) fn mask_of(raw: &rkv_plan_row) -> Result<RowMask, Error> {
    check_zero(raw.reserved, "reserved")?;
    match raw.mask {
        RKV_MASK_CAUSAL => Ok(RowMask::Causal),
        RKV_MASK_BIDIRECTIONAL => Ok(RowMask::Bidirectional),
        RKV_MASK_CONTEXT => Ok(RowMask::Context),
        other => Err(Error::argument(text!("mask {other} is unknown"))),
    }
}

/// # Safety
/// The row's masks are readable, if it has some.
pub(super) unsafe fn tree_masks<'a>(row: &rkv_plan_row) -> Result<&'a [u64], Error> {
    if row.tree_masks.is_null() {
        return Ok(&[]);
    }
    if !row.tree_masks.is_aligned() {
        return Err(Error::argument("tree_masks is not aligned"));
    }
    // Of too many none is read.
    let count = at_most(row.count).min(TREE_POSITIONS_MAX + 1);
    // SAFETY: not NULL, aligned, and the caller promises that many.
    Ok(unsafe { std::slice::from_raw_parts(row.tree_masks, count) })
}

pub(super) fn region_of(raw: &rkv_region) -> Result<Region, Error> {
    let edge = |value| count_of(value, "regions");
    Ok(Region { start: edge(raw.start)?, end: edge(raw.end)? })
}
