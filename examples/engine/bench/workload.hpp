// What a benchmark sends, and when.
#ifndef ENGINE_BENCH_WORKLOAD_HPP
#define ENGINE_BENCH_WORKLOAD_HPP

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace engine {

struct BenchRequest {
    /// Seconds after the start.
    double arrival = 0;
    std::vector<std::uint32_t> prompt;
    /// Tokens at the beginning of the prompt that all requests have in common.
    std::size_t shared = 0;
    /// Tokens to generate: exactly so many, an end of text is passed over.
    std::size_t output = 0;
};

struct WorkloadOptions {
    std::string name;
    /// Arrivals per second, and bursts, come this many times as fast.
    double speed = 1;
    /// No request generates more tokens than this; 0: as the workload says.
    std::size_t max_output = 0;
    /// Only so many requests; 0: all.
    std::size_t request_count = 0;
    std::uint64_t seed = 1;
};

struct Workload {
    std::string name;
    /// One line that says what it consists of.
    std::string description;
    std::vector<BenchRequest> requests;

    [[nodiscard]] std::size_t prompt_tokens() const;
    /// The longest prompt with its output.
    [[nodiscard]] std::size_t longest() const;
};

[[nodiscard]] const std::vector<std::string>& workload_names();

/// Equal options give equal workloads. Prompts are English words in bytes.
[[nodiscard]] Workload make_workload(const WorkloadOptions& options);

}  // namespace engine

#endif  // ENGINE_BENCH_WORKLOAD_HPP
