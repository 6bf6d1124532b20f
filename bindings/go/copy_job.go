package radixkv

/*
#include "call.h"

typedef struct rkvgo_poll_made {
	rkvgo_failure *failure;
	rkv_cache_poll_result result;
} rkvgo_poll_made;

static inline rkvgo_poll_made rkvgo_cache_poll(
	rkv_cache *cache, rkv_copy_job *jobs, size_t job_capacity,
	rkv_fetch_end *ends, size_t end_capacity
) {
	rkvgo_poll_made made = {0};
	made.result.struct_size = sizeof made.result;
	made.failure = rkvgo_end(rkv_cache_poll(
		cache, jobs, sizeof *jobs, job_capacity, ends, sizeof *ends, end_capacity, &made.result));
	return made;
}

static inline rkvgo_failure *rkvgo_cache_complete(
	rkv_cache *cache, const uint64_t *jobs, size_t count, bool is_good
) {
	return rkvgo_end(rkv_cache_complete(cache, jobs, count, is_good));
}
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// CopyDirection says where a copy goes.
type CopyDirection uint32

const (
	// CopyLoad: from host memory to a page of the device.
	CopyLoad CopyDirection = C.RKV_COPY_LOAD
	// CopyStore: from a page of the device to host memory.
	CopyStore CopyDirection = C.RKV_COPY_STORE
)

// CopyJob is a copy of one page that the engine carries out.
type CopyJob struct {
	// Job names it for [Cache.Complete].
	Job uint64
	// Host is its place in host memory.
	Host unsafe.Pointer
	// ByteCount is how long that is.
	ByteCount uint64
	// Sequence is, of a load, the one whose page it is.
	Sequence uint64
	// Page is the page of the device, in the group's pool.
	Page uint32
	// Direction is where it goes.
	Direction CopyDirection
	// Group is the group of layers whose page it is.
	Group uint32
}

// FetchEndFlags say something of a fetch that has ended.
type FetchEndFlags uint32

// FetchEndLate: the deadline came before everything had.
const FetchEndLate FetchEndFlags = C.RKV_FETCH_END_LATE

// FetchEnd is a fetch that has ended.
type FetchEnd struct {
	// Sequence is whose it was.
	Sequence uint64
	// PositionCount counts the positions that it need not compute.
	PositionCount uint64
	// WantedPageCount counts the pages that were to be fetched.
	WantedPageCount uint64
	// BroughtPageCount counts those that came.
	BroughtPageCount uint64
	// Flags are 0 or FetchEndLate.
	Flags FetchEndFlags
}

// copies are those that Poll gave and Complete has not taken: they go on in memory of the cache's.
type copies struct {
	mu        sync.Mutex // taken before the cache's; a Poll's as long as that runs
	goOn      map[uint64]struct{}
	isClosing bool
}

// close is the beginning of a Close, unless copies go on: none is given any more.
func (c *copies) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if count := len(c.goOn); count > 0 {
		return &Error{Status: InvalidState,
			Message: fmt.Sprintf("%d copies of Poll go on: Complete comes first", count)}
	}
	c.isClosing = true
	return nil
}

// end takes off what was completed. By number: a poisoned cache looks at none, so that one may be
// named again, or never have been.
func (c *copies) end(jobs []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, job := range jobs {
		delete(c.goOn, job)
	}
}

// Poll gives copies to carry out, and the fetches that have ended: it fills the front of both
// slices, with 64 of each at most, and says how much of each. Each copy has to be completed: Close
// is refused as long as one is not.
func (c *Cache) Poll(jobs []CopyJob, ends []FetchEnd) (jobCount, endCount int, err error) {
	if c == nil {
		return 0, 0, ErrClosed
	}
	c.copies.mu.Lock()
	defer c.copies.mu.Unlock()
	if c.copies.isClosing {
		return 0, 0, ErrClosed
	}
	raw, err := c.enter()
	if err != nil {
		return 0, 0, err
	}
	defer c.mu.RUnlock()
	const most = 64
	var jobRoom [most]C.rkv_copy_job
	var endRoom [most]C.rkv_fetch_end
	made := C.rkvgo_cache_poll(raw, &jobRoom[0], C.size_t(min(len(jobs), most)),
		&endRoom[0], C.size_t(min(len(ends), most)))
	jobCount, endCount = int(made.result.job_count), int(made.result.end_count)
	if c.copies.goOn == nil && jobCount > 0 {
		c.copies.goOn = make(map[uint64]struct{})
	}
	for i := 0; i < jobCount; i++ {
		job := &jobRoom[i]
		c.copies.goOn[uint64(job.job)] = struct{}{}
		jobs[i] = CopyJob{
			uint64(job.job), job.host, uint64(job.byte_count), uint64(job.sequence),
			uint32(job.page), CopyDirection(job.direction), uint32(job.group),
		}
	}
	for i := 0; i < endCount; i++ {
		end := &endRoom[i]
		ends[i] = FetchEnd{
			uint64(end.sequence), uint64(end.position_count), uint64(end.wanted_page_count),
			uint64(end.brought_page_count), FetchEndFlags(end.flags),
		}
	}
	return jobCount, endCount, asError(made.failure)
}

// Complete says that copies are done, or failed. With Poisoned, too, they have ended.
func (c *Cache) Complete(jobs []uint64, isGood bool) error {
	raw, err := c.enter()
	if err != nil {
		return err
	}
	defer c.mu.RUnlock()
	first := (*C.uint64_t)(unsafe.SliceData(jobs))
	err = asError(C.rkvgo_cache_complete(raw, first, C.size_t(len(jobs)), C.bool(isGood)))
	if err == nil || errors.Is(err, Poisoned) {
		c.copies.end(jobs)
	}
	return err
}
