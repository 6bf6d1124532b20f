#include "model/weights.hpp"

#include <string>
#include <utility>

namespace engine {

namespace {

class Loader {
public:
    Loader(const ModelConfig& config, const Safetensors& file, Gemm gemm)
        : config_(config), file_(file), gemm_(gemm) {}

    [[nodiscard]] std::vector<float> vector(const std::string& name, std::size_t size) const {
        return file_.get(name, {size}).read_all();
    }
    [[nodiscard]] std::vector<float> vector_if_present(const std::string& name,
                                                       std::size_t size) const {
        return file_.has(name) ? vector(name, size) : std::vector<float>();
    }
    /// Matrices with the same inputs, stacked: their outputs lie one after the other. A bias that
    /// only some have is zero for the others.
    [[nodiscard]] Linear stacked(
        const std::vector<std::pair<std::string, std::size_t>>& parts, std::size_t inputs) const {
        std::vector<float> weight, bias;
        std::size_t outputs = 0;
        bool has_bias = false;
        for (const auto& [name, size] : parts) {
            const std::vector<float> rows = file_.get(name + ".weight", {size, inputs}).read_all();
            weight.insert(weight.end(), rows.begin(), rows.end());
            const std::vector<float> own = vector_if_present(name + ".bias", size);
            bias.insert(bias.end(), own.begin(), own.end());
            has_bias = has_bias || !own.empty();
            outputs += size;
            bias.resize(outputs, 0.0F);
        }
        if (!has_bias) bias.clear();
        return Linear(std::move(weight), outputs, inputs, std::move(bias), gemm_);
    }
    [[nodiscard]] LayerWeights layer(std::size_t index) const {
        const std::string prefix = "model.layers." + std::to_string(index) + ".";
        const std::string attention = prefix + "self_attn.";
        const std::size_t hidden = config_.hidden_size;
        const std::size_t inner = config_.intermediate_size;
        LayerWeights layer;
        layer.attention_norm = vector(prefix + "input_layernorm.weight", hidden);
        layer.qkv = stacked({{attention + "q_proj", config_.query_width()},
                             {attention + "k_proj", config_.kv_width()},
                             {attention + "v_proj", config_.kv_width()}},
                            hidden);
        layer.q_norm = vector_if_present(attention + "q_norm.weight", config_.head_dim);
        layer.k_norm = vector_if_present(attention + "k_norm.weight", config_.head_dim);
        layer.attention_out = stacked({{attention + "o_proj", hidden}}, config_.query_width());
        layer.mlp_norm = vector(prefix + "post_attention_layernorm.weight", hidden);
        layer.gate_up =
            stacked({{prefix + "mlp.gate_proj", inner}, {prefix + "mlp.up_proj", inner}}, hidden);
        layer.down = stacked({{prefix + "mlp.down_proj", hidden}}, inner);
        return layer;
    }
    [[nodiscard]] Linear head() const {
        const std::string name =
            config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
        return stacked({{name, config_.vocab_size}}, config_.hidden_size);
    }

private:
    const ModelConfig& config_;
    const Safetensors& file_;
    Gemm gemm_;
};

}  // namespace

Weights load_weights(const ModelConfig& config, const Safetensors& file, Gemm gemm) {
    const Loader loader(config, file, gemm);
    Weights weights;
    weights.embedding =
        file.get("model.embed_tokens.weight", {config.vocab_size, config.hidden_size});
    weights.layers.reserve(config.layer_count);
    for (std::size_t i = 0; i < config.layer_count; ++i) weights.layers.push_back(loader.layer(i));
    weights.norm = loader.vector("model.norm.weight", config.hidden_size);
    weights.head = loader.head();
    return weights;
}

}  // namespace engine
