package radixkv

/*
#include "call.h"

#include <stdlib.h>
#include <string.h>

typedef struct rkvgo_plan_made {
	rkvgo_failure *failure;
	rkv_plan *plan;
} rkvgo_plan_made;

typedef struct rkvgo_plan_view_made {
	rkvgo_failure *failure;
	rkv_plan_arrays arrays;
} rkvgo_plan_view_made;

static inline rkvgo_plan_made rkvgo_plan_create(rkv_page_table *table) {
	rkvgo_plan_made made = {0};
	made.failure = rkvgo_end(rkv_plan_create(table, &made.plan));
	return made;
}

static inline rkvgo_failure *rkvgo_plan_set(
	rkv_plan *plan, const rkv_plan_row *rows, size_t row_count
) {
	return rkvgo_end(rkv_plan_set(plan, rows, row_count, sizeof *rows));
}

static inline rkvgo_failure *rkvgo_plan_reserve(rkv_plan *plan, rkv_plan_capacity capacity) {
	capacity.struct_size = sizeof capacity;
	return rkvgo_end(rkv_plan_reserve(plan, &capacity));
}

static inline rkvgo_failure *rkvgo_plan_check(const rkv_plan *plan) {
	return rkvgo_end(rkv_plan_check(plan));
}

static inline rkvgo_plan_view_made rkvgo_plan_view(const rkv_plan *plan) {
	rkvgo_plan_view_made made = {0};
	rkv_plan_arrays *all = &made.arrays;
	all->struct_size = sizeof *all;
	made.failure = rkvgo_end(rkv_plan_view(plan, all));
	if (made.failure == NULL) {
		all->indices = rkvgo_array(all->indices, all->indptr[all->row_count]);
		all->last_page_len = rkvgo_array(all->last_page_len, all->row_count);
		all->slot_mapping = rkvgo_array(all->slot_mapping, all->position_count);
		all->copy_sequence = rkvgo_array(all->copy_sequence, all->copy_count);
		all->copy_group = rkvgo_array(all->copy_group, all->copy_count);
		all->copy_source_page = rkvgo_array(all->copy_source_page, all->copy_count);
		all->copy_target_page = rkvgo_array(all->copy_target_page, all->copy_count);
		all->copy_position_count = rkvgo_array(all->copy_position_count, all->copy_count);
	}
	return made;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// PlanRow is new positions of one row.
type PlanRow struct {
	// Sequence is the sequence; 0 for a row of the page table that is no sequence's: Slot.
	Sequence SequenceID
	// Slot is the row's slot; not read with a sequence.
	Slot uint32
	// Regions are positions of the row that attend to each other in both directions, see
	// Tokens.Regions: ascending, disjoint, none cut by the first or the last new position. Regions
	// behind the new positions are fine.
	Regions []Region
	// Start is the first new position: K and V of all positions before are in the row's pages.
	Start int
	// Count is how many new positions, at least 1. The row has pages for them, none of which the
	// cache owns.
	Count int
	// TreeMasks are Count masks of a draft's tree, or none: bit j of a new position's says that it
	// sees the row's new position j. It sees itself in any case, and no position behind it, whose
	// bits are zero; at most 64 new positions, no regions.
	TreeMasks []uint64
	// Mask says which keys the new positions see. Others than MaskCausal in a page table without
	// window and chunk groups, and without regions and tree masks.
	Mask RowMask
}

// RowMask says which keys the new positions of a row see.
type RowMask uint32

const (
	// MaskCausal: those before it and itself, and what regions and tree masks say.
	MaskCausal RowMask = C.RKV_MASK_CAUSAL
	// MaskBidirectional: all positions up to the last new one, those behind it too, as an encoder's
	// do. In a capacity that is PlanRegions.
	MaskBidirectional RowMask = C.RKV_MASK_BIDIRECTIONAL
	// MaskContext: Count queries that are no positions of the row see its first Start, whose K and
	// V are in the pages: cross attention. Nothing is written.
	MaskContext RowMask = C.RKV_MASK_CONTEXT
)

// PlanFlags say what steps of a plan may need.
type PlanFlags uint32

const (
	// PlanRegions: rows may have regions.
	PlanRegions PlanFlags = C.RKV_PLAN_REGIONS
	// PlanSeparate: rows that begin with the same pages do not attend to those together. On CUDA a
	// captured call launches fewer kernels then.
	PlanSeparate PlanFlags = C.RKV_PLAN_SEPARATE
	// PlanTrees: rows may have tree masks.
	PlanTrees PlanFlags = C.RKV_PLAN_TREES
)

// PlanCapacity is the largest step that a plan is to take.
type PlanCapacity struct {
	// Flags are Plan flags.
	Flags PlanFlags
	// RowCount counts the rows.
	RowCount int
	// PositionCount counts the new positions of all rows.
	PositionCount int
	// RowPositionCount counts the new positions of one row. 0: PositionCount.
	RowPositionCount int
	// PageCount counts the pages of all rows up to their last new position; one that two rows share
	// counts twice.
	PageCount int
}

// PlanArrays are the arrays of a plan, as paged attention kernels take them, of group 0;
// [Plan.ViewGroup] shows those of the others.
type PlanArrays struct {
	// RowCount counts the rows.
	RowCount int
	// PositionCount counts the new positions of all rows.
	PositionCount int
	// QueryIndPtr has RowCount + 1 offsets: the new positions of row i are QueryIndPtr[i] to
	// QueryIndPtr[i+1].
	QueryIndPtr []int32
	// IndPtr has RowCount + 1 offsets into Indices, the first 0.
	IndPtr []int32
	// Indices are the pages of all rows up to their last new position, one row after another.
	Indices []int32
	// LastPageLen is, for each row, the positions in its last page: 1 to the page size.
	LastPageLen []int32
	// SlotMapping is, for each new position, where it lies: page * page_size + offset in the page;
	// -1 for a query of a row with MaskContext, of which nothing is written.
	SlotMapping []int64
	// Copies were open when the plan was set: before the step is computed they are carried out in
	// every layer of their group, and then confirmed by Sequence.ConfirmCopies. A Runner does both
	// for its group; copies of states are the engine's own.
	Copies PlanCopies
}

// PlanCopies are copies of the first positions of pages, as arrays of the same length.
type PlanCopies struct {
	// Sequence has who waits for each copy.
	Sequence []SequenceID
	// Group has the group of layers whose pages these are.
	Group []int32
	// SourcePage has the page to copy from.
	SourcePage []int32
	// TargetPage has the page to copy to.
	TargetPage []int32
	// PositionCount has how many positions.
	PositionCount []int32
}

// Plan is what one step computes: new positions of any mix of rows, prefill chunks and decodes
// alike. Made once, and set anew for each step: its memory is reused. An engine with kernels of its
// own reads its arrays, any [Runner] over the same page table computes it.
type Plan struct {
	mu        planMutex   // what moves or frees the arrays holds the write side
	raw       *C.rkv_plan // nil after Close
	positions int         // new positions of all rows that are set
	// What Set hands over: a row leads to its regions and masks, so all must be C memory.
	rows, regions, trees buffer
}

// buffer is C memory that grows.
type buffer struct {
	start unsafe.Pointer
	bytes uintptr
}

// atLeast makes room; what was in it is lost when it grows. Zeroed, because Go's garbage collector
// may look at what a pointer that is written there replaces.
func (b *buffer) atLeast(bytes uintptr) unsafe.Pointer {
	if bytes > b.bytes {
		C.free(b.start)
		b.bytes = 2 * bytes
		b.start = C.malloc(C.size_t(b.bytes)) // never NULL: cgo ends the program instead
		C.memset(b.start, 0, C.size_t(b.bytes))
	}
	return b.start
}

// NewPlan creates a plan without rows over a page table, and keeps that alive. It needs no runner.
func NewPlan(table *PageTable) (*Plan, error) {
	raw, err := table.enter()
	if err != nil {
		return nil, err
	}
	defer table.mu.RUnlock()
	made := C.rkvgo_plan_create(raw)
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	p := &Plan{raw: made.plan}
	runtime.SetFinalizer(p, (*Plan).Close) // for those that nobody closed
	return p, nil
}

// Close gives the plan up, and what runners keep with it. More than one Close is fine. It waits for
// calls that are running.
func (p *Plan) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raw != nil {
		C.rkv_plan_destroy(p.raw)
		p.raw = nil
		C.free(p.rows.start)
		C.free(p.regions.start)
		C.free(p.trees.start)
		runtime.SetFinalizer(p, nil)
	}
	return nil
}

// enter is that of PageTable: p.mu.RUnlock ends it.
func (p *Plan) enter() (*C.rkv_plan, error) {
	if p == nil {
		return nil, ErrClosed
	}
	p.mu.RLock()
	if p.raw == nil {
		p.mu.RUnlock()
		return nil, ErrClosed
	}
	return p.raw, nil
}

// enterAlone waits for calls that are running and for those who look; p.mu.Unlock ends it.
func (p *Plan) enterAlone() (*C.rkv_plan, error) {
	if p == nil {
		return nil, ErrClosed
	}
	p.mu.Lock()
	if p.raw == nil {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	return p.raw, nil
}

// Set says what the next step computes, in the order in which the tensors hold the rows' new
// positions; no row twice. Without rows it empties the plan.
//
// Several plans may be set before the first is computed. A plan is good until a row of it is
// released, truncated, publishes what the plan computes, or gives up a page in any group, as where
// a window slides. Copies that begun sequences wait for (Sequence.Copies) stay open until they are
// carried out: by the first [Runner.AppendPrefill] of the step, by [Runner.PreparePlan], or by the
// engine.
func (p *Plan) Set(rows []PlanRow) error {
	raw, err := p.enterAlone()
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	for i := range rows {
		if masks := len(rows[i].TreeMasks); masks != 0 && masks != rows[i].Count {
			return invalid(fmt.Sprintf(
				"rows[%d].TreeMasks: %d for %d new positions", i, masks, rows[i].Count))
		}
	}
	given := p.fill(rows)
	err = asError(C.rkvgo_plan_set(raw, given, C.size_t(len(rows))))
	if err != nil {
		return err
	}
	p.positions = 0
	for i := range rows {
		p.positions += rows[i].Count
	}
	return nil
}

// fill writes rows, regions and tree masks to C memory.
func (p *Plan) fill(rows []PlanRow) *C.rkv_plan_row {
	if len(rows) == 0 {
		return nil
	}
	count, masks := 0, 0
	for i := range rows {
		count += len(rows[i].Regions)
		masks += len(rows[i].TreeMasks)
	}
	given := (*C.rkv_plan_row)(p.rows.atLeast(uintptr(len(rows)) * C.sizeof_rkv_plan_row))
	into := unsafe.Slice(given, len(rows))
	regions := unsafe.Slice(
		(*Region)(p.regions.atLeast(uintptr(count)*C.sizeof_rkv_region)), count)
	trees := unsafe.Slice((*uint64)(p.trees.atLeast(uintptr(masks)*8)), masks)
	for i := range rows {
		row := &rows[i]
		into[i] = C.rkv_plan_row{
			sequence:     C.rkv_sequence_id(row.Sequence),
			slot:         C.uint32_t(row.Slot),
			region_count: C.uint32_t(len(row.Regions)),
			start:        C.uint64_t(row.Start),
			count:        C.uint64_t(row.Count),
			mask:         C.uint32_t(row.Mask),
		}
		if len(row.Regions) > 0 {
			into[i].regions = (*C.rkv_region)(unsafe.Pointer(unsafe.SliceData(regions)))
			regions = regions[copy(regions, row.Regions):]
		}
		if len(row.TreeMasks) > 0 {
			into[i].tree_masks = (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(trees)))
			trees = trees[copy(trees, row.TreeMasks):]
		}
	}
	return given
}

// Reserve makes room for every step up to a size, and refuses larger ones from then on. For CUDA
// graphs, together with [Runner.ReservePlan]; once a call was captured nothing can be reserved any
// more.
func (p *Plan) Reserve(capacity PlanCapacity) error {
	raw, err := p.enterAlone()
	if err != nil {
		return err
	}
	defer p.mu.Unlock()
	return asError(C.rkvgo_plan_reserve(raw, C.rkv_plan_capacity{
		flags:              C.uint32_t(capacity.Flags),
		row_count:          C.uint64_t(capacity.RowCount),
		position_count:     C.uint64_t(capacity.PositionCount),
		row_position_count: C.uint64_t(capacity.RowPositionCount),
		page_count:         C.uint64_t(capacity.PageCount),
	}))
}

// Check says whether a plan that was set may still be computed. Runners look by themselves; this is
// for an engine with kernels of its own, right before it starts them.
func (p *Plan) Check() error {
	raw, err := p.enter()
	if err != nil {
		return err
	}
	defer p.mu.RUnlock()
	return asError(C.rkvgo_plan_check(raw))
}

// View shows the arrays, for an engine with kernels of its own. They are the plan's own memory: to
// be read until look returns, which must not set, reserve or close the plan.
func (p *Plan) View(look func(arrays PlanArrays)) error {
	raw, err := p.enter()
	if err != nil {
		return err
	}
	defer p.mu.RUnlock()
	made := C.rkvgo_plan_view(raw)
	if err := asError(made.failure); err != nil {
		return err
	}
	rows, positions := int(made.arrays.row_count), int(made.arrays.position_count)
	arrays := PlanArrays{
		RowCount:      rows,
		PositionCount: positions,
		QueryIndPtr:   i32Slice(made.arrays.query_indptr, rows+1),
		IndPtr:        i32Slice(made.arrays.indptr, rows+1),
		LastPageLen:   i32Slice(made.arrays.last_page_len, rows),
		SlotMapping:   i64Slice(made.arrays.slot_mapping, positions),
	}
	arrays.Indices = i32Slice(made.arrays.indices, int(arrays.IndPtr[rows]))
	copies := int(made.arrays.copy_count)
	arrays.Copies = PlanCopies{
		Sequence: unsafe.Slice(
			(*SequenceID)(unsafe.Pointer(made.arrays.copy_sequence)), copies),
		Group:         i32Slice(made.arrays.copy_group, copies),
		SourcePage:    i32Slice(made.arrays.copy_source_page, copies),
		TargetPage:    i32Slice(made.arrays.copy_target_page, copies),
		PositionCount: i32Slice(made.arrays.copy_position_count, copies),
	}
	look(arrays)
	return nil
}

func i32Slice(values *C.int32_t, count int) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(values)), count)
}
