// The instantiations of attn_sm90 for one kind of heads, see heads.cuh.
#include "attn_sm90.cuh"

using namespace rkv;

// Keys of a tile and groups that compute: of 16-bit numbers, and of fp8, where heads of K and V are
// alike.
#if RKV_HEAD_DIM == 64
#define RKV_TILE 112, 3
#define RKV_TILE_FP8 112, 3
#elif RKV_HEAD_DIM == 128
#define RKV_TILE 128, 2
#define RKV_TILE_FP8 128, 2
#elif RKV_HEAD_DIM == 192
#define RKV_TILE 128, 2
#elif RKV_HEAD_DIM == 256
#define RKV_TILE 80, 2
#define RKV_TILE_FP8 64, 2
#else
#define RKV_TILE 64, 2
#endif

#define RKV_HOPPER_NAMED(name, Q, Kv, ...) \
    using name##_shape = HopperShape<Q, Kv, HeadDims, __VA_ARGS__>; \
    RKV_KERNEL(name, HopperArguments, name##_shape::kThreads, name##_shape::kBlocks) { \
        attend_hopper<name##_shape>(arguments); \
    } \
    RKV_LIST_HOPPER_KERNEL(name, HopperArguments, name##_shape::kThreads, \
                           name##_shape::kSharedBytes)
#define RKV_HOPPER_HEADS(types, heads, Q, Kv, ...) \
    RKV_HOPPER_NAMED(rkv_attend_sm90_##types##_##heads, Q, Kv, __VA_ARGS__)
#define RKV_HOPPER(types, heads, Q, Kv, ...) RKV_HOPPER_HEADS(types, heads, Q, Kv, __VA_ARGS__)

RKV_HOPPER(bf16, RKV_HEADS, Bf16, Bf16, RKV_TILE)
RKV_HOPPER(f16, RKV_HEADS, F16, F16, RKV_TILE)
#if defined(RKV_TILE_FP8)
RKV_HOPPER(bf16_e4m3, RKV_HEADS, Bf16, E4M3, RKV_TILE_FP8)
RKV_HOPPER(f16_e4m3, RKV_HEADS, F16, E4M3, RKV_TILE_FP8)
#endif
