// What a model is, from the config.json that lies beside its weights.
#ifndef ENGINE_MODEL_CONFIG_HPP
#define ENGINE_MODEL_CONFIG_HPP

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace engine {

/// How Llama 3.1 stretches the long waves of its rotary embedding.
struct Llama3Rope {
    double factor = 1;
    double low_freq_factor = 1;
    double high_freq_factor = 4;
    double original_max_position_embeddings = 8192;
};

struct ModelConfig {
    std::string model_type;
    std::size_t vocab_size = 0;
    std::size_t hidden_size = 0;
    std::size_t intermediate_size = 0;
    std::size_t layer_count = 0;
    std::size_t query_head_count = 0;
    std::size_t kv_head_count = 0;
    std::size_t head_dim = 0;
    std::size_t max_position_count = 0;
    float rms_norm_eps = 0;
    double rope_theta = 10000;
    std::optional<Llama3Rope> rope_scaling;
    bool tie_word_embeddings = false;
    std::optional<std::uint32_t> bos_token_id;
    /// Any of them ends a text.
    std::vector<std::uint32_t> eos_token_ids;

    [[nodiscard]] std::size_t query_width() const { return query_head_count * head_dim; }
    [[nodiscard]] std::size_t kv_width() const { return kv_head_count * head_dim; }
};

/// Reads a config.json. Throws std::runtime_error that names the field which is missing, has
/// another type than it should, or asks for something that this engine does not compute.
[[nodiscard]] ModelConfig read_model_config(const std::filesystem::path& path);

}  // namespace engine

#endif  // ENGINE_MODEL_CONFIG_HPP
