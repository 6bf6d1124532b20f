// What the host hands to kernels. src/gpu/arguments.rs has the same structs; a test compares them.
#pragma once
#include <stdint.h>

namespace rkv {

// One new position of the batch.
struct Query {
    int32_t position;     // in its row, or the last of a context that it is no position of
    int32_t page_begin;   // of its row's pages, in AppendArguments::pages
    int32_t region_begin; // positions [region_begin, region_end) that it sees whole; empty: none;
                          // -1: none, and it has no K and V
    int32_t region_end;
};

// What a new position of a draft sees of its row's new ones, which begin at `begin`.
struct TreeMask {
    int32_t begin;
    int32_t count; // of ones in `seen`; 0: it sees all that came before it
    uint64_t seen; // a bit for each of them, the lowest for the first
};

// Work of one block for each KV head: packed query rows (query, head of the group) against keys.
struct Item {
    int32_t order_begin;   // of its queries, in AppendArguments::order
    int32_t row_begin;     // its first packed row, counted from the first row of that query
    int32_t row_count;     // packed rows, at most a tile of them
    int32_t page_begin;    // of the pages that hold its keys
    int32_t key_begin;     // keys [key_begin, key_end)
    int32_t key_end;
    int32_t partial_begin; // partial result of the first query; -1: the result is whole
    int32_t in_order;      // 1: order[i] is i for its queries
};

// How much of a step there is. Grids may be larger: a graph is captured once, for the largest step
// that was reserved, and replayed for every smaller one. Blocks beyond leave at once.
constexpr int kTilesMax = 6;
struct StepCounts {
    int32_t queries;
    int32_t merged; // entries that are merged
    int32_t items[kTilesMax]; // of each shape
    uint32_t taken; // of attn_sm90's items, by blocks that had their first; 0 between launches
    uint32_t ended; // blocks that found no more; 0 between launches
};

// Division of numbers below 2^31 by a constant: see divide() in numbers.cuh.
struct Divisor {
    uint32_t value;
    uint32_t magic;
    uint32_t shift;
};

// Distances in elements.
struct KvPlace {
    int64_t page_stride;
    int64_t position_stride;
    int64_t head_stride;
    Divisor page_size;
    uint32_t reserved;
};

struct AttentionArguments {
    const void *q;
    void *out;
    float *lse; // may be null
    const void *k;
    const void *v;
    const float *sinks; // may be null
    const float *k_scales; // of fp8, by KV head, in place of K's own scale; may be null
    const float *v_scales; // in place of v_scale
    const Item *items;
    const int32_t *item_count; // in StepCounts
    const Query *queries;
    const int32_t *order; // numbers of queries
    const int32_t *pages;
    const TreeMask *tree_masks; // by query; null: there are none
    float *partial_out; // [partial][query head][element]
    float *partial_lse; // [partial][query head]
    int64_t q_position_stride;
    int64_t q_head_stride;
    int64_t out_position_stride;
    int64_t out_head_stride;
    KvPlace kv;   // of keys, and of values whose heads are as long
    KvPlace v_kv; // of values
    int32_t query_heads;
    Divisor group; // query heads of a KV head
    float scale_log2;   // to logits in base 2, K's own scale included
    float soft_cap_in;  // 0: no cap; otherwise logit = out * tanh(dot * in)
    float soft_cap_out;
    float v_scale;
    int32_t window; // positions that a query sees, itself included; 0: all
    // Of attn_mma with few rows: the blocks of an item come one after another for so many KV heads,
    // in powers of two.
    uint32_t close_heads;
};

// A CUtensorMap: where the boxes lie that the device copies by itself.
struct alignas(64) TensorMap {
    uint64_t opaque[16];
};

// For attn_sm90.
struct HopperArguments {
    TensorMap k; // dimensions: element, head, position of the page, page
    TensorMap v;
    AttentionArguments attention;
    uint32_t *taken; // in StepCounts, `ended` behind it
    int32_t box_positions;   // of a box: a power of two, 8 to 64; 0: there are no maps
    uint32_t position_first; // 1: in the maps positions come before heads
    uint32_t blocks;         // of the launch
    uint32_t reserved[5];
};

struct MergeArguments {
    void *out;
    float *lse;         // may be null
    const float *sinks; // may be null
    const float *partial_out;
    const float *partial_lse;
    const int32_t *queries;     // [entry]: which query it is
    const int32_t *indptr;      // [entry + 1]: its partials, in partials
    const int32_t *partials;    // numbers of partials
    const int32_t *entry_count; // in StepCounts
    int64_t out_position_stride;
    int64_t out_head_stride;
    int32_t entry_max; // of the launch
    int32_t blocks;
    int32_t query_heads;
    int32_t head_dim; // of values
    Divisor heads;    // query_heads
    uint32_t reserved;
};

constexpr int kMergeStatesMax = 128;

struct MergeStatesArguments {
    void *out;
    float *lse; // may be null
    int64_t position_count;
    int32_t query_heads;
    int32_t head_dim; // of values
    int32_t state_count;
    int32_t blocks; // of the launch
    const void *outs[kMergeStatesMax];
    const float *lses[kMergeStatesMax];
};

struct KvWriteArguments {
    const void *k;
    const void *v;
    void *k_pages;
    void *v_pages;
    const Query *queries;
    const int32_t *query_count; // in StepCounts
    const int32_t *pages;
    const float *k_scales; // by KV head, in place of k_scale; may be null
    const float *v_scales;
    int64_t k_position_stride;
    int64_t k_head_stride;
    int64_t v_position_stride;
    int64_t v_head_stride;
    KvPlace kv;   // of keys
    KvPlace v_kv; // of values
    int32_t query_max; // of the launch
    int32_t head_dim;
    int32_t v_head_dim; // 0: values are the beginnings of keys
    float k_scale;
    float v_scale;
    Divisor query_pieces; // threads of a query: heads times the pieces of one
    Divisor head_pieces;  // eight elements each, of the longer of K's and V's heads
    uint32_t reserved;
};

struct PageCopy {
    uint32_t source;
    uint32_t target;
    uint32_t positions;
    uint32_t reserved;
};

// Addresses of page 0.
struct Layer {
    uint64_t k;
    uint64_t v;
};

// Strides and sizes in bytes. `dense` is memory of [copy][layer][k, v][position][head][row_bytes],
// which gather fills and scatter reads.
struct PageCopyArguments {
    const Layer *layers;
    const PageCopy *copies;
    void *dense;
    int64_t page_stride;
    int64_t position_stride;
    int64_t head_stride;
    int32_t kv_heads;
    int32_t row_bytes; // of one head of one position
    int32_t page_size;
    int32_t layer_count;
};

// K and V of a position that go to another place.
struct PositionMove {
    uint32_t source_page;
    uint32_t source_position; // of the page
    uint32_t target_page;
    uint32_t target_position;
};

// Strides and sizes in bytes.
struct PositionMoveArguments {
    const Layer *layers;
    const PositionMove *moves;
    int64_t page_stride;
    int64_t position_stride;
    int64_t head_stride;
    int32_t kv_heads;
    int32_t row_bytes; // of one head of one position
    int32_t move_count;
    int32_t reserved;
};

// Changed entries of the page rows on the device: runs of values.
struct MirrorRun {
    int32_t target; // first entry
    int32_t source; // first value
    int32_t count;
    int32_t reserved;
};

struct MirrorArguments {
    int32_t *rows;
    const MirrorRun *runs;
    const int32_t *values;
    int64_t reserved;
};

} // namespace rkv
