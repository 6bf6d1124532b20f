// One result of several that saw disjoint keys: their mean, weighted by exp(lse). A warp for each
// (position, head), a lane for pairs of elements.
#pragma once
#include "softmax.cuh"

namespace rkv {

constexpr int kMergeThreads = 128;

// The softmax over `count` logarithms: their maximum and the sum of exp(lse - maximum).
template <class LseOf>
RKV_DEVICE RowState weigh_states(int count, LseOf lse_of) {
    RowState total;
    for (int i = 0; i < count; i++) {
        total.largest = larger(total.largest, lse_of(i) * kLog2E);
    }
    for (int i = 0; i < count && total.largest > -kInfinity; i++) {
        total.sum += exp2_fast(lse_of(i) * kLog2E - total.largest);
    }
    return total;
}

template <class Q>
RKV_DEVICE void merge_partials(const MergeArguments &args) {
    const int lane = thread_index() & 31;
    const int64_t index = static_cast<int64_t>(block_x()) * (kMergeThreads / 32) +
                          (thread_index() >> 5);
    if (index >= static_cast<int64_t>(args.entry_max) * args.query_heads) {
        return;
    }
    const int entry = static_cast<int>(index / args.query_heads);
    const int head = static_cast<int>(index % args.query_heads);
    const int entries = load_global(args.entry_count);
    const int begin = load_global(args.indptr + entry);
    const int count = load_global(args.indptr + entry + 1) - begin;
    const int query = load_global(args.queries + entry);
    if (!is_there(entry, entries, count)) {
        return;
    }
    auto place = [&](int i) {
        const int partial = load_global(args.partials + begin + i);
        return static_cast<int64_t>(partial) * args.query_heads + head;
    };
    auto lse_of = [&](int i) { return load_global(args.partial_lse + place(i)); };
    const RowState partials = weigh_states(count, lse_of);
    RowState total = partials;
    if (args.sinks != nullptr) {
        add_sink(total, load_global(args.sinks + head));
    }
    // Weights of the partials against the maximum that has the sink in it.
    const float base = total.largest == -kInfinity ? 0.0f : total.largest;
    const float inverse = inverse_sum(total);
    uint8_t *out = static_cast<uint8_t *>(args.out);
    out += 2 * (query * args.out_position_stride + head * args.out_head_stride);
    for (int d = 2 * lane; d < args.head_dim; d += 64) {
        float x = 0.0f, y = 0.0f;
        for (int i = 0; i < count; i++) {
            const int64_t at = place(i);
            const float weight = exp2_fast(lse_of(i) * kLog2E - base) * inverse;
            x += weight * load_global(args.partial_out + at * args.head_dim + d);
            y += weight * load_global(args.partial_out + at * args.head_dim + d + 1);
        }
        store_global(reinterpret_cast<uint32_t *>(out + 2 * d), Q::pack(x, y));
    }
    if (lane == 0 && args.lse != nullptr) {
        store_global(args.lse + static_cast<int64_t>(query) * args.query_heads + head,
                     natural_lse(total));
    }
}

template <class Q>
RKV_DEVICE void merge_states(const MergeStatesArguments &args) {
    const int lane = thread_index() & 31;
    const int64_t index = static_cast<int64_t>(block_x()) * (kMergeThreads / 32) +
                          (thread_index() >> 5);
    if (index >= args.position_count * args.query_heads) {
        return;
    }
    auto lse_of = [&](int i) { return load_mutable(args.lses[i] + index); };
    const RowState total = weigh_states(args.state_count, lse_of);
    const float inverse = inverse_sum(total);
    for (int d = 2 * lane; d < args.head_dim; d += 64) {
        float x = 0.0f, y = 0.0f;
        for (int i = 0; i < args.state_count; i++) {
            const float lse = lse_of(i);
            if (lse == -kInfinity) {
                continue; // it saw no key, and what it left may be anything
            }
            const uint8_t *from = static_cast<const uint8_t *>(args.outs[i]);
            const int64_t at = (index * args.head_dim + d) * 2;
            const uint32_t pair = load_mutable(reinterpret_cast<const uint32_t *>(from + at));
            const float weight = exp2_fast(lse * kLog2E - total.largest) * inverse;
            x += weight * Q::low(pair);
            y += weight * Q::high(pair);
        }
        uint8_t *to = static_cast<uint8_t *>(args.out) + (index * args.head_dim + d) * 2;
        store_global(reinterpret_cast<uint32_t *>(to), Q::pack(x, y));
    }
    sync_warp(); // `lse` may be one of the inputs: every lane has read them
    if (lane == 0 && args.lse != nullptr) {
        store_global(args.lse + index, natural_lse(total));
    }
}

} // namespace rkv
