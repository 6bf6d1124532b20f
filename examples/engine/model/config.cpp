#include "model/config.hpp"

#include "model/architectures.hpp"
#include "model/fields.hpp"

#include <array>
#include <fstream>

namespace engine {

namespace {

using Json = nlohmann::json;

struct Architecture {
    const char* model_type;
    void (*read)(const Fields& fields, ModelConfig& config);
    /// Where the file does not say; 0: what hidden_size leaves for each.
    std::size_t head_dim;
    bool tie_word_embeddings;
};

/// Others that have the same fields compute something else with them.
constexpr std::array architectures = {
    Architecture{"llama", read_llama, 0, false},
    Architecture{"mistral", read_llama, 0, false},
    Architecture{"qwen2", read_llama, 0, false},
    Architecture{"qwen3", read_llama, 0, false},
    Architecture{"gemma3_text", read_gemma3, 256, true},
    Architecture{"qwen3_next", read_qwen3_next, 256, false},
    Architecture{"deepseek_v2", read_deepseek_v2, 0, false},
};

/// A file that names none is Llama's.
const Architecture& architecture_of(const Fields& fields) {
    const Json* type = fields.find("model_type");
    if (type == nullptr) return architectures.front();
    std::string known;
    for (const Architecture& architecture : architectures) {
        if (*type == architecture.model_type) return architecture;
        known += std::string(known.empty() ? "" : ", ") + architecture.model_type;
    }
    refuse_config("model_type: " + type->dump() + " is not among " + known);
}

std::uint32_t token_id(const Json& value, const char* name, std::size_t vocab_size) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= vocab_size)
        refuse_config(std::string(name) + " is not a token id");
    return value.get<std::uint32_t>();
}

void read_end_tokens(const Fields& fields, ModelConfig& config) {
    const Json* eos = fields.find("eos_token_id");
    if (eos == nullptr) return;
    config.eos_token_ids.clear();
    if (!eos->is_array()) {
        config.eos_token_ids = {token_id(*eos, "eos_token_id", config.vocab_size)};
        return;
    }
    for (const Json& id : *eos)
        config.eos_token_ids.push_back(token_id(id, "eos_token_id", config.vocab_size));
}

void read_special_tokens(const Fields& fields, ModelConfig& config) {
    if (const Json* bos = fields.find("bos_token_id"))
        config.bos_token_id = token_id(*bos, "bos_token_id", config.vocab_size);
    read_end_tokens(fields, config);
}

/// What all architectures have in common.
void read_sizes(const Fields& fields, const Architecture& architecture, ModelConfig& config) {
    config.vocab_size = fields.count("vocab_size");
    config.hidden_size = fields.count("hidden_size");
    config.intermediate_size = fields.count("intermediate_size");
    config.layer_count = fields.count("num_hidden_layers");
    config.query_head_count = fields.count("num_attention_heads");
    config.kv_head_count = fields.count_or("num_key_value_heads", config.query_head_count);
    config.head_dim = fields.count_or("head_dim", architecture.head_dim > 0
                                                      ? architecture.head_dim
                                                      : config.hidden_size /
                                                            config.query_head_count);
    config.max_position_count = fields.count_or("max_position_embeddings", 2048);
    config.rms_norm_eps = static_cast<float>(fields.real_or("rms_norm_eps", 1e-6, 1));
    config.tie_word_embeddings =
        fields.flag_or("tie_word_embeddings", architecture.tie_word_embeddings);
    if (config.query_head_count % config.kv_head_count != 0)
        refuse_config("num_attention_heads is no multiple of num_key_value_heads");
    if (config.head_dim % 2 != 0) refuse_config("head_dim is odd");
}

ModelConfig parse(const Json& json) {
    const Fields fields(json);
    if (fields.find("quantization_config") != nullptr)
        refuse_config("quantization_config: weights must be F32, F16 or BF16");
    const Architecture& architecture = architecture_of(fields);
    ModelConfig config;
    if (fields.find("model_type") != nullptr) config.model_type = architecture.model_type;
    read_sizes(fields, architecture, config);
    architecture.read(fields, config);
    read_special_tokens(fields, config);
    return config;
}

/// Hands the JSON of a file to `read`; false when there is no file.
template <class Read> bool read_file(const std::filesystem::path& path, Read read) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return false;
    try {
        read(parse_json(file));
    } catch (const std::exception& error) {
        refuse_config(path.string() + ": " + error.what());
    }
    return true;
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& path) {
    ModelConfig config;
    if (!read_file(path, [&](const Json& json) { config = parse(json); }))
        refuse_config(path.string() + ": cannot be opened");
    // What Hugging Face's libraries generate by: of a chat model the end of a message may be there
    // alone.
    read_file(path.parent_path() / "generation_config.json",
              [&](const Json& json) { read_end_tokens(Fields(json), config); });
    return config;
}

}  // namespace engine
