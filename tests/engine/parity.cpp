// B11: what a request generates depends on its prompt alone. Not on caching, chunks, pages, memory
// or company. B07: what is computed is found by others at once.
#include "family.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

using namespace test;

namespace {

/// The one model of this file.
const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

engine::EngineConfig config_with(bool caching, std::size_t chunk_size) {
    engine::EngineConfig config = tiny_config(model());
    config.prefix_caching = caching;
    config.scheduler.chunk_size = chunk_size;
    return config;
}

/// Without caching, batches or chunks: what all others are compared with.
const Outputs& plain_outputs() {
    static const Outputs outputs = alone(config_with(false, 0), family());
    return outputs;
}

}  // namespace

static void b11_outputs_are_no_constants() {
    check_no_constants(plain_outputs());
}

static void b11_greedy_outputs_are_the_same_with_caching_and_any_chunk_size() {
    check_caching_and_chunks(config_with, plain_outputs());
}

static void b11_greedy_outputs_are_the_same_at_any_page_size() {
    check_page_sizes(config_with, plain_outputs());
}

/// Bit for bit with the engine's own products, and within rounding with a BLAS.
static void b11_last_position_logits_agree_with_caching() {
    for (const engine::Gemm gemm : {engine::Gemm::packed, engine::Gemm::blas}) {
        if (gemm == engine::Gemm::blas && !engine::has_blas()) continue;
        engine::EngineConfig off = config_with(false, 64), on = config_with(true, 64);
        off.gemm = on.gemm = gemm;
        TestCore plain(off), caching(on);
        std::size_t cached = 0;
        for (const engine::RequestSpec& spec : family()) {
            const auto a = plain.complete(spec), b = caching.complete(spec);
            cached += b->result->cached_tokens;
            double most = 0;
            for (std::size_t i = 0; i < a->first_logits.size(); ++i)
                most = std::max(most, std::abs(double{a->first_logits[i]} - b->first_logits[i]));
            if (gemm == engine::Gemm::packed)
                CHECK_EQ(most, 0.0);
            else
                CHECK(most < 5e-4);
        }
        CHECK(cached > 200);
    }
}

/// Draws depend on the seed and the number of tokens, not on who else is there.
static void b11_sampled_outputs_are_the_same_in_company() {
    Specs specs = family();
    for (std::size_t i = 0; i < specs.size(); ++i)
        specs[i].sampling = {0.9, 0.8, 100 + i};
    const Outputs expected = alone(config_with(false, 0), specs);
    CHECK(expected[0] != plain_outputs()[0] && expected[0] != expected[7]);
    TestCore core(config_with(true, 7));
    CHECK(together(core, specs, 2) == expected);
}

/// Both begin in one step and compute the same prompt; the pages of one of them go back (K16).
static void b11_two_requests_with_one_prompt_at_once() {
    const Specs specs = {family()[0], family()[0], family()[1]};
    const Outputs& plain = plain_outputs();
    for (const std::size_t chunk_size : {0U, 64U}) {
        TestCore core(config_with(true, chunk_size));
        CHECK(together(core, specs, 0) == (Outputs{plain[0], plain[0], plain[1]}));
        CHECK(core.cache().duplicate_page_count > 0);
    }
}

static void b11_greedy_outputs_are_the_same_under_eviction() {
    // The longest request takes 10 pages; the working set of the family is about 25.
    for (const std::uint32_t page_count : {10U, 13U, 17U}) {
        engine::EngineConfig config = config_with(true, 64);
        config.kv.page_count = page_count;
        CHECK(alone(config, family()) == plain_outputs());
        TestCore core(config);
        CHECK(together(core, family(), 4) == plain_outputs());
        CHECK(core.cache().evicted_page_count > 0);
    }
}

/// Twelve long outputs in memory for three: whoever gives way goes on where it was.
static void b11_preemption_loses_nothing() {
    Specs specs;
    for (std::uint64_t i = 0; i < 12; ++i) specs.push_back(greedy(random_tokens(20 + i, 20), 60));
    const Outputs expected = alone(config_with(false, 0), specs);
    for (const bool caching : {false, true}) {
        engine::EngineConfig config = config_with(caching, 64);
        config.kv.page_count = 15;
        TestCore core(config);
        CHECK(together(core, specs, 0) == expected);
        CHECK(core.core().metrics().preemptions > 0);
        CHECK_EQ(core.core().metrics().finished_length.load(), specs.size());
    }
}

/// A second request finds what the first has computed so far, while that is still at work.
static void b07_chunks_are_found_before_the_prompt_is_done() {
    TestCore core(config_with(true, 32));
    const std::vector<std::uint32_t> prompt = random_tokens(30, 150);
    const auto first = core.add(greedy(prompt, 4));
    core.step();
    core.step();
    CHECK(first->tokens.empty());
    CHECK_EQ(core.cache().cached_page_count, 4U);
    const auto second = core.add(greedy(prompt, 4));
    core.run();
    CHECK(first->tokens == second->tokens);
    CHECK(second->result->cached_tokens >= 64);
    CHECK_EQ(first->result->cached_tokens, 0U);
    core.audit_idle();
}

/// K25: generated tokens are published as they fill pages: a chat's next turn finds the answer.
static void b07_generated_tokens_are_found() {
    TestCore core(config_with(true, 64));
    const std::vector<std::uint32_t> prompt = random_tokens(31, 40);
    const auto answer = core.complete(greedy(prompt, 50));
    // The last token was never computed: 89 positions, five whole pages and nine positions.
    const auto turn = joined(joined(prompt, answer->tokens), random_tokens(32, 10));
    CHECK_EQ(core.complete(greedy(turn, 1))->result->cached_tokens, 80U);
}

static void b07_nothing_is_found_without_caching() {
    TestCore core(config_with(false, 64));
    for (int i = 0; i < 2; ++i)
        CHECK_EQ(core.complete(family()[0])->result->cached_tokens, 0U);
    CHECK_EQ(core.cache().cached_page_count, 0U);
}

/// K11: requests of different salts share nothing.
static void b07_salts_keep_requests_apart() {
    TestCore core(config_with(true, 64));
    engine::RequestSpec spec = family()[0];
    for (const char* salt : {"", "a", "b", "a much longer salt than a namespace has room for"}) {
        spec.cache_salt = salt;
        CHECK_EQ(core.complete(spec)->result->cached_tokens, 0U);
        const auto again = core.complete(spec);
        CHECK_EQ(again->result->cached_tokens, spec.prompt.size() - 1);
        CHECK(again->tokens == plain_outputs()[0]);
    }
}

int main() {
    RUN(b11_outputs_are_no_constants);
    RUN(b11_greedy_outputs_are_the_same_with_caching_and_any_chunk_size);
    RUN(b11_greedy_outputs_are_the_same_at_any_page_size);
    RUN(b11_last_position_logits_agree_with_caching);
    RUN(b11_sampled_outputs_are_the_same_in_company);
    RUN(b11_two_requests_with_one_prompt_at_once);
    RUN(b11_greedy_outputs_are_the_same_under_eviction);
    RUN(b11_preemption_loses_nothing);
    RUN(b07_chunks_are_found_before_the_prompt_is_done);
    RUN(b07_generated_tokens_are_found);
    RUN(b07_nothing_is_found_without_caching);
    RUN(b07_salts_keep_requests_apart);
    return 0;
}
