// The instantiations of attn_mma for one head dim, RKV_HEAD_DIM. src/gpu/shapes.rs has their list.
//
//   rows128, rows64   prefill, appends, verification of drafts; _plain: causal and nothing else
//   rows16            decoding: four warps share the keys of a tile, or two from head dim 192 on
#include "attn_mma.cuh"

using namespace rkv;

#define RKV_ATTEND_NAMED(name, ...) \
    using name##_shape = Shape<__VA_ARGS__>; \
    RKV_KERNEL(name, AttentionArguments, name##_shape::kThreads, name##_shape::kBlocks) { \
        attend<name##_shape>(arguments); \
    } \
    RKV_LIST_KERNEL(name, AttentionArguments, name##_shape::kThreads, name##_shape::kSharedBytes)
#define RKV_ATTEND_DIM(types, dim, rows, Q, Kv, ...) \
    RKV_ATTEND_NAMED(rkv_attend_##types##_##dim##_##rows, Q, Kv, dim, __VA_ARGS__)
#define RKV_ATTEND(types, dim, rows, Q, Kv, ...) \
    RKV_ATTEND_DIM(types, dim, rows, Q, Kv, __VA_ARGS__)

// After the types: row warps, key warps, keys of a tile, blocks of a multiprocessor, plain.
#if RKV_HEAD_DIM == 64
#define RKV_SHAPES(q, Q) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows128_plain, Q, Q, 8, 1, 64, 2, true) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows128, Q, Q, 8, 1, 64, 1, false) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows64, Q, Q, 4, 1, 64, 3, false) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows16, Q, Q, 1, 4, 64, 4, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEAD_DIM, rows128, Q, E4M3, 8, 1, 64, 1, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEAD_DIM, rows64, Q, E4M3, 4, 1, 64, 3, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEAD_DIM, rows16, Q, E4M3, 1, 4, 64, 4, false)
#elif RKV_HEAD_DIM == 192 || RKV_HEAD_DIM == 256
#define RKV_SHAPES(q, Q) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows64_plain, Q, Q, 4, 1, 32, 2, true) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows64, Q, Q, 4, 1, 32, 2, false) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows16, Q, Q, 1, 2, 32, 3, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEAD_DIM, rows64, Q, E4M3, 4, 1, 32, 2, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEAD_DIM, rows16, Q, E4M3, 1, 2, 32, 3, false)
#else
#define RKV_SHAPES(q, Q) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows128_plain, Q, Q, 8, 1, 64, 1, true) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows128, Q, Q, 8, 1, 64, 1, false) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows64, Q, Q, 4, 1, 64, 2, false) \
    RKV_ATTEND(q##_16bit, RKV_HEAD_DIM, rows16, Q, Q, 1, 4, 64, 3, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEAD_DIM, rows128, Q, E4M3, 8, 1, 64, 1, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEAD_DIM, rows64, Q, E4M3, 4, 1, 64, 2, false) \
    RKV_ATTEND(q##_e4m3, RKV_HEAD_DIM, rows16, Q, E4M3, 1, 4, 64, 3, false)
#endif

RKV_SHAPES(bf16, Bf16)
RKV_SHAPES(f16, F16)
