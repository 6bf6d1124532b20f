#include "checkpoint/config_file.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <vector>

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> layer_types(const ModelConfig& model) {
    std::vector<std::string> types;
    for (const LayerKind kind : model.layers)
        types.push_back(kind == LayerKind::full     ? "full_attention"
                        : kind == LayerKind::window ? "sliding_attention"
                                                    : "linear_attention");
    return types;
}

void add_gemma3(const ModelConfig& model, Json& json) {
    json["hidden_activation"] = "gelu_pytorch_tanh";
    json["query_pre_attn_scalar"] =
        std::lround(1 / (double{model.attention_scale} * model.attention_scale));
    json["rope_local_base_freq"] = model.window_rope_theta;
    json["sliding_window"] = model.window;
    json["layer_types"] = layer_types(model);
}

void add_qwen3_next(const ModelConfig& model, Json& json) {
    const DeltaNetConfig& delta = model.delta_net;
    json["partial_rotary_factor"] =
        static_cast<double>(model.rotary_dim) / static_cast<double>(model.head_dim);
    json["linear_num_key_heads"] = delta.key_head_count;
    json["linear_num_value_heads"] = delta.value_head_count;
    json["linear_key_head_dim"] = delta.key_head_dim;
    json["linear_value_head_dim"] = delta.value_head_dim;
    json["linear_conv_kernel_dim"] = delta.kernel_size;
    json["num_experts"] = 0;
    json["layer_types"] = layer_types(model);
}

void add_deepseek_v2(const ModelConfig& model, Json& json) {
    const LatentConfig& latent = model.latent;
    json["num_key_value_heads"] = model.query_head_count;
    json["head_dim"] = latent.rotary_dim;
    json["kv_lora_rank"] = latent.rank;
    json["q_lora_rank"] = nullptr;
    json["qk_nope_head_dim"] = latent.plain_dim;
    json["qk_rope_head_dim"] = latent.rotary_dim;
    json["v_head_dim"] = latent.value_dim;
    json["first_k_dense_replace"] = model.layer_count;
}

Json config_json(const CheckpointSpec& spec) {
    const ModelConfig& model = spec.model;
    Json json = {{"model_type", model.model_type},
                 {"vocab_size", model.vocab_size},
                 {"hidden_size", model.hidden_size},
                 {"intermediate_size", model.intermediate_size},
                 {"num_hidden_layers", model.layer_count},
                 {"num_attention_heads", model.query_head_count},
                 {"num_key_value_heads", model.kv_head_count},
                 {"head_dim", model.head_dim},
                 {"max_position_embeddings", model.max_position_count},
                 {"rms_norm_eps", model.rms_norm_eps},
                 {"rope_theta", model.rope_theta},
                 {"attention_bias", spec.attention_bias},
                 {"tie_word_embeddings", model.tie_word_embeddings}};
    if (model.bos_token_id) json["bos_token_id"] = *model.bos_token_id;
    if (!model.eos_token_ids.empty()) json["eos_token_id"] = model.eos_token_ids;
    if (model.rope_scaling) {
        const Llama3Rope& rope = *model.rope_scaling;
        json["rope_scaling"] = {
            {"rope_type", "llama3"},
            {"factor", rope.factor},
            {"low_freq_factor", rope.low_freq_factor},
            {"high_freq_factor", rope.high_freq_factor},
            {"original_max_position_embeddings", rope.original_max_position_embeddings}};
    }
    if (model.norms_outputs)
        add_gemma3(model, json);
    else
        json["hidden_act"] = "silu";
    if (model.gates_attention) add_qwen3_next(model, json);
    if (model.is_latent()) add_deepseek_v2(model, json);
    return json;
}

}  // namespace

std::string config_text(const CheckpointSpec& spec) { return config_json(spec).dump(2) + '\n'; }

}  // namespace engine
