// Attention of packed query rows to paged keys, on tensor cores by mma.sync: append, decode and
// verification alike. A block takes an item (some rows, a range of keys) for one KV head.
#pragma once
#include "output.cuh"
#include "row_copies.cuh"
#include "rows.cuh"

namespace rkv {

template <class S>
struct AttendBlock : PackedRows<S::kPlain, !S::kPlain> {
    using Rows = PackedRows<S::kPlain, !S::kPlain>;
    using Rows::any, Rows::args, Rows::head, Rows::item, Rows::lane;

    const int thread, row_warp, key_warp, value_warp;
    const uint32_t shared;

    static constexpr int kCopiedRows = S::kTileKeys / (S::kThreads / 32); // of a tile, by a warp
    using Copies = RowCopies<kCopiedRows, S::kChunks>;
    // A kind of its own only where values are neither in keys nor like them.
    using ValueCopies = RowCopies<kCopiedRows, S::kValuesApart ? S::kValueChunks : S::kChunks>;
    int page_ahead; // of the next tile's row that this lane looks up

    static constexpr int kSteps = S::kHeadDim / 16;
    uint32_t q[S::kQueryInRegisters ? kSteps : 1][4];
    float o[S::kWarpValues / 8][4];
    RowState state[2];

    RKV_DEVICE AttendBlock(const AttentionArguments &arguments, const Item &work)
        : Rows(arguments, work, head_of_block<S>(arguments), thread_index() & 31),
          thread(thread_index()),
          row_warp(S::kKeyWarps == 1 ? (thread_index() >> 5) / S::kValueWarps : 0),
          key_warp(S::kKeyWarps == 1 ? 0 : thread_index() >> 5),
          value_warp((thread_index() >> 5) % S::kValueWarps), shared(shared_base()) {}

    RKV_DEVICE void find_rows() {
        Rows::find(row_warp * 16);
        if (S::kRowWarps == 1) {
            return;
        }
        if (value_warp == 0) {
            Rows::tell(shared, row_warp);
        }
        sync_block();
        Rows::template join<S::kRowWarps>(shared);
        sync_block();
    }

    RKV_DEVICE void start_queries() const {
        constexpr int kRows = S::kTileRows / (S::kThreads / 32); // that a warp copies
        const int first = (thread >> 5) * kRows;
        const uint32_t to = shared + S::kQueryAt + first * S::kQueryRowBytes;
        const uint8_t *from = static_cast<const uint8_t *>(args.q);
        RowCopies<kRows, S::kQueryChunks>::each(
            Rows::elements_of(first + lane % kRows), lane,
            [&](int row, int chunk, int64_t at, bool wanted) {
                copy_async16(to + row * S::kQueryRowBytes + chunk * 16,
                             from + (at + chunk * 8) * 2, wanted);
            });
        copy_async_commit();
    }

    // What this warp copies of a stage.
    RKV_DEVICE uint32_t copied_at(int stage) const {
        return shared + stage * S::kStageBytes + (thread >> 5) * kCopiedRows * S::kCopyRowBytes;
    }

    RKV_DEVICE uint32_t values_copied_at(int stage) const {
        return shared + stage * S::kStageBytes + S::kCopyTileBytes +
               (thread >> 5) * kCopiedRows * S::kCopyValueRowBytes;
    }

    // Of this lane's row of those that the warp copies.
    RKV_DEVICE int key_of_lane(int tile) const {
        return tile * S::kTileKeys + (thread >> 5) * kCopiedRows + lane % kCopiedRows;
    }

    // Looks up a page of a tile, one tile before it is copied: the look-up's latency is hidden.
    RKV_DEVICE void look_up(int tile) {
        const int key = key_of_lane(tile);
        const bool wanted = any.begin <= key && key < any.end;
        page_ahead =
            wanted ? load_global(args.pages + item.page_begin + page_of(key, args.kv)) : -1;
    }

    // Copies the tile whose pages were looked up. Keys that no row sees are zeros: what lies there
    // may be NaN, and 0 * NaN is NaN.
    RKV_DEVICE void start_tile(int tile, int stage) const {
        int64_t place = -1, v_place = -1;
        if (page_ahead >= 0) {
            const int position = position_in_page(key_of_lane(tile), args.kv);
            place = place_of(page_ahead, position, head, args.kv) * kBytes<typename S::Kv>;
            if (S::kValuesApart) {
                v_place = place_of(page_ahead, position, head, args.v_kv) * kBytes<typename S::Kv>;
            }
        }
        const uint8_t *k = static_cast<const uint8_t *>(args.k);
        const uint8_t *v = static_cast<const uint8_t *>(args.v);
        const uint32_t to = copied_at(stage);
        Copies::each(place, lane, [&](int row, int chunk, int64_t at, bool wanted) {
            const uint32_t piece = to + row * S::kCopyRowBytes + chunk * 16;
            copy_async16(piece, k + at + chunk * 16, wanted);
            if (S::kAlike) {
                copy_async16(piece + S::kCopyTileBytes, v + at + chunk * 16, wanted);
            }
        });
        if (S::kValuesApart) {
            const uint32_t values = values_copied_at(stage);
            ValueCopies::each(v_place, lane, [&](int row, int chunk, int64_t at, bool wanted) {
                copy_async16(values + row * S::kCopyValueRowBytes + chunk * 16,
                             v + at + chunk * 16, wanted);
            });
        }
    }

    // Sixteen numbers.
    RKV_DEVICE void widen_piece(uint32_t from, uint32_t to) const {
        const Vector16 narrow = load_shared16(from);
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            store_shared16(to + half * 16, widen_eight<typename S::Q>(narrow, half));
        }
    }

    // Widens what this thread itself copied.
    RKV_DEVICE void widen_tile(int stage) const {
        const uint32_t from = copied_at(stage);
        const uint32_t to =
            shared + S::kWideAt + (thread >> 5) * kCopiedRows * S::kRowBytes;
        Copies::pieces(lane, [&](int row, int chunk, bool exists) {
            if (!exists) {
                return;
            }
            RKV_UNROLL
            for (int values = 0; values < (S::kAlike ? 2 : 1); values++) {
                widen_piece(
                    from + values * S::kCopyTileBytes + row * S::kCopyRowBytes + chunk * 16,
                    to + values * S::kTileBytes + row * S::kRowBytes + chunk * 32);
            }
        });
        if (S::kValuesApart) {
            const uint32_t narrow = values_copied_at(stage);
            const uint32_t wide = shared + S::kWideAt + S::kTileBytes +
                                  (thread >> 5) * kCopiedRows * S::kValueRowBytes;
            ValueCopies::pieces(lane, [&](int row, int chunk, bool exists) {
                if (exists) {
                    widen_piece(narrow + row * S::kCopyValueRowBytes + chunk * 16,
                                wide + row * S::kValueRowBytes + chunk * 32);
                }
            });
        }
    }

    // The A operand of step `step`: rows of this warp, 16 elements.
    RKV_DEVICE void load_query(uint32_t (&a)[4], int step) const {
        const uint32_t base = shared + S::kQueryAt + row_warp * 16 * S::kQueryRowBytes;
        if (S::kWidensOperands) {
            // In the order in which a thread gets elements of fp8 keys: of four neighbours the
            // second and fourth, then the first and third.
            const uint32_t at = base + (lane >> 2) * S::kQueryRowBytes + step * 32 + (lane & 3) * 8;
            RKV_UNROLL
            for (int half = 0; half < 2; half++) {
                uint32_t first, second;
                load_shared2(at + half * 8 * S::kQueryRowBytes, first, second);
                a[half] = permute_bytes<0x7632>(first, second);
                a[half + 2] = permute_bytes<0x5410>(first, second);
            }
        } else {
            load_matrix4(a, base + (lane & 15) * S::kQueryRowBytes + step * 32 + (lane >> 4) * 16);
        }
    }

    RKV_DEVICE void load_queries() {
        if (S::kQueryInRegisters) {
            RKV_UNROLL
            for (int step = 0; step < kSteps; step++) {
                load_query(q[S::kQueryInRegisters ? step : 0], step);
            }
        }
    }

    // Which part of a tile's keys this warp makes logits of.
    RKV_DEVICE int key_part() const { return S::kValueWarps == 1 ? key_warp : value_warp; }

    // s = Q K^T for the keys of this warp.
    RKV_DEVICE void multiply_keys(float (&s)[S::kWarpKeys / 8][4], int stage) {
        const uint32_t base =
            shared + S::tile_at(stage) + key_part() * S::kWarpKeys * S::kRowBytes;
        RKV_UNROLL
        for (int n = 0; n < S::kWarpKeys / 8; n++) {
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
        }
        uint32_t b_of_two[4];
        RKV_UNROLL
        for (int step = 0; step < kSteps; step++) {
            uint32_t a[4];
            if (S::kQueryInRegisters) {
                RKV_UNROLL
                for (int i = 0; i < 4; i++) {
                    a[i] = q[S::kQueryInRegisters ? step : 0][i];
                }
            } else {
                load_query(a, step);
            }
            if (S::kWidensOperands) {
                // Four matrices of 8 keys x 16 bytes: two steps' worth would be one more register
                // each; here 32 keys of one step at once.
                RKV_UNROLL
                for (int n = 0; n < S::kWarpKeys / 8; n += 4) {
                    uint32_t b[4];
                    const int row = smaller(n * 8 + lane, S::kWarpKeys - 1);
                    load_matrix4(b, base + row * S::kRowBytes + step * 16);
                    RKV_UNROLL
                    for (int i = 0; i < 4 && n + i < S::kWarpKeys / 8; i++) {
                        S::Q::multiply_add(s[n + i], a, widen_e4m3<typename S::Q>(b[i]),
                                           widen_e4m3<typename S::Q>(b[i] << 8));
                    }
                }
            } else if (S::kWarpKeys == 8) {
                // Of two steps at once.
                if (step % 2 == 0) {
                    load_matrix4(b_of_two, base + (lane & 7) * S::kRowBytes + step * 32 +
                                               (lane >> 3) * 16);
                }
                S::Q::multiply_add(s[0], a, b_of_two[step % 2 * 2], b_of_two[step % 2 * 2 + 1]);
            } else {
                RKV_UNROLL
                for (int n = 0; n < S::kWarpKeys / 8; n += 2) {
                    uint32_t b[4];
                    const int row = n * 8 + (lane & 7) + ((lane >> 4) << 3);
                    load_matrix4(b, base + row * S::kRowBytes + step * 32 + ((lane >> 3) & 1) * 16);
                    S::Q::multiply_add(s[n], a, b[0], b[1]);
                    S::Q::multiply_add(s[n + 1], a, b[2], b[3]);
                }
            }
        }
    }

    // Logits of the keys of this warp.
    RKV_DEVICE void make_logits(float (&s)[S::kWarpKeys / 8][4], int tile, int stage,
                                float k_scale) {
        multiply_keys(s, stage);
        Rows::cap_and_mask(s, tile * S::kTileKeys + key_part() * S::kWarpKeys, row_warp * 16,
                           Rows::warp_all, k_scale);
    }

    // Of all keys of the tile, by way of shared memory. A thread has the same rows and columns in
    // each of the value warps.
    RKV_DEVICE void share_logits(float (&s)[S::kSumKeys / 8][4],
                                 const float (&own)[S::kWarpKeys / 8][4]) const {
        const uint32_t at =
            shared + S::kLogitsAt + (row_warp * (S::kTileKeys / 8) * 32 + lane) * 16;
        RKV_UNROLL
        for (int n = 0; n < S::kWarpKeys / 8; n++) {
            store_shared16(at + (value_warp * (S::kWarpKeys / 8) + n) * 512,
                           {{float_to_bits(own[n][0]), float_to_bits(own[n][1]),
                             float_to_bits(own[n][2]), float_to_bits(own[n][3])}});
        }
        if (!fault(Fault::kNoBarrierBeforeLogits)) {
            sync_block();
        }
        RKV_UNROLL
        for (int n = 0; n < S::kSumKeys / 8; n++) {
            const Vector16 four = load_shared16(at + n * 512);
            RKV_UNROLL
            for (int e = 0; e < 4; e++) {
                s[n][e] = bits_to_float(four.x[e]);
            }
        }
    }

    // o += P V for what this warp sums, P rounded to the queries' format.
    RKV_DEVICE void multiply_values(const float (&s)[S::kSumKeys / 8][4], int stage) {
        const uint32_t base = shared + S::values_at(stage) +
                              key_warp * S::kSumKeys * S::kValueRowBytes +
                              value_warp * S::kWarpValues * 2;
        RKV_UNROLL
        for (int step = 0; step < S::kSumKeys / 16; step++) {
            const uint32_t a[4] = {S::Q::pack(s[2 * step][0], s[2 * step][1]),
                                   S::Q::pack(s[2 * step][2], s[2 * step][3]),
                                   S::Q::pack(s[2 * step + 1][0], s[2 * step + 1][1]),
                                   S::Q::pack(s[2 * step + 1][2], s[2 * step + 1][3])};
            const uint32_t row =
                base + (step * 16 + (lane & 15)) * S::kValueRowBytes + (lane >> 4) * 16;
            if (S::kWidensOperands) {
                // A transposed matrix gives a thread two keys of two neighbouring elements: one
                // matrix makes the operands for the even and for the odd elements of 16.
                RKV_UNROLL
                for (int d = 0; d < (S::kValueDim + 31) / 32; d++) {
                    // Of the last 16 elements, where there are no 32, all lanes load the same.
                    const int pairs = S::kValueDim - d * 32 < 32 ? 1 : 2;
                    uint32_t b[4];
                    load_matrix4_transposed(b, row + d * 32 - (2 - pairs) * (lane >> 4) * 16);
                    RKV_UNROLL
                    for (int i = 0; i < pairs; i++) {
                        const uint32_t low = b[2 * i], high = b[2 * i + 1];
                        S::Q::multiply_add(o[4 * d + 2 * i], a,
                                           widen_e4m3<typename S::Q>(low << 8),
                                           widen_e4m3<typename S::Q>(high << 8));
                        S::Q::multiply_add(o[4 * d + 2 * i + 1], a, widen_e4m3<typename S::Q>(low),
                                           widen_e4m3<typename S::Q>(high));
                    }
                }
            } else {
                RKV_UNROLL
                for (int d = 0; d < S::kWarpValues / 16; d++) {
                    uint32_t b[4];
                    load_matrix4_transposed(b, row + d * 32);
                    S::Q::multiply_add(o[2 * d], a, b[0], b[1]);
                    S::Q::multiply_add(o[2 * d + 1], a, b[2], b[3]);
                }
            }
        }
    }

    RKV_DEVICE void run() {
        find_rows();
        RKV_UNROLL
        for (int n = 0; n < S::kWarpValues / 8; n++) {
            o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
        }
        const int first = any.begin / S::kTileKeys;
        const int end = any.begin < any.end
                            ? (any.end + S::kTileKeys - 1) / S::kTileKeys
                            : first;
        const float k_scale = k_scale_of_head<S>(args, head);
        const float scale = scale_of_logits<S::kPlain>(args, k_scale);
        if (first < end) {
            start_queries();
            look_up(first);
            start_tile(first, 0);
            copy_async_commit();
            look_up(first + 1);
            copy_async_wait<1>();
            sync_block();
            load_queries();
            if (S::kQueryInRegisters && !fault(Fault::kNoBarrierAfterQuery)) {
                sync_block(); // the second stage begins where the queries lay
            }
        }
        for (int tile = first; tile < end; tile++) {
            const int stage = (tile - first) & 1;
            if (tile + 1 < end) {
                start_tile(tile + 1, stage ^ 1);
            }
            copy_async_commit();
            look_up(tile + 2);
            if (fault(Fault::kWaitOneTooFew)) {
                copy_async_wait<2>();
            } else if (!fault(Fault::kNoWaitForTile)) {
                copy_async_wait<1>();
            }
            if (S::kWidensTile) {
                widen_tile(stage);
            }
            if (!fault(Fault::kNoBarrierBeforeUse)) {
                sync_block();
            }
            float s[S::kSumKeys / 8][4];
            if constexpr (S::kValueWarps == 1) {
                make_logits(s, tile, stage, k_scale);
            } else {
                float own[S::kWarpKeys / 8][4];
                make_logits(own, tile, stage, k_scale);
                share_logits(s, own);
            }
            float rescale[2];
            RKV_UNROLL
            for (int half = 0; half < 2; half++) {
                rescale[half] = weigh<S::kSumKeys / 8>(state[half], s, half, scale);
            }
            rescale_sums(o, rescale);
            multiply_values(s, stage);
            if (!fault(Fault::kNoBarrierAfterUse)) {
                sync_block(); // before this stage is filled again
            }
        }
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            finish_sum(state[half], scale);
        }
        if constexpr (S::kValueWarps > 1) {
            // No register was left to keep the item in: it is read once more.
            const Item item_again = read_item(args.items + anew(item_of_block<S>(args)));
            const Rows again(args, item_again, head_of_block<S>(args), thread_index() & 31);
            Writer<S, Rows>{again}.write_rows(o, state, row_warp, value_warp);
        } else if constexpr (S::kKeyWarps == 1) {
            Writer<S, Rows>{*this}.write_rows(o, state, row_warp, value_warp);
        } else {
            Writer<S, Rows>{*this}.write_combined(o, state, thread, key_warp, shared);
        }
    }
};

template <class S>
RKV_DEVICE void attend(const AttentionArguments &args) {
    begin_launch();
    Item item;
    if (take_item<S>(args, item)) {
        AttendBlock<S> block(args, item);
        block.run();
    }
}

} // namespace rkv
