// The operations between the matrices. Each row is computed alone, so that its bits don't depend on
// the batch.
#ifndef ENGINE_COMPUTE_LAYERS_HPP
#define ENGINE_COMPUTE_LAYERS_HPP

#include "compute/thread_pool.hpp"

#include <cstddef>
#include <vector>

namespace engine {

/// y = x / sqrt(mean(x^2) + epsilon) * weight, for each of `rows` dense rows of weight.size().
void rms_norm(const float* x, std::size_t rows, const std::vector<float>& weight, float epsilon,
              float* y, ThreadPool& pool);

/// The same in place for one vector, as Qwen3 does with each head of q and k.
void rms_norm_head(float* head, const std::vector<float>& weight, float epsilon);

/// x += y.
void add(float* x, const float* y, std::size_t count, ThreadPool& pool);

/// out[row] = silu(gate) * up, where gate_up rows are [gate | up] of `width` each.
void silu_multiply(const float* gate_up, std::size_t rows, std::size_t width, float* out,
                   ThreadPool& pool);

/// The same with gelu, as it is approximated by a hyperbolic tangent.
void gelu_multiply(const float* gate_up, std::size_t rows, std::size_t width, float* out,
                   ThreadPool& pool);

/// x[row] *= sigmoid(gate[row]); rows of x are dense, those of gate are `stride` numbers apart.
void sigmoid_multiply(float* x, const float* gate, std::size_t stride, std::size_t rows,
                      std::size_t width, ThreadPool& pool);

/// out[i] = silu(x[i]).
void silu(const float* x, std::size_t count, float* out);

}  // namespace engine

#endif  // ENGINE_COMPUTE_LAYERS_HPP
