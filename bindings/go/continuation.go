package radixkv

/*
#include "call.h"

typedef struct rkvgo_continue_made {
	rkvgo_failure *failure;
	rkv_sequence_info state;
} rkvgo_continue_made;

static inline rkvgo_continue_made rkvgo_sequence_continue(
	rkv_cache *cache, uint32_t flags, rkv_sequence_id parent, rkv_namespace space,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count,
	const uint32_t *all_ids, size_t all_count,
	const rkv_token_item *all_items, size_t all_item_count,
	uint64_t reserve_position_count, uint64_t allocate_position_count
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkv_tokens all_tokens = rkvgo_tokens(all_ids, all_count, all_items, all_item_count);
	rkv_sequence_continue_args args = {
		.struct_size = sizeof args,
		.flags = flags,
		.parent = parent,
		.space = &space,
		.tokens = &tokens,
		.all_tokens = all_count > 0 ? &all_tokens : NULL,
		.reserve_position_count = reserve_position_count,
		.allocate_position_count = allocate_position_count,
	};
	rkvgo_continue_made made = {0};
	made.state.struct_size = sizeof made.state;
	made.failure = rkvgo_end(rkv_sequence_continue(cache, &args, &made.state));
	return made;
}

static inline rkvgo_failure *rkvgo_sequence_fork(
	rkv_cache *cache, rkv_sequence_id parent, size_t child_count,
	uint64_t reserve_position_count, rkv_sequence_fork_child *children
) {
	rkv_sequence_fork_args args = {
		.struct_size = sizeof args,
		.parent = parent,
		.child_count = child_count,
		.reserve_position_count = reserve_position_count,
	};
	return rkvgo_end(rkv_sequence_fork(cache, &args, children, sizeof *children));
}

static inline rkvgo_bool rkvgo_sequence_retain(rkv_cache *cache, rkv_sequence_id sequence) {
	rkvgo_bool made = {0};
	made.failure = rkvgo_end(rkv_sequence_retain(cache, sequence, &made.value));
	return made;
}

static inline rkvgo_failure *rkvgo_sequence_drop(rkv_cache *cache, rkv_sequence_id sequence) {
	return rkvgo_end(rkv_sequence_drop(cache, sequence));
}

static inline rkvgo_count rkvgo_cache_drop_retained(rkv_cache *cache, size_t page_count) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_cache_drop_retained(cache, page_count, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_cache_drop_retained_pool(
	rkv_cache *cache, uint32_t pool, size_t page_count
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_cache_drop_retained_pool(cache, pool, page_count, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_cache_retained(
	const rkv_cache *cache, rkv_sequence_id *sequences, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_cache_read_retained(cache, sequences, capacity, &made.count));
	return made;
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

// ContinueFlags are options of Continue.
type ContinueFlags uint32

// ContinueRunning: take over what a parent that is still running has computed so far. Without it
// such a parent is [Pending].
const ContinueRunning ContinueFlags = C.RKV_CONTINUE_RUNNING

// ContinueArgs says how to go on from another sequence.
type ContinueArgs struct {
	// Flags are Continue flags.
	Flags ContinueFlags
	// Parent is a retained or a live sequence.
	Parent SequenceID
	// Namespace must be the parent's.
	Namespace Namespace
	// Tokens are what the child has after the tokens of its parent; none is fine.
	Tokens Tokens
	// AllTokens are all tokens of the child, to begin with by a lookup when the parent is neither
	// live nor retained any more; none when that is to fail.
	AllTokens Tokens
	// ReservePositionCount is how many positions beyond the child's tokens get pages at once.
	ReservePositionCount int
	// AllocatePositionCount is how many of the child's first positions get pages at once, as in
	// BeginArgs; 0 for all.
	AllocatePositionCount int
}

// Continue begins a sequence with all tokens that its parent has now and those that are given. What
// the parent has computed, as far as Publish was told, is taken over by reference: no lookup, no
// copy of whole pages. At least one token is left to compute.
func (c *Cache) Continue(args ContinueArgs) (Sequence, SequenceInfo, error) {
	if args.AllocatePositionCount < 0 { // in C: all
		return Sequence{}, SequenceInfo{}, invalid("args.AllocatePositionCount is negative")
	}
	raw, err := c.enter()
	if err != nil {
		return Sequence{}, SequenceInfo{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_sequence_continue(raw, C.uint32_t(args.Flags), C.rkv_sequence_id(args.Parent),
		args.Namespace.c(), args.Tokens.idPointer(), C.size_t(len(args.Tokens.IDs)),
		args.Tokens.itemPointer(), C.size_t(len(args.Tokens.Items)),
		args.AllTokens.idPointer(), C.size_t(len(args.AllTokens.IDs)),
		args.AllTokens.itemPointer(), C.size_t(len(args.AllTokens.Items)),
		C.uint64_t(args.ReservePositionCount), C.uint64_t(args.AllocatePositionCount))
	if err := asError(made.failure); err != nil {
		return Sequence{}, SequenceInfo{}, err
	}
	return Sequence{c, SequenceID(made.state.sequence)}, sequenceState(&made.state), nil
}

// ForkChild is a child of a fork.
type ForkChild struct {
	// Sequence is its id.
	Sequence SequenceID
	// Slot is its row in the page table.
	Slot uint32
	// CopyCount is how many page copies to carry out before the child computes: Sequence.Copies.
	CopyCount uint32
}

// The layout of a ForkChild is that of the C struct.
const _ = uint(unsafe.Sizeof(ForkChild{})-C.sizeof_rkv_sequence_fork_child) +
	uint(C.sizeof_rkv_sequence_fork_child-unsafe.Sizeof(ForkChild{})) +
	uint(unsafe.Offsetof(ForkChild{}.CopyCount)-12)

// Fork begins len(children) sequences with the tokens of this one, which is live or retained, and
// describes them there. All of them or none.
//
// Whole pages are shared once Publish was told that they are computed; the page that is computed in
// part is to be copied by each child. reservePositionCount is how many positions beyond the tokens
// get pages at once, for each child.
func (s Sequence) Fork(children []ForkChild, reservePositionCount int) error {
	raw, err := s.cache.enter()
	if err != nil {
		return err
	}
	defer s.cache.mu.RUnlock()
	return asError(C.rkvgo_sequence_fork(raw, C.rkv_sequence_id(s.id), C.size_t(len(children)),
		C.uint64_t(reservePositionCount),
		(*C.rkv_sequence_fork_child)(unsafe.Pointer(unsafe.SliceData(children)))))
}

// Retain ends the sequence like Release, but keeps its tokens and pages under its id for Continue
// and Fork. What is retained is not evicted; it stays until Drop, DropRetained, a Clear of its
// namespace, or until the bounds of CacheConfig are exceeded and the first to finish give way.
// False: it was released, for it alone is too large, its namespace was cleared since it began, or
// pages that a fetch brought were not published for want of memory: Publish before tries that
// again.
func (s Sequence) Retain() (bool, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return false, err
	}
	defer s.cache.mu.RUnlock()
	made := C.rkvgo_sequence_retain(raw, C.rkv_sequence_id(s.id))
	return bool(made.value), asError(made.failure)
}

// Drop drops a retained sequence.
func (s Sequence) Drop() error {
	raw, err := s.cache.enter()
	if err != nil {
		return err
	}
	defer s.cache.mu.RUnlock()
	return asError(C.rkvgo_sequence_drop(raw, C.rkv_sequence_id(s.id)))
}

// DropRetained drops retained sequences, the first to finish first, until pageCount more pages of
// pool 0 are available, and says how many more that are. No allocation does this by itself.
func (c *Cache) DropRetained(pageCount int) (int, error) {
	return c.dropRetained(pageCount, func(cache *C.rkv_cache) C.rkvgo_count {
		return C.rkvgo_cache_drop_retained(cache, C.size_t(pageCount))
	})
}

// DropRetainedPool is DropRetained for any pool: Shortage says which one is short.
func (c *Cache) DropRetainedPool(pool, pageCount int) (int, error) {
	return c.dropRetained(pageCount, func(cache *C.rkv_cache) C.rkvgo_count {
		return C.rkvgo_cache_drop_retained_pool(cache, number32(pool), C.size_t(pageCount))
	})
}

func (c *Cache) dropRetained(
	pageCount int, drop func(*C.rkv_cache) C.rkvgo_count,
) (int, error) {
	if pageCount < 0 {
		return 0, invalid("pageCount is negative") // in C it would be "everything"
	}
	raw, err := c.enter()
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	made := drop(raw)
	return int(made.count), asError(made.failure)
}

// Retained are the retained sequences, those that finished first at the front.
func (c *Cache) Retained() ([]SequenceID, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	// There may be more between the question for the count and the answer, hence a loop.
	var ids []SequenceID
	for {
		made := C.rkvgo_cache_retained(raw,
			(*C.rkv_sequence_id)(unsafe.Pointer(unsafe.SliceData(ids))), C.size_t(len(ids)))
		err := asError(made.failure)
		if err == nil && int(made.count) <= len(ids) {
			return ids[:made.count], nil
		}
		if err != nil && !errors.Is(err, BufferTooSmall) {
			return nil, err
		}
		ids = make([]SequenceID, made.count)
	}
}
