// What a model is, from the config.json that lies beside its weights.
#ifndef ENGINE_MODEL_CONFIG_HPP
#define ENGINE_MODEL_CONFIG_HPP

#include <algorithm>
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

/// How a layer mixes the tokens of a text.
enum class LayerKind : std::uint8_t {
    /// Attention to all positions before.
    full,
    /// Attention to the last ModelConfig::window positions, the token's own among them.
    window,
    /// A gated delta net: what it knows of the tokens before is a state of fixed size.
    delta_net,
};

enum class Activation : std::uint8_t { silu, gelu_tanh };

/// The shapes of gated delta nets. Each key head serves as many consecutive value heads.
struct DeltaNetConfig {
    std::size_t key_head_count = 0;
    std::size_t value_head_count = 0;
    std::size_t key_head_dim = 0;
    std::size_t value_head_dim = 0;
    /// Positions that the convolution before it sees, the token's own among them.
    std::size_t kernel_size = 0;

    [[nodiscard]] std::size_t key_width() const { return key_head_count * key_head_dim; }
    [[nodiscard]] std::size_t value_width() const { return value_head_count * value_head_dim; }
    /// Of q, k and v, which the convolution passes over.
    [[nodiscard]] std::size_t conv_width() const { return 2 * key_width() + value_width(); }
    [[nodiscard]] std::size_t values_per_key() const { return value_head_count / key_head_count; }
    /// All that is computed of a token's hidden numbers: see Layer::qkv.
    [[nodiscard]] std::size_t projected_width() const {
        return conv_width() + value_width() + 2 * value_head_count;
    }
    /// Numbers of a sequence's state: the last inputs of the convolution, [kernel_size - 1]
    /// [conv_width], and behind them [value_head_count][key_head_dim][value_head_dim].
    [[nodiscard]] std::size_t window_size() const { return (kernel_size - 1) * conv_width(); }
    [[nodiscard]] std::size_t state_size() const {
        return window_size() + value_head_count * key_head_dim * value_head_dim;
    }
};

/// Multi-head latent attention: heads of K and V are products of a short vector, which alone is
/// kept, and behind it numbers that are turned and that all heads of K share.
struct LatentConfig {
    /// Of that vector; 0: K and V are kept as they are.
    std::size_t rank = 0;
    /// Numbers of a head of q and k that are not turned, those that are, and those of v.
    std::size_t plain_dim = 0;
    std::size_t rotary_dim = 0;
    std::size_t value_dim = 0;
};

struct ModelConfig {
    std::string model_type;
    std::size_t vocab_size = 0;
    std::size_t hidden_size = 0;
    std::size_t intermediate_size = 0;
    std::size_t layer_count = 0;
    std::size_t query_head_count = 0;
    std::size_t kv_head_count = 0;
    /// As attention sees it: with latent K and V these are one head of rank + rotary_dim numbers,
    /// and heads of q are brought to that length.
    std::size_t head_dim = 0;
    LatentConfig latent;
    std::size_t max_position_count = 0;
    float rms_norm_eps = 0;
    double rope_theta = 10000;
    std::optional<Llama3Rope> rope_scaling;
    /// All positions are divided by it.
    double rope_divisor = 1;
    /// The first numbers of each head are turned, the last ones where K is latent; 0: all of them.
    std::size_t rotary_dim = 0;
    /// Of layers that attend to a window, which have no scaling.
    double window_rope_theta = 10000;
    /// One for each layer.
    std::vector<LayerKind> layers;
    /// Of layers that attend to one.
    std::size_t window = 0;
    /// Of layers that are one.
    DeltaNetConfig delta_net;
    Activation activation = Activation::silu;
    /// What scores are multiplied by; 0: 1 / sqrt(head_dim).
    float attention_scale = 0;
    float embedding_scale = 1;
    /// The weights of norms are stored less one.
    bool norms_add_one = false;
    /// What attention and the feed-forward part put out is normed, too.
    bool norms_outputs = false;
    /// What attention puts out is weighted by a gate, which q_proj computes beside each head of q.
    bool gates_attention = false;
    bool tie_word_embeddings = false;
    std::optional<std::uint32_t> bos_token_id;
    /// Any of them ends a text.
    std::vector<std::uint32_t> eos_token_ids;

    [[nodiscard]] std::size_t query_width() const { return query_head_count * head_dim; }
    [[nodiscard]] std::size_t kv_width() const { return kv_head_count * head_dim; }
    [[nodiscard]] bool is_latent() const { return latent.rank > 0; }
    /// Of what attention puts out.
    [[nodiscard]] std::size_t attended_width() const {
        return query_head_count * (is_latent() ? latent.rank : head_dim);
    }
    /// Whether its layers are Llama's: all that is computed on a GPU.
    [[nodiscard]] bool is_llama_like() const {
        return !norms_outputs && !gates_attention && !is_latent() &&
               activation == Activation::silu &&
               std::all_of(layers.begin(), layers.end(),
                           [](LayerKind kind) { return kind == LayerKind::full; });
    }
};

/// Reads a config.json; what ends a text from the generation_config.json beside it, where that says
/// so. Throws std::runtime_error that names the field which is missing, has another type than it
/// should, or asks for something that this engine does not compute.
[[nodiscard]] ModelConfig read_model_config(const std::filesystem::path& path);

}  // namespace engine

#endif  // ENGINE_MODEL_CONFIG_HPP
