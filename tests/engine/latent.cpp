// B11 for multi-head latent attention: one short vector for each position is kept, and what a
// request generates depends on its prompt alone: not on caching, chunks, pages, forks, company, or
// on a restart between. tests/engine/forward.cpp compares the same model with its formulas.
#include "family.hpp"
#include "plain_search.hpp"

#include <chrono>
#include <thread>

using namespace test;

namespace {

/// Four heads, one of whose keys and values would have 64 and 32 numbers; kept are 96 for all.
const Checkpoint& model() {
    static const Checkpoint checkpoint(
        engine::deepseek_v2_checkpoint(engine::llama_checkpoint(2, 64, 128, 4, 4, 64)));
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

static void b11_latent_outputs_are_no_constants() {
    check_no_constants(plain_outputs());
}

/// A position takes rank + rotary_dim numbers in each layer: there is no V.
static void b11_latent_memory_has_keys_alone() {
    engine::EngineConfig config = config_with(true, 64);
    config.kv.page_count = 0;
    config.kv.bytes = 1 << 20;
    TestCore core(config);
    const std::uint64_t page_bytes = 2 * config.kv.page_size * (64 + 32) * sizeof(float);
    CHECK_EQ(core.pages().total_page_count, config.kv.bytes / page_bytes);
}

static void b11_latent_outputs_are_the_same_with_caching_and_any_chunk_size() {
    check_caching_and_chunks(config_with, plain_outputs());
}

static void b11_latent_outputs_are_the_same_at_any_page_size() {
    check_page_sizes(config_with, plain_outputs());
}

/// Bit for bit: a prompt whose beginning was found, and the same prompt computed as a whole.
static void b11_latent_logits_agree_with_caching() {
    TestCore plain(config_with(false, 64)), caching(config_with(true, 64));
    std::size_t cached = 0;
    for (const engine::RequestSpec& spec : family()) {
        const auto a = plain.complete(spec), b = caching.complete(spec);
        cached += b->result->cached_tokens;
        CHECK(a->first_logits == b->first_logits);
    }
    CHECK(cached > 200);
}

static void b11_latent_outputs_are_the_same_under_eviction_and_preemption() {
    for (const std::uint32_t page_count : {10U, 13U, 17U}) {
        engine::EngineConfig config = config_with(true, 64);
        config.kv.page_count = page_count;
        CHECK(alone(config, family()) == plain_outputs());
        TestCore core(config);
        CHECK(together(core, family(), 4) == plain_outputs());
        CHECK(core.cache().evicted_page_count > 0);
    }
    Specs specs;
    for (std::uint64_t i = 0; i < 12; ++i) specs.push_back(greedy(random_tokens(20 + i, 20), 60));
    const Outputs expected = alone(config_with(false, 0), specs);
    engine::EngineConfig config = config_with(true, 64);
    config.kv.page_count = 15;
    TestCore core(config);
    CHECK(together(core, specs, 0) == expected);
    CHECK(core.core().metrics().preemptions > 0);
}

/// Beams fork, share pages and copy the last one; each is what a plain search finds.
static void b11_latent_beams_are_those_of_a_plain_search() {
    Oracle oracle(model());
    for (const std::size_t width : {2U, 4U}) {
        engine::RequestSpec spec = greedy(random_tokens(50, 43), 12);
        spec.beam_width = spec.choice_count = width;
        const std::vector<Found> expected = plain_search(oracle, spec, {});
        for (const std::uint32_t page_size : {1U, 16U}) {
            engine::EngineConfig config = config_with(true, 64);
            config.kv.page_size = page_size;
            config.kv.page_count = 2048 / page_size;
            TestCore core(config);
            check_found(*core.complete(spec), expected);
            CHECK(core.core().metrics().forks > 0);
            core.audit_idle();
        }
    }
}

/// What lies in the tiers is found by an engine that begins anew: latent pages, K alone.
static void b11_latent_outputs_are_the_same_after_a_restart() {
    const Folder folder;
    engine::EngineConfig config = config_with(true, 64);
    config.kv.tiers.host_bytes = std::uint64_t{4} << 20;
    config.kv.tiers.directory = folder.path() / "kv";
    config.kv.tiers.disk_bytes = std::uint64_t{64} << 20;
    const engine::RequestSpec spec = family()[2];
    const std::size_t whole_pages = (spec.prompt.size() - 1) / 16;
    {
        TestCore core(config);
        CHECK(core.complete(spec)->tokens == plain_outputs()[2]);
        const auto stored = [&] {
            core.run();
            return core.core().kv().cache().tier_stats().disk.stored_page_count;
        };
        for (int i = 0; stored() < whole_pages; ++i) {
            CHECK(i < 60000);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    TestCore again(config);
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // the thread looks at the journal
    const auto heard = again.complete(spec);
    CHECK(heard->tokens == plain_outputs()[2]);
    CHECK_EQ(heard->result->cached_tokens, whole_pages * 16);
    CHECK(again.core().metrics().fetched_tokens > 0);
}

int main() {
    RUN(b11_latent_outputs_are_no_constants);
    RUN(b11_latent_memory_has_keys_alone);
    RUN(b11_latent_outputs_are_the_same_with_caching_and_any_chunk_size);
    RUN(b11_latent_outputs_are_the_same_at_any_page_size);
    RUN(b11_latent_logits_agree_with_caching);
    RUN(b11_latent_outputs_are_the_same_under_eviction_and_preemption);
    RUN(b11_latent_beams_are_those_of_a_plain_search);
    RUN(b11_latent_outputs_are_the_same_after_a_restart);
    return 0;
}
