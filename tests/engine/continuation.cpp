// C10 without the network, and C01 to C09 from an engine's side: a request goes on from an earlier
// one, and what it generates is what it would generate from the whole text.
#include "fixture.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

using namespace test;

namespace {

const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

using Tokens = std::vector<std::uint32_t>;

/// A request that is kept under an id.
engine::RequestSpec first_stage(const std::string& id, std::uint64_t seed = 1,
                                std::size_t max_tokens = 30) {
    engine::RequestSpec spec = greedy(random_tokens(seed, 70), max_tokens);
    spec.retain = true;
    spec.id = id;
    return spec;
}

engine::RequestSpec second_stage(const std::string& parent, const Tokens& suffix,
                                 std::size_t max_tokens = 10) {
    engine::RequestSpec spec = greedy({}, max_tokens);
    spec.continuation = engine::Continuation{parent, suffix};
    return spec;
}

/// In an engine of its own, without a cache.
Tokens from_scratch(const Tokens& prompt, std::size_t max_tokens) {
    engine::EngineConfig config = tiny_config(model());
    config.prefix_caching = false;
    TestCore core(config);
    return core.complete(greedy(prompt, max_tokens))->tokens;
}

/// Whether this id is good for a continuation.
bool is_retained(TestCore& core, const std::string& id) {
    try {
        (void)core.core().accept(second_stage(id, {}));
        return true;
    } catch (const engine::UnknownParent&) {
        return false;
    }
}

void drop_all(TestCore& core, const std::vector<std::string>& ids) {
    for (const std::string& id : ids) CHECK(core.core().drop(id));
    core.audit_idle();
}

}  // namespace

/// Whole and partly filled pages, found and not: only what follows the parent's text is computed,
/// and its last token, which never was.
static void c10_a_continuation_is_what_the_whole_text_would_be() {
    const Tokens suffix = random_tokens(2, 5);
    for (const bool caching : {true, false}) {
        for (const std::uint32_t page_size : {1U, 16U, 128U}) {
            engine::EngineConfig config = tiny_config(model());
            config.prefix_caching = caching;
            config.kv.page_size = page_size;
            config.kv.page_count = 4096 / page_size;
            TestCore core(config);
            const auto first = core.complete(first_stage("a"));
            CHECK_EQ(first->result->choices[0].retained_id, "a");
            const Tokens text = joined(first_stage("a").prompt, first->tokens);
            CHECK_EQ(core.cache().retained_sequence_count, 1U);
            const std::uint64_t before = core.core().metrics().computed_tokens;
            const auto second = core.complete(second_stage("a", suffix));
            CHECK(second->tokens == from_scratch(joined(text, suffix), 10));
            CHECK_EQ(second->result->prompt_tokens, 105U);
            CHECK_EQ(second->result->inherited_tokens, 99U);
            CHECK_EQ(second->result->cached_tokens, 99U);
            CHECK_EQ(core.core().metrics().computed_tokens - before, 6U + 9U);
            // With no suffix it just goes on.
            const auto more = core.complete(second_stage("a", {}));
            CHECK(more->tokens == from_scratch(text, 10));
            CHECK_EQ(more->result->inherited_tokens, 99U);
            CHECK_EQ(core.core().metrics().continuations.load(), 2U);
            CHECK_EQ(core.cache().inherited_position_count, 2U * 99U);
            drop_all(core, {"a"});
        }
    }
}

static void c10_continuations_go_on_from_continuations() {
    TestCore core(tiny_config(model()));
    Tokens text = first_stage("0").prompt;
    text = joined(text, core.complete(first_stage("0"))->tokens);
    for (int i = 0; i < 5; ++i) {
        engine::RequestSpec next = second_stage(std::to_string(i), random_tokens(3 + i, 3), 7);
        next.retain = true;
        next.id = std::to_string(i + 1);
        text = joined(text, next.continuation->suffix);
        const auto heard = core.complete(next);
        CHECK(heard->tokens == from_scratch(text, 7));
        text = joined(text, heard->tokens);
        CHECK_EQ(heard->result->inherited_tokens, heard->result->prompt_tokens - 4);
    }
    drop_all(core, {"0", "2", "4", "1", "3", "5"});
}

/// Samples and beams of a continuation; every choice can be gone on from.
static void c10_choices_of_continuations_and_continuations_of_choices() {
    for (const std::size_t width : {0U, 3U}) {
        TestCore core(tiny_config(model()));
        engine::RequestSpec plain = first_stage("first");
        const Tokens text =
            joined(joined(plain.prompt, core.complete(plain)->tokens), random_tokens(4, 4));
        engine::RequestSpec choices = second_stage("first", random_tokens(4, 4), 12);
        choices.sampling = {width > 0 ? 0.0 : 1.0, 1.0, 5};
        choices.choice_count = choices.sample_count = 3;
        choices.beam_width = width;
        choices.retain = true;
        choices.id = "more";
        const auto heard = core.complete(choices);
        CHECK_EQ(heard->result->inherited_tokens, 99U);
        engine::RequestSpec whole = choices;
        whole.prompt = text;
        whole.continuation.reset();
        whole.id = "whole";
        const auto expected = TestCore(tiny_config(model())).complete(whole)->choices();
        CHECK(heard->choices() == expected);
        for (std::size_t i = 0; i < 3; ++i) {
            const std::string id = engine::choice_id("more", i);
            CHECK_EQ(heard->result->choices[i].retained_id, id);
            const auto next = core.complete(second_stage(id, {65, 66}));
            CHECK(next->tokens == from_scratch(joined(joined(text, expected[i]), {65, 66}), 10));
            CHECK(next->result->inherited_tokens >= text.size() - 1);
        }
        drop_all(core, {"more.2", "first", "more", "more.1"});
    }
}

/// C03: what is retained stays while others fill the memory, where a mere prefix is lost.
static void c10_retained_pages_outlast_the_others() {
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 24;
    TestCore core(config);
    const auto first = core.complete(first_stage("kept"));
    core.complete(greedy(random_tokens(5, 100), 1));
    for (std::uint64_t i = 0; i < 6; ++i) core.complete(greedy(random_tokens(10 + i, 120), 20));
    CHECK(core.cache().evicted_page_count > 0);
    CHECK_EQ(core.complete(greedy(random_tokens(5, 100), 1))->result->cached_tokens, 0U);
    const auto second = core.complete(second_stage("kept", {1, 2, 3}));
    CHECK_EQ(second->result->inherited_tokens, 99U);
    CHECK(second->tokens ==
          from_scratch(joined(joined(first_stage("kept").prompt, first->tokens), {1, 2, 3}), 10));
    drop_all(core, {"kept"});
}

/// A request that fits only without what is retained gets its turn; whoever wanted to go on from
/// there falls back to a lookup with its prompt, or is told.
static void c10_retained_pages_give_way_to_a_request_that_could_not_run() {
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 20;
    config.kv.retained_pages = 20;
    TestCore core(config);
    const auto a = core.complete(first_stage("a", 1)), b = core.complete(first_stage("b", 2));
    CHECK_EQ(core.cache().retained_sequence_count, 2U);
    // Waits for its parent's pages in the queue, when they are gone.
    const auto large = core.add(greedy(random_tokens(3, 120), 60));
    const auto late = core.add(second_stage("a", {1, 2}));
    core.run();
    CHECK(large->tokens == from_scratch(random_tokens(3, 120), 60));
    CHECK(!is_retained(core, "a") && is_retained(core, "b"));
    CHECK_EQ(core.cache().displaced_sequence_count, 1U);
    const Tokens text = joined(first_stage("a", 1).prompt, a->tokens);
    const Tokens expected = from_scratch(joined(text, {1, 2}), 10);
    CHECK(late->tokens == expected);
    CHECK_EQ(late->result->inherited_tokens, 0U);
    CHECK_REFUSES(engine::UnknownParent, "nothing is retained under a",
                  (void)core.core().accept(second_stage("a", {1, 2})));
    engine::RequestSpec full = second_stage("a", {1, 2});
    full.prompt = joined(text, {1, 2});
    const auto again = core.complete(full);
    CHECK(again->tokens == expected);
    CHECK_EQ(again->result->inherited_tokens, 0U);
    CHECK(again->result->cached_tokens > 0);
    CHECK_EQ(core.core().metrics().continuation_fallbacks.load(), 2U);
    drop_all(core, {"b"});
}

/// A child that gives way to others comes back by a lookup, and loses nothing.
static void c10_continuations_that_give_way() {
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 16;
    TestCore core(config);
    const auto first = core.complete(first_stage("a"));
    const auto others = core.add(greedy(random_tokens(6, 60), 60));
    const auto child = core.add(second_stage("a", {7, 8, 9}, 40));
    while (core.step()) audit(core.core().kv().table(), core.core().kv().cache());
    CHECK(child->result->preemptions > 0);
    CHECK(others->tokens == from_scratch(random_tokens(6, 60), 60));
    const Tokens text = joined(joined(first_stage("a").prompt, first->tokens), {7, 8, 9});
    CHECK(child->tokens == from_scratch(text, 40));
    drop_all(core, {"a"});
}

static void c10_the_registry_is_bounded() {
    engine::EngineConfig config = tiny_config(model());
    config.kv.retained_sequences = 2;
    config.kv.retained_pages = 20;
    TestCore core(config);
    for (const char* id : {"a", "b", "c"}) core.complete(first_stage(id, *id));
    CHECK(!is_retained(core, "a") && is_retained(core, "b") && is_retained(core, "c"));
    // Alone more than may be retained: it is answered, and not kept.
    const auto large = core.complete(first_stage("d", 4, 300));
    CHECK_EQ(large->tokens.size(), 300U);
    CHECK(large->result->choices[0].retained_id.empty());
    CHECK(!is_retained(core, "d") && is_retained(core, "b"));
    // The same id again names what came last.
    const auto again = core.complete(first_stage("c", 5));
    const auto next = core.complete(second_stage("c", {1}));
    CHECK(next->tokens ==
          from_scratch(joined(joined(first_stage("c", 5).prompt, again->tokens), {1}), 10));
    CHECK_EQ(core.cache().retained_sequence_count, 2U);
    drop_all(core, {"b", "c"});
    CHECK(!core.core().drop("c") && !core.core().drop("nobody"));
    config.retain_nothing = true;
    TestCore other(config);
    CHECK_REFUSES(engine::InvalidRequest, "retain: this server retains nothing",
                  (void)other.core().accept(first_stage("a")));
}

/// C05, C07: nothing of it changes anything.
static void c10_continuations_that_are_refused() {
    TestCore core(tiny_config(model()));
    engine::RequestSpec salted = first_stage("salted");
    salted.cache_salt = "mine";
    const auto first = core.complete(salted);
    const auto running = core.add(first_stage("running", 2));
    core.step();
    const auto refuse = [&](engine::RequestSpec spec, const std::string& reason) {
        CHECK_REFUSES(engine::InvalidRequest, reason, (void)core.core().accept(spec));
    };
    CHECK_REFUSES(engine::ParentRunning, "running has not ended yet",
                  (void)core.core().accept(second_stage("running", {})));
    CHECK_REFUSES(engine::ParentRunning, "running.1 has not ended yet",
                  (void)core.core().accept(second_stage("running.1", {})));
    CHECK_REFUSES(engine::UnknownParent, "nothing is retained under salted.1",
                  (void)core.core().accept(second_stage("salted.1", {})));
    engine::RequestSpec spec = second_stage("salted", {1, 2});
    refuse(spec, "cache_salt: not that of the request");
    spec.cache_salt = "yours";
    refuse(spec, "cache_salt: not that of the request");
    spec.cache_salt = "mine";
    spec.continuation->suffix = {1, 300};
    refuse(spec, "there is no token 300");
    spec.continuation->suffix = {1, 2};
    spec.prompt = joined(salted.prompt, {1, 2});
    refuse(spec, "prompt: not the tokens of the request that is continued");
    spec.prompt = joined(joined(salted.prompt, first->tokens), {1, 2});
    CHECK(core.core().accept(spec).prompt == spec.prompt);
    spec.max_tokens = 1 << 20;
    refuse(spec, "exceed the limit");
    engine::RequestSpec nameless = first_stage("");
    refuse(nameless, "id: what is retained needs one");
    nameless.id = "a.1";
    refuse(nameless, "id: what is retained needs one, without a dot");
    core.run();
    CHECK(is_retained(core, "running"));
    // Whoever does not end well is not retained.
    core.add(first_stage("cancelled", 3));
    core.step();
    core.core().cancel(core.last());
    CHECK(!is_retained(core, "cancelled"));
    drop_all(core, {"salted", "running"});
}

/// The registry is asked, and told to forget, by other threads than the engine's.
static void c10_other_threads_drop_what_the_engine_retains() {
    engine::EngineConfig config = tiny_config(model());
    config.kv.retained_sequences = 8;
    TestCore core(config);
    std::atomic<bool> over{false};
    std::thread dropper([&] {
        for (std::size_t i = 0; !over; i = (i + 1) % 60) {
            try {
                if (is_retained(core, std::to_string(i))) core.core().drop(std::to_string(i));
            } catch (const engine::ParentRunning&) {  // its turn comes again
            }
        }
    });
    for (std::size_t i = 0; i < 60; ++i) {
        core.add(first_stage(std::to_string(i), i, 2));
        engine::RequestSpec child = second_stage(std::to_string(i / 2), {1, 2}, 3);
        child.prompt = random_tokens(i, 9);
        try {
            core.add(child);
        } catch (const engine::InvalidRequest&) {  // the parent is there: the prompt is another's
        }
        core.run();
    }
    over = true;
    dropper.join();
    for (std::size_t i = 0; i < 60; ++i) core.core().drop(std::to_string(i));
    core.audit_idle();
}

int main() {
    RUN(c10_a_continuation_is_what_the_whole_text_would_be);
    RUN(c10_continuations_go_on_from_continuations);
    RUN(c10_choices_of_continuations_and_continuations_of_choices);
    RUN(c10_retained_pages_outlast_the_others);
    RUN(c10_retained_pages_give_way_to_a_request_that_could_not_run);
    RUN(c10_continuations_that_give_way);
    RUN(c10_the_registry_is_bounded);
    RUN(c10_continuations_that_are_refused);
    RUN(c10_other_threads_drop_what_the_engine_retains);
    return 0;
}
