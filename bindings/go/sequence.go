package radixkv

/*
#include "call.h"

typedef struct rkvgo_sequence_made {
	rkvgo_failure *failure;
	rkv_sequence_info state;
} rkvgo_sequence_made;

typedef struct rkvgo_publish_made {
	rkvgo_failure *failure;
	rkv_sequence_publish_result result;
} rkvgo_publish_made;

static inline rkvgo_sequence_made rkvgo_sequence_begin(
	rkv_cache *cache, rkv_namespace space,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count,
	uint64_t reserve_position_count, uint64_t allocate_position_count
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkv_sequence_begin_args args = {
		.struct_size = sizeof args,
		.space = &space,
		.tokens = &tokens,
		.reserve_position_count = reserve_position_count,
		.allocate_position_count = allocate_position_count,
	};
	rkvgo_sequence_made made = {0};
	made.state.struct_size = sizeof made.state;
	made.failure = rkvgo_end(rkv_sequence_begin(cache, &args, &made.state));
	return made;
}

static inline rkvgo_sequence_made rkvgo_sequence_query(
	const rkv_cache *cache, rkv_sequence_id sequence
) {
	rkvgo_sequence_made made = {0};
	made.state.struct_size = sizeof made.state;
	made.failure = rkvgo_end(rkv_sequence_read_info(cache, sequence, &made.state));
	return made;
}

static inline rkvgo_count rkvgo_sequence_copies(
	const rkv_cache *cache, rkv_sequence_id sequence, rkv_page_copy *copies, size_t capacity
) {
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_sequence_read_copies(
		cache, sequence, copies, sizeof *copies, capacity, &made.count));
	return made;
}

static inline rkvgo_failure *rkvgo_sequence_confirm_copies(
	rkv_cache *cache, rkv_sequence_id sequence
) {
	return rkvgo_end(rkv_sequence_confirm_copies(cache, sequence));
}

static inline rkvgo_failure *rkvgo_sequence_allocate(
	rkv_cache *cache, rkv_sequence_id sequence, uint64_t position_count
) {
	return rkvgo_end(rkv_sequence_allocate(cache, sequence, position_count));
}

static inline rkvgo_failure *rkvgo_sequence_append(
	rkv_cache *cache, rkv_sequence_id sequence,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	return rkvgo_end(rkv_sequence_append(cache, sequence, &tokens));
}

static inline rkvgo_failure *rkvgo_sequence_truncate(
	rkv_cache *cache, rkv_sequence_id sequence, uint64_t position_count
) {
	return rkvgo_end(rkv_sequence_truncate(cache, sequence, position_count));
}

static inline rkvgo_publish_made rkvgo_sequence_publish(
	rkv_cache *cache, rkv_sequence_id sequence, uint64_t computed_position_count
) {
	rkvgo_publish_made made = {0};
	made.result.struct_size = sizeof made.result;
	made.failure = rkvgo_end(
		rkv_sequence_publish(cache, sequence, computed_position_count, &made.result));
	return made;
}

static inline rkvgo_failure *rkvgo_sequence_release(rkv_cache *cache, rkv_sequence_id sequence) {
	return rkvgo_end(rkv_sequence_release(cache, sequence));
}
*/
import "C"

import "unsafe"

// SequenceID names a live sequence of one cache. Zero names none. An id is never used again for
// another one.
type SequenceID uint64

// BeginArgs says how to begin a sequence.
type BeginArgs struct {
	// Namespace is where to look and to publish.
	Namespace Namespace
	// Tokens are the prompt, at least one token.
	Tokens Tokens
	// ReservePositionCount is how many positions beyond the prompt get pages at once, e.g. for the
	// tokens to come. 0 is fine: Append allocates as it goes.
	ReservePositionCount int
	// AllocatePositionCount is how many of the prompt's first positions get pages at once, e.g. the
	// first chunk of the prefill; Allocate adds the others. 0 for all of them, and the reserve.
	AllocatePositionCount int
}

// SequenceInfo is a sequence as it stands.
type SequenceInfo struct {
	// Sequence is its id.
	Sequence SequenceID
	// Slot is its row in the page table.
	Slot uint32
	// PositionCount counts the positions of its tokens so far.
	PositionCount int
	// CachedPositionCount counts the positions whose KV was reused at Begin; computing starts here.
	// A token boundary, and less than the prompt; only of a fork's children it may be all of it.
	CachedPositionCount int
	// CachedTokenCount counts the tokens of those positions; the first to compute has this index.
	CachedTokenCount int
	// PageCount counts the pages of its row: fewer than its positions need while Allocate has not
	// added the others.
	PageCount int
	// SharedPageCount counts the leading pages of its row that the cache owns: never write to
	// these.
	SharedPageCount int
	// Node is what the sequence keeps locked, 0 for none.
	Node NodeID
	// CopyCount is how many page copies to carry out before computing, see Copies; 0 when there are
	// none, or none left.
	CopyCount int
	// InheritedPositionCount counts the reused positions that came from a parent; 0 unless Continue
	// or Fork made the sequence.
	InheritedPositionCount int
	// KnownPositionCount is how far its tokens were known at Begin, whatever groups lack; with one
	// group, and of a child, the same as CachedPositionCount.
	KnownPositionCount int
	// CheckpointAt is, with a STATE group, where to end a chunk, publish it and save the states:
	// see Match.CheckpointAt.
	CheckpointAt [2]int
	// LimitingGroup is the group that cost the most of the known positions; 0 when none did.
	LimitingGroup uint32
}

// PublishResult says what Publish did.
type PublishResult struct {
	// ClaimedPageCount counts the pages that went from the sequence to the cache.
	ClaimedPageCount int
	// RemappedPageCount counts the pages that somebody else had published first: the row maps those
	// now, ours are free again.
	RemappedPageCount int
	// FirstRemappedIndex is the row index of the first remapped page; the row's length when none
	// was. Mirrors of the row need an update from here to SharedPageCount.
	FirstRemappedIndex int
	// SharedPageCount counts the leading pages of the row that the cache owns now.
	SharedPageCount int
	// Node is what the sequence keeps locked now, 0 for none. It takes the place of the one that
	// SequenceInfo or an earlier Publish named, whose id may be stale.
	Node NodeID
}

// Sequence is a live sequence of a cache, from Begin to Release, or a retained one. It is a small
// value to be copied at will, without a finalizer: a sequence that is never released keeps its
// pages until the cache is closed.
type Sequence struct {
	cache *Cache
	id    SequenceID
}

// Begin finds the longest cached prefix, locks it, takes a slot, maps the shared pages and
// allocates the others, or the first of them, evicting when the pool is short. It happens whole or
// not at all, and is refused where the whole prompt and the reserve would not fit. At least
// one token is left to compute.
func (c *Cache) Begin(args BeginArgs) (Sequence, SequenceInfo, error) {
	if args.AllocatePositionCount < 0 { // in C: all
		return Sequence{}, SequenceInfo{}, invalid("args.AllocatePositionCount is negative")
	}
	raw, err := c.enter()
	if err != nil {
		return Sequence{}, SequenceInfo{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_sequence_begin(raw, args.Namespace.c(),
		args.Tokens.idPointer(), C.size_t(len(args.Tokens.IDs)),
		args.Tokens.itemPointer(), C.size_t(len(args.Tokens.Items)),
		C.uint64_t(args.ReservePositionCount), C.uint64_t(args.AllocatePositionCount))
	if err := asError(made.failure); err != nil {
		return Sequence{}, SequenceInfo{}, err
	}
	return Sequence{c, SequenceID(made.state.sequence)}, sequenceState(&made.state), nil
}

// Sequence is the sequence of this cache that an id names. Whether it lives is seen in use.
func (c *Cache) Sequence(id SequenceID) Sequence { return Sequence{c, id} }

// ID is the sequence's id.
func (s Sequence) ID() SequenceID { return s.id }

// Info is the sequence as it stands.
func (s Sequence) Info() (SequenceInfo, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return SequenceInfo{}, err
	}
	defer s.cache.mu.RUnlock()
	made := C.rkvgo_sequence_query(raw, C.rkv_sequence_id(s.id))
	if err := asError(made.failure); err != nil {
		return SequenceInfo{}, err
	}
	return sequenceState(&made.state), nil
}

// Copies are the page copies that the sequence waits for: the first positions of pages of the cache
// or of a parent, to private pages of the sequence. Carry them out in every layer before it
// computes, then call ConfirmCopies; until then the sources stay protected.
func (s Sequence) Copies() ([]PageCopy, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return nil, err
	}
	defer s.cache.mu.RUnlock()
	copies := make([]PageCopy, 16) // two for each group are enough
	made := C.rkvgo_sequence_copies(raw, C.rkv_sequence_id(s.id),
		(*C.rkv_page_copy)(unsafe.Pointer(unsafe.SliceData(copies))), C.size_t(len(copies)))
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	return copies[:made.count], nil
}

// ConfirmCopies says that the copies are done: the source pages are no longer protected by them.
func (s Sequence) ConfirmCopies() error {
	raw, err := s.cache.enter()
	if err != nil {
		return err
	}
	defer s.cache.mu.RUnlock()
	return asError(C.rkvgo_sequence_confirm_copies(raw, C.rkv_sequence_id(s.id)))
}

// CarryOutCopies gives each of Copies to carryOut, then calls ConfirmCopies, if there were any. It
// returns how many.
func (s Sequence) CarryOutCopies(carryOut func(PageCopy)) (int, error) {
	copies, err := s.Copies()
	if err != nil || len(copies) == 0 {
		return 0, err
	}
	for _, one := range copies {
		carryOut(one)
	}
	return len(copies), s.ConfirmCopies()
}

// Allocate adds the pages that the first positionCount positions lack, evicting when the pool is
// short: for the next chunk of a prompt that began with AllocatePositionCount. All or nothing.
func (s Sequence) Allocate(positionCount int) error {
	raw, err := s.cache.enter()
	if err != nil {
		return err
	}
	defer s.cache.mu.RUnlock()
	return asError(C.rkvgo_sequence_allocate(raw, C.rkv_sequence_id(s.id),
		C.uint64_t(positionCount)))
}

// Append adds tokens, e.g. the one just decoded, and the pages they need, evicting when the pool is
// short. All or nothing.
func (s Sequence) Append(tokens Tokens) error {
	raw, err := s.cache.enter()
	if err != nil {
		return err
	}
	defer s.cache.mu.RUnlock()
	return asError(C.rkvgo_sequence_append(raw, C.rkv_sequence_id(s.id),
		tokens.idPointer(), C.size_t(len(tokens.IDs)),
		tokens.itemPointer(), C.size_t(len(tokens.Items))))
}

// Truncate takes the last positions off and keeps positionCount: no fewer than the prompt has and
// are published, and not inside an image, nor what a child has yet to copy. Pages stay with the
// row. With a GroupState it makes the state after those positions the sequence's, of those that the
// last step left in the group's row, one behind each token: GroupConfig.DraftStateCount.
func (s Sequence) Truncate(positionCount int) error {
	raw, err := s.cache.enter()
	if err != nil {
		return err
	}
	defer s.cache.mu.RUnlock()
	return asError(C.rkvgo_sequence_truncate(raw, C.rkv_sequence_id(s.id),
		C.uint64_t(positionCount)))
}

// Publish publishes the whole pages among the first computedPositionCount positions, whose KV is
// written, so that others find them. It may be called after every chunk of a prefill and during
// decode; fewer positions than before does nothing.
func (s Sequence) Publish(computedPositionCount int) (PublishResult, error) {
	raw, err := s.cache.enter()
	if err != nil {
		return PublishResult{}, err
	}
	defer s.cache.mu.RUnlock()
	made := C.rkvgo_sequence_publish(raw, C.rkv_sequence_id(s.id),
		C.uint64_t(computedPositionCount))
	return publishResult(&made.result), asError(made.failure)
}

func publishResult(raw *C.rkv_sequence_publish_result) PublishResult {
	return PublishResult{
		ClaimedPageCount:   int(raw.claimed_page_count),
		RemappedPageCount:  int(raw.remapped_page_count),
		FirstRemappedIndex: int(raw.first_remapped_index),
		SharedPageCount:    int(raw.shared_page_count),
		Node:               NodeID(raw.node),
	}
}

// Release ends the sequence: its private pages return to the pool, what it published stays in the
// cache.
func (s Sequence) Release() error {
	raw, err := s.cache.enter()
	if err != nil {
		return err
	}
	defer s.cache.mu.RUnlock()
	return asError(C.rkvgo_sequence_release(raw, C.rkv_sequence_id(s.id)))
}

func sequenceState(state *C.rkv_sequence_info) SequenceInfo {
	return SequenceInfo{
		Sequence:               SequenceID(state.sequence),
		Slot:                   uint32(state.slot),
		PositionCount:          int(state.position_count),
		CachedPositionCount:    int(state.cached_position_count),
		CachedTokenCount:       int(state.cached_token_count),
		PageCount:              int(state.page_count),
		SharedPageCount:        int(state.shared_page_count),
		Node:                   NodeID(state.node),
		CopyCount:              int(state.copy_count),
		InheritedPositionCount: int(state.inherited_position_count),
		KnownPositionCount:     int(state.known_position_count),
		CheckpointAt:           [2]int{int(state.checkpoint_at[0]), int(state.checkpoint_at[1])},
		LimitingGroup:          uint32(state.limiting_group),
	}
}
