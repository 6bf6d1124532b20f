// What the groups of attn_sm90 that compute have in common: queries, the products of a tile,
// weights of its logits, and results.
#pragma once
#include "items_sm90.cuh"
#include "output.cuh"

namespace rkv {

template <class S>
struct Computer {
    PackedRows<false, false> &rows;
    const AttentionArguments &args;
    const Tiles<S> tiles;
    const int group;    // of those that compute
    const int row_warp; // of those of the tile's rows
    const uint32_t shared;
    const int before, round; // tiles of the items before, and items
    const float k_scale;

    static constexpr int kColumns = S::kTileKeys / 8;
    float s[kColumns][4];             // logits of a tile, then weights
    uint32_t p[S::kTileKeys / 16][4]; // weights, in the queries' format
    float o[S::kWarpValues / 8][4];
    RowState state[2];

    RKV_DEVICE Computer(const HopperArguments &arguments, PackedRows<false, false> &packed,
                        int warp_index, uint32_t shared_at, int tiles_before, int items_before)
        : rows(packed), args(arguments.attention),
          tiles(packed.any, S::kIsFp8 ? 0 : arguments.box_positions), group(warp_index / 4),
          row_warp(warp_index % S::kRowWarps), shared(shared_at), before(tiles_before),
          round(items_before), k_scale(k_scale_of_head<S>(args, rows.head)) {}

    RKV_DEVICE int stage_of(int tile) const { return (before + tile) % S::kStages; }

    RKV_DEVICE uint32_t query_tile() const { return shared + row_warp / 4 * S::kQueryBytes; }

    // Waits for all threads that multiply the same rows. Numbers of barriers are constants: one
    // that is computed would make the compiler reserve all of them.
    RKV_DEVICE void sync_rows() const {
        if (row_warp < 4) {
            sync_some<1, 128 * S::kValueGroups>();
        } else if (S::kRowGroups == 2 || row_warp < 8) {
            sync_some<2, 128>();
        } else {
            sync_some<3, 128>();
        }
    }

    RKV_DEVICE void load_queries(int warp_index) const {
        constexpr int kSharers = 4 * S::kValueGroups; // warps that copy the same rows
        constexpr int kRows = S::kGroupRows / kSharers;
        // Rows that are not next to each other: what a warp copies all of them multiply.
        const int lane = rows.lane, warp = warp_index % kSharers;
        const int64_t elements = rows.elements_of(row_warp / 4 * S::kGroupRows +
                                                  lane % kRows * kSharers + warp);
        const uint8_t *from = static_cast<const uint8_t *>(args.q);
        RowCopies<kRows, S::kChunks>::each_in_rounds(
            elements, lane, [&](int row, int chunk, int64_t at, bool wanted) {
                copy_async16(query_tile() +
                                 chunk_at(row * kSharers + warp, chunk, S::kQueryPanelBytes),
                             from + (at + chunk * 8) * 2, wanted);
            });
        copy_async_commit();
        copy_async_wait<0>();
        fence_async_proxy();
        if (!fault(Fault::kNoBarrierAfterQuery)) {
            sync_rows();
        }
    }

    template <int kValues>
    RKV_DEVICE void wait_full(int tile) const {
        if (kValues == 0 && fault(Fault::kNoWaitForTile)) {
            return;
        }
        const int turn = (before + tile) / S::kStages;
        const int parity = fault(Fault::kStuckParity) ? 0 : turn & 1;
        barrier_wait(shared + S::full_at(kValues, stage_of(tile)), parity);
    }

    RKV_DEVICE void wait_keys(int tile) const {
        if (tile < tiles.count) {
            wait_full<0>(tile);
        }
    }

    template <int kValues>
    RKV_DEVICE void release(int tile) const {
        if (rows.lane == 0) {
            barrier_arrive(shared + S::empty_at(kValues, stage_of(tile)));
        }
    }

    // s = Q K
    RKV_DEVICE void start_logits(int tile) {
        uint64_t left = operand(query_tile(), 16);
        uint64_t right = operand(shared + S::tile_at(0, stage_of(tile)), 16);
        pin(s);
        products_begin();
        // The operands of all products of a latent tile at once would take too many registers.
        constexpr int kSteps = S::kHeadDim / 16, kRound = S::kLatent ? 12 : kSteps;
        RKV_UNROLL
        for (int step = 0; step < kSteps; step++) {
            if (step > 0 && step % kRound == 0) {
                left += (kRound / 4 * S::kQueryPanelBytes) >> 4;
                right += (kRound / 4 * S::kTilePanelBytes) >> 4;
                pin(left);
                pin(right);
            }
            const int panel = step % kRound / 4, inside = step % 4 * 32;
            multiply_shared(typename S::Q{}, s,
                            left + ((panel * S::kQueryPanelBytes + inside) >> 4),
                            right + ((panel * S::kTilePanelBytes + inside) >> 4), step > 0);
        }
        products_commit();
        pin(s);
        if (!S::kLatent && fault(Fault::kEarlyRelease)) {
            release<0>(tile);
        }
    }

    // o += P V
    RKV_DEVICE void start_values(int tile) {
        const int part = S::kLatent ? group * (S::kWarpValues / 64) * S::kTilePanelBytes : 0;
        const uint64_t right =
            operand(shared + S::tile_at(1, stage_of(tile)) + part, S::kTilePanelBytes);
        pin(o);
        pin(p);
        products_begin();
        RKV_UNROLL
        for (int step = 0; step < S::kTileKeys / 16; step++) {
            multiply_registers(typename S::Q{}, o, p[step],
                               right + ((step * 16 * S::kRowBytes) >> 4));
        }
        products_commit();
        pin(o);
        if (S::kLatent && fault(Fault::kEarlyRelease)) {
            release<1>(tile);
        }
    }

    template <int kPending>
    RKV_DEVICE void finish_logits(int tile) {
        if (!fault(Fault::kNoWaitForLogits)) {
            products_wait<kPending>();
        }
        pin(s);
        // Keys that are values, too, are needed longer.
        if (!S::kLatent && !fault(Fault::kEarlyRelease)) {
            release<0>(tile);
        }
    }

    template <int kPending>
    RKV_DEVICE void finish_values(int tile) {
        if (!fault(Fault::kNoWaitForValues)) {
            products_wait<kPending>();
        }
        pin(o);
        pin(p);
        if (!S::kLatent || !fault(Fault::kEarlyRelease)) {
            release<1>(tile);
        }
    }

    RKV_DEVICE void pack_weights() {
        RKV_UNROLL
        for (int step = 0; step < S::kTileKeys / 16; step++) {
            RKV_UNROLL
            for (int i = 0; i < 4; i++) {
                const float(&pair)[4] = s[2 * step + i / 2];
                p[step][i] = S::Q::pack(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
            }
        }
    }

    // Makes weights of logits; returns what was summed before is to be multiplied with.
    RKV_DEVICE void weigh_tile(int tile, float scale, float (&rescale)[2]) {
        // Numbers that need no registers between tiles.
        const Range all = load_range(shared + S::kWholeAt + row_warp * 8);
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            rows.sees[half] = load_range(shared + S::sees_at(row_warp, rows.lane, half));
        }
        rows.cap_and_mask(s, tiles.first_key(tile), row_warp * 16, all, k_scale);
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            rescale[half] = weigh<kColumns>(state[half], s, half, scale);
        }
    }

    RKV_DEVICE void clear_sums() {
        RKV_UNROLL
        for (int n = 0; n < S::kWarpValues / 8; n++) {
            o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
        }
    }

    RKV_DEVICE void finish_sums(float scale) {
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            finish_sum(state[half], scale);
        }
    }

    // What the rows see is needed no more: the next item's may be told.
    RKV_DEVICE void say_heard() const {
        sync_warp();
        if (rows.lane == 0) {
            barrier_arrive(shared + S::kHeardAt);
        }
    }

    RKV_DEVICE void write() {
        // Read again, rather than kept in registers meanwhile.
        const uint32_t item_at = shared + S::kItemAt + (round & 1) * S::kItemBytes;
        const PackedRows<false, false> again(args, load_item(item_at),
                                             load_shared_i32(item_at + S::kHeadInItem), rows.lane);
        const int value_group = S::kLatent ? group : 0;
        Writer<S, PackedRows<false, false>>{again}.write_rows(o, state, row_warp, value_group);
    }
};

} // namespace rkv
