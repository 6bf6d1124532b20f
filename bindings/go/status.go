package radixkv

// #include "call.h"
import "C"

import "errors"

// Status is the result code of the library. It implements error, so that
// errors.Is(err, radixkv.StaleNode) tells what happened.
type Status int32

// The statuses: 1-99 the caller's mistakes, 100-199 resources, 900 and above the library's own.
const (
	// OK is no error: no method returns it.
	OK Status = C.RKV_STATUS_OK
	// InvalidArgument: an argument is out of range, inconsistent or unknown; the message names it.
	InvalidArgument Status = C.RKV_STATUS_INVALID_ARGUMENT
	// StaleNode: the id names no node of this cache: evicted, changed, foreign, or never issued.
	StaleNode Status = C.RKV_STATUS_STALE_NODE
	// StaleSequence: the id names no live sequence of this cache.
	StaleSequence Status = C.RKV_STATUS_STALE_SEQUENCE
	// StaleLock: the lock id names no lock of this cache: undone, foreign, or never issued.
	StaleLock Status = C.RKV_STATUS_STALE_LOCK
	// BufferTooSmall: the slice is too short; the needed count was returned.
	BufferTooSmall Status = C.RKV_STATUS_BUFFER_TOO_SMALL
	// InvalidState: the object is in a state that does not allow the call.
	InvalidState Status = C.RKV_STATUS_INVALID_STATE
	// Unsupported: this build cannot do what was asked.
	Unsupported Status = C.RKV_STATUS_UNSUPPORTED
	// StalePin: the pin was released before, or is of another cache.
	StalePin Status = C.RKV_STATUS_STALE_PIN
	// StaleTicket: the fetch was taken or cancelled before, or is of another cache or attachment.
	StaleTicket Status = C.RKV_STATUS_STALE_TICKET
	// OutOfPages: not enough pages, even if everything reclaimable were evicted; see [Shortage].
	OutOfPages Status = C.RKV_STATUS_OUT_OF_PAGES
	// OutOfSlots: not enough slots of the page table are free.
	OutOfSlots Status = C.RKV_STATUS_OUT_OF_SLOTS
	// OutOfMemory: the host is out of memory, or the GPU is.
	OutOfMemory Status = C.RKV_STATUS_OUT_OF_MEMORY
	// Busy: the page table already has a cache.
	Busy Status = C.RKV_STATUS_BUSY
	// Pending: the sequence to go on from is still running, ask again when it is retained; or what
	// was started still goes on.
	Pending Status = C.RKV_STATUS_PENDING
	// Device: the GPU or its driver refused or failed.
	Device Status = C.RKV_STATUS_DEVICE
	// Storage: the disk, or what is on it, does not allow the call; the message says what and where.
	Storage Status = C.RKV_STATUS_STORAGE
	// Internal: a bug in the library. The handle refuses further work.
	Internal Status = C.RKV_STATUS_INTERNAL
	// Poisoned: an earlier call on this handle ended with Internal; only Close is left.
	Poisoned Status = C.RKV_STATUS_POISONED
	// Corrupt: a check of the invariants failed; the message names the one.
	Corrupt Status = C.RKV_STATUS_CORRUPT
)

// Error is the name of the status in C, e.g. "RKV_STATUS_STALE_NODE".
func (s Status) Error() string {
	return C.GoString(C.rkv_status_name(C.int32_t(s)))
}

// Shortage says in pages why an allocation was refused: free + reclaimable < needed.
type Shortage struct {
	// Pool is the pool that is short; 0 without a list of pools.
	Pool int
	// NeededPageCount is what the call needed beyond the pages that it could share.
	NeededPageCount uint64
	// FreePageCount is the free pool.
	FreePageCount uint64
	// ReclaimablePageCount counts the cached pages that eviction could free.
	ReclaimablePageCount uint64
	// LockedPageCount counts the cached pages that locks protect.
	LockedPageCount uint64
	// PrivatePageCount counts the pages that belong to rows, to retained sequences or to the caller.
	PrivatePageCount uint64
	// RetainedPageCount counts the locked and private ones that retained sequences keep: what
	// DropRetained can help with.
	RetainedPageCount uint64
}

// Error is a failed call.
type Error struct {
	// Status is what errors.Is compares.
	Status Status
	// Message explains the failure and names the argument.
	Message string
	// Shortage is set when Status is OutOfPages.
	Shortage *Shortage
}

// Error is the message behind the name of the status.
func (e *Error) Error() string {
	return "radixkv: " + e.Status.Error() + ": " + e.Message
}

// Unwrap gives the status.
func (e *Error) Unwrap() error { return e.Status }

// ErrClosed is what the methods of a handle return that is closed, nil, or the zero value of its
// type, and calls that are given one.
var ErrClosed = errors.New("radixkv: use of a handle that is closed, or was never opened")

// invalid is a mistake that is found before the library is asked.
func invalid(message string) error {
	return &Error{Status: InvalidArgument, Message: message}
}

// asError copies what a helper fetched about a failure.
func asError(failure *C.rkvgo_failure) error {
	if failure == nil {
		return nil
	}
	return failed(failure)
}

// failed is apart from asError so that the way of a success is short enough to be inlined.
func failed(failure *C.rkvgo_failure) error {
	defer C.rkvgo_failure_free(failure)
	e := &Error{Status: Status(failure.status), Message: C.GoString(failure.message)}
	if failure.has_shortage {
		e.Shortage = &Shortage{
			Pool:                 int(failure.shortage.pool),
			NeededPageCount:      uint64(failure.shortage.needed_page_count),
			FreePageCount:        uint64(failure.shortage.free_page_count),
			ReclaimablePageCount: uint64(failure.shortage.reclaimable_page_count),
			LockedPageCount:      uint64(failure.shortage.locked_page_count),
			PrivatePageCount:     uint64(failure.shortage.private_page_count),
			RetainedPageCount:    uint64(failure.shortage.retained_page_count),
		}
	}
	return e
}
