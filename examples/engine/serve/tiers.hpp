// Host memory and a directory below KV memory: pages that were evicted come back, also after a
// restart. The library keeps the books; what is copied, the runner copies.
#ifndef ENGINE_SERVE_TIERS_HPP
#define ENGINE_SERVE_TIERS_HPP

#include <radixkv.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace engine {

struct TierSettings {
    /// 0: no tiers.
    std::uint64_t host_bytes = 0;
    /// Empty: host memory alone.
    std::filesystem::path directory;
    std::uint64_t disk_bytes = 0;
};

class Tiers {
public:
    /// The model's folder says whose KV it is. Throws rkv::Error.
    Tiers(rkv::Cache& cache, rkv::Runner& runner, const TierSettings& settings,
          const std::filesystem::path& model);
    /// Waits a few seconds for what is being written.
    ~Tiers();
    Tiers(const Tiers&) = delete;
    Tiers& operator=(const Tiers&) = delete;

    /// Whether there is anything to fetch for a sequence.
    [[nodiscard]] static bool looks_good(rkv::Sequence& sequence);
    /// Whether pages of a sequence are on their way.
    [[nodiscard]] bool fetch(rkv::Sequence& sequence);
    /// Copies what is to be copied; whether there was anything. What was fetched is in ended().
    bool step();
    [[nodiscard]] const std::vector<rkv_fetch_end>& ended() const noexcept { return ended_; }

private:
    rkv::Cache& cache_;
    rkv::Runner& runner_;
    std::array<rkv_copy_job, 32> jobs_{};
    std::array<rkv_fetch_end, 32> ends_{};
    std::vector<std::uint64_t> done_;
    std::vector<rkv_fetch_end> ended_;
};

}  // namespace engine

#endif  // ENGINE_SERVE_TIERS_HPP
