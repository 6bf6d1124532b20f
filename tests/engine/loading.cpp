// B11: files that are wrong are refused with a reason, whatever is wrong with them.
#include "fixture.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

using namespace test;
using Json = nlohmann::json;

namespace {

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_file(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

/// A model, the tiny one for most, with one thing changed in its config.json.
void refuses_config(const std::string& reason, const std::function<void(Json&)>& change,
                    const engine::CheckpointSpec& spec = tiny_spec()) {
    const Checkpoint checkpoint(spec);
    const std::filesystem::path path = checkpoint.path() / "config.json";
    Json config = Json::parse(read_file(path));
    change(config);
    write_file(path, config.dump());
    CHECK_REFUSES(std::exception, reason, TestCore core(tiny_config(checkpoint)));
}

/// A safetensors file: its header and its data.
struct File {
    std::string header, data;

    static File of(const std::filesystem::path& path) {
        const std::string bytes = read_file(path);
        std::uint64_t size = 0;
        for (int i = 7; i >= 0; --i)
            size = size << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
        return {bytes.substr(8, size), bytes.substr(8 + size)};
    }
    [[nodiscard]] std::string bytes() const {
        std::string out;
        for (std::size_t i = 0; i < 8; ++i)
            out += static_cast<char>(header.size() >> (8 * i) & 0xff);
        return out + header + data;
    }
};

void refuses_weights(const std::string& reason, const std::function<void(Json&)>& change) {
    const Checkpoint checkpoint;
    const std::filesystem::path path = checkpoint.path() / "model.safetensors";
    File file = File::of(path);
    Json header = Json::parse(file.header);
    change(header);
    file.header = header.dump();
    write_file(path, file.bytes());
    CHECK_REFUSES(std::runtime_error, reason, TestCore core(tiny_config(checkpoint)));
}

void refuses_bytes(const std::string& reason, const std::string& bytes) {
    const Checkpoint checkpoint;
    write_file(checkpoint.path() / "model.safetensors", bytes);
    CHECK_REFUSES(std::runtime_error, reason, TestCore core(tiny_config(checkpoint)));
}

}  // namespace

static void b11_configs_that_are_wrong_name_the_field() {
    const auto set = [](const char* name, const Json& value) {
        return [=](Json& config) { config[name] = value; };
    };
    const auto erase = [](const char* name) {
        return [=](Json& config) { config.erase(name); };
    };
    for (const char* name : {"vocab_size", "hidden_size", "num_hidden_layers",
                             "num_attention_heads", "intermediate_size"}) {
        refuses_config(std::string(name) + " is missing", erase(name));
        refuses_config(std::string(name) + " is not a positive number", set(name, "many"));
        refuses_config(std::string(name) + " is not a positive number", set(name, 0));
        refuses_config(std::string(name) + " is not a positive number", set(name, -1));
        refuses_config(std::string(name) + " is not a positive number", set(name, 1ULL << 40));
    }
    refuses_config("num_attention_heads is no multiple", set("num_key_value_heads", 3));
    refuses_config("head_dim is odd", set("head_dim", 63));
    refuses_config("hidden_act", set("hidden_act", "gelu"));
    refuses_config("sliding_window", set("sliding_window", 4096));
    refuses_config("num_experts", set("num_experts", 8));
    refuses_config("model_type: \"phi3\" is not among llama, mistral,", set("model_type", "phi3"));
    refuses_config("model_type: 3 is not among", set("model_type", 3));
    refuses_config("layer_types: only full_attention",
                   set("layer_types", {"full_attention", "sliding_attention"}));
    refuses_config("quantization_config", set("quantization_config", {{"bits", 4}}));
    refuses_config("partial_rotary_factor", set("partial_rotary_factor", 0.5));
    refuses_config("partial_rotary_factor",
                   set("rope_parameters", {{"partial_rotary_factor", 0.25}}));
    refuses_config("rms_norm_eps", set("rms_norm_eps", Json("small")));
    for (const Json& eps : {Json(1e308), Json(1e-300), Json(0), Json(-1e-6)})
        refuses_config("rms_norm_eps is not a positive number", set("rms_norm_eps", eps));
    refuses_config("rope_theta is not a positive number", set("rope_theta", 1e308));
    refuses_config("tie_word_embeddings", set("tie_word_embeddings", 1));
    refuses_config("eos_token_id is not a token id", set("eos_token_id", 258));
    refuses_config("type \"yarn\"", set("rope_scaling", {{"rope_type", "yarn"}}));
    refuses_config("factor is missing", set("rope_scaling", {{"rope_type", "llama3"}}));
    // Right by itself, but the weights say other.
    refuses_config("has the shape", set("hidden_size", 128));
    refuses_config("lack model.layers.2.", set("num_hidden_layers", 3));
    // Right altogether, but the library has no attention for it.
    const Checkpoint narrow(engine::llama_checkpoint(1, 64, 64, 2, 1, 32));
    CHECK_REFUSES(rkv::Error, "head_dim", TestCore core(tiny_config(narrow)));
}

/// DeepSeek-V2: what is not computed of it, and numbers that contradict the weights.
static void b11_latent_configs_that_are_wrong_name_the_field() {
    const engine::CheckpointSpec spec = engine::deepseek_v2_checkpoint(tiny_spec());
    const auto set = [](const char* name, const Json& value) {
        return [=](Json& config) { config[name] = value; };
    };
    refuses_config("q_lora_rank: q is computed as one product", set("q_lora_rank", 1536), spec);
    refuses_config("attention_bias", set("attention_bias", true), spec);
    refuses_config("first_k_dense_replace: a mixture of experts", set("first_k_dense_replace", 1),
                   spec);
    refuses_config("first_k_dense_replace", [](Json& config) {
        config.erase("first_k_dense_replace");
    }, spec);
    refuses_config("qk_rope_head_dim is odd", set("qk_rope_head_dim", 31), spec);
    refuses_config("kv_lora_rank is not a positive number", set("kv_lora_rank", 0), spec);
    refuses_config("type \"yarn\"", set("rope_scaling", {{"type", "yarn"}}), spec);
    refuses_config("kv_a_proj_with_mqa.weight has the shape", set("kv_lora_rank", 32), spec);
    refuses_config("kv_b_proj.weight has the shape", set("v_head_dim", 64), spec);
    // Right altogether, but the library has no attention for keys of so many numbers.
    const Checkpoint odd(engine::deepseek_v2_checkpoint(tiny_spec(), {40, 32, 32, 32}));
    CHECK_REFUSES(rkv::Error, "head_dim 72", TestCore core(tiny_config(odd)));
}

/// What other architectures have, or older and newer files of these.
static void g15_configs_that_are_wrong_name_the_field() {
    const engine::CheckpointSpec gemma = engine::gemma3_checkpoint(tiny_spec(), 24);
    const engine::CheckpointSpec qwen = engine::qwen3_next_checkpoint(tiny_spec());
    const auto set = [](const char* name, const Json& value) {
        return [=](Json& config) { config[name] = value; };
    };
    const Json linear = "linear_attention", sliding = "sliding_attention", full = "full_attention";
    refuses_config("hidden_activation: only gelu_pytorch_tanh", set("hidden_activation", "gelu"),
                   gemma);
    for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping"})
        refuses_config(name, set(name, 30.0), gemma);
    refuses_config("use_bidirectional_attention", set("use_bidirectional_attention", true), gemma);
    refuses_config("sliding_window is not a positive number", set("sliding_window", 0), gemma);
    refuses_config("layer_types: at least one layer must be full_attention",
                   set("layer_types", {sliding, sliding}), gemma);
    refuses_config("layer_types: not as many", set("layer_types", {full}), gemma);
    refuses_config("full_attention and sliding_attention is computed, not \"linear_attention\"",
                   set("layer_types", {linear, full}), gemma);
    refuses_config("sliding_attention: scaling is not computed",
                   set("rope_parameters",
                       {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 8}}}}),
                   gemma);
    refuses_config("rope_parameters: full_attention is not an object",
                   set("rope_parameters", {{"full_attention", 1}}), gemma);
    refuses_config("lack model.layers.0.pre_feedforward_layernorm.weight", [&](Json& config) {
        config["model_type"] = "gemma3_text";
        config["layer_types"] = {sliding, full};
    });
    refuses_config("layer 0 is one, for mlp_only_layers does not name it",
                   set("num_experts", 512), qwen);
    refuses_config("full_attention and linear_attention is computed, not \"sliding_attention\"",
                   set("layer_types", {sliding, full}), qwen);
    refuses_config("no multiple of linear_num_key_heads", set("linear_num_key_heads", 3), qwen);
    refuses_config("partial_rotary_factor: 0 numbers of a head", set("partial_rotary_factor", 0.01),
                   qwen);
    refuses_config("partial_rotary_factor: 5 numbers of a head", set("partial_rotary_factor", 0.08),
                   qwen);
    refuses_config("linear_attn.in_proj_qkvz.weight has the shape",
                   set("linear_value_head_dim", 16), qwen);
    refuses_config("linear_attn.conv1d.weight has the shape", set("linear_conv_kernel_dim", 3),
                   qwen);
}

/// Files as they are on the hub, which say less: the rest is the architecture's.
static void g15_configs_may_leave_things_out() {
    const auto read = [](const engine::CheckpointSpec& spec, auto change) {
        const Checkpoint checkpoint(spec);
        const std::filesystem::path path = checkpoint.path() / "config.json";
        Json config = Json::parse(read_file(path));
        change(config);
        write_file(path, config.dump());
        return engine::read_model_config(path);
    };
    const auto erase = [](Json& config, std::initializer_list<const char*> names) {
        for (const char* name : names) config.erase(name);
    };
    using engine::LayerKind;
    const engine::CheckpointSpec shape = engine::llama_checkpoint(13, 64, 64, 2, 1, 64);
    engine::ModelConfig config =
        read(engine::gemma3_checkpoint(shape, 512), [&](Json& json) {
            erase(json, {"layer_types", "rope_theta", "rope_local_base_freq", "head_dim",
                         "query_pre_attn_scalar", "tie_word_embeddings"});
            json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
        });
    CHECK_EQ(config.rope_theta, 1e6);
    CHECK_EQ(config.window_rope_theta, 1e4);
    CHECK_EQ(config.rope_divisor, 8.0);
    CHECK_EQ(config.head_dim, 256U);
    CHECK_EQ(config.attention_scale, 1.0F / 16);
    CHECK_EQ(config.window, 512U);
    CHECK(config.tie_word_embeddings);
    for (std::size_t i = 0; i < 13; ++i)
        CHECK(config.layers[i] == (i == 5 || i == 11 ? LayerKind::full : LayerKind::window));
    config = read(engine::qwen3_next_checkpoint(shape), [&](Json& json) {
        erase(json, {"layer_types", "partial_rotary_factor", "linear_key_head_dim"});
        json["full_attention_interval"] = 3;
        json["rope_parameters"] = {{"rope_theta", 1e7}, {"partial_rotary_factor", 0.5}};
    });
    CHECK_EQ(config.rope_theta, 1e7);
    CHECK_EQ(config.rotary_dim, 32U);
    CHECK_EQ(config.delta_net.key_head_dim, 128U);
    for (std::size_t i = 0; i < 13; ++i)
        CHECK(config.layers[i] == (i % 3 == 2 ? LayerKind::full : LayerKind::delta_net));
    // Each fifth layer would have experts, but those are named.
    config = read(engine::qwen3_next_checkpoint(shape), [&](Json& json) {
        json["num_experts"] = 8;
        json["decoder_sparse_step"] = 5;
        json["mlp_only_layers"] = {4, 9};
    });
    CHECK_EQ(config.layer_count, 13U);
}

/// Nothing that comes in a folder overflows the stack.
static void b11_files_of_brackets_are_refused() {
    const std::string deep = std::string(200000, '[') + std::string(200000, ']');
    for (const char* name : {"eos_token_id", "rope_scaling", "model_type"}) {
        const Checkpoint checkpoint;
        const std::filesystem::path path = checkpoint.path() / "config.json";
        std::string config = read_file(path);
        config.replace(config.rfind('}'), 1, ",\"" + std::string(name) + "\":" + deep + "}");
        write_file(path, config);
        CHECK_REFUSES(std::exception, "config.json: JSON nested deeper than 64",
                      TestCore core(tiny_config(checkpoint)));
    }
    refuses_bytes("JSON nested deeper than 64", File{"{\"a\":" + deep + "}", ""}.bytes());
    const Checkpoint checkpoint;
    write_file(checkpoint.path() / "model.safetensors.index.json", deep);
    CHECK_REFUSES(std::exception, "JSON nested deeper than 64",
                  TestCore core(tiny_config(checkpoint)));
}

static void b11_newer_rope_parameters_are_understood() {
    const Checkpoint checkpoint;
    const std::filesystem::path path = checkpoint.path() / "config.json";
    Json config = Json::parse(read_file(path));
    config.erase("rope_theta");
    config["rope_parameters"] = {{"rope_type", "llama3"}, {"rope_theta", 5e5}, {"factor", 8}};
    write_file(path, config.dump());
    const engine::ModelConfig read = engine::read_model_config(path);
    CHECK_EQ(read.rope_theta, 5e5);
    CHECK_EQ(read.rope_scaling->factor, 8.0);
    CHECK_EQ(read.rope_scaling->original_max_position_embeddings, 8192.0);
}

/// What ends a text is said in two files, and of a chat model only the second may know.
static void b11_the_ends_of_generation_config_go_first() {
    using Ids = std::vector<std::uint32_t>;
    const Checkpoint checkpoint;
    const auto ends = [&](const std::string& text) {
        write_file(checkpoint.path() / "generation_config.json", text);
        return engine::read_model_config(checkpoint.path() / "config.json").eos_token_ids;
    };
    CHECK(ends(R"({"temperature": 0.6})") == Ids({engine::eos_id}));
    CHECK(ends(R"({"eos_token_id": null})") == Ids({engine::eos_id}));
    CHECK(ends(R"({"eos_token_id": 7})") == Ids({7}));
    CHECK(ends(R"({"eos_token_id": [7, 9]})") == Ids({7, 9}));
    CHECK_REFUSES(std::exception, "generation_config.json: eos_token_id is not a token id",
                  (void)ends(R"({"eos_token_id": 258})"));
    CHECK_REFUSES(std::exception, "generation_config.json: ", (void)ends("{"));
}

static void b11_weights_that_are_wrong_name_the_tensor() {
    const std::string norm = "model.norm.weight";
    refuses_weights("lack " + norm, [&](Json& header) { header.erase(norm); });
    refuses_weights("lack " + norm, [&](Json& header) { header[norm]["dtype"] = "I8"; });
    refuses_weights(norm + " has the shape [8, 8], not [64]",
                    [&](Json& header) { header[norm]["shape"] = {8, 8}; });
    refuses_weights(norm, [&](Json& header) { header[norm]["shape"] = {65}; });
    refuses_weights(norm + ": its shape is too large",
                    [&](Json& header) { header[norm]["shape"] = {1ULL << 62, 1ULL << 62}; });
    refuses_weights(norm + ": its shape is not",
                    [&](Json& header) { header[norm]["shape"] = {-64}; });
    refuses_weights(norm, [&](Json& header) { header[norm].erase("shape"); });
    for (const Json& offsets : {Json{0, 1ULL << 40}, Json{128, 0}, Json{0}, Json{-128, 0},
                                Json{UINT64_MAX, 0}, Json("all")})
        refuses_weights(norm, [&](Json& header) { header[norm]["data_offsets"] = offsets; });
    refuses_weights("header", [](Json& header) { header = Json::array({1}); });
}

static void b11_files_that_are_cut_are_refused() {
    const Checkpoint checkpoint;
    const std::string whole = read_file(checkpoint.path() / "model.safetensors");
    refuses_bytes("empty", "");
    refuses_bytes("too short for a header", whole.substr(0, 7));
    refuses_bytes("longer than the file", whole.substr(0, 100));
    refuses_bytes("lies outside of the file", whole.substr(0, whole.size() - 1));
    refuses_bytes("longer than the file", std::string(8, '\xff') + "{}");
    refuses_bytes("header", File{"{\"a", ""}.bytes());
    engine::EngineConfig config = tiny_config(checkpoint);
    config.model = checkpoint.path() / "nowhere";
    CHECK_REFUSES(std::runtime_error, "config.json: cannot be opened", TestCore core(config));
}

/// Weights in several files, as large models come.
static void b11_weights_in_several_files() {
    const Checkpoint checkpoint;
    const auto expected = TestCore(tiny_config(checkpoint)).complete(greedy({1, 2, 3}, 8))->tokens;
    const std::filesystem::path whole = checkpoint.path() / "model.safetensors";
    const File file = File::of(whole);
    const Json header = Json::parse(file.header);
    File parts[2];
    Json headers[2], index;
    std::size_t next = 0;
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") continue;
        const std::size_t part = next++ % 2;
        const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
        headers[part][name] = entry;
        headers[part][name]["data_offsets"] = {parts[part].data.size(),
                                               parts[part].data.size() + end - begin};
        parts[part].data += file.data.substr(begin, end - begin);
        index["weight_map"][name] = "part" + std::to_string(part) + ".safetensors";
    }
    for (std::size_t part = 0; part < 2; ++part) {
        parts[part].header = headers[part].dump();
        write_file(checkpoint.path() / ("part" + std::to_string(part) + ".safetensors"),
                   parts[part].bytes());
    }
    std::filesystem::remove(whole);
    const std::filesystem::path index_path = checkpoint.path() / "model.safetensors.index.json";
    write_file(index_path, index.dump());
    CHECK(TestCore(tiny_config(checkpoint)).complete(greedy({1, 2, 3}, 8))->tokens == expected);

    index["weight_map"]["model.norm.weight"] = "../elsewhere";
    write_file(index_path, index.dump());
    CHECK_REFUSES(std::runtime_error, "leads out of the folder",
                  TestCore core(tiny_config(checkpoint)));
    write_file(index_path, "{}");
    CHECK_REFUSES(std::runtime_error, "weight_map", TestCore core(tiny_config(checkpoint)));
}

/// Every half-precision number there is, against arithmetic in double.
static void b11_half_precision_numbers_are_read_exactly() {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    engine::TensorView view;
    view.shape = {all.size()};
    view.data = reinterpret_cast<const std::byte*>(all.data());
    for (const engine::Dtype dtype : {engine::Dtype::f16, engine::Dtype::bf16}) {
        view.dtype = dtype;
        const std::vector<float> read = view.read_all();
        const int mantissa_bits = dtype == engine::Dtype::f16 ? 10 : 7;
        const int exponent_bits = 15 - mantissa_bits;
        const int bias = (1 << (exponent_bits - 1)) - 1;
        for (std::size_t i = 0; i < all.size(); ++i) {
            const int mantissa = static_cast<int>(i) & ((1 << mantissa_bits) - 1);
            const int exponent = static_cast<int>(i >> mantissa_bits) & ((1 << exponent_bits) - 1);
            const double sign = (i & 0x8000) != 0 ? -1 : 1;
            const bool special = exponent == (1 << exponent_bits) - 1;
            if (special && mantissa != 0) {
                CHECK(std::isnan(read[i]));
                continue;
            }
            const int whole = mantissa + (exponent > 0 ? 1 << mantissa_bits : 0);
            const int power = (exponent > 0 ? exponent : 1) - bias - mantissa_bits;
            const double value = special ? sign * HUGE_VAL : sign * std::ldexp(whole, power);
            CHECK_EQ(double{read[i]}, value);
            CHECK_EQ(std::signbit(read[i]), sign < 0);
        }
    }
}

int main() {
    RUN(b11_configs_that_are_wrong_name_the_field);
    RUN(b11_latent_configs_that_are_wrong_name_the_field);
    RUN(g15_configs_that_are_wrong_name_the_field);
    RUN(g15_configs_may_leave_things_out);
    RUN(b11_files_of_brackets_are_refused);
    RUN(b11_newer_rope_parameters_are_understood);
    RUN(b11_the_ends_of_generation_config_go_first);
    RUN(b11_weights_that_are_wrong_name_the_tensor);
    RUN(b11_files_that_are_cut_are_refused);
    RUN(b11_weights_in_several_files);
    RUN(b11_half_precision_numbers_are_read_exactly);
    return 0;
}
