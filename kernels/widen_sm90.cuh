// The warps of attn_sm90 that load keys and values in fp8, tile by tile, and widen them to the
// queries' format on the way: wgmma of fp8 would round queries and weights to three bits too.
//
// A lane has 16 bytes of several rows of a tile in registers while the tile before is widened, so
// that a whole tile of each block is on its way. Rows that no query sees become zeros.
#pragma once
#include "load_sm90.cuh"

namespace rkv {

template <class S>
struct Widener {
    const AttentionArguments &args;
    const int page_begin, head;
    const Range any;
    const Tiles<S> tiles;
    const int warp, lane;
    const uint32_t shared;
    const int before; // tiles of the items before

    static constexpr int kWarpRows = S::kTileKeys / 4;
    static constexpr int kChunks = S::kHeadDim / 16; // pieces of 16 bytes of a row, as it is copied
    static constexpr int kRoundRows = 32 / kChunks;
    static constexpr int kRounds = (kWarpRows + kRoundRows - 1) / kRoundRows;
    Vector16 ahead[kRounds]; // of the next tile

    RKV_DEVICE Widener(const HopperArguments &all, const PackedRows<false, false> &rows,
                       int warp_index, uint32_t shared_at, int tiles_before)
        : args(all.attention), page_begin(rows.item.page_begin), head(rows.head), any(rows.any),
          tiles(rows.any, 0), warp(warp_index), lane(rows.lane), shared(shared_at),
          before(tiles_before) {}

    // Eight lanes have four pieces of two rows, which are stored to eight different bank groups.
    RKV_DEVICE int first_row() const { return (lane >> 2 & 1) + (lane >> 3) / (kChunks / 4) * 2; }
    RKV_DEVICE int chunk() const { return (lane & 3) + (lane >> 3) % (kChunks / 4) * 4; }

    // Of the row of a tile whose page this lane looks up.
    RKV_DEVICE int key_of_lane(int tile) const {
        return tiles.first_key(tile) + warp * kWarpRows + lane % kWarpRows;
    }

    // Before it is used: the look-up's latency is hidden. -1: nothing is wanted of it.
    RKV_DEVICE int look_up(int tile) const {
        const int key = key_of_lane(tile);
        const bool wanted = any.begin <= key && key < any.end;
        return wanted ? load_global(args.pages + page_begin + page_of(key, args.kv)) : -1;
    }

    // Where the row that this lane looked up begins; negative where it is not wanted.
    RKV_DEVICE int64_t place(int tile, int page) const {
        const int position = position_in_page(key_of_lane(tile), args.kv);
        return page >= 0 ? place_of(page, position, head, args.kv) : -1;
    }

    RKV_DEVICE void fetch(int round, int64_t place, const void *from) {
        const int row = round * kRoundRows + first_row();
        const int low = shuffle_from(static_cast<int>(place), row & 31);
        const int high = shuffle_from(static_cast<int>(place >> 32), row & 31);
        ahead[round] = {{0, 0, 0, 0}};
        if (high >= 0 && row < kWarpRows) {
            const int64_t at = static_cast<int64_t>(high) << 32 | static_cast<uint32_t>(low);
            ahead[round] = load_global(reinterpret_cast<const Vector16 *>(
                static_cast<const uint8_t *>(from) + at + chunk() * 16));
        }
    }

    // Stores the tile that was fetched, and fetches the next one.
    template <int kValues>
    RKV_DEVICE void widen(int tile, int64_t next_place, const void *next_from) {
        const int stage = (before + tile) % S::kStages, turn = (before + tile) / S::kStages;
        if (!fault(Fault::kNoWaitForRoom)) {
            barrier_wait(shared + S::empty_at(kValues, stage), (turn & 1) ^ 1);
        }
        const uint32_t first =
            shared + S::tile_at(kValues, stage) +
            chunk_at(warp * kWarpRows + first_row(), chunk() * 2, S::kTilePanelBytes);
        RKV_UNROLL
        for (int round = 0; round < kRounds; round++) {
            // chunk_at() of the round's row: numbers of first rows have none of the bits that a
            // round adds but the highest of three.
            const int row = round * kRoundRows;
            if (row + first_row() < kWarpRows) {
                RKV_UNROLL
                for (int half = 0; half < 2; half++) {
                    store_shared16((first ^ (row % 8 + half) * 16) + row * S::kRowBytes,
                                   widen_eight<typename S::Q>(ahead[round], half));
                }
            }
            fetch(round, next_place, next_from);
            // Round after round: what all of them take at once would be too many registers.
            sync_warp();
        }
        if (!fault(Fault::kNoProxyFence)) {
            fence_async_proxy();
        }
        barrier_arrive(shared + S::full_at(kValues, stage));
    }

    // In the order in which they are used: the keys of a tile come before the values of the one
    // before it.
    RKV_DEVICE void run() {
        if (tiles.count == 0) {
            return;
        }
        int page = look_up(0), next = look_up(1);
        const int64_t first = place(0, page);
        RKV_UNROLL
        for (int round = 0; round < kRounds; round++) {
            fetch(round, first, args.k);
        }
        const bool is_one = tiles.count == 1;
        widen<0>(0, is_one ? first : place(1, next), is_one ? args.v : args.k);
        for (int tile = 0; tile < tiles.count; tile++) {
            const int after = look_up(tile + 2);
            if (tile + 1 < tiles.count) {
                widen<0>(tile + 1, place(tile, page), args.v);
            }
            // Behind the last keys come the last values.
            const bool has_keys = tile + 2 < tiles.count;
            widen<1>(tile, has_keys ? place(tile + 2, after) : place(tile + 1, next),
                     has_keys ? args.k : args.v);
            page = next;
            next = after;
        }
    }
};

} // namespace rkv
