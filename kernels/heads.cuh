// How long heads are: for one kind of them a source is built, RKV_HEAD_DIM and RKV_V_HEAD_DIM.
// src/gpu/shapes.rs has their list.
#pragma once

namespace rkv {

// Elements of heads of Q and K, and of V and the result. Latent values are the beginnings of their
// keys (multi-head latent attention, absorbed).
template <int head_dim, int value_dim, bool latent>
struct Heads {
    static constexpr int kHeadDim = head_dim;
    static constexpr int kValueDim = value_dim;
    static constexpr bool kLatent = latent;

    static_assert(!kLatent || kValueDim <= kHeadDim, "latent values are beginnings of keys");
};

} // namespace rkv

#if defined(RKV_HEAD_DIM)

#ifndef RKV_V_HEAD_DIM
#define RKV_V_HEAD_DIM RKV_HEAD_DIM
#endif
#if RKV_HEAD_DIM == 576
#define RKV_LATENT true
#else
#define RKV_LATENT false
#endif
using HeadDims = rkv::Heads<RKV_HEAD_DIM, RKV_V_HEAD_DIM, RKV_LATENT>;

// In names: one number where both are the same.
#define RKV_JOIN_NOW(k, v) k##_##v
#define RKV_JOIN(k, v) RKV_JOIN_NOW(k, v)
#if RKV_V_HEAD_DIM == RKV_HEAD_DIM
#define RKV_HEADS RKV_HEAD_DIM
#else
#define RKV_HEADS RKV_JOIN(RKV_HEAD_DIM, RKV_V_HEAD_DIM)
#endif

#endif
