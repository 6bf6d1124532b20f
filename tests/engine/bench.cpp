// B12: the workloads are what they are said to be, the numbers mean what their names say, and a run
// through the engine and over HTTP yields the same outputs.
#include "bench/chart.hpp"
#include "bench/client.hpp"
#include "bench/report.hpp"
#include "bench/run.hpp"
#include "bench/workload.hpp"
#include "fixture.hpp"
#include "http/server.hpp"

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

using namespace test;

namespace {

engine::Workload workload(const std::string& name, std::size_t requests = 0, double speed = 1,
                          std::size_t max_output = 0) {
    engine::WorkloadOptions options;
    options.name = name;
    options.request_count = requests;
    options.speed = speed;
    options.max_output = max_output;
    return engine::make_workload(options);
}

bool near(double a, double b) { return std::abs(a - b) < 1e-9; }

bool within(std::size_t value, std::size_t least, std::size_t most) {
    return value >= least && value <= most;
}

/// A record whose tokens come at these seconds after `start`.
engine::BenchRecord record(engine::Clock::time_point start, const std::vector<double>& times) {
    engine::BenchRecord made;
    for (const double time : times)
        made.token_times.push_back(start + std::chrono::duration_cast<engine::Clock::duration>(
                                               std::chrono::duration<double>(time)));
    made.tokens.assign(times.size(), 7);
    made.prompt_tokens = 100;
    made.cached_tokens = 40;
    return made;
}

/// A server that answers everything with the same.
class OtherServer {
public:
    OtherServer(int status, const std::string& text) {
        server_.Post("/v1/completions", [status, text](const auto&, httplib::Response& response) {
            response.status = status;
            response.set_content(text, "text/event-stream");
        });
        port_ = server_.bind_to_any_port("127.0.0.1");
        thread_ = std::thread([this] { server_.listen_after_bind(); });
    }
    OtherServer(const OtherServer&) = delete;
    OtherServer& operator=(const OtherServer&) = delete;
    ~OtherServer() {
        while (!server_.is_running()) std::this_thread::yield();
        server_.stop();
        thread_.join();
    }
    /// What comes of a request of one token.
    [[nodiscard]] engine::BenchRecord ask() const {
        engine::HttpClient client("http://127.0.0.1:" + std::to_string(port_));
        return engine::run_workload(workload("prefix_caching", 1, 1, 1), client, "other")
            .records.front();
    }

private:
    httplib::Server server_;
    int port_ = 0;
    std::thread thread_;
};

/// One token and the usage, as events.
std::string events(const std::string& token, const std::string& details) {
    return "data: {\"choices\": [{\"index\": 0, \"text\": \"a\"" + token + "}]}\n\n" +
           "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 5, \"completion_tokens\": 1" +
           details + "}}\n\ndata: [DONE]\n\n";
}

}  // namespace

static void b12_prefix_caching_shares_its_system_prompt() {
    const engine::Workload made = workload("prefix_caching");
    CHECK_EQ(made.requests.size(), 48U);
    std::set<std::vector<std::uint32_t>> different;
    for (std::size_t i = 0; i < made.requests.size(); ++i) {
        const engine::BenchRequest& request = made.requests[i];
        CHECK_EQ(request.shared, 1024U);
        CHECK(within(request.prompt.size() - 1024, 32, 128));
        CHECK(std::equal(request.prompt.begin(), request.prompt.begin() + 1024,
                         made.requests[0].prompt.begin()));
        CHECK_EQ(request.output, 256U);
        CHECK(near(request.arrival, static_cast<double>(i) / 8));
        different.insert(request.prompt);
    }
    CHECK_EQ(different.size(), 48U);
}

static void b12_other_workloads_have_their_lengths_and_arrivals() {
    const engine::Workload batching = workload("continuous_batching");
    CHECK_EQ(batching.requests.size(), 32U);
    for (std::size_t i = 0; i < 32; ++i) {
        CHECK(within(batching.requests[i].prompt.size(), 64, 512));
        CHECK(within(batching.requests[i].output, 64, 256));
        CHECK(near(batching.requests[i].arrival, static_cast<double>(i) / 4));
    }
    const engine::Workload paged = workload("paged_attention");
    CHECK_EQ(paged.requests.size(), 48U);
    for (std::size_t i = 0; i < 48; ++i) {
        const std::size_t length = paged.requests[i].prompt.size();
        CHECK(i % 2 == 0 ? within(length, 32, 128) : within(length, 512, 1024));
        CHECK(within(paged.requests[i].output, 128, 512));
        CHECK(near(paged.requests[i].arrival, static_cast<double>(i / 8) / 2));
    }
    const engine::Workload chunked = workload("chunked_prefill");
    CHECK_EQ(chunked.requests.size(), 48U);
    for (std::size_t i = 0; i < 48; ++i) {
        const std::size_t length = chunked.requests[i].prompt.size();
        CHECK(i % 4 == 3 ? within(length, 64, 128) : within(length, 1024, 2048));
        CHECK(i == 0 || chunked.requests[i].arrival > chunked.requests[i - 1].arrival);
    }
    // 48 arrivals of a Poisson process at 6 a second take 8 seconds, 1.2 give or take.
    CHECK(chunked.requests.back().arrival > 4 && chunked.requests.back().arrival < 12);
}

static void b12_workloads_are_repeatable_and_scale() {
    for (const std::string& name : engine::workload_names()) {
        const engine::Workload a = workload(name), b = workload(name, 10, 4, 9);
        CHECK_EQ(b.requests.size(), 10U);
        for (std::size_t i = 0; i < 10; ++i) {
            CHECK(a.requests[i].prompt == b.requests[i].prompt);
            CHECK(near(a.requests[i].arrival, 4 * b.requests[i].arrival));
            CHECK_EQ(b.requests[i].output, 9U);
        }
    }
}

static void b12_descriptions_say_what_is_sent() {
    const std::vector<std::pair<std::string, std::string>> parts = {
        {"prefix_caching", ", 256 to generate, 8 a second"},
        {"continuous_batching", ", 64-256 to generate, 4 a second"},
        {"paged_attention", ", 128-512 to generate, 8 every half second"},
        {"chunked_prefill", ", 64-256 to generate, Poisson 6 a second"}};
    for (const auto& [name, part] : parts) {
        const engine::Workload made = workload(name);
        const std::string& all = made.description;
        CHECK(all.size() > part.size() && all.substr(all.size() - part.size()) == part);
    }
    const std::string less = workload("continuous_batching", 0, 2.5, 100).description;
    CHECK(less == "prompts of 64-512 tokens, 64-100 to generate, 4 a second, 2.5 times as fast");
    const engine::Workload least = workload("prefix_caching", 0, 1, 64);
    CHECK(least.description.find(", 64 to generate,") != std::string::npos);
}

/// With `off` and `on` seconds to the first token of every request, 8 a second.
static std::string verdict(double off, double on) {
    engine::BenchReport report;
    report.workload = workload("prefix_caching", 8, 1, 2);
    for (const double time : {off, on}) {
        engine::BenchRun run;
        run.start = engine::Clock::now();
        for (std::size_t i = 0; i < 8; ++i) {
            const double first = static_cast<double>(i) / 8 + time;
            run.records.push_back(record(run.start, {first, first + 0.01}));
        }
        report.runs.push_back(run);
        report.summaries.push_back(engine::summarize(report.workload, run));
    }
    return engine::report_table(report);
}

static void b12_a_report_tells_computing_from_waiting() {
    const std::string quiet = verdict(0.1, 0.01), busy = verdict(1, 0.01);
    CHECK(quiet.find("the first token takes 0.100 of the time") != std::string::npos);
    CHECK(quiet.find("waiting") == std::string::npos);
    CHECK(busy.find("the first token takes 0.010 of the time") != std::string::npos);
    CHECK(busy.find("mostly waiting: 7 of 8 requests") != std::string::npos);
}

static void b12_numbers_mean_what_their_names_say() {
    std::vector<double> hundred;
    for (int i = 100; i >= 1; --i) hundred.push_back(i);
    CHECK_EQ(engine::percentiles(hundred).p50, 50.0);
    CHECK_EQ(engine::percentiles(hundred).p99, 99.0);
    CHECK_EQ(engine::percentiles({3}).p99, 3.0);

    engine::Workload made = workload("prefix_caching", 2, 1, 3);
    engine::BenchRun run;
    run.start = engine::Clock::now();
    run.records = {record(run.start, {0.5, 0.6, 0.8}), record(run.start, {0.325, 1.0, 2.0})};
    const engine::BenchSummary summary = engine::summarize(made, run);
    // The second request was due after an eighth of a second.
    CHECK(near(summary.first_token_times[0], 0.5) && near(summary.first_token_times[1], 0.2));
    CHECK(near(summary.first_token.p50, 0.2) && near(summary.first_token.p99, 0.5));
    CHECK(near(summary.first_token_later.p50, 0.2));
    CHECK(near(summary.inter_token.p50, 0.2) && near(summary.inter_token.p99, 1.0));
    CHECK(near(summary.latency.p50, 0.8) && near(summary.latency.p99, 1.875));
    CHECK(near(summary.tokens_per_second, 3.0) && near(summary.requests_per_second, 1.0));
    CHECK(near(summary.hit_rate(), 0.4));
}

static void b12_runs_with_and_without_caching_and_over_http_agree() {
    const Checkpoint checkpoint;
    engine::EngineConfig config = tiny_config(checkpoint);
    config.kv.page_count = 4096;
    engine::BenchReport report;
    report.workload = workload("prefix_caching", 6, 20, 12);
    for (const bool caching : {false, true}) {
        config.prefix_caching = caching;
        engine::Engine served(config);
        engine::DirectClient client(served);
        report.runs.push_back(
            engine::run_workload(report.workload, client, caching ? "on" : "off"));
        report.summaries.push_back(engine::summarize(report.workload, report.runs.back()));
    }
    CHECK(engine::same_outputs(report.runs[0], report.runs[1]));
    CHECK_EQ(report.summaries[0].hit_rate(), 0.0);
    // With 20 times the pace all but the first may find only a part of it.
    CHECK(report.summaries[1].cached_tokens > 0);
    report.identical = true;

    engine::Engine served(config);
    engine::ServerConfig server_config;
    server_config.port = 0;
    engine::Server server(server_config, served);
    std::thread thread([&] { server.run(); });
    {
        engine::HttpClient client("http://127.0.0.1:" + std::to_string(server.port()));
        const engine::BenchRun run = engine::run_workload(report.workload, client, "http");
        CHECK(engine::same_outputs(report.runs[0], run));
        CHECK_EQ(engine::summarize(report.workload, run).prompt_tokens,
                 report.workload.prompt_tokens());
    }
    server.shutdown();
    thread.join();

    const auto json = nlohmann::json::parse(engine::json_list(engine::report_json({report})));
    CHECK_EQ(json[0]["runs"].size(), 2U);
    CHECK_EQ(json[0]["runs"][1]["ttft_each_s"].size(), 6U);
    CHECK(json[0]["unshared_part"] > 0.03 && json[0]["unshared_part"] < 0.12);
    CHECK(json[0]["ttft_ratio"] > 0.0);
    // Of one run, whose answers were compared with others.
    engine::BenchReport one = report;
    one.runs.pop_back();
    one.summaries.pop_back();
    const auto single = nlohmann::json::parse(engine::json_list(engine::report_json({one})));
    CHECK(single[0]["outputs_identical"] == true && !single[0].contains("ttft_ratio"));
    CHECK(engine::report_table(report).find("outputs identical: yes") != std::string::npos);
    const std::string svg = engine::chart_svg(report);
    std::size_t marks = 0;
    for (const char* shape : {"<circle", "<rect x"})
        for (std::size_t at = 0; (at = svg.find(shape, at)) != std::string::npos; ++at) ++marks;
    CHECK_EQ(marks, 2U * 6U + 2U);  // and two in the legend
    CHECK(svg.find(", 12 to generate, 8 a second, 20 times as fast<") != std::string::npos);
    CHECK(svg.find("nan") == std::string::npos && svg.find("</svg>") != std::string::npos);
}

/// A server that refuses, or is not there, fails the run with a reason.
static void b12_requests_that_fail_fail_the_run() {
    const Checkpoint checkpoint;
    engine::EngineConfig config = tiny_config(checkpoint);
    config.max_positions = 256;
    engine::Engine served(config);
    engine::DirectClient direct(served);
    const engine::Workload made = workload("prefix_caching", 1);
    CHECK_REFUSES(engine::InvalidRequest, "limit", (void)run_workload(made, direct, "direct"));
    engine::HttpClient nobody("http://127.0.0.1:1");
    CHECK_REFUSES(std::runtime_error, "request 1: no answer",
                  (void)run_workload(made, nobody, "http"));
}

/// Not every server says what it found, or which tokens it generated.
static void b12_other_servers_say_less() {
    const std::string token = ", \"token_ids\": [97]";
    for (const char* details :
         {"", ", \"prompt_tokens_details\": null", ", \"prompt_tokens_details\": {}",
          ", \"prompt_tokens_details\": {\"cached_tokens\": null}"}) {
        const engine::BenchRecord got = OtherServer(200, events(token, details)).ask();
        CHECK_EQ(got.prompt_tokens, 5U);
        CHECK_EQ(got.cached_tokens, 0U);
        CHECK_EQ(got.tokens.size(), 1U);
    }
    for (const char* none : {"", ", \"token_ids\": null"})
        CHECK_REFUSES(std::runtime_error, "request 1: the server tells no token_ids",
                      (void)OtherServer(200, events(none, "")).ask());
}

/// Comments keep a connection alive, and lines may end as those of HTTP do.
static void b12_events_are_lines_of_data() {
    std::string text = ": ping\n\nevent: completion\n" + events(", \"token_ids\": [97]", "");
    CHECK_EQ(OtherServer(200, text).ask().tokens.size(), 1U);
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
        text.insert(at, 1, '\r');
    CHECK_EQ(OtherServer(200, text).ask().tokens.size(), 1U);
}

static void b12_a_refusal_has_its_reason() {
    const std::string other = R"({"detail":"no such model"})";
    for (const auto& told :
         {std::pair<std::string, std::string>(R"({"error": {"message": "no"}})", "no"),
          {other, other}, {"no such model", "no such model"}})
        CHECK_REFUSES(std::runtime_error, "request 1: status 404: " + told.second,
                      (void)OtherServer(404, told.first).ask());
}

int main() {
    RUN(b12_prefix_caching_shares_its_system_prompt);
    RUN(b12_other_workloads_have_their_lengths_and_arrivals);
    RUN(b12_workloads_are_repeatable_and_scale);
    RUN(b12_descriptions_say_what_is_sent);
    RUN(b12_a_report_tells_computing_from_waiting);
    RUN(b12_numbers_mean_what_their_names_say);
    RUN(b12_runs_with_and_without_caching_and_over_http_agree);
    RUN(b12_requests_that_fail_fail_the_run);
    RUN(b12_other_servers_say_less);
    RUN(b12_events_are_lines_of_data);
    RUN(b12_a_refusal_has_its_reason);
    return 0;
}
