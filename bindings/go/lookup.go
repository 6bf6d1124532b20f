package radixkv

/*
#include "call.h"

typedef struct rkvgo_match_made {
	rkvgo_failure *failure;
	rkv_cache_match_result match;
} rkvgo_match_made;

typedef struct rkvgo_probe_made {
	rkvgo_failure *failure;
	size_t token_count;
	size_t position_count;
} rkvgo_probe_made;

static inline rkvgo_match_made rkvgo_cache_match(
	rkv_cache *cache, rkv_namespace space,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count,
	uint32_t flags, uint32_t *pages, size_t page_capacity
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkvgo_match_made made = {0};
	made.match.struct_size = sizeof made.match;
	made.failure = rkvgo_end(rkv_cache_match(
		cache, &space, &tokens, flags, pages, page_capacity, &made.match));
	return made;
}

static inline rkvgo_probe_made rkvgo_cache_probe(
	const rkv_cache *cache, rkv_namespace space,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkvgo_probe_made made = {0};
	made.failure = rkvgo_end(rkv_cache_probe(
		cache, &space, &tokens, &made.token_count, &made.position_count));
	return made;
}
*/
import "C"

// MatchFlags are options of a match.
type MatchFlags uint32

// MatchLock: lock the match in the same step. Undo with Unlock of Match.Lock.
const MatchLock MatchFlags = C.RKV_MATCH_LOCK

// Match is the longest cached prefix of a token list.
type Match struct {
	// Node ends where the whole pages end; 0 when no whole page matched.
	Node NodeID
	// PageCount is the number of whole pages that matched.
	PageCount int
	// TokenCount is the number of tokens that matched; the rest begins at this index. It never ends
	// inside an image.
	TokenCount int
	// PositionCount is the number of positions of those tokens:
	// PageCount * page size + PartialPositionCount.
	PositionCount int
	// KnownPositionCount is the number of positions that are known, of which groups beside the
	// first can reuse only PositionCount: ProbeGroups says which costs how much.
	KnownPositionCount int
	// CheckpointAt says, with a GroupState, where to end a chunk and save the states, so that the
	// next request gets that far. The smaller one first; 0 where there is none to be saved.
	CheckpointAt [2]int
	// LimitingGroup is the group that cost the most of the known positions; 0 when none did.
	LimitingGroup int
	// PartialPositionCount is how many positions at the start of PartialPage match as well.
	PartialPositionCount int
	// PartialPage holds those positions; copy them, never write to the page. Else 0.
	PartialPage uint32
	// PartialNode owns PartialPage; 0 when there is none.
	PartialNode NodeID
	// Lock is, with MatchLock, what protects all pages of the match; 0 when nothing matched.
	Lock LockID
}

// Match finds the longest cached prefix, at token granularity, and refreshes the recency of its
// path. A miss is no error.
//
// The whole pages are written to pages, in order; len(positions) / page size is always enough, and
// with no room at all they are not reported. With BufferTooSmall the needed PageCount is returned
// and the cache is unchanged. The pages stay good while the match is locked.
func (c *Cache) Match(
	namespace Namespace, tokens Tokens, flags MatchFlags, pages []uint32,
) (Match, error) {
	raw, err := c.enter()
	if err != nil {
		return Match{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_match(raw, namespace.c(), tokens.idPointer(), C.size_t(len(tokens.IDs)),
		tokens.itemPointer(), C.size_t(len(tokens.Items)),
		C.uint32_t(flags), u32Pointer(pages), C.size_t(len(pages)))
	return matchOf(&made.match), asError(made.failure)
}

func matchOf(made *C.rkv_cache_match_result) Match {
	return Match{
		Node:                 NodeID(made.node),
		PageCount:            int(made.page_count),
		TokenCount:           int(made.token_count),
		PositionCount:        int(made.position_count),
		KnownPositionCount:   int(made.known_position_count),
		CheckpointAt:         [2]int{int(made.checkpoint_at[0]), int(made.checkpoint_at[1])},
		LimitingGroup:        int(made.limiting_group),
		PartialPositionCount: int(made.partial_position_count),
		PartialPage:          uint32(made.partial_page),
		PartialNode:          NodeID(made.partial_node),
		Lock:                 LockID(made.lock),
	}
}

// Probe is the length of the longest cached prefix: the tokens that Match would find, and their
// positions. It changes nothing, and waits for no eviction.
func (c *Cache) Probe(
	namespace Namespace, tokens Tokens,
) (tokenCount, positionCount int, err error) {
	raw, err := c.enter()
	if err != nil {
		return 0, 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_probe(raw, namespace.c(), tokens.idPointer(), C.size_t(len(tokens.IDs)),
		tokens.itemPointer(), C.size_t(len(tokens.Items)))
	return int(made.token_count), int(made.position_count), asError(made.failure)
}
