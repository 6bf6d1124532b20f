package radixkv

/*
#include "call.h"

#include <stdlib.h>

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

// Token lists that lie one behind the other.
typedef struct rkvgo_lists {
	const uint32_t *ids;
	const size_t *id_counts;
	const rkv_token_item *items;
	const size_t *item_counts;
	size_t count;
} rkvgo_lists;

static inline rkv_tokens *rkvgo_split(rkvgo_lists lists) {
	rkv_tokens *split = calloc(lists.count + 1, sizeof *split);
	for (size_t i = 0; split != NULL && i < lists.count; i++) {
		split[i] = rkvgo_tokens(lists.ids, lists.id_counts[i], lists.items, lists.item_counts[i]);
		lists.ids += lists.id_counts[i];
		lists.items += lists.item_counts[i];
	}
	return split;
}

static inline rkvgo_failure *rkvgo_begin_many(
	rkv_cache *cache, const rkv_namespace *spaces,
	const uint32_t *ids, const size_t *id_counts,
	const rkv_token_item *token_items, const size_t *item_counts,
	const uint64_t *positions, size_t count, rkv_sequence_info *states, rkv_status *statuses
) {
	rkvgo_lists lists = {ids, id_counts, token_items, item_counts, count};
	rkv_tokens *tokens = rkvgo_split(lists);
	rkv_sequence_begin_args *items = calloc(count + 1, sizeof *items);
	rkvgo_failure *failure = rkvgo_no_memory();
	if (tokens != NULL && items != NULL) {
		for (size_t i = 0; i < count; i++) {
			items[i].space = &spaces[i];
			items[i].tokens = &tokens[i];
			items[i].reserve_position_count = positions[2 * i];
			items[i].allocate_position_count = positions[2 * i + 1];
		}
		failure = rkvgo_end_many(
			rkv_sequence_begin_many(
				cache, items, count, sizeof *items, states, sizeof *states, statuses),
			statuses, count);
	}
	free(items);
	free(tokens);
	return failure;
}

static inline rkvgo_failure *rkvgo_append_many(
	rkv_cache *cache, const rkv_sequence_id *sequences,
	const uint32_t *ids, const size_t *id_counts,
	const rkv_token_item *token_items, const size_t *item_counts,
	size_t count, rkv_status *statuses
) {
	rkvgo_lists lists = {ids, id_counts, token_items, item_counts, count};
	rkv_tokens *tokens = rkvgo_split(lists);
	rkv_sequence_append_item *items = calloc(count + 1, sizeof *items);
	rkvgo_failure *failure = rkvgo_no_memory();
	if (tokens != NULL && items != NULL) {
		for (size_t i = 0; i < count; i++) {
			items[i].sequence = sequences[i];
			if (item_counts[i] > 0) {
				items[i].tokens = &tokens[i];
			} else {
				items[i].ids = tokens[i].ids;
				items[i].id_count = tokens[i].count;
			}
		}
		failure = rkvgo_end_many(
			rkv_sequence_append_many(cache, items, count, sizeof *items, statuses),
			statuses, count);
	}
	free(items);
	free(tokens);
	return failure;
}

static inline rkvgo_failure *rkvgo_publish_many(
	rkv_cache *cache, const rkv_sequence_publish_item *items, size_t count,
	rkv_sequence_publish_result *results, rkv_status *statuses
) {
	return rkvgo_end_many(
		rkv_sequence_publish_many(
			cache, items, count, sizeof *items, results, sizeof *results, statuses),
		statuses, count);
}

static inline rkvgo_failure *rkvgo_release_many(
	rkv_cache *cache, const rkv_sequence_id *sequences, size_t count, rkv_status *statuses
) {
	return rkvgo_end_many(
		rkv_sequence_release_many(cache, sequences, count, statuses), statuses, count);
}

static inline rkvgo_failure *rkvgo_match_many(
	rkv_cache *cache, const rkv_namespace *spaces,
	const uint32_t *ids, const size_t *id_counts,
	const rkv_token_item *token_items, const size_t *item_counts,
	const uint32_t *flags, uint32_t *pages, const size_t *capacities,
	size_t count, rkv_cache_match_result *matches, rkv_status *statuses
) {
	rkvgo_lists lists = {ids, id_counts, token_items, item_counts, count};
	rkv_tokens *tokens = rkvgo_split(lists);
	rkv_cache_match_item *items = calloc(count + 1, sizeof *items);
	rkvgo_failure *failure = rkvgo_no_memory();
	if (tokens != NULL && items != NULL) {
		for (size_t i = 0; i < count; i++) {
			items[i].space = &spaces[i];
			items[i].tokens = &tokens[i];
			items[i].flags = flags[i];
			items[i].pages = pages;
			items[i].page_capacity = capacities[i];
			pages += capacities[i];
		}
		failure = rkvgo_end_many(
			rkv_cache_match_many(
				cache, items, count, sizeof *items, matches, sizeof *matches, statuses),
			statuses, count);
	}
	free(items);
	free(tokens);
	return failure;
}

static inline rkvgo_failure *rkvgo_probe_many(
	rkv_cache *cache, const rkv_namespace *spaces,
	const uint32_t *ids, const size_t *id_counts,
	const rkv_token_item *token_items, const size_t *item_counts,
	size_t count, rkv_cache_probe_result *results, rkv_status *statuses
) {
	rkvgo_lists lists = {ids, id_counts, token_items, item_counts, count};
	rkv_tokens *tokens = rkvgo_split(lists);
	rkv_cache_probe_item *items = calloc(count + 1, sizeof *items);
	rkvgo_failure *failure = rkvgo_no_memory();
	if (tokens != NULL && items != NULL) {
		for (size_t i = 0; i < count; i++) {
			items[i].space = &spaces[i];
			items[i].tokens = &tokens[i];
		}
		failure = rkvgo_end_many(
			rkv_cache_probe_many(
				cache, items, count, sizeof *items, results, sizeof *results, statuses),
			statuses, count);
	}
	free(items);
	free(tokens);
	return failure;
}
*/
import "C"

import "unsafe"

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

// lists are the token lists of many items, one behind the other: C may not be given Go memory that
// holds Go pointers.
type lists struct {
	spaces           []C.rkv_namespace
	tokens           Tokens
	idCounts, counts []C.size_t
}

func (l *lists) add(namespace Namespace, tokens Tokens) {
	l.spaces = append(l.spaces, namespace.c())
	l.tokens.IDs = append(l.tokens.IDs, tokens.IDs...)
	l.tokens.Items = append(l.tokens.Items, tokens.Items...)
	l.idCounts = append(l.idCounts, C.size_t(len(tokens.IDs)))
	l.counts = append(l.counts, C.size_t(len(tokens.Items)))
}

func statusPointer(statuses []Status) *C.rkv_status {
	return (*C.rkv_status)(unsafe.Pointer(unsafe.SliceData(statuses)))
}

// BeginMany begins many sequences: as many calls of Begin, in order, in one crossing and with one
// lock as long as nobody waits for it. Each item has a status; the error is that of the last item
// that failed, and names it. The sequence of an item that failed is the zero one.
func (c *Cache) BeginMany(items []BeginArgs) ([]Sequence, []SequenceInfo, []Status, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, nil, nil, err
	}
	defer c.mu.RUnlock()
	var l lists
	var positions []C.uint64_t
	for _, item := range items {
		l.add(item.Namespace, item.Tokens)
		positions = append(positions, C.uint64_t(item.ReservePositionCount),
			C.uint64_t(item.AllocatePositionCount))
	}
	states, statuses := make([]C.rkv_sequence_info, len(items)), make([]Status, len(items))
	err = asError(C.rkvgo_begin_many(raw, unsafe.SliceData(l.spaces),
		l.tokens.idPointer(), unsafe.SliceData(l.idCounts),
		l.tokens.itemPointer(), unsafe.SliceData(l.counts), unsafe.SliceData(positions),
		C.size_t(len(items)), unsafe.SliceData(states), statusPointer(statuses)))
	sequences, infos := make([]Sequence, len(items)), make([]SequenceInfo, len(items))
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
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	var l lists
	var sequences []C.rkv_sequence_id
	for _, item := range items {
		l.add(Namespace{}, item.Tokens)
		sequences = append(sequences, C.rkv_sequence_id(item.Sequence))
	}
	statuses := make([]Status, len(items))
	return statuses, asError(C.rkvgo_append_many(raw, unsafe.SliceData(sequences),
		l.tokens.idPointer(), unsafe.SliceData(l.idCounts),
		l.tokens.itemPointer(), unsafe.SliceData(l.counts),
		C.size_t(len(items)), statusPointer(statuses)))
}

// PublishMany publishes what many sequences have computed: as many calls of Publish, in order. Each
// item has a status; the error is that of the last item that failed, and names it.
func (c *Cache) PublishMany(items []PublishItem) ([]PublishResult, []Status, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, nil, err
	}
	defer c.mu.RUnlock()
	made := make([]C.rkv_sequence_publish_result, len(items))
	statuses := make([]Status, len(items))
	err = asError(C.rkvgo_publish_many(raw,
		(*C.rkv_sequence_publish_item)(unsafe.Pointer(unsafe.SliceData(items))),
		C.size_t(len(items)), unsafe.SliceData(made), statusPointer(statuses)))
	results := make([]PublishResult, len(items))
	for i := range made {
		results[i] = PublishResult{
			ClaimedPageCount:   int(made[i].claimed_page_count),
			RemappedPageCount:  int(made[i].remapped_page_count),
			FirstRemappedIndex: int(made[i].first_remapped_index),
			SharedPageCount:    int(made[i].shared_page_count),
			Node:               NodeID(made[i].node),
		}
	}
	return results, statuses, err
}

// ReleaseMany ends many sequences: as many calls of Release, in order. Each has a status; the error
// is that of the last one that failed, and names it.
func (c *Cache) ReleaseMany(sequences []SequenceID) ([]Status, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	statuses := make([]Status, len(sequences))
	return statuses, asError(C.rkvgo_release_many(raw,
		(*C.rkv_sequence_id)(unsafe.Pointer(unsafe.SliceData(sequences))),
		C.size_t(len(sequences)), statusPointer(statuses)))
}

// MatchMany finds many prefixes: as many calls of Match, in order. Each item has a status; the
// error is that of the last item that failed, and names it.
func (c *Cache) MatchMany(items []LookupItem) ([]Match, []Status, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, nil, err
	}
	defer c.mu.RUnlock()
	var l lists
	var flags []C.uint32_t
	var capacities []C.size_t
	room := 0
	for _, item := range items {
		l.add(item.Namespace, item.Tokens)
		flags = append(flags, C.uint32_t(item.Flags))
		capacities = append(capacities, C.size_t(len(item.Pages)))
		room += len(item.Pages)
	}
	pages := make([]uint32, room)
	made, statuses := make([]C.rkv_cache_match_result, len(items)), make([]Status, len(items))
	err = asError(C.rkvgo_match_many(raw, unsafe.SliceData(l.spaces),
		l.tokens.idPointer(), unsafe.SliceData(l.idCounts),
		l.tokens.itemPointer(), unsafe.SliceData(l.counts),
		unsafe.SliceData(flags), u32Pointer(pages), unsafe.SliceData(capacities),
		C.size_t(len(items)), unsafe.SliceData(made), statusPointer(statuses)))
	matches := make([]Match, len(items))
	for i, item := range items {
		matches[i] = matchOf(&made[i])
		if statuses[i] == OK {
			copy(item.Pages, pages[:min(matches[i].PageCount, len(item.Pages))])
		}
		pages = pages[len(item.Pages):]
	}
	return matches, statuses, err
}

// ProbeMany finds the lengths of many prefixes: as many calls of Probe. Each item has a status; the
// error is that of the last item that failed, and names it.
func (c *Cache) ProbeMany(items []LookupItem) ([]ProbeResult, []Status, error) {
	raw, err := c.enter()
	if err != nil {
		return nil, nil, err
	}
	defer c.mu.RUnlock()
	var l lists
	for _, item := range items {
		l.add(item.Namespace, item.Tokens)
	}
	results, statuses := make([]ProbeResult, len(items)), make([]Status, len(items))
	return results, statuses, asError(C.rkvgo_probe_many(raw, unsafe.SliceData(l.spaces),
		l.tokens.idPointer(), unsafe.SliceData(l.idCounts),
		l.tokens.itemPointer(), unsafe.SliceData(l.counts), C.size_t(len(items)),
		(*C.rkv_cache_probe_result)(unsafe.Pointer(unsafe.SliceData(results))),
		statusPointer(statuses)))
}

// C reads and writes slices of these in place: an index other than zero does not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(OK)-C.sizeof_rkv_status]
	_ = [1]struct{}{}[unsafe.Sizeof(PublishItem{})-C.sizeof_rkv_sequence_publish_item]
	_ = [1]struct{}{}[unsafe.Offsetof(PublishItem{}.ComputedPositionCount)-
		unsafe.Offsetof(C.rkv_sequence_publish_item{}.computed_position_count)]
	_ = [1]struct{}{}[unsafe.Sizeof(ProbeResult{})-C.sizeof_rkv_cache_probe_result]
	_ = [1]struct{}{}[unsafe.Offsetof(ProbeResult{}.PositionCount)-
		unsafe.Offsetof(C.rkv_cache_probe_result{}.position_count)]
)
