// C08 from an engine's side: several samples of one prompt are forks of the one sequence that
// computed it, each with a seed of its own, and depend on nothing else.
#include "fixture.hpp"

#include "serve/sampler.hpp"

#include <algorithm>

using namespace test;

namespace {

const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

engine::RequestSpec sampled(std::uint64_t seed, std::size_t samples, std::size_t max_tokens) {
    engine::RequestSpec spec = greedy(random_tokens(seed, 45), max_tokens);
    spec.sampling = {1.0, 0.95, 70 + seed};
    spec.choice_count = spec.sample_count = samples;
    return spec;
}

/// Each sample as a request of its own, in an engine without a cache.
std::vector<std::vector<std::uint32_t>> one_by_one(engine::RequestSpec spec) {
    engine::EngineConfig config = tiny_config(model());
    config.prefix_caching = false;
    TestCore core(config);
    const std::size_t samples = spec.sample_count;
    const std::uint64_t seed = spec.sampling.seed;
    spec.choice_count = spec.sample_count = 1;
    std::vector<std::vector<std::uint32_t>> out;
    for (std::size_t i = 0; i < samples; ++i) {
        spec.sampling.seed = engine::sample_seed(seed, i);
        out.push_back(core.complete(spec)->tokens);
    }
    return out;
}

}  // namespace

static void c08_samples_are_those_of_requests_of_their_own() {
    const engine::RequestSpec spec = sampled(1, 5, 30);
    const auto expected = one_by_one(spec);
    for (std::size_t i = 1; i < expected.size(); ++i) CHECK(expected[i] != expected[0]);
    CHECK_EQ(engine::sample_seed(9, 0), 9U);
    for (const bool caching : {true, false}) {
        for (const std::uint32_t page_size : {1U, 16U, 64U}) {
            engine::EngineConfig config = tiny_config(model());
            config.prefix_caching = caching;
            config.kv.page_size = page_size;
            config.kv.page_count = 4096 / page_size;
            TestCore core(config);
            const auto heard = core.complete(spec);
            CHECK(heard->choices() == expected);
            CHECK(heard->result->finish == engine::Finish::length);
            CHECK_EQ(heard->result->completion_tokens, 150U);
            CHECK_EQ(core.core().metrics().forks.load(), 4U);
            // The prompt went through the model once.
            CHECK_EQ(core.core().metrics().computed_tokens.load(), 45U + 5U * 29U);
            core.audit_idle();
        }
    }
}

/// Without prefix caching nobody finds what the samples of another request share.
static void c08_samples_share_among_themselves_alone_without_caching() {
    engine::EngineConfig config = tiny_config(model());
    config.prefix_caching = false;
    TestCore core(config);
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(core.complete(sampled(1, 3, 8))->result->cached_tokens, 0U);
    engine::RequestSpec alone = sampled(1, 1, 8);
    CHECK_EQ(core.complete(alone)->result->cached_tokens, 0U);
    core.audit_idle();
}

/// Fewer rows, or fewer pages, than samples: those that find no place wait for the others.
static void c08_samples_take_turns_where_memory_is_short() {
    const engine::RequestSpec spec = sampled(2, 6, 40);
    const auto expected = one_by_one(spec);
    for (const bool caching : {true, false}) {
        engine::EngineConfig few_rows = tiny_config(model());
        few_rows.prefix_caching = caching;
        few_rows.scheduler.max_running = 2;
        TestCore rows(few_rows);
        CHECK(rows.complete(spec)->choices() == expected);
        rows.audit_idle();
        // A sample takes six pages; all of them two shared ones, and four each.
        for (const std::uint32_t page_count : {6U, 9U, 14U}) {
            engine::EngineConfig config = tiny_config(model());
            config.prefix_caching = caching;
            config.kv.page_count = page_count;
            TestCore core(config);
            const auto heard = core.complete(spec);
            CHECK(heard->choices() == expected);
            CHECK(heard->result->preemptions > 0 || page_count == 6);
            core.audit_idle();
        }
    }
}

static void c08_samples_in_company() {
    std::vector<engine::RequestSpec> specs;
    std::vector<std::vector<std::vector<std::uint32_t>>> expected;
    for (std::uint64_t i = 0; i < 4; ++i) {
        specs.push_back(sampled(3 + i, 1 + i, 25));
        expected.push_back(one_by_one(specs.back()));
    }
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 24;
    config.scheduler.chunk_size = 20;
    TestCore core(config);
    std::vector<std::shared_ptr<Heard>> all;
    for (const engine::RequestSpec& spec : specs) {
        all.push_back(core.add(spec));
        core.step();
        audit(core.core().kv().table(), core.core().kv().cache());
    }
    core.run();
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i]->choices() == expected[i]);
    core.audit_idle();
}

/// The likeliest by token, in this order; all samples count as generated.
static void c08_best_of_returns_the_likeliest() {
    engine::RequestSpec spec = sampled(8, 6, 20);
    spec.stop = {"e", " "};
    spec.logprobs = 0;
    TestCore core(tiny_config(model()));
    const auto all = core.complete(spec);
    std::vector<std::pair<double, std::size_t>> order;
    for (const auto& [sequence, logprobs] : all->logprobs) {
        double sum = 0;
        for (const double logprob : logprobs) sum += logprob;
        order.emplace_back(-sum / static_cast<double>(logprobs.size()), sequence);
    }
    std::sort(order.begin(), order.end());
    spec.choice_count = 2;
    spec.logprobs.reset();
    const auto best = core.complete(spec);
    CHECK_EQ(best->result->choices.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK_EQ(best->result->choices[i].sequence, order[i].second);
        const auto count = static_cast<double>(best->choices()[i].size());
        CHECK(std::abs(-*best->result->choices[i].logprob / count - order[i].first) < 1e-9);
    }
    CHECK_EQ(best->result->completion_tokens, all->result->completion_tokens);
    CHECK(!all->result->choices[0].logprob);
    core.audit_idle();
}

/// A sample that ends gives its pages back at once; the others go on.
static void c08_samples_that_end_free_their_pages() {
    TestCore core(tiny_config(model()));
    engine::RequestSpec spec = sampled(9, 4, 40);
    spec.stop = {"a", "e", "i", "o", "u", " "};
    const auto heard = core.add(spec);
    std::size_t fewest = 4;
    while (core.step() && !heard->result) {
        const std::size_t alive = core.cache().sequence_count;
        CHECK(alive <= fewest);
        fewest = alive;
        audit(core.core().kv().table(), core.core().kv().cache());
    }
    CHECK(fewest < 4);
    for (const engine::ChoiceResult& choice : heard->result->choices)
        CHECK(choice.finish == engine::Finish::stop || choice.finish == engine::Finish::length);
    core.audit_idle();
}

static void c08_requests_for_choices_that_make_no_sense_are_refused() {
    TestCore core(tiny_config(model()));
    const auto refuse = [&](engine::RequestSpec spec, const std::string& reason) {
        CHECK_REFUSES(engine::InvalidRequest, reason, (void)core.core().accept(spec));
    };
    engine::RequestSpec spec = sampled(1, 3, 4);
    spec.sample_count = 2;
    refuse(spec, "best_of: fewer than n");
    spec.beam_width = 2;
    refuse(spec, "beam_width: fewer than n");
    spec.choice_count = 0;
    refuse(spec, "n: at least one");
    spec.choice_count = 1;
    spec.length_penalty = -1;
    refuse(spec, "length_penalty: negative");
}

int main() {
    RUN(c08_samples_are_those_of_requests_of_their_own);
    RUN(c08_samples_share_among_themselves_alone_without_caching);
    RUN(c08_samples_take_turns_where_memory_is_short);
    RUN(c08_samples_in_company);
    RUN(c08_best_of_returns_the_likeliest);
    RUN(c08_samples_that_end_free_their_pages);
    RUN(c08_requests_for_choices_that_make_no_sense_are_refused);
    return 0;
}
