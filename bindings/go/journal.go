package radixkv

/*
#include "call.h"

typedef struct rkvgo_journal_made {
	rkvgo_failure *failure;
	rkv_cache_read_journal_result result;
} rkvgo_journal_made;

typedef struct rkvgo_contents_made {
	rkvgo_failure *failure;
	rkv_cache_read_contents_result result;
} rkvgo_contents_made;

// The buffers lie in Go memory, which C may be given only one by one.
#define RKVGO_ROOM \
	rkv_journal_record *records, size_t record_capacity, uint32_t *pages, size_t page_capacity, \
		uint32_t *tokens, size_t token_capacity, rkv_journal_item *items, size_t item_capacity

static inline rkv_journal_buffers rkvgo_room(RKVGO_ROOM) {
	return (rkv_journal_buffers){
		.struct_size = sizeof(rkv_journal_buffers),
		.records = records,
		.record_size = sizeof *records,
		.record_capacity = record_capacity,
		.pages = pages,
		.page_capacity = page_capacity,
		.tokens = tokens,
		.token_capacity = token_capacity,
		.items = items,
		.item_size = sizeof *items,
		.item_capacity = item_capacity,
	};
}

// The cache, or the page table when that is NULL.
static inline rkvgo_journal_made rkvgo_read_journal(
	const rkv_cache *cache, const rkv_page_table *table, uint64_t after_number, RKVGO_ROOM
) {
	rkv_journal_buffers room = rkvgo_room(records, record_capacity, pages, page_capacity,
		tokens, token_capacity, items, item_capacity);
	rkvgo_journal_made made = {0};
	made.result.struct_size = sizeof made.result;
	made.failure = rkvgo_end(cache
		? rkv_cache_read_journal(cache, after_number, &room, &made.result)
		: rkv_page_table_read_journal(table, after_number, &room, &made.result));
	return made;
}

static inline rkvgo_contents_made rkvgo_read_contents(
	const rkv_cache *cache, uint32_t first_page, RKVGO_ROOM
) {
	rkv_journal_buffers room = rkvgo_room(records, record_capacity, pages, page_capacity,
		tokens, token_capacity, items, item_capacity);
	rkvgo_contents_made made = {0};
	made.result.struct_size = sizeof made.result;
	made.failure = rkvgo_end(rkv_cache_read_contents(cache, first_page, &room, &made.result));
	return made;
}
*/
import "C"

import (
	"errors"
	"unsafe"
)

// JournalKind says what happened to the pages of a record. Expect others.
type JournalKind uint32

const (
	// JournalStored: pages came in, one after another in a prefix.
	JournalStored JournalKind = C.RKV_JOURNAL_STORED
	// JournalRemoved: pages left, the first of them first.
	JournalRemoved JournalKind = C.RKV_JOURNAL_REMOVED
	// JournalMoved: pages went to another tier. No library writes it yet.
	JournalMoved JournalKind = C.RKV_JOURNAL_MOVED
	// JournalCleared: a namespace was cleared. It names no pages.
	JournalCleared JournalKind = C.RKV_JOURNAL_CLEARED
)

// RemovalReason says why pages left. Expect others.
type RemovalReason uint32

const (
	// ReasonCapacity: evicted to make room, inside a call that allocates.
	ReasonCapacity RemovalReason = C.RKV_REASON_CAPACITY
	// ReasonCaller: evicted by Evict.
	ReasonCaller RemovalReason = C.RKV_REASON_CALLER
	// ReasonInvalidated: cleared by Clear.
	ReasonInvalidated RemovalReason = C.RKV_REASON_INVALIDATED
	// ReasonReplaced: another page took its place. No library writes it yet.
	ReasonReplaced RemovalReason = C.RKV_REASON_REPLACED
	// ReasonDestroyed: the cache was closed.
	ReasonDestroyed RemovalReason = C.RKV_REASON_DESTROYED
	// ReasonLimit: a path had more checkpoints than CacheConfig.CheckpointLimit.
	ReasonLimit RemovalReason = C.RKV_REASON_LIMIT
)

// JournalRecord says what happened to some pages. Its slices are good until its JournalBuffers are
// read into again.
type JournalRecord struct {
	// Number is one higher than that of the record before.
	Number uint64
	// Kind is what happened.
	Kind JournalKind
	// Reason says why removed pages left, and of a cleared namespace why; else 0.
	Reason RemovalReason
	// Group is that of the pages. A page of a group beside the first hangs on the page of group 0
	// that has the same positions, and is removed before that one is.
	Group uint32
	// Pages are the pages.
	Pages []uint32
	// Group0Pages are, of stored pages, those of group 0 with the same positions.
	Group0Pages []uint32

	// Namespace is that of stored pages, and the one that was cleared.
	Namespace Namespace
	// ParentPage is the page of group 0 before the first stored one; 0 at the beginning of a prefix.
	ParentPage uint32
	// FirstPosition is the position in the prefix at which the first stored page begins.
	FirstPosition uint64
	// Tokens has an id for each position of stored pages, TextIDLimit where an item says what is
	// there.
	Tokens []uint32
	// Items are the tokens that are not text.
	Items []JournalItem
}

// JournalItem is a coordinate, a size, or an image, of which pages may hold a part.
type JournalItem struct {
	// Kind is TokenCoord, TokenSize or TokenImage.
	Kind TokenKind
	// Position is the first of its positions, counted from the record's first page.
	Position uint32
	// PositionCount is how many positions.
	PositionCount uint32
	// ImageOffset is how many positions of an image stand before those.
	ImageOffset uint32
	// ImagePositionCount is that of the whole image; 0 for the other kinds.
	ImagePositionCount uint32
	// Bin is that of a coordinate or of a width.
	Bin uint32
	// HeightBin is that of a height.
	HeightBin uint32
	reserved  uint32
	// Digest is that of an image's content.
	Digest Digest
}

// JournalBuffers is room for records. Kept from call to call it stops allocating. Zero is ready to
// use. Not for several goroutines at once.
type JournalBuffers struct {
	// Records are those that were read last.
	Records []JournalRecord

	raw    []C.rkv_journal_record
	pages  []uint32
	tokens []uint32
	items  []JournalItem
}

// Room that zero buffers get.
const (
	journalRecords = 256
	journalPages   = 1024
	journalTokens  = 16384
)

// JournalRead says how far records were read.
type JournalRead struct {
	// LastNumber is the after of the next call: all up to it were read, or are lost.
	LastNumber uint64
	// NewestNumber is that of the newest record.
	NewestNumber uint64
	// OldestNumber is that of the oldest record still there; NewestNumber + 1 for none.
	OldestNumber uint64
	// LostCount counts the records after the one that was asked for that were overwritten before
	// they were read. More than 0: start again with ReadContents.
	LostCount uint64
}

// ContentsRead says how far the contents were told.
type ContentsRead struct {
	// NextPage is the firstPage of the next call; 0 when all were told.
	NextPage uint32
	// Number is that of the newest record when the call began. Of the first call: go on with
	// ReadJournal after it.
	Number uint64
	// NewestNumber is that of the newest record when the call ended. Of the last call: with all
	// records up to it applied, what was told is right.
	NewestNumber uint64
}

// ReadJournal reads the records after a number, as many as fit. It needs CacheConfig.JournalBytes.
func (c *Cache) ReadJournal(after uint64, into *JournalBuffers) (JournalRead, error) {
	raw, err := c.enter()
	if err != nil {
		return JournalRead{}, err
	}
	defer c.mu.RUnlock()
	return into.readJournal(raw, nil, after)
}

// ReadJournal reads the records of the cache that the page table has, or of the last one: that all
// pages left with a cache can be read here alone.
func (t *PageTable) ReadJournal(after uint64, into *JournalBuffers) (JournalRead, error) {
	raw, err := t.enter()
	if err != nil {
		return JournalRead{}, err
	}
	defer t.mu.RUnlock()
	return into.readJournal(nil, raw, after)
}

// ReadContents tells what the cache holds from a page on, as records of stored pages. Call it with
// 0, then with NextPage until that is 0, then go on with ReadJournal after the Number of the first
// call: a stored page replaces what was known of its number, a removed page that is not known is
// passed over.
func (c *Cache) ReadContents(firstPage uint32, into *JournalBuffers) (ContentsRead, error) {
	raw, err := c.enter()
	if err != nil {
		return ContentsRead{}, err
	}
	defer c.mu.RUnlock()
	into.prepare()
	for {
		made := C.rkvgo_read_contents(raw, C.uint32_t(firstPage),
			unsafe.SliceData(into.raw), C.size_t(len(into.raw)),
			u32Pointer(into.pages), C.size_t(len(into.pages)),
			u32Pointer(into.tokens), C.size_t(len(into.tokens)),
			into.itemPointer(), C.size_t(len(into.items)))
		if again, err := into.take(asError(made.failure), uint64(made.result.record_count),
			uint64(made.result.page_count), uint64(made.result.token_count),
			uint64(made.result.item_count)); err != nil {
			return ContentsRead{}, err
		} else if again {
			continue
		}
		return ContentsRead{
			NextPage:     uint32(made.result.next_page),
			Number:       uint64(made.result.number),
			NewestNumber: uint64(made.result.newest_number),
		}, nil
	}
}

func (b *JournalBuffers) readJournal(
	cache *C.rkv_cache, table *C.rkv_page_table, after uint64,
) (JournalRead, error) {
	b.prepare()
	for {
		made := C.rkvgo_read_journal(cache, table, C.uint64_t(after),
			unsafe.SliceData(b.raw), C.size_t(len(b.raw)),
			u32Pointer(b.pages), C.size_t(len(b.pages)),
			u32Pointer(b.tokens), C.size_t(len(b.tokens)),
			b.itemPointer(), C.size_t(len(b.items)))
		if again, err := b.take(asError(made.failure), uint64(made.result.record_count),
			uint64(made.result.page_count), uint64(made.result.token_count),
			uint64(made.result.item_count)); err != nil {
			return JournalRead{}, err
		} else if again {
			continue
		}
		return JournalRead{
			LastNumber:   uint64(made.result.last_number),
			NewestNumber: uint64(made.result.newest_number),
			OldestNumber: uint64(made.result.oldest_number),
			LostCount:    uint64(made.result.lost_count),
		}, nil
	}
}

func (b *JournalBuffers) prepare() {
	b.Records = b.Records[:0]
	b.raw = atLeast(b.raw, journalRecords)
	b.pages = atLeast(b.pages, journalPages)
	b.tokens = atLeast(b.tokens, journalTokens)
}

func (b *JournalBuffers) itemPointer() *C.rkv_journal_item {
	return (*C.rkv_journal_item)(unsafe.Pointer(unsafe.SliceData(b.items)))
}

// take makes records of what a call wrote; or room for one record, when none did fit.
func (b *JournalBuffers) take(
	err error, records, pages, tokens, items uint64,
) (again bool, failed error) {
	if errors.Is(err, BufferTooSmall) {
		b.raw = atLeast(b.raw, records)
		b.pages = atLeast(b.pages, pages)
		b.tokens = atLeast(b.tokens, tokens)
		b.items = atLeast(b.items, items)
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for i := range b.raw[:records] {
		raw := &b.raw[i]
		made := JournalRecord{
			Number: uint64(raw.number),
			Kind:   JournalKind(raw.kind),
			Reason: RemovalReason(raw.reason),
			Group:  uint32(raw.group),
			// Without room behind: what is appended is not to land in the next record.
			Pages:         b.pages[raw.page_index:][:raw.page_count:raw.page_count],
			Group0Pages:   b.pages[raw.group_0_page_index:][:raw.page_count:raw.page_count],
			ParentPage:    uint32(raw.parent_page),
			FirstPosition: uint64(raw.first_position),
			Tokens:        b.tokens[raw.token_index:][:raw.token_count:raw.token_count],
			Items:         b.items[raw.item_index:][:raw.item_count:raw.item_count],
		}
		made.Namespace = Namespace{
			Flags:       NamespaceFlags(raw.namespace_flags),
			LoRAID:      uint64(raw.lora_id),
			Epoch:       uint64(raw.epoch),
			ImageDigest: *(*Digest)(unsafe.Pointer(&raw.image_digest)),
			Salt:        *(*[32]byte)(unsafe.Pointer(&raw.salt)),
		}
		b.Records = append(b.Records, made)
	}
	return false, nil
}

func atLeast[T any](buffer []T, count uint64) []T {
	if uint64(len(buffer)) >= count {
		return buffer
	}
	return make([]T, count)
}

// C writes items in place: an index other than zero does not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(JournalItem{})-C.sizeof_rkv_journal_item]
	_ = [1]struct{}{}[unsafe.Offsetof(JournalItem{}.Position)-
		unsafe.Offsetof(C.rkv_journal_item{}.position)]
	_ = [1]struct{}{}[unsafe.Offsetof(JournalItem{}.ImageOffset)-
		unsafe.Offsetof(C.rkv_journal_item{}.image_offset)]
	_ = [1]struct{}{}[unsafe.Offsetof(JournalItem{}.ImagePositionCount)-
		unsafe.Offsetof(C.rkv_journal_item{}.image_position_count)]
	_ = [1]struct{}{}[unsafe.Offsetof(JournalItem{}.Bin)-unsafe.Offsetof(C.rkv_journal_item{}.bin)]
	_ = [1]struct{}{}[unsafe.Offsetof(JournalItem{}.HeightBin)-
		unsafe.Offsetof(C.rkv_journal_item{}.height_bin)]
	_ = [1]struct{}{}[unsafe.Offsetof(JournalItem{}.Digest)-
		unsafe.Offsetof(C.rkv_journal_item{}.digest)]
)
