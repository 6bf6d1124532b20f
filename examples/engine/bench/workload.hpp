// What a benchmark sends, and when.
#ifndef ENGINE_BENCH_WORKLOAD_HPP
#define ENGINE_BENCH_WORKLOAD_HPP

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace engine {

struct BenchRequest {
    /// Seconds after the start.
    double arrival = 0;
    std::vector<std::uint32_t> prompt;
    /// Tokens at the beginning of the prompt that all requests have in common.
    std::size_t shared = 0;
    /// Tokens to generate: exactly so many, an end of text is passed over,
    std::size_t output = 0;
    /// unless it ends the output.
    bool ends_early = false;
    /// 0: greedy.
    double temperature = 0;
    std::uint64_t seed = 0;
    /// Not 0: a beam search of this width, of which all beams are returned.
    std::size_t beam_width = 0;
    /// Keep it for a request that goes on from it.
    bool retain = false;
    /// Go on from that one, with the suffix; then there is no prompt.
    std::string continuation_of;
    std::vector<std::uint32_t> suffix;
    std::string cache_salt;
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
    /// One line that says what it consists of, as the options have it.
    std::string description;
    std::vector<BenchRequest> requests;

    [[nodiscard]] std::size_t prompt_tokens() const;
    /// The longest prompt with its output.
    [[nodiscard]] std::size_t longest() const;
};

[[nodiscard]] const std::vector<std::string>& workload_names();

/// What a description says of a pace that is not its own: "", or ", 4 times as fast".
[[nodiscard]] std::string pace(const WorkloadOptions& options);

/// Numbers that are the same on every machine: the distributions of <random> are not.
class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}

    /// Uniform from `least` to `most`.
    std::size_t range(std::size_t least, std::size_t most) {
        return least + static_cast<std::size_t>(engine_() % (most - least + 1));
    }
    /// Uniform in (0, 1].
    double unit() { return (static_cast<double>(engine_() >> 11) + 1) * 0x1p-53; }

private:
    std::mt19937_64 engine_;
};

/// Exactly `count` tokens of English words in bytes.
[[nodiscard]] std::vector<std::uint32_t> words_of(Random& random, std::size_t count);

/// Equal options give equal workloads. Prompts are English words in bytes.
[[nodiscard]] Workload make_workload(const WorkloadOptions& options);

}  // namespace engine

#endif  // ENGINE_BENCH_WORKLOAD_HPP
