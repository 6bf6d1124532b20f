// C11: the two-stage workload is what it is said to be, its second stage finds the same beams as a
// continuation and from the whole text, and it has less to compute as a continuation.
#include "bench/client.hpp"
#include "bench/two_stage.hpp"
#include "server_fixture.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

using namespace test;

namespace {

engine::TwoStageWorkload workload(std::size_t users, double speed, std::size_t max_output) {
    engine::WorkloadOptions options;
    options.request_count = users;
    options.speed = speed;
    options.max_output = max_output;
    return engine::make_two_stage(options);
}

engine::EngineConfig config_with(bool caching) {
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 1024;
    config.prefix_caching = caching;
    config.scheduler.max_running = 40;
    return config;
}

bool near(double a, double b) { return std::abs(a - b) < 1e-9; }

}  // namespace

static void c11_the_workload_is_what_it_is_said_to_be() {
    const engine::TwoStageWorkload made = workload(0, 1, 0);
    CHECK_EQ(made.users.size(), 16U);
    std::set<std::vector<std::uint32_t>> different;
    for (std::size_t i = 0; i < made.users.size(); ++i) {
        const auto& [first, second] = made.users[i];
        CHECK(first.prompt.size() >= 400 && first.prompt.size() <= 600);
        CHECK_EQ(first.output, 200U);
        CHECK(first.temperature > 0 && first.beam_width == 0);
        CHECK(near(first.arrival, static_cast<double>(i) / 2));
        CHECK_EQ(second.beam_width, 32U);
        CHECK_EQ(second.output, 3U);
        CHECK_EQ(second.suffix.size(), 5U);
        different.insert(first.prompt);
    }
    CHECK_EQ(different.size(), 16U);
    const engine::TwoStageWorkload fast = workload(3, 4, 9);
    CHECK_EQ(fast.users.size(), 3U);
    CHECK(fast.users[2].first.prompt == made.users[2].first.prompt);
    CHECK_EQ(fast.users[2].first.output, 9U);
    CHECK(near(fast.users[2].first.arrival, 0.25));
}

static void c11_stages_agree_with_and_without_continuation() {
    const engine::TwoStageWorkload made = workload(3, 20, 24);
    std::vector<engine::TwoStageRun> runs;
    for (const bool caching : {false, true}) {
        for (const bool continues : {false, true}) {
            engine::Engine served(config_with(caching));
            engine::DirectClient client(served);
            runs.push_back(engine::run_two_stage(made, client, {"direct", continues, {}}));
            const engine::TwoStageSummary summary = engine::summarize(runs.back());
            // All but the suffix and one token.
            CHECK_EQ(summary.inherited_part > 0.98, continues);
            CHECK_EQ(summary.reused_part > 0.9, continues || caching);
            for (const auto& user : runs.back().users) {
                CHECK_EQ(user.second.other_choices.size(), 31U);
                CHECK(user.second.first_token_seconds > 0);
            }
        }
    }
    Running running([](engine::EngineConfig& config) { config = config_with(true); });
    engine::HttpClient client("http://127.0.0.1:" + std::to_string(running.port()));
    for (const bool continues : {false, true}) {
        const std::string label = continues ? "continuation" : "whole prompt";
        runs.push_back(engine::run_two_stage(made, client, {label, continues, label}));
        const engine::TwoStageSummary summary = engine::summarize(runs.back());
        CHECK_EQ(summary.inherited_part > 0.98, continues);
        CHECK(summary.second_first_token.p50 > 0);
        CHECK(summary.second_first_token.p50 <= summary.second_time.p50);
    }
    CHECK(engine::same_results(runs));
    const std::string table = engine::two_stage_table(made, "here", runs);
    CHECK(table.find("identical results: yes") != std::string::npos);
    CHECK(table.find("stage 2 TTFT P50, ms") != std::string::npos);
    const Json json = Json::parse(engine::two_stage_json(made, "here", runs));
    CHECK_EQ(json["runs"].size(), 6U);
    CHECK_EQ(json["results_identical"], true);
    runs.back().users[1].second.other_choices[30][2] ^= 1;
    CHECK(!engine::same_results(runs));
    CHECK(engine::two_stage_table(made, "here", runs).find("results: NO") != std::string::npos);
}

static void c11_numbers_mean_what_their_names_say() {
    engine::TwoStageRun run;
    run.start = engine::Clock::now();
    const auto at = [&](int milliseconds) {
        return run.start + std::chrono::milliseconds(milliseconds);
    };
    for (int i = 0; i < 2; ++i) {
        engine::TwoStageRun::User user;
        user.first_sent = at(100 * i);
        user.first.finished = at(100 * i + 40);
        user.second_sent = at(100 * i + 50);
        user.second.finished = at(100 * i + 60 + 20 * i);
        user.second.first_token_seconds = 0.004 + 0.002 * i;
        user.second.prompt_tokens = 100;
        user.second.cached_tokens = 90;
        user.second.inherited_tokens = 80;
        run.users.push_back(user);
    }
    const engine::TwoStageSummary summary = engine::summarize(run);
    CHECK(near(summary.first_time.p50, 0.04));
    CHECK(near(summary.second_first_token.p50, 0.004));
    CHECK(near(summary.second_first_token.p99, 0.006));
    CHECK(near(summary.second_time.p50, 0.01) && near(summary.second_time.p99, 0.03));
    CHECK(near(summary.seconds, 0.18));
    CHECK(near(summary.reused_part, 0.9) && near(summary.inherited_part, 0.8));
}

/// What is not retained cannot be continued; and an engine that refuses fails the run.
static void c11_stages_that_fail_fail_the_run() {
    engine::EngineConfig config = config_with(true);
    config.kv.retained_pages = 2;
    engine::Engine served(config);
    engine::DirectClient client(served);
    CHECK_REFUSES(std::runtime_error, "the first stage was not retained",
                  (void)run_two_stage(workload(1, 20, 8), client, {"direct", true, {}}));
    engine::HttpClient nobody("http://127.0.0.1:1");
    CHECK_REFUSES(std::runtime_error, "user 1: no answer",
                  (void)run_two_stage(workload(1, 20, 8), nobody, {"http", true, {}}));
}

int main() {
    RUN(c11_the_workload_is_what_it_is_said_to_be);
    RUN(c11_stages_agree_with_and_without_continuation);
    RUN(c11_numbers_mean_what_their_names_say);
    RUN(c11_stages_that_fail_fail_the_run);
    return 0;
}
