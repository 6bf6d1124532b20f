// What is counted. Written by the engine's thread, read by any.
#ifndef ENGINE_SERVE_METRICS_HPP
#define ENGINE_SERVE_METRICS_HPP

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace engine {

/// Seconds by bucket, in the shape of a Prometheus histogram.
class Histogram {
public:
    static constexpr std::array<double, 16> limits = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                      0.1,   0.25,   0.5,   1,    2.5,   5,
                                                      10,    25,     50,    100};

    void observe(double seconds) noexcept;
    [[nodiscard]] std::uint64_t count() const noexcept;
    [[nodiscard]] double sum() const noexcept { return sum_.load(std::memory_order_relaxed); }
    /// Appends the lines of a histogram in Prometheus' text format.
    void write(const std::string& name, std::string& out) const;

private:
    std::array<std::atomic<std::uint64_t>, limits.size() + 1> counts_{};
    std::atomic<double> sum_{0};
};

struct Metrics {
    using Counter = std::atomic<std::uint64_t>;

    Counter finished_stop{0}, finished_length{0}, finished_cancelled{0}, finished_error{0};
    /// Cached: found by a lookup. Inherited: taken over from the request that was continued.
    Counter prompt_tokens{0}, cached_tokens{0}, inherited_tokens{0}, generated_tokens{0};
    /// Computed as drafts, and those of them that were drawn.
    Counter drafted_tokens{0}, accepted_tokens{0};
    /// Branches of drafts that held and whose KV was moved.
    Counter kept_branches{0};
    /// Brought from host memory or a disk.
    Counter fetched_tokens{0};
    /// Prompt tokens of requests whose first token is known, and those of them that were there,
    /// wherever.
    Counter answered_tokens{0}, found_tokens{0};
    /// Requests that found at least one token in the cache when they began, and the others; those
    /// that went on from a parent instead of looking, and continuations that had to look.
    Counter cache_hits{0}, cache_misses{0}, continuations{0}, continuation_fallbacks{0};
    /// Sequences that were forked from another one, and beams that nothing followed.
    Counter forks{0}, dropped_beams{0};
    /// States of recurrent layers that were saved for others to begin with, and those for which
    /// there was no page.
    Counter saved_states{0}, unsaved_states{0};
    Counter preemptions{0}, steps{0}, computed_tokens{0};
    /// Now.
    Counter waiting{0}, running{0};
    Histogram time_to_first_token, inter_token_latency, step_time;
};

}  // namespace engine

#endif  // ENGINE_SERVE_METRICS_HPP
