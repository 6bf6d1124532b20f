// The prompt cache's model, and its directory: opened for each model, closed in the end.
#include "options.hpp"
#include "prompt_cache.hpp"
#include "units.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <exception>
#include <filesystem>
#include <stdexcept>

namespace radixkv_server {

namespace {

/// Milliseconds that the end of the server waits for the disk.
constexpr std::uint64_t close_ms = 10000;

/// The name of a model's folder: for whoever looks into the directory.
std::string folder_of(const common_params& params, const Fingerprint& fingerprint) {
    static const char* digits = "0123456789abcdef";
    std::string name = std::filesystem::path(params.model.path).stem().string();
    for (char& c : name)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
    name.resize(std::min<std::size_t>(name.size(), 80));
    name += '-';
    for (std::size_t at = 0; at < 6; ++at) {
        name += digits[fingerprint[at] >> 4];
        name += digits[fingerprint[at] & 15];
    }
    return name;
}

}  // namespace

void PromptCache::reopen(const Setup& setup) {
    const llama_model* model = llama_get_model(setup.target);
    saved_window_ = llama_model_n_swa(model);
    window_ = setup.params->swa_full ? 0 : saved_window_;
    std::array<char, 64> architecture{};
    llama_model_meta_val_str(model, "general.architecture", architecture.data(),
                             architecture.size());
    is_chunked_ = std::string(architecture.data()) == "llama4";
    has_media_ = setup.has_media;
    is_cuttable_ = saved_window_ == 0 && !llama_model_is_recurrent(model) &&
                   !llama_model_is_hybrid(model);
    set_adapters(setup.params->lora_adapters);
    try {
        std::optional<Fingerprint> now;
        std::string why;
        try {
            now = fingerprint_of(*setup.params, setup.target, setup.draft);
        } catch (const std::exception& error) {
            why = error.what();
        }
        if (now && now == fingerprint_) return;
        // What was kept is another model's, or may be.
        close();
        cache_.clear();
        checkpoints_.base().clear();
        fingerprint_ = now;
        if (!now) throw std::runtime_error(why);
        if (!options().disk.empty()) attach(setup);
    } catch (const std::exception& error) {
        if (!options().disk.empty()) {
            SRV_WRN("prompts are kept in memory alone: %s\n", error.what());
        }
    }
}

void PromptCache::attach(const Setup& setup) {
    const std::filesystem::path parent = options().disk;
    const std::string directory = (parent / folder_of(*setup.params, *fingerprint_)).string();
    std::filesystem::create_directories(parent);
    rkv_snapshot_tier_config config{};
    rkv::check(rkv_snapshot_tier_config_init(&config, sizeof config));
    config.directory = directory.c_str();
    config.byte_limit = bytes_of(options().disk_mib);
    // What was let go before it was written comes on top of --cache-ram.
    config.waiting_byte_limit = std::min(config.waiting_byte_limit, byte_limit_ / 4 + 1);
    std::copy(fingerprint_->begin(), fingerprint_->end(), config.fingerprint);
    rkv::check(rkv_snapshot_cache_attach(cache_.get(), &config));
    has_disk_ = true;
    auto stats = rkv::sized<rkv_snapshot_tier_stats>();
    rkv::check(rkv_snapshot_cache_read_tier_stats(cache_.get(), &stats));
    SRV_INF("prompts are kept in %s: %zu from before, %.1f MiB\n", directory.c_str(),
            static_cast<std::size_t>(stats.entry_count), mib(stats.used_bytes));
}

void PromptCache::close() {
    if (!has_disk_.exchange(false)) return;
    const std::int64_t start = ggml_time_us();
    const rkv_status status = rkv_snapshot_cache_detach(cache_.get(), close_ms);
    if (status == RKV_STATUS_OK) return;
    SRV_WRN("not all prompts were written to disk: %s, %.0f ms\n",
            rkv::last_error_message().c_str(), milliseconds_since(start));
}

}  // namespace radixkv_server
