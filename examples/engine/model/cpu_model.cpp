#include "model/cpu_model.hpp"

#include "compute/layers.hpp"
#include "model/delta_net.hpp"

#include <algorithm>

namespace engine {

namespace {

/// Room for `size` numbers, that of an earlier and longer step if there is one.
float* room(std::vector<float>& buffer, std::size_t size) {
    if (buffer.size() < size) buffer.resize(size);
    return buffer.data();
}

bool has_windows(const ModelConfig& config) {
    return std::count(config.layers.begin(), config.layers.end(), LayerKind::window) > 0;
}

}  // namespace

CpuModel::CpuModel(const std::filesystem::path& folder, std::size_t position_limit, Gemm gemm,
                   ThreadPool& pool)
    : Model(read_model_config(folder / "config.json"), position_limit),
      file_(folder),
      weights_(load_weights(config(), file_, gemm)),
      rope_(config(), Model::position_limit()),
      window_rope_(config(), has_windows(config()) ? Model::position_limit() : 0,
                   LayerKind::window),
      pool_(pool) {}

const float* CpuModel::forward(const StepTokens& tokens, Attention& attention) {
    StepClock clock(times());
    embed(tokens);
    for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
        if (config().layers[layer] == LayerKind::delta_net)
            delta_net_block(layer, tokens, attention, clock);
        else
            attention_block(layer, tokens, attention, clock);
        mlp_block(weights_.layers[layer], tokens.ids.size(), clock);
    }
    compute_logits(tokens, clock);
    return scratch_.logits.data();
}

void CpuModel::embed(const StepTokens& tokens) {
    const std::size_t width = config().hidden_size;
    float* hidden = room(scratch_.hidden, tokens.ids.size() * width);
    for (std::size_t row = 0; row < tokens.ids.size(); ++row)
        weights_.embedding.read(tokens.ids[row] * width, width, hidden + row * width);
    if (config().embedding_scale != 1)
        for (std::size_t i = 0; i < tokens.ids.size() * width; ++i)
            hidden[i] *= config().embedding_scale;
}

/// hidden += out(attention(rope(qkv(norm(hidden)))))
void CpuModel::attention_block(std::size_t layer, const StepTokens& tokens, Attention& attention,
                               StepClock& clock) {
    const LayerWeights& weights = weights_.layers[layer];
    const std::size_t rows = tokens.ids.size();
    const std::size_t width = config().query_width();
    const std::size_t stride = weights.qkv.outputs();
    float* normed = room(scratch_.normed, rows * config().hidden_size);
    float* qkv = room(scratch_.qkv, rows * stride);
    float* attended = room(scratch_.attended, rows * config().attended_width());
    rms_norm(scratch_.hidden.data(), rows, weights.attention_norm, config().rms_norm_eps, normed,
             pool_);
    clock.charge(Work::rest);
    weights.qkv.apply(normed, rows, qkv, pool_);
    clock.charge(Work::products);
    turn_heads(layer, tokens);
    clock.charge(Work::rest);
    const float* k = qkv + width;
    const float* v = config().is_latent() ? nullptr : k + config().kv_width();
    attention.attend(
        {layer, qkv, k, v, stride, attended, config().attention_scale, nullptr});
    clock.charge(Work::attention);
    if (config().gates_attention)
        sigmoid_multiply(attended, v + config().kv_width(), stride, rows, width, pool_);
    project_out(weights, rows, clock);
}

/// hidden += out(delta_net(projections(norm(hidden))))
void CpuModel::delta_net_block(std::size_t layer, const StepTokens& tokens,
                               Attention& attention, StepClock& clock) {
    const LayerWeights& weights = weights_.layers[layer];
    const std::size_t rows = tokens.ids.size();
    float* normed = room(scratch_.normed, rows * config().hidden_size);
    float* projected = room(scratch_.qkv, rows * weights.qkv.outputs());
    float* attended = room(scratch_.attended, rows * config().delta_net.value_width());
    rms_norm(scratch_.hidden.data(), rows, weights.attention_norm, config().rms_norm_eps, normed,
             pool_);
    clock.charge(Work::rest);
    weights.qkv.apply(normed, rows, projected, pool_);
    clock.charge(Work::products);
    DeltaNet(config().delta_net, weights.delta_net, config().rms_norm_eps)
        .compute(projected, attention.states(layer), attended, pool_);
    clock.charge(Work::attention);
    project_out(weights, rows, clock);
}

/// hidden += out(attended)
void CpuModel::project_out(const LayerWeights& layer, std::size_t rows, StepClock& clock) {
    float* projected = room(scratch_.projected, rows * config().hidden_size);
    clock.charge(Work::rest);
    layer.attention_out.apply(scratch_.attended.data(), rows, projected, pool_);
    clock.charge(Work::products);
    add_projected(layer.attention_out_norm, rows);
}

/// hidden += projected, normed where the model does that.
void CpuModel::add_projected(const std::vector<float>& norm, std::size_t rows) {
    float* projected = scratch_.projected.data();
    if (!norm.empty())
        rms_norm(projected, rows, norm, config().rms_norm_eps, projected, pool_);
    add(scratch_.hidden.data(), projected, rows * config().hidden_size, pool_);
}

/// Norms the heads of q and k where the model does, and turns them to their positions. Latent keys
/// are normed without what is turned, which lies behind.
void CpuModel::turn_heads(std::size_t which, const StepTokens& tokens) {
    const LayerWeights& layer = weights_.layers[which];
    const Rope& rope = config().layers[which] == LayerKind::window ? window_rope_ : rope_;
    const std::size_t dim = config().head_dim, first_turned = config().latent.rank;
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
                rope.rotate(at + first_turned, tokens.positions[row]);
            }
        }
    });
}

/// hidden += down(activation(gate(norm(hidden))) * up(norm(hidden)))
void CpuModel::mlp_block(const LayerWeights& layer, std::size_t rows, StepClock& clock) {
    const std::size_t inner = config().intermediate_size;
    float* gate_up = room(scratch_.gate_up, rows * 2 * inner);
    float* product = room(scratch_.inner, rows * inner);
    rms_norm(scratch_.hidden.data(), rows, layer.mlp_norm, config().rms_norm_eps,
             scratch_.normed.data(), pool_);
    clock.charge(Work::rest);
    layer.gate_up.apply(scratch_.normed.data(), rows, gate_up, pool_);
    clock.charge(Work::products);
    const bool is_silu = config().activation == Activation::silu;
    (is_silu ? silu_multiply : gelu_multiply)(gate_up, rows, inner, product, pool_);
    clock.charge(Work::rest);
    layer.down.apply(product, rows, scratch_.projected.data(), pool_);
    clock.charge(Work::products);
    add_projected(layer.mlp_out_norm, rows);
}

/// Only the rows that somebody asked for: the head is the largest matrix of a small model.
void CpuModel::compute_logits(const StepTokens& tokens, StepClock& clock) {
    const std::size_t width = config().hidden_size;
    const std::size_t rows = tokens.logit_rows.size();
    float* picked = room(scratch_.picked, rows * width);
    float* logits = room(scratch_.logits, rows * config().vocab_size);
    for (std::size_t i = 0; i < rows; ++i)
        std::copy_n(scratch_.hidden.data() + tokens.logit_rows[i] * width, width,
                    picked + i * width);
    rms_norm(picked, rows, weights_.norm, config().rms_norm_eps, scratch_.normed.data(), pool_);
    clock.charge(Work::rest);
    weights_.head.apply(scratch_.normed.data(), rows, logits, pool_);
    clock.charge(Work::logits);
}

}  // namespace engine
