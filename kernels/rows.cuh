// Packed query rows: row r of an item is head r % group of its query r / group, so that all query
// heads of a KV head share its keys. A query sees one range of keys, for its region contains it
// just as its window does; of a draft's new positions, the last of the range, what its mask names.
#pragma once
#include "softmax.cuh"

namespace rkv {

// Which item this block of attn_mma computes, and of which KV head.
template <class S>
RKV_DEVICE int item_of_block(const AttentionArguments &args) {
    return S::kCloseHeads ? block_x() >> args.close_heads : block_x();
}
template <class S>
RKV_DEVICE int head_of_block(const AttentionArguments &args) {
    const int close = block_x() & ((1 << args.close_heads) - 1);
    return S::kCloseHeads ? (block_y() << args.close_heads) + close : block_y();
}

// Reads this block's item; false: the step has fewer.
template <class S>
RKV_DEVICE bool take_item(const AttentionArguments &args, Item &item) {
    const int count = load_global(args.item_count), number = item_of_block<S>(args);
    item = read_item(args.items + number);
    return is_there(number, count, smaller(item.row_count, item.key_end));
}

// What the keys of a head are to be multiplied with, where each has a scale of its own.
template <class S>
RKV_DEVICE float k_scale_of_head(const AttentionArguments &args, int head) {
    const bool by_head = S::kIsFp8 && args.k_scales != nullptr && !fault(Fault::kHeadScaleIgnored);
    return by_head ? load_global(args.k_scales + head) : 1.0f;
}

// What logits are multiplied with as weights are made of them. Never 0, as a head's scale may come
// to: times the -infinity of what is not seen that would be NaN.
template <bool kPlain>
RKV_DEVICE float scale_of_logits(const AttentionArguments &args, float k_scale) {
    const bool capped = !kPlain && args.soft_cap_in != 0.0f;
    return capped ? 1.0f : larger(kSmallestNormal, args.scale_log2 * k_scale);
}

RKV_DEVICE void store_range(uint32_t at, const Range &range) {
    store_shared_i32(at, range.begin);
    store_shared_i32(at + 4, range.end);
}
RKV_DEVICE Range load_range(uint32_t at) {
    return {load_shared_i32(at), load_shared_i32(at + 4)};
}

// By way of shared memory, 32 bytes: what is read again needs no registers meanwhile.
RKV_DEVICE void store_item(uint32_t at, const Item &item) {
    auto word = [](int value) { return static_cast<uint32_t>(value); };
    store_shared16(at, {{word(item.order_begin), word(item.row_begin), word(item.row_count),
                         word(item.page_begin)}});
    store_shared16(at + 16, {{word(item.key_begin), word(item.key_end),
                              word(item.partial_begin), word(item.in_order)}});
}
RKV_DEVICE Item load_item(uint32_t at) {
    return item_of(load_shared16(at), load_shared16(at + 16));
}

// A soft cap of 64, in base 2: what is larger times the error of tanh_exact would show.
constexpr float kLargeCap = 64.0f * kLog2E;

// A packed row: which of the item's queries it is of, and which query head it is.
struct PackedRow {
    int part, head;
};

// The two rows that a thread has of the sixteen of its warp, and the keys that they see. kPlain:
// causal and nothing else; kTrees: some may have tree masks.
template <bool kPlain, bool kTrees>
struct PackedRows {
    const AttentionArguments &args;
    const Item item;
    const int head; // of K and V
    const int lane;

    Range sees[2];  // keys that this thread's two rows see
    Range warp_all; // keys that every row of the warp sees
    Range any;      // keys that some row sees: of the warp, and after join() of the block

    RKV_DEVICE PackedRows(const AttentionArguments &arguments, const Item &work, int kv_head,
                          int lane_index)
        : args(arguments), item(work), head(kv_head), lane(lane_index) {}

    RKV_DEVICE PackedRow packed(int row) const {
        const int at = item.row_begin + row;
        const int part = divide(at, args.group);
        const int group = static_cast<int>(args.group.value);
        return {part, head * group + at - part * group};
    }
    RKV_DEVICE int query_of_part(int part) const {
        const int at = item.order_begin + part;
        // Mostly without a load that all that follows would wait for.
        return item.in_order != 0 ? at : load_global(args.order + at);
    }

    // Where the elements of a row begin in q; negative where it does not exist.
    RKV_DEVICE int64_t elements_of(int row) const {
        if (row >= item.row_count) {
            return -1;
        }
        const PackedRow at = packed(row);
        return query_of_part(at.part) * args.q_position_stride + at.head * args.q_head_stride;
    }

    // What a query sees of its row's new positions, if it has a mask: of these the last `window`.
    RKV_DEVICE TreeMask tree_of(int query) const {
        TreeMask tree{0, 0, 0};
        if (!kTrees || args.tree_masks == nullptr || fault(Fault::kTreeIgnored)) {
            return tree;
        }
        const Vector16 words =
            load_global(reinterpret_cast<const Vector16 *>(args.tree_masks + query));
        tree = {static_cast<int>(words.x[0]), static_cast<int>(words.x[1]),
                words.x[2] | static_cast<uint64_t>(words.x[3]) << 32};
        while (args.window > 0 && tree.count > args.window) {
            tree.seen &= tree.seen - 1;
            tree.count--;
        }
        return tree;
    }

    // Keys from the first to the last one that the query at hand sees, of those of the item.
    RKV_DEVICE Range keys_of(const Query &query, const TreeMask &tree) const {
        Range range{0, query.position + 1};
        if (fault(Fault::kMaskOffByOne)) {
            range.end += 1;
        }
        if (!kPlain) {
            if (args.window > 0) {
                // With a mask as if what it sees came one behind another.
                const int end = tree.count > 0 ? tree.begin + tree.count : range.end;
                range.begin = larger(0, end - args.window);
                if (fault(Fault::kWindowOffByOne)) {
                    range.begin = larger(0, range.begin - 1);
                }
            }
            if (query.region_begin <= query.position && query.position < query.region_end) {
                range.begin = smaller(range.begin, query.region_begin);
                range.end = larger(range.end, query.region_end);
            }
        }
        return {larger(range.begin, item.key_begin), smaller(range.end, item.key_end)};
    }

    // `first_row` is the first one of the warp.
    RKV_DEVICE void find(int first_row) {
        warp_all = {0, 0x7fffffff};
        any = {0x7fffffff, 0};
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            sees[half] = {0, 0};
            const int row = first_row + (lane >> 2) + half * 8;
            if (row < item.row_count || fault(Fault::kRowsBeyondTile)) {
                const int query = query_of_part(packed(row).part);
                const TreeMask tree = tree_of(query);
                sees[half] = keys_of(read_query(args.queries + query), tree);
                warp_all.begin = larger(warp_all.begin, sees[half].begin);
                warp_all.end = smaller(warp_all.end, sees[half].end);
                if (tree.count > 0) {
                    warp_all.end = smaller(warp_all.end, tree.begin);
                }
                if (sees[half].begin < sees[half].end) {
                    any.begin = smaller(any.begin, sees[half].begin);
                    any.end = larger(any.end, sees[half].end);
                }
            }
        }
        RKV_UNROLL
        for (int step = 4; step < 32; step *= 2) {
            warp_all.begin = larger(warp_all.begin, shuffle_xor(warp_all.begin, step));
            warp_all.end = smaller(warp_all.end, shuffle_xor(warp_all.end, step));
            any.begin = smaller(any.begin, shuffle_xor(any.begin, step));
            any.end = larger(any.end, shuffle_xor(any.end, step));
        }
    }

    // Tells the block what this warp sees; `at` is for all warps, 8 bytes each.
    RKV_DEVICE void tell(uint32_t at, int warp) const {
        if (lane == 0) {
            store_range(at + warp * 8, any);
        }
    }

    template <int kWarps>
    RKV_DEVICE void join(uint32_t at) {
        any = {0x7fffffff, 0};
        RKV_UNROLL
        for (int warp = 0; warp < kWarps; warp++) {
            const Range told = load_range(at + warp * 8);
            any.begin = smaller(any.begin, told.begin);
            any.end = larger(any.end, told.end);
        }
    }

    // Hides what queries with masks don't see of the keys from `first_key` on.
    template <int kColumns>
    RKV_DEVICE void mask_trees(float (&s)[kColumns][4], int first_key, int first_row) const {
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            const int row = first_row + (lane >> 2) + half * 8;
            if (row >= item.row_count) {
                continue;
            }
            const TreeMask tree = tree_of(query_of_part(packed(row).part));
            if (tree.count == 0) {
                continue;
            }
            const uint32_t low = static_cast<uint32_t>(tree.seen);
            const uint32_t high = static_cast<uint32_t>(tree.seen >> 32);
            int at = first_key + (lane & 3) * 2 - tree.begin;
            RKV_UNROLL
            for (int n = 0; n < kColumns; n++) {
                RKV_UNROLL
                for (int e = 0; e < 2; e++) {
                    const uint32_t word = at + e < 32 ? low : high;
                    const bool is_new = static_cast<uint32_t>(at + e) < 64u;
                    float &logit = s[n][2 * half + e];
                    logit = is_new && (word >> ((at + e) & 31) & 1) == 0 ? -kInfinity : logit;
                }
                // One after another: all at once would take too many registers.
                at = anew(at + 8);
            }
        }
    }

    // Makes capped logits of scores; kLarge: the cap is above kLargeCap.
    template <bool kLarge, int kColumns>
    RKV_DEVICE void cap(float (&s)[kColumns][4], float cap_in) const {
        RKV_UNROLL
        for (int n = 0; n < kColumns; n++) {
            RKV_UNROLL
            for (int e = 0; e < 4; e++) {
                const float x = s[n][e] * cap_in;
                s[n][e] = args.soft_cap_out * (kLarge ? tanh_relative(x) : tanh_exact(x));
            }
        }
    }

    // Logits of the keys from `first_key` on, of the warp's rows from `first_row` on; `all` is what
    // every one of them sees. Tiles that they see whole are not masked. `k_scale` is what a head's
    // keys are to be multiplied with by itself.
    template <int kColumns>
    RKV_DEVICE void cap_and_mask(float (&s)[kColumns][4], int first_key, int first_row,
                                 const Range &all, float k_scale = 1.0f) const {
        if (!kPlain && args.soft_cap_in != 0.0f) {
            const float cap_in = args.soft_cap_in * k_scale;
            if (args.soft_cap_out > kLargeCap) {
                cap<true>(s, cap_in);
            } else {
                cap<false>(s, cap_in); // of models, 30 or 50: quicker
            }
        }
        if (all.begin <= first_key && first_key + kColumns * 8 <= all.end) {
            return;
        }
        RKV_UNROLL
        for (int n = 0; n < kColumns; n++) {
            RKV_UNROLL
            for (int e = 0; e < 4; e++) {
                const int key = first_key + n * 8 + (lane & 3) * 2 + (e & 1);
                // Causal and nothing else: all rows begin where the item does.
                const int begin = kPlain ? item.key_begin : sees[e >> 1].begin;
                const bool seen = key < sees[e >> 1].end && key >= begin;
                s[n][e] = seen ? s[n][e] : -kInfinity;
            }
        }
        if (kTrees && args.tree_masks != nullptr) {
            // The rows are found again, rather than kept in registers meanwhile.
            mask_trees(s, first_key, anew(first_row));
        }
    }
};

} // namespace rkv
