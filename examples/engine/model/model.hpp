// The forward pass of a decoder-only transformer: RMSNorm, rotary embedding, grouped-query
// attention, SwiGLU. Attention is whatever the caller hands in.
#ifndef ENGINE_MODEL_MODEL_HPP
#define ENGINE_MODEL_MODEL_HPP

#include "compute/thread_pool.hpp"
#include "model/config.hpp"
#include "model/rope.hpp"
#include "model/safetensors.hpp"
#include "model/weights.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace engine {

/// q, k and v of one layer for all tokens of a step, and where the result goes. The rows of q, k
/// and v are stride floats apart; those of out are dense.
struct AttentionCall {
    std::size_t layer;
    const float* q;
    const float* k;
    const float* v;
    std::size_t stride;
    float* out;
};

/// Attends each token to the tokens before it in its sequence, and keeps k and v for those to come.
class Attention {
public:
    virtual ~Attention() = default;
    virtual void attend(const AttentionCall& call) = 0;
};

/// The tokens of a step, of all its sequences one after another.
struct StepTokens {
    std::vector<std::uint32_t> ids;
    /// Where each stands in its sequence.
    std::vector<std::size_t> positions;
    /// Indices of the tokens whose logits are wanted.
    std::vector<std::size_t> logit_rows;

    void clear() {
        ids.clear();
        positions.clear();
        logit_rows.clear();
    }
};

class Model {
public:
    /// Loads config.json and the weights of a folder. Positions from position_limit on are not
    /// computed; 0 takes the model's own limit. Throws std::runtime_error that says what is wrong.
    Model(const std::filesystem::path& folder, std::size_t position_limit, Gemm gemm,
          ThreadPool& pool);

    [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
    [[nodiscard]] std::size_t position_limit() const noexcept { return rope_.position_count(); }

    /// Computes a step. Returns [logit_rows][vocab_size], good until the next call. Ids and
    /// positions must be in range. Throws what `attention` throws.
    const float* forward(const StepTokens& tokens, Attention& attention);

private:
    /// Memory of a step, kept from one to the next.
    struct Scratch {
        std::vector<float> hidden, normed, qkv, attended, gate_up, inner, projected, picked,
            logits;
    };

    ModelConfig config_;
    Safetensors file_;
    Weights weights_;
    Rope rope_;
    ThreadPool& pool_;
    Scratch scratch_;

    void embed(const StepTokens& tokens);
    void attention_block(std::size_t layer, const StepTokens& tokens, Attention& attention);
    void turn_heads(const LayerWeights& layer, const StepTokens& tokens);
    void mlp_block(const LayerWeights& layer, std::size_t rows);
    void compute_logits(const StepTokens& tokens);
};

}  // namespace engine

#endif  // ENGINE_MODEL_MODEL_HPP
