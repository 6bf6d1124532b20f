// One prompt from each place where its KV can be.
#ifndef ENGINE_BENCH_TIERS_HPP
#define ENGINE_BENCH_TIERS_HPP

#include "bench/workload.hpp"
#include "serve/engine.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace engine {

struct TierTime {
    /// Where it came from.
    std::string from;
    /// To the first token.
    double seconds = 0;
    std::size_t cached_tokens = 0;
    std::vector<std::uint32_t> tokens;
    /// Of the seconds, what steps spent on each work.
    std::array<double, work_names.size()> work{};
    /// Tokens that are there if the place lost nothing: fewer were found where it was too small.
    std::size_t expected_tokens = 0;
};

/// Asks for one request: computed, from KV memory, from host memory when others have taken its
/// pages, and by another engine that finds the directory of the first. Each is alone, and says what
/// its steps spent if the request is for one token. Throws
/// std::runtime_error when a request fails.
[[nodiscard]] std::vector<TierTime> measure_tiers(EngineConfig config,
                                                  const BenchRequest& request);

}  // namespace engine

#endif  // ENGINE_BENCH_TIERS_HPP
