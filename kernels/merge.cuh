// One result of several that saw disjoint keys: their mean, weighted by exp(lse). A block makes one
// of them at a time, for a position and a head; its warps share the states, so that many are on
// their way at once. A lane has a state's logarithm first, then four elements of every state.
#pragma once
#include "softmax.cuh"

namespace rkv {

constexpr int kMergeThreads = 128;
constexpr int kMergeWarps = kMergeThreads / 32;
constexpr int kMergeElements = 4 * 32; // of one turn
constexpr int kMergeSharedBytes = kMergeWarps * kMergeElements * 4;

struct FourNumbers {
    float x[4];
};

// `States` says of state i its `lse(i)` and `four(i, element)`.
template <class States>
struct Merge {
    const States &states;
    const int count;
    const int lane, warp;

    RKV_DEVICE Merge(const States &of, int how_many)
        : states(of), count(how_many), lane(thread_index() & 31), warp(thread_index() >> 5) {}

    // In base 2.
    RKV_DEVICE float logarithm(int i) const {
        return i < count ? states.lse(i) * kLog2E : -kInfinity;
    }

    // The softmax over all of them: their maximum and the sum of exp(lse - maximum).
    RKV_DEVICE RowState weigh(float of_lane) const {
        RowState total;
        total.largest = of_lane;
        for (int i = 32 + lane; i < count; i += 32) {
            total.largest = larger(total.largest, logarithm(i));
        }
        RKV_UNROLL
        for (int step = 1; step < 32; step *= 2) {
            total.largest = larger(total.largest, shuffle_xor(total.largest, step));
        }
        const float base = total.largest == -kInfinity ? 0.0f : total.largest;
        total.sum = exp2_fast(of_lane - base);
        for (int i = 32 + lane; i < count; i += 32) {
            total.sum += exp2_fast(logarithm(i) - base);
        }
        RKV_UNROLL
        for (int step = 1; step < 32; step *= 2) {
            total.sum += shuffle_xor(total.sum, step);
        }
        return total;
    }

    // Adds what this warp has of the 32 states from `first` on, whose weights the lanes have.
    RKV_DEVICE void add(FourNumbers &sum, int first, float weight, int element, bool exists) const {
        constexpr int kMost = 32 / kMergeWarps;
        FourNumbers four[kMost] = {};
        float weights[kMost];
        RKV_UNROLL
        for (int k = 0; k < kMost; k++) {
            const int at = k * kMergeWarps + warp;
            const uint32_t bits = float_to_bits(weight);
            weights[k] = bits_to_float(shuffle_from(static_cast<int>(bits), at));
            // Of a state that saw no key the elements may be anything.
            if (first + at < count && weights[k] != 0.0f && exists) {
                four[k] = states.four(first + at, element);
            }
        }
        RKV_UNROLL
        for (int k = 0; k < kMost; k++) {
            RKV_UNROLL
            for (int e = 0; e < 4; e++) {
                sum.x[e] += weights[k] * four[k].x[e];
            }
        }
    }

    // Calls `write(element, four)` for all elements, and returns the softmax. All threads of the
    // block call it; none reads a state any more when it returns.
    template <class Write>
    RKV_DEVICE RowState run(const float *sink, int head_dim, Write write) const {
        const uint32_t shared = shared_base();
        const float of_lane = logarithm(lane);
        RowState total = weigh(of_lane);
        if (sink != nullptr) {
            add_sink(total, load_global(sink));
        }
        // Weights are against the maximum that has the sink in it.
        const float base = total.largest == -kInfinity ? 0.0f : total.largest;
        const float inverse = inverse_sum(total);
        for (int turn = 0; turn < head_dim; turn += kMergeElements) {
            const int element = turn + lane * 4;
            const bool exists = element < head_dim;
            FourNumbers sum{};
            for (int first = 0; first < count; first += 32) {
                const float one = first == 0 ? of_lane : logarithm(first + lane);
                add(sum, first, exp2_fast(one - base) * inverse, element, exists);
            }
            const uint32_t at = shared + lane * 16;
            store_shared16(at + warp * kMergeElements * 4,
                           {{float_to_bits(sum.x[0]), float_to_bits(sum.x[1]),
                             float_to_bits(sum.x[2]), float_to_bits(sum.x[3])}});
            if (!fault(Fault::kNoBarrierInMerge)) {
                sync_block();
            }
            if (warp == 0 && exists) {
                FourNumbers whole{};
                RKV_UNROLL
                for (int i = 0; i < kMergeWarps; i++) {
                    const Vector16 part = load_shared16(at + i * kMergeElements * 4);
                    RKV_UNROLL
                    for (int e = 0; e < 4; e++) {
                        whole.x[e] += bits_to_float(part.x[e]);
                    }
                }
                write(element, whole);
            }
            sync_block();
        }
        return total;
    }
};

struct PartialStates {
    const MergeArguments &args;
    const int32_t *partials;
    const int head;

    RKV_DEVICE int64_t place(int i) const {
        return static_cast<int64_t>(load_global(partials + i)) * args.query_heads + head;
    }
    RKV_DEVICE float lse(int i) const { return load_global(args.partial_lse + place(i)); }
    RKV_DEVICE FourNumbers four(int i, int element) const {
        const float *from = args.partial_out + place(i) * args.head_dim + element;
        const Vector16 v = load_global(reinterpret_cast<const Vector16 *>(from));
        return {{bits_to_float(v.x[0]), bits_to_float(v.x[1]), bits_to_float(v.x[2]),
                 bits_to_float(v.x[3])}};
    }
};

// Blocks take results in turn, as many as there are: a graph's grid need not grow with its largest
// step.
template <class Q>
RKV_DEVICE void merge_partials(const MergeArguments &args) {
    begin_launch();
    const int entries = load_global(args.entry_count);
    const int64_t results = static_cast<int64_t>(args.entry_max) * args.query_heads;
    for (int64_t index = block_x(); index < results; index += args.blocks) {
        const int entry = divide(static_cast<int>(index), args.heads);
        const int head = static_cast<int>(index) - entry * args.query_heads;
        const int begin = load_global(args.indptr + entry);
        const int count = load_global(args.indptr + entry + 1) - begin;
        const int query = load_global(args.queries + entry);
        if (!is_there(entry, entries, count)) {
            return;
        }
        const PartialStates states{args, args.partials + begin, head};
        uint8_t *out = static_cast<uint8_t *>(args.out) +
                       2 * (query * args.out_position_stride + head * args.out_head_stride);
        const float *sink = args.sinks == nullptr ? nullptr : args.sinks + head;
        const Merge<PartialStates> merge(states, count);
        const RowState total = merge.run(sink, args.head_dim, [&](int element, FourNumbers four) {
            store_global2(reinterpret_cast<uint32_t *>(out + 2 * element),
                          Q::pack(four.x[0], four.x[1]), Q::pack(four.x[2], four.x[3]));
        });
        if (thread_index() == 0 && args.lse != nullptr) {
            store_global(args.lse + static_cast<int64_t>(query) * args.query_heads + head,
                         natural_lse(total));
        }
    }
}

// What is read may be overwritten by the block that read it.
template <class Q>
struct WholeStates {
    const MergeStatesArguments &args;
    const int64_t index;

    RKV_DEVICE float lse(int i) const { return load_mutable(args.lses[i] + index); }
    RKV_DEVICE FourNumbers four(int i, int element) const {
        const uint32_t *from = static_cast<const uint32_t *>(args.outs[i]);
        from += (index * args.head_dim + element) / 2;
        const uint32_t low = load_mutable(from), high = load_mutable(from + 1);
        return {{Q::low(low), Q::high(low), Q::low(high), Q::high(high)}};
    }
};

template <class Q>
RKV_DEVICE void merge_states(const MergeStatesArguments &args) {
    const int64_t results = args.position_count * args.query_heads;
    for (int64_t index = block_x(); index < results; index += args.blocks) {
        const WholeStates<Q> states{args, index};
        uint32_t *out = static_cast<uint32_t *>(args.out) + index * args.head_dim / 2;
        const Merge<WholeStates<Q>> merge(states, args.state_count);
        const RowState total = merge.run(nullptr, args.head_dim, [&](int element, FourNumbers f) {
            store_global(out + element / 2, Q::pack(f.x[0], f.x[1]));
            store_global(out + element / 2 + 1, Q::pack(f.x[2], f.x[3]));
        });
        if (thread_index() == 0 && args.lse != nullptr) {
            store_global(args.lse + index, natural_lse(total));
        }
    }
}

} // namespace rkv
