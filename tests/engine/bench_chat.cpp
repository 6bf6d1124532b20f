// B12: the chat of the demo: who asks when, what a prompt consists of, what is told.
#include "bench/chat.hpp"
#include "bench/report.hpp"
#include "bench/tiers.hpp"
#include "http/server.hpp"
#include "small_tokenizer.hpp"

#include <atomic>
#include <thread>

using namespace test;
using Ids = std::vector<std::uint32_t>;

namespace {

engine::ChatScript script() {
    engine::ChatScript script;
    script.system = std::string(300, 's');
    script.users = {{"Ann", {"the first?", "the third?"}}, {"Ben", {"the second?"}}};
    script.max_output = 10;
    script.turn_count = 3;
    return script;
}

/// Runs it with an engine of its own; `told` gets what is said.
engine::ChatRun run(const engine::ChatScript& script, bool caching,
                    std::vector<std::string>* told = nullptr) {
    static const ChatCheckpoint checkpoint;
    engine::EngineConfig config;
    config.model = checkpoint.path();
    config.kv.page_count = 4096;
    config.thread_count = 1;
    config.prefix_caching = caching;
    engine::Engine served(config);
    engine::DirectClient client(served);
    return engine::run_chat(script, client, served.core().tokenizer(), "here",
                            [told](const std::string& text) {
                                if (told != nullptr) told->push_back(text);
                            });
}

}  // namespace

static void b12_a_chat_grows_turn_by_turn() {
    const engine::ChatRun off = run(script(), false), on = run(script(), true);
    const std::vector<engine::BenchRequest>& requests = on.workload.requests;
    CHECK_EQ(requests.size(), 3U);
    const auto tokenizer = ChatCheckpoint().tokenizer();
    const auto prompt = [&](const std::string& rest) {
        return tokenizer->encode("<turn>system:" + std::string(300, 's') + "<end><turn>user:" +
                                 rest + "<end><turn>assistant:");
    };
    CHECK(requests[0].prompt == prompt("the first?"));
    CHECK(requests[1].prompt == prompt("the second?"));
    // Ann's second turn begins with her first, and what was answered.
    const Ids& first = requests[0].prompt;
    CHECK(std::equal(first.begin(), first.end(), requests[2].prompt.begin()));
    const Ids asked = tokenizer->encode("<end><turn>user:the third?<end><turn>assistant:");
    CHECK(requests[2].prompt.size() > first.size() + asked.size());
    CHECK(std::equal(asked.rbegin(), asked.rend(), requests[2].prompt.rbegin()));
    // What is known of a prompt: both users' begin alike, up to their questions.
    CHECK_EQ(requests[0].shared, 0U);
    const Ids common = tokenizer->encode("<turn>system:" + std::string(300, 's') +
                                         "<end><turn>user:the");
    CHECK(requests[1].shared > common.size() && requests[1].shared < requests[1].prompt.size());
    CHECK(requests[2].shared >= first.size());
    for (std::size_t i = 0; i < 3; ++i) {
        CHECK_EQ(on.run.records[i].prompt_tokens, requests[i].prompt.size());
        CHECK_EQ(off.run.records[i].cached_tokens, 0U);
        const std::size_t found = on.run.records[i].cached_tokens;
        CHECK(found <= requests[i].shared && found + 16 >= requests[i].shared);
        CHECK(i == 0 || requests[i].arrival > requests[i - 1].arrival);
    }
    CHECK(engine::same_outputs(off.run, on.run));
    CHECK(on.workload.description.find("2 users take turns") == 0);
}

static void b12_a_chat_is_told_as_it_happens() {
    std::vector<std::string> told;
    const engine::ChatRun made = run(script(), true, &told);
    CHECK_EQ(told.size(), 1U + 2U * 3U);
    const std::vector<std::string> names = {"Ann", "Ben", "Ann"};
    const std::vector<std::string> questions = {"the first?", "the second?", "the third?"};
    for (std::size_t turn = 0; turn < 3; ++turn) {
        CHECK(told[1 + 2 * turn].find(names[turn]) == 2);
        CHECK(told[1 + 2 * turn].find(questions[turn]) != std::string::npos);
        CHECK(told[2 + 2 * turn].find(" ms  ") != std::string::npos);
        CHECK_EQ(told[2 + 2 * turn].back(), '\n');
    }
    // An answer ends where its end token is, or its length.
    for (const engine::BenchRecord& record : made.run.records)
        CHECK(record.tokens.size() == 10 || record.tokens.back() == end_id);
    engine::ChatScript shorter = script();
    shorter.turn_count = 1;
    CHECK_EQ(run(shorter, true).run.records.size(), 1U);
}

/// The chat of the demo over HTTP, a model without a tokenizer.
static void b12_a_chat_over_http() {
    const Checkpoint checkpoint;
    engine::EngineConfig config = tiny_config(checkpoint);
    config.kv.page_count = 1024;
    engine::Engine served(config);
    engine::ServerConfig server_config;
    server_config.port = 0;
    engine::Server server(server_config, served);
    std::thread thread([&] { server.run(); });
    engine::WorkloadOptions options;
    options.max_output = 5;
    options.request_count = 4;
    const engine::ChatScript library = engine::library_chat(options);
    CHECK_EQ(library.turn_count, 4U);
    {
        engine::HttpClient client("http://127.0.0.1:" + std::to_string(server.port()));
        const engine::ChatRun made = engine::run_chat(
            library, client, served.core().tokenizer(), "http", [](const std::string&) {});
        CHECK_EQ(made.run.records.size(), 4U);
        CHECK(made.run.records[1].cached_tokens > 2000);
    }
    server.shutdown();
    thread.join();
    engine::HttpClient nobody("http://127.0.0.1:1");
    CHECK_REFUSES(std::runtime_error, "chat: no answer",
                  (void)engine::run_chat(library, nobody, served.core().tokenizer(), "nobody",
                                         [](const std::string&) {}));
}

/// Where the time to a first token goes, from each place where the KV can be.
static void b12_a_first_token_is_accounted_for() {
    const Checkpoint checkpoint;
    engine::EngineConfig config = tiny_config(checkpoint);
    config.kv.page_size = 4;
    engine::BenchRequest request;
    request.prompt.assign(40, 7);
    request.output = 1;
    engine::BenchReport report;
    report.workload.name = "chat";
    report.tiers = engine::measure_tiers(config, request);
    CHECK_EQ(report.tiers.size(), 4U);
    for (const engine::TierTime& time : report.tiers) {
        const auto spent = [&](engine::Work work) {
            return time.work[static_cast<std::size_t>(work)];
        };
        CHECK(spent(engine::Work::products) > 0 && spent(engine::Work::attention) > 0);
        CHECK(spent(engine::Work::logits) > 0 && spent(engine::Work::plan) > 0);
        CHECK(spent(engine::Work::products) + spent(engine::Work::attention) < time.seconds);
    }
    // The last page alone is computed again.
    CHECK(report.tiers[1].cached_tokens >= 36);
    report.runs.resize(1);
    report.summaries.resize(1);
    CHECK(engine::report_table(report).find("products") == std::string::npos);
    report.timings = true;
    const std::string text = engine::report_table(report);
    for (const char* name : engine::work_names) CHECK(text.find(name) != std::string::npos);
    // A place that is too small for the prompt is not what took the time.
    for (std::size_t i = 2; i < 4; ++i) {
        CHECK_EQ(report.tiers[i].expected_tokens, 36U);
        CHECK_EQ(report.tiers[i].cached_tokens, 36U);
    }
    CHECK(text.find("Not all of the prompt") == std::string::npos);
    report.tiers[2].cached_tokens = 4;
    CHECK(engine::report_table(report).find("host memory: 4 of 36 tokens") != std::string::npos);
}

/// The last answer of a chat may be shorter than it was allowed to be.
static void b12_an_answer_that_ends_early_comes_from_each_place() {
    engine::BenchRequest request;
    request.prompt.assign(40, 7);
    request.output = 8;
    request.ends_early = true;
    Ids said;
    {
        const Checkpoint checkpoint;
        TestCore core(tiny_config(checkpoint));
        said = core.complete(greedy(request.prompt, 8))->tokens;
    }
    // The same weights, to which the first of these tokens is an end.
    engine::CheckpointSpec spec = tiny_spec();
    spec.model.eos_token_ids = {said[0]};
    const Checkpoint brief(spec);
    const std::vector<engine::TierTime> times = engine::measure_tiers(tiny_config(brief), request);
    CHECK_EQ(times.size(), 4U);
    for (const engine::TierTime& time : times) CHECK(time.tokens == Ids({said[0]}));
}

/// A store that others share may have what is to be computed.
static void b12_places_are_those_of_one_machine() {
    static std::atomic<std::size_t> calls{0};
    rkv_remote_store store{};
    store.struct_size = sizeof store;
    // Answers nothing, as one that fails.
    store.has = store.get = store.put = [](void*, rkv_remote_item*, std::size_t, std::size_t,
                                           std::uint64_t) { ++calls; };
    const Checkpoint checkpoint;
    engine::EngineConfig config = tiny_config(checkpoint);
    config.kv.page_size = 4;
    config.kv.tiers.remote = &store;
    engine::BenchRequest request;
    request.prompt.assign(40, 7);
    request.output = 1;
    CHECK_EQ(engine::measure_tiers(config, request).front().cached_tokens, 0U);
    CHECK_EQ(calls.load(), 0U);
}

int main() {
    RUN(b12_a_chat_grows_turn_by_turn);
    RUN(b12_a_chat_is_told_as_it_happens);
    RUN(b12_a_chat_over_http);
    RUN(b12_a_first_token_is_accounted_for);
    RUN(b12_an_answer_that_ends_early_comes_from_each_place);
    RUN(b12_places_are_those_of_one_machine);
    return 0;
}
