// How a block of attn_sm90 divides its work, and where its tiles lie in shared memory.
//
//   warps     four that load, and two or three groups of four that compute: 64 rows each, or, where
//             values are latent and too many sums for one group, each its part of the values of
//             the same 64 rows
//   stages    two of keys and two of values; each has a barrier `full`, at which those arrive that
//             load, and a barrier `empty`, at which each warp arrives that has used it. Latent
//             values are in the keys, and have none of their own
//   panels    a tile lies as panels of 64 elements: rows of 128 bytes, whose eight pieces of 16
//             bytes are exchanged by the row's number (piece ^ row % 8), as copies of boxes and
//             products do it by themselves; a panel begins at a multiple of 1024 bytes
#pragma once
#include "heads.cuh"
#include "numbers.cuh"

namespace rkv {

template <class QueryType, class KvType, class HeadDims, int tile_keys, int groups>
struct HopperShape {
    using Q = QueryType;
    using Kv = KvType;
    static constexpr int kHeadDim = HeadDims::kHeadDim;
    static constexpr int kValueDim = HeadDims::kValueDim;
    static constexpr bool kLatent = HeadDims::kLatent;
    static constexpr int kTileKeys = tile_keys;
    static constexpr bool kWidensOperands = false;

    static constexpr int kGroups = groups;
    static constexpr int kWarps = 4 * kGroups; // that compute
    static constexpr int kRowGroups = kLatent ? 1 : kGroups;
    static constexpr int kValueGroups = kGroups / kRowGroups;
    static constexpr int kWarpValues = kValueDim / kValueGroups; // elements that a warp sums
    static constexpr int kGroupRows = 64;
    static constexpr int kRowWarps = 4 * kRowGroups;
    static constexpr int kTileRows = kRowGroups * kGroupRows;
    static constexpr int kThreads = 128 * (kGroups + 1);
    static constexpr int kBlocks = 1;
    static constexpr bool kIsFp8 = kBytes<Kv> == 1; // widened by those that load
    static constexpr int kStages = 2;
    // Of a thread that loads, and of one that computes.
    static constexpr int kLoadRegisters = groups == 2 ? kIsFp8 ? 88 : 72 : 56;
    static constexpr int kComputeRegisters = groups == 3 ? 152 : kIsFp8 ? 208 : 216;
    // The groups compute products in turns, so that weights of others are made meanwhile. With wide
    // sums the products of one alone take longer than that.
    static constexpr bool kTakeTurns = kValueDim <= 128;

    // Positions of a box at most: a tile is whole ones (box_most() in src/gpu/shapes.rs).
    static constexpr int kBoxMost = tile_keys % 64 == 0 ? 64 : 16;

    static constexpr int kRowBytes = 128;
    static constexpr int kChunks = kHeadDim / 8; // pieces of 16 bytes of a row of all panels
    static constexpr int kQueryPanelBytes = kGroupRows * kRowBytes;
    static constexpr int kQueryBytes = kHeadDim / 64 * kQueryPanelBytes; // of a group's rows
    static constexpr int kTilePanelBytes = tile_keys * kRowBytes;
    static constexpr int kTileBytes = kHeadDim / 64 * kTilePanelBytes;
    static constexpr int kValueTileBytes = kLatent ? 0 : kValueDim / 64 * kTilePanelBytes;
    static constexpr int kStageBytes = kTileBytes + kValueTileBytes;
    static constexpr int kTilesAt = kRowGroups * kQueryBytes;
    // What a group hands over to another that sums other values of the same rows: weights, as a
    // thread has them, and factors of rows.
    static constexpr int kHandedAt = kTilesAt + kStages * kStageBytes;
    static constexpr int kHandedWeightBytes = kLatent ? kGroupRows * tile_keys * 2 : 0;
    static constexpr int kHandedBytes = kLatent ? kHandedWeightBytes + kGroupRows * 4 : 0;
    static constexpr int kBarriersAt = kHandedAt + kHandedBytes;
    static constexpr int kAlignment = 1024;
    // Of items: a barrier `told`, and a barrier `heard`, see items_sm90.cuh.
    static constexpr int kToldAt = kBarriersAt + 2 * 2 * kStages * 8;
    static constexpr int kHeardAt = kToldAt + 8;
    // For those that load: the number of the next item; what rows see that each of the four warps
    // looked at.
    static constexpr int kNextAt = kHeardAt + 8;
    static constexpr int kRangesAt = kNextAt + 16;
    // What every row of a warp sees, warp after warp.
    static constexpr int kWholeAt = kRangesAt + 4 * 8;
    // By the item's parity: it, what some row of it sees, and its head.
    static constexpr int kItemAt = kWholeAt + kRowWarps * 8;
    static constexpr int kAnyInItem = 32;
    static constexpr int kHeadInItem = 40;
    static constexpr int kItemBytes = 48;
    // What each row sees.
    static constexpr int kSeesAt = kItemAt + 2 * kItemBytes;
    static constexpr int kSharedBytes = kSeesAt + kTileRows * 8 + kAlignment;

    // `values`: 0 for keys, 1 for values.
    static constexpr RKV_DEVICE int part_of(int values) { return kLatent ? 0 : values; }
    static RKV_DEVICE int tile_at(int values, int stage) {
        return kTilesAt + stage * kStageBytes + part_of(values) * kTileBytes;
    }
    static RKV_DEVICE int full_at(int values, int stage) {
        return kBarriersAt + (stage * 2 + part_of(values)) * 16;
    }
    static RKV_DEVICE int empty_at(int values, int stage) { return full_at(values, stage) + 8; }
    static RKV_DEVICE int sees_at(int row_warp, int lane, int half) {
        return kSeesAt + (row_warp * 16 + lane / 4 + half * 8) * 8;
    }

    static_assert(kGroups * kComputeRegisters + kLoadRegisters <= 512, "128 threads of each");
    static_assert(kRowWarps % 4 == 0, "four warps that load look at all rows");
    static_assert(kItemAt % 16 == 0, "items are stored 16 bytes at a time");
    static_assert(tile_keys % kBoxMost == 0, "boxes fill a tile");
    static_assert(tile_keys % 8 == 0, "eight rows lie as 1024 bytes");
    static_assert(kHeadDim % 64 == 0 && kWarpValues % 64 == 0, "whole panels");
    static_assert(!kIsFp8 || kHeadDim == kValueDim, "what is widened is alike");
    static_assert(kValueGroups <= 2, "one group hands weights over to one other");
};

// Where 16 bytes of a row of a tile lie; `panel_bytes` is the distance of panels.
RKV_DEVICE int chunk_at(int row, int chunk, int panel_bytes) {
    const int piece = fault(Fault::kWrongSwizzle) ? chunk & 7 : (chunk & 7) ^ (row & 7);
    return (chunk >> 3) * panel_bytes + row * 128 + piece * 16;
}

// How products find an operand: its start, 1024 bytes from eight rows to the next eight, the
// exchange of pieces; and from a panel to the next, where rows lie across the sum.
RKV_DEVICE uint64_t operand(uint32_t at, int panel_bytes) {
    return static_cast<uint64_t>((at & 0x3ffff) >> 4) |
           static_cast<uint64_t>(panel_bytes >> 4) << 16 | static_cast<uint64_t>(1024 >> 4) << 32 |
           static_cast<uint64_t>(1) << 62;
}

} // namespace rkv
