// Results of a block of attn_mma: whole ones go to `out` in the queries' format, partial ones to
// `partial_out` in f32, for merge.
#pragma once
#include "softmax.cuh"
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

template <class S>
struct Writer {
    const AttentionArguments &args;
    const Item &item;

    RKV_DEVICE bool is_partial() const { return item.partial_begin >= 0; }

    // Of [partial][query head]
    RKV_DEVICE int64_t partial_at(int row, int head) const {
        const int partial = item.partial_begin + (item.row_begin + row) / args.group;
        return static_cast<int64_t>(partial) * args.query_heads + head;
    }

    RKV_DEVICE void write_lse(const RowState &state, int row, int query, int head) const {
        if (is_partial()) {
            store_global(args.partial_lse + partial_at(row, head), natural_lse(state));
        } else if (args.lse != nullptr) {
            store_global(args.lse + static_cast<int64_t>(query) * args.query_heads + head,
                         natural_lse(state));
        }
    }

    // Of the values of the KV head that a query head has.
    RKV_DEVICE float v_scale(int head) const {
        const bool by_head =
            S::kIsFp8 && args.v_scales != nullptr && !fault(Fault::kHeadScaleIgnored);
        return by_head ? load_global(args.v_scales + head / args.group) : args.v_scale;
    }

    // What sums of values are multiplied with; the sink is in the denominator then.
    RKV_DEVICE float finish(RowState &state, int head) const {
        float rescale = 1.0f;
        if (args.sinks != nullptr && (!is_partial() || fault(Fault::kSinkTwice))) {
            rescale = add_sink(state, load_global(args.sinks + head));
        }
        return rescale * inverse_sum(state) * v_scale(head);
    }

    RKV_DEVICE void write4(int row, int query, int head, int element, const float (&x)[4]) const {
        if (is_partial()) {
            float *to = args.partial_out + partial_at(row, head) * S::kValueDim + element;
            store_global(reinterpret_cast<Vector16 *>(to),
                         {{float_to_bits(x[0]), float_to_bits(x[1]), float_to_bits(x[2]),
                           float_to_bits(x[3])}});
        } else {
            store_global2(out_at(query, head, element), S::Q::pack(x[0], x[1]),
                          S::Q::pack(x[2], x[3]));
        }
    }

    RKV_DEVICE void write2(int row, int query, int head, int element, float x, float y) const {
        if (is_partial()) {
            float *to = args.partial_out + partial_at(row, head) * S::kValueDim + element;
            store_global2(reinterpret_cast<uint32_t *>(to), float_to_bits(x), float_to_bits(y));
        } else {
            store_global(out_at(query, head, element), S::Q::pack(x, y));
        }
    }

    RKV_DEVICE uint32_t *out_at(int query, int head, int element) const {
        uint8_t *out = static_cast<uint8_t *>(args.out);
        const int64_t at = query * args.out_position_stride + head * args.out_head_stride + element;
        return reinterpret_cast<uint32_t *>(out + 2 * at);
    }

    // Straight from the accumulators.
    RKV_DEVICE void write_rows(const float (&o)[S::kWarpValues / 8][4], RowState (&state)[2],
                               const int (&query_of)[2], const int (&head_of)[2], int row_warp,
                               int value_warp, int lane) const {
        const int first = value_warp * S::kWarpValues;
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            if (query_of[half] < 0) {
                continue;
            }
            const int row = row_warp * 16 + (lane >> 2) + half * 8;
            const int query = query_of[half], head = head_of[half];
            const float factor = finish(state[half], head);
            RKV_UNROLL
            for (int n = 0; n < S::kWarpValues / 8; n++) {
                write2(row, query, head, first + element_of<S>(n, 0, lane),
                       o[n][2 * half] * factor, o[n][2 * half + 1] * factor);
            }
            if ((lane & 3) == 0 && value_warp == 0) {
                write_lse(state[half], row, query, head);
            }
        }
    }

    // Through shared memory, because each key warp saw other keys.
    RKV_DEVICE void write_combined(const float (&o)[S::kWarpValues / 8][4],
                                   const RowState (&state)[2], int thread, int lane, int key_warp,
                                   uint32_t shared, int kv_head) const {
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
        const int rows = smaller(item.row_count, S::kTileRows);
        for (int i = thread; i < rows * kQuads; i += S::kThreads) {
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
                RKV_UNROLL
                for (int e = 0; e < 4; e++) {
                    const uint32_t at = sums + from * S::kCombineRowBytes + (quad * 4 + e) * 4;
                    x[e] += weight * load_shared_f32(at);
                }
            }
            const int local = item.row_begin + row;
            const int head = kv_head * args.group + local % args.group;
            const int query = load_global(args.order + item.order_begin + local / args.group);
            const float factor = finish(total, head);
            RKV_UNROLL
            for (int e = 0; e < 4; e++) {
                x[e] *= factor;
            }
            write4(row, query, head, quad * 4, x);
            if (quad == 0) {
                write_lse(total, row, query, head);
            }
        }
    }
};

} // namespace rkv
