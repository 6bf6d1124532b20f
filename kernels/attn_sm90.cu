// The instantiations of attn_sm90 for one head dim, RKV_HEAD_DIM. src/gpu/shapes.rs has their list.
#include "attn_sm90.cuh"

using namespace rkv;

#if RKV_HEAD_DIM == 256
#define RKV_TILE_KEYS 64
#else
#define RKV_TILE_KEYS 128
#endif

#define RKV_HOPPER_NAMED(name, Q) \
    using name##_shape = HopperShape<Q, RKV_HEAD_DIM, RKV_TILE_KEYS>; \
    RKV_KERNEL(name, HopperArguments, name##_shape::kThreads, name##_shape::kBlocks) { \
        attend_hopper<name##_shape>(arguments); \
    } \
    RKV_LIST_HOPPER_KERNEL(name, HopperArguments, name##_shape::kThreads, \
                           name##_shape::kSharedBytes)
#define RKV_HOPPER_DIM(types, dim, Q) RKV_HOPPER_NAMED(rkv_attend_sm90_##types##_##dim, Q)
#define RKV_HOPPER(types, dim, Q) RKV_HOPPER_DIM(types, dim, Q)

RKV_HOPPER(bf16, RKV_HEAD_DIM, Bf16)
RKV_HOPPER(f16, RKV_HEAD_DIM, F16)
