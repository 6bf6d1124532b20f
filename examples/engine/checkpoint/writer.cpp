#include "checkpoint/writer.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

/// Numbers near the normal distribution, the same on every machine: sums of integers, where
/// logarithms and cosines might differ in the last bit.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    /// Mean 0, variance 1.
    float normal() {
        std::int64_t sum = 0;
        for (int i = 0; i < 3; ++i) {
            const std::uint64_t bits = next();
            for (int part = 0; part < 4; ++part)
                sum += static_cast<std::int64_t>(bits >> (16 * part) & 0xffff);
        }
        // Twelve uniform numbers have the variance 12 / 12.
        return static_cast<float>(static_cast<double>(sum) / 65536.0 - 6.0);
    }

private:
    std::uint64_t state_;

    std::uint64_t next() {  // SplitMix64
        std::uint64_t x = state_ += 0x9e3779b97f4a7c15U;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        return x ^ (x >> 31);
    }
};

/// Mean and spread of a row's numbers.
struct Spread {
    float mean, deviation;
};

struct Tensor {
    std::string name;
    std::vector<std::size_t> shape;
    std::function<Spread(std::size_t row)> spread;
};

bool is_printable(std::size_t id) { return id >= ' ' && id <= '~'; }

class Tensors {
public:
    explicit Tensors(const CheckpointSpec& spec) : spec_(spec), model_(spec.model) {
        const std::size_t hidden = model_.hidden_size;
        matrix("model.embed_tokens.weight", model_.vocab_size, hidden, embedding_spread());
        for (std::size_t i = 0; i < model_.layer_count; ++i) layer(i);
        norm("model.norm.weight", hidden);
        if (!model_.tie_word_embeddings)
            matrix("lm_head.weight", model_.vocab_size, hidden, head_spread());
    }
    [[nodiscard]] const std::vector<Tensor>& list() const { return list_; }

private:
    const CheckpointSpec& spec_;
    const ModelConfig& model_;
    std::vector<Tensor> list_;

    void matrix(const std::string& name, std::size_t rows, std::size_t columns,
                std::function<Spread(std::size_t)> spread) {
        list_.push_back({name, {rows, columns}, std::move(spread)});
    }
    void linear(const std::string& name, std::size_t rows, std::size_t columns, float gain) {
        const float deviation = gain / std::sqrt(static_cast<float>(columns));
        matrix(name + ".weight", rows, columns, [=](std::size_t) { return Spread{0, deviation}; });
    }
    void norm(const std::string& name, std::size_t size) {
        list_.push_back({name, {size}, [](std::size_t) { return Spread{1, 0.1F}; }});
    }
    void bias(const std::string& name, std::size_t size) {
        list_.push_back({name + ".bias", {size}, [](std::size_t) { return Spread{0, 0.2F}; }});
    }
    [[nodiscard]] std::function<Spread(std::size_t)> embedding_spread() const {
        if (model_.tie_word_embeddings) return head_spread();
        return [](std::size_t) { return Spread{0, 1}; };
    }
    /// Printable characters are likely, so that one can read what comes out; an end of text is not,
    /// so that it comes when max_tokens says.
    [[nodiscard]] std::function<Spread(std::size_t)> head_spread() const {
        const float wide = 3 / std::sqrt(static_cast<float>(model_.hidden_size));
        return [wide](std::size_t id) {
            return Spread{0, is_printable(id) ? wide : wide / 10};
        };
    }
    void layer(std::size_t index) {
        const std::string prefix = "model.layers." + std::to_string(index) + ".";
        const std::string attention = prefix + "self_attn.";
        const std::size_t hidden = model_.hidden_size, inner = model_.intermediate_size;
        // With gains of one, attention would be an even mean of everything before: the same for all
        // prompts. Queries and keys that are larger look at a few tokens, and the output depends on
        // which.
        linear(attention + "q_proj", model_.query_width(), hidden, 2);
        linear(attention + "k_proj", model_.kv_width(), hidden, 2);
        linear(attention + "v_proj", model_.kv_width(), hidden, 1);
        linear(attention + "o_proj", hidden, model_.query_width(), 2);
        linear(prefix + "mlp.gate_proj", inner, hidden, 1);
        linear(prefix + "mlp.up_proj", inner, hidden, 1);
        linear(prefix + "mlp.down_proj", hidden, inner, 2);
        norm(prefix + "input_layernorm.weight", hidden);
        norm(prefix + "post_attention_layernorm.weight", hidden);
        if (spec_.qk_norm) {
            norm(attention + "q_norm.weight", model_.head_dim);
            norm(attention + "k_norm.weight", model_.head_dim);
        }
        if (spec_.attention_bias) {
            bias(attention + "q_proj", model_.query_width());
            bias(attention + "k_proj", model_.kv_width());
            bias(attention + "v_proj", model_.kv_width());
        }
    }
};

const char* dtype_name(Dtype dtype) {
    return dtype == Dtype::f32 ? "F32" : dtype == Dtype::f16 ? "F16" : "BF16";
}

/// Round to nearest; the numbers here are small and finite.
std::uint16_t to_bfloat(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

std::uint16_t to_half(float value) {
    // Scaled by 2^-112, a float's bits are a half's, 13 places further left; below the smallest
    // normal half too, where both become coarse.
    float scaled = std::fabs(value) * 0x1p-112F;
    std::uint32_t bits;
    std::memcpy(&bits, &scaled, sizeof bits);
    bits = (bits + 0xfffU + (bits >> 13 & 1U)) >> 13;
    return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000U : 0U));
}

void append(std::string& bytes, float value, Dtype dtype) {
    char raw[4];
    if (dtype == Dtype::f32) {
        std::memcpy(raw, &value, 4);
        bytes.append(raw, 4);
        return;
    }
    const std::uint16_t half = dtype == Dtype::f16 ? to_half(value) : to_bfloat(value);
    std::memcpy(raw, &half, 2);
    bytes.append(raw, 2);
}

std::size_t count_of(const Tensor& tensor) {
    std::size_t count = 1;
    for (const std::size_t size : tensor.shape) count *= size;
    return count;
}

std::string header(const std::vector<Tensor>& tensors, Dtype dtype) {
    Json json;
    json["__metadata__"] = {{"format", "pt"}};
    std::size_t offset = 0;
    for (const Tensor& tensor : tensors) {
        const std::size_t end = offset + count_of(tensor) * dtype_bytes(dtype);
        json[tensor.name] = {{"dtype", dtype_name(dtype)},
                             {"shape", tensor.shape},
                             {"data_offsets", {offset, end}}};
        offset = end;
    }
    std::string text = json.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
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
                 {"hidden_act", "silu"},
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
    return json;
}

std::ofstream open_for_writing(const std::filesystem::path& path) {
    std::ofstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path.string() + ": cannot be written");
    return file;
}

void write_weights(const CheckpointSpec& spec, std::ofstream file) {
    const Tensors tensors(spec);
    const std::string text = header(tensors.list(), spec.dtype);
    for (std::size_t i = 0; i < 8; ++i)
        file.put(static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xff));
    file << text;
    Random random(spec.seed);
    for (const Tensor& tensor : tensors.list()) {
        const std::size_t rows = tensor.shape.size() > 1 ? tensor.shape[0] : 1;
        std::string bytes;
        for (std::size_t row = 0; row < rows; ++row) {
            const Spread spread = tensor.spread(row);
            for (std::size_t i = 0; i < count_of(tensor) / rows; ++i)
                append(bytes, spread.mean + spread.deviation * random.normal(), spec.dtype);
        }
        file << bytes;
    }
    file.close();
    if (!file) throw std::runtime_error("model.safetensors: could not be written whole");
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
    return spec;
}

void write_checkpoint(const CheckpointSpec& spec, const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    write_weights(spec, open_for_writing(folder / "model.safetensors"));
    std::ofstream config = open_for_writing(folder / "config.json");
    config << config_json(spec).dump(2) << '\n';
    config.close();
    if (!config) throw std::runtime_error("config.json: could not be written whole");
}

}  // namespace engine
