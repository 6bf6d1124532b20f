// Results of a block of attn_mma: whole ones go to `out` in the queries' format, partial ones to
// `partial_out` in f32, for merge.
#pragma once
#include "rows.cuh"
#include "tile.cuh"

namespace rkv {

// Which element of a head the accumulator o[n][e] of a lane belongs to. Values that are widened as
// they are multiplied come out of a transposed load as pairs of elements, see multiply_values().
// Of a value warp it counts from the first element that the warp sums.
template <class S>
RKV_DEVICE int element_of(int n, int e, int lane) {
    return S::kWidensOperands ? (n >> 1) * 16 + (lane & 3) * 4 + e * 2 + (n & 1)
                     : n * 8 + (lane & 3) * 2 + e;
}

// What a row's result is made of, and where it goes.
struct Target {
    int query, head;
    int64_t partial; // number of its partial result, of [partial][query head]; -1: it is whole
};

template <class S, class Rows>
struct Writer {
    const Rows &rows;

    RKV_DEVICE const AttentionArguments &args() const { return rows.args; }

    RKV_DEVICE Target target_of(int row) const {
        const PackedRow at = rows.packed(row);
        const int first = rows.item.partial_begin;
        const int64_t partial =
            static_cast<int64_t>(first + at.part) * args().query_heads + at.head;
        return {rows.query_of_part(at.part), at.head, first >= 0 ? partial : -1};
    }

    RKV_DEVICE void write_lse(const RowState &state, const Target &to) const {
        if (to.partial >= 0) {
            store_global(args().partial_lse + to.partial, natural_lse(state));
        } else if (args().lse != nullptr) {
            store_global(args().lse + static_cast<int64_t>(to.query) * args().query_heads + to.head,
                         natural_lse(state));
        }
    }

    // Of the values of the KV head.
    RKV_DEVICE float v_scale() const {
        const bool by_head =
            S::kIsFp8 && args().v_scales != nullptr && !fault(Fault::kHeadScaleIgnored);
        return by_head ? load_global(args().v_scales + rows.head) : args().v_scale;
    }

    // What sums of values are multiplied with; the sink is in the denominator then.
    RKV_DEVICE float finish(RowState &state, const Target &to) const {
        float rescale = 1.0f;
        if (args().sinks != nullptr && (to.partial < 0 || fault(Fault::kSinkTwice))) {
            rescale = add_sink(state, load_global(args().sinks + to.head));
        }
        return rescale * inverse_sum(state) * v_scale();
    }

    // Where a row's element lies.
    RKV_DEVICE float *partial_at(const Target &to, int element) const {
        return args().partial_out + to.partial * S::kValueDim + element;
    }
    RKV_DEVICE uint32_t *whole_at(const Target &to, int element) const {
        const int64_t at = to.query * args().out_position_stride +
                           to.head * args().out_head_stride + element;
        return reinterpret_cast<uint32_t *>(static_cast<uint8_t *>(args().out) + 2 * at);
    }

    // Straight from the accumulators.
    RKV_DEVICE void write_rows(const float (&o)[S::kWarpValues / 8][4], RowState (&state)[2],
                               int row_warp, int value_warp) const {
        const int lane = rows.lane;
        const int first = value_warp * S::kWarpValues;
        // The rows are found once more, rather than kept in registers meanwhile.
        const int row = anew(row_warp * 16) + (lane >> 2);
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            if (row + half * 8 >= rows.item.row_count && !fault(Fault::kRowsBeyondTile)) {
                continue;
            }
            const Target to = target_of(row + half * 8);
            const float factor = finish(state[half], to);
            // A lane's elements lie at distances that are known when this is compiled.
            if (to.partial >= 0) {
                float *out = partial_at(to, first + element_of<S>(0, 0, lane));
                RKV_UNROLL
                for (int n = 0; n < S::kWarpValues / 8; n++) {
                    store_global2(reinterpret_cast<uint32_t *>(out + n * 8),
                                  float_to_bits(o[n][2 * half] * factor),
                                  float_to_bits(o[n][2 * half + 1] * factor));
                }
            } else {
                uint32_t *out = whole_at(to, first + element_of<S>(0, 0, lane));
                RKV_UNROLL
                for (int n = 0; n < S::kWarpValues / 8; n++) {
                    store_global(out + n * 4,
                                 S::Q::pack(o[n][2 * half] * factor, o[n][2 * half + 1] * factor));
                }
            }
            if ((lane & 3) == 0 && value_warp == 0) {
                write_lse(state[half], to);
            }
        }
    }

    // Through shared memory, because each key warp saw other keys.
    RKV_DEVICE void write_combined(const float (&o)[S::kWarpValues / 8][4],
                                   const RowState (&state)[2], int thread, int key_warp,
                                   uint32_t shared) const {
        const int lane = rows.lane;
        const uint32_t sums = shared + S::kCombineStatBytes;
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            const int at = key_warp * S::kTileRows + (lane >> 2) + half * 8;
            if ((lane & 3) == 0) {
                store_shared_f32(shared + at * 8, state[half].largest);
                store_shared_f32(shared + at * 8 + 4, state[half].sum);
            }
            RKV_UNROLL
            for (int n = 0; n < S::kWarpValues / 8; n++) {
                RKV_UNROLL
                for (int e = 0; e < 2; e++) {
                    store_shared_f32(sums + at * S::kCombineRowBytes +
                                         element_of<S>(n, e, lane) * 4,
                                     o[n][2 * half + e]);
                }
            }
        }
        if (!fault(Fault::kNoBarrierBeforeCombine)) {
            sync_block();
        }
        constexpr int kQuads = S::kValueDim / 4;
        const int count = smaller(rows.item.row_count, S::kTileRows) * kQuads;
        for (int i = thread; i < count; i += S::kThreads) {
            const int row = i / kQuads, quad = i % kQuads;
            RowState total;
            RKV_UNROLL
            for (int warp = 0; warp < S::kKeyWarps; warp++) {
                const uint32_t at = shared + (warp * S::kTileRows + row) * 8;
                total.largest = larger(total.largest, load_shared_f32(at));
            }
            const float base = total.largest == -kInfinity ? 0.0f : total.largest;
            float x[4] = {0.0f, 0.0f, 0.0f, 0.0f};
            RKV_UNROLL
            for (int warp = 0; warp < S::kKeyWarps; warp++) {
                const int from = warp * S::kTileRows + row;
                const float weight = exp2_fast(load_shared_f32(shared + from * 8) - base);
                total.sum += weight * load_shared_f32(shared + from * 8 + 4);
                const Vector16 four =
                    load_shared16(sums + from * S::kCombineRowBytes + quad * 16);
                RKV_UNROLL
                for (int e = 0; e < 4; e++) {
                    x[e] += weight * bits_to_float(four.x[e]);
                }
            }
            const Target to = target_of(row);
            const float factor = finish(total, to);
            RKV_UNROLL
            for (int e = 0; e < 4; e++) {
                x[e] *= factor;
            }
            if (to.partial >= 0) {
                store_global(reinterpret_cast<Vector16 *>(partial_at(to, quad * 4)),
                             {{float_to_bits(x[0]), float_to_bits(x[1]), float_to_bits(x[2]),
                               float_to_bits(x[3])}});
            } else {
                store_global2(whole_at(to, quad * 4), S::Q::pack(x[0], x[1]),
                              S::Q::pack(x[2], x[3]));
            }
            if (quad == 0) {
                write_lse(total, to);
            }
        }
    }
};

} // namespace rkv
