// B06: one allocation that fails, or one call that the library has no memory for, ends at most the
// request that it was for. Each of them in turn.
#include "failing_new.hpp"
#include "fixture.hpp"

#include "http/output_queue.hpp"
#include "serve/engine.hpp"
#include "serve/event_publisher.hpp"

#include <dlfcn.h>

#include <thread>

using namespace test;
using namespace std::chrono_literals;

namespace {

/// While not 0: the allocation that fails once a look at the tiers gave copies, or ends of fetches.
std::size_t fails_after_copies = 0, fails_after_ends = 0;
/// No look at the tiers gives ends of fetches.
bool holds_ends = false;
/// So many calls find no memory.
int prefetches_without_memory = 0, checkpoints_without_memory = 0;
/// The call that finds none; 0: none.
int fetch_without_memory = 0;
std::atomic<int> encodings_without_memory{0};
/// What was given to the publisher of events.
std::atomic<std::size_t> published_batches{0};

template <class F, class... A> rkv_status library(F*, const char* name, A... args) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name))(args...);
}

/// Counts down; whether it was none.
template <class Count> bool take_one(Count& count) { return count > 0 && count-- > 0; }

}  // namespace

extern "C" rkv_status rkv_cache_poll(rkv_cache* cache, rkv_copy_job* jobs, std::size_t job_size,
                                     std::size_t job_capacity, rkv_fetch_end* ends,
                                     std::size_t end_size, std::size_t end_capacity,
                                     rkv_cache_poll_result* result) {
    const rkv_status status =
        library(&rkv_cache_poll, "rkv_cache_poll", cache, jobs, job_size, job_capacity, ends,
                end_size, holds_ends ? 0 : end_capacity, result);
    if (status != RKV_STATUS_OK) return status;
    if (result->job_count > 0 && fails_after_copies > 0)
        allocations_left = std::exchange(fails_after_copies, 0);
    if (result->end_count > 0 && fails_after_ends > 0)
        allocations_left = std::exchange(fails_after_ends, 0);
    return status;
}

extern "C" rkv_status rkv_cache_prefetch(rkv_cache* cache, const rkv_namespace* space,
                                         const rkv_tokens* tokens, std::uint64_t deadline_ms,
                                         std::uint32_t flags, rkv_cache_prefetch_result* out) {
    if (take_one(prefetches_without_memory)) return RKV_STATUS_OUT_OF_MEMORY;
    return library(&rkv_cache_prefetch, "rkv_cache_prefetch", cache, space, tokens, deadline_ms,
                   flags, out);
}

extern "C" rkv_status rkv_sequence_fetch(rkv_cache* cache, rkv_sequence_id sequence,
                                         std::uint64_t deadline_ms, std::uint32_t flags,
                                         rkv_sequence_fetch_result* out) {
    if (fetch_without_memory > 0 && --fetch_without_memory == 0) return RKV_STATUS_OUT_OF_MEMORY;
    return library(&rkv_sequence_fetch, "rkv_sequence_fetch", cache, sequence, deadline_ms, flags,
                   out);
}

extern "C" rkv_status rkv_sequence_checkpoint(rkv_cache* cache, rkv_sequence_id sequence,
                                              std::size_t* copy_count) {
    if (take_one(checkpoints_without_memory)) return RKV_STATUS_OUT_OF_MEMORY;
    return library(&rkv_sequence_checkpoint, "rkv_sequence_checkpoint", cache, sequence,
                   copy_count);
}

extern "C" rkv_status rkv_event_encoder_encode(rkv_event_encoder* encoder, double timestamp,
                                               std::uint8_t* buffer, std::size_t capacity,
                                               rkv_event_batch* out) {
    if (take_one(encodings_without_memory)) return RKV_STATUS_OUT_OF_MEMORY;
    return library(&rkv_event_encoder_encode, "rkv_event_encoder_encode", encoder, timestamp,
                   buffer, capacity, out);
}

// The library that publishes events is this program, whose name is empty.
extern "C" std::size_t rkv_net_last_error_message(char*, std::size_t) { return 0; }
extern "C" rkv_net_status rkv_net_publisher_create(const rkv_net_publisher_config*,
                                                   rkv_net_publisher** out) {
    *out = nullptr;
    return RKV_NET_STATUS_OK;
}
extern "C" rkv_net_status rkv_net_publisher_publish(rkv_net_publisher*, const std::uint8_t*,
                                                    std::size_t, std::uint64_t*) {
    ++published_batches;
    return RKV_NET_STATUS_OK;
}
extern "C" void rkv_net_publisher_destroy(rkv_net_publisher*) {}

namespace {

const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

const Checkpoint& states() {
    static const Checkpoint checkpoint(
        engine::qwen3_next_checkpoint(engine::llama_checkpoint(4, 64, 96, 2, 1, 64)));
    return checkpoint;
}

engine::EngineConfig on_disk(const Folder& disk) {
    engine::EngineConfig config = tiny_config(model());
    config.kv.tiers.host_bytes = config.kv.tiers.disk_bytes = std::uint64_t{64} << 20;
    config.kv.tiers.directory = disk.path() / "kv";
    return config;
}

std::uint64_t pages_on_disk(TestCore& core) {
    return core.core().kv().cache().tier_stats().disk.page_count;
}

/// Fills the disk with what a request computes; returns what it generates.
std::vector<std::uint32_t> store(const engine::EngineConfig& config,
                                 const engine::RequestSpec& spec) {
    TestCore core(config);
    const auto tokens = core.complete(spec)->tokens;
    while (pages_on_disk(core) < spec.prompt.size() / 16) {
        std::this_thread::sleep_for(10ms);
        core.run();
    }
    return tokens;
}

/// Another core, that knows what is on the disk.
std::unique_ptr<TestCore> restarted(const engine::EngineConfig& config) {
    auto core = std::make_unique<TestCore>(config);
    while (pages_on_disk(*core) == 0) std::this_thread::sleep_for(1ms);
    return core;
}

/// The result of a request that has ended.
engine::RequestResult result_of(engine::OutputQueue& queue) {
    CHECK(queue.wait_finished(0ms));
    return std::move(*queue.wait(0ms).result);
}

}  // namespace

/// A look at the tiers says each thing once. Whatever fails afterwards, who waits for it goes on.
static void b06_what_tiers_say_is_not_lost() {
    const Folder disk;
    const engine::EngineConfig config = on_disk(disk);
    const engine::RequestSpec spec = greedy(random_tokens(1, 200), 4);
    const auto expected = store(config, spec);
    for (const bool of_copies : {true, false}) {
        for (std::size_t at = 1; at <= 12; ++at) {
            const auto core = restarted(config);
            const auto heard = {core->add(spec), core->add(spec)};
            std::size_t& fails_after = of_copies ? fails_after_copies : fails_after_ends;
            fails_after = at;
            const auto latest = engine::Clock::now() + 20s;
            bool is_over = false;
            while (!is_over) {
                CHECK(engine::Clock::now() < latest);
                core->step();
                (void)has_failed();
                is_over = true;
                for (const auto& one : heard) is_over = is_over && one->result;
            }
            CHECK_EQ(fails_after, 0U);
            for (const auto& one : heard)
                CHECK(one->result->finish == engine::Finish::error || one->tokens == expected);
            core->run();
            core->audit_idle();
        }
    }
}

/// In the step in which a request ends: it is told so, and what is retained of it has an id.
static void b06_c10_everybody_hears_of_the_end() {
    engine::RequestSpec first = greedy(random_tokens(1, 40), 3), second = greedy({1, 2, 3}, 9);
    first.retain = true;
    first.id = "first";
    first.choice_count = first.sample_count = 2;
    for (std::size_t at = 1;; ++at) {
        TestCore core(tiny_config(model()));
        const auto a = std::make_shared<engine::OutputQueue>();
        const auto b = std::make_shared<engine::OutputQueue>();
        core.add(first, a);
        core.add(second, b);
        for (int step = 0; step < 2; ++step) core.step();
        CHECK(!a->wait_finished(0ms));
        allocations_left = at;
        core.step();
        const bool failed = has_failed();
        core.run();
        (void)result_of(*b);
        const engine::RequestResult result = result_of(*a);
        CHECK_EQ(result.error.empty(), result.finish != engine::Finish::error);
        std::uint64_t retained = 0;
        for (const engine::ChoiceResult& choice : result.choices)
            retained += choice.retained_id.empty() ? 0 : 1;
        CHECK_EQ(core.cache().retained_sequence_count, retained);
        for (const engine::ChoiceResult& choice : result.choices)
            CHECK(core.core().drop(choice.retained_id));
        CHECK(!core.core().drop("first") && !core.core().drop("first.1"));
        CHECK_EQ(core.cache().retained_sequence_count, 0U);
        core.audit_idle();
        CHECK(failed || retained == 2);
        if (!failed) break;
    }
}

/// Somebody else's step is no concern of a request that waits: neither the first one of a kind, for
/// which lists grow, nor later ones.
static void b06_a_step_without_memory_ends_nobody_who_waits() {
    engine::EngineConfig config = tiny_config(model());
    config.scheduler.max_running = 1;
    for (const int before : {0, 1, 3}) {
        bool failed = true;
        for (std::size_t at = 1; failed; ++at) {
            TestCore core(config);
            const auto runs = core.add(greedy({1, 2, 3}, 9));
            const auto waits = core.add(greedy({4, 5, 6}, 3));
            for (int step = 0; step < before; ++step) core.step();
            allocations_left = at;
            core.step();
            failed = has_failed();
            core.run();
            CHECK(runs->result);
            CHECK_EQ(waits->result->error, "");
            CHECK_EQ(waits->tokens.size(), 3U);
            core.audit_idle();
        }
    }
}

/// Nor of one that waits for its pages, and holds those that they come into.
static void b06_a_step_without_memory_ends_nobody_who_fetches() {
    const Folder disk;
    const engine::EngineConfig config = on_disk(disk);
    const engine::RequestSpec fetched = greedy(random_tokens(1, 200), 4);
    const auto expected = store(config, fetched);
    // Two sequences from the second step on, for which lists grow.
    engine::RequestSpec two = greedy({1, 2, 3}, 9);
    two.choice_count = two.sample_count = 2;
    bool failed = true;
    for (std::size_t at = 1; failed; ++at) {
        const auto core = restarted(config);
        const auto runs = core->add(two), waits = core->add(fetched);
        holds_ends = true;
        core->step();
        CHECK_EQ(core->core().metrics().running.load(), 2U);
        allocations_left = at;
        core->step();
        failed = has_failed();
        CHECK(!waits->result && waits->tokens.empty());
        holds_ends = false;
        core->run();
        CHECK(runs->result);
        CHECK_EQ(waits->result->error, "");
        CHECK(waits->tokens == expected);
        core->audit_idle();
    }
}

/// From where a request arrives to where it ends.
static void b06_the_engines_thread_goes_on() {
    is_spared = true;
    engine::Engine engine(tiny_config(model()));
    engine::RequestSpec spec = greedy(random_tokens(1, 40), 2);
    spec.stop = {"a text that does not come, and is too long to lie in a string itself"};
    for (std::size_t at = 1;; ++at) {
        const auto queue = std::make_shared<engine::OutputQueue>();
        allocations_left = at;
        engine.submit(spec, queue);
        CHECK(queue->wait_finished(20s) && engine.wait_idle(20s));
        const bool failed = has_failed();
        const engine::RequestResult result = result_of(*queue);
        CHECK_EQ(result.error.empty(), result.finish != engine::Finish::error);
        if (!failed) break;
    }
    CHECK_EQ(engine.core().metrics().waiting + engine.core().metrics().running, 0U);
    CHECK(engine.healthy());
    is_spared = false;
}

static void b06_a_client_leaves_without_memory() {
    engine::EngineConfig config = tiny_config(model());
    // Of the engine's thread.
    config.before_forward = [](std::size_t) { is_spared = true; };
    engine::Engine engine(config);
    const auto queue = std::make_shared<engine::OutputQueue>();
    engine.submit(greedy({1, 2, 3}, 1500), queue);
    while (queue->wait(1s).tokens.empty()) {
    }
    allocations_left = 1;
    engine.cancel(*queue);
    CHECK(!has_failed());
    CHECK(queue->wait_finished(20s));
    CHECK(queue->wait(0ms).result->finish == engine::Finish::cancelled);
}

/// A prompt is computed where it cannot be looked for, and a state that is not saved is computed
/// again by whoever needs it.
static void b06_what_is_done_without_ends_nobody() {
    const Folder disk;
    engine::EngineConfig config = on_disk(disk);
    config.scheduler.max_running = 1;
    const engine::RequestSpec spec = greedy(random_tokens(1, 200), 4);
    const auto expected = store(config, spec);
    // A look, then the fetch.
    for (const int call : {1, 2}) {
        const auto core = restarted(config);
        fetch_without_memory = call;
        const auto heard = core->complete(spec);
        CHECK_EQ(fetch_without_memory, 0);
        CHECK_EQ(heard->result->error, "");
        CHECK(heard->tokens == expected);
        core->audit_idle();
    }
    {
        const auto core = restarted(config);
        const auto runs = core->add(greedy(random_tokens(2, 20), 20)), waits = core->add(spec);
        prefetches_without_memory = 1;
        core->run();
        CHECK_EQ(prefetches_without_memory, 0);
        CHECK_EQ(runs->result->error + waits->result->error, "");
        CHECK(runs->tokens.size() == 20U && waits->tokens == expected);
        core->audit_idle();
    }
    TestCore plain(tiny_config(states())), core(tiny_config(states()));
    checkpoints_without_memory = 1;
    const auto heard = core.complete(spec);
    CHECK_EQ(checkpoints_without_memory, 0);
    CHECK_EQ(core.core().metrics().unsaved_states.load(), 1U);
    CHECK_EQ(heard->result->error, "");
    CHECK(heard->tokens == plain.complete(spec)->tokens);
    core.audit_idle();
}

/// Of what came meanwhile nothing is lost.
static void b06_events_go_on() {
    setenv("RADIXKV_NET_LIBRARY", "", 1);
    engine::EngineConfig config = tiny_config(model());
    config.kv.journal_bytes = std::uint64_t{1} << 20;
    TestCore core(config);
    const engine::EventPublisher publisher(core.core(), {"somewhere", ""});
    const auto wait_for = [](const auto& is_so) {
        const auto latest = engine::Clock::now() + 20s;
        while (!is_so()) {
            CHECK(engine::Clock::now() < latest);
            std::this_thread::sleep_for(1ms);
        }
    };
    encodings_without_memory = 2;
    wait_for([] { return encodings_without_memory == 0; });
    const std::size_t before = published_batches;
    core.complete(greedy(random_tokens(1, 40), 3));
    wait_for([&] { return published_batches > before; });
}

int main() {
    RUN(b06_what_tiers_say_is_not_lost);
    RUN(b06_c10_everybody_hears_of_the_end);
    RUN(b06_a_step_without_memory_ends_nobody_who_waits);
    RUN(b06_a_step_without_memory_ends_nobody_who_fetches);
    RUN(b06_the_engines_thread_goes_on);
    RUN(b06_a_client_leaves_without_memory);
    RUN(b06_what_is_done_without_ends_nobody);
    RUN(b06_events_go_on);
    return 0;
}
