// B11: drafts that are verified in one step change no output, whatever else runs beside them.
#include "failing_new.hpp"
#include "fixture.hpp"
#include "serve/prompt_lookup.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

namespace {

/// While set, the library has no memory for what one sequence is told.
bool appends_fail = false;

}  // namespace

extern "C" rkv_status rkv_sequence_append(rkv_cache* cache, rkv_sequence_id sequence,
                                          const rkv_tokens* tokens) {
    if (appends_fail) return RKV_STATUS_OUT_OF_MEMORY;
    return reinterpret_cast<decltype(&rkv_sequence_append)>(
        dlsym(RTLD_NEXT, "rkv_sequence_append"))(cache, sequence, tokens);
}

using namespace test;
using Tokens = std::vector<std::uint32_t>;

namespace {

/// A text that comes back to what it said, so that there is something to draft from.
Tokens repetitive(std::uint64_t seed, std::size_t count) {
    const Tokens phrase = random_tokens(seed, 7);
    Tokens made;
    while (made.size() < count) made = joined(made, phrase);
    made.resize(count);
    return made;
}

engine::EngineConfig config_with(const Checkpoint& checkpoint, std::size_t speculate) {
    engine::EngineConfig config = tiny_config(checkpoint);
    config.scheduler.speculate = speculate;
    return config;
}

std::vector<engine::RequestSpec> requests() {
    std::vector<engine::RequestSpec> made;
    for (std::size_t i = 0; i < 6; ++i) {
        made.push_back(greedy(repetitive(i, 20 + 9 * i), 150 + 10 * i));
        if (i == 3) made.back().sampling = {0.8, 0.9, 77};
        if (i == 4) made.back().ignore_eos = false;
        if (i == 5) made.back().choice_count = made.back().sample_count = 2;
    }
    return made;
}

std::vector<std::shared_ptr<Heard>> all_of(TestCore& core) {
    std::vector<std::shared_ptr<Heard>> heard;
    for (const engine::RequestSpec& spec : requests()) heard.push_back(core.add(spec));
    core.run();
    core.audit_idle();
    return heard;
}

}  // namespace

static void b11_what_is_drafted() {
    const auto chain = [](const Tokens& tokens, std::size_t count) {
        const engine::Draft draft = engine::prompt_lookup(tokens, count);
        CHECK(draft.is_chain());
        return draft.tokens;
    };
    CHECK(chain({}, 4).empty());
    CHECK(chain({1, 2, 3, 4}, 4).empty());
    CHECK(chain({5, 1, 2, 3, 9, 1, 2, 3}, 2) == Tokens({9, 1}));
    // The latest place, and of two lengths the longer one.
    CHECK(chain({1, 2, 3, 7, 1, 2, 3, 8, 4, 2, 3, 6, 1, 2, 3}, 1) == Tokens({8}));
    CHECK(chain({2, 3, 6, 9, 2, 3}, 9) == Tokens({6, 9, 2, 3}));
    CHECK(chain({4, 4, 4}, 5) == Tokens({4}));
}

static void b11_what_is_drafted_in_branches() {
    const Tokens text{1, 2, 3, 7, 5, 0, 1, 2, 3, 8, 0, 1, 2, 3, 7, 6, 4, 2, 3, 6, 1, 2, 3};
    const engine::Draft two = engine::prompt_lookup(text, 2, 2);
    CHECK(two.tokens == Tokens({7, 6, 8, 0}));
    const std::size_t root = engine::Draft::root;
    CHECK(two.parents == std::vector<std::size_t>({root, 0, root, 2}));
    // The third begins as the first does; the fourth is found by two tokens.
    const engine::Draft all = engine::prompt_lookup(text, 2, 9);
    CHECK(all.tokens == Tokens({7, 6, 8, 0, 5, 6, 1}));
    CHECK(!all.is_chain() && all.child(0, 5) == 4 && all.child(root, 6) == 5);
    std::vector<std::uint64_t> masks;
    CHECK(all.depths(masks) == std::vector<std::size_t>({0, 1, 2, 1, 2, 2, 1, 2}));
    CHECK(masks == std::vector<std::uint64_t>({0, 1, 3, 1, 9, 3, 1, 65}));
    Tokens coins = random_tokens(3, 900);
    for (std::uint32_t& token : coins) token &= 1;
    CHECK_EQ(engine::prompt_lookup(coins, 20, 63).size(), engine::tree_limit);
}

/// Most places of such a text say the same: some of them say it all.
static void b11_a_text_that_repeats_itself_is_drafted_as_a_chain() {
    const Tokens text(std::size_t{1} << 20, 4);
    const engine::Draft draft = engine::prompt_lookup(text, 20, 63);
    CHECK(draft.is_chain() && draft.size() == 20);
}

static void b11_drafts_change_no_output() {
    const Checkpoint checkpoint;
    TestCore plain(config_with(checkpoint, 0));
    const auto expected = all_of(plain);
    const engine::Metrics& before = plain.core().metrics();
    CHECK_EQ(before.drafted_tokens, 0U);
    std::uint64_t of_single_tokens = 0;
    for (const std::size_t speculate : {std::size_t{1}, std::size_t{4}, std::size_t{63}}) {
        TestCore core(config_with(checkpoint, speculate));
        const auto heard = all_of(core);
        for (std::size_t i = 0; i < heard.size(); ++i) {
            CHECK(heard[i]->sequences == expected[i]->sequences);
            CHECK(heard[i]->text == expected[i]->text);
            CHECK(heard[i]->result->finish == expected[i]->result->finish);
        }
        const engine::Metrics& metrics = core.core().metrics();
        std::printf("        --speculate %zu: %llu drafted, %llu accepted, %llu steps for %llu\n",
                    speculate, static_cast<unsigned long long>(metrics.drafted_tokens),
                    static_cast<unsigned long long>(metrics.accepted_tokens),
                    static_cast<unsigned long long>(metrics.steps),
                    static_cast<unsigned long long>(before.steps));
        CHECK(metrics.accepted_tokens > 0U);
        CHECK(metrics.accepted_tokens < metrics.drafted_tokens);
        CHECK(metrics.steps < before.steps);
        CHECK_EQ(metrics.generated_tokens, before.generated_tokens);
        // Longer drafts hold longer: several tokens of one step are drawn.
        if (speculate == 1) of_single_tokens = metrics.accepted_tokens;
        else CHECK(metrics.accepted_tokens > of_single_tokens);
    }
}

/// A text whose phrases go on in several ways, so that drafts branch; all that holds of them is
/// moved to where the sequences go on, in every layer and group.
static void b11_branches_change_no_output() {
    const Checkpoint checkpoint;
    TestCore plain(config_with(checkpoint, 0));
    const auto expected = all_of(plain);
    for (const std::uint32_t page_size : {1U, 16U}) {
        for (const std::size_t branches : {std::size_t{2}, std::size_t{9}}) {
            engine::EngineConfig config = config_with(checkpoint, 4);
            config.scheduler.speculate_branches = branches;
            config.kv.page_size = page_size;
            config.kv.page_count = 4096 / page_size;
            TestCore core(config);
            const auto heard = all_of(core);
            for (std::size_t i = 0; i < heard.size(); ++i)
                CHECK(heard[i]->sequences == expected[i]->sequences);
            const engine::Metrics& metrics = core.core().metrics();
            std::printf("        %zu branches: %llu drafted, %llu accepted, %llu kept, "
                        "%llu steps\n",
                        branches, static_cast<unsigned long long>(metrics.drafted_tokens),
                        static_cast<unsigned long long>(metrics.accepted_tokens),
                        static_cast<unsigned long long>(metrics.kept_branches),
                        static_cast<unsigned long long>(metrics.steps));
            // Some of what held was no chain: it was moved, and later tokens see it.
            CHECK(metrics.kept_branches > 0U);
            CHECK(metrics.accepted_tokens > 0U);
            CHECK_EQ(metrics.generated_tokens, plain.core().metrics().generated_tokens);
        }
    }
}

/// G15: what holds of a draft is moved in layers with a window, too.
static void g15_windows_have_drafts() {
    const Checkpoint checkpoint(
        engine::gemma3_checkpoint(engine::llama_checkpoint(6, 64, 96, 2, 1, 64), 24));
    TestCore plain(config_with(checkpoint, 0));
    const auto expected = all_of(plain);
    for (const std::size_t branches : {std::size_t{1}, std::size_t{4}}) {
        engine::EngineConfig config = config_with(checkpoint, 4);
        config.scheduler.speculate_branches = branches;
        TestCore core(config);
        const auto heard = all_of(core);
        for (std::size_t i = 0; i < heard.size(); ++i)
            CHECK(heard[i]->sequences == expected[i]->sequences);
        CHECK(core.core().metrics().accepted_tokens > 0U);
        CHECK(branches == 1 || core.core().metrics().kept_branches > 0U);
    }
}

/// Where pages are short, what is preempted goes on the same.
static void b11_drafts_where_memory_is_short() {
    const Checkpoint checkpoint;
    TestCore plain(config_with(checkpoint, 0));
    const auto expected = all_of(plain);
    engine::EngineConfig config = config_with(checkpoint, 8);
    config.kv.page_count = 17;
    TestCore core(config);
    const auto heard = all_of(core);
    for (std::size_t i = 0; i < heard.size(); ++i)
        CHECK(heard[i]->sequences == expected[i]->sequences);
    CHECK(core.core().metrics().preemptions > 0U);
    CHECK(core.core().metrics().accepted_tokens > 0U);
}

/// A pool that suffices without drafts does with them: they take nothing from others that run, nor
/// more of what is cached than their sequences come to.
static void b11_drafts_take_nothing_from_others() {
    const Checkpoint checkpoint;
    const engine::RequestSpec cached = greedy(random_tokens(8, 40), 2);
    const engine::RequestSpec first = greedy(repetitive(2, 40), 200);
    const engine::RequestSpec second = greedy(repetitive(1, 20), 200);
    for (const std::uint32_t page_size : {1U, 16U}) {
        const auto pages = [&](const engine::RequestSpec& spec) {
            // The last token takes no position.
            const std::size_t positions = spec.prompt.size() - 1 + spec.max_tokens;
            return static_cast<std::uint32_t>((positions + page_size - 1) / page_size);
        };
        for (const std::size_t speculate : {std::size_t{0}, std::size_t{8}}) {
            engine::EngineConfig config = config_with(checkpoint, speculate);
            config.scheduler.speculate_branches = speculate > 0 ? 9 : 1;
            config.kv.page_size = page_size;
            config.kv.page_count = pages(cached) + pages(first) + pages(second);
            TestCore core(config);
            (void)core.complete(cached);
            const auto a = core.add(first), b = core.add(second);
            core.run();
            CHECK_EQ(a->tokens.size() + b->tokens.size(), 400U);
            CHECK_EQ(core.core().metrics().preemptions.load(), 0U);
            CHECK_EQ(core.cache().evicted_page_count, 0U);
            CHECK_EQ(core.core().metrics().accepted_tokens > 0U, speculate > 0);
            core.audit_idle();
        }
    }
}

/// An allocation that fails while a step is planned or computed ends what it must, and the others
/// go on as if nothing had been: also those whose drafts were told for a step that never was.
static void b11_b06_drafts_of_a_step_that_was_not_computed() {
    const Checkpoint checkpoint;
    const std::vector<engine::RequestSpec> specs{greedy(repetitive(1, 20), 60),
                                                 greedy(repetitive(2, 40), 80)};
    TestCore plain(config_with(checkpoint, 0));
    std::vector<Tokens> expected;
    for (const engine::RequestSpec& spec : specs) expected.push_back(plain.complete(spec)->tokens);
    engine::EngineConfig config = config_with(checkpoint, 4);
    config.scheduler.speculate_branches = 9;
    config.kv.page_size = 1;
    config.kv.page_count = 4096;
    // As long as what both texts begin with.
    const auto shared = [](const Tokens& one, const Tokens& other) {
        const auto end = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
        return static_cast<std::size_t>(end - one.begin());
    };
    std::size_t survivors = 0;
    for (std::size_t at = 1;; ++at) {
        TestCore core(config);
        const std::vector<std::shared_ptr<Heard>> heard{core.add(specs[0]), core.add(specs[1])};
        // Up to where the first one's draft does not hold.
        Tokens text, drafted;
        do {
            CHECK(core.step() && !heard[0]->result);
            text = joined(specs[0].prompt, heard[0]->tokens);
            drafted = joined(text, engine::prompt_lookup(text, 4, 9).tokens);
        } while (heard[0]->tokens.size() < 10 || heard[1]->tokens.size() < 10 ||
                 drafted.size() < text.size() + 3 ||
                 shared(drafted, joined(specs[0].prompt, expected[0])) > text.size());
        allocations_left = at;
        core.step();
        if (!has_failed()) break;
        // No draft takes the place of one that was told.
        appends_fail = true;
        core.step();
        appends_fail = false;
        core.run();
        for (std::size_t i = 0; i < heard.size(); ++i) {
            if (heard[i]->result->finish == engine::Finish::error) continue;
            ++survivors;
            CHECK(heard[i]->tokens == expected[i]);
        }
        // What nobody computed is not found.
        const auto other = core.complete(greedy(joined(drafted, {1}), 20));
        CHECK(other->result->cached_tokens <= text.size());
        CHECK(other->tokens == plain.complete(greedy(joined(drafted, {1}), 20))->tokens);
        core.audit_idle();
    }
    CHECK(survivors > 0U);
}

/// What is retained after drafts is what a continuation goes on from.
static void b11_drafts_and_continuations() {
    const Checkpoint checkpoint;
    std::vector<Tokens> outputs;
    for (const std::size_t speculate : {std::size_t{0}, std::size_t{6}}) {
        TestCore core(config_with(checkpoint, speculate));
        engine::RequestSpec first = greedy(repetitive(1, 30), 30);
        first.retain = true;
        first.id = "first";
        const auto parent = core.complete(first);
        engine::RequestSpec second = greedy({}, 20);
        second.continuation = engine::Continuation{"first", random_tokens(9, 5)};
        const auto child = core.complete(second);
        CHECK(child->result->inherited_tokens > 0U);
        outputs.push_back(joined(parent->tokens, child->tokens));
        CHECK(core.core().drop("first"));
        core.audit_idle();
    }
    CHECK(outputs[0] == outputs[1]);
}

/// A text that ends where the pool does: no draft may be longer than what is left of it.
static void b11_branches_beside_the_longest_text() {
    const Checkpoint checkpoint;
    TestCore plain(config_with(checkpoint, 0));
    std::uint64_t drafted = 0;
    for (const engine::RequestSpec& spec : requests()) {
        if (spec.sample_count > 1) continue;  // others have pages, too
        const auto expected = plain.complete(spec);
        engine::EngineConfig config = config_with(checkpoint, 4);
        config.scheduler.speculate_branches = 9;
        // The last token takes no position.
        config.kv.page_size = 1;
        config.kv.page_count = static_cast<std::uint32_t>(spec.prompt.size() - 1 + spec.max_tokens);
        TestCore core(config);
        const auto heard = core.complete(spec);
        CHECK_EQ(heard->result->error, "");  // "... positions take ... pages, a row holds at most"
        CHECK(heard->result->finish == expected->result->finish);
        CHECK(heard->sequences == expected->sequences);
        drafted += core.core().metrics().drafted_tokens;
        core.audit_idle();
    }
    CHECK(drafted > 0U);
}

/// Whoever drafted in the same step goes on as if nothing had been: its sequence has no token that
/// it did not generate.
static void b11_a_draft_that_is_refused_leaves_the_others() {
    const Checkpoint checkpoint;
    const engine::RequestSpec small = greedy(repetitive(1, 20), 120);
    const engine::RequestSpec large = greedy(repetitive(2, 40), 200);
    TestCore plain(config_with(checkpoint, 0));
    const auto expected = plain.complete(small), expected_large = plain.complete(large);
    engine::EngineConfig config = config_with(checkpoint, 4);
    config.scheduler.speculate_branches = 9;
    config.kv.page_size = 1;
    config.kv.page_count = static_cast<std::uint32_t>(large.prompt.size() - 1 + large.max_tokens);
    TestCore core(config);
    const auto a = core.add(small), b = core.add(large);
    core.run();
    CHECK(a->sequences == expected->sequences);
    CHECK(b->sequences == expected_large->sequences);
    // What the cache says that it has of the text is what was computed for it.
    engine::RequestSpec again = small;
    again.prompt = joined(small.prompt, expected->tokens);
    again.max_tokens = 20;
    TestCore fresh(config_with(checkpoint, 0));
    CHECK(core.complete(again)->tokens == fresh.complete(again)->tokens);
    core.audit_idle();
}

/// Each step of a request alone draws one token and those of its draft that held; but the last one
/// may end with one of those.
static void b11_what_a_stop_string_cuts_off_is_not_accepted() {
    const Checkpoint checkpoint;
    engine::RequestSpec spec = greedy(repetitive(1, 30), 120);
    TestCore plain(config_with(checkpoint, 0));
    const Tokens tokens = plain.complete(spec)->tokens;
    std::uint64_t accepted = 0;
    for (std::size_t at = 20; at + 2 < tokens.size(); ++at) {
        const std::string word = std::string(engine::decode(tokens[at])) +
                                 std::string(engine::decode(tokens[at + 1]));
        if (word.size() < 2) continue;
        spec.stop = {word};
        TestCore core(config_with(checkpoint, 6));
        CHECK(core.complete(spec)->result->finish == engine::Finish::stop);
        const engine::Metrics& metrics = core.core().metrics();
        CHECK(metrics.steps + metrics.accepted_tokens <= metrics.generated_tokens + 1);
        accepted += metrics.accepted_tokens;
    }
    CHECK(accepted > 0U);
}

int main() {
    RUN(b11_what_is_drafted);
    RUN(b11_what_is_drafted_in_branches);
    RUN(b11_a_text_that_repeats_itself_is_drafted_as_a_chain);
    RUN(b11_drafts_change_no_output);
    RUN(b11_branches_change_no_output);
    RUN(g15_windows_have_drafts);
    RUN(b11_drafts_where_memory_is_short);
    RUN(b11_drafts_take_nothing_from_others);
    RUN(b11_b06_drafts_of_a_step_that_was_not_computed);
    RUN(b11_branches_beside_the_longest_text);
    RUN(b11_a_draft_that_is_refused_leaves_the_others);
    RUN(b11_drafts_and_continuations);
    RUN(b11_what_a_stop_string_cuts_off_is_not_accepted);
    return 0;
}
