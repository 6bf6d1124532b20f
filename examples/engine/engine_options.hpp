// The options that the server and the benchmark have in common.
#ifndef ENGINE_ENGINE_OPTIONS_HPP
#define ENGINE_ENGINE_OPTIONS_HPP

#include "options.hpp"
#include "serve/core.hpp"

#include <cstdint>
#include <string>

namespace engine {

struct EngineOptions {
    std::string model;
    std::string prefix_caching = "on";
    std::string device = "cpu";
    std::string gemm = "packed";
    std::string graphs = "on";
    std::uint64_t page_size = 16, pages = 0, window_pages = 0, state_pages = 0, kv_mib = 512;
    std::uint64_t chunk_size = 512, max_running = 64, max_positions = 0, threads = 0, speculate = 0,
                  speculate_branches = 1;
    std::uint64_t retained = 1024, retained_pages = 0;
    std::string disk_cache, remote_cache, remote_endpoint;
    std::uint64_t host_cache_mib = 0, disk_cache_mib = 0;

    void add_to(Options& options) {
        options.text("--model", "folder with config.json and model.safetensors", model)
            .word("--prefix-caching", "on or off", prefix_caching, {"on", "off"})
            .word("--device", "cpu or cuda: what computes", device, {"cpu", "cuda"})
            .word("--gemm", "on the CPU packed: same bits in any batch; or blas", gemm,
                  {"packed", "blas"})
            .word("--graphs", "on a GPU on or off: decoding steps as CUDA graphs", graphs,
                  {"on", "off"})
            .number("--page-size", "positions of a page", page_size, 1, RKV_PAGE_SIZE_MAX)
            .number("--pages", "pages of KV memory; 0: as many as fit", pages, 0, 1U << 30)
            .number("--window-pages", "the same of sliding windows; 0: as many as of the others",
                    window_pages, 0, 1U << 30)
            .number("--state-pages", "recurrent states; 0: as many as fit in a quarter",
                    state_pages, 0, 1U << 30)
            .number("--kv-mib", "KV memory in MiB, with --pages 0", kv_mib, 1, 1U << 20)
            .number("--host-cache-mib", "MiB of host memory for KV that was evicted; 0: none",
                    host_cache_mib, 0, 1U << 24)
            .text("--disk-cache", "a folder below that, which a restart finds again", disk_cache)
            .number("--disk-cache-mib", "MiB in it", disk_cache_mib, 0, 1U << 24)
            .text("--remote-cache", "below that, for many engines: redis://HOST:PORT, s3://BUCKET",
                  remote_cache)
            .text("--remote-endpoint", "where S3 is, as http://HOST:PORT", remote_endpoint)
            .number("--chunk-size", "prompt tokens a step; 0: no limit", chunk_size, 0, 1U << 20)
            .number("--speculate", "tokens drafted from the text so far; 0: none", speculate, 0, 63)
            .number("--speculate-branches", "different drafts of so many tokens",
                    speculate_branches, 1, 63)
            .number("--max-running", "sequences that run at once", max_running, 1, 4096)
            .number("--retained", "finished ones kept for continuations", retained, 0, 1U << 20)
            .number("--retained-pages", "their pages at most; 0: half of all", retained_pages, 0,
                    1U << 30)
            .number("--max-positions", "longest text; 0: the model's", max_positions, 0, 1U << 24)
            .number("--threads", "threads that compute; 0: all cores", threads, 0, 1024);
    }
    [[nodiscard]] EngineConfig config() const {
        if (model.empty()) throw UsageError("--model: say which folder");
        EngineConfig config;
        config.model = model;
        config.prefix_caching = prefix_caching == "on";
        config.device = device == "cuda" ? Device::cuda : Device::cpu;
        config.gemm = gemm == "blas" ? Gemm::blas : Gemm::packed;
        config.graphs = graphs == "on";
        config.kv.page_size = static_cast<std::uint32_t>(page_size);
        config.kv.page_count = static_cast<std::uint32_t>(pages);
        config.kv.window_page_count = static_cast<std::uint32_t>(window_pages);
        config.kv.state_page_count = static_cast<std::uint32_t>(state_pages);
        config.kv.bytes = kv_mib << 20;
        config.kv.retained_sequences = static_cast<std::uint32_t>(retained);
        config.kv.retained_pages = static_cast<std::uint32_t>(retained_pages);
        if (disk_cache.empty() != (disk_cache_mib == 0))
            throw UsageError("--disk-cache and --disk-cache-mib: both or none");
        if (!disk_cache.empty() && host_cache_mib == 0)
            throw UsageError("--disk-cache: needs --host-cache-mib");
        if (!remote_cache.empty() && host_cache_mib == 0)
            throw UsageError("--remote-cache: needs --host-cache-mib");
        if (!remote_endpoint.empty() && remote_cache.empty())
            throw UsageError("--remote-endpoint: needs --remote-cache");
        config.kv.tiers.remote_url = remote_cache;
        config.kv.tiers.remote_endpoint = remote_endpoint;
        config.kv.tiers.host_bytes = host_cache_mib << 20;
        config.kv.tiers.directory = disk_cache;
        config.kv.tiers.disk_bytes = disk_cache_mib << 20;
        config.retain_nothing = retained == 0;
        config.scheduler.chunk_size = chunk_size;
        config.scheduler.max_running = max_running;
        if (speculate > 0 && config.device != Device::cpu)
            throw UsageError("--speculate: on the CPU alone");
        config.scheduler.speculate = speculate;
        config.scheduler.speculate_branches = speculate_branches;
        config.max_positions = max_positions;
        config.thread_count = threads;
        return config;
    }
};

}  // namespace engine

#endif  // ENGINE_ENGINE_OPTIONS_HPP
