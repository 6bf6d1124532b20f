package radixkv

/*
#include "snapshot.h"

typedef struct rkvgo_snapshot_inserted {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
	rkv_snapshot_cache_insert_result result;
} rkvgo_snapshot_inserted;

typedef struct rkvgo_snapshot_found {
	rkvgo_failure *failure;
	rkv_snapshot_cache_match_result match;
	uintptr_t handle;
} rkvgo_snapshot_found;

typedef struct rkvgo_snapshot_removed {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
	bool removed;
} rkvgo_snapshot_removed;

typedef struct rkvgo_snapshot_released {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
} rkvgo_snapshot_released;

// With a failure the handle stays the caller's.
static inline rkvgo_snapshot_inserted rkvgo_snapshot_cache_insert(
	rkv_snapshot_cache *cache, rkv_namespace space, const uint32_t *ids, size_t count,
	uintptr_t handle, uint64_t size_bytes, bool has_next_token, uint32_t next_token, uint32_t flags
) {
	rkvgo_snapshot_inserted made = {0};
	rkv_tokens tokens = rkvgo_tokens(ids, count, NULL, 0);
	rkv_snapshot_cache_insert_args args = {
		.struct_size = sizeof args,
		.flags = flags,
		.space = &space,
		.tokens = &tokens,
		.data = rkvgo_snapshot_new(handle),
		.size_bytes = size_bytes,
		.destructor = rkvgo_snapshot_destroy,
		.user_data = NULL,
		.has_next_token = has_next_token,
		.next_token = next_token,
	};
	if (args.data == NULL) {
		made.failure = rkvgo_no_memory();
		return made;
	}
	made.result.struct_size = sizeof made.result;
	made.failure = rkvgo_end(rkv_snapshot_cache_insert(cache, &args, &made.result));
	if (made.failure != NULL) {
		rkvgo_snapshot_free(args.data);
	}
	made.freed = rkvgo_snapshots_take();
	return made;
}

static inline rkvgo_snapshot_found rkvgo_snapshot_cache_match(
	rkv_snapshot_cache *cache, rkv_namespace space, const uint32_t *ids, size_t count,
	uint32_t flags
) {
	rkvgo_snapshot_found made = {0};
	rkv_tokens tokens = rkvgo_tokens(ids, count, NULL, 0);
	made.match.struct_size = sizeof made.match;
	made.failure = rkvgo_end(
		rkv_snapshot_cache_match(cache, &space, &tokens, flags, &made.match));
	if (made.match.pin != 0) {
		made.handle = ((rkvgo_snapshot *)made.match.data)->handle;
	}
	return made;
}

static inline rkvgo_count rkvgo_snapshot_cache_probe(
	const rkv_snapshot_cache *cache, rkv_namespace space, const uint32_t *ids, size_t count
) {
	rkvgo_count made = {0};
	rkv_tokens tokens = rkvgo_tokens(ids, count, NULL, 0);
	made.failure = rkvgo_end(
		rkv_snapshot_cache_probe(cache, &space, &tokens, &made.count));
	return made;
}

static inline rkvgo_snapshot_released rkvgo_snapshot_cache_release(
	rkv_snapshot_cache *cache, rkv_pin_id pin
) {
	rkvgo_snapshot_released made = {0};
	made.failure = rkvgo_end(rkv_snapshot_cache_release(cache, pin));
	made.freed = rkvgo_snapshots_take();
	return made;
}

static inline rkvgo_snapshot_removed rkvgo_snapshot_cache_remove(
	rkv_snapshot_cache *cache, rkv_namespace space, const uint32_t *ids, size_t count
) {
	rkvgo_snapshot_removed made = {0};
	rkv_tokens tokens = rkvgo_tokens(ids, count, NULL, 0);
	made.failure = rkvgo_end(
		rkv_snapshot_cache_remove(cache, &space, &tokens, &made.removed));
	made.freed = rkvgo_snapshots_take();
	return made;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"runtime/cgo"
	"sync/atomic"
)

// SnapshotInsertFlags are options of an insert.
type SnapshotInsertFlags uint32

// SnapshotInsertTrimmable: the engine can take the end of this state away. MatchWith and
// SnapshotMatchTrimmable find it for lists that have only its first tokens.
const SnapshotInsertTrimmable SnapshotInsertFlags = C.RKV_SNAPSHOT_INSERT_TRIMMABLE

// SnapshotMatchFlags are options of a match.
type SnapshotMatchFlags uint32

// SnapshotMatchTrimmable: an entry that is trimmable counts with the tokens that it has in common
// with the list.
const SnapshotMatchTrimmable SnapshotMatchFlags = C.RKV_SNAPSHOT_MATCH_TRIMMABLE

// SnapshotArgs says what Insert puts where.
type SnapshotArgs[V any] struct {
	// Namespace separates what must not be found by others.
	Namespace Namespace
	// Tokens led to the state: text ids below TextIDLimit. They are copied.
	Tokens []uint32
	// Value is the snapshot.
	Value V
	// SizeBytes is what it takes, for the byte limit.
	SizeBytes uint64
	// HasNextToken says that NextToken is set.
	HasNextToken bool
	// NextToken is the token that the model predicts after Tokens.
	NextToken uint32
	// Flags are 0 or SnapshotInsertTrimmable.
	Flags SnapshotInsertFlags
}

// SnapshotInsertResult says what Insert did.
type SnapshotInsertResult struct {
	// Stored says that the value is in the cache. Else it was freed at once.
	Stored bool
	// Replaced says that it took the place of another.
	Replaced bool
	// EvictedCount counts the entries that went for the limits.
	EvictedCount int
}

// Insert stores a value for a token list, in the place of an earlier one if there is one. The cache
// takes the value over; after an error it stays the caller's. A value that is larger than the byte
// limit, one for no tokens, and any in a disabled cache is freed before Insert returns.
func (c *SnapshotCache[V]) Insert(args SnapshotArgs[V]) (SnapshotInsertResult, error) {
	raw, err := c.enter()
	if err != nil {
		return SnapshotInsertResult{}, err
	}
	handle := cgo.NewHandle(&snapshotBox[V]{args.Value})
	made := C.rkvgo_snapshot_cache_insert(raw, args.Namespace.c(), u32Pointer(args.Tokens),
		C.size_t(len(args.Tokens)), C.uintptr_t(handle), C.uint64_t(args.SizeBytes),
		C.bool(args.HasNextToken), C.uint32_t(args.NextToken), C.uint32_t(args.Flags))
	c.mu.RUnlock()
	if err := asError(made.failure); err != nil {
		handle.Delete()
		return SnapshotInsertResult{}, err
	}
	freeSnapshots(made.freed, c.free)
	return SnapshotInsertResult{
		Stored:       made.result.stored != 0,
		Replaced:     made.result.replaced != 0,
		EvictedCount: int(made.result.evicted_count),
	}, nil
}

// SnapshotPin keeps a value that Match found until Release.
type SnapshotPin[V any] struct {
	// TokenCount is the number of tokens that the value covers.
	TokenCount int
	// CommonTokenCount is the number of those that the list begins with: all, but with
	// SnapshotMatchTrimmable. The rest begins at this index.
	CommonTokenCount int
	// SizeBytes is what it takes.
	SizeBytes uint64
	// FullHit says that these are all tokens: with NextToken no forward pass is needed.
	FullHit bool
	// HasNextToken says that NextToken is set.
	HasNextToken bool
	// NextToken is the token that the model predicts after the tokens that the value covers.
	NextToken uint32

	// The library keeps what is behind raw as long as the pin is out, closed or not.
	raw      *C.rkv_snapshot_cache
	pin      C.rkv_pin_id
	value    V
	free     func(V)
	released atomic.Bool
}

// Match finds the value of the longest stored prefix and pins it: it is not freed until the pin is
// released. A miss is no error: the pin is nil then.
func (c *SnapshotCache[V]) Match(
	namespace Namespace, tokens []uint32,
) (*SnapshotPin[V], error) {
	return c.MatchWith(namespace, tokens, 0)
}

// MatchWith is Match with options.
func (c *SnapshotCache[V]) MatchWith(
	namespace Namespace, tokens []uint32, flags SnapshotMatchFlags,
) (*SnapshotPin[V], error) {
	raw, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_snapshot_cache_match(raw, namespace.c(), u32Pointer(tokens),
		C.size_t(len(tokens)), C.uint32_t(flags))
	if err := asError(made.failure); err != nil || made.match.pin == 0 {
		return nil, err
	}
	p := &SnapshotPin[V]{
		TokenCount:       int(made.match.token_count),
		CommonTokenCount: int(made.match.common_token_count),
		SizeBytes:        uint64(made.match.size_bytes),
		FullHit:          made.match.full_hit != 0,
		HasNextToken:     made.match.has_next_token != 0,
		NextToken:        uint32(made.match.next_token),
		raw:              raw,
		pin:              made.match.pin,
		value:            cgo.Handle(made.handle).Value().(*snapshotBox[V]).value,
		free:             c.free,
	}
	runtime.SetFinalizer(p, func(p *SnapshotPin[V]) { _ = p.Release() }) // for the forgotten
	return p, nil
}

// Value is the snapshot. It must not be used after Release.
func (p *SnapshotPin[V]) Value() V { return p.value }

// Release ends the pin. A second one gives StalePin. The cache may be closed already.
func (p *SnapshotPin[V]) Release() error {
	if p == nil || p.pin == 0 {
		return invalid("the pin is none")
	}
	if p.released.Swap(true) {
		return &Error{Status: StalePin,
			Message: fmt.Sprintf("pin %#x was released before", uint64(p.pin))}
	}
	made := C.rkvgo_snapshot_cache_release(p.raw, p.pin)
	runtime.SetFinalizer(p, nil)
	freeSnapshots(made.freed, p.free)
	return asError(made.failure)
}

// Probe is the length of the longest stored prefix: the tokens that Match would find. It changes
// nothing.
func (c *SnapshotCache[V]) Probe(namespace Namespace, tokens []uint32) (int, error) {
	raw, err := c.enter()
	if err != nil {
		return 0, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_snapshot_cache_probe(raw, namespace.c(), u32Pointer(tokens),
		C.size_t(len(tokens)))
	return int(made.count), asError(made.failure)
}

// Remove removes the entry of exactly these tokens and says whether there was one. A value that is
// pinned stays until its pins are released.
func (c *SnapshotCache[V]) Remove(namespace Namespace, tokens []uint32) (bool, error) {
	raw, err := c.enter()
	if err != nil {
		return false, err
	}
	made := C.rkvgo_snapshot_cache_remove(raw, namespace.c(), u32Pointer(tokens),
		C.size_t(len(tokens)))
	c.mu.RUnlock()
	freeSnapshots(made.freed, c.free)
	return bool(made.removed), asError(made.failure)
}
