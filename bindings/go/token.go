package radixkv

/*
#include "call.h"

typedef struct rkvgo_digest {
	rkvgo_failure *failure;
	uint8_t digest[16];
} rkvgo_digest;

static inline rkvgo_digest rkvgo_image_digest(const uint8_t *bytes, size_t byte_count) {
	rkvgo_digest made = {0};
	made.failure = rkvgo_end(rkv_image_digest(bytes, byte_count, made.digest));
	return made;
}

static inline rkvgo_count rkvgo_tokens_build(
	const uint32_t *prompt_ids, size_t prompt_count,
	const rkv_token_item *prompt_items, size_t item_count,
	uint32_t *ids, size_t id_capacity, rkv_token_item *items
) {
	rkv_tokens prompt = rkvgo_tokens(prompt_ids, prompt_count, prompt_items, item_count);
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_tokens_build(&prompt, ids, id_capacity, items, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_tokens_regions(
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count,
	rkv_region *regions, size_t capacity
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_tokens_regions(&tokens, regions, capacity, &made.count));
	return made;
}

static inline rkvgo_count rkvgo_tokens_position_count(
	const uint32_t *ids, size_t count, const rkv_token_item *items, size_t item_count
) {
	rkv_tokens tokens = rkvgo_tokens(ids, count, items, item_count);
	rkvgo_count made = {0};
	made.failure = rkvgo_end(rkv_tokens_position_count(&tokens, &made.count));
	return made;
}
*/
import "C"

import "unsafe"

// TextIDLimit: text token ids are smaller than this.
const TextIDLimit = C.RKV_TEXT_ID_LIMIT

// TokenKind is the kind of an [Item].
type TokenKind uint32

const (
	// TokenCoord is a coordinate.
	TokenCoord TokenKind = C.RKV_TOKEN_COORD
	// TokenSize is a size.
	TokenSize TokenKind = C.RKV_TOKEN_SIZE
	// TokenImage is an image.
	TokenImage TokenKind = C.RKV_TOKEN_IMAGE
)

// Digest names an image by its content, see [ImageDigest].
type Digest [16]byte

// Item is one token that is not text. Make it with [Coord], [Size] or [Image].
type Item struct {
	// TokenIndex is the token's index in the list; in BuildTokens the prompt index that it stands
	// before.
	TokenIndex uint64
	// Kind says which of the fields below count; the others are zero.
	Kind TokenKind
	// PositionCount is the number of KV positions of an image, at least 1.
	PositionCount uint32
	// Bin is that of a coordinate or of a width.
	Bin uint32
	// HeightBin is that of a height.
	HeightBin uint32
	// Digest is the content of an image.
	Digest Digest
}

// Coord is a coordinate token, see [CoordBin].
func Coord(tokenIndex int, bin uint32) Item {
	return Item{TokenIndex: uint64(tokenIndex), Kind: TokenCoord, Bin: bin}
}

// Size is a size token, see [SizeBin].
func Size(tokenIndex int, widthBin, heightBin uint32) Item {
	return Item{
		TokenIndex: uint64(tokenIndex), Kind: TokenSize, Bin: widthBin, HeightBin: heightBin,
	}
}

// Image is an image token that takes positionCount KV positions.
func Image(tokenIndex int, digest Digest, positionCount uint32) Item {
	return Item{
		TokenIndex: uint64(tokenIndex), Kind: TokenImage,
		PositionCount: positionCount, Digest: digest,
	}
}

// Tokens is a list of tokens: a text id per token, and the tokens that are not text.
type Tokens struct {
	// IDs are text ids below TextIDLimit. The id at the index of an item is not read.
	IDs []uint32
	// Items have strictly ascending TokenIndex.
	Items []Item
}

// Text is a token list without items.
func Text(ids []uint32) Tokens { return Tokens{IDs: ids} }

// BuildTokens puts the items of a prompt between its ids: the token list of a prompt with images.
//
// Each item stands before the id at its TokenIndex; len(IDs) puts it at the end, and equal indices
// keep their order. Here alone the indices need only ascend, not strictly.
func BuildTokens(prompt Tokens) (Tokens, error) {
	built := Tokens{IDs: make([]uint32, len(prompt.IDs)+len(prompt.Items))}
	if len(prompt.Items) > 0 {
		built.Items = make([]Item, len(prompt.Items))
	}
	made := C.rkvgo_tokens_build(prompt.idPointer(), C.size_t(len(prompt.IDs)),
		prompt.itemPointer(), C.size_t(len(prompt.Items)),
		built.idPointer(), C.size_t(len(built.IDs)), built.itemPointer())
	if err := asError(made.failure); err != nil {
		return Tokens{}, err
	}
	return built, nil
}

// Region is a range [Start, End) of KV positions that attend to each other in both directions: one
// image.
type Region struct {
	// Start is the first position.
	Start uint64
	// End is one past the last position.
	End uint64
}

// Regions are those of the images, in KV positions, ascending.
func (t Tokens) Regions() ([]Region, error) {
	regions := make([]Region, len(t.Items)) // enough: not every item is an image
	made := C.rkvgo_tokens_regions(t.idPointer(), C.size_t(len(t.IDs)),
		t.itemPointer(), C.size_t(len(t.Items)),
		(*C.rkv_region)(unsafe.Pointer(unsafe.SliceData(regions))), C.size_t(len(regions)))
	if err := asError(made.failure); err != nil {
		return nil, err
	}
	return regions[:made.count], nil
}

// PositionCount is the number of KV positions that the tokens take.
func (t Tokens) PositionCount() (int, error) {
	made := C.rkvgo_tokens_position_count(t.idPointer(), C.size_t(len(t.IDs)),
		t.itemPointer(), C.size_t(len(t.Items)))
	return int(made.count), asError(made.failure)
}

// ImageDigest is the content digest of an image: the first 16 bytes of SHA-256 over its raw bytes.
func ImageDigest(bytes []byte) (Digest, error) {
	made := C.rkvgo_image_digest(
		(*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(bytes))), C.size_t(len(bytes)))
	return *(*Digest)(unsafe.Pointer(&made.digest)), asError(made.failure)
}

func (t Tokens) idPointer() *C.uint32_t { return u32Pointer(t.IDs) }

func (t Tokens) itemPointer() *C.rkv_token_item {
	return (*C.rkv_token_item)(unsafe.Pointer(unsafe.SliceData(t.Items)))
}

func u32Pointer(values []uint32) *C.uint32_t {
	return (*C.uint32_t)(unsafe.Pointer(unsafe.SliceData(values)))
}

// C reads and writes slices of these in place: an index other than zero does not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Item{})-C.sizeof_rkv_token_item]
	_ = [1]struct{}{}[unsafe.Offsetof(Item{}.Kind)-unsafe.Offsetof(C.rkv_token_item{}.kind)]
	_ = [1]struct{}{}[unsafe.Offsetof(Item{}.PositionCount)-
		unsafe.Offsetof(C.rkv_token_item{}.position_count)]
	_ = [1]struct{}{}[unsafe.Offsetof(Item{}.Bin)-unsafe.Offsetof(C.rkv_token_item{}.bin)]
	_ = [1]struct{}{}[unsafe.Offsetof(Item{}.HeightBin)-
		unsafe.Offsetof(C.rkv_token_item{}.height_bin)]
	_ = [1]struct{}{}[unsafe.Offsetof(Item{}.Digest)-unsafe.Offsetof(C.rkv_token_item{}.digest)]
	_ = [1]struct{}{}[unsafe.Sizeof(Region{})-C.sizeof_rkv_region]
	_ = [1]struct{}{}[unsafe.Offsetof(Region{}.End)-unsafe.Offsetof(C.rkv_region{}.end)]
)
