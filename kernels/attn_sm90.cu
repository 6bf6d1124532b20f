// The instantiations of attn_sm90 for one head dim, RKV_HEAD_DIM. src/gpu/shapes.rs has their list.
#include "attn_sm90.cuh"

using namespace rkv;

// Keys of a tile, and groups of 64 rows.
#if RKV_HEAD_DIM == 64
#define RKV_TILE 112, 3
#elif RKV_HEAD_DIM == 128
#define RKV_TILE 128, 2
#else
#define RKV_TILE 80, 2
#endif

#define RKV_HOPPER_NAMED(name, Q) \
    using name##_shape = HopperShape<Q, RKV_HEAD_DIM, RKV_TILE>; \
    RKV_KERNEL(name, HopperArguments, name##_shape::kThreads, name##_shape::kBlocks) { \
        attend_hopper<name##_shape>(arguments); \
    } \
    RKV_LIST_HOPPER_KERNEL(name, HopperArguments, name##_shape::kThreads, \
                           name##_shape::kSharedBytes)
#define RKV_HOPPER_DIM(types, dim, Q) RKV_HOPPER_NAMED(rkv_attend_sm90_##types##_##dim, Q)
#define RKV_HOPPER(types, dim, Q) RKV_HOPPER_DIM(types, dim, Q)

RKV_HOPPER(bf16, RKV_HEAD_DIM, Bf16)
RKV_HOPPER(f16, RKV_HEAD_DIM, F16)
