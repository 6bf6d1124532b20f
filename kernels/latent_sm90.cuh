// The groups of attn_sm90 where values are latent: the sums of 512 of them for 64 rows are more
// than the registers of one group. The first group makes the weights of all rows, and hands them
// over to the second, by way of shared memory; each multiplies them with its half of the values,
// which are read a second time from the tile of keys. (FlashMLA divides a block so, too.)
//
// The second group's products run while the first makes the logits of the next tile. Two barriers
// that have numbers:
//
//   handed   the first group arrives when weights are in shared memory, the second waits
//   taken    the second arrives when it has them in registers, the first waits before the next ones
#pragma once
#include "compute_sm90.cuh"

namespace rkv {

template <class S>
struct LatentComputer : Computer<S> {
    using Computer<S>::Computer;
    using Computer<S>::group;
    using Computer<S>::row_warp;
    using Computer<S>::rows;
    using Computer<S>::tiles;
    using Computer<S>::p;
    using Computer<S>::o;
    using Computer<S>::state;

    static constexpr int kThreads = 256;

    RKV_DEVICE void run(int warp_index) {
        this->clear_sums();
        const float scale = scale_of_logits<false>(this->args, this->k_scale);
        if (tiles.count == 0) {
            this->say_heard();
        } else {
            this->load_queries(warp_index);
            if (group == 0) {
                lead(scale);
                this->finish_sums(scale);
                hand_states();
            } else {
                follow();
                take_states();
            }
        }
        this->write();
    }

    // The first group.
    RKV_DEVICE void lead(float scale) {
        float rescale[2];
        this->template wait_full<0>(0);
        this->start_logits(0);
        this->template finish_logits<0>(0);
        this->weigh_tile(0, scale, rescale);
        this->pack_weights();
        hand_weights(0, rescale);
        for (int tile = 1; tile < tiles.count; tile++) {
            this->start_values(tile - 1);
            this->template wait_full<0>(tile);
            this->start_logits(tile);
            // The place of the tile before is wanted for the next one.
            this->template finish_values<1>(tile - 1);
            this->template finish_logits<0>(tile);
            this->weigh_tile(tile, scale, rescale);
            this->pack_weights();
            hand_weights(tile, rescale);
            rescale_sums(o, rescale);
        }
        this->say_heard();
        this->start_values(tiles.count - 1);
        this->template finish_values<0>(tiles.count - 1);
    }

    // The second one.
    RKV_DEVICE void follow() {
        this->say_heard(); // it never looks at what rows see
        float rescale[2];
        for (int tile = 0; tile < tiles.count; tile++) {
            take_weights(rescale);
            rescale_sums(o, rescale);
            this->template wait_full<1>(tile);
            this->start_values(tile);
            this->template finish_values<0>(tile);
        }
    }

    RKV_DEVICE uint32_t handed_at() const { return this->shared + S::kHandedAt; }
    RKV_DEVICE uint32_t weights_at(int step) const {
        return handed_at() + (step * 128 + row_warp * 32 + rows.lane) * 16;
    }
    // Of one of this thread's two rows.
    RKV_DEVICE int row_at(int half) const { return row_warp * 16 + (rows.lane >> 2) + half * 8; }
    RKV_DEVICE uint32_t rescale_at(int half) const {
        return handed_at() + S::kHandedWeightBytes + row_at(half) * 4;
    }
    RKV_DEVICE uint32_t state_at(int half) const { return handed_at() + row_at(half) * 8; }

    RKV_DEVICE void wait_taken() const {
        if (fault(Fault::kHandedTooEarly)) {
            arrive_some<5, kThreads>();
        } else {
            sync_some<5, kThreads>();
        }
    }
    RKV_DEVICE void wait_handed() const {
        if (fault(Fault::kTakenTooEarly)) {
            arrive_some<4, kThreads>();
        } else {
            sync_some<4, kThreads>();
        }
    }

    RKV_DEVICE void hand_weights(int tile, const float (&rescale)[2]) const {
        if (tile > 0) {
            wait_taken();
        }
        RKV_UNROLL
        for (int step = 0; step < S::kTileKeys / 16; step++) {
            store_shared16(weights_at(step), {{p[step][0], p[step][1], p[step][2], p[step][3]}});
        }
        if (rows.lane % 4 == 0) {
            store_shared_f32(rescale_at(0), rescale[0]);
            store_shared_f32(rescale_at(1), rescale[1]);
        }
        arrive_some<4, kThreads>();
    }

    RKV_DEVICE void take_weights(float (&rescale)[2]) {
        wait_handed();
        RKV_UNROLL
        for (int step = 0; step < S::kTileKeys / 16; step++) {
            const Vector16 four = load_shared16(weights_at(step));
            RKV_UNROLL
            for (int i = 0; i < 4; i++) {
                p[step][i] = four.x[i];
            }
        }
        rescale[0] = load_shared_f32(rescale_at(0));
        rescale[1] = load_shared_f32(rescale_at(1));
        arrive_some<5, kThreads>();
    }

    // In the place of weights, behind the last of them.
    RKV_DEVICE void hand_states() const {
        wait_taken();
        if (rows.lane % 4 == 0) {
            RKV_UNROLL
            for (int half = 0; half < 2; half++) {
                store_shared_f32(state_at(half), state[half].largest);
                store_shared_f32(state_at(half) + 4, state[half].sum);
            }
        }
        arrive_some<4, kThreads>();
    }

    RKV_DEVICE void take_states() {
        wait_handed();
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            state[half] = {load_shared_f32(state_at(half)), load_shared_f32(state_at(half) + 4)};
        }
    }
};

} // namespace rkv
