#include "bench/two_stage.hpp"

#include "bench/progress.hpp"
#include "bench/table.hpp"
#include "serve/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace engine {

namespace {

constexpr std::size_t user_count = 16, beam_width = 32, steps = 3, answer_length = 200;
constexpr const char* suffix = "</t>\n";

/// Answers as they come in, from any thread.
class Inbox {
public:
    struct Answer {
        std::size_t user;
        bool second;
        BenchRecord record;
    };
    void put(Answer answer) {
        const std::lock_guard<std::mutex> lock(mutex_);
        answers_.push_back(std::move(answer));
        arrived_.notify_one();
    }
    /// Waits until this time for at least one.
    std::vector<Answer> take_until(Clock::time_point time) {
        std::unique_lock<std::mutex> lock(mutex_);
        arrived_.wait_until(lock, time, [&] { return !answers_.empty(); });
        return std::exchange(answers_, {});
    }

private:
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::vector<Answer> answers_;
};

double between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

void check(std::size_t user, const BenchRequest& request, const BenchRecord& record) {
    const std::string which = "user " + std::to_string(user + 1) + ": ";
    if (!record.error.empty()) throw std::runtime_error(which + record.error);
    const std::size_t choices = std::max<std::size_t>(request.beam_width, 1);
    if (record.tokens.size() != request.output || record.other_choices.size() + 1 != choices)
        throw std::runtime_error(which + "generated " + std::to_string(record.tokens.size()) +
                                 " tokens in " +
                                 std::to_string(record.other_choices.size() + 1) + " choices");
}

/// The second request of a user, after the answer to the first.
BenchRequest second_of(const TwoStageWorkload::User& user, const BenchRecord& first,
                       const TwoStageMode& mode) {
    BenchRequest request = user.second;
    request.cache_salt = mode.cache_salt;
    if (mode.continues) {
        if (first.retained_id.empty()) throw std::runtime_error("the first stage was not retained");
        request.continuation_of = first.retained_id;
        return request;
    }
    request.prompt = user.first.prompt;
    for (const std::vector<std::uint32_t>* part : {&first.tokens, &user.second.suffix})
        request.prompt.insert(request.prompt.end(), part->begin(), part->end());
    request.suffix.clear();
    return request;
}

using Value = std::function<double(const TwoStageSummary&)>;

struct Line {
    const char* name;
    const char* pattern;
    Value value;
    bool compared;
};

const std::vector<Line>& lines() {
    static const std::vector<Line> all = {
        {"stage 2 TTFT P50, ms", "%.1f",
         [](const auto& s) { return s.second_first_token.p50 * 1e3; }, true},
        {"stage 2 TTFT P99, ms", "%.1f",
         [](const auto& s) { return s.second_first_token.p99 * 1e3; }, true},
        {"stage 2 total P50, ms", "%.1f", [](const auto& s) { return s.second_time.p50 * 1e3; },
         true},
        {"stage 2 total P99, ms", "%.1f", [](const auto& s) { return s.second_time.p99 * 1e3; },
         true},
        {"stage 1 total P50, ms", "%.1f", [](const auto& s) { return s.first_time.p50 * 1e3; },
         true},
        {"all users, s", "%.2f", [](const auto& s) { return s.seconds; }, true},
        {"stage 2 prompt reused, %", "%.1f", [](const auto& s) { return s.reused_part * 100; },
         false},
        {"of it inherited, %", "%.1f", [](const auto& s) { return s.inherited_part * 100; },
         false},
    };
    return all;
}

}  // namespace

TwoStageWorkload make_two_stage(const WorkloadOptions& options) {
    Random random(options.seed);
    const std::size_t users = options.request_count > 0 ? options.request_count : user_count;
    const std::size_t output =
        options.max_output > 0 ? std::min(options.max_output, answer_length) : answer_length;
    TwoStageWorkload workload;
    workload.description = "prompts of 400-600 tokens, " + std::to_string(output) +
                           " sampled, 2 users a second; then a suffix of 5 tokens and " +
                           std::to_string(beam_width) + " beams for " + std::to_string(steps) +
                           " steps" + pace(options);
    for (std::size_t i = 0; i < users; ++i) {
        TwoStageWorkload::User user;
        user.first.arrival = static_cast<double>(i) / 2 / options.speed;
        user.first.prompt = words_of(random, random.range(400, 600));
        user.first.output = output;
        user.first.temperature = 0.8;
        user.first.seed = options.seed + i;
        user.second.suffix = encode(suffix);
        user.second.output = steps;
        user.second.beam_width = beam_width;
        workload.users.push_back(std::move(user));
    }
    return workload;
}

TwoStageRun run_two_stage(const TwoStageWorkload& workload, Client& client,
                          const TwoStageMode& mode) {
    const std::size_t count = workload.users.size();
    // Shared with the requests: they may end after this function, when one of them fails.
    const auto inbox = std::make_shared<Inbox>();
    Progress progress("two_stage, " + mode.label, count);
    TwoStageRun run{mode.label, Clock::now(), {}};
    run.users.resize(count);
    const auto send = [&](std::size_t user, bool second, const BenchRequest& request) {
        client.start(request, [inbox, user, second](BenchRecord record) {
            inbox->put({user, second, std::move(record)});
        });
    };
    for (std::size_t sent = 0, done = 0; done < count;) {
        Clock::time_point until = Clock::now() + std::chrono::milliseconds(100);
        if (sent < count) {
            BenchRequest first = workload.users[sent].first;
            const Clock::time_point due =
                run.start + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(first.arrival));
            if (Clock::now() >= due) {
                first.retain = mode.continues;
                first.cache_salt = mode.cache_salt;
                run.users[sent].first_sent = Clock::now();
                send(sent++, false, first);
                continue;
            }
            until = std::min<Clock::time_point>(until, due);
        }
        for (Inbox::Answer& answer : inbox->take_until(until)) {
            const TwoStageWorkload::User& asked = workload.users[answer.user];
            TwoStageRun::User& user = run.users[answer.user];
            check(answer.user, answer.second ? asked.second : asked.first, answer.record);
            if (answer.second) {
                user.second = std::move(answer.record);
                progress.show(++done);
                continue;
            }
            user.first = std::move(answer.record);
            const BenchRequest second = second_of(asked, user.first, mode);
            user.second_sent = Clock::now();
            send(answer.user, true, second);
        }
    }
    return run;
}

TwoStageSummary summarize(const TwoStageRun& run) {
    TwoStageSummary summary;
    std::vector<double> first_times, first_tokens, second_times;
    double prompt = 0, cached = 0, inherited = 0;
    for (const TwoStageRun::User& user : run.users) {
        first_times.push_back(between(user.first_sent, user.first.finished));
        first_tokens.push_back(user.second.first_token_seconds);
        second_times.push_back(between(user.second_sent, user.second.finished));
        prompt += static_cast<double>(user.second.prompt_tokens);
        cached += static_cast<double>(user.second.cached_tokens);
        inherited += static_cast<double>(user.second.inherited_tokens);
        summary.seconds = std::max(summary.seconds, between(run.start, user.second.finished));
    }
    summary.first_time = percentiles(std::move(first_times));
    summary.second_first_token = percentiles(std::move(first_tokens));
    summary.second_time = percentiles(std::move(second_times));
    if (prompt > 0) summary.reused_part = cached / prompt;
    if (prompt > 0) summary.inherited_part = inherited / prompt;
    return summary;
}

bool same_results(const std::vector<TwoStageRun>& runs) {
    const auto same = [](const TwoStageRun::User& a, const TwoStageRun::User& b) {
        return a.first.tokens == b.first.tokens && a.second.tokens == b.second.tokens &&
               a.second.other_choices == b.second.other_choices;
    };
    return std::all_of(runs.begin(), runs.end(), [&](const TwoStageRun& run) {
        const std::vector<TwoStageRun::User>& first = runs.front().users;
        return std::equal(first.begin(), first.end(), run.users.begin(), run.users.end(), same);
    });
}

std::string two_stage_table(const TwoStageWorkload& workload, const std::string& setting,
                            const std::vector<TwoStageRun>& runs) {
    std::string text = "two_stage: " + std::to_string(workload.users.size()) + " users; " +
                       workload.description + "\n  " + setting + "\n";
    std::vector<std::string> heads;
    std::vector<TwoStageSummary> summaries;
    for (const TwoStageRun& run : runs) {
        heads.push_back(run.label);
        summaries.push_back(summarize(run));
    }
    if (runs.size() > 1) heads.emplace_back("last/first");
    text += table_row("", heads);
    for (const Line& line : lines()) {
        std::vector<std::string> cells;
        for (const TwoStageSummary& summary : summaries)
            cells.push_back(format(line.pattern, line.value(summary)));
        if (runs.size() > 1 && line.compared)
            cells.push_back(format("%.3f", line.value(summaries.back()) /
                                               line.value(summaries.front())));
        text += table_row(line.name, cells);
    }
    if (runs.size() > 1)
        text += std::string("  identical results: ") + (same_results(runs) ? "yes" : "NO") + "\n";
    return text;
}

std::string two_stage_json(const TwoStageWorkload& workload, const std::string& setting,
                           const std::vector<TwoStageRun>& runs) {
    using Json = nlohmann::ordered_json;
    const auto both = [](const Percentiles& values) {
        return Json{{"p50", values.p50}, {"p99", values.p99}};
    };
    Json list = Json::array();
    for (const TwoStageRun& run : runs) {
        const TwoStageSummary summary = summarize(run);
        list.push_back({{"label", run.label},
                        {"stage_1_s", both(summary.first_time)},
                        {"stage_2_ttft_s", both(summary.second_first_token)},
                        {"stage_2_s", both(summary.second_time)},
                        {"seconds", summary.seconds},
                        {"stage_2_reused_part", summary.reused_part},
                        {"stage_2_inherited_part", summary.inherited_part}});
    }
    Json entry = {{"workload", "two_stage"},
                  {"description", workload.description},
                  {"setting", setting},
                  {"user_count", workload.users.size()},
                  {"runs", std::move(list)}};
    if (runs.size() > 1) entry["results_identical"] = same_results(runs);
    return entry.dump(2);
}

}  // namespace engine
