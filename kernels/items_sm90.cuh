// How the blocks of attn_sm90 take items, one after another: a block for each multiprocessor, whose
// warps that load are ahead by an item, so that its keys are on their way while those that compute
// end the one before.
//
// Items of all heads are numbered, head after head. A block begins with that of its own number; the
// others are taken from a counter. The last block to find none puts the counters back to 0, for the
// next launch.
//
// Those that load find out what an item's rows see, and tell those that compute. Two barriers:
//
//   told    each thread that loads arrives when an item, or that there is none, is in shared memory
//   heard   each warp that computes arrives when it needs no more what the item's rows see
#pragma once
#include "widen_sm90.cuh"

namespace rkv {

// An item as those that compute are told of it; a negative head: there is none.
struct ToldItem {
    Item item;
    Range any;
    int head;
};

template <class S>
struct ItemsToTell {
    const HopperArguments &arguments;
    const int warp, lane;
    const uint32_t shared;

    static constexpr int kWarps = 4;
    static constexpr int kShare = S::kRowWarps / kWarps; // row warps whose rows a warp looks at

    RKV_DEVICE bool is_first() const { return warp == 0 && lane == 0; }

    // Waits for all threads that load.
    RKV_DEVICE void sync() const { sync_some<7, 128>(); }

    RKV_DEVICE void wait_heard(int round) const {
        if (!fault(Fault::kToldTooEarly)) {
            barrier_wait(shared + S::kHeardAt, (round & 1) ^ 1);
        }
    }

    RKV_DEVICE void tell(int round, const Item &item, const Range &any, int head) const {
        const uint32_t at = shared + S::kItemAt + (round & 1) * S::kItemBytes;
        if (is_first()) {
            store_item(at, item);
            store_range(at + S::kAnyInItem, any);
            store_shared_i32(at + S::kHeadInItem, head);
        }
        barrier_arrive(shared + S::kToldAt);
    }

    // Everything of an item; returns how many tiles it has.
    RKV_DEVICE int load_item(int number, int count, int round, int before) const {
        const AttentionArguments &args = arguments.attention;
        const int head = number / count;
        const Item item = read_item(args.items + (number - head * count));
        // What is computed of these again for each item needs no registers from item to item. That
        // there are 32 lanes and four warps has to be said again: otherwise there are branches
        // where nothing can be beyond a tile.
        const int mine = anew(warp) & (kWarps - 1);
        PackedRows<false, false> rows(args, item, head, anew(lane) & 31);
        // All that is loaded, before anything is waited for.
        Range sees[kShare][2], whole[kShare], any{0x7fffffff, 0};
        RKV_UNROLL
        for (int i = 0; i < kShare; i++) {
            rows.find((mine + i * kWarps) * 16);
            RKV_UNROLL
            for (int half = 0; half < 2; half++) {
                sees[i][half] = rows.sees[half];
            }
            whole[i] = rows.warp_all;
            any.begin = smaller(any.begin, rows.any.begin);
            any.end = larger(any.end, rows.any.end);
        }
        rows.any = any;
        rows.tell(shared + S::kRangesAt, mine);
        sync();
        rows.join<kWarps>(shared + S::kRangesAt);
        wait_heard(round);
        RKV_UNROLL
        for (int i = 0; i < kShare; i++) {
            const int row_warp = mine + i * kWarps;
            if (rows.lane == 0) {
                store_range(shared + S::kWholeAt + row_warp * 8, whole[i]);
            }
            RKV_UNROLL
            for (int half = 0; half < 2; half++) {
                if (rows.lane % 4 == 0) {
                    store_range(shared + S::sees_at(row_warp, rows.lane, half), sees[i][half]);
                }
            }
        }
        tell(round, item, rows.any, head);
        return load_tiles(rows, mine, before);
    }

    RKV_DEVICE int load_tiles(const PackedRows<false, false> &rows, int mine, int before) const {
        if constexpr (S::kIsFp8) {
            Widener<S> loader(arguments, rows, mine, shared, before);
            loader.run();
            return loader.tiles.count;
        } else {
            Loader<S> loader(arguments, rows, mine, shared, before);
            loader.run();
            return loader.tiles.count;
        }
    }

    // The number of the next item, which all warps are told.
    RKV_DEVICE int take_next() const {
        if (is_first()) {
            const uint32_t taken = take_number(arguments.taken);
            store_shared_i32(shared + S::kNextAt, static_cast<int>(arguments.blocks + taken));
        }
        sync();
        return load_shared_i32(shared + S::kNextAt);
    }

    RKV_DEVICE void run() const {
        const AttentionArguments &args = arguments.attention;
        const int count = load_global(args.item_count);
        const int total = count * divide(args.query_heads, args.group);
        int number = block_x(), round = 0, before = 0;
        for (; number < total; round++) {
            before = (before + load_item(number, count, round, before)) % (2 * S::kStages);
            number = take_next();
        }
        wait_heard(round);
        tell(round, Item{}, Range{0, 0}, -1);
        if (is_first() && !fault(Fault::kCounterStays)) {
            const uint32_t last = arguments.blocks - 1;
            if (count_round(arguments.taken + 1, last) == last) {
                store_global(arguments.taken, 0u);
            }
        }
    }
};

// Waits for the next item, on behalf of a thread that computes.
template <class S>
RKV_DEVICE ToldItem hear_item(uint32_t shared, int round) {
    const uint32_t at = shared + S::kItemAt + (round & 1) * S::kItemBytes;
    barrier_wait(shared + S::kToldAt, round & 1);
    return {load_item(at), load_range(at + S::kAnyInItem), load_shared_i32(at + S::kHeadInItem)};
}

} // namespace rkv
