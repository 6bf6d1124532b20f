// T02 from an engine's side: what left KV memory comes back from host memory, and after a restart
// from a disk, and nobody sees a difference in what is generated.
#include "fixture.hpp"

#include <thread>

using namespace test;

namespace {

const Checkpoint& model() {
    static const Checkpoint checkpoint;
    return checkpoint;
}

using Tokens = std::vector<std::uint32_t>;
constexpr std::size_t prompt_tokens = 400, max_tokens = 12;

engine::EngineConfig tiered(const Folder* disk) {
    engine::EngineConfig config = tiny_config(model());
    config.kv.page_count = 48;
    config.scheduler.chunk_size = 128;
    config.kv.tiers.host_bytes = std::uint64_t{16} << 20;
    if (disk != nullptr) {
        config.kv.tiers.directory = disk->path() / "kv";
        config.kv.tiers.disk_bytes = std::uint64_t{64} << 20;
    }
    return config;
}

Tokens from_scratch(const Tokens& prompt) {
    engine::EngineConfig config = tiny_config(model());
    config.prefix_caching = false;
    TestCore core(config);
    return core.complete(greedy(prompt, max_tokens))->tokens;
}

/// Until a tier has so many pages.
void until_stored(TestCore& core, std::uint64_t host, std::uint64_t disk) {
    for (int i = 0; i < 60000; ++i) {
        core.run();
        const rkv_tier_stats now = core.core().kv().cache().tier_stats();
        if (now.host.stored_page_count >= host && now.disk.stored_page_count >= disk) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    fail(__FILE__, __LINE__, "nothing is stored");
}

/// Runs one request and says how long the first token took.
std::shared_ptr<Heard> ask(TestCore& core, const Tokens& prompt, const char* what) {
    auto heard = core.complete(greedy(prompt, max_tokens));
    std::printf("         %-28s %4zu of %zu tokens cached, first token after %.2f ms\n", what,
                heard->result->cached_tokens, prompt.size(),
                1000 * heard->result->first_token_seconds);
    return heard;
}

/// Pages of 16 positions of a prompt, the last token's left out.
constexpr std::size_t whole(std::size_t tokens) { return (tokens - 1) / 16 * 16; }

void t02_tiers_change_nothing_but_time() {
    const Folder disk;
    const Tokens prompt = random_tokens(1, prompt_tokens);
    const Tokens expected = from_scratch(prompt);
    {
        TestCore core(tiered(&disk));
        CHECK(ask(core, prompt, "cold")->tokens == expected);
        until_stored(core, whole(prompt_tokens) / 16, 0);
        CHECK(ask(core, prompt, "device")->tokens == expected);
        // Others take its pages.
        for (std::uint64_t seed = 2; seed < 5; ++seed)
            (void)core.complete(greedy(random_tokens(seed, prompt_tokens), max_tokens));
        CHECK_EQ(core.core().metrics().fetched_tokens, 0U);
        const auto again = ask(core, prompt, "host memory");
        CHECK(again->tokens == expected);
        CHECK_EQ(again->result->cached_tokens, whole(prompt_tokens));
        CHECK(core.core().metrics().fetched_tokens > 0);
        // Several at once, some of the same beginning.
        for (std::uint64_t seed = 2; seed < 5; ++seed)
            (void)core.add(greedy(random_tokens(seed, prompt_tokens), max_tokens));
        const auto first = core.add(greedy(prompt, max_tokens));
        const auto second = core.add(greedy(joined(prompt, {7, 8}), max_tokens));
        core.run();
        CHECK(first->tokens == expected);
        CHECK(second->tokens == from_scratch(joined(prompt, {7, 8})));
        until_stored(core, 0, whole(prompt_tokens) / 16);
        core.audit_idle();
    }
    TestCore core(tiered(&disk));
    CHECK(core.core().kv().cache().tier_stats().disk.page_count >= whole(prompt_tokens) / 16);
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // the thread looks at the journal
    const auto after = ask(core, prompt, "disk after a restart");
    CHECK(after->tokens == expected);
    CHECK_EQ(after->result->cached_tokens, whole(prompt_tokens));
    core.audit_idle();
}

/// Another model finds nothing of this one: the directory is refused.
void t07_another_model_is_refused() {
    const Folder disk;
    { TestCore core(tiered(&disk)); }
    const Checkpoint other(engine::llama_checkpoint(2, 64, 160, 4, 2, 64));
    engine::EngineConfig config = tiered(&disk);
    config.model = other.path();
    CHECK_REFUSES(rkv::Error, "fingerprint", TestCore core(config));
}

}  // namespace

int main() {
    RUN(t02_tiers_change_nothing_but_time);
    RUN(t07_another_model_is_refused);
    return 0;
}
