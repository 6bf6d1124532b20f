package radixkv

/*
#include "call.h"

// The failure of the last item that failed, to which the thread's message belongs.
static inline rkvgo_failure *rkvgo_end_many(
	rkv_status status, const rkv_status *statuses, size_t count
) {
	if (status != RKV_STATUS_OK) {
		return rkvgo_failure_copy(status);
	}
	while (count > 0 && statuses[count - 1] == RKV_STATUS_OK) {
		count--;
	}
	return count == 0 ? NULL : rkvgo_failure_copy(statuses[count - 1]);
}

static inline rkvgo_failure *rkvgo_begin_many(
	rkv_cache *cache, const rkv_sequence_begin_args *items, size_t count,
	rkv_sequence_info *results, rkv_status *statuses
) {
	return rkvgo_end_many(
		rkv_sequence_begin_many(cache, items, count, sizeof *items, results, sizeof *results, statuses),
		statuses, count);
}

static inline rkvgo_failure *rkvgo_append_many(
	rkv_cache *cache, const rkv_sequence_append_item *items, size_t count,
	rkv_status *statuses
) {
	return rkvgo_end_many(
		rkv_sequence_append_many(cache, items, count, sizeof *items, statuses),
		statuses, count);
}

static inline rkvgo_failure *rkvgo_publish_many(
	rkv_cache *cache, const rkv_sequence_publish_item *items, size_t count,
	rkv_sequence_publish_result *results, rkv_status *statuses
) {
	return rkvgo_end_many(
		rkv_sequence_publish_many(cache, items, count, sizeof *items, results, sizeof *results, statuses),
		statuses, count);
}

static inline rkvgo_failure *rkvgo_release_many(
	rkv_cache *cache, const rkv_sequence_id *items, size_t count,
	rkv_status *statuses
) {
	return rkvgo_end_many(
		rkv_sequence_release_many(cache, items, count, statuses),
		statuses, count);
}

static inline rkvgo_failure *rkvgo_match_many(
	rkv_cache *cache, const rkv_cache_match_item *items, size_t count,
	rkv_cache_match_result *results, rkv_status *statuses
) {
	return rkvgo_end_many(
		rkv_cache_match_many(cache, items, count, sizeof *items, results, sizeof *results, statuses),
		statuses, count);
}

static inline rkvgo_failure *rkvgo_probe_many(
	rkv_cache *cache, const rkv_cache_probe_item *items, size_t count,
	rkv_cache_probe_result *results, rkv_status *statuses
) {
	return rkvgo_end_many(
		rkv_cache_probe_many(cache, items, count, sizeof *items, results, sizeof *results, statuses),
		statuses, count);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// AppendItem is what AppendMany adds to a sequence.
type AppendItem struct {
	// Sequence is the sequence.
	Sequence SequenceID
	// Tokens are added to it.
	Tokens Tokens
}

// PublishItem is what PublishMany publishes of a sequence.
type PublishItem struct {
	// Sequence is the sequence.
	Sequence SequenceID
	// ComputedPositionCount counts the positions whose KV is written, from the beginning.
	ComputedPositionCount uint64
}

// LookupItem is one lookup of MatchMany or ProbeMany.
type LookupItem struct {
	// Namespace is where to look.
	Namespace Namespace
	// Tokens are what to look for.
	Tokens Tokens
	// Flags are options of MatchMany; ProbeMany has none.
	Flags MatchFlags
	// Pages receive the whole pages of MatchMany, as in Match.
	Pages []uint32
}

// ProbeResult is what ProbeMany found.
type ProbeResult struct {
	// TokenCount counts the tokens that Match would find.
	TokenCount uint64
	// PositionCount counts their positions.
	PositionCount uint64
}

// lists are the namespaces and token lists of many items, pinned while C reads them.
type lists struct {
	spaces []C.rkv_namespace
	tokens []C.rkv_tokens
	pins   runtime.Pinner
}

// listsOf takes those of count items. Copies of them lie one behind the other: a few pins do.
func listsOf(count int, item func(int) (Namespace, Tokens)) *lists {
	l := &lists{spaces: make([]C.rkv_namespace, count), tokens: make([]C.rkv_tokens, count)}
	var all Tokens
	for i := range l.spaces {
		space, tokens := item(i)
		l.spaces[i] = space.c()
		all.IDs = append(all.IDs, tokens.IDs...)
		all.Items = append(all.Items, tokens.Items...)
		l.tokens[i].count = C.size_t(len(tokens.IDs))
		l.tokens[i].item_count = C.size_t(len(tokens.Items))
	}
	pinned(&l.pins, all.IDs)
	pinned(&l.pins, all.Items)
	for i := range l.tokens {
		tokens := &l.tokens[i]
		tokens.struct_size, tokens.item_size = C.sizeof_rkv_tokens, C.sizeof_rkv_token_item
		tokens.ids, tokens.items = all.idPointer(), all.itemPointer()
		all.IDs, all.Items = all.IDs[tokens.count:], all.Items[tokens.item_count:]
	}
	pinned(&l.pins, l.spaces)
	pinned(&l.pins, l.tokens)
	return l
}

func pinned[T any](pins *runtime.Pinner, values []T) *T {
	if len(values) == 0 {
		return nil
	}
	pins.Pin(&values[0])
	return &values[0]
}

// walk makes one call for many items, with a result and a status for each; those of a closed cache
// are InvalidState, beside ErrClosed.
func walk[I, R any](
	c *Cache, count int, item func(int) I,
	call func(*C.rkv_cache, *I, C.size_t, *R, *C.rkv_status) *C.rkvgo_failure,
) ([]R, []Status, error) {
	results, statuses := make([]R, count), make([]Status, count)
	raw, err := c.enter()
	if err != nil {
		for i := range statuses {
			statuses[i] = InvalidState
		}
		return results, statuses, err
	}
	defer c.mu.RUnlock()
	items := make([]I, count)
	const untold Status = -1
	for i := range items {
		items[i], statuses[i] = item(i), untold
	}
	err = asError(call(raw, unsafe.SliceData(items), C.size_t(count),
		unsafe.SliceData(results), (*C.rkv_status)(unsafe.Pointer(unsafe.SliceData(statuses)))))
	// What was refused as a whole, or ended in the middle, says nothing of the items that are left.
	var whole *Error
	if errors.As(err, &whole) {
		for i := range statuses {
			if statuses[i] == untold {
				statuses[i] = whole.Status
			}
		}
	}
	return results, statuses, err
}

// BeginMany begins many sequences: as many calls of Begin, in order, in one crossing and with one
// lock as long as nobody waits for it. Each item has a status; the error is that of the last item
// that failed, and names it. The sequence of an item that failed is the zero one; the others have
// begun, also when there is an error, and are the caller's to release.
func (c *Cache) BeginMany(items []BeginArgs) ([]Sequence, []SequenceInfo, []Status, error) {
	l := listsOf(len(items), func(i int) (Namespace, Tokens) {
		return items[i].Namespace, items[i].Tokens
	})
	defer l.pins.Unpin()
	states, statuses, err := walk(c, len(items),
		func(i int) (made C.rkv_sequence_begin_args) {
			made.space, made.tokens = &l.spaces[i], &l.tokens[i]
			if items[i].AllocatePositionCount < 0 {
				made.tokens = nil // so that C refuses it; a large count would be "all"
			}
			made.reserve_position_count = C.uint64_t(items[i].ReservePositionCount)
			made.allocate_position_count = C.uint64_t(items[i].AllocatePositionCount)
			return made
		},
		func(
			raw *C.rkv_cache, items *C.rkv_sequence_begin_args, count C.size_t,
			results *C.rkv_sequence_info, statuses *C.rkv_status,
		) *C.rkvgo_failure {
			return C.rkvgo_begin_many(raw, items, count, results, statuses)
		})
	for i := len(items) - 1; i >= 0 && errors.Is(err, InvalidArgument); i-- {
		if statuses[i] != OK { // the last that failed, of which the error is
			if items[i].AllocatePositionCount < 0 {
				err = invalid(fmt.Sprintf("items[%d].AllocatePositionCount is negative", i))
			}
			break
		}
	}
	sequences, infos := make([]Sequence, len(states)), make([]SequenceInfo, len(states))
	for i := range states {
		if states[i].sequence != 0 {
			sequences[i] = Sequence{c, SequenceID(states[i].sequence)}
			infos[i] = sequenceState(&states[i])
		}
	}
	return sequences, infos, statuses, err
}

// AppendMany adds tokens to many sequences, e.g. to each the token just decoded: as many calls of
// Append, in order. Each item has a status; the error is that of the last item that failed, and
// names it.
func (c *Cache) AppendMany(items []AppendItem) ([]Status, error) {
	l := listsOf(len(items), func(i int) (Namespace, Tokens) {
		return Namespace{}, items[i].Tokens
	})
	defer l.pins.Unpin()
	_, statuses, err := walk(c, len(items),
		func(i int) C.rkv_sequence_append_item {
			made := C.rkv_sequence_append_item{sequence: C.rkv_sequence_id(items[i].Sequence)}
			if tokens := &l.tokens[i]; tokens.item_count > 0 {
				made.tokens = tokens
			} else {
				made.ids, made.id_count = tokens.ids, tokens.count
			}
			return made
		},
		func(
			raw *C.rkv_cache, items *C.rkv_sequence_append_item, count C.size_t,
			_ *struct{}, statuses *C.rkv_status,
		) *C.rkvgo_failure {
			return C.rkvgo_append_many(raw, items, count, statuses)
		})
	return statuses, err
}

// PublishMany publishes what many sequences have computed: as many calls of Publish, in order. Each
// item has a status; the error is that of the last item that failed, and names it.
func (c *Cache) PublishMany(items []PublishItem) ([]PublishResult, []Status, error) {
	made, statuses, err := walk(c, len(items),
		func(i int) C.rkv_sequence_publish_item {
			return C.rkv_sequence_publish_item{
				sequence:                C.rkv_sequence_id(items[i].Sequence),
				computed_position_count: C.uint64_t(items[i].ComputedPositionCount),
			}
		},
		func(
			raw *C.rkv_cache, items *C.rkv_sequence_publish_item, count C.size_t,
			results *C.rkv_sequence_publish_result, statuses *C.rkv_status,
		) *C.rkvgo_failure {
			return C.rkvgo_publish_many(raw, items, count, results, statuses)
		})
	results := make([]PublishResult, len(made))
	for i := range made {
		results[i] = publishResult(&made[i])
	}
	return results, statuses, err
}

// ReleaseMany ends many sequences: as many calls of Release, in order. Each has a status; the error
// is that of the last one that failed, and names it.
func (c *Cache) ReleaseMany(sequences []SequenceID) ([]Status, error) {
	_, statuses, err := walk(c, len(sequences),
		func(i int) C.rkv_sequence_id { return C.rkv_sequence_id(sequences[i]) },
		func(
			raw *C.rkv_cache, items *C.rkv_sequence_id, count C.size_t,
			_ *struct{}, statuses *C.rkv_status,
		) *C.rkvgo_failure {
			return C.rkvgo_release_many(raw, items, count, statuses)
		})
	return statuses, err
}

// MatchMany finds many prefixes: as many calls of Match, in order. Each item has a status; the
// error is that of the last item that failed, and names it.
func (c *Cache) MatchMany(items []LookupItem) ([]Match, []Status, error) {
	l := lookupLists(items)
	defer l.pins.Unpin()
	room := 0
	for _, item := range items {
		room += len(item.Pages)
	}
	pages := make([]uint32, room)
	pinned(&l.pins, pages)
	left := pages
	made, statuses, err := walk(c, len(items),
		func(i int) (made C.rkv_cache_match_item) {
			made.space, made.tokens = &l.spaces[i], &l.tokens[i]
			made.flags = C.uint32_t(items[i].Flags)
			made.pages, made.page_capacity = u32Pointer(left), C.size_t(len(items[i].Pages))
			left = left[len(items[i].Pages):]
			return made
		},
		func(
			raw *C.rkv_cache, items *C.rkv_cache_match_item, count C.size_t,
			results *C.rkv_cache_match_result, statuses *C.rkv_status,
		) *C.rkvgo_failure {
			return C.rkvgo_match_many(raw, items, count, results, statuses)
		})
	matches := make([]Match, len(made))
	for i := range made {
		matches[i] = matchOf(&made[i])
		into := items[i].Pages
		if statuses[i] == OK {
			copy(into, pages[:min(matches[i].PageCount, len(into))])
		}
		pages = pages[len(into):]
	}
	return matches, statuses, err
}

// ProbeMany finds the lengths of many prefixes: as many calls of Probe. Each item has a status; the
// error is that of the last item that failed, and names it.
func (c *Cache) ProbeMany(items []LookupItem) ([]ProbeResult, []Status, error) {
	l := lookupLists(items)
	defer l.pins.Unpin()
	made, statuses, err := walk(c, len(items),
		func(i int) C.rkv_cache_probe_item {
			return C.rkv_cache_probe_item{space: &l.spaces[i], tokens: &l.tokens[i]}
		},
		func(
			raw *C.rkv_cache, items *C.rkv_cache_probe_item, count C.size_t,
			results *C.rkv_cache_probe_result, statuses *C.rkv_status,
		) *C.rkvgo_failure {
			return C.rkvgo_probe_many(raw, items, count, results, statuses)
		})
	results := make([]ProbeResult, len(made))
	for i := range made {
		results[i] = ProbeResult{uint64(made[i].token_count), uint64(made[i].position_count)}
	}
	return results, statuses, err
}

func lookupLists(items []LookupItem) *lists {
	return listsOf(len(items), func(i int) (Namespace, Tokens) {
		return items[i].Namespace, items[i].Tokens
	})
}

// C writes statuses in place: an index other than zero does not compile.
var _ = [1]struct{}{}[unsafe.Sizeof(OK)-C.sizeof_rkv_status]
