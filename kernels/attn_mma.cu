// The instantiations of attn_mma for one kind of heads: RKV_HEAD_DIM, and RKV_V_HEAD_DIM of values.
// src/gpu/shapes.rs has their list.
//
//   rows128, rows64   prefill, appends, verification of drafts; _plain: causal and nothing else
//   rows16            decoding: four warps share the keys of a tile, or two from head dim 192 on;
//                     from 512 on two share the values
#include "attn_mma.cuh"

using namespace rkv;

#define RKV_ATTEND_NAMED(name, ...) \
    using name##_shape = Shape<__VA_ARGS__>; \
    RKV_KERNEL(name, AttentionArguments, name##_shape::kThreads, name##_shape::kBlocks) { \
        attend<name##_shape>(arguments); \
    } \
    RKV_LIST_KERNEL(name, AttentionArguments, name##_shape::kThreads, name##_shape::kSharedBytes)
#define RKV_ATTEND_HEADS(types, heads, rows, Q, Kv, ...) \
    RKV_ATTEND_NAMED(rkv_attend_##types##_##heads##_##rows, Q, Kv, HeadDims, __VA_ARGS__)
#define RKV_ATTEND(types, heads, rows, Q, Kv, ...) \
    RKV_ATTEND_HEADS(types, heads, rows, Q, Kv, __VA_ARGS__)

// After the types: row warps, key warps, value warps, keys of a tile, blocks of a multiprocessor,
// plain.
#if RKV_HEAD_DIM == 64
#define RKV_SHAPES(q, Q) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows128_plain, Q, Q, 8, 1, 1, 64, 2, true) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows128, Q, Q, 8, 1, 1, 64, 1, false) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows64, Q, Q, 4, 1, 1, 64, 3, false) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows16, Q, Q, 1, 4, 1, 64, 4, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows128, Q, E4M3, 8, 1, 1, 64, 1, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows64, Q, E4M3, 4, 1, 1, 64, 3, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows16, Q, E4M3, 1, 4, 1, 64, 4, false)
#elif RKV_HEAD_DIM == 192 || RKV_HEAD_DIM == 256
#define RKV_SHAPES(q, Q) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows64_plain, Q, Q, 4, 1, 1, 32, 2, true) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows64, Q, Q, 4, 1, 1, 32, 2, false) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows16, Q, Q, 1, 2, 1, 32, 3, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows64, Q, E4M3, 4, 1, 1, 32, 2, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows16, Q, E4M3, 1, 2, 1, 32, 3, false)
#elif RKV_HEAD_DIM == 512
#define RKV_SHAPES(q, Q) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows64_plain, Q, Q, 4, 1, 2, 32, 1, true) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows64, Q, Q, 4, 1, 2, 32, 1, false) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows16, Q, Q, 1, 1, 2, 16, 2, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows64, Q, E4M3, 4, 1, 2, 32, 1, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows16, Q, E4M3, 1, 1, 2, 16, 2, false)
#elif RKV_HEAD_DIM == 576
#define RKV_SHAPES(q, Q) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows64_plain, Q, Q, 4, 1, 2, 32, 1, true) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows64, Q, Q, 4, 1, 2, 32, 1, false) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows16, Q, Q, 1, 1, 2, 32, 2, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows64, Q, E4M3, 4, 1, 2, 32, 1, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows16, Q, E4M3, 1, 1, 2, 32, 2, false)
#else
#define RKV_SHAPES(q, Q) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows128_plain, Q, Q, 8, 1, 1, 64, 1, true) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows128, Q, Q, 8, 1, 1, 64, 1, false) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows64, Q, Q, 4, 1, 1, 64, 2, false) \
    RKV_ATTEND(q##_16bit, RKV_HEADS, rows16, Q, Q, 1, 4, 1, 64, 3, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows128, Q, E4M3, 8, 1, 1, 64, 1, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows64, Q, E4M3, 4, 1, 1, 64, 2, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEADS, rows16, Q, E4M3, 1, 4, 1, 64, 3, false)
#endif

RKV_SHAPES(bf16, Bf16)
RKV_SHAPES(f16, F16)
