package radixkv

/*
#include "call.h"

typedef struct rkvgo_plan_group_made {
	rkvgo_failure *failure;
	rkv_plan_group_arrays arrays;
} rkvgo_plan_group_made;

static inline rkvgo_plan_group_made rkvgo_plan_view_group(
	const rkv_plan *plan, uint32_t group, uint32_t flags
) {
	rkvgo_plan_group_made made = {0};
	rkv_plan_group_arrays *all = &made.arrays;
	all->struct_size = sizeof *all;
	made.failure = rkvgo_end(rkv_plan_view_group(plan, group, flags, all));
	if (made.failure == NULL) {
		// Each row has new positions.
		all->indices = rkvgo_array(all->indices, all->indptr[all->row_count]);
		all->last_page_len = rkvgo_array(all->last_page_len, all->row_count);
		all->slot_mapping = rkvgo_array(all->slot_mapping, all->row_count);
		all->first_position = rkvgo_array(all->first_position, all->row_count);
		all->sink_page_count = rkvgo_array(all->sink_page_count, all->row_count);
	}
	return made;
}
*/
import "C"

import "unsafe"

// PlanViewFlags say which pages [Plan.ViewGroup] shows.
type PlanViewFlags uint32

// PlanCompact: only pages that new positions are in or attend to.
const PlanCompact PlanViewFlags = C.RKV_PLAN_COMPACT

// PlanGroupArrays are the pages of a plan's rows in one group.
type PlanGroupArrays struct {
	// RowCount counts the rows, those of the plan in its order.
	RowCount int
	// IndPtr has RowCount + 1 offsets into Indices, the first 0.
	IndPtr []int32
	// Indices are the pages of all rows up to their last new position, one row after another; 0 is
	// a hole. With PlanCompact only the pages that new positions are in or attend to: of sinks, then
	// of the window or chunk. Of a state group the page of each row's state, and its DraftStateCount
	// pages for states after draft tokens.
	Indices []int32
	// LastPageLen is, for each row, the positions in its last page: 1 to the page size; 1 in a state
	// group.
	LastPageLen []int32
	// SlotMapping is, for each new position, where it lies: page * page_size + offset in the page;
	// -1 for a query of a row with MaskContext. nil in a state group.
	SlotMapping []int64
	// FirstPosition is, for each row, where the first page begins that is none of the sinks'. nil: 0
	// for all.
	FirstPosition []int64
	// SinkPageCount is, for each row, how many pages of sinks are in front of that one. nil: 0 for
	// all, or they are among the others.
	SinkPageCount []int32
}

// ViewGroup shows the pages of the rows in one group, for an engine with kernels of its own; which
// positions are new is among the arrays of [Plan.View]. They are the plan's own memory: to be read
// until look returns, which must not set, reserve or close the plan.
func (p *Plan) ViewGroup(
	group uint32, flags PlanViewFlags, look func(arrays PlanGroupArrays),
) error {
	raw, err := p.enter()
	if err != nil {
		return err
	}
	defer p.mu.RUnlock()
	made := C.rkvgo_plan_view_group(raw, C.uint32_t(group), C.uint32_t(flags))
	if err := asError(made.failure); err != nil {
		return err
	}
	rows := int(made.arrays.row_count)
	arrays := PlanGroupArrays{
		RowCount:      rows,
		IndPtr:        i32Slice(made.arrays.indptr, rows+1),
		LastPageLen:   i32Slice(made.arrays.last_page_len, rows),
		SlotMapping:   i64Slice(made.arrays.slot_mapping, p.positions),
		FirstPosition: i64Slice(made.arrays.first_position, rows),
	}
	arrays.Indices = i32Slice(made.arrays.indices, int(arrays.IndPtr[rows]))
	if made.arrays.sink_page_count != nil {
		arrays.SinkPageCount = i32Slice(made.arrays.sink_page_count, rows)
	}
	look(arrays)
	return nil
}

// i64Slice is nil where there are no values.
func i64Slice(values *C.int64_t, count int) []int64 {
	if values == nil {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(values)), count)
}
