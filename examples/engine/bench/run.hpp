// Sends a workload on time and sums up what came back.
#ifndef ENGINE_BENCH_RUN_HPP
#define ENGINE_BENCH_RUN_HPP

#include "bench/client.hpp"
#include "bench/workload.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace engine {

struct BenchRun {
    /// E.g. "caching on".
    std::string label;
    Clock::time_point start;
    /// In the order of the workload.
    std::vector<BenchRecord> records;
};

/// Requests are sent when they are due, whether the earlier ones are answered or not. Throws
/// std::runtime_error when a request fails.
[[nodiscard]] BenchRun run_workload(const Workload& workload, Client& client, std::string label);

struct Percentiles {
    double p50 = 0, p99 = 0;
};

/// The smallest value that at least so many percent of the values don't exceed. 0 of none.
[[nodiscard]] Percentiles percentiles(std::vector<double> values);

/// Times in seconds, since the moment when a request was due.
struct BenchSummary {
    /// Of every request.
    std::vector<double> first_token_times;
    Percentiles first_token;
    /// Without the first request, which can find nothing.
    Percentiles first_token_later;
    Percentiles inter_token, latency;
    double tokens_per_second = 0, requests_per_second = 0, seconds = 0;
    std::size_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    /// Requests that were due before all earlier ones had their first token. When they are many,
    /// times to first token are those of a queue.
    std::size_t queued_count = 0;

    /// Prompt tokens found in the cache.
    [[nodiscard]] double hit_rate() const;
};

[[nodiscard]] BenchSummary summarize(const Workload& workload, const BenchRun& run);

/// Whether each request generated the same tokens in both.
[[nodiscard]] bool same_outputs(const BenchRun& a, const BenchRun& b);

}  // namespace engine

#endif  // ENGINE_BENCH_RUN_HPP
