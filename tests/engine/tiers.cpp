// T02, T13 and T18 from an engine's side: what left KV memory comes back from host memory, and
// after a restart from a disk or from a store that engines share, also before its request begins;
// and nobody sees a difference in what is generated.
#include "fixture.hpp"
#include "http/prometheus.hpp"
#include "page/cache_events.hpp"

#include <atomic>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
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

/// The counters that a page is told.
nlohmann::json page_stats(const engine::Core& core) {
    engine::CacheEvents events(core);
    const std::string text = events.next(), before = "event: stats\ndata: ";
    const std::size_t at = text.find(before) + before.size();
    return nlohmann::json::parse(text.substr(at, text.find("\n\n", at) - at));
}

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
        const nlohmann::json before = page_stats(core.core());
        const auto again = ask(core, prompt, "host memory");
        const nlohmann::json after = page_stats(core.core());
        CHECK_EQ(after["prompt_tokens"].get<std::size_t>() -
                     before["prompt_tokens"].get<std::size_t>(), prompt.size());
        CHECK_EQ(after["cached_tokens"].get<std::size_t>() -
                     before["cached_tokens"].get<std::size_t>(), again->result->cached_tokens);
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
    // What whoever watches the engine is told.
    const rkv_tier_stats told = core.core().kv().cache().tier_stats();
    const std::string metrics = engine::prometheus_text(core.core());
    CHECK_EQ(told.disk.fetched_page_count, whole(prompt_tokens) / 16);
    for (const auto& [tier, totals] : {std::pair("host", told.host), std::pair("disk", told.disk)})
        for (const auto& [what, value] :
             {std::pair("pages", totals.page_count), std::pair("bytes", totals.used_bytes),
              std::pair("fetched_pages_total", totals.fetched_page_count)}) {
            const std::string line = std::string("\nengine_tier_") + what + "{tier=\"" + tier +
                                     "\"} " + std::to_string(value) + "\n";
            CHECK(metrics.find(line) != std::string::npos);
        }
    CHECK(metrics.find("\nengine_tier_fetches_total{end=\"complete\"} 1\n") != std::string::npos);
}

/// While a request waits for its turn, what the disk has of its prompt comes to host memory; one
/// that is cancelled gives that up.
void t18_who_waits_is_prefetched() {
    const Folder disk;
    const Tokens prompt = random_tokens(1, prompt_tokens);
    const Tokens expected = from_scratch(prompt);
    const std::size_t pages = whole(prompt_tokens) / 16;
    {
        TestCore core(tiered(&disk));
        (void)core.complete(greedy(prompt, max_tokens));
        until_stored(core, pages, pages);
    }
    engine::EngineConfig config = tiered(&disk);
    config.scheduler.max_running = 1;
    TestCore core(config);
    const auto stats = [&] { return core.core().kv().cache().tier_stats(); };
    const auto first = core.add(greedy(random_tokens(2, prompt_tokens), 200));
    const auto second = core.add(greedy(prompt, max_tokens));
    const auto third = core.add(greedy(random_tokens(3, prompt_tokens), max_tokens));
    for (int i = 0; i < 60000 && stats().prefetched_disk_page_count < pages; ++i) {
        // The first request ends after some 200 steps.
        if (i % 64 == 0) (void)core.step();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (first->result) break;
    }
    CHECK(!first->result && !second->result);
    CHECK_EQ(stats().prefetched_disk_page_count, pages);
    CHECK_EQ(stats().host.fetched_page_count, 0U);
    CHECK(engine::prometheus_text(core.core()).find(
              "engine_tier_prefetched_pages_total{tier=\"disk\"} " + std::to_string(pages)) !=
          std::string::npos);
    core.run();
    CHECK(second->tokens == expected);
    CHECK_EQ(second->result->cached_tokens, whole(prompt_tokens));
    CHECK_EQ(stats().host.fetched_page_count, pages);
    CHECK_EQ(stats().disk.fetched_page_count, 0U);
    CHECK(third->tokens == from_scratch(random_tokens(3, prompt_tokens)));
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

/// Writes other bytes over a file's, without a change of its size.
void overwrite(const std::filesystem::path& file, std::streamoff from, std::size_t byte_count) {
    std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(from);
    out.write(std::string(byte_count, '\x11').data(), static_cast<std::streamsize>(byte_count));
    CHECK(out.good());
}

/// So is another one of the same shape that has other weights: in files of another name, as large
/// models come, or far from the file's ends.
void t07_a_model_with_other_weights_is_refused() {
    for (const bool is_in_parts : {true, false}) {
        const engine::CheckpointSpec shape = engine::llama_checkpoint(2, 64, 8192, 4, 2, 64);
        const Checkpoint checkpoints[] = {Checkpoint(shape), Checkpoint(shape)};
        const Folder disk;
        for (const Checkpoint& checkpoint : checkpoints) {
            std::filesystem::path weights = checkpoint.path() / "model.safetensors";
            const auto size = static_cast<std::streamoff>(std::filesystem::file_size(weights));
            CHECK(size > std::streamoff{4} << 20);
            const bool is_other = &checkpoint != checkpoints;
            if (is_in_parts) {
                const std::filesystem::path part = checkpoint.path() / "part.safetensors";
                std::filesystem::rename(weights, part);
                std::ofstream(checkpoint.path() / "model.safetensors.index.json")
                    << R"({"weight_map": {"model.norm.weight": "part.safetensors"}})";
                weights = part;
            }
            if (is_other) overwrite(weights, size / 2, std::size_t{1} << 20);
            engine::EngineConfig config = tiered(&disk);
            config.model = checkpoint.path();
            if (is_other) {
                CHECK_REFUSES(rkv::Error, "fingerprint", TestCore core(config));
            } else {
                const TestCore core(config);
            }
        }
    }
}

/// A store that engines share, in this process's memory. It can be dead.
class SharedStore {
public:
    std::atomic<bool> is_dead{false};

    [[nodiscard]] rkv_remote_store functions() {
        rkv_remote_store made{};
        made.struct_size = sizeof made;
        made.user_data = this;
        made.has = call<&SharedStore::has>;
        made.get = call<&SharedStore::get>;
        made.put = call<&SharedStore::put>;
        return made;
    }
    [[nodiscard]] std::size_t size() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return values_.size();
    }
    /// Changes one bit of each value.
    void spoil() {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto& [key, value] : values_) value[value.size() / 2] ^= 1;
    }

private:
    std::mutex mutex_;
    std::map<std::string, std::string> values_;

    static std::string key_of(const rkv_remote_item& item) {
        return {reinterpret_cast<const char*>(item.key), sizeof item.key};
    }
    void has(rkv_remote_item& item) {
        item.answer = values_.count(key_of(item)) > 0 ? RKV_REMOTE_DONE : RKV_REMOTE_MISSING;
    }
    void get(rkv_remote_item& item) {
        const auto found = values_.find(key_of(item));
        item.answer = RKV_REMOTE_MISSING;
        if (found == values_.end()) return;
        const std::string& value = found->second;
        std::memcpy(item.bytes, value.data(),
                    std::min<std::size_t>(value.size(), item.byte_count));
        item.byte_count = value.size();
        item.answer = RKV_REMOTE_DONE;
    }
    void put(rkv_remote_item& item) {
        values_[key_of(item)].assign(static_cast<const char*>(item.bytes), item.byte_count);
        item.answer = RKV_REMOTE_DONE;
    }
    template <void (SharedStore::*each)(rkv_remote_item&)>
    static void call(void* user_data, rkv_remote_item* items, std::size_t item_size,
                     std::size_t count, std::uint64_t) {
        auto& store = *static_cast<SharedStore*>(user_data);
        if (store.is_dead) return;
        const std::lock_guard<std::mutex> lock(store.mutex_);
        for (std::size_t i = 0; i < count; ++i) {
            auto* at = reinterpret_cast<std::uint8_t*>(items) + i * item_size;
            (store.*each)(*reinterpret_cast<rkv_remote_item*>(at));
        }
    }
};

/// T13: one engine computes, another one, which has nothing, fetches: the same tokens, and less to
/// compute. With a store that is dead or full of garbage it computes.
void t13_engines_share_a_store() {
    SharedStore store;
    const rkv_remote_store functions = store.functions();
    engine::EngineConfig config = tiered(nullptr);
    config.kv.tiers.remote = &functions;
    const Tokens prompt = random_tokens(11, prompt_tokens);
    const Tokens expected = from_scratch(prompt);
    const std::size_t pages = whole(prompt_tokens) / 16;
    const auto computed = [](TestCore& core) {
        return core.core().metrics().computed_tokens.load();
    };
    std::uint64_t cold = 0;
    {
        TestCore first(config);
        CHECK(ask(first, prompt, "first engine")->tokens == expected);
        cold = computed(first);
        for (int i = 0; i < 60000 && store.size() < pages; ++i) {
            first.run();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        CHECK(store.size() >= pages);
    }
    {
        TestCore second(config);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const auto heard = ask(second, prompt, "second engine");
        CHECK(heard->tokens == expected);
        CHECK_EQ(heard->result->cached_tokens, whole(prompt_tokens));
        CHECK_EQ(second.core().kv().cache().tier_stats().remote.fetched_page_count, pages);
        CHECK_EQ(computed(second) + whole(prompt_tokens), cold);
        // Another prompt, which nobody has.
        const Tokens other = random_tokens(12, prompt_tokens);
        CHECK(second.complete(greedy(other, max_tokens))->tokens == from_scratch(other));
        second.audit_idle();
    }
    store.is_dead = true;
    {
        TestCore third(config);
        for (int i = 0; i < 3; ++i)
            CHECK(third.complete(greedy(prompt, max_tokens))->tokens == expected);
        CHECK_EQ(third.core().kv().cache().tier_stats().remote.fetched_page_count, 0U);
        third.audit_idle();
    }
    store.is_dead = false;
    store.spoil();
    TestCore fourth(config);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(ask(fourth, prompt, "garbage in the store")->tokens == expected);
    const rkv_remote_totals remote = fourth.core().kv().cache().tier_stats().remote;
    CHECK(remote.damaged_page_count > 0 && remote.read_page_count == 0);
    fourth.audit_idle();
}

/// Models of several kinds of layers: windows and states come back too, and what a request goes on
/// from is what the device alone would have given.
void t16_after_a_restart_all_groups_come_from_disk() {
    const Checkpoint windows(
        engine::gemma3_checkpoint(engine::llama_checkpoint(6, 64, 96, 2, 1, 64), 24));
    const Checkpoint states(
        engine::qwen3_next_checkpoint(engine::llama_checkpoint(4, 64, 96, 2, 1, 64)));
    for (const Checkpoint* checkpoint : {&windows, &states}) {
        const Folder disk;
        engine::EngineConfig config = tiered(&disk);
        config.model = checkpoint->path();
        const Tokens prompt = random_tokens(1, prompt_tokens);
        const Tokens longer = joined(prompt, random_tokens(2, 50));
        engine::EngineConfig plain = config;
        plain.prefix_caching = false;
        plain.kv.tiers = {};
        TestCore scratch(plain);
        const Tokens expected = scratch.complete(greedy(prompt, max_tokens))->tokens;
        const Tokens expected_longer = scratch.complete(greedy(longer, max_tokens))->tokens;
        const std::uint64_t pages = whole(prompt_tokens) / 16;
        {
            TestCore core(config);
            CHECK(ask(core, prompt, "cold")->tokens == expected);
            const std::uint64_t all = checkpoint == &windows ? 2 * pages : pages + 1;
            until_stored(core, all, all);
            core.audit_idle();
        }
        TestCore core(config);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const auto after = ask(core, prompt, "disk after a restart");
        CHECK(after->tokens == expected);
        CHECK_EQ(after->result->cached_tokens, whole(prompt_tokens));
        const rkv_tier_stats stats = core.core().kv().cache().tier_stats();
        // All of the full layers, and the window's two pages or one state.
        CHECK_EQ(stats.disk.fetched_page_count, pages + (checkpoint == &windows ? 2 : 1));
        CHECK(ask(core, longer, "and more behind it")->tokens == expected_longer);
        core.audit_idle();
    }
}

/// Who lost its pages has them back from a tier, and had computed them itself: nothing of its
/// prompt was there when it began.
void t02_what_was_lost_and_comes_back_was_not_cached() {
    TestCore core(tiered(nullptr));
    const auto first = core.add(greedy(random_tokens(1, prompt_tokens), 200));
    const auto last = core.add(greedy(random_tokens(2, 300), 200));
    // The tiers' threads hear of pages before these go.
    while (core.step()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(first->result && last->result);
    CHECK(last->result->preemptions > 0);
    CHECK(core.core().metrics().fetched_tokens > 0);
    CHECK_EQ(first->result->cached_tokens, 0U);
    CHECK_EQ(last->result->cached_tokens, 0U);
    core.audit_idle();
}

/// Requests are numbered anew in each process, and the namespaces of those that share nothing with
/// others are their numbers.
void t02_without_prefix_caching_nothing_is_found_after_a_restart() {
    const Folder disk;
    engine::EngineConfig config = tiered(&disk);
    config.prefix_caching = false;
    engine::RequestSpec spec = greedy(random_tokens(1, prompt_tokens), max_tokens);
    spec.choice_count = spec.sample_count = 2;
    for (int process = 0; process < 2; ++process) {
        TestCore core(config);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        CHECK_EQ(core.complete(spec)->result->cached_tokens, 0U);
        // Time to be stored, if it were.
        for (int i = 0; i < 500; ++i) {
            core.run();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        core.audit_idle();
    }
}

/// A pool of windows that has room for a window and a chunk, not for a prompt: a fetch needs no
/// more than the last window there.
void t16_a_small_pool_of_windows_is_enough() {
    const Checkpoint windows(
        engine::gemma3_checkpoint(engine::llama_checkpoint(6, 64, 96, 2, 1, 64), 24));
    const Folder disk;
    engine::EngineConfig config = tiered(&disk);
    config.model = windows.path();
    config.kv.window_page_count = 12;
    const Tokens prompt = random_tokens(1, prompt_tokens);
    engine::EngineConfig plain = config;
    plain.prefix_caching = false;
    plain.kv.tiers = {};
    TestCore scratch(plain);
    const Tokens expected = scratch.complete(greedy(prompt, max_tokens))->tokens;
    {
        TestCore core(config);
        CHECK(ask(core, prompt, "cold")->tokens == expected);
        until_stored(core, whole(prompt_tokens) / 16, whole(prompt_tokens) / 16);
        // The last windows, too.
        for (int i = 0; i < 500; ++i) {
            core.run();
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        core.audit_idle();
    }
    TestCore core(config);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto after = ask(core, prompt, "disk, with few windows");
    CHECK(after->tokens == expected);
    CHECK_EQ(after->result->cached_tokens, whole(prompt_tokens));
    core.audit_idle();
}

}  // namespace

int main() {
    RUN(t16_after_a_restart_all_groups_come_from_disk);
    RUN(t16_a_small_pool_of_windows_is_enough);
    RUN(t02_tiers_change_nothing_but_time);
    RUN(t18_who_waits_is_prefetched);
    RUN(t07_another_model_is_refused);
    RUN(t07_a_model_with_other_weights_is_refused);
    RUN(t13_engines_share_a_store);
    RUN(t02_what_was_lost_and_comes_back_was_not_cached);
    RUN(t02_without_prefix_caching_nothing_is_found_after_a_restart);
    return 0;
}
