#include "bench/report.hpp"

#include "bench/table.hpp"

#include <nlohmann/json.hpp>

#include <functional>

namespace engine {

namespace {

using Json = nlohmann::ordered_json;

struct Line {
    const char* name;
    const char* pattern;
    std::function<double(const BenchSummary&)> value;
};

const std::vector<Line>& lines() {
    static const std::vector<Line> all = {
        {"TTFT P50, ms", "%.1f", [](const auto& s) { return s.first_token.p50 * 1e3; }},
        {"TTFT P99, ms", "%.1f", [](const auto& s) { return s.first_token.p99 * 1e3; }},
        {"TTFT P50 but the first, ms", "%.1f",
         [](const auto& s) { return s.first_token_later.p50 * 1e3; }},
        {"ITL P50, ms", "%.2f", [](const auto& s) { return s.inter_token.p50 * 1e3; }},
        {"ITL P99, ms", "%.2f", [](const auto& s) { return s.inter_token.p99 * 1e3; }},
        {"request P50, ms", "%.1f", [](const auto& s) { return s.latency.p50 * 1e3; }},
        {"request P99, ms", "%.1f", [](const auto& s) { return s.latency.p99 * 1e3; }},
        {"output tokens/s", "%.1f", [](const auto& s) { return s.tokens_per_second; }},
        {"requests/s", "%.2f", [](const auto& s) { return s.requests_per_second; }},
        {"hit rate, % of prompt tokens", "%.1f", [](const auto& s) { return s.hit_rate() * 100; }},
    };
    return all;
}

std::string verdicts(const BenchReport& report) {
    std::string text;
    if (report.identical)
        text += std::string("  outputs identical: ") + (*report.identical ? "yes" : "NO") + "\n";
    if (report.runs.size() != 2 || report.unshared_part() >= 1) return text;
    text += "  " + format("%.3f", report.unshared_part()) +
            " of a prompt is new; the first token takes " +
            format("%.3f", report.first_token_ratio()) +
            " of the time without caching (P50 but the first)\n";
    const std::size_t queued = report.summaries.front().queued_count;
    const std::size_t count = report.workload.requests.size();
    if (queued > count / 4)
        text += "  That time is mostly waiting: " + std::to_string(queued) + " of " +
                std::to_string(count) +
                " requests came before an earlier one had its first token.\n"
                "  This machine is too slow or too busy for their pace; --speed 0.25 is a quarter"
                " of it.\n";
    return text;
}

/// The last prompt alone, with caching on; the ratio is to computing it.
std::string tier_rows(const BenchReport& report) {
    std::string text;
    for (const TierTime& time : report.tiers) {
        std::vector<std::string> cells(report.runs.size());
        cells.back() = format("%.1f", time.seconds * 1e3);
        if (report.runs.size() == 2)
            cells.push_back(format("%.3f", time.seconds / report.tiers.front().seconds));
        text += table_row("TTFT, " + time.from + ", ms", cells);
    }
    for (const TierTime& time : report.tiers)
        if (time.cached_tokens < time.expected_tokens)
            text += "  Not all of the prompt was found in " + time.from + ": " +
                    std::to_string(time.cached_tokens) + " of " +
                    std::to_string(time.expected_tokens) + " tokens.\n";
    return text;
}

/// Of the same prompt: where the time went. What is no step's is waiting, for the engine's thread
/// to begin and for the client's to be told.
std::string work_table(const BenchReport& report) {
    std::string text = "\n";
    std::vector<std::string> cells;
    for (const TierTime& time : report.tiers) cells.push_back(time.from.substr(0, 11));
    text += table_row("of the time to first token, ms", cells);
    std::vector<double> others;
    for (const TierTime& time : report.tiers) others.push_back(time.seconds);
    for (std::size_t work = 0; work < work_names.size(); ++work) {
        for (std::size_t i = 0; i < cells.size(); ++i) {
            others[i] -= report.tiers[i].work[work];
            cells[i] = format("%.2f", report.tiers[i].work[work] * 1e3);
        }
        text += table_row(work_names[work], cells);
    }
    for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = format("%.2f", others[i] * 1e3);
    return text + table_row("outside of steps", cells);
}

Json work_json(const TierTime& time) {
    Json work = Json::object();
    for (std::size_t i = 0; i < work_names.size(); ++i) work[work_names[i]] = time.work[i];
    return work;
}

Json tiers_json(const std::vector<TierTime>& tiers) {
    Json all = Json::array();
    for (const TierTime& time : tiers)
        all.push_back({{"from", time.from},
                       {"ttft_s", time.seconds},
                       {"cached_tokens", time.cached_tokens},
                       {"work_s", work_json(time)}});
    return all;
}

Json percentiles_json(const Percentiles& values) {
    return {{"p50", values.p50}, {"p99", values.p99}};
}

Json summary_json(const BenchRun& run, const BenchSummary& summary) {
    return {{"label", run.label},
            {"ttft_s", percentiles_json(summary.first_token)},
            {"ttft_but_first_s", percentiles_json(summary.first_token_later)},
            {"itl_s", percentiles_json(summary.inter_token)},
            {"request_s", percentiles_json(summary.latency)},
            {"output_tokens_per_s", summary.tokens_per_second},
            {"requests_per_s", summary.requests_per_second},
            {"seconds", summary.seconds},
            {"queued_count", summary.queued_count},
            {"prompt_tokens", summary.prompt_tokens},
            {"cached_tokens", summary.cached_tokens},
            {"generated_tokens", summary.generated_tokens},
            {"hit_rate", summary.hit_rate()},
            {"ttft_each_s", summary.first_token_times}};
}

}  // namespace

double BenchReport::unshared_part() const {
    double sum = 0;
    const std::size_t count = workload.requests.size();
    for (std::size_t i = 1; i < count; ++i) {
        const BenchRequest& request = workload.requests[i];
        sum += static_cast<double>(request.prompt.size() - request.shared) /
               static_cast<double>(request.prompt.size());
    }
    return count > 1 ? sum / static_cast<double>(count - 1) : 1;
}

double BenchReport::first_token_ratio() const {
    return summaries.back().first_token_later.p50 / summaries.front().first_token_later.p50;
}

std::string report_table(const BenchReport& report) {
    std::string text = report.workload.name + ": " +
                       std::to_string(report.workload.requests.size()) + " requests; " +
                       report.workload.description + "\n  " + report.setting + "\n";
    std::vector<std::string> heads;
    for (const BenchRun& run : report.runs) heads.push_back(run.label);
    if (report.runs.size() == 2) heads.emplace_back("ratio");
    text += table_row("", heads);
    for (const Line& line : lines()) {
        std::vector<std::string> cells;
        for (const BenchSummary& summary : report.summaries)
            cells.push_back(format(line.pattern, line.value(summary)));
        const double base = line.value(report.summaries.front());
        if (report.runs.size() == 2)
            cells.push_back(base > 0 ? format("%.3f", line.value(report.summaries.back()) / base)
                                     : "");
        text += table_row(line.name, cells);
    }
    text += tier_rows(report) + verdicts(report);
    return report.timings ? text + work_table(report) : text;
}

std::vector<std::string> report_json(const std::vector<BenchReport>& reports) {
    std::vector<std::string> objects;
    for (const BenchReport& report : reports) {
        Json runs = Json::array();
        for (std::size_t i = 0; i < report.runs.size(); ++i)
            runs.push_back(summary_json(report.runs[i], report.summaries[i]));
        Json entry = {{"workload", report.workload.name},
                      {"description", report.workload.description},
                      {"setting", report.setting},
                      {"request_count", report.workload.requests.size()},
                      {"unshared_part", report.unshared_part()},
                      {"runs", runs}};
        if (report.identical) entry["outputs_identical"] = *report.identical;
        if (report.runs.size() == 2) entry["ttft_ratio"] = report.first_token_ratio();
        if (!report.tiers.empty()) entry["tiers"] = tiers_json(report.tiers);
        objects.push_back(entry.dump(2));
    }
    return objects;
}

std::string json_list(const std::vector<std::string>& objects) {
    std::string text;
    for (const std::string& object : objects) text += (text.empty() ? "[\n" : ",\n") + object;
    return text + (text.empty() ? "[]\n" : "\n]\n");
}

}  // namespace engine
