// The options that llama-server has besides its own.
#ifndef RADIXKV_LLAMA_SERVER_OPTIONS_HPP
#define RADIXKV_LLAMA_SERVER_OPTIONS_HPP

#include "arg.h"
#include "common.h"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace radixkv_server {

struct Options {
    /// False: llama-server's own prompt cache.
    bool is_enabled = true;
    /// Where states are kept on disk; empty: nowhere.
    std::string disk;
    /// Bytes in it at most, in MiB; -1: as much as there is room for.
    std::int32_t disk_mib = 16384;
    /// A store that other servers have too, as a URL of rkv_net_store_config; empty: none.
    std::string remote;
    /// Milliseconds that a request waits for the disk and that store at most.
    std::int32_t disk_wait_ms = 5000;

    /// Whether anything is to be below memory.
    [[nodiscard]] bool has_below() const { return !disk.empty() || !remote.empty(); }
};

/// Those of this process: handlers of llama.cpp's options can't carry anything along.
inline Options& options() {
    static Options made;
    return made;
}

/// Bytes of a limit in MiB; all there are for -1.
inline std::uint64_t bytes_of(std::int32_t given_mib) {
    return given_mib < 0 ? std::numeric_limits<std::uint64_t>::max()
                         : static_cast<std::uint64_t>(given_mib) << 20;
}

// For the log.
inline double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }
inline double milliseconds_since(std::int64_t start) {
    return static_cast<double>(ggml_time_us() - start) / 1000.0;
}

/// Adds them to llama.cpp's.
template <class Add> void add_options(Add&& add) {
    add(common_arg(
            {"--cache-radix"}, {"--no-cache-radix"},
            "keep prompts in radixkv: the longest prefix is found, entries stay when they are "
            "used, requests with different `cache_salt` share nothing; off: llama-server's own "
            "prompt cache (default: enabled, requires cache-ram)",
            [](common_params&, bool value) { options().is_enabled = value; })
            .set_env("LLAMA_ARG_CACHE_RADIX")
            .set_examples({LLAMA_EXAMPLE_SERVER}));
    add(common_arg(
            {"--cache-disk"}, "DIR",
            "keep prompts in this directory too: they are found again after a restart; each model "
            "has a folder of its own in it (default: none, requires cache-radix)",
            [](common_params&, const std::string& value) { options().disk = value; })
            .set_env("LLAMA_ARG_CACHE_DISK")
            .set_examples({LLAMA_EXAMPLE_SERVER}));
    add(common_arg(
            {"--cache-disk-mib"}, "N",
            "set the maximum size of a model's folder in --cache-disk in MiB; what was not used "
            "for longest goes (default: " + std::to_string(options().disk_mib) + ", -1 - no limit)",
            [](common_params&, int value) {
                if (value == 0 || value < -1) throw std::invalid_argument("must be positive or -1");
                options().disk_mib = value;
            })
            .set_env("LLAMA_ARG_CACHE_DISK_MIB")
            .set_examples({LLAMA_EXAMPLE_SERVER}));
    add(common_arg(
            {"--cache-disk-wait"}, "MS",
            "how long a request waits for --cache-disk and --cache-remote at most, in "
            "milliseconds; others go on meanwhile (default: " +
                std::to_string(options().disk_wait_ms) + ", 0 - never)",
            [](common_params&, int value) {
                if (value < 0) throw std::invalid_argument("must not be negative");
                options().disk_wait_ms = value;
            })
            .set_env("LLAMA_ARG_CACHE_DISK_WAIT")
            .set_examples({LLAMA_EXAMPLE_SERVER}));
    add(common_arg(
            {"--cache-remote"}, "URL",
            "keep prompts in a store too that other servers have: redis://HOST:PORT or "
            "s3://BUCKET, through libradixkv_net.so, which RADIXKV_NET_LIBRARY names (default: "
            "none, requires cache-radix)",
            [](common_params&, const std::string& value) { options().remote = value; })
            .set_env("LLAMA_ARG_CACHE_REMOTE")
            .set_examples({LLAMA_EXAMPLE_SERVER}));
}

}  // namespace radixkv_server

#endif  // RADIXKV_LLAMA_SERVER_OPTIONS_HPP
