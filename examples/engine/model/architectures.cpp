#include "model/architectures.hpp"

#include <cmath>

namespace engine {

namespace {

using Json = nlohmann::json;

void require_activation(const Fields& fields, const char* name, const char* computed) {
    const Json* activation = fields.find(name);
    if (activation != nullptr && *activation != computed)
        refuse_config(std::string(name) + ": only " + computed + " is computed, not " +
                      activation->dump());
}

void refuse_field(const Fields& fields, const char* name, const char* why) {
    if (fields.find(name) != nullptr) refuse_config(std::string(name) + ": " + why);
}

void refuse_partial_rope(const Fields& fields) {
    if (fields.real_or("partial_rotary_factor", 1, 1) != 1)
        refuse_config("partial_rotary_factor: heads are turned as a whole");
}

/// Where the file has the rotary embedding: newer ones in "rope_parameters", base and all.
const Json* rope_object(const Fields& fields) {
    const Json* parameters = fields.find("rope_parameters");
    return parameters != nullptr ? parameters : fields.find("rope_scaling");
}

Llama3Rope read_llama3_rope(const Fields& rope) {
    Llama3Rope scaling;
    scaling.factor = rope.real_or("factor", 0, most_rope_theta);
    scaling.low_freq_factor = rope.real_or("low_freq_factor", 1, most_rope_theta);
    scaling.high_freq_factor = rope.real_or("high_freq_factor", 4, most_rope_theta);
    scaling.original_max_position_embeddings =
        rope.real_or("original_max_position_embeddings", 8192, most_rope_theta);
    if (!(scaling.factor > 0)) refuse_config("rope_scaling: factor is missing");
    if (!(scaling.high_freq_factor > scaling.low_freq_factor))
        refuse_config("rope_scaling: high_freq_factor is not above low_freq_factor");
    return scaling;
}

/// Rotary embeddings: one for full attention and one for windows, side by side in
/// "rope_parameters", or in fields of their own in older files.
void read_gemma3_rope(const Fields& fields, ModelConfig& config) {
    config.rope_theta = fields.real_or("rope_theta", 1e6, most_rope_theta);
    config.window_rope_theta = fields.real_or("rope_local_base_freq", 1e4, most_rope_theta);
    if (const Json* scaling = fields.find("rope_scaling"))
        read_rope_object(Fields(*scaling, "rope_scaling"), config);
    const Json* parameters = fields.find("rope_parameters");
    if (parameters == nullptr) return;
    const Fields kinds(*parameters, "rope_parameters");
    if (const Json* full = kinds.find("full_attention"))
        read_rope_object(Fields(*full, "rope_parameters: full_attention"), config);
    if (const Json* window = kinds.find("sliding_attention")) {
        ModelConfig of_window;
        of_window.rope_theta = config.window_rope_theta;
        read_rope_object(Fields(*window, "rope_parameters: sliding_attention"), of_window);
        if (of_window.rope_scaling || of_window.rope_divisor != 1)
            refuse_config("rope_parameters: sliding_attention: scaling is not computed there");
        config.window_rope_theta = of_window.rope_theta;
    }
}

/// Layers are dense here: those that the file makes so, by name or because there are no experts.
void require_dense(const Fields& fields, std::size_t layer_count) {
    const Json* experts = fields.find("num_experts");
    if (experts != nullptr && *experts == 0) return;
    const std::size_t step = fields.count_or("decoder_sparse_step", 1);
    std::vector<bool> dense(layer_count);
    if (const Json* layers = fields.find("mlp_only_layers"))
        for (const Json& layer : *layers)
            if (layer.is_number_unsigned() && layer.get<std::size_t>() < layer_count)
                dense[layer.get<std::size_t>()] = true;
    for (std::size_t i = 0; i < layer_count; ++i)
        if (!dense[i] && (i + 1) % step == 0)
            refuse_config("num_experts: a mixture of experts is not computed; layer " +
                          std::to_string(i) + " is one, for mlp_only_layers does not name it");
}

}  // namespace

void read_rope_object(const Fields& rope, ModelConfig& config) {
    config.rope_theta = rope.real_or("rope_theta", config.rope_theta, most_rope_theta);
    const Json* type = rope.find("rope_type");
    if (type == nullptr) type = rope.find("type");
    if (type == nullptr || *type == "default") return;
    if (*type == "llama3") {
        config.rope_scaling = read_llama3_rope(rope);
    } else if (*type == "linear") {
        config.rope_divisor = rope.real_or("factor", 0, most_rope_theta);
        if (!(config.rope_divisor > 0)) refuse_config("rope_scaling: factor is missing");
    } else {
        refuse_config("rope_scaling: type " + type->dump() +
                      " is not among default, linear and llama3");
    }
}

std::vector<LayerKind> read_layer_kinds(const Fields& fields, std::size_t layer_count,
                                        const std::string& other_name, LayerKind other,
                                        std::size_t interval) {
    std::vector<LayerKind> kinds;
    const Json* list = fields.find("layer_types");
    if (list == nullptr) {
        for (std::size_t i = 1; i <= layer_count; ++i)
            kinds.push_back(i % interval == 0 ? LayerKind::full : other);
    } else {
        for (const Json& layer : *list) {
            if (layer != "full_attention" && layer != other_name)
                refuse_config("layer_types: only full_attention" +
                              (other_name.empty() ? "" : " and " + other_name) +
                              " is computed, not " + layer.dump());
            kinds.push_back(layer == "full_attention" ? LayerKind::full : other);
        }
        if (kinds.size() != layer_count)
            refuse_config("layer_types: not as many as num_hidden_layers");
    }
    // The prefix cache keeps its tree along the pages of such layers.
    if (std::find(kinds.begin(), kinds.end(), LayerKind::full) == kinds.end())
        refuse_config("layer_types: at least one layer must be full_attention");
    return kinds;
}

void read_llama(const Fields& fields, ModelConfig& config) {
    require_activation(fields, "hidden_act", "silu");
    if (fields.find("sliding_window") != nullptr && fields.flag_or("use_sliding_window", true))
        refuse_config("sliding_window: every layer of this architecture sees everything here");
    for (const char* name : {"num_local_experts", "num_experts"})
        refuse_field(fields, name, "a mixture of experts is not computed");
    config.layers = read_layer_kinds(fields, config.layer_count, "", LayerKind::full, 1);
    config.rope_theta = fields.real_or("rope_theta", 10000, most_rope_theta);
    refuse_partial_rope(fields);
    if (const Json* rope = rope_object(fields)) {
        const Fields inner(*rope, "rope_scaling");
        refuse_partial_rope(inner);
        read_rope_object(inner, config);
    }
}

void read_gemma3(const Fields& fields, ModelConfig& config) {
    require_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
    for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"})
        refuse_field(fields, name, "is not computed");
    if (fields.flag_or("use_bidirectional_attention", false))
        refuse_config("use_bidirectional_attention: tokens see those before them alone");
    config.window = fields.count_or("sliding_window", 4096);
    config.layers =
        read_layer_kinds(fields, config.layer_count, "sliding_attention", LayerKind::window,
                         fields.count_or("sliding_window_pattern", 6));
    config.activation = Activation::gelu_tanh;
    config.attention_scale = static_cast<float>(
        1 / std::sqrt(fields.real_or("query_pre_attn_scalar", 256, 1e9)));
    config.embedding_scale = static_cast<float>(std::sqrt(config.hidden_size));
    config.norms_add_one = config.norms_outputs = true;
    read_gemma3_rope(fields, config);
}

void read_qwen3_next(const Fields& fields, ModelConfig& config) {
    require_activation(fields, "hidden_act", "silu");
    require_dense(fields, config.layer_count);
    config.layers =
        read_layer_kinds(fields, config.layer_count, "linear_attention", LayerKind::delta_net,
                         fields.count_or("full_attention_interval", 4));
    DeltaNetConfig& delta = config.delta_net;
    delta.key_head_count = fields.count_or("linear_num_key_heads", 16);
    delta.value_head_count = fields.count_or("linear_num_value_heads", 32);
    delta.key_head_dim = fields.count_or("linear_key_head_dim", 128);
    delta.value_head_dim = fields.count_or("linear_value_head_dim", 128);
    delta.kernel_size = fields.count_or("linear_conv_kernel_dim", 4);
    if (delta.value_head_count % delta.key_head_count != 0)
        refuse_config("linear_num_value_heads is no multiple of linear_num_key_heads");
    config.norms_add_one = config.gates_attention = true;
    config.rope_theta = fields.real_or("rope_theta", 10000, most_rope_theta);
    double turned = fields.real_or("partial_rotary_factor", 0.25, 1);
    if (const Json* rope = rope_object(fields)) {
        const Fields inner(*rope, "rope_parameters");
        turned = inner.real_or("partial_rotary_factor", turned, 1);
        read_rope_object(inner, config);
    }
    config.rotary_dim = static_cast<std::size_t>(static_cast<double>(config.head_dim) * turned);
    if (config.rotary_dim == 0 || config.rotary_dim % 2 != 0)
        refuse_config("partial_rotary_factor: " + std::to_string(config.rotary_dim) +
                      " numbers of a head, which is no positive even number");
}

void read_deepseek_v2(const Fields& fields, ModelConfig& config) {
    require_activation(fields, "hidden_act", "silu");
    refuse_field(fields, "q_lora_rank", "q is computed as one product");
    if (fields.flag_or("attention_bias", false))
        refuse_config("attention_bias: products of attention have none here");
    const Json* dense = fields.find("first_k_dense_replace");
    if (dense == nullptr || !dense->is_number_unsigned() ||
        dense->get<std::size_t>() < config.layer_count)
        refuse_config("first_k_dense_replace: a mixture of experts is not computed, and layers "
                      "from there on are some");
    config.layers = read_layer_kinds(fields, config.layer_count, "", LayerKind::full, 1);
    LatentConfig& latent = config.latent;
    latent.rank = fields.count_or("kv_lora_rank", 512);
    latent.plain_dim = fields.count_or("qk_nope_head_dim", 128);
    latent.rotary_dim = fields.count_or("qk_rope_head_dim", 64);
    latent.value_dim = fields.count_or("v_head_dim", 128);
    if (latent.rotary_dim % 2 != 0) refuse_config("qk_rope_head_dim is odd");
    config.kv_head_count = 1;
    config.head_dim = latent.rank + latent.rotary_dim;
    config.rotary_dim = latent.rotary_dim;
    config.attention_scale = static_cast<float>(
        1 / std::sqrt(static_cast<double>(latent.plain_dim + latent.rotary_dim)));
    config.rope_theta = fields.real_or("rope_theta", 10000, most_rope_theta);
    if (const Json* rope = rope_object(fields))
        read_rope_object(Fields(*rope, "rope_scaling"), config);
}

}  // namespace engine
