// How a block of attn_mma divides its work, and where its tiles lie in shared memory.
//
//   rows    kTileRows = 16 * kRowWarps packed query rows; each row warp has 16 of them
//   keys    tiles of kTileKeys; each key warp takes an equal part of every tile and has a softmax
//           of its own, which is combined at the end
//   values  of long heads are too many sums for one warp: each value warp makes the logits of an
//           equal part of a tile's keys, and sums a part of the elements of all of its values
//   stages  two: while one tile is computed, the next is on its way
//
// A row of a tile is padded to an odd number of 16-byte chunks, so that eight rows of one column
// lie in eight different bank groups: no conflict for ldmatrix, at every size.
//
// Keys and values in fp8 are widened to the queries' format. Where row warps share a tile that is
// done once, into a tile of its own; key warps widen what they alone multiply, in registers.
//
// Latent values are the beginnings of their keys (multi-head latent attention, absorbed): a tile
// has keys alone then, which are multiplied twice.
#pragma once
#include "heads.cuh"
#include "numbers.cuh"

namespace rkv {

template <class QueryType, class KvType, class HeadDims, int row_warps, int key_warps,
          int value_warps, int tile_keys, int blocks, bool plain>
struct Shape {
    using Q = QueryType;
    using Kv = KvType;
    static constexpr int kHeadDim = HeadDims::kHeadDim;
    static constexpr int kValueDim = HeadDims::kValueDim;
    static constexpr bool kLatent = HeadDims::kLatent;
    static constexpr int kRowWarps = row_warps;
    static constexpr int kKeyWarps = key_warps;
    static constexpr int kValueWarps = value_warps;
    static constexpr int kTileKeys = tile_keys;
    static constexpr int kBlocks = blocks; // on one multiprocessor, at least
    static constexpr bool kPlain = plain;  // causal and nothing else, known when compiled

    static constexpr int kThreads = 32 * row_warps * key_warps * value_warps;
    static constexpr int kTileRows = 16 * row_warps;
    static constexpr int kWarpKeys = tile_keys / key_warps / value_warps; // whose logits it makes
    static constexpr int kSumKeys = tile_keys / key_warps; // whose values it sums
    static constexpr int kWarpValues = kValueDim / value_warps; // elements of them
    static constexpr bool kIsFp8 = kBytes<Kv> == 1;
    // Whether blocks of several KV heads come one after another (AttentionArguments::close_heads).
    // What heads of a position have lies side by side in most layouts: decoding is quicker when
    // blocks read it at the same time. Latent vectors have one head.
    static constexpr bool kCloseHeads = row_warps == 1 && !kLatent;
    static constexpr bool kWidensTile = kIsFp8 && key_warps == 1;
    static constexpr bool kWidensOperands = kIsFp8 && key_warps > 1;

    // As they are copied: a tile that is widened is read as it was written, and not padded.
    static constexpr int kChunks = kHeadDim * kBytes<Kv> / 16; // of a row of K
    static constexpr int kValueChunks = kLatent ? 0 : kValueDim * kBytes<Kv> / 16;
    static constexpr int kCopyRowBytes = 16 * (kWidensTile ? kChunks : kChunks | 1);
    static constexpr int kCopyValueRowBytes =
        kLatent ? 0 : 16 * (kWidensTile ? kValueChunks : kValueChunks | 1);
    static constexpr int kCopyTileBytes = tile_keys * kCopyRowBytes;
    static constexpr int kStageBytes = kCopyTileBytes + tile_keys * kCopyValueRowBytes;
    // Values lie as keys do, and are copied with them; or they have a place and a length of theirs.
    static constexpr bool kAlike = !kLatent && kHeadDim == kValueDim;
    static constexpr bool kValuesApart = !kLatent && !kAlike;
    // As they are multiplied.
    static constexpr int kRowBytes = kWidensTile ? 16 * (kHeadDim * 2 / 16 | 1) : kCopyRowBytes;
    static constexpr int kValueRowBytes = kLatent       ? kRowBytes
                                          : kWidensTile ? 16 * (kValueDim * 2 / 16 | 1)
                                                        : kCopyValueRowBytes;
    static constexpr int kTileBytes = tile_keys * kRowBytes;
    static constexpr int kTilesBytes = kTileBytes + (kLatent ? 0 : tile_keys * kValueRowBytes);
    static constexpr int kQueryChunks = kHeadDim * 2 / 16;
    static constexpr int kQueryRowBytes = 16 * (kQueryChunks | 1);
    static constexpr int kQueryBytes = kTileRows * kQueryRowBytes;

    // Up to head dim 128 the queries stay in registers, and the memory that they came through
    // becomes the second stage.
    static constexpr bool kQueryInRegisters = kHeadDim <= 128;
    static constexpr int kQueryAt = kQueryInRegisters ? kStageBytes : 2 * kStageBytes;
    static constexpr int kWideAt = kQueryInRegisters ? 2 * kStageBytes : kQueryAt + kQueryBytes;
    static constexpr int kTilesEnd = kWidensTile ? kWideAt + kTilesBytes : 2 * kStageBytes;
    // Logits that value warps make for each other, as their threads have them.
    static constexpr int kLogitsAt =
        kQueryAt + kQueryBytes > kTilesEnd ? kQueryAt + kQueryBytes : kTilesEnd;
    static constexpr int kPipelineBytes =
        kLogitsAt + (value_warps > 1 ? kTileRows * tile_keys * 4 : 0);
    // At the end, in the same place: the key warps' maxima, sums and sums of values.
    static constexpr int kCombineRowBytes = kValueDim * 4 + 16;
    static constexpr int kCombineStatBytes = key_warps * kTileRows * 8;
    static constexpr int kCombineBytes =
        key_warps == 1 ? 0 : kCombineStatBytes + key_warps * kTileRows * kCombineRowBytes;
    static constexpr int kSharedBytes =
        kPipelineBytes > kCombineBytes ? kPipelineBytes : kCombineBytes;

    static_assert(kSumKeys % 16 == 0, "a key warp takes whole matrix instructions");
    static_assert(kWarpKeys % 16 == 0 || (kWarpKeys == 8 && !kWidensOperands && kHeadDim % 32 == 0),
                  "matrices are loaded four at a time");
    static_assert(kKeyWarps == 1 || kRowWarps == 1, "either rows or keys are divided");
    static_assert(kKeyWarps == 1 || kValueWarps == 1, "either keys or values are divided");
    static_assert(kHeadDim % 16 == 0, "a head is whole matrix instructions");
    static_assert(kWarpValues % 16 == 0, "a part of a value is whole matrix instructions");

    // Keys to be multiplied; the values lie behind them, or are in them.
    static RKV_DEVICE int tile_at(int stage) { return kWidensTile ? kWideAt : stage * kStageBytes; }
    static RKV_DEVICE int values_at(int stage) {
        return tile_at(stage) + (kLatent ? 0 : kTileBytes);
    }
};

} // namespace rkv
