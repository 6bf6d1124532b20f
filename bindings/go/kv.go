package radixkv

/*
#include "call.h"

typedef struct rkvgo_kv_memory_made {
	rkvgo_failure *failure;
	rkv_runner_kv_memory memory;
} rkvgo_kv_memory_made;

static inline rkvgo_kv_memory_made rkvgo_runner_kv_memory(
	const rkv_runner *runner, uint32_t layer
) {
	rkvgo_kv_memory_made made = {0};
	made.failure = rkvgo_end(rkv_runner_read_kv_memory(
		runner, layer, &made.memory, sizeof made.memory));
	return made;
}

static inline rkvgo_failure *rkvgo_runner_copy_pages(
	rkv_runner *runner, const rkv_page_copy *copies, size_t copy_count
) {
	return rkvgo_end(rkv_runner_copy_pages(runner, copies, copy_count, sizeof *copies));
}

static inline rkvgo_failure *rkvgo_runner_copy_tier_pages(
	rkv_runner *runner, const rkv_copy_job *jobs, size_t count
) {
	return rkvgo_end(rkv_runner_copy_tier_pages(runner, jobs, count, sizeof *jobs));
}
*/
import "C"

import "unsafe"

// DType is a format of numbers.
type DType uint32

const (
	// DTypeF32 is 32-bit IEEE 754 floats.
	DTypeF32 DType = C.RKV_DTYPE_F32
	// DTypeF16 is 16-bit IEEE 754 floats.
	DTypeF16 DType = C.RKV_DTYPE_F16
	// DTypeBF16 is the upper half of 32-bit floats.
	DTypeBF16 DType = C.RKV_DTYPE_BF16
	// DTypeFP8E4M3 is OCP E4M3: 8-bit floats without infinities, for K and V in memory only. What
	// is too large becomes the largest, 448.
	DTypeFP8E4M3 DType = C.RKV_DTYPE_FP8_E4M3
)

// KVLayout is how a layer's K or V lies.
type KVLayout uint32

const (
	// KVLayoutNHD is [page][position][head][head_dim].
	KVLayoutNHD KVLayout = C.RKV_KV_LAYOUT_NHD
	// KVLayoutHND is [page][head][position][head_dim].
	KVLayoutHND KVLayout = C.RKV_KV_LAYOUT_HND
)

// KVMemory is where K and V of one layer lie; element (page, position in the page, head, d) at
// page * PageStride + position * PositionStride + head * HeadStride + d.
type KVMemory struct {
	// K is that of page 0.
	K unsafe.Pointer
	// V is that of page 0.
	V unsafe.Pointer
	// PageStride is in elements, from one page of K to the next, and of V unless that has strides of
	// its own.
	PageStride uint64
	// PositionStride is from one position of a page to the next.
	PositionStride uint64
	// HeadStride is from one head to the next.
	HeadStride uint64
	// VPageStride, VPositionStride and VHeadStride are those of V. All 0: as those of K.
	VPageStride, VPositionStride, VHeadStride uint64
}

// KVMemory is where K and V of a layer lie. Memory of the runner's own goes with it: keep the
// runner from being closed, also by the garbage collector, while it is looked at.
func (r *Runner) KVMemory(layer uint32) (KVMemory, error) {
	raw, err := r.enter()
	if err != nil {
		return KVMemory{}, err
	}
	defer r.mu.RUnlock()
	made := C.rkvgo_runner_kv_memory(raw, C.uint32_t(layer))
	return KVMemory{
		K:               made.memory.k,
		V:               made.memory.v,
		PageStride:      uint64(made.memory.page_stride),
		PositionStride:  uint64(made.memory.position_stride),
		HeadStride:      uint64(made.memory.head_stride),
		VPageStride:     uint64(made.memory.v_page_stride),
		VPositionStride: uint64(made.memory.v_position_stride),
		VHeadStride:     uint64(made.memory.v_head_stride),
	}, asError(made.failure)
}

// PageCopy is a copy of the first positions of a page to another page.
type PageCopy struct {
	// SourcePage is cached or private.
	SourcePage uint32
	// TargetPage is private.
	TargetPage uint32
	// PositionCount is how many positions, at most the page size.
	PositionCount uint32
	// Group is the group of layers whose pages these are; 0 with one.
	Group uint32
}

// CopyPages copies the first positions of pages of its group to other pages, K and V of every
// layer. No target is another's source or target. The copies that sequences wait for are carried
// out with a step, see Runner.PreparePlan; this is for an engine that moves pages for reasons of
// its own.
func (r *Runner) CopyPages(copies []PageCopy) error {
	raw, err := r.enter()
	if err != nil {
		return err
	}
	defer r.mu.RUnlock()
	return asError(C.rkvgo_runner_copy_pages(raw,
		(*C.rkv_page_copy)(unsafe.Pointer(unsafe.SliceData(copies))), C.size_t(len(copies))))
}

// CopyTierPages carries out copies that [Cache.Poll] gave, now: [Cache.Complete] is for the caller
// to call, and [Cache.Close] is refused until then. With InvalidArgument none was carried out; with
// OutOfMemory and Device, which are of CUDA, some were: complete all as failed. On CUDA it waits
// for what this runner's calls put on streams before, but not for graphs that were launched.
func (r *Runner) CopyTierPages(jobs []CopyJob) error {
	raw, err := r.enter()
	if err != nil {
		return err
	}
	defer r.mu.RUnlock()
	// In one call, for one wait on CUDA. Host memory is not Go's, so that C may read where it is.
	given := make([]C.rkv_copy_job, len(jobs))
	for i := range jobs {
		job := &jobs[i]
		given[i] = C.rkv_copy_job{
			job:        C.uint64_t(job.Job),
			host:       job.Host,
			byte_count: C.uint64_t(job.ByteCount),
			sequence:   C.rkv_sequence_id(job.Sequence),
			page:       C.uint32_t(job.Page),
			direction:  C.uint32_t(job.Direction),
			group:      C.uint32_t(job.Group),
		}
	}
	return asError(C.rkvgo_runner_copy_tier_pages(
		raw, unsafe.SliceData(given), C.size_t(len(given))))
}

// C reads slices of these in place: an index other than zero does not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(KVMemory{})-C.sizeof_rkv_runner_kv_memory]
	_ = [1]struct{}{}[unsafe.Offsetof(KVMemory{}.V)-unsafe.Offsetof(C.rkv_runner_kv_memory{}.v)]
	_ = [1]struct{}{}[unsafe.Offsetof(KVMemory{}.PageStride)-
		unsafe.Offsetof(C.rkv_runner_kv_memory{}.page_stride)]
	_ = [1]struct{}{}[unsafe.Offsetof(KVMemory{}.PositionStride)-
		unsafe.Offsetof(C.rkv_runner_kv_memory{}.position_stride)]
	_ = [1]struct{}{}[unsafe.Offsetof(KVMemory{}.HeadStride)-
		unsafe.Offsetof(C.rkv_runner_kv_memory{}.head_stride)]
	_ = [1]struct{}{}[unsafe.Offsetof(KVMemory{}.VPageStride)-
		unsafe.Offsetof(C.rkv_runner_kv_memory{}.v_page_stride)]
	_ = [1]struct{}{}[unsafe.Offsetof(KVMemory{}.VPositionStride)-
		unsafe.Offsetof(C.rkv_runner_kv_memory{}.v_position_stride)]
	_ = [1]struct{}{}[unsafe.Offsetof(KVMemory{}.VHeadStride)-
		unsafe.Offsetof(C.rkv_runner_kv_memory{}.v_head_stride)]
	_ = [1]struct{}{}[unsafe.Sizeof(PageCopy{})-C.sizeof_rkv_page_copy]
	_ = [1]struct{}{}[unsafe.Offsetof(PageCopy{}.TargetPage)-
		unsafe.Offsetof(C.rkv_page_copy{}.target_page)]
	_ = [1]struct{}{}[unsafe.Offsetof(PageCopy{}.PositionCount)-
		unsafe.Offsetof(C.rkv_page_copy{}.position_count)]
)
