package radixkv

/*
#include "call.h"

// A NULL parent begins with the namespace.
static inline rkvgo_count rkvgo_tokens_page_digests(
	rkv_namespace space, const rkv_page_digest *parent, uint64_t first_page,
	uint32_t page_size, const uint32_t *ids, size_t count,
	const rkv_token_item *items, size_t item_count,
	rkv_page_digest *digests, size_t capacity
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkv_tokens_page_digests_args args = {
		.struct_size = sizeof args,
		.page_size = page_size,
		.space = &space,
		.tokens = &tokens,
		.parent = parent,
		.first_page = first_page,
	};
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_tokens_page_digests(&args, digests, capacity, &made.count));
	return made;
}
*/
import "C"

import (
	"encoding/hex"
	"unsafe"
)

// PageDigest names a page's content together with everything before it. Equal digests are equal
// prefixes, in every process and on every machine.
type PageDigest [32]byte

// String is the digest in hex.
func (d PageDigest) String() string { return hex.EncodeToString(d[:]) }

// PageDigests are the digests of the whole pages of the tokens: those by which a cache with
// [IndexBlockHash] knows its pages.
func (t Tokens) PageDigests(namespace Namespace, pageSize uint32) ([]PageDigest, error) {
	return t.pageDigests(namespace, nil, 0, pageSize)
}

// PageDigestsAfter are the digests of the whole pages from firstPage on, which follow the page of
// digest parent. With firstPage 0 the tokens themselves go on where that page ends.
func (t Tokens) PageDigestsAfter(
	parent PageDigest, firstPage int, pageSize uint32,
) ([]PageDigest, error) {
	return t.pageDigests(Namespace{}, &parent, firstPage, pageSize)
}

func (t Tokens) pageDigests(
	namespace Namespace, parent *PageDigest, firstPage int, pageSize uint32,
) ([]PageDigest, error) {
	if firstPage < 0 {
		return nil, invalid("firstPage is negative")
	}
	positions, err := t.PositionCount()
	if err != nil {
		return nil, err
	}
	// What the library refuses needs no room.
	var digests []PageDigest
	if pageSize > 0 && firstPage < positions/int(pageSize) {
		digests = make([]PageDigest, positions/int(pageSize)-firstPage)
	}
	made := C.rkvgo_tokens_page_digests(namespace.c(),
		(*C.rkv_page_digest)(unsafe.Pointer(parent)), C.uint64_t(firstPage), C.uint32_t(pageSize),
		t.idPointer(), C.size_t(len(t.IDs)), t.itemPointer(), C.size_t(len(t.Items)),
		(*C.rkv_page_digest)(unsafe.Pointer(unsafe.SliceData(digests))), C.size_t(len(digests)))
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	return digests[:made.count], nil
}

// C writes digests in place: an index other than zero does not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(PageDigest{})-C.sizeof_rkv_page_digest]
	_ = [1]struct{}{}[unsafe.Sizeof(PageDigest{})-unsafe.Sizeof(C.rkv_page_digest{}.bytes)]
)
