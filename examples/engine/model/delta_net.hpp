// Gated delta nets, as Qwen3-Next has them in place of attention: a short convolution over q, k and
// v, then for each value head a matrix that learns v under the key k, forgets, and is asked by q.
#ifndef ENGINE_MODEL_DELTA_NET_HPP
#define ENGINE_MODEL_DELTA_NET_HPP

#include "compute/thread_pool.hpp"
#include "model/config.hpp"
#include "model/model.hpp"
#include "model/weights.hpp"

#include <cstddef>
#include <vector>

namespace engine {

/// Computes the new tokens of some sequences, token by token: chunks of any size give the same
/// bits. Sequences and heads go side by side.
class DeltaNet {
public:
    /// All must outlive it.
    DeltaNet(const DeltaNetConfig& config, const DeltaNetWeights& weights, float epsilon)
        : config_(config), weights_(weights), epsilon_(epsilon) {}

    /// `projected` are the rows of Layer::qkv for all tokens of the step, dense. `out` receives
    /// [tokens][value_width]. The states are updated.
    void compute(const float* projected, const std::vector<StateRow>& sequences, float* out,
                 ThreadPool& pool) const;

private:
    const DeltaNetConfig& config_;
    const DeltaNetWeights& weights_;
    float epsilon_;

    void compute_group(const float* projected, const StateRow& sequence, std::size_t key_head,
                       float* out) const;
    void convolve(const float* in, float* window, std::size_t channel, std::size_t count,
                  float* out) const;
    void attend(const float* row, std::size_t head, const float* q, const float* k,
                const float* v, float* memory, float* out) const;
};

}  // namespace engine

#endif  // ENGINE_MODEL_DELTA_NET_HPP
