package radixkv

/*
#include "snapshot.h"

typedef struct rkvgo_snapshot_inserted {
	rkvgo_failure *failure;
	rkvgo_snapshot *freed;
	rkv_snapshot_cache_insert_result result;
} rkvgo_snapshot_inserted;

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
	uintptr_t handle, uint64_t size_bytes, bool has_next_token, uint32_t next_token,
	uint32_t flags, const rkv_snapshot_part *parts, uint64_t part_count, rkvgo_shelf *shelf
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
		.destructor = part_count == 0 ? rkvgo_snapshot_destroy : rkvgo_snapshot_shelve,
		.user_data = shelf,
		.has_next_token = has_next_token,
		.next_token = next_token,
		.parts = parts,
		.part_count = part_count,
		.part_size = part_count == 0 ? 0 : sizeof *parts,
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
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_snapshot_found rkvgo_snapshot_cache_match(
	rkv_snapshot_cache *cache, rkv_namespace space, const uint32_t *ids, size_t count,
	uint32_t flags, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_found made = {0};
	rkv_tokens tokens = rkvgo_tokens(ids, count, NULL, 0);
	made.match.struct_size = sizeof made.match;
	made.failure = rkvgo_end(
		rkv_snapshot_cache_match(cache, &space, &tokens, flags, &made.match));
	rkvgo_snapshot_name(&made);
	made.freed = rkvgo_snapshots_take(shelf);
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
	rkv_snapshot_cache *cache, rkv_pin_id pin, rkvgo_shelf *shelf
) {
	rkvgo_snapshot_released made = {0};
	made.failure = rkvgo_end(rkv_snapshot_cache_release(cache, pin));
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}

static inline rkvgo_snapshot_removed rkvgo_snapshot_cache_remove(
	rkv_snapshot_cache *cache, rkv_namespace space, const uint32_t *ids, size_t count,
	rkvgo_shelf *shelf
) {
	rkvgo_snapshot_removed made = {0};
	rkv_tokens tokens = rkvgo_tokens(ids, count, NULL, 0);
	made.failure = rkvgo_end(
		rkv_snapshot_cache_remove(cache, &space, &tokens, &made.removed));
	made.freed = rkvgo_snapshots_take(shelf);
	return made;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"runtime/cgo"
	"sync/atomic"
	"unsafe"
)

// SnapshotInsertFlags are options of an insert.
type SnapshotInsertFlags uint32

const (
	// SnapshotInsertStorable: the Parts may be written below memory, to what Attach put there, and
	// are found again after the value had to leave, also by another process later.
	SnapshotInsertStorable SnapshotInsertFlags = C.RKV_SNAPSHOT_INSERT_STORABLE
	// SnapshotInsertTrimmable: the engine can take the end of this state away. MatchWith and
	// SnapshotMatchTrimmable find it for lists that have only its first tokens.
	SnapshotInsertTrimmable SnapshotInsertFlags = C.RKV_SNAPSHOT_INSERT_TRIMMABLE
)

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
	// Flags are SnapshotInsertStorable, SnapshotInsertTrimmable, both or 0.
	Flags SnapshotInsertFlags
	// Parts are, with SnapshotInsertStorable, the bytes of which the value is made: one slice at
	// least. They are not copied, and must not change until the value was freed.
	Parts [][]byte
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
// limit, one for no tokens, and any in a disabled cache is freed before Insert returns; a storable
// one perhaps by another call that runs then, and a little later.
func (c *SnapshotCache[V]) Insert(args SnapshotArgs[V]) (SnapshotInsertResult, error) {
	if args.Flags&SnapshotInsertStorable != 0 && len(args.Parts) == 0 {
		return SnapshotInsertResult{}, invalid("args.Parts is empty: a storable value has parts")
	}
	raw, err := c.enter()
	if err != nil {
		return SnapshotInsertResult{}, err
	}
	box := &snapshotBox[V]{value: args.Value}
	var parts *C.rkv_snapshot_part
	if len(args.Parts) != 0 {
		box.shelf, box.pinner = c.shelf, new(runtime.Pinner)
		pinned := make([]C.rkv_snapshot_part, len(args.Parts))
		for i, part := range args.Parts {
			if len(part) != 0 {
				pin(box.pinner, unsafe.Pointer(&part[0]))
				pinned[i].data = unsafe.Pointer(&part[0])
			}
			pinned[i].size_bytes = C.uint64_t(len(part))
		}
		parts = &pinned[0]
	}
	handle := cgo.NewHandle(box)
	made := C.rkvgo_snapshot_cache_insert(raw, args.Namespace.c(), u32Pointer(args.Tokens),
		C.size_t(len(args.Tokens)), C.uintptr_t(handle), C.uint64_t(args.SizeBytes),
		C.bool(args.HasNextToken), C.uint32_t(args.NextToken), C.uint32_t(args.Flags),
		parts, C.uint64_t(len(args.Parts)), c.shelf.c)
	c.mu.RUnlock()
	if err := asError(made.failure); err != nil {
		handle.Delete()
		box.unpin()
		freeSnapshots(made.freed, c.free)
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
	// FullHit says that these are all tokens: with NextToken no forward pass is needed. It is false
	// of what a fetch brought: compare TokenCount.
	FullHit bool
	// HasNextToken says that NextToken is set.
	HasNextToken bool
	// NextToken is the token that the model predicts after the tokens that the value covers.
	NextToken uint32
	// IsCopy says that it was read from below memory: there is no value, and Parts are the bytes.
	IsCopy bool

	// The library keeps what is behind raw as long as the pin is out, closed or not.
	raw *C.rkv_snapshot_cache
	pin C.rkv_pin_id
	// Not closed by the garbage collector while the pin is there: Parts needs it open.
	cache    *SnapshotCache[V]
	value    V
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
	pin, _, err := c.Find(namespace, tokens, flags)
	return pin, err
}

// Find is MatchWith that also counts the tokens in common with what Fetch would bring from below
// memory, when they are more; else 0. The pin is nil for a miss.
func (c *SnapshotCache[V]) Find(
	namespace Namespace, tokens []uint32, flags SnapshotMatchFlags,
) (pin *SnapshotPin[V], fetchableTokenCount int, err error) {
	raw, err := c.enter()
	if err != nil {
		return nil, 0, err
	}
	made := C.rkvgo_snapshot_cache_match(raw, namespace.c(), u32Pointer(tokens),
		C.size_t(len(tokens)), C.uint32_t(flags), c.shelf.c)
	c.mu.RUnlock()
	pin, err = c.pinned(raw, made), asError(made.failure)
	freeSnapshotsOr(pin.Release, made.freed, c.free)
	return pin, int(made.match.fetchable_token_count), err
}

// pinned is the pin of a match; nil for a miss and for a failure.
func (c *SnapshotCache[V]) pinned(
	raw *C.rkv_snapshot_cache, made C.rkvgo_snapshot_found,
) *SnapshotPin[V] {
	if made.match.pin == 0 {
		return nil
	}
	p := &SnapshotPin[V]{
		TokenCount:       int(made.match.token_count),
		CommonTokenCount: int(made.match.common_token_count),
		SizeBytes:        uint64(made.match.size_bytes),
		FullHit:          made.match.full_hit != 0,
		HasNextToken:     made.match.has_next_token != 0,
		NextToken:        uint32(made.match.next_token),
		IsCopy:           made.match.is_copy != 0,
		raw:              raw,
		pin:              made.match.pin,
		cache:            c,
	}
	if !p.IsCopy {
		p.value = cgo.Handle(made.handle).Value().(*snapshotBox[V]).value
	}
	runtime.SetFinalizer(p, func(p *SnapshotPin[V]) { _ = p.Release() }) // for the forgotten
	return p
}

// Value is the snapshot. It must not be used after Release. The zero value when IsCopy.
func (p *SnapshotPin[V]) Value() V { return p.value }

// Release ends the pin. A second one gives StalePin. The cache may be closed already.
func (p *SnapshotPin[V]) Release() error {
	if p == nil || p.pin == 0 {
		return invalid("the pin is none")
	}
	if p.released.Swap(true) {
		return p.wasReleased()
	}
	made := C.rkvgo_snapshot_cache_release(p.raw, p.pin, p.cache.shelf.c)
	runtime.SetFinalizer(p, nil)
	err := asError(made.failure)
	freeSnapshots(made.freed, p.cache.free)
	return err
}

func (p *SnapshotPin[V]) wasReleased() error {
	return &Error{Status: StalePin,
		Message: fmt.Sprintf("pin %#x was released before", uint64(p.pin))}
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
		C.size_t(len(tokens)), c.shelf.c)
	c.mu.RUnlock()
	err = asError(made.failure)
	freeSnapshots(made.freed, c.free)
	return bool(made.removed), err
}
