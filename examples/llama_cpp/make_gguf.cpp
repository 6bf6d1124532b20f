// Writes a GGUF file that llama.cpp loads: a small model with random weights, and a vocabulary of
// bytes. The same file every time.
//
//     make_gguf --out FILE [--architecture llama | mamba | cohere2]
#include "engine/options.hpp"

#include <ggml.h>
#include <gguf.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

/// What of the model can be chosen.
struct Shape {
    std::uint64_t layers = 4, width = 512, window = 64, seed = 1;
};

/// Uniform numbers that depend on nothing but the seed (SplitMix64).
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    /// Between -1 and 1.
    float next() {
        std::uint64_t bits = state_ += 0x9e3779b97f4a7c15U;
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
        bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
        bits ^= bits >> 31;
        return static_cast<float>(bits >> 40) / 8388608.0f - 1.0f;
    }

private:
    std::uint64_t state_;
};

/// A GGUF file under construction.
class File {
public:
    File(const std::string& architecture, std::uint64_t seed)
        : architecture_(architecture), random_(seed), gguf_(gguf_init_empty()) {
        gguf_set_val_str(gguf_.get(), "general.architecture", architecture.c_str());
        gguf_set_val_str(gguf_.get(), "general.name", "random weights");
    }

    void number(const std::string& key, std::uint64_t value) {
        gguf_set_val_u32(gguf_.get(), (architecture_ + "." + key).c_str(),
                         static_cast<std::uint32_t>(value));
    }
    void real(const std::string& key, float value) {
        gguf_set_val_f32(gguf_.get(), (architecture_ + "." + key).c_str(), value);
    }
    /// A tensor, its fastest dimension first, whose elements are value(index).
    void tensor(const std::string& name, const std::vector<std::int64_t>& dimensions,
                const std::function<float(std::int64_t)>& value);
    /// A matrix that keeps the variance of what it is multiplied with, times gain squared.
    void matrix(const std::string& name, std::uint64_t in, std::uint64_t out, float gain = 1) {
        const float most = gain * std::sqrt(3.0f / static_cast<float>(in));
        tensor(name, {static_cast<std::int64_t>(in), static_cast<std::int64_t>(out)},
               [&](std::int64_t) { return most * random_.next(); });
    }
    void constant(const std::string& name, std::uint64_t count, float value) {
        tensor(name, {static_cast<std::int64_t>(count)}, [&](std::int64_t) { return value; });
    }
    /// Three special tokens, the 256 bytes, and a space as SentencePiece writes it.
    std::uint64_t vocabulary();
    void write(const std::string& path) const {
        if (!gguf_write_to_file(gguf_.get(), path.c_str(), false))
            throw std::runtime_error(path + ": cannot be written");
    }

private:
    struct FreeGguf {
        void operator()(gguf_context* context) const noexcept { gguf_free(context); }
    };
    struct FreeGgml {
        void operator()(ggml_context* context) const noexcept { ggml_free(context); }
    };
    std::string architecture_;
    Random random_;
    std::unique_ptr<gguf_context, FreeGguf> gguf_;
    std::vector<std::unique_ptr<ggml_context, FreeGgml>> tensors_;  ///< of one tensor each
};

void File::tensor(const std::string& name, const std::vector<std::int64_t>& dimensions,
                  const std::function<float(std::int64_t)>& value) {
    std::size_t count = 1;
    for (const std::int64_t dimension : dimensions) count *= static_cast<std::size_t>(dimension);
    const std::size_t room = count * sizeof(float) + ggml_tensor_overhead() + GGML_MEM_ALIGN;
    tensors_.emplace_back(ggml_init({room, nullptr, false}));
    ggml_tensor* made = ggml_new_tensor(tensors_.back().get(), GGML_TYPE_F32,
                                        static_cast<int>(dimensions.size()), dimensions.data());
    float* data = ggml_get_data_f32(made);
    for (std::size_t i = 0; i < count; ++i) data[i] = value(static_cast<std::int64_t>(i));
    ggml_set_name(made, name.c_str());
    gguf_add_tensor(gguf_.get(), made);
}

std::uint64_t File::vocabulary() {
    // What llama.cpp calls the kinds of tokens.
    enum Kind : std::int32_t { normal = 1, unknown = 2, control = 3, byte = 6 };
    std::vector<std::string> texts{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> kinds{unknown, control, control};
    for (unsigned value = 0; value < 256; ++value) {
        char text[8];
        std::snprintf(text, sizeof text, "<0x%02X>", value);
        texts.emplace_back(text);
        kinds.push_back(byte);
    }
    texts.emplace_back("\u2581");
    kinds.push_back(normal);
    const std::vector<float> scores(texts.size(), 0.0f);
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());

    gguf_context* gguf = gguf_.get();
    gguf_set_val_str(gguf, "tokenizer.ggml.model", "llama");
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
    gguf_set_arr_data(gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(),
                      scores.size());
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds.data(),
                      kinds.size());
    gguf_set_val_u32(gguf, "tokenizer.ggml.unknown_token_id", 0);
    gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", 1);
    gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", 2);
    return texts.size();
}

/// What every model has. Without an output of its own, that is the embedding.
void frame(File& file, const Shape& shape, bool has_output = true) {
    file.number("context_length", 8192);
    file.number("embedding_length", shape.width);
    file.number("block_count", shape.layers);
    file.real("attention.layer_norm_rms_epsilon", 1e-5f);
    const std::uint64_t vocabulary_size = file.vocabulary();
    file.matrix("token_embd.weight", shape.width, vocabulary_size,
                std::sqrt(static_cast<float>(shape.width)));
    file.constant("output_norm.weight", shape.width, 1);
    if (has_output) file.matrix("output.weight", shape.width, vocabulary_size);
}

/// The architecture of Llama: attention with KV that grows with the prompt.
void llama(File& file, const Shape& shape) {
    const std::uint64_t head_width = 64, heads = shape.width / head_width;
    const std::uint64_t kv_heads = heads % 4 == 0 ? heads / 4 : heads;
    const std::uint64_t inner = 3 * shape.width, kv_width = kv_heads * head_width;
    frame(file, shape);
    file.number("feed_forward_length", inner);
    file.number("attention.head_count", heads);
    file.number("attention.head_count_kv", kv_heads);
    file.number("rope.dimension_count", head_width);
    for (std::uint64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = "blk." + std::to_string(i) + ".";
        file.constant(layer + "attn_norm.weight", shape.width, 1);
        // Larger than usual, so that attention picks out tokens as that of a trained model does: an
        // average over the whole prompt would hardly notice a wrong state.
        file.matrix(layer + "attn_q.weight", shape.width, shape.width, 1.7f);
        file.matrix(layer + "attn_k.weight", shape.width, kv_width, 1.7f);
        file.matrix(layer + "attn_v.weight", shape.width, kv_width);
        file.matrix(layer + "attn_output.weight", shape.width, shape.width);
        file.constant(layer + "ffn_norm.weight", shape.width, 1);
        file.matrix(layer + "ffn_gate.weight", shape.width, inner);
        file.matrix(layer + "ffn_up.weight", shape.width, inner);
        file.matrix(layer + "ffn_down.weight", inner, shape.width);
    }
}

/// The architecture of Command R7B: of four layers three see a window of the last positions, the
/// fourth all.
void cohere2(File& file, const Shape& shape) {
    const std::uint64_t head_width = 64, heads = shape.width / head_width;
    const std::uint64_t inner = 3 * shape.width;
    frame(file, shape, false);
    file.number("feed_forward_length", inner);
    file.number("attention.head_count", heads);
    file.number("attention.head_count_kv", heads);
    file.number("attention.sliding_window", shape.window);
    file.number("rope.dimension_count", head_width);
    file.real("attention.layer_norm_epsilon", 1e-5f);
    file.real("logit_scale", 1.0f / 16);
    for (std::uint64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = "blk." + std::to_string(i) + ".";
        file.constant(layer + "attn_norm.weight", shape.width, 1);
        file.matrix(layer + "attn_q.weight", shape.width, shape.width, 1.7f);
        file.matrix(layer + "attn_k.weight", shape.width, shape.width, 1.7f);
        file.matrix(layer + "attn_v.weight", shape.width, shape.width);
        file.matrix(layer + "attn_output.weight", shape.width, shape.width);
        file.matrix(layer + "ffn_gate.weight", shape.width, inner);
        file.matrix(layer + "ffn_up.weight", shape.width, inner);
        file.matrix(layer + "ffn_down.weight", inner, shape.width);
    }
}

/// The architecture of Mamba: a recurrent state of fixed size.
void mamba(File& file, const Shape& shape) {
    const std::uint64_t inner = 2 * shape.width, states = 16, kernel = 4;
    const std::uint64_t rank = shape.width / 16;
    const auto signed_of = [](std::uint64_t n) { return static_cast<std::int64_t>(n); };
    frame(file, shape);
    file.number("ssm.conv_kernel", kernel);
    file.number("ssm.inner_size", inner);
    file.number("ssm.state_size", states);
    file.number("ssm.time_step_rank", rank);
    for (std::uint64_t i = 0; i < shape.layers; ++i) {
        const std::string layer = "blk." + std::to_string(i) + ".";
        file.constant(layer + "attn_norm.weight", shape.width, 1);
        file.matrix(layer + "ssm_in.weight", shape.width, 2 * inner);
        file.matrix(layer + "ssm_conv1d.weight", kernel, inner);
        file.constant(layer + "ssm_conv1d.bias", inner, 0);
        file.matrix(layer + "ssm_x.weight", inner, rank + 2 * states);
        file.matrix(layer + "ssm_dt.weight", rank, inner, 0.1f);
        // Time steps from 0.001 to 0.1, as trained models begin with them: some channels remember
        // the system prompt at the end of a chat, others the last few words.
        file.tensor(layer + "ssm_dt.bias", {signed_of(inner)}, [&](std::int64_t channel) {
            const float place = static_cast<float>(channel) / static_cast<float>(inner);
            return std::log(std::expm1(0.001f * std::pow(100.0f, place)));
        });
        file.tensor(layer + "ssm_a", {signed_of(states), signed_of(inner)}, [&](std::int64_t at) {
            return -1.0f - static_cast<float>(at % signed_of(states));
        });
        file.constant(layer + "ssm_d", inner, 1);
        file.matrix(layer + "ssm_out.weight", inner, shape.width);
    }
}

int make(int count, char** arguments) {
    std::string out, architecture = "llama";
    Shape shape;
    engine::Options options;
    options.text("--out", "file to write", out)
        .word("--architecture", "llama, mamba or cohere2", architecture,
              {"llama", "mamba", "cohere2"})
        .number("--layers", "layers", shape.layers, 1, 256)
        .number("--width", "of the model, a multiple of 64", shape.width, 64, 16384)
        .number("--window", "of cohere2, in positions", shape.window, 1, 8192)
        .number("--seed", "of the random weights", shape.seed, 0, UINT64_MAX);
    if (!options.parse(count, arguments)) {
        std::printf("usage: %s --out FILE [option...]\n%s", arguments[0], options.help().c_str());
        return 0;
    }
    if (out.empty()) throw engine::UsageError("--out: say which file");
    if (shape.width % 64 != 0) throw engine::UsageError("--width: no multiple of 64");
    File file(architecture, shape.seed);
    if (architecture == "llama") llama(file, shape);
    else if (architecture == "mamba") mamba(file, shape);
    else cohere2(file, shape);
    file.write(out);
    return 0;
}

}  // namespace

int main(int count, char** arguments) { return engine::run_program(make, count, arguments); }
