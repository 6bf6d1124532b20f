package radixkv

/*
#include "call.h"

extern void rkvgoParallelFor(
	uintptr_t handle, size_t task_count, rkv_parallel_task run, void *task);

typedef struct rkvgo_runner_made {
	rkvgo_failure *failure;
	rkv_runner *runner;
} rkvgo_runner_made;

typedef struct rkvgo_runner_stats_made {
	rkvgo_failure *failure;
	rkv_runner_stats stats;
} rkvgo_runner_stats_made;

typedef struct rkvgo_page_bytes {
	rkvgo_failure *failure;
	uint64_t bytes;
} rkvgo_page_bytes;

// The handle travels as an integer, as that of the log does.
static void rkvgo_parallel_for(
	void *user_data, size_t task_count, rkv_parallel_task run, void *task
) {
	rkvgoParallelFor((uintptr_t)user_data, task_count, run, task);
}

// Zero takes the default, where there is another one.
static inline rkv_status rkvgo_runner_config(rkv_runner_config *config, uintptr_t handle) {
	rkv_runner_config made;
	rkv_status status = rkv_runner_config_init(&made, sizeof made);
	config->struct_size = sizeof *config;
	config->head_dim = config->head_dim ? config->head_dim : made.head_dim;
	config->parallel_for = handle == 0 ? NULL : rkvgo_parallel_for;
	config->parallel_user_data = (void *)handle;
	return status;
}

static inline rkvgo_runner_made rkvgo_runner_create(
	rkv_page_table *table, rkv_runner_config config, uintptr_t handle
) {
	rkvgo_runner_made made = {0};
	rkv_status status = rkvgo_runner_config(&config, handle);
	if (status == RKV_STATUS_OK) {
		status = rkv_runner_create(table, &config, &made.runner);
	}
	made.failure = rkvgo_end(status);
	return made;
}

static inline rkvgo_page_bytes rkvgo_runner_supports(
	rkv_runner_config config, uint32_t page_size
) {
	rkvgo_page_bytes made = {0};
	rkv_status status = rkvgo_runner_config(&config, 0);
	if (status == RKV_STATUS_OK) {
		status = rkv_runner_supports(&config, page_size, &made.bytes);
	}
	made.failure = rkvgo_end(status);
	return made;
}

static inline rkvgo_runner_stats_made rkvgo_runner_stats(const rkv_runner *runner) {
	rkvgo_runner_stats_made made = {0};
	made.stats.struct_size = sizeof made.stats;
	made.failure = rkvgo_end(rkv_runner_read_stats(runner, &made.stats));
	return made;
}
*/
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// Backend is what computes.
type Backend uint32

const (
	// BackendCPU is the processor.
	BackendCPU Backend = C.RKV_BACKEND_CPU
	// BackendCUDA is an NVIDIA GPU.
	BackendCUDA Backend = C.RKV_BACKEND_CUDA
)

// RunnerFlags are options of a runner.
type RunnerFlags uint32

const (
	// RunnerBatchInvariant: a row's result has the same bits whatever else is in the batch, for any
	// number of threads and however its prompt is cut into chunks.
	RunnerBatchInvariant RunnerFlags = C.RKV_RUNNER_BATCH_INVARIANT
	// RunnerLatent: V of a position is the first VHeadDim elements of its K, and memory has K alone:
	// multi-head latent attention, absorbed. V is nil in KVLayers and in every call.
	RunnerLatent RunnerFlags = C.RKV_RUNNER_LATENT
)

// RunnerConfig says how to build a runner. Zero takes the default; the counts of layers and heads
// have none.
type RunnerConfig struct {
	// Backend is BackendCPU, the default, or BackendCUDA.
	Backend Backend
	// LayerCount is the number of layers of the model that it computes, 1 to 65536.
	LayerCount uint32
	// QueryHeadCount is the number of heads of a query, 1 to 65536.
	QueryHeadCount uint32
	// KVHeadCount is the number of heads of K and V; divides QueryHeadCount.
	KVHeadCount uint32
	// HeadDim is the number of elements of a head of Q and K: 64, 80, 96, 112, 128, 192, 256, 512
	// or 576, on CUDA 576 with RunnerLatent alone. Default 128.
	HeadDim uint32
	// DType is that of queries, keys, values and results: DTypeF32, the default, F16 or BF16.
	DType DType
	// KVDType is that of K and V in memory: the same, or DTypeFP8E4M3.
	KVDType DType
	// KVLayout is that of memory of the runner's own. Not read with KVLayers.
	KVLayout KVLayout
	// ThreadCount is how many threads compute, at most 1024: of the library's own, the calling one
	// included, or with ParallelFor the engine's. Default: as many as the process may use.
	ThreadCount uint32
	// Flags are Runner flags.
	Flags RunnerFlags
	// Device is the ordinal of the GPU; 0 for the CPU.
	Device uint32
	// KVLayers is the engine's memory, one for each layer and for every page of the group's pool,
	// page 0 included. It must outlive the runner, and be C memory, or pinned with a
	// runtime.Pinner. nil: the runner allocates memory of its own.
	KVLayers []KVMemory
	// ParallelFor runs the tasks of a call on the engine's own threads. It may be called by several
	// goroutines at once, and must not call this package; a panic in it ends the program. nil:
	// threads of the library's own, which cost fewer crossings. When it leads to the runner, as a
	// method of what holds that does, only Close ends the runner.
	ParallelFor ParallelFor
	// Group is the group of layers whose K and V it has: no state group; on CUDA no chunk group and
	// no sinks.
	Group uint32
	// VHeadDim is the number of elements of a head of V and of the result. Default: HeadDim, which
	// it is on CUDA but for 192 with 128, and 576 with 512.
	VHeadDim uint32
}

func (c *RunnerConfig) c() C.rkv_runner_config {
	return C.rkv_runner_config{
		backend:          C.uint32_t(c.Backend),
		layer_count:      C.uint32_t(c.LayerCount),
		query_head_count: C.uint32_t(c.QueryHeadCount),
		kv_head_count:    C.uint32_t(c.KVHeadCount),
		head_dim:         C.uint32_t(c.HeadDim),
		dtype:            C.uint32_t(c.DType),
		kv_dtype:         C.uint32_t(c.KVDType),
		kv_layout:        C.uint32_t(c.KVLayout),
		thread_count:     C.uint32_t(c.ThreadCount),
		flags:            C.uint32_t(c.Flags),
		device:           C.uint32_t(c.Device),
		kv_layers:        (*C.rkv_runner_kv_memory)(unsafe.Pointer(unsafe.SliceData(c.KVLayers))),
		kv_layer_size:    C.sizeof_rkv_runner_kv_memory,
		group:            C.uint32_t(c.Group),
		v_head_dim:       C.uint32_t(c.VHeadDim),
	}
}

// Runner is attention over the rows of one group of a page table, and the KV memory behind its
// pages. A model with several groups has a runner for each, over one page table; all of them
// compute the same plans.
type Runner struct {
	mu      sync.RWMutex  // as in PageTable
	raw     *C.rkv_runner // nil after Close
	threads *threads
	shape   shape
}

// shape is what the sizes of tensors follow from.
type shape struct {
	queryHeads, kvHeads, headDim, vHeadDim, elementBytes int
	latent                                               bool
}

// RunnerSupports says whether the library, on this machine, can run such a runner, and how many
// bytes one page takes, K and V of all layers together: to be asked before a page table is made.
func RunnerSupports(config RunnerConfig, pageSize uint32) (pageBytes uint64, err error) {
	config.KVLayers = nil // not looked at
	made := C.rkvgo_runner_supports(config.c(), C.uint32_t(pageSize))
	return uint64(made.bytes), asError(made.failure)
}

// NewRunner creates a runner over a page table, with or without a cache, and keeps the page table
// alive.
func NewRunner(table *PageTable, config RunnerConfig) (*Runner, error) {
	if config.KVLayers != nil && len(config.KVLayers) != int(config.LayerCount) {
		return nil, invalid("config.KVLayers: not one for each layer")
	}
	raw, err := table.enter()
	if err != nil {
		return nil, err
	}
	defer table.mu.RUnlock()
	threads := newThreads(config.ParallelFor)
	made := C.rkvgo_runner_create(raw, config.c(), threads.number())
	if err := asError(made.failure); err != nil {
		threads.end()
		return nil, err
	}
	s := shape{
		queryHeads: int(config.QueryHeadCount), kvHeads: int(config.KVHeadCount),
		headDim: int(config.HeadDim), vHeadDim: int(config.VHeadDim), elementBytes: 2,
		latent: config.Flags&RunnerLatent != 0,
	}
	if s.headDim == 0 {
		s.headDim = 128
	}
	if s.vHeadDim == 0 {
		s.vHeadDim = s.headDim
	}
	if config.DType == DTypeF32 {
		s.elementBytes = 4
	}
	r := &Runner{raw: made.runner, threads: threads, shape: s}
	runtime.SetFinalizer(r, (*Runner).Close) // for those that nobody closed
	return r, nil
}

// Close gives the runner up, the memory of its own, and what it keeps with plans. More than one
// Close is fine. It waits for calls that are running.
func (r *Runner) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.raw != nil {
		C.rkv_runner_destroy(r.raw)
		r.raw = nil
		r.threads.end()
		runtime.SetFinalizer(r, nil)
	}
	return nil
}

// enter is that of PageTable: r.mu.RUnlock ends it.
func (r *Runner) enter() (*C.rkv_runner, error) {
	if r == nil {
		return nil, ErrClosed
	}
	r.mu.RLock()
	if r.raw == nil {
		r.mu.RUnlock()
		return nil, ErrClosed
	}
	return r.raw, nil
}

// RunnerStats is what a runner has.
type RunnerStats struct {
	// ThreadCount is how many threads compute.
	ThreadCount uint32
	// KVBytes is the KV memory of its own; 0 over the engine's.
	KVBytes uint64
	// PageBytes is what one page takes, K and V of all layers, when they lie densely.
	PageBytes uint64
}

// Stats is what the runner has.
func (r *Runner) Stats() (RunnerStats, error) {
	raw, err := r.enter()
	if err != nil {
		return RunnerStats{}, err
	}
	defer r.mu.RUnlock()
	made := C.rkvgo_runner_stats(raw)
	return RunnerStats{
		ThreadCount: uint32(made.stats.thread_count),
		KVBytes:     uint64(made.stats.kv_bytes),
		PageBytes:   uint64(made.stats.page_bytes),
	}, asError(made.failure)
}
