// The layers of a Llama-like model, filled from a checkpoint with the names of Hugging Face.
#ifndef ENGINE_MODEL_WEIGHTS_HPP
#define ENGINE_MODEL_WEIGHTS_HPP

#include "compute/linear.hpp"
#include "model/config.hpp"
#include "model/safetensors.hpp"

#include <vector>

namespace engine {

struct LayerWeights {
    std::vector<float> attention_norm;
    /// Outputs are [q heads | k heads | v heads]: one product instead of three.
    Linear qkv;
    /// Norms of each head of q and k, as Qwen3 has them; empty where the model has none.
    std::vector<float> q_norm, k_norm;
    Linear attention_out;
    std::vector<float> mlp_norm;
    /// Outputs are [gate | up].
    Linear gate_up;
    Linear down;
};

struct Weights {
    /// [vocab_size][hidden_size], read row by row where the file lies in memory.
    TensorView embedding;
    std::vector<LayerWeights> layers;
    std::vector<float> norm;
    Linear head;
};

/// Throws std::runtime_error that names the tensor which is missing or has another shape.
[[nodiscard]] Weights load_weights(const ModelConfig& config, const Safetensors& file, Gemm gemm);

}  // namespace engine

#endif  // ENGINE_MODEL_WEIGHTS_HPP
