// A benchmark's results as a table and as JSON.
#ifndef ENGINE_BENCH_REPORT_HPP
#define ENGINE_BENCH_REPORT_HPP

#include "bench/run.hpp"
#include "bench/tiers.hpp"
#include "bench/workload.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace engine {

/// One workload with one or two configurations.
struct BenchReport {
    Workload workload;
    /// What was run on what: model, threads, transport.
    std::string setting;
    std::vector<BenchRun> runs;
    std::vector<BenchSummary> summaries;
    /// With two runs: whether the outputs are the same.
    std::optional<bool> identical;
    /// One prompt from each place where its KV can be; empty where that was not measured.
    std::vector<TierTime> tiers;
    /// Say where the time of those went.
    bool timings = false;

    /// Tokens of a prompt that no other request has, by its length; the mean over all requests but
    /// the first. 1 when nothing is shared.
    [[nodiscard]] double unshared_part() const;
    /// With two runs: the later run's median time to first token, by the earlier one's; without the
    /// first request.
    [[nodiscard]] double first_token_ratio() const;
};

[[nodiscard]] std::string report_table(const BenchReport& report);
/// An object of JSON for each report.
[[nodiscard]] std::vector<std::string> report_json(const std::vector<BenchReport>& reports);
/// Objects as an array.
[[nodiscard]] std::string json_list(const std::vector<std::string>& objects);

}  // namespace engine

#endif  // ENGINE_BENCH_REPORT_HPP
