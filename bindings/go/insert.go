package radixkv

/*
#include "call.h"

typedef struct rkvgo_insert_made {
	rkvgo_failure *failure;
	rkv_cache_insert_result result;
} rkvgo_insert_made;

static inline rkvgo_insert_made rkvgo_cache_insert(
	rkv_cache *cache, uint32_t flags, rkv_namespace space,
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count,
	const uint32_t *pages, size_t page_count, rkv_node_id from_node,
	uint64_t from_token_index, uint64_t from_page_index, rkv_lock_id lock,
	uint32_t *published_pages,
	const uint32_t *row_groups, const size_t *row_counts, const bool *row_wanted,
	const uint32_t *row_pages, uint32_t *row_published, size_t row_count
) {
	rkv_group_row rows[RKV_GROUP_LIMIT];
	// More than there can be are refused before one is looked at.
	for (size_t i = 0; i < row_count && row_count <= RKV_GROUP_LIMIT; i++) {
		rows[i] = (rkv_group_row){
			.group = row_groups[i],
			.pages = row_pages,
			.page_count = row_counts[i],
			.published_pages = row_wanted[i] ? row_published : NULL,
		};
		row_pages += row_counts[i];
		row_published += row_counts[i];
	}
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkv_cache_insert_args args = {
		.struct_size = sizeof args,
		.flags = flags,
		.space = &space,
		.tokens = &tokens,
		.pages = pages,
		.page_count = page_count,
		.from_node = from_node,
		.from_token_index = from_token_index,
		.from_page_index = from_page_index,
		.groups = rows,
		.group_count = row_count,
		.group_size = sizeof rows[0],
		.lock = lock,
	};
	rkvgo_insert_made made = {0};
	made.result.struct_size = sizeof made.result;
	made.failure = rkvgo_end(rkv_cache_insert(cache, &args, published_pages, &made.result));
	return made;
}
*/
import "C"

import "unsafe"

// InsertFlags are options of an insert.
type InsertFlags uint32

// InsertLock: lock what was inserted in the same step, so that nobody evicts it before. Undo with
// Unlock of InsertResult.Lock.
const InsertLock InsertFlags = C.RKV_INSERT_LOCK

// GroupRow is the pages of one group along the prefix of [InsertArgs].
type GroupRow struct {
	// Group is 1 and up: the pages of group 0 are InsertArgs.Pages.
	Group int
	// Pages has one for each whole page of the tokens, from the prefix' beginning; 0 where there is
	// none. Of a GroupState: the state after that page.
	Pages []uint32
	// PublishedPages may be nil, or as long as Pages: it receives the cache's page at each whole
	// page of the tokens, 0 where it has none, and the caller's own elsewhere. With an external
	// pool it may not be nil.
	PublishedPages []uint32
}

// groupRows are rows one behind the other: C may not see Go memory that holds Go pointers.
type groupRows struct {
	groups           []uint32
	counts           []C.size_t
	wanted           []C.bool
	pages, published []uint32
}

func rowsOf(rows []GroupRow) (groupRows, error) {
	var made groupRows
	for _, row := range rows {
		if row.PublishedPages != nil && len(row.PublishedPages) < len(row.Pages) {
			return made, invalid("args.Groups: PublishedPages is shorter than Pages")
		}
		made.groups = append(made.groups, uint32(number32(row.Group)))
		made.counts = append(made.counts, C.size_t(len(row.Pages)))
		made.wanted = append(made.wanted, C.bool(row.PublishedPages != nil))
		made.pages = append(made.pages, row.Pages...)
	}
	made.published = make([]uint32, len(made.pages))
	return made, nil
}

func (r *groupRows) copyTo(rows []GroupRow) {
	at := 0
	for _, row := range rows {
		copy(row.PublishedPages, r.published[at:at+len(row.Pages)])
		at += len(row.Pages)
	}
}

// InsertArgs says what Insert puts where.
type InsertArgs struct {
	// Namespace is not read when FromNode is set.
	Namespace Namespace
	// Tokens are those of the whole prefix, from its beginning.
	Tokens Tokens
	// Pages are those of the whole prefix, at least one for each whole page of the tokens. Those
	// before FromPageIndex are not read.
	Pages []uint32
	// FromNode is the node of an earlier match to go on from; 0 begins at the root.
	FromNode NodeID
	// FromTokenIndex is that match's TokenCount; 0 without FromNode.
	FromTokenIndex int
	// FromPageIndex is that match's PageCount; 0 without FromNode.
	FromPageIndex int
	// Groups are the pages of other groups, one row for each that has any.
	Groups []GroupRow
	// Flags are 0 or InsertLock.
	Flags InsertFlags
	// Lock, with InsertLock, is a lock on FromNode that moves to where the published pages end; 0
	// takes a new one. Of other groups it protects all pages from there on, until SlideLock.
	Lock LockID
}

// InsertResult says what Insert did.
type InsertResult struct {
	// Node ends where the published pages end; 0 when there is no whole page.
	Node NodeID
	// ClaimedPageCount counts the pages that the cache owns from now on.
	ClaimedPageCount int
	// DuplicatePageCount counts the pages that stay with their holder, because another page is
	// published for the same tokens.
	DuplicatePageCount int
	// ClaimedGroupPageCount counts the pages of other groups that the cache owns from now on.
	ClaimedGroupPageCount int
	// DuplicateGroupPageCount counts those that stay with their holder.
	DuplicateGroupPageCount int
	// Lock protects the prefix up to Node, if it was asked for; 0 when there is no whole page.
	Lock LockID
	// PageCount counts the whole pages of the tokens that are published: all, unless memory ran out
	// before the end of a long list. The pages behind them are the caller's as before.
	PageCount int
}

// Insert publishes the whole pages of a prefix. Pages for which the cache has none yet must be
// private; they are claimed. Where it has another one, that one stays. Pages that were computed
// before Clear cleared the namespace are not to be inserted: the cache can't know.
//
// published may be nil, or as long as args.Pages: it receives the cache's page at each whole page
// of the tokens, and the caller's own elsewhere. With an external pool it may not be nil: it says
// which pages are the cache's now, and which stay outside.
func (c *Cache) Insert(args InsertArgs, published []uint32) (InsertResult, error) {
	if published != nil && len(published) < len(args.Pages) {
		return InsertResult{}, invalid("published is shorter than args.Pages")
	}
	rows, err := rowsOf(args.Groups)
	if err != nil {
		return InsertResult{}, err
	}
	raw, err := c.enter()
	if err != nil {
		return InsertResult{}, err
	}
	defer c.mu.RUnlock()
	made := C.rkvgo_cache_insert(raw, C.uint32_t(args.Flags), args.Namespace.c(),
		args.Tokens.idPointer(), C.size_t(len(args.Tokens.IDs)),
		args.Tokens.itemPointer(), C.size_t(len(args.Tokens.Items)),
		u32Pointer(args.Pages), C.size_t(len(args.Pages)), C.rkv_node_id(args.FromNode),
		C.uint64_t(args.FromTokenIndex), C.uint64_t(args.FromPageIndex),
		C.rkv_lock_id(args.Lock), u32Pointer(published),
		u32Pointer(rows.groups), unsafe.SliceData(rows.counts), unsafe.SliceData(rows.wanted),
		u32Pointer(rows.pages), u32Pointer(rows.published), C.size_t(len(rows.groups)))
	if made.failure == nil {
		rows.copyTo(args.Groups)
	}
	return InsertResult{
		Node:                    NodeID(made.result.node),
		ClaimedPageCount:        int(made.result.claimed_page_count),
		DuplicatePageCount:      int(made.result.duplicate_page_count),
		ClaimedGroupPageCount:   int(made.result.claimed_group_page_count),
		DuplicateGroupPageCount: int(made.result.duplicate_group_page_count),
		Lock:                    LockID(made.result.lock),
		PageCount:               int(made.result.page_count),
	}, asError(made.failure)
}
