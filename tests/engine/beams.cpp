// C08, C10: beam search by forks. It finds what a search finds that computes every beam from its
// first token on, in as little memory as one beam takes; beams that lose are gone at once.
#include "plain_search.hpp"

#include "serve/beam_search.hpp"
#include "serve/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

using namespace test;

namespace {

const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

engine::RequestSpec search(std::uint64_t seed, std::size_t width, std::size_t max_tokens) {
    engine::RequestSpec spec = greedy(random_tokens(seed, 43), max_tokens);
    spec.beam_width = spec.choice_count = width;
    return spec;
}

/// By the one model of this file.
std::vector<Found> plain_search(const engine::RequestSpec& spec, const Tokens& ends) {
    static Oracle oracle(model());
    return plain_search(oracle, spec, ends);
}

}  // namespace

static void c08_extensions_are_the_best_of_all_beams() {
    const std::vector<engine::Candidate> a = {{7, -0.5}, {8, -1.0}, {9, -4.0}};
    const std::vector<engine::Candidate> b = {{7, -0.25}, {6, -0.5}, {5, -0.75}};
    const std::vector<engine::Beam> beams = {{-1.0, a}, {-1.5, b}};
    const auto name = [](const std::vector<engine::Extension>& extensions) {
        std::string text;
        for (const auto& next : extensions)
            text += std::to_string(next.beam) + std::to_string(next.candidate) + " ";
        return text;
    };
    const auto never = [](std::size_t, std::size_t) { return false; };
    // -1.5, then -1.75, -2 twice: the better beam's first.
    const engine::BeamStep plain = engine::extend_beams(beams, 4, never);
    CHECK_EQ(name(plain.live), "00 10 01 11 ");
    CHECK_EQ(plain.live[1].logprob, -1.75);
    // What ends is among the best two, or it doesn't count.
    const engine::BeamStep ended =
        engine::extend_beams(beams, 2, [](std::size_t beam, std::size_t) { return beam == 1; });
    CHECK_EQ(name(ended.live), "00 01 ");
    CHECK_EQ(name(ended.ended), "10 ");
    CHECK_EQ(name(engine::extend_beams(beams, 100, never).live), "00 10 01 11 12 02 ");
    CHECK_EQ(engine::beam_score(-6, 3, 1), -2.0);
    CHECK_EQ(engine::beam_score(-6, 3, 0), -6.0);
    CHECK_EQ(engine::best_possible_score(-6, 12, 1), -0.5);
}

/// A stop string may end a text with nearly any token. What is kept of those is no more than may
/// count, and the beams are those of all candidates together.
static void c08_few_candidates_are_kept_where_most_tokens_end() {
    constexpr std::size_t vocab_size = 5000, width = 3;
    const auto ends = [](std::uint32_t id) { return id % 900 != 0; };
    std::vector<std::vector<engine::Candidate>> kept, all;
    for (const std::uint64_t seed : {1, 2, 3}) {
        std::vector<float> logits;
        for (const std::uint32_t token : random_tokens(seed, vocab_size))
            logits.push_back(static_cast<float>(token) / 16);
        std::size_t asked = 0;
        kept.push_back(engine::candidates_of(logits.data(), vocab_size, width,
                                             [&](std::uint32_t id) { return ++asked, ends(id); }));
        CHECK(asked <= vocab_size && kept.back().size() <= 2 * width);
        all.emplace_back();
        const auto every = engine::top_logprobs(logits.data(), vocab_size, vocab_size);
        for (const auto& [id, logprob] : every) all.back().push_back({id, logprob});
    }
    const auto extended = [&](const std::vector<std::vector<engine::Candidate>>& candidates) {
        const std::vector<engine::Beam> beams = {
            {-1, candidates[0]}, {-1.5, candidates[1]}, {-2, candidates[2]}};
        const engine::BeamStep step = engine::extend_beams(
            beams, width, [&](std::size_t b, std::size_t c) { return ends(candidates[b][c].id); });
        std::vector<std::pair<std::size_t, std::uint32_t>> found;
        for (const auto* extensions : {&step.live, &step.ended})
            for (const engine::Extension& next : *extensions)
                found.emplace_back(next.beam, candidates[next.beam][next.candidate].id);
        CHECK_EQ(step.live.size(), width);
        CHECK(!step.ended.empty());
        return found;
    };
    CHECK(extended(kept) == extended(all));
}

static void c08_beams_are_those_of_a_plain_search() {
    for (const std::size_t width : {1U, 2U, 5U, 8U}) {
        const engine::RequestSpec spec = search(width, width, 12);
        const auto expected = plain_search(spec, {});
        for (const bool caching : {true, false}) {
            for (const std::uint32_t page_size : {1U, 4U, 16U}) {
                engine::EngineConfig config = tiny_config(model());
                config.prefix_caching = caching;
                config.kv.page_size = page_size;
                config.kv.page_count = 4096 / page_size;
                TestCore core(config);
                const auto heard = core.complete(spec);
                check_found(*heard, expected);
                CHECK_EQ(heard->result->preemptions, 0U);
                CHECK_EQ(core.core().metrics().computed_tokens.load(), 43U + 11U * width);
                core.audit_idle();
            }
        }
    }
    // The best beam is not what greedy sampling finds, or this test would show little.
    bool differs = false;
    for (const std::size_t width : {2U, 5U, 8U}) {
        TestCore core(tiny_config(model()));
        const engine::RequestSpec spec = search(width, width, 12);
        differs = differs || core.complete(greedy(spec.prompt, 12))->tokens !=
                                 plain_search(spec, {}).front().tokens;
    }
    CHECK(differs);
}

/// Beams that end compete with those that go on, by length.
static void c08_beams_that_end() {
    const std::vector<Found> plain = plain_search(search(5, 5, 12), {});
    std::vector<std::size_t> lengths;
    for (const double penalty : {0.0, 1.0, 2.0}) {
        engine::RequestSpec spec = search(5, 5, 12);
        spec.length_penalty = penalty;
        // Bytes that come up early, in one beam or the other.
        const Tokens ends = {plain[0].tokens[1], plain[4].tokens[3], plain[2].tokens[6]};
        for (const std::uint32_t id : ends) spec.stop.push_back(std::string(engine::decode(id)));
        const auto expected = plain_search(spec, ends);
        lengths.push_back(0);
        for (const Found& found : expected) lengths.back() += found.tokens.size();
        TestCore core(tiny_config(model()));
        const auto heard = core.complete(spec);
        check_found(*heard, expected);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const bool stopped =
                std::find(ends.begin(), ends.end(), expected[i].tokens.back()) != ends.end();
            CHECK(heard->result->choices[i].finish ==
                  (stopped ? engine::Finish::stop : engine::Finish::length));
        }
        core.audit_idle();
        // Fewer choices than beams: the same ones, and never later.
        spec.choice_count = 2;
        const std::uint64_t steps = core.core().metrics().steps;
        check_found(*core.complete(spec), plain_search(spec, ends));
        CHECK(core.core().metrics().steps <= 2 * steps);
        core.audit_idle();
    }
    // Without a penalty some of the best have ended early; a large one lets the long ones win.
    CHECK(lengths[0] < lengths[2]);
}

/// After each step there are as many sequences as beams, and each owns no more than the page that
/// it writes to.
static void c08_losing_beams_are_gone_at_once() {
    TestCore core(tiny_config(model()));
    const auto heard = core.add(search(6, 8, 30));
    std::size_t steps = 0;
    while (core.step() && !heard->result) {
        CHECK_EQ(core.cache().sequence_count, 8U);
        // A page that a beam lost by its end waits until the copies out of it are made.
        CHECK(core.pages().private_page_count <= 2 * 8);
        audit(core.core().kv().table(), core.core().kv().cache());
        ++steps;
    }
    CHECK(steps >= 29);
    CHECK(core.core().metrics().dropped_beams > 0);
    CHECK(core.core().metrics().forks > 7);
    core.audit_idle();
}

/// One beam takes five pages; eight of them do not fit. They take turns: what a beam says about its
/// next token is kept while its pages are another's.
static void c08_a_pool_too_small_for_all_beams() {
    const engine::RequestSpec spec = search(7, 8, 30);
    const auto expected = plain_search(spec, {});
    for (const bool caching : {true, false}) {
        for (const std::uint32_t page_count : {5U, 6U, 8U, 11U}) {
            engine::EngineConfig config = tiny_config(model());
            config.prefix_caching = caching;
            config.kv.page_count = page_count;
            TestCore core(config);
            const auto heard = core.add(spec);
            while (core.step()) audit(core.core().kv().table(), core.core().kv().cache());
            check_found(*heard, expected);
            CHECK(heard->result->preemptions > 0);
            core.audit_idle();
        }
        // Pages for all, but rows for three.
        engine::EngineConfig config = tiny_config(model());
        config.prefix_caching = caching;
        config.scheduler.max_running = 3;
        TestCore core(config);
        check_found(*core.complete(spec), expected);
        core.audit_idle();
    }
    // A single beam that does not fit is refused before it begins.
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 4;
    TestCore core(config);
    CHECK_REFUSES(engine::InvalidRequest, "need 5 pages", (void)core.core().accept(spec));
}

/// Searches and plain requests at once, in memory for neither.
static void c08_beams_in_company() {
    const engine::RequestSpec first = search(8, 6, 20), second = search(9, 4, 25);
    std::vector<Tokens> expected;
    std::vector<engine::RequestSpec> plain;
    for (std::uint64_t i = 0; i < 4; ++i) {
        plain.push_back(greedy(random_tokens(50 + i, 30), 40));
        TestCore alone(tiny_config(model()));
        expected.push_back(alone.complete(plain.back())->tokens);
    }
    for (const std::uint32_t page_count : {6U, 12U, 30U}) {
        engine::EngineConfig config = tiny_config(model());
        config.kv.page_count = page_count;
        config.scheduler.chunk_size = 24;
        TestCore core(config);
        const auto a = core.add(first);
        std::vector<std::shared_ptr<Heard>> others;
        for (const engine::RequestSpec& spec : plain) {
            others.push_back(core.add(spec));
            core.step();
        }
        const auto b = core.add(second);
        while (core.step()) audit(core.core().kv().table(), core.core().kv().cache());
        check_found(*a, plain_search(first, {}));
        check_found(*b, plain_search(second, {}));
        for (std::size_t i = 0; i < others.size(); ++i) CHECK(others[i]->tokens == expected[i]);
        core.audit_idle();
    }
}

/// B06: at any moment, with any number of beams.
static void c08_searches_that_are_cancelled_or_fail_lose_nothing() {
    for (const std::uint32_t page_count : {6U, 256U}) {
        for (const std::size_t steps : {1U, 2U, 5U, 14U}) {
            engine::EngineConfig config = tiny_config(model());
            config.kv.page_count = page_count;
            std::size_t left = SIZE_MAX;
            config.before_forward = [&](std::size_t) {
                if (left-- == 0) throw std::runtime_error("the device fell off the bus");
            };
            TestCore core(config);
            const auto cancelled = core.add(search(10, 8, 30));
            for (std::size_t i = 0; i < steps; ++i) core.step();
            core.core().cancel(core.last());
            CHECK(cancelled->result->finish == engine::Finish::cancelled);
            CHECK(cancelled->result->choices.empty() && cancelled->tokens.empty());
            core.audit_idle();
            left = steps;
            const auto failed = core.complete(search(10, 8, 30));
            CHECK(failed->result->finish == engine::Finish::error);
            CHECK_EQ(failed->result->error, "the device fell off the bus");
            core.audit_idle();
            left = SIZE_MAX;
            check_found(*core.complete(search(10, 8, 30)), plain_search(search(10, 8, 30), {}));
        }
    }
}

int main() {
    RUN(c08_extensions_are_the_best_of_all_beams);
    RUN(c08_few_candidates_are_kept_where_most_tokens_end);
    RUN(c08_beams_are_those_of_a_plain_search);
    RUN(c08_beams_that_end);
    RUN(c08_losing_beams_are_gone_at_once);
    RUN(c08_a_pool_too_small_for_all_beams);
    RUN(c08_beams_in_company);
    RUN(c08_searches_that_are_cancelled_or_fail_lose_nothing);
    return 0;
}
