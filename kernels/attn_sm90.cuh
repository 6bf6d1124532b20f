// Attention for Hopper: the items, rows and results of attn_mma, by wgmma. Four warps load (see
// load_sm90.cuh, and for fp8 widen_sm90.cuh), the others compute.
//
// It has no registers left for tree masks: steps with those go to attn_mma.
//
// The logits of a tile are computed while the weights of the one before it are multiplied with its
// values; weights go from registers into the product, values are read across.
#pragma once
#include "output.cuh"
#include "items_sm90.cuh"

namespace rkv {

template <class S>
struct Computer {
    PackedRows<false, false> &rows;
    const AttentionArguments &args;
    const Tiles<S> tiles;
    const int group, row_warp;
    const uint32_t shared;
    const int before, round; // tiles of the items before, and items
    const float k_scale;

    static constexpr int kLast = S::kGroups - 1;
    static constexpr int kColumns = S::kTileKeys / 8;
    float s[kColumns][4];             // logits of a tile, then weights
    uint32_t p[S::kTileKeys / 16][4]; // weights, in the queries' format
    float o[S::kHeadDim / 8][4];
    RowState state[2];

    RKV_DEVICE Computer(const HopperArguments &arguments, PackedRows<false, false> &packed,
                        int warp_index, uint32_t shared_at, int tiles_before, int items_before)
        : rows(packed), args(arguments.attention),
          tiles(packed.any, S::kIsFp8 ? 0 : arguments.box_positions), group(warp_index / 4),
          row_warp(warp_index), shared(shared_at), before(tiles_before), round(items_before),
          k_scale(k_scale_of_head<S>(args, rows.head)) {}

    RKV_DEVICE int stage_of(int tile) const { return (before + tile) % S::kStages; }

    // Waits for all threads of the group. Numbers of barriers are constants: one that is computed
    // would make the compiler reserve all of them.
    RKV_DEVICE void sync_group() const {
        if (group == 0) {
            sync_some<1, 128>();
        } else if (S::kGroups == 2 || group == 1) {
            sync_some<2, 128>();
        } else {
            sync_some<3, 128>();
        }
    }

    RKV_DEVICE void take_turn() const {
        if (!S::kTakeTurns) {
            return;
        }
        if (group == 0) {
            sync_some<4, 256>();
        } else if (S::kGroups == 2 || group == 1) {
            sync_some<5, 256>();
        } else {
            sync_some<6, 256>();
        }
    }

    // To the next group; the last one's to the first.
    RKV_DEVICE void pass_turn() const {
        if (!S::kTakeTurns) {
            return;
        }
        if (group == kLast) {
            arrive_some<4, 256>();
        } else if (S::kGroups == 2 || group == 0) {
            arrive_some<5, 256>();
        } else {
            arrive_some<6, 256>();
        }
    }

    RKV_DEVICE uint32_t query_tile() const { return shared + group * S::kQueryBytes; }

    RKV_DEVICE void load_queries() const {
        constexpr int kRows = S::kGroupRows / 4; // that a warp copies
        // Every fourth one: what a warp copies all of them multiply.
        const int lane = rows.lane, warp = row_warp % 4;
        const int64_t elements =
            rows.elements_of(group * S::kGroupRows + lane % kRows * 4 + warp);
        const uint8_t *from = static_cast<const uint8_t *>(args.q);
        RowCopies<kRows, S::kChunks>::each(
            elements, lane, [&](int row, int chunk, int64_t at, bool wanted) {
                copy_async16(query_tile() + chunk_at(row * 4 + warp, chunk, S::kQueryPanelBytes),
                             from + (at + chunk * 8) * 2, wanted);
            });
        copy_async_commit();
        copy_async_wait<0>();
        fence_async_proxy();
        if (!fault(Fault::kNoBarrierAfterQuery)) {
            sync_group();
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
        const uint64_t left = operand(query_tile(), 16);
        const uint64_t right = operand(shared + S::tile_at(0, stage_of(tile)), 16);
        pin(s);
        products_begin();
        RKV_UNROLL
        for (int step = 0; step < S::kHeadDim / 16; step++) {
            const int panel = step / 4, inside = step % 4 * 32;
            multiply_shared(typename S::Q{}, s,
                            left + ((panel * S::kQueryPanelBytes + inside) >> 4),
                            right + ((panel * S::kTilePanelBytes + inside) >> 4), step > 0);
        }
        products_commit();
        pin(s);
        if (fault(Fault::kEarlyRelease)) {
            release<0>(tile);
        }
    }

    // o += P V
    RKV_DEVICE void start_values(int tile) {
        const uint64_t right =
            operand(shared + S::tile_at(1, stage_of(tile)), S::kTilePanelBytes);
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
    }

    template <int kPending>
    RKV_DEVICE void finish_logits(int tile) {
        if (!fault(Fault::kNoWaitForLogits)) {
            products_wait<kPending>();
        }
        pin(s);
        if (!fault(Fault::kEarlyRelease)) {
            release<0>(tile);
        }
    }

    RKV_DEVICE void finish_values(int tile) {
        if (!fault(Fault::kNoWaitForValues)) {
            products_wait<0>();
        }
        pin(o);
        pin(p);
        release<1>(tile);
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

    RKV_DEVICE void run() {
        RKV_UNROLL
        for (int n = 0; n < S::kHeadDim / 8; n++) {
            o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
        }
        const float scale = args.soft_cap_in == 0.0f ? args.scale_log2 * k_scale : 1.0f;
        if (tiles.count > 0) {
            attend(scale);
        } else {
            say_heard();
        }
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            finish_sum(state[half], scale);
        }
        // Read again, rather than kept in registers meanwhile.
        const uint32_t item_at = shared + S::kItemAt + (round & 1) * S::kItemBytes;
        const PackedRows<false, false> again(args, load_item(item_at),
                                             load_shared_i32(item_at + S::kHeadInItem), rows.lane);
        Writer<S, PackedRows<false, false>>{again}.write_rows(o, state, row_warp, 0);
    }

    // What the rows see is needed no more: the next item's may be told.
    RKV_DEVICE void say_heard() const {
        sync_warp();
        if (rows.lane == 0) {
            barrier_arrive(shared + S::kHeardAt);
        }
    }

    RKV_DEVICE void attend(float scale) {
        load_queries();
        if (group == kLast && tiles.count > 1) {
            pass_turn(); // the first turn is the first group's
        }
        float rescale[2];
        wait_keys(0);
        start_logits(0);
        finish_logits<0>(0);
        weigh_tile(0, scale, rescale);
        pack_weights();
        wait_keys(1);
        for (int tile = 1; tile < tiles.count; tile++) {
            take_turn();
            start_logits(tile);
            wait_full<1>(tile - 1);
            start_values(tile - 1);
            if (group != kLast || tile + 1 < tiles.count) {
                pass_turn();
            }
            finish_logits<1>(tile);
            weigh_tile(tile, scale, rescale);
            // The branches in here keep the compiler from moving the wait for the sums up, to
            // before the weights, which would lose what the two products in flight are for.
            wait_keys(tile + 1);
            finish_values(tile - 1);
            rescale_sums(o, rescale);
            pack_weights();
        }
        say_heard();
        wait_full<1>(tiles.count - 1);
        start_values(tiles.count - 1);
        finish_values(tiles.count - 1);
    }
};

template <class S>
RKV_DEVICE void compute_items(const HopperArguments &arguments, int row_warp, uint32_t shared) {
    int before = 0;
    for (int round = 0;; round++) {
        const ToldItem told = hear_item<S>(shared, round);
        if (told.head < 0) {
            return;
        }
        // What is computed of these again for each item needs no registers from item to item.
        const int lane = anew(thread_index()) & 31, warp = anew(row_warp);
        PackedRows<false, false> rows(arguments.attention, told.item, told.head, lane);
        rows.any = told.any;
        const uint32_t at = static_cast<uint32_t>(anew(static_cast<int>(shared)));
        Computer<S> computer(arguments, rows, warp, at, before, round);
        computer.run();
        before = (before + computer.tiles.count) % (2 * S::kStages);
    }
}

template <class S>
RKV_DEVICE void attend_hopper(const HopperArguments &arguments) {
    const uint32_t shared = (shared_base() + S::kAlignment - 1) & ~(S::kAlignment - 1u);
    const int warp = of_first_lane(thread_index() >> 5);
    begin_launch();
    if (thread_index() == 0) {
        RKV_UNROLL
        for (int i = 0; i < 2 * S::kStages; i++) {
            barrier_init(shared + S::full_at(i % 2, i / 2), 128);
            barrier_init(shared + S::empty_at(i % 2, i / 2), S::kRowWarps);
        }
        barrier_init(shared + S::kToldAt, 128);
        barrier_init(shared + S::kHeardAt, S::kRowWarps);
        barrier_init_fence();
        if (!S::kIsFp8 && arguments.box_positions > 0) {
            prefetch_map(&arguments.k);
            prefetch_map(&arguments.v);
        }
    }
    sync_block();
    if (warp < 4) {
        give_registers<S::kLoadRegisters>();
        ItemsToTell<S>{arguments, warp, thread_index() & 31, shared}.run();
    } else {
        take_registers<S::kComputeRegisters>();
        compute_items<S>(arguments, warp - 4, shared);
    }
}

} // namespace rkv
