#include "model/config.hpp"

#include "model/json.hpp"

#include <fstream>
#include <limits>
#include <stdexcept>

namespace engine {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error(what); }

/// The field, or NULL when it is missing or null.
const Json* find(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::size_t to_count(const Json& value, const std::string& name) {
    // Far above any model, and far below where sizes computed from it overflow.
    constexpr std::uint64_t most = std::uint64_t{1} << 31;
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
        value.get<std::uint64_t>() > most)
        refuse(name + " is not a positive number");
    return value.get<std::size_t>();
}

std::size_t count(const Json& config, const char* name) {
    const Json* value = find(config, name);
    if (value == nullptr) refuse(std::string(name) + " is missing");
    return to_count(*value, name);
}

std::size_t count_or(const Json& config, const char* name, std::size_t otherwise) {
    const Json* value = find(config, name);
    return value != nullptr ? to_count(*value, name) : otherwise;
}

/// Up to `most`; from 1e-30, so that it is a positive float too.
double real_or(const Json& config, const char* name, double otherwise, double most) {
    const Json* value = find(config, name);
    if (value == nullptr) return otherwise;
    constexpr double least = 1e-30;
    const double given = value->is_number() ? value->get<double>() : 0;
    if (!(given >= least && given <= most))
        refuse(std::string(name) + " is not a positive number up to " + Json(most).dump());
    return given;
}

bool flag_or(const Json& config, const char* name, bool otherwise) {
    const Json* value = find(config, name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(std::string(name) + " is neither true nor false");
    return value->get<bool>();
}

std::uint32_t token_id(const Json& value, const char* name, std::size_t vocab_size) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= vocab_size)
        refuse(std::string(name) + " is not a token id");
    return value.get<std::uint32_t>();
}

void refuse_partial_rope(const Json& json) {
    if (real_or(json, "partial_rotary_factor", 1, 1) != 1)
        refuse("partial_rotary_factor: heads are turned as a whole");
}

/// The rotary embedding: in "rope_theta" and "rope_scaling", or as newer files have it, together in
/// "rope_parameters".
void read_rope(const Json& json, ModelConfig& config) {
    const Json* parameters = find(json, "rope_parameters");
    const Json* scaling = parameters != nullptr ? parameters : find(json, "rope_scaling");
    // Far above any model's.
    constexpr double most = 1e15;
    config.rope_theta = real_or(json, "rope_theta", 10000, most);
    refuse_partial_rope(json);
    if (scaling == nullptr) return;
    if (!scaling->is_object()) refuse("rope_scaling is not an object");
    refuse_partial_rope(*scaling);
    config.rope_theta = real_or(*scaling, "rope_theta", config.rope_theta, most);
    const Json* type = find(*scaling, "rope_type");
    if (type == nullptr) type = find(*scaling, "type");
    if (type == nullptr || *type == "default") return;
    if (*type != "llama3")
        refuse("rope_scaling: type " + type->dump() + " is not among default and llama3");
    Llama3Rope rope;
    rope.factor = real_or(*scaling, "factor", 0, most);
    rope.low_freq_factor = real_or(*scaling, "low_freq_factor", 1, most);
    rope.high_freq_factor = real_or(*scaling, "high_freq_factor", 4, most);
    rope.original_max_position_embeddings =
        real_or(*scaling, "original_max_position_embeddings", 8192, most);
    if (!(rope.factor > 0)) refuse("rope_scaling: factor is missing");
    if (!(rope.high_freq_factor > rope.low_freq_factor))
        refuse("rope_scaling: high_freq_factor is not above low_freq_factor");
    config.rope_scaling = rope;
}

void read_special_tokens(const Json& json, ModelConfig& config) {
    if (const Json* bos = find(json, "bos_token_id"))
        config.bos_token_id = token_id(*bos, "bos_token_id", config.vocab_size);
    const Json* eos = find(json, "eos_token_id");
    if (eos == nullptr) return;
    if (!eos->is_array()) {
        config.eos_token_ids = {token_id(*eos, "eos_token_id", config.vocab_size)};
        return;
    }
    for (const Json& id : *eos)
        config.eos_token_ids.push_back(token_id(id, "eos_token_id", config.vocab_size));
}

/// Architectures whose layers are those of cpu_model.cpp. Others that have the same fields compute
/// something else with them.
void check_type(const Json& json, ModelConfig& config) {
    const Json* type = find(json, "model_type");
    if (type == nullptr) return;
    for (const char* known : {"llama", "mistral", "qwen2", "qwen3"})
        if (*type == known) config.model_type = known;
    if (config.model_type.empty())
        refuse("model_type: " + type->dump() +
               " is not among \"llama\", \"mistral\", \"qwen2\" and \"qwen3\"");
}

/// What the layers here cannot do.
void refuse_unsupported(const Json& json) {
    const Json* activation = find(json, "hidden_act");
    if (activation != nullptr && *activation != "silu")
        refuse("hidden_act: only silu is computed, not " + activation->dump());
    const bool window = find(json, "sliding_window") != nullptr;
    if (window && flag_or(json, "use_sliding_window", true))
        refuse("sliding_window: every layer of this engine sees everything");
    if (const Json* layers = find(json, "layer_types"))
        for (const Json& layer : *layers)
            if (layer != "full_attention")
                refuse("layer_types: only full_attention is computed, not " + layer.dump());
    if (find(json, "quantization_config") != nullptr)
        refuse("quantization_config: weights must be F32, F16 or BF16");
    for (const char* name : {"num_local_experts", "num_experts"})
        if (find(json, name) != nullptr)
            refuse(std::string(name) + ": a mixture of experts is not computed");
}

ModelConfig parse(const Json& json) {
    if (!json.is_object()) refuse("not an object");
    refuse_unsupported(json);
    ModelConfig config;
    check_type(json, config);
    config.vocab_size = count(json, "vocab_size");
    config.hidden_size = count(json, "hidden_size");
    config.intermediate_size = count(json, "intermediate_size");
    config.layer_count = count(json, "num_hidden_layers");
    config.query_head_count = count(json, "num_attention_heads");
    config.kv_head_count = count_or(json, "num_key_value_heads", config.query_head_count);
    config.head_dim = count_or(json, "head_dim", config.hidden_size / config.query_head_count);
    config.max_position_count = count_or(json, "max_position_embeddings", 2048);
    config.rms_norm_eps = static_cast<float>(real_or(json, "rms_norm_eps", 1e-6, 1));
    config.tie_word_embeddings = flag_or(json, "tie_word_embeddings", false);
    if (config.query_head_count % config.kv_head_count != 0)
        refuse("num_attention_heads is no multiple of num_key_value_heads");
    if (config.head_dim % 2 != 0) refuse("head_dim is odd");
    read_rope(json, config);
    read_special_tokens(json, config);
    return config;
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse(path.string() + ": cannot be opened");
    try {
        return parse(parse_json(file));
    } catch (const std::exception& error) {
        refuse(path.string() + ": " + error.what());
    }
}

}  // namespace engine
