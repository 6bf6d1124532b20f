// B06: what goes wrong after a prefix was found takes nothing with it: references, pages and rows
// are as they were, and the next request is served.
#include "fixture.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <thread>

using namespace test;

namespace {

/// While set, the library refuses what these two functions ask for, as it does for good once it
/// has found a bug of its own.
bool is_poisoned = false;

template <class... A>
rkv_status unless_poisoned(const char* name, A... args) {
    if (is_poisoned) return RKV_STATUS_POISONED;
    return reinterpret_cast<rkv_status (*)(A...)>(dlsym(RTLD_NEXT, name))(args...);
}

/// So many looks at the tiers find no memory.
int polls_without_memory = 0;
/// So many sequences whose copies were carried out have no memory to be told so.
int confirms_without_memory = 0;
}  // namespace

extern "C" rkv_status rkv_sequence_release(rkv_cache* cache, rkv_sequence_id sequence) {
    return unless_poisoned("rkv_sequence_release", cache, sequence);
}

extern "C" rkv_status rkv_sequence_append_many(rkv_cache* cache,
                                               const rkv_sequence_append_item* items,
                                               std::size_t count, std::size_t item_size,
                                               rkv_status* statuses) {
    return unless_poisoned("rkv_sequence_append_many", cache, items, count, item_size, statuses);
}

extern "C" rkv_status rkv_sequence_confirm_copies(rkv_cache* cache, rkv_sequence_id sequence) {
    if (confirms_without_memory > 0) {
        --confirms_without_memory;
        return RKV_STATUS_OUT_OF_MEMORY;
    }
    return unless_poisoned("rkv_sequence_confirm_copies", cache, sequence);
}

extern "C" rkv_status rkv_cache_poll(rkv_cache* cache, rkv_copy_job* jobs, std::size_t job_size,
                                     std::size_t job_capacity, rkv_fetch_end* ends,
                                     std::size_t end_size, std::size_t end_capacity,
                                     rkv_cache_poll_result* result) {
    if (polls_without_memory > 0) {
        --polls_without_memory;
        return RKV_STATUS_OUT_OF_MEMORY;
    }
    return unless_poisoned("rkv_cache_poll", cache, jobs, job_size, job_capacity, ends, end_size,
                           end_capacity, result);
}

namespace {

const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

const std::vector<std::uint32_t>& system_prompt() {
    static const std::vector<std::uint32_t> tokens = random_tokens(1, 100);
    return tokens;
}

engine::RequestSpec request(std::uint64_t seed, std::size_t max_tokens = 8) {
    return greedy(joined(system_prompt(), random_tokens(seed, 30)), max_tokens);
}

/// A core that has served one request; its prompt is cached.
struct Served {
    explicit Served(engine::EngineConfig config = tiny_config(model())) : core(config) {
        expected = core.complete(request(2))->tokens;
        before = core.pages();
    }
    TestCore core;
    std::vector<std::uint32_t> expected;
    rkv_page_table_stats before{};

    /// Nothing is lost, and the engine works.
    void check_restored() {
        core.audit_idle();
        CHECK_EQ(core.pages().cached_page_count, before.cached_page_count);
        CHECK(core.complete(request(2))->tokens == expected);
    }
};

engine::EngineConfig failing_at(std::size_t& calls, std::size_t call) {
    engine::EngineConfig config = tiny_config(model());
    config.before_forward = [&calls, call](std::size_t) {
        if (++calls == call) throw std::runtime_error("the device fell off the bus");
    };
    return config;
}

}  // namespace

/// The matched prefix is locked, the suffix allocated, nothing of it computed.
static void b06_a_step_that_fails_restores_every_reference() {
    std::size_t calls = 0;
    // The first request takes 8 steps: one for its prompt, seven for the other tokens.
    Served served(failing_at(calls, 9));
    CHECK_EQ(calls, 8U);
    const auto a = served.core.add(request(3)), b = served.core.add(request(4));
    served.core.run();
    for (const auto& heard : {a, b}) {
        CHECK(heard->result->finish == engine::Finish::error);
        CHECK_EQ(heard->result->error, "the device fell off the bus");
        CHECK(heard->result->cached_tokens >= system_prompt().size());
        CHECK(heard->tokens.empty());
    }
    served.check_restored();
    CHECK(served.core.core().healthy());
}

/// In the middle of decoding: what was published stays and is right.
static void b06_a_step_that_fails_late_keeps_what_is_published() {
    std::size_t calls = 0;
    engine::EngineConfig config = failing_at(calls, 21);
    TestCore core(config);
    const auto heard = core.complete(request(3, 40));
    CHECK(heard->result->finish == engine::Finish::error);
    CHECK_EQ(heard->tokens.size(), 20U);
    core.audit_idle();
    TestCore fresh(tiny_config(model()));
    const auto again = core.complete(request(3, 40)), first = fresh.complete(request(3, 40));
    CHECK(again->tokens == first->tokens);
    CHECK(again->result->cached_tokens >= 128);
}

/// A prompt that matches, and does not fit: it waits without holding anything, and gets its turn.
static void b06_a_request_that_does_not_fit_yet_holds_nothing() {
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 14;
    Served served(config);
    // Twelve pages at once, fourteen in the end; two pages of the system prompt stay cached.
    const auto large = served.core.add(greedy(random_tokens(5, 180), 30));
    served.core.step();
    const auto next = served.core.add(request(6, 10));
    const rkv_page_table_stats before = served.core.pages();
    for (int i = 0; i < 5; ++i) served.core.step();
    CHECK_EQ(served.core.core().metrics().waiting.load(), 1U);
    CHECK_EQ(served.core.cache().sequence_count, 1U);
    CHECK_EQ(served.core.pages().reclaimable_page_count, before.reclaimable_page_count);
    CHECK_EQ(served.core.pages().reclaimable_page_count, 2U);
    served.core.run();
    CHECK_EQ(large->tokens.size(), 30U);
    CHECK_EQ(next->tokens.size(), 10U);
    CHECK_EQ(served.core.core().metrics().preemptions.load(), 0U);
    served.core.audit_idle();
}

/// A prompt has the pages of the chunks that were computed. Where others have grown meanwhile, it
/// gives way in its middle, and finds what it had published when its turn comes again.
static void j08_a_prompt_that_lacks_pages_in_its_middle() {
    const auto small = greedy(random_tokens(5, 16), 100);
    const auto large = greedy(random_tokens(6, 140), 4);
    TestCore alone(tiny_config(model()));
    const std::vector<std::uint32_t> small_tokens = alone.complete(small)->tokens;
    const std::vector<std::uint32_t> large_tokens = alone.complete(large)->tokens;

    engine::EngineConfig config = tiny_config(model());
    config.scheduler.chunk_size = 2;
    config.kv.page_count = 12;
    TestCore core(config);
    const auto a = core.add(small);
    while (a->tokens.empty()) core.step();
    // Nine pages for the second in the end, and at first one.
    const auto b = core.add(large);
    core.step();
    CHECK_EQ(core.cache().sequence_count, 2U);
    CHECK_EQ(core.pages().free_page_count, 12U - 3U);
    const engine::Metrics& metrics = core.core().metrics();
    while (metrics.preemptions == 0 && core.step()) core.core().kv().table().check_invariants();
    CHECK(metrics.preemptions > 0 && b->tokens.empty() && !b->result);
    core.run();
    CHECK(a->tokens == small_tokens && b->tokens == large_tokens);
    CHECK(b->result->preemptions > 0 && a->result->preemptions == 0);
    core.audit_idle();
}

static void b06_cancelled_requests_give_everything_back() {
    engine::EngineConfig config = tiny_config(model());
    config.scheduler.chunk_size = 16;
    config.scheduler.max_running = 2;
    Served served(config);
    // While it waits, before any chunk, between chunks, while it decodes, after its end.
    for (const int steps : {-1, 0, 1, 6, 20}) {
        std::vector<std::uint64_t> others;
        for (int i = 0; i < (steps < 0 ? 2 : 0); ++i) {
            served.core.add(request(7, 30));
            others.push_back(served.core.last());
        }
        if (steps < 0) served.core.step();
        const auto heard = served.core.add(request(8, 10));
        const std::uint64_t number = served.core.last();
        for (int i = 0; i < steps; ++i) served.core.step();
        const bool over = heard->result.has_value();
        served.core.core().cancel(number);
        served.core.core().cancel(number);
        CHECK(heard->result->finish ==
              (over ? engine::Finish::length : engine::Finish::cancelled));
        CHECK_EQ(over, steps == 20);
        for (const std::uint64_t other : others) served.core.core().cancel(other);
        CHECK(!served.core.step());
        served.core.audit_idle();
    }
    CHECK(served.core.complete(request(2))->tokens == served.expected);
}

static void b06_requests_that_can_never_be_served_are_refused() {
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 10;
    config.max_positions = 300;
    Served served(config);
    const auto refuse = [&](const engine::RequestSpec& spec, const std::string& reason) {
        CHECK_REFUSES(engine::InvalidRequest, reason, (void)served.core.core().accept(spec));
    };
    refuse(greedy({}, 5), "it has no tokens");
    refuse(greedy({1, 258}, 5), "there is no token 258");
    refuse(greedy({1}, 0), "max_tokens");
    refuse(greedy({1}, 301), "the limit of 300 positions");
    refuse(greedy({1}, SIZE_MAX), "the limit of 300 positions");
    // 160 positions fit in ten pages; the last token takes none.
    refuse(greedy(random_tokens(9, 60), 102), "need 11 pages");
    CHECK_EQ(served.core.complete(greedy(random_tokens(9, 60), 101))->tokens.size(), 101U);
    served.core.audit_idle();
}

/// A model that computes nonsense is told apart from one that says it.
static void b06_logits_that_are_no_numbers_end_the_request() {
    engine::CheckpointSpec spec = tiny_spec();
    spec.dtype = engine::Dtype::f32;
    const Checkpoint broken(spec);
    const std::filesystem::path file = broken.path() / "model.safetensors";
    std::FILE* weights = std::fopen(file.c_str(), "r+b");
    CHECK(weights != nullptr);
    std::fseek(weights, -4, SEEK_END);  // the last number of the head
    const unsigned char nan[4] = {0, 0, 0xc0, 0x7f};
    CHECK_EQ(std::fwrite(nan, 1, 4, weights), 4U);
    std::fclose(weights);
    TestCore core(tiny_config(broken));
    const auto heard = core.complete(greedy({1, 2, 3}, 4));
    CHECK(heard->result->finish == engine::Finish::error);
    CHECK(heard->tokens.empty());
    core.audit_idle();
}

/// A library that has found a bug of its own serves nothing more. Everybody is told so, who runs
/// and who waits, wherever it happened; and nothing is tried again and again.
static void b06_a_broken_library_ends_every_request() {
    for (const bool while_computing : {true, false}) {
        engine::EngineConfig config = tiny_config(model());
        config.scheduler.max_running = 2;
        bool breaks = false;
        config.before_forward = [&](std::size_t) {
            if (!breaks) return;
            is_poisoned = true;
            throw rkv::Error(RKV_STATUS_INTERNAL, "a bug");
        };
        TestCore core(config);
        std::vector<std::shared_ptr<Heard>> all;
        for (std::uint64_t seed = 3; seed < 6; ++seed) all.push_back(core.add(request(seed, 30)));
        while (all[1]->tokens.empty()) core.step();
        CHECK_EQ(core.core().metrics().waiting.load(), 1U);
        if (while_computing)
            breaks = true;
        else
            is_poisoned = true;
        for (int step = 0; step < 3; ++step) CHECK(!core.step());
        CHECK(!core.core().healthy());
        // Who comes later hears of it, too.
        all.push_back(core.add(request(6)));
        CHECK(!core.step());
        is_poisoned = false;
        for (const auto& heard : all) {
            CHECK(heard->result && heard->result->finish == engine::Finish::error);
            CHECK(!heard->result->error.empty());
        }
    }
}

/// Also where the next step would do: what is broken may be what that step has no use for.
static void b06_a_broken_engine_answers_whoever_comes_later() {
    engine::EngineConfig config = tiny_config(model());
    bool breaks = true;
    config.before_forward = [&](std::size_t) {
        if (std::exchange(breaks, false)) throw rkv::Error(RKV_STATUS_INTERNAL, "a bug");
    };
    TestCore core(config);
    CHECK(core.complete(request(3))->result->finish == engine::Finish::error);
    CHECK(!core.core().healthy());
    const auto later = core.add(request(4));
    CHECK(!core.step());
    CHECK(later->result && later->result->finish == engine::Finish::error);
    CHECK_EQ(later->result->error, "the engine is broken");
    core.audit_idle();
}

static void b06_a_look_at_tiers_without_memory_ends_nobody() {
    engine::EngineConfig config = tiny_config(model());
    config.kv.tiers.host_bytes = std::uint64_t{1} << 20;
    TestCore core(config);
    const auto heard = core.add(request(3, 10));
    core.step();
    polls_without_memory = 3;
    core.run();
    CHECK_EQ(polls_without_memory, 0);
    CHECK_EQ(heard->result->error, "");
    CHECK_EQ(heard->tokens.size(), 10U);
    core.audit_idle();
}

/// Two prompts come from a disk at once, and neither can be begun with: one is told, and the other
/// does not go on as if its copies were made, but begins again.
static void b06_copies_of_what_was_fetched_that_fail() {
    const Checkpoint states(
        engine::qwen3_next_checkpoint(engine::llama_checkpoint(4, 64, 96, 2, 1, 64)));
    const Folder disk;
    engine::EngineConfig config = tiny_config(states);
    config.kv.tiers.host_bytes = config.kv.tiers.disk_bytes = std::uint64_t{64} << 20;
    config.kv.tiers.directory = disk.path() / "kv";
    const auto spec = [](std::uint64_t seed) { return greedy(random_tokens(seed, 200), 12); };
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
    std::vector<std::vector<std::uint32_t>> expected;
    {
        TestCore core(config);
        for (const std::uint64_t seed : {1, 2})
            expected.push_back(core.complete(spec(seed))->tokens);
        // Of each twelve pages, and a state.
        const auto stored = [&] { return core.core().kv().cache().tier_stats().disk; };
        while (stored().stored_page_count < 26) {
            pause();
            core.run();
        }
    }
    TestCore core(config);
    pause();
    const auto heard = {core.add(spec(1)), core.add(spec(2))};
    core.step();
    CHECK_EQ(core.cache().sequence_count, 2U);
    confirms_without_memory = 2;
    while (confirms_without_memory > 0) {
        pause();
        core.step();
    }
    core.run();
    std::size_t ended = 0, which = 0;
    for (const auto& one : heard) {
        ended += one->result->finish == engine::Finish::error ? 1 : 0;
        CHECK(one->result->finish == engine::Finish::error || one->tokens == expected[which]);
        ++which;
    }
    CHECK_EQ(ended, 1U);
    core.audit_idle();
}

int main() {
    RUN(b06_a_broken_library_ends_every_request);
    RUN(b06_a_broken_engine_answers_whoever_comes_later);
    RUN(b06_a_step_that_fails_restores_every_reference);
    RUN(b06_a_step_that_fails_late_keeps_what_is_published);
    RUN(b06_a_request_that_does_not_fit_yet_holds_nothing);
    RUN(j08_a_prompt_that_lacks_pages_in_its_middle);
    RUN(b06_cancelled_requests_give_everything_back);
    RUN(b06_requests_that_can_never_be_served_are_refused);
    RUN(b06_logits_that_are_no_numbers_end_the_request);
    RUN(b06_a_look_at_tiers_without_memory_ends_nobody);
    RUN(b06_copies_of_what_was_fetched_that_fail);
    return 0;
}
