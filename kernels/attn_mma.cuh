// Attention of packed query rows to paged keys, on tensor cores by mma.sync: append, decode and
// verification alike. A block takes an item (some rows, a range of keys) for one KV head.
#pragma once
#include "output.cuh"
#include "rows.cuh"

namespace rkv {

template <class S>
struct AttendBlock : PackedRows<S::kPlain> {
    using Rows = PackedRows<S::kPlain>;
    using Rows::any, Rows::args, Rows::head, Rows::head_at, Rows::head_of, Rows::item, Rows::lane,
        Rows::query_at, Rows::query_of;

    const int thread, row_warp, key_warp;
    const uint32_t shared;

    static constexpr int kCopies = (S::kTileKeys * S::kChunks + S::kThreads - 1) / S::kThreads;
    int page_ahead[kCopies]; // pages of the next tile's rows that this thread copies

    static constexpr int kSteps = S::kHeadDim / 16;
    uint32_t q[S::kQueryInRegisters ? kSteps : 1][4];
    float o[S::kHeadDim / 8][4];
    RowState state[2];

    RKV_DEVICE AttendBlock(const AttentionArguments &arguments, const Item &work)
        : Rows(arguments, work), thread(thread_index()),
          row_warp(S::kKeyWarps == 1 ? thread_index() >> 5 : 0),
          key_warp(S::kKeyWarps == 1 ? 0 : thread_index() >> 5), shared(shared_base()) {}

    RKV_DEVICE void find_rows() {
        Rows::find(row_warp * 16);
        if (S::kRowWarps == 1) {
            return;
        }
        Rows::tell(shared, row_warp);
        sync_block();
        Rows::template join<S::kRowWarps>(shared);
        sync_block();
    }

    RKV_DEVICE void start_queries() const {
        for (int i = thread; i < S::kTileRows * S::kQueryChunks; i += S::kThreads) {
            const int row = i / S::kQueryChunks, chunk = i % S::kQueryChunks;
            const bool exists = row < item.row_count;
            const uint8_t *from = static_cast<const uint8_t *>(args.q);
            if (exists) {
                const int64_t at = query_at(row) * args.q_position_stride +
                                   head_at(row) * args.q_head_stride + chunk * 8;
                from += at * 2;
            }
            copy_async16(shared + S::kQueryAt + row * S::kQueryRowBytes + chunk * 16, from, exists);
        }
        copy_async_commit();
    }

    // Looks up the pages of a tile, one tile before it is copied: the look-up's latency is hidden.
    RKV_DEVICE void look_up(int tile) {
        RKV_UNROLL
        for (int copy = 0; copy < kCopies; copy++) {
            const int key = tile * S::kTileKeys + (thread + copy * S::kThreads) / S::kChunks;
            const bool wanted = any.begin <= key && key < any.end;
            page_ahead[copy] =
                wanted ? load_global(args.pages + item.page_begin + divide(key, args.kv.page_size))
                       : -1;
        }
    }

    // Copies the tile whose pages were looked up. Keys that no row sees are zeros: what lies there
    // may be NaN, and 0 * NaN is NaN.
    RKV_DEVICE void start_tile(int tile, int stage) const {
        const uint8_t *k = static_cast<const uint8_t *>(args.k);
        const uint8_t *v = static_cast<const uint8_t *>(args.v);
        RKV_UNROLL
        for (int copy = 0; copy < kCopies; copy++) {
            const int i = thread + copy * S::kThreads;
            if (S::kTileKeys * S::kChunks % S::kThreads != 0 && i >= S::kTileKeys * S::kChunks) {
                break;
            }
            const int row = i / S::kChunks, chunk = i % S::kChunks;
            const int key = tile * S::kTileKeys + row;
            bool wanted = page_ahead[copy] >= 0;
            int64_t at = 0;
            if (wanted) {
                const int page_size = static_cast<int>(args.kv.page_size.value);
                const int position = key - divide(key, args.kv.page_size) * page_size;
                at = page_ahead[copy] * args.kv.page_stride +
                     position * args.kv.position_stride + head * args.kv.head_stride;
                at = at * kBytes<typename S::Kv> + chunk * 16;
                if (fault(Fault::kWrongPageOffset) && position == page_size - 1 && page_size > 1) {
                    at -= args.kv.position_stride * kBytes<typename S::Kv>;
                }
            } else if (fault(Fault::kTailNotZeroed) && tile * S::kTileKeys < any.end) {
                continue;
            }
            const uint32_t to = shared + stage * S::kStageBytes + row * S::kRowBytes + chunk * 16;
            copy_async16(to, k + at, wanted);
            copy_async16(to + S::kTileBytes, v + at, wanted);
        }
    }

    // The A operand of step `step`: rows of this warp, 16 elements.
    RKV_DEVICE void load_query(uint32_t (&a)[4], int step) const {
        const uint32_t base = shared + S::kQueryAt + row_warp * 16 * S::kQueryRowBytes;
        if (S::kIsFp8) {
            // In the order in which a thread gets elements of fp8 keys: four neighbours.
            const uint32_t at = base + (lane >> 2) * S::kQueryRowBytes + step * 32 + (lane & 3) * 8;
            load_shared2(at, a[0], a[2]);
            load_shared2(at + 8 * S::kQueryRowBytes, a[1], a[3]);
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

    // s = Q K^T for the keys of this warp.
    RKV_DEVICE void multiply_keys(float (&s)[S::kWarpKeys / 8][4], int stage) {
        const uint32_t base =
            shared + stage * S::kStageBytes + key_warp * S::kWarpKeys * S::kRowBytes;
        RKV_UNROLL
        for (int n = 0; n < S::kWarpKeys / 8; n++) {
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
        }
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
            if (S::kIsFp8) {
                // Four matrices of 8 keys x 16 bytes: two steps' worth would be one more register
                // each; here 32 keys of one step at once.
                RKV_UNROLL
                for (int n = 0; n < S::kWarpKeys / 8; n += 4) {
                    uint32_t b[4];
                    const int row = smaller(n * 8 + lane, S::kWarpKeys - 1);
                    load_matrix4(b, base + row * S::kRowBytes + step * 16);
                    RKV_UNROLL
                    for (int i = 0; i < 4 && n + i < S::kWarpKeys / 8; i++) {
                        const uint32_t b0 =
                            widen_e4m3<typename S::Q>(permute_bytes<0x1404>(b[i], 0));
                        const uint32_t b1 =
                            widen_e4m3<typename S::Q>(permute_bytes<0x3424>(b[i], 0));
                        S::Q::multiply_add(s[n + i], a, b0, b1);
                    }
                }
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

    // o += P V for the keys of this warp, P rounded to the queries' format.
    RKV_DEVICE void multiply_values(const float (&s)[S::kWarpKeys / 8][4], int stage) {
        const uint32_t base = shared + stage * S::kStageBytes + S::kTileBytes +
                              key_warp * S::kWarpKeys * S::kRowBytes;
        RKV_UNROLL
        for (int step = 0; step < S::kWarpKeys / 16; step++) {
            const uint32_t a[4] = {S::Q::pack(s[2 * step][0], s[2 * step][1]),
                                   S::Q::pack(s[2 * step][2], s[2 * step][3]),
                                   S::Q::pack(s[2 * step + 1][0], s[2 * step + 1][1]),
                                   S::Q::pack(s[2 * step + 1][2], s[2 * step + 1][3])};
            const uint32_t row = base + (step * 16 + (lane & 15)) * S::kRowBytes + (lane >> 4) * 16;
            if (S::kIsFp8) {
                // A transposed matrix gives a thread two keys of two neighbouring elements: one
                // matrix makes the operands for the even and for the odd elements of 16.
                RKV_UNROLL
                for (int d = 0; d < S::kHeadDim / 32; d++) {
                    uint32_t b[4];
                    load_matrix4_transposed(b, row + d * 32);
                    RKV_UNROLL
                    for (int i = 0; i < 2; i++) {
                        const uint32_t low = b[2 * i], high = b[2 * i + 1];
                        S::Q::multiply_add(o[4 * d + 2 * i], a,
                                           widen_e4m3<typename S::Q>(permute_bytes<0x2404>(low, 0)),
                                           widen_e4m3<typename S::Q>(
                                               permute_bytes<0x2404>(high, 0)));
                        S::Q::multiply_add(o[4 * d + 2 * i + 1], a,
                                           widen_e4m3<typename S::Q>(permute_bytes<0x3414>(low, 0)),
                                           widen_e4m3<typename S::Q>(
                                               permute_bytes<0x3414>(high, 0)));
                    }
                }
            } else {
                RKV_UNROLL
                for (int d = 0; d < S::kHeadDim / 16; d++) {
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
        for (int n = 0; n < S::kHeadDim / 8; n++) {
            o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
        }
        const int first = any.begin / S::kTileKeys;
        const int end = any.begin < any.end
                            ? (any.end + S::kTileKeys - 1) / S::kTileKeys
                            : first;
        const float scale = S::kPlain || args.soft_cap_in == 0.0f ? args.scale_log2 : 1.0f;
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
            if (!fault(Fault::kNoBarrierBeforeUse)) {
                sync_block();
            }
            float s[S::kWarpKeys / 8][4];
            multiply_keys(s, stage);
            Rows::cap_and_mask(s, tile * S::kTileKeys + key_warp * S::kWarpKeys,
                               Rows::warp_all);
            RKV_UNROLL
            for (int half = 0; half < 2; half++) {
                const float rescale = weigh<S::kWarpKeys / 8>(state[half], s, half, scale);
                if (fault(Fault::kNoRescale)) {
                    continue;
                }
                RKV_UNROLL
                for (int n = 0; n < S::kHeadDim / 8; n++) {
                    o[n][2 * half] *= rescale;
                    o[n][2 * half + 1] *= rescale;
                }
            }
            multiply_values(s, stage);
            if (!fault(Fault::kNoBarrierAfterUse)) {
                sync_block(); // before this stage is filled again
            }
        }
        RKV_UNROLL
        for (int half = 0; half < 2; half++) {
            finish_sum(state[half], scale);
        }
        Writer<S> writer{args, item};
        if (S::kKeyWarps == 1) {
            // Found once more, rather than kept in registers meanwhile.
            Rows::locate(anew(row_warp * 16));
            writer.write_rows(o, state, query_of, head_of, row_warp, lane);
        } else {
            writer.write_combined(o, state, thread, lane, key_warp, shared, head);
        }
    }
};

template <class S>
RKV_DEVICE void attend(const AttentionArguments &args) {
    Item item;
    if (take_item(args, item)) {
        AttendBlock<S> block(args, item);
        block.run();
    }
}

} // namespace rkv
