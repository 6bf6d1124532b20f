#include "checkpoint/writer.hpp"

#include <cmath>

namespace engine {

namespace {

/// Each `interval`-th layer attends to everything.
std::vector<LayerKind> kinds(std::size_t count, LayerKind other, std::size_t interval) {
    std::vector<LayerKind> made;
    for (std::size_t i = 1; i <= count; ++i)
        made.push_back(i % interval == 0 || i == count ? LayerKind::full : other);
    return made;
}

}  // namespace

CheckpointSpec llama_checkpoint(std::size_t layers, std::size_t hidden, std::size_t inner,
                                std::size_t query_heads, std::size_t kv_heads,
                                std::size_t head_dim) {
    CheckpointSpec spec;
    spec.model.model_type = "llama";
    spec.model.vocab_size = byte_vocab_size;
    spec.model.hidden_size = hidden;
    spec.model.intermediate_size = inner;
    spec.model.layer_count = layers;
    spec.model.query_head_count = query_heads;
    spec.model.kv_head_count = kv_heads;
    spec.model.head_dim = head_dim;
    spec.model.max_position_count = 4096;
    spec.model.rms_norm_eps = 1e-5F;
    spec.model.bos_token_id = bos_id;
    spec.model.eos_token_ids = {eos_id};
    spec.model.layers.assign(layers, LayerKind::full);
    return spec;
}

CheckpointSpec gemma3_checkpoint(const CheckpointSpec& shape, std::size_t window) {
    CheckpointSpec spec = shape;
    ModelConfig& model = spec.model;
    model.model_type = "gemma3_text";
    model.layers = kinds(model.layer_count, LayerKind::window, 6);
    model.window = window;
    model.activation = Activation::gelu_tanh;
    // Twice what is usual, so that attention picks some tokens though q and k are normed.
    model.attention_scale = 2 / std::sqrt(static_cast<float>(model.head_dim));
    model.embedding_scale = std::sqrt(static_cast<float>(model.hidden_size));
    model.rope_theta = 1e6;
    model.norms_add_one = model.norms_outputs = spec.qk_norm = true;
    return spec;
}

CheckpointSpec qwen3_next_checkpoint(const CheckpointSpec& shape) {
    CheckpointSpec spec = shape;
    ModelConfig& model = spec.model;
    model.model_type = "qwen3_next";
    model.layers = kinds(model.layer_count, LayerKind::delta_net, 4);
    model.delta_net = {model.kv_head_count, model.query_head_count, 32, 32, 4};
    model.rotary_dim = model.head_dim / 4;
    model.norms_add_one = model.gates_attention = spec.qk_norm = true;
    return spec;
}

CheckpointSpec deepseek_v2_checkpoint(const CheckpointSpec& shape, const LatentConfig& latent) {
    CheckpointSpec spec = shape;
    ModelConfig& model = spec.model;
    model.model_type = "deepseek_v2";
    model.latent = latent;
    model.kv_head_count = 1;
    model.head_dim = latent.rank + latent.rotary_dim;
    return spec;
}

}  // namespace engine
