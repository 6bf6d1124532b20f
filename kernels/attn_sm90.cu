// The instantiations of attn_sm90 for one head dim, RKV_HEAD_DIM. src/gpu/shapes.rs has their list.
#include "attn_sm90.cuh"

using namespace rkv;

// Keys of a tile, of 16-bit numbers and of fp8, and groups of 64 rows.
#if RKV_HEAD_DIM == 64
#define RKV_TILE 112, 3
#define RKV_TILE_FP8 112, 3
#elif RKV_HEAD_DIM == 128
#define RKV_TILE 128, 2
#define RKV_TILE_FP8 128, 2
#else
#define RKV_TILE 80, 2
#define RKV_TILE_FP8 64, 2
#endif

#define RKV_HOPPER_NAMED(name, Q, Kv, ...) \
    using name##_shape = HopperShape<Q, Kv, RKV_HEAD_DIM, __VA_ARGS__>; \
    RKV_KERNEL(name, HopperArguments, name##_shape::kThreads, name##_shape::kBlocks) { \
        attend_hopper<name##_shape>(arguments); \
    } \
    RKV_LIST_HOPPER_KERNEL(name, HopperArguments, name##_shape::kThreads, \
                           name##_shape::kSharedBytes)
#define RKV_HOPPER_DIM(types, dim, Q, Kv, ...) \
    RKV_HOPPER_NAMED(rkv_attend_sm90_##types##_##dim, Q, Kv, __VA_ARGS__)
#define RKV_HOPPER(types, dim, Q, Kv, ...) RKV_HOPPER_DIM(types, dim, Q, Kv, __VA_ARGS__)

RKV_HOPPER(bf16, RKV_HEAD_DIM, Bf16, Bf16, RKV_TILE)
RKV_HOPPER(f16, RKV_HEAD_DIM, F16, F16, RKV_TILE)
RKV_HOPPER(bf16_e4m3, RKV_HEAD_DIM, Bf16, E4M3, RKV_TILE_FP8)
RKV_HOPPER(f16_e4m3, RKV_HEAD_DIM, F16, E4M3, RKV_TILE_FP8)
