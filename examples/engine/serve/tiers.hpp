// Host memory, a directory and a server below KV memory: pages that were evicted come back, also
// after a restart, and to other engines. The library keeps the books; what is copied, the runner
// copies.
#ifndef ENGINE_SERVE_TIERS_HPP
#define ENGINE_SERVE_TIERS_HPP

#include "serve/state_memory.hpp"

#include <radixkv.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace engine {

struct TierSettings {
    /// 0: no tiers.
    std::uint64_t host_bytes = 0;
    /// Empty: host memory alone.
    std::filesystem::path directory;
    std::uint64_t disk_bytes = 0;
    /// Empty: no store that engines share. See RemoteStore.
    std::string remote_url;
    std::string remote_endpoint;
    /// A store of somebody else's in its place, who outlives the cache; or NULL.
    const rkv_remote_store* remote = nullptr;
    /// Of the numbers in KV.
    std::string format = "f32";
    /// Takes host memory, which outlives the cache; empty: the library takes it.
    std::function<void*(std::size_t bytes)> take_host_memory;
};

/// The pages of a group of layers, and who copies them: a runner, or the states of recurrent
/// layers.
struct TierPages {
    std::uint64_t page_bytes, page_count;
    rkv::Runner* runner;
    StateMemory* states;
};

class Tiers {
public:
    /// `pages` are those of each group, which has a pool of its own. The model's folder says whose
    /// KV it is. `settings.remote` is the store that is used. Throws rkv::Error.
    Tiers(rkv::Cache& cache, std::vector<TierPages> pages, const TierSettings& settings,
          const std::filesystem::path& model);
    /// Waits a few seconds for what is being written.
    ~Tiers();
    Tiers(const Tiers&) = delete;
    Tiers& operator=(const Tiers&) = delete;

    /// Whether there may be anything to fetch for a sequence. Where there is no memory to look, to
    /// fetch or to prefetch, there is nothing: it is computed.
    [[nodiscard]] bool looks_good(rkv::Sequence& sequence) const;
    /// Whether pages of a sequence are on their way.
    [[nodiscard]] bool fetch(rkv::Sequence& sequence);
    /// Brings what there is of a prompt to host memory, before it begins. Returns what to cancel it
    /// by, 0 when there is nothing to bring, and nothing when there is no room for it now: then it
    /// is to be asked for again.
    [[nodiscard]] std::optional<rkv_prefetch_id> prefetch(
        const std::vector<std::uint32_t>& prompt, const rkv::Namespace& name_space);
    void cancel_prefetch(rkv_prefetch_id prefetch) noexcept;
    /// Copies what is to be copied; whether there was anything. What was fetched is in ended().
    bool step();
    [[nodiscard]] const std::vector<rkv_fetch_end>& ended() const noexcept { return ended_; }

private:
    /// Copies, and says that it was done, or that it failed.
    void copy(std::size_t job_count);
    void copy_of_group(const TierPages& of) const;

    rkv::Cache& cache_;
    std::vector<TierPages> pages_;
    bool has_remote_;
    /// Before then there is no room for a prefetch.
    std::chrono::steady_clock::time_point no_room_until_{};
    std::array<rkv_copy_job, 32> jobs_{};
    std::array<rkv_fetch_end, 32> ends_{};
    std::vector<std::uint64_t> done_;
    std::vector<rkv_copy_job> of_group_;
    std::vector<rkv_fetch_end> ended_;
};

}  // namespace engine

#endif  // ENGINE_SERVE_TIERS_HPP
