#include "fingerprint.hpp"

#include "entry.hpp"

#include "build-info.h"
#include "gguf.h"

#include <radixkv.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace radixkv_server {

namespace {

/// Bytes of a tensor that are read whole; of a larger one as many, in pieces over all of it.
constexpr std::uint64_t whole_bytes = 16384, piece_bytes = 2048;

/// Gathers what makes a difference. Every value goes in with its name and its length, so that no
/// two lists of values look alike.
class Gathered {
public:
    void add(const std::string& name, const std::string& value) {
        for (const std::string* text : {&name, &value}) {
            text_ += std::to_string(text->size());
            text_ += ':';
            text_ += *text;
        }
    }
    void add(const std::string& name, double value) {
        std::array<char, 32> text{};
        std::snprintf(text.data(), text.size(), "%a", value);
        add(name, std::string(text.data()));
    }

    [[nodiscard]] Fingerprint digest() const {
        Fingerprint digest{};
        for (std::size_t half = 0; half < 2; ++half) {
            const std::string text = std::to_string(half) + text_;
            const rkv::Digest made = rkv::image_digest(text.data(), text.size());
            std::copy(made.begin(), made.end(), digest.begin() + half * made.size());
        }
        return digest;
    }

private:
    std::string text_;
};

class File {
public:
    explicit File(const std::string& path) : path_(path), stream_(path, std::ios::binary) {
        stream_.seekg(0, std::ios::end);
        size_ = static_cast<std::uint64_t>(stream_.tellg());
        if (!stream_) throw std::runtime_error(path + " cannot be read");
    }
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    std::string read(std::uint64_t offset, std::uint64_t count) {
        std::string bytes(count, '\0');
        stream_.seekg(static_cast<std::streamoff>(offset));
        stream_.read(bytes.data(), static_cast<std::streamsize>(count));
        if (!stream_) throw std::runtime_error(path_ + " cannot be read");
        return bytes;
    }
    /// Some of a piece of it.
    std::string sample(std::uint64_t offset, std::uint64_t count) {
        if (count <= whole_bytes) return read(offset, count);
        std::string bytes;
        constexpr std::uint64_t pieces = whole_bytes / piece_bytes;
        for (std::uint64_t at = 0; at < pieces; ++at)
            bytes += read(offset + (count - piece_bytes) / (pieces - 1) * at, piece_bytes);
        return bytes;
    }

private:
    std::string path_;
    std::ifstream stream_;
    std::uint64_t size_ = 0;
};

struct FreeGguf {
    void operator()(gguf_context* context) const noexcept { gguf_free(context); }
};
using Gguf = std::unique_ptr<gguf_context, FreeGguf>;

/// One file, and how many others its model has.
std::size_t add_file(Gathered& gathered, const std::string& name, const std::string& path) {
    File file(path);
    gathered.add(name, static_cast<double>(file.size()));
    const Gguf gguf(gguf_init_from_file(path.c_str(), {/*no_alloc=*/true, /*ctx=*/nullptr}));
    if (!gguf) {
        gathered.add("bytes", file.sample(0, file.size()));
        return 0;
    }
    const std::uint64_t data = gguf_get_data_offset(gguf.get());
    gathered.add("metadata", file.read(0, std::min(data, file.size())));
    for (std::int64_t at = 0; at < gguf_get_n_tensors(gguf.get()); ++at) {
        const std::uint64_t offset = data + gguf_get_tensor_offset(gguf.get(), at);
        gathered.add("tensor", file.sample(offset, gguf_get_tensor_size(gguf.get(), at)));
    }
    const std::int64_t key = gguf_find_key(gguf.get(), "split.count");
    if (key < 0 || gguf_get_kv_type(gguf.get(), key) != GGUF_TYPE_UINT16) return 0;
    return gguf_get_val_u16(gguf.get(), key);
}

/// A model, which may be several files: `...-00001-of-00003.gguf`.
void add_model(Gathered& gathered, const std::string& name, const std::string& path) {
    if (path.empty()) return;
    const std::size_t count = add_file(gathered, name, path);
    const std::string digits = "-00001-of-";
    const std::size_t at = path.rfind(digits);
    if (count < 2 || at == std::string::npos) return;
    for (std::size_t split = 1; split < count; ++split) {
        std::string other(path.size() + digits.size(), '\0');
        const int length = llama_split_path(other.data(), other.size(), path.substr(0, at).c_str(),
                                            static_cast<int>(split), static_cast<int>(count));
        other.resize(static_cast<std::size_t>(std::max(length, 0)));
        add_file(gathered, name, other);
    }
}

void add_context(Gathered& gathered, const std::string& name, const common_params& params,
                 const llama_context* context) {
    const llama_model* model = llama_get_model(context);
    std::array<char, 256> text{};
    llama_model_desc(model, text.data(), text.size());
    gathered.add(name, std::string(text.data()));
    // Slots with memory of their own have a stream each; a state is read where there are as many.
    gathered.add("streams", params.kv_unified ? 1 : llama_n_seq_max(context));
    gathered.add("frequency scale", llama_model_rope_freq_scale_train(model));
    // Such models have factors for short and for long contexts; where they don't say which are
    // long, those are that are longer than what they were trained for.
    llama_model_meta_val_str(model, "general.architecture", text.data(), text.size());
    const std::string key = std::string(text.data()) + ".rope.scaling.original_context_length";
    if (llama_model_meta_val_str(model, key.c_str(), text.data(), text.size()) >= 0)
        gathered.add("context", llama_n_ctx_seq(context));
    else if (llama_n_ctx_seq(context) > static_cast<std::uint32_t>(llama_model_n_ctx_train(model)))
        gathered.add("long context", 1.0);
}

}  // namespace

Fingerprint fingerprint_of(const common_params& params, const llama_context* target,
                           const llama_context* draft) {
    Gathered gathered;
    gathered.add("build", std::string(llama_build_info()));
    gathered.add("state", LLAMA_STATE_SEQ_VERSION);
    gathered.add("entry", entry_version);
    add_context(gathered, "target", params, target);
    add_model(gathered, "model", params.model.path);
    gathered.add("K", std::string(ggml_type_name(params.cache_type_k)));
    gathered.add("V", std::string(ggml_type_name(params.cache_type_v)));
    // llama.cpp turns what it quantizes, unless this says otherwise; a state doesn't tell.
    const char* is_off = std::getenv("LLAMA_ATTN_ROT_DISABLE");
    if (is_off != nullptr && std::atoi(is_off) != 0) gathered.add("turned", 0.0);
    // 1 had the windows alone.
    gathered.add("whole window", params.swa_full ? 2 : 0);
    // V lies otherwise without it.
    gathered.add("fused attention",
                 params.flash_attn_type != LLAMA_FLASH_ATTN_TYPE_DISABLED ? 1 : 0);
    const common_params_speculative_draft& drafting = params.speculative.draft;
    if (draft != nullptr) {
        add_context(gathered, "draft", params, draft);
        // A state says how much it has before the target's window, and not before this one's.
        if (llama_model_n_swa(llama_get_model(draft)) > 0)
            gathered.add("before window", saved_before_window(params, target, draft));
        add_model(gathered, "draft model", drafting.mparams.path);
        gathered.add("draft K", std::string(ggml_type_name(drafting.cache_type_k)));
        gathered.add("draft V", std::string(ggml_type_name(drafting.cache_type_v)));
        for (const auto type : params.speculative.types)
            gathered.add("speculation", static_cast<double>(type));
    }
    add_model(gathered, "projector", params.mmproj.path);
    // Frames of a video go by their number; how large an image is may hide behind equal tokens.
    if (!params.mmproj.path.empty()) {
        gathered.add("frames", params.video_fps);
        gathered.add("timestamps", static_cast<double>(params.video_timestamp_interval_ms));
        gathered.add("least of an image", params.image_min_tokens);
        gathered.add("most of an image", params.image_max_tokens);
    }
    for (const common_adapter_lora_info& adapter : params.lora_adapters)
        add_model(gathered, "adapter", adapter.path);
    for (const common_control_vector_load_info& vector : params.control_vectors) {
        add_model(gathered, "control vector", vector.fname);
        gathered.add("strength", vector.strength);
    }
    gathered.add("first layer", params.control_vector_layer_start);
    gathered.add("last layer", params.control_vector_layer_end);
    for (const llama_model_kv_override& over : params.kv_overrides) {
        const std::string key = over.key;
        if (key.empty()) break;
        switch (over.tag) {
        case LLAMA_KV_OVERRIDE_TYPE_INT: gathered.add(key, std::to_string(over.val_i64)); break;
        case LLAMA_KV_OVERRIDE_TYPE_FLOAT: gathered.add(key, over.val_f64); break;
        case LLAMA_KV_OVERRIDE_TYPE_BOOL: gathered.add(key, over.val_bool ? 1.0 : 0.0); break;
        case LLAMA_KV_OVERRIDE_TYPE_STR: gathered.add(key, std::string(over.val_str)); break;
        }
    }
    const std::pair<const char*, double> positions[] = {
        {"scaling", static_cast<double>(params.rope_scaling_type)},
        {"base", params.rope_freq_base},
        {"scale", params.rope_freq_scale},
        {"extrapolation", params.yarn_ext_factor},
        {"attention", params.yarn_attn_factor},
        {"fast", params.yarn_beta_fast},
        {"slow", params.yarn_beta_slow},
        {"original context", static_cast<double>(params.yarn_orig_ctx)},
        {"causal", static_cast<double>(params.attention_type)},
    };
    for (const auto& [name, value] : positions) gathered.add(name, value);
    return gathered.digest();
}

}  // namespace radixkv_server
