// A workload of two stages: the first samples an answer, the second goes on from it with a beam
// search. It is run with the second stage as a continuation, and with the whole text as a prompt.
#ifndef ENGINE_BENCH_TWO_STAGE_HPP
#define ENGINE_BENCH_TWO_STAGE_HPP

#include "bench/client.hpp"
#include "bench/run.hpp"
#include "bench/workload.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace engine {

struct TwoStageWorkload {
    std::string description;
    /// The prompt of each user, and what follows the answer to it: a suffix and a search.
    struct User {
        BenchRequest first, second;
    };
    std::vector<User> users;
};

/// The options' max_output bounds the first stage.
[[nodiscard]] TwoStageWorkload make_two_stage(const WorkloadOptions& options);

struct TwoStageRun {
    std::string label;
    Clock::time_point start;
    struct User {
        BenchRecord first, second;
        Clock::time_point first_sent, second_sent;
    };
    /// In the order of the workload.
    std::vector<User> users;
};

/// How the second stage comes by what the first has computed.
struct TwoStageMode {
    std::string label;
    /// As a continuation; else as a prompt.
    bool continues;
    /// Of both stages.
    std::string cache_salt;
};

/// The second stage is sent as soon as the first is answered. Throws std::runtime_error when a
/// request fails.
[[nodiscard]] TwoStageRun run_two_stage(const TwoStageWorkload& workload, Client& client,
                                        const TwoStageMode& mode);

/// Times in seconds.
struct TwoStageSummary {
    Percentiles first_time, second_first_token, second_time;
    /// From the first request until the last answer.
    double seconds = 0;
    /// Of the prompts of the second stage: found or inherited, and inherited.
    double reused_part = 0, inherited_part = 0;
};

[[nodiscard]] TwoStageSummary summarize(const TwoStageRun& run);

/// Whether every sample and every beam is the same in all runs, and in the same order.
[[nodiscard]] bool same_results(const std::vector<TwoStageRun>& runs);

/// Columns are the runs; the last column compares the last one with the first.
[[nodiscard]] std::string two_stage_table(const TwoStageWorkload& workload,
                                          const std::string& setting,
                                          const std::vector<TwoStageRun>& runs);
[[nodiscard]] std::string two_stage_json(const TwoStageWorkload& workload,
                                         const std::string& setting,
                                         const std::vector<TwoStageRun>& runs);

}  // namespace engine

#endif  // ENGINE_BENCH_TWO_STAGE_HPP
