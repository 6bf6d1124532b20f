#include "bench/run.hpp"

#include "bench/progress.hpp"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace engine {

namespace {

/// Records as they come in.
class Collector {
public:
    explicit Collector(std::size_t count) : records_(count) {}

    void put(std::size_t index, BenchRecord record) {
        const std::lock_guard<std::mutex> lock(mutex_);
        records_[index] = std::move(record);
        ++done_;
        arrived_.notify_one();
    }
    /// Waits until this time, or until all records are here; returns how many are.
    std::size_t wait_until(Clock::time_point time) {
        std::unique_lock<std::mutex> lock(mutex_);
        arrived_.wait_until(lock, time, [&] { return done_ == records_.size(); });
        return done_;
    }
    std::vector<BenchRecord> take() { return std::move(records_); }

private:
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::vector<BenchRecord> records_;
    std::size_t done_ = 0;
};

Clock::duration seconds(double count) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

double between(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

void check(const Workload& workload, const std::vector<BenchRecord>& records) {
    for (std::size_t i = 0; i < records.size(); ++i) {
        const std::string which = "request " + std::to_string(i + 1) + ": ";
        if (!records[i].error.empty()) throw std::runtime_error(which + records[i].error);
        const BenchRequest& request = workload.requests[i];
        const std::size_t count = records[i].tokens.size();
        // What ends early has a token at least: its end.
        const std::size_t least = request.ends_early ? 1 : request.output;
        if (count < least || count > request.output)
            throw std::runtime_error(which + "generated " + std::to_string(count) + " tokens");
    }
}

}  // namespace

BenchRun run_workload(const Workload& workload, Client& client, std::string label) {
    const std::size_t count = workload.requests.size();
    // Shared with the requests: they may end after this function, when one of them fails.
    const auto collector = std::make_shared<Collector>(count);
    Progress progress(workload.name + ", " + label, count);
    BenchRun run{std::move(label), Clock::now(), {}};
    constexpr auto tick = std::chrono::milliseconds(100);
    for (std::size_t i = 0; i < count; ++i) {
        const Clock::time_point due = run.start + seconds(workload.requests[i].arrival);
        while (Clock::now() < due)
            progress.show(collector->wait_until(std::min<Clock::time_point>(
                due, Clock::now() + tick)));
        client.start(workload.requests[i], [collector, i](BenchRecord record) {
            collector->put(i, std::move(record));
        });
    }
    for (std::size_t done = 0; done < count;) {
        done = collector->wait_until(Clock::now() + tick);
        progress.show(done);
    }
    run.records = collector->take();
    check(workload, run.records);
    return run;
}

Percentiles percentiles(std::vector<double> values) {
    if (values.empty()) return {};
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
        const double rank = std::ceil(share * static_cast<double>(values.size()));
        return values[static_cast<std::size_t>(rank) - 1];
    };
    return {at(0.50), at(0.99)};
}

double BenchSummary::hit_rate() const {
    return prompt_tokens == 0
               ? 0
               : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
}

BenchSummary summarize(const Workload& workload, const BenchRun& run) {
    BenchSummary summary;
    std::vector<double> gaps, latencies;
    Clock::time_point prompts_done = run.start;
    for (std::size_t i = 0; i < run.records.size(); ++i) {
        const BenchRecord& record = run.records[i];
        const Clock::time_point due = run.start + seconds(workload.requests[i].arrival);
        const std::vector<Clock::time_point>& times = record.token_times;
        summary.first_token_times.push_back(between(due, times.front()));
        if (due < prompts_done) ++summary.queued_count;
        prompts_done = std::max(prompts_done, times.front());
        latencies.push_back(between(due, times.back()));
        for (std::size_t t = 1; t < times.size(); ++t)
            gaps.push_back(between(times[t - 1], times[t]));
        summary.prompt_tokens += record.prompt_tokens;
        summary.cached_tokens += record.cached_tokens;
        summary.generated_tokens += record.tokens.size();
        summary.seconds = std::max(summary.seconds, between(run.start, times.back()));
    }
    summary.first_token = percentiles(summary.first_token_times);
    if (summary.first_token_times.size() > 1)
        summary.first_token_later = percentiles(
            {summary.first_token_times.begin() + 1, summary.first_token_times.end()});
    summary.inter_token = percentiles(std::move(gaps));
    summary.latency = percentiles(std::move(latencies));
    summary.tokens_per_second = static_cast<double>(summary.generated_tokens) / summary.seconds;
    summary.requests_per_second = static_cast<double>(run.records.size()) / summary.seconds;
    return summary;
}

bool same_outputs(const BenchRun& a, const BenchRun& b) {
    return std::equal(a.records.begin(), a.records.end(), b.records.begin(), b.records.end(),
                      [](const BenchRecord& x, const BenchRecord& y) {
                          return x.tokens == y.tokens;
                      });
}

}  // namespace engine
