// Attention for Hopper: the items, rows and results of attn_mma, by wgmma. Four warps load (see
// load_sm90.cuh, and for fp8 widen_sm90.cuh), the others compute.
//
// It has no registers left for tree masks: steps with those go to attn_mma.
//
// The logits of a tile are computed while the weights of the one before it are multiplied with its
// values; weights go from registers into the product, values are read across. Latent values, which
// are keys, are divided among the groups: see latent_sm90.cuh.
#pragma once
#include "latent_sm90.cuh"
#include <type_traits>

namespace rkv {

// A group that has rows of its own.
template <class S>
struct RowComputer : Computer<S> {
    using Computer<S>::Computer;
    using Computer<S>::group;
    using Computer<S>::tiles;
    using Computer<S>::o;

    static constexpr int kLast = S::kGroups - 1;

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

    RKV_DEVICE void run(int warp_index) {
        this->clear_sums();
        const float scale = scale_of_logits<false>(this->args, this->k_scale);
        if (tiles.count > 0) {
            this->load_queries(warp_index);
            attend(scale);
        } else {
            this->say_heard();
        }
        this->finish_sums(scale);
        this->write();
    }

    RKV_DEVICE void attend(float scale) {
        if (group == kLast && tiles.count > 1) {
            pass_turn(); // the first turn is the first group's
        }
        float rescale[2];
        this->wait_keys(0);
        this->start_logits(0);
        this->template finish_logits<0>(0);
        this->weigh_tile(0, scale, rescale);
        this->pack_weights();
        this->wait_keys(1);
        for (int tile = 1; tile < tiles.count; tile++) {
            take_turn();
            this->start_logits(tile);
            this->template wait_full<1>(tile - 1);
            this->start_values(tile - 1);
            if (group != kLast || tile + 1 < tiles.count) {
                pass_turn();
            }
            this->template finish_logits<1>(tile);
            this->weigh_tile(tile, scale, rescale);
            // The branches in here keep the compiler from moving the wait for the sums up, to
            // before the weights, which would lose what the two products in flight are for.
            this->wait_keys(tile + 1);
            this->template finish_values<0>(tile - 1);
            rescale_sums(o, rescale);
            this->pack_weights();
        }
        this->say_heard();
        this->template wait_full<1>(tiles.count - 1);
        this->start_values(tiles.count - 1);
        this->template finish_values<0>(tiles.count - 1);
    }
};

template <class S>
using ComputerOf = std::conditional_t<S::kLatent, LatentComputer<S>, RowComputer<S>>;

template <class S>
RKV_DEVICE void compute_items(const HopperArguments &arguments, int warp_index, uint32_t shared) {
    int before = 0;
    for (int round = 0;; round++) {
        const ToldItem told = hear_item<S>(shared, round);
        if (told.head < 0) {
            return;
        }
        // What is computed of these again for each item needs no registers from item to item.
        const int lane = anew(thread_index()) & 31, warp = anew(warp_index);
        PackedRows<false, false> rows(arguments.attention, told.item, told.head, lane);
        rows.any = told.any;
        const uint32_t at = static_cast<uint32_t>(anew(static_cast<int>(shared)));
        ComputerOf<S> computer(arguments, rows, warp, at, before, round);
        computer.run(warp);
        before = (before + computer.tiles.count) % (2 * S::kStages);
    }
}

template <class S>
RKV_DEVICE void attend_hopper(const HopperArguments &arguments) {
    const uint32_t shared = (shared_base() + S::kAlignment - 1) & ~(S::kAlignment - 1u);
    const int warp = of_first_lane(thread_index() >> 5);
    begin_launch();
    if (thread_index() == 0) {
        constexpr int kParts = S::kLatent ? 1 : 2; // keys, and values of their own
        RKV_UNROLL
        for (int i = 0; i < kParts * S::kStages; i++) {
            barrier_init(shared + S::full_at(i % kParts, i / kParts), 128);
            barrier_init(shared + S::empty_at(i % kParts, i / kParts), S::kWarps);
        }
        barrier_init(shared + S::kToldAt, 128);
        barrier_init(shared + S::kHeardAt, S::kWarps);
        barrier_init_fence();
        if (!S::kIsFp8 && arguments.box_positions > 0) {
            prefetch_map(&arguments.k);
            if (!S::kLatent) {
                prefetch_map(&arguments.v);
            }
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
