// How a block of attn_mma divides its work, and where its tiles lie in shared memory.
//
//   rows    kTileRows = 16 * kRowWarps packed query rows; each row warp has 16 of them
//   keys    tiles of kTileKeys; each key warp takes an equal part of every tile and has a softmax
//           of its own, which is combined at the end
//   stages  two: while one tile is computed, the next is on its way
//
// A row of a tile is padded to an odd number of 16-byte chunks, so that eight rows of one column
// lie in eight different bank groups: no conflict for ldmatrix, at every size.
//
// Keys and values in fp8 are widened to the queries' format. Where row warps share a tile that is
// done once, into a tile of its own; key warps widen what they alone multiply, in registers.
#pragma once
#include "numbers.cuh"

namespace rkv {

template <class QueryType, class KvType, int head_dim, int row_warps, int key_warps, int tile_keys,
          int blocks, bool plain>
struct Shape {
    using Q = QueryType;
    using Kv = KvType;
    static constexpr int kHeadDim = head_dim;
    static constexpr int kRowWarps = row_warps;
    static constexpr int kKeyWarps = key_warps;
    static constexpr int kTileKeys = tile_keys;
    static constexpr int kBlocks = blocks; // on one multiprocessor, at least
    static constexpr bool kPlain = plain;  // causal and nothing else, known when compiled

    static constexpr int kThreads = 32 * row_warps * key_warps;
    static constexpr int kTileRows = 16 * row_warps;
    static constexpr int kWarpKeys = tile_keys / key_warps;
    static constexpr bool kIsFp8 = kBytes<Kv> == 1;
    static constexpr bool kWidensTile = kIsFp8 && key_warps == 1;
    static constexpr bool kWidensOperands = kIsFp8 && key_warps > 1;

    // As they are copied: a tile that is widened is read as it was written, and not padded.
    static constexpr int kChunks = head_dim * kBytes<Kv> / 16; // of a row of K or V
    static constexpr int kCopyRowBytes = 16 * (kWidensTile ? kChunks : kChunks | 1);
    static constexpr int kCopyTileBytes = tile_keys * kCopyRowBytes;
    static constexpr int kStageBytes = 2 * kCopyTileBytes; // K and V
    // As they are multiplied.
    static constexpr int kRowBytes = kWidensTile ? 16 * (head_dim * 2 / 16 | 1) : kCopyRowBytes;
    static constexpr int kTileBytes = tile_keys * kRowBytes;
    static constexpr int kQueryChunks = head_dim * 2 / 16;
    static constexpr int kQueryRowBytes = 16 * (kQueryChunks | 1);
    static constexpr int kQueryBytes = kTileRows * kQueryRowBytes;

    // Up to head dim 128 the queries stay in registers, and the memory that they came through
    // becomes the second stage.
    static constexpr bool kQueryInRegisters = head_dim <= 128;
    static constexpr int kQueryAt = kQueryInRegisters ? kStageBytes : 2 * kStageBytes;
    static constexpr int kWideAt = kQueryInRegisters ? 2 * kStageBytes : kQueryAt + kQueryBytes;
    static constexpr int kTilesEnd = kWidensTile ? kWideAt + 2 * kTileBytes : 2 * kStageBytes;
    static constexpr int kPipelineBytes =
        kQueryAt + kQueryBytes > kTilesEnd ? kQueryAt + kQueryBytes : kTilesEnd;
    // At the end, in the same place: the key warps' maxima, sums and sums of values.
    static constexpr int kCombineRowBytes = head_dim * 4 + 16;
    static constexpr int kCombineStatBytes = key_warps * kTileRows * 8;
    static constexpr int kCombineBytes =
        key_warps == 1 ? 0 : kCombineStatBytes + key_warps * kTileRows * kCombineRowBytes;
    static constexpr int kSharedBytes =
        kPipelineBytes > kCombineBytes ? kPipelineBytes : kCombineBytes;

    static_assert(kWarpKeys % 16 == 0, "a key warp takes whole matrix instructions");
    static_assert(kKeyWarps == 1 || kRowWarps == 1, "either rows or keys are divided");
    static_assert(head_dim % 16 == 0, "a head is whole matrix instructions");

    // Keys to be multiplied; the values lie behind them.
    static RKV_DEVICE int tile_at(int stage) { return kWidensTile ? kWideAt : stage * kStageBytes; }
};

} // namespace rkv
