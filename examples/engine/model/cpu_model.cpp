#include "model/cpu_model.hpp"

#include "compute/layers.hpp"

#include <algorithm>

namespace engine {

namespace {

/// Room for `size` numbers, that of an earlier and longer step if there is one.
float* room(std::vector<float>& buffer, std::size_t size) {
    if (buffer.size() < size) buffer.resize(size);
    return buffer.data();
}

}  // namespace

CpuModel::CpuModel(const std::filesystem::path& folder, std::size_t position_limit, Gemm gemm,
                   ThreadPool& pool)
    : Model(read_model_config(folder / "config.json"), position_limit),
      file_(folder),
      weights_(load_weights(config(), file_, gemm)),
      rope_(config(), Model::position_limit()),
      pool_(pool) {}

const float* CpuModel::forward(const StepTokens& tokens, Attention& attention) {
    embed(tokens);
    for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
        attention_block(layer, tokens, attention);
        mlp_block(weights_.layers[layer], tokens.ids.size());
    }
    compute_logits(tokens);
    return scratch_.logits.data();
}

void CpuModel::embed(const StepTokens& tokens) {
    const std::size_t width = config().hidden_size;
    float* hidden = room(scratch_.hidden, tokens.ids.size() * width);
    for (std::size_t row = 0; row < tokens.ids.size(); ++row)
        weights_.embedding.read(tokens.ids[row] * width, width, hidden + row * width);
}

/// hidden += out(attention(rope(qkv(norm(hidden)))))
void CpuModel::attention_block(std::size_t layer, const StepTokens& tokens, Attention& attention) {
    const LayerWeights& weights = weights_.layers[layer];
    const std::size_t rows = tokens.ids.size();
    const std::size_t width = config().hidden_size;
    const std::size_t stride = weights.qkv.outputs();
    float* normed = room(scratch_.normed, rows * width);
    float* qkv = room(scratch_.qkv, rows * stride);
    float* attended = room(scratch_.attended, rows * config().query_width());
    float* projected = room(scratch_.projected, rows * width);
    rms_norm(scratch_.hidden.data(), rows, weights.attention_norm, config().rms_norm_eps, normed,
             pool_);
    weights.qkv.apply(normed, rows, qkv, pool_);
    turn_heads(weights, tokens);
    const float* k = qkv + config().query_width();
    attention.attend({layer, qkv, k, k + config().kv_width(), stride, attended, nullptr});
    weights.attention_out.apply(attended, rows, projected, pool_);
    add(scratch_.hidden.data(), projected, rows * width, pool_);
}

/// Norms the heads of q and k where the model does, and turns them to their positions.
void CpuModel::turn_heads(const LayerWeights& layer, const StepTokens& tokens) {
    const std::size_t dim = config().head_dim;
    const std::size_t stride = layer.qkv.outputs();
    const std::size_t heads = config().query_head_count + config().kv_head_count;
    float* qkv = scratch_.qkv.data();
    const std::size_t grain = 8192 / (heads * dim) + 1;
    pool_.ranges(tokens.ids.size(), grain, [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row) {
            for (std::size_t head = 0; head < heads; ++head) {
                float* at = qkv + row * stride + head * dim;
                const auto& norm = head < config().query_head_count ? layer.q_norm : layer.k_norm;
                if (!norm.empty()) rms_norm_head(at, norm, config().rms_norm_eps);
                rope_.rotate(at, tokens.positions[row]);
            }
        }
    });
}

/// hidden += down(silu(gate(norm(hidden))) * up(norm(hidden)))
void CpuModel::mlp_block(const LayerWeights& layer, std::size_t rows) {
    const std::size_t width = config().hidden_size;
    const std::size_t inner = config().intermediate_size;
    float* gate_up = room(scratch_.gate_up, rows * 2 * inner);
    float* product = room(scratch_.inner, rows * inner);
    rms_norm(scratch_.hidden.data(), rows, layer.mlp_norm, config().rms_norm_eps,
             scratch_.normed.data(), pool_);
    layer.gate_up.apply(scratch_.normed.data(), rows, gate_up, pool_);
    silu_multiply(gate_up, rows, inner, product, pool_);
    layer.down.apply(product, rows, scratch_.projected.data(), pool_);
    add(scratch_.hidden.data(), scratch_.projected.data(), rows * width, pool_);
}

/// Only the rows that somebody asked for: the head is the largest matrix of a small model.
void CpuModel::compute_logits(const StepTokens& tokens) {
    const std::size_t width = config().hidden_size;
    const std::size_t rows = tokens.logit_rows.size();
    float* picked = room(scratch_.picked, rows * width);
    float* logits = room(scratch_.logits, rows * config().vocab_size);
    for (std::size_t i = 0; i < rows; ++i)
        std::copy_n(scratch_.hidden.data() + tokens.logit_rows[i] * width, width,
                    picked + i * width);
    rms_norm(picked, rows, weights_.norm, config().rms_norm_eps, scratch_.normed.data(), pool_);
    weights_.head.apply(scratch_.normed.data(), rows, logits, pool_);
}

}  // namespace engine
