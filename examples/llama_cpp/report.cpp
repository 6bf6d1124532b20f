#include "report.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace example {

namespace {

double median_of(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

std::string name(const Request& request) {
    return "chat " + std::to_string(request.chat + 1) + ", turn " +
           std::to_string(request.turn + 1) + (request.again ? ", again" : "");
}

/// A sum over all requests.
template <class Part> double sum(const Round& round, Part part) {
    double all = 0;
    for (const Request& request : round.requests) all += static_cast<double>(part(request.reply));
    return all;
}

std::string difference(const Request& one, const Request& other) {
    if (one.reply.tokens != other.reply.tokens) return name(one) + ": other tokens";
    for (std::size_t i = 0; i < one.reply.digests.size(); ++i) {
        const std::uint64_t a = one.reply.digests[i], b = other.reply.digests[i];
        if (a != b && a != 0 && b != 0)
            return name(one) + ": other probabilities for token " + std::to_string(i);
    }
    return "";
}

}  // namespace

Round Series::median() const {
    Round result = rounds.front();
    std::vector<double> times(rounds.size());
    const auto median_over = [&](auto time) {
        std::transform(rounds.begin(), rounds.end(), times.begin(), time);
        return median_of(times);
    };
    for (std::size_t i = 0; i < result.requests.size(); ++i) {
        result.requests[i].reply.ttft_seconds = median_over(
            [i](const Round& round) { return round.requests[i].reply.ttft_seconds; });
    }
    result.seconds = median_over([](const Round& round) { return round.seconds; });
    return result;
}

std::string difference(const std::vector<Series>& all) {
    const Round& expected = all.front().rounds.front();
    for (const Series& series : all) {
        for (const Round& round : series.rounds) {
            for (std::size_t i = 0; i < round.requests.size(); ++i) {
                const std::string found = difference(expected.requests[i], round.requests[i]);
                if (!found.empty()) return series.name + ": " + found;
            }
        }
    }
    return "";
}

void print_requests(const Round& without, const Round& with) {
    std::printf("%-22s %8s %9s %12s %12s %8s\n", "request", "tokens", "restored", "TTFT without",
                "TTFT with", "faster");
    for (std::size_t i = 0; i < without.requests.size(); ++i) {
        const Reply &cold = without.requests[i].reply, &warm = with.requests[i].reply;
        std::printf("%-22s %8zu %9zu %9.2f ms %9.2f ms %7.1fx\n",
                    name(without.requests[i]).c_str(), cold.prompt_count, warm.restored_count,
                    1e3 * cold.ttft_seconds, 1e3 * warm.ttft_seconds,
                    cold.ttft_seconds / warm.ttft_seconds);
    }
}

void print_summary(const std::vector<Series>& all) {
    std::printf("%-20s %10s %8s %9s %9s %5s %5s %7s %8s %8s\n", "snapshots", "mean TTFT", "total",
                "restored", "read", "hits", "full", "stored", "evicted", "most MB");
    for (const Series& series : all) {
        const Round round = series.median();
        const rkv_snapshot_cache_stats& stats = round.stats;
        const double count = static_cast<double>(round.requests.size());
        const double ttft = sum(round, [](const Reply& reply) { return reply.ttft_seconds; });
        const double tokens = sum(round, [](const Reply& reply) { return reply.prompt_count; });
        const double restored = sum(round, [](const Reply& reply) { return reply.restored_count; });
        std::printf("%-20s %7.2f ms %6.2f s %9.0f %9.0f %5" PRIu64 " %5" PRIu64 " %7" PRIu64
                    " %8" PRIu64 " %8.2f\n",
                    series.name.c_str(), 1e3 * ttft / count, round.seconds, restored,
                    tokens - restored, stats.hit_count, stats.full_hit_count, stats.stored_count,
                    stats.evicted_count, static_cast<double>(round.most_bytes) / 1e6);
    }
}

}  // namespace example
