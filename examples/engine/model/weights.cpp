#include "model/weights.hpp"

namespace engine {

std::vector<float> WeightReader::vector(const std::string& name, std::size_t size) const {
    return file_.get(name, {size}).read_all();
}

std::vector<float> WeightReader::vector_if_present(const std::string& name,
                                                   std::size_t size) const {
    return file_.has(name) ? vector(name, size) : std::vector<float>();
}

/// Matrices with the same inputs, stacked: their outputs lie one after the other. A bias that only
/// some have is zero for the others.
HostMatrix WeightReader::stacked(const std::vector<std::pair<std::string, std::size_t>>& parts,
                                 std::size_t inputs) const {
    HostMatrix all;
    all.inputs = inputs;
    bool has_bias = false;
    for (const auto& [name, size] : parts) {
        all.weight.resize(all.weight.size() + size * inputs);
        file_.get(name + ".weight", {size, inputs})
            .read(0, size * inputs, all.weight.data() + all.outputs * inputs);
        const std::vector<float> own = vector_if_present(name + ".bias", size);
        all.bias.insert(all.bias.end(), own.begin(), own.end());
        has_bias = has_bias || !own.empty();
        all.outputs += size;
        all.bias.resize(all.outputs, 0.0F);
    }
    if (!has_bias) all.bias.clear();
    return all;
}

const TensorView& WeightReader::embedding() const {
    return file_.get("model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size});
}

HostLayer WeightReader::layer(std::size_t index) const {
    const std::string prefix = "model.layers." + std::to_string(index) + ".";
    const std::string attention = prefix + "self_attn.";
    const std::size_t hidden = config_.hidden_size;
    const std::size_t inner = config_.intermediate_size;
    HostLayer layer;
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

std::vector<float> WeightReader::norm() const {
    return vector("model.norm.weight", config_.hidden_size);
}

HostMatrix WeightReader::head() const {
    const std::string name = config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
    return stacked({{name, config_.vocab_size}}, config_.hidden_size);
}

Weights load_weights(const ModelConfig& config, const Safetensors& file, Gemm gemm) {
    const WeightReader reader(config, file);
    const auto linear = [gemm](HostMatrix matrix) {
        return Linear(std::move(matrix.weight), matrix.outputs, matrix.inputs,
                      std::move(matrix.bias), gemm);
    };
    const auto norm = [](std::vector<float> vector) { return vector; };
    Weights weights;
    weights.embedding = reader.embedding();
    weights.layers.reserve(config.layer_count);
    for (std::size_t i = 0; i < config.layer_count; ++i)
        weights.layers.push_back(
            layer_as<Linear, std::vector<float>>(reader.layer(i), linear, norm));
    weights.norm = reader.norm();
    weights.head = linear(reader.head());
    return weights;
}

}  // namespace engine
