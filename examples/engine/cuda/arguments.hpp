// What the kernels are launched with: one struct each, which the host fills and the device reads.
// Addresses are the device's. Numbers are bf16 by their bits, and norms f32.
#ifndef ENGINE_CUDA_ARGUMENTS_HPP
#define ENGINE_CUDA_ARGUMENTS_HPP

#include <cstddef>
#include <cstdint>

namespace engine::cuda {

using Bf16 = std::uint16_t;

/// Threads of a block, of every kernel.
constexpr unsigned block_threads = 256;

/// out[row] = table[ids[row]]; a block for each row.
struct EmbedArguments {
    const std::uint32_t* ids;
    const Bf16* table;
    Bf16* out;
    /// Even.
    std::uint32_t width;
};

/// x[row] += delta[row], if there is one, and out[i] = x[row] / sqrt(mean(x[row]^2) + epsilon) *
/// weight; a block for each i. row is rows[i], or i without rows.
struct NormArguments {
    Bf16* x;
    const Bf16* delta;
    const std::uint32_t* rows;
    const float* weight;
    Bf16* out;
    /// Even.
    std::uint32_t width;
    float epsilon;
};

/// x[row] += bias in place; rows are blocks' x, columns their y.
struct BiasArguments {
    Bf16* x;
    const float* bias;
    /// Even.
    std::uint32_t width;
};

/// Norms the heads of q and k, if the model does that, and turns them to their positions, in place.
/// A warp for each head: rows are blocks' x, heads their y.
struct TurnArguments {
    Bf16* qkv;
    const std::uint32_t* positions;
    /// [position][cosines, then sines][head_dim / 2].
    const float* rope;
    /// Of [head_dim], or null.
    const float* q_norm;
    const float* k_norm;
    std::uint32_t stride;
    std::uint32_t head_dim;
    std::uint32_t query_heads;
    std::uint32_t heads;
    float epsilon;
};

/// out[row] = silu(gate) * up, where rows of gate_up are [gate | up] of `width` each; rows are
/// blocks' x, columns their y.
struct SiluArguments {
    const Bf16* gate_up;
    Bf16* out;
    /// Even.
    std::uint32_t width;
};

}  // namespace engine::cuda

#endif  // ENGINE_CUDA_ARGUMENTS_HPP
