// What moves K and V into, out of and between pages, 16 bytes at a time.
#pragma once
#include "places.cuh"

namespace rkv {

constexpr int kCopyThreads = 128;

// Eight elements of the queries' format as they are stored: the same, or e4m3 after division.
template <class Q, class Kv>
RKV_DEVICE void store_eight(void *pages, int64_t at, const Vector16 &eight, float scale) {
    uint8_t *to = static_cast<uint8_t *>(pages) + at * kBytes<Kv>;
    if (kBytes<Kv> == 2) {
        store_global(reinterpret_cast<Vector16 *>(to), eight);
        return;
    }
    const Scale divisor(scale);
    uint32_t words[2] = {0, 0};
    RKV_UNROLL
    for (int i = 0; i < 4; i++) {
        words[i / 2] |= narrow_pair<Q>(eight.x[i], divisor) << (i % 2 * 16);
    }
    store_global2(reinterpret_cast<uint32_t *>(to), words[0], words[1]);
}

// K and V of the new positions into their pages. A thread for eight elements of both, as far as
// heads of both go.
template <class Q, class Kv>
RKV_DEVICE void kv_write(const KvWriteArguments &args) {
    begin_launch();
    // As many queries as a block has threads take as many blocks as a query takes threads, so that
    // what is divided has 31 bits however long a step is.
    const int query_pieces = static_cast<int>(args.query_pieces.value);
    const int head_pieces = static_cast<int>(args.head_pieces.value);
    const int round = divide(block_x(), args.query_pieces);
    const int index = (block_x() - round * query_pieces) * kCopyThreads + thread_index();
    const int of_round = divide(index, args.query_pieces);
    const int query = round * kCopyThreads + of_round;
    if (query >= args.query_max) {
        return;
    }
    const int piece = index - of_round * query_pieces;
    const int head = divide(piece, args.head_pieces);
    const int element = (piece - head * head_pieces) * 8;
    const int queries = load_global(args.query_count);
    const Vector16 words = load_global(reinterpret_cast<const Vector16 *>(args.queries + query));
    const int position = static_cast<int>(words.x[0]), pages = static_cast<int>(words.x[1]);
    const bool has_kv = static_cast<int>(words.x[2]) >= 0 || fault(Fault::kContextWritten);
    if (!is_there(query, queries, position + 1) || !has_kv) {
        return;
    }
    const int page = load_global(args.pages + pages + page_of(position, args.kv));
    const int in_page = position_in_page(position, args.kv);
    auto eight = [&](const void *from, int64_t position_stride, int64_t head_stride) {
        const int64_t place = query * position_stride + head * head_stride + element;
        return load_global(reinterpret_cast<const Vector16 *>(
            static_cast<const uint8_t *>(from) + place * 2));
    };
    auto scale_of = [&](const float *by_head, float of_all) {
        return kBytes<Kv> == 1 && by_head != nullptr ? load_global(by_head + head) : of_all;
    };
    const bool has_k = element < args.head_dim, has_v = element < args.v_head_dim;
    Vector16 k{}, v{};
    if (has_k) {
        k = eight(args.k, args.k_position_stride, args.k_head_stride);
    }
    if (has_v) {
        v = eight(args.v, args.v_position_stride, args.v_head_stride);
    }
    if (has_k) {
        const int64_t at = place_of(page, in_page, head, args.kv) + element;
        store_eight<Q, Kv>(args.k_pages, at, k, scale_of(args.k_scales, args.k_scale));
    }
    if (has_v) {
        const int64_t at = place_of(page, in_page, head, args.v_kv) + element;
        store_eight<Q, Kv>(args.v_pages, at, v, scale_of(args.v_scales, args.v_scale));
    }
}

enum class Move { kCopy, kGather, kScatter };

// The first positions of pages, in every layer: to other pages, to dense memory, or from there.
// Grid: copies, layers, K and V.
template <Move move>
RKV_DEVICE void move_pages(const PageCopyArguments &args) {
    const Vector16 words = load_global(reinterpret_cast<const Vector16 *>(args.copies + block_x()));
    const int64_t source = words.x[0], target = words.x[1];
    const int positions = static_cast<int>(words.x[2]);
    const uint64_t *layer = reinterpret_cast<const uint64_t *>(args.layers + block_y());
    uint8_t *pages = reinterpret_cast<uint8_t *>(load_global(layer + block_z()));
    const int64_t dense_row = args.row_bytes;
    const int64_t dense_page = dense_row * args.kv_heads * args.page_size;
    uint8_t *dense = static_cast<uint8_t *>(args.dense);
    if (move != Move::kCopy) {
        dense += ((static_cast<int64_t>(block_x()) * args.layer_count + block_y()) * 2 +
                  block_z()) *
                 dense_page;
    }
    const int chunks = args.row_bytes / 16;
    const int64_t count = static_cast<int64_t>(positions) * args.kv_heads * chunks;
    for (int64_t i = thread_index(); i < count; i += kCopyThreads) {
        const int64_t chunk = i % chunks, row = i / chunks;
        const int64_t head = row % args.kv_heads, position = row / args.kv_heads;
        const int64_t inside =
            position * args.position_stride + head * args.head_stride + chunk * 16;
        uint8_t *in_source = pages + source * args.page_stride + inside;
        uint8_t *in_target = pages + target * args.page_stride + inside;
        uint8_t *in_dense = dense + row * dense_row + chunk * 16;
        const uint8_t *from = move == Move::kScatter ? in_dense : in_source;
        uint8_t *to = move == Move::kGather ? in_dense : in_target;
        store_global(reinterpret_cast<Vector16 *>(to),
                     load_global(reinterpret_cast<const Vector16 *>(from)));
    }
}

// Positions to other places, in every layer. A thread has the same 16 bytes of all of them, and
// moves them in order: what one move overwrites, those before have read.
// Grid: pieces of 16 bytes of a position, layers, K and V.
RKV_DEVICE void move_positions(const PositionMoveArguments &args) {
    const int chunks = args.row_bytes / 16;
    const int piece = block_x() * kCopyThreads + thread_index();
    if (piece >= args.kv_heads * chunks) {
        return;
    }
    const uint64_t *layer = reinterpret_cast<const uint64_t *>(args.layers + block_y());
    uint8_t *pages = reinterpret_cast<uint8_t *>(load_global(layer + block_z()));
    pages += piece / chunks * args.head_stride + piece % chunks * 16;
    auto place = [&](uint32_t page, uint32_t position) {
        return reinterpret_cast<Vector16 *>(pages + page * args.page_stride +
                                            position * args.position_stride);
    };
    for (int i = 0; i < args.move_count; i++) {
        const Vector16 move = load_global(reinterpret_cast<const Vector16 *>(args.moves + i));
        store_global(place(move.x[2], move.x[3]),
                     load_global(static_cast<const Vector16 *>(place(move.x[0], move.x[1]))));
    }
}

// Brings the page rows on the device up to date: a block for each run of changed entries.
RKV_DEVICE void update_mirror(const MirrorArguments &args) {
    const Vector16 run = load_global(reinterpret_cast<const Vector16 *>(args.runs + block_x()));
    const int target = static_cast<int>(run.x[0]), source = static_cast<int>(run.x[1]);
    for (int i = thread_index(); i < static_cast<int>(run.x[2]); i += kCopyThreads) {
        store_global(args.rows + target + i, load_global(args.values + source + i));
    }
}

} // namespace rkv
