// The warps of attn_sm90 that load keys and values, tile by tile.
//
// Where a page has whole boxes of positions and all rows of a tile are wanted, each lane starts the
// copy of one of them. Everywhere else each row's page is looked up, 16 bytes at a time are copied,
// and rows that no query sees become zeros: what lies there may be NaN, and 0 * NaN is NaN.
#pragma once
#include "hopper.cuh"
#include "row_copies.cuh"
#include "rows.cuh"
#include "tile_sm90.cuh"

namespace rkv {

// The tiles of an item: from `origin` on, which is where a box begins.
template <class S>
struct Tiles {
    int origin, count;

    RKV_DEVICE Tiles(const Range &any, int box) {
        origin = box > 0 ? any.begin & ~(box - 1) : any.begin;
        count = any.begin < any.end ? (any.end - origin + S::kTileKeys - 1) / S::kTileKeys : 0;
    }
    RKV_DEVICE int first_key(int tile) const { return origin + tile * S::kTileKeys; }
};

template <class S>
struct Loader {
    const HopperArguments &arguments;
    const AttentionArguments &args;
    const int page_begin, head;
    const Range any;
    const Tiles<S> tiles;
    const int warp, lane;
    const uint32_t shared;
    const int before; // tiles of the items before
    const int boxes;  // of a panel
    const int box_row, box_panel; // of the box that this lane starts
    uint32_t unreported = 0; // barrier of the last copies that were started row by row; 0: none

    static constexpr int kWarps = 4;
    static constexpr int kWarpRows = S::kTileKeys / kWarps;
    static constexpr bool kApart = S::kHeadDim != S::kValueDim;
    // Of a row of keys, and of values.
    template <int kValues>
    static constexpr int kDim = kValues == 1 ? S::kValueDim : S::kHeadDim;

    RKV_DEVICE Loader(const HopperArguments &all, const PackedRows<false, false> &rows,
                      int warp_index, uint32_t shared_at, int tiles_before)
        : arguments(all), args(all.attention), page_begin(rows.item.page_begin), head(rows.head),
          any(rows.any), tiles(rows.any, all.box_positions), warp(warp_index), lane(rows.lane),
          shared(shared_at), before(tiles_before), boxes(boxes_of_panel(all.box_positions)),
          box_row((lane * kWarps + warp) % boxes * all.box_positions),
          box_panel((lane * kWarps + warp) / boxes) {}

    static RKV_DEVICE int boxes_of_panel(int box_positions) {
        int boxes = 1;
        RKV_UNROLL
        for (int positions = 8; positions <= S::kBoxMost; positions *= 2) {
            boxes = box_positions == positions ? S::kTileKeys / positions : boxes;
        }
        return boxes;
    }

    RKV_DEVICE bool by_boxes(int tile) const {
        const int begin = tiles.first_key(tile);
        return arguments.box_positions > 0 && any.begin <= begin &&
               begin + S::kTileKeys <= any.end;
    }

    // Boxes are counted panel after panel, so that a lane's has the same rows of keys and values,
    // however long those are. Warps take them in turn: the lanes of one start theirs one after
    // another.
    template <int kValues>
    RKV_DEVICE int boxes_of_warp() const {
        return (boxes * (kDim<kValues> / 64) - warp + kWarps - 1) / kWarps;
    }

    // The row of a tile whose page this lane looks up.
    RKV_DEVICE int row_of_lane(int tile) const {
        return by_boxes(tile) ? box_row : warp * kWarpRows + lane % kWarpRows;
    }

    // Two tiles before it is used: the look-up's latency is hidden. -1: nothing is wanted of it.
    RKV_DEVICE int look_up(int tile) const {
        const int key = tiles.first_key(tile) + row_of_lane(tile);
        const bool wanted = any.begin <= key && key < any.end;
        return wanted ? load_global(args.pages + page_begin + page_of(key, args.kv)) : -1;
    }

    // A latent tile waits for its place in shared memory: by then it is in the second cache. Worth
    // it where other blocks have other rows of the same query; alone, memory is what bounds them.
    RKV_DEVICE void prefetch(int tile, int page) const {
        if (tile >= tiles.count || static_cast<int>(args.group.value) <= S::kTileRows) {
            return;
        }
        const int key = tiles.first_key(tile) + row_of_lane(tile);
        const int position = position_in_page(key, args.kv);
        if (!by_boxes(tile)) {
            if (page >= 0 && lane < kWarpRows) {
                const int64_t place = place_of(page, position, head, args.kv) * 2;
                prefetch_bytes(static_cast<const uint8_t *>(args.k) + place, S::kHeadDim * 2);
            }
        } else if (box_panel < S::kHeadDim / 64) {
            const bool position_first = arguments.position_first != 0;
            prefetch_box(&arguments.k, box_panel * 64, position_first ? position : head,
                         position_first ? head : position, page);
        }
    }

    template <int kValues>
    RKV_DEVICE void start_boxes(int tile, int page, uint32_t to, uint32_t full) const {
        if (lane == 0) {
            const int bytes = boxes_of_warp<kValues>() * arguments.box_positions * S::kRowBytes;
            barrier_arrive_expect(full, fault(Fault::kBytesTooFew) ? bytes / 2 : bytes);
        }
        sync_warp();
        if (box_panel < kDim<kValues> / 64) {
            const int position = position_in_page(tiles.first_key(tile) + box_row, args.kv);
            const bool position_first = arguments.position_first != 0;
            copy_box(to + box_panel * S::kTilePanelBytes + box_row * S::kRowBytes,
                     kValues == 1 ? &arguments.v : &arguments.k, full, box_panel * 64,
                     position_first ? position : head, position_first ? head : position, page);
        }
        if (lane != 0) {
            barrier_arrive(full);
        }
    }

    template <int kValues>
    RKV_DEVICE void start_rows(int tile, int page, uint32_t to) const {
        int64_t place = -1;
        if (page >= 0) {
            const int key = tiles.first_key(tile) + row_of_lane(tile);
            const int position = position_in_page(key, args.kv);
            const KvPlace &kv = kValues == 1 && kApart ? args.v_kv : args.kv;
            place = place_of(page, position, head, kv) * 2;
        }
        const uint8_t *from = static_cast<const uint8_t *>(kValues == 1 ? args.v : args.k);
        RowCopies<kWarpRows, kDim<kValues> / 8>::each_in_rounds(
            place, lane, [&](int row, int chunk, int64_t at, bool wanted) {
                copy_async16(to + chunk_at(warp * kWarpRows + row, chunk, S::kTilePanelBytes),
                             from + at + chunk * 16, wanted);
            });
        copy_async_commit();
    }

    // Says that copies of rows are there, but for the `kLater` that were started last.
    template <int kLater>
    RKV_DEVICE void report() {
        if (unreported != 0) {
            copy_async_wait<kLater>();
            if (!fault(Fault::kNoProxyFence)) {
                fence_async_proxy();
            }
            barrier_arrive(unreported);
            unreported = 0;
        }
    }

    template <int kValues>
    RKV_DEVICE void load(int tile, int page) {
        const int stage = (before + tile) % S::kStages, round = (before + tile) / S::kStages;
        const uint32_t to = shared + S::tile_at(kValues, stage);
        const uint32_t full = shared + S::full_at(kValues, stage);
        if (S::kLatent) {
            report<0>(); // the tile before this one may have to be used before there is room
        }
        if (!fault(Fault::kNoWaitForRoom)) {
            barrier_wait(shared + S::empty_at(kValues, stage), (round & 1) ^ 1);
        }
        if (!by_boxes(tile)) {
            start_rows<kValues>(tile, page, to);
            report<1>();
            unreported = full;
            return;
        }
        start_boxes<kValues>(tile, page, to, full);
        report<0>();
    }

    // In the order in which they are used: the keys of a tile come before the values of the one
    // before it.
    RKV_DEVICE void run() {
        if (tiles.count == 0) {
            return;
        }
        int page = look_up(0), next = look_up(1);
        load<0>(0, page);
        for (int tile = 0; tile < tiles.count; tile++) {
            const int after = look_up(tile + 2);
            if (S::kLatent) {
                prefetch(tile + 2, after);
            }
            if (tile + 1 < tiles.count) {
                load<0>(tile + 1, next);
            }
            if constexpr (!S::kLatent) {
                load<1>(tile, page);
            }
            page = next;
            next = after;
        }
        report<0>();
    }
};

} // namespace rkv
