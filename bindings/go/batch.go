package radixkv

/*
#include "call.h"

static inline rkvgo_failure *rkvgo_page_table_slot_mapping(
	const rkv_page_table *table, uint32_t slot,
	const uint64_t *positions, size_t count, int64_t *mapping
) {
	return rkvgo_end(rkv_page_table_read_slot_mapping(table, slot, positions, count, mapping));
}

static inline rkvgo_count rkvgo_page_table_batch(
	const rkv_page_table *table, const rkv_page_table_batch_row *rows, size_t row_count,
	int32_t *indptr, int32_t *indices, size_t indices_capacity, int32_t *last_page_len
) {
	rkv_page_table_batch_arrays arrays = {
		.struct_size = sizeof arrays,
		.indptr = indptr,
		.indices = indices,
		.indices_capacity = indices_capacity,
		.last_page_len = last_page_len,
	};
	rkvgo_count made = {0};
	made.failure = rkvgo_end(
		rkv_page_table_read_batch(table, rows, row_count, sizeof *rows, &arrays, &made.count));
	return made;
}
*/
import "C"

import "unsafe"

// SlotMapping writes where positions of a row lie in KV memory: page * page_size + offset in the
// page, for each. The slices are equally long.
func (t *PageTable) SlotMapping(slot uint32, positions []uint64, mapping []int64) error {
	if len(positions) != len(mapping) {
		return invalid("mapping is not as long as positions")
	}
	raw, err := t.enter()
	if err != nil {
		return err
	}
	defer t.mu.RUnlock()
	return asError(C.rkvgo_page_table_slot_mapping(raw, C.uint32_t(slot),
		(*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(positions))), C.size_t(len(positions)),
		(*C.int64_t)(unsafe.Pointer(unsafe.SliceData(mapping)))))
}

// BatchRow is one sequence of a batch.
type BatchRow struct {
	// Slot is a slot in use.
	Slot uint32
	// PositionCount is how many positions the batch attends to, the new ones included.
	PositionCount uint32
}

// BatchArrays are the slices that Batch fills for paged attention kernels.
type BatchArrays struct {
	// IndPtr receives len(rows) + 1 offsets into Indices, the first 0.
	IndPtr []int32
	// Indices receives the pages of all rows, one row after another.
	Indices []int32
	// LastPageLen receives, for each row, the positions in its last page; 0 for an empty row.
	LastPageLen []int32
}

// Batch writes the arrays for a batch of rows and says how many indices there are, also together
// with BufferTooSmall. With nil Indices it only says how many.
func (t *PageTable) Batch(rows []BatchRow, arrays BatchArrays) (int, error) {
	if arrays.Indices != nil && len(arrays.IndPtr) < len(rows)+1 {
		return 0, invalid("arrays.IndPtr is shorter than len(rows) + 1")
	}
	if arrays.Indices != nil && len(arrays.LastPageLen) < len(rows) {
		return 0, invalid("arrays.LastPageLen is shorter than rows")
	}
	if len(arrays.IndPtr) < len(rows)+1 || len(arrays.LastPageLen) < len(rows) {
		// Of rows without pages the library writes these also when it is asked for the count.
		arrays.IndPtr, arrays.LastPageLen = make([]int32, len(rows)+1), make([]int32, len(rows))
	}
	raw, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer t.mu.RUnlock()
	made := C.rkvgo_page_table_batch(raw,
		(*C.rkv_page_table_batch_row)(unsafe.Pointer(unsafe.SliceData(rows))), C.size_t(len(rows)),
		i32Pointer(arrays.IndPtr), i32Pointer(arrays.Indices), C.size_t(len(arrays.Indices)),
		i32Pointer(arrays.LastPageLen))
	return int(made.count), asError(made.failure)
}

func i32Pointer(values []int32) *C.int32_t {
	return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(values)))
}

// C reads slices of these in place: an index other than zero does not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(BatchRow{})-C.sizeof_rkv_page_table_batch_row]
	_ = [1]struct{}{}[unsafe.Offsetof(BatchRow{}.PositionCount)-
		unsafe.Offsetof(C.rkv_page_table_batch_row{}.position_count)]
)
