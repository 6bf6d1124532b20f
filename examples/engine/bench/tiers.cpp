#include "bench/tiers.hpp"

#include "bench/client.hpp"
#include "bench/run.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace engine {

namespace {

constexpr std::uint64_t tier_bytes = std::uint64_t{1} << 30;

/// Goes with what is in it.
class Scratch {
public:
    Scratch() {
        std::string name = (std::filesystem::temp_directory_path() / "radixkv-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error(name + " cannot be made");
        path_ = name;
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

TierTime ask(Engine& engine, BenchRequest request, const char* from) {
    DirectClient client(engine);
    const StepTimes& times = engine.core().step_times();
    std::array<std::uint64_t, work_names.size()> before{};
    std::copy(times.begin(), times.end(), before.begin());
    request.arrival = 0;
    Workload workload{"tiers", "", {}};
    workload.requests.push_back(std::move(request));
    const BenchRun run = run_workload(workload, client, from);
    const BenchRecord& record = run.records.front();
    TierTime time{from, record.first_token_seconds, record.cached_tokens, record.tokens, {}, 0};
    for (std::size_t i = 0; i < before.size(); ++i)
        time.work[i] = static_cast<double>(times[i] - before[i]) / 1e9;
    return time;
}

/// As long, and with nothing in common.
BenchRequest other(const BenchRequest& request, std::uint64_t seed) {
    Random random(seed);
    BenchRequest made;
    made.prompt = words_of(random, request.prompt.size());
    made.output = 4;
    return made;
}

/// Waits until host memory has got so many pages, and for a while no more: with several groups of
/// layers there are others. What others evict from KV memory before it was copied is lost, which a
/// busy machine would make of a prompt of a few pages.
void wait_until_stored(Engine& engine, std::size_t page_count) {
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const auto end = now() + std::chrono::seconds(10);
    // An engine that has nothing to do looks every 20 ms for what is to be copied.
    constexpr auto rest = std::chrono::milliseconds(60);
    std::uint64_t before = 0;
    for (auto since = now(); now() < end;) {
        const rkv_tier_stats stats = engine.core().kv().cache().tier_stats();
        // Not all that was asked for has room.
        if (stats.host.evicted_page_count > 0) return;
        const std::uint64_t stored = stats.host.stored_page_count + stats.lost_page_count;
        if (stored != before || stats.open_job_count > 0) since = now();
        if (stored >= page_count && now() - since >= rest) return;
        before = stored;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

std::vector<TierTime> measure_tiers(EngineConfig config, const BenchRequest& request) {
    const Scratch folder;
    const std::size_t positions = request.prompt.size() + request.output;
    config.prefix_caching = true;
    // Room for two such prompts.
    config.kv.page_count =
        static_cast<std::uint32_t>(2 * (positions / config.kv.page_size + 2) + 2);
    // Not those of the options: a store that others share may have what is to be computed.
    config.kv.tiers = {};
    config.kv.tiers.host_bytes = config.kv.tiers.disk_bytes = tier_bytes;
    config.kv.tiers.directory = folder.path() / "kv";
    std::vector<TierTime> times;
    {
        Engine engine(config);
        // The first request of a process pays for page faults and sleeping cores.
        (void)ask(engine, other(request, 1), "warm-up");
        times.push_back(ask(engine, request, "computed"));
        times.push_back(ask(engine, request, "KV memory"));
        wait_until_stored(engine, 2 * (request.prompt.size() / config.kv.page_size));
        for (std::uint64_t seed = 2; seed < 5; ++seed)
            (void)ask(engine, other(request, seed), "others");
        times.push_back(ask(engine, request, "host memory"));
        // Its end waits for what is being written.
    }
    Engine engine(config);
    (void)ask(engine, other(request, 5), "warm-up");
    times.push_back(ask(engine, request, "disk after a restart"));
    // A part of a page is found in KV memory alone.
    for (std::size_t i = 2; i < times.size(); ++i)
        times[i].expected_tokens =
            times[1].cached_tokens / config.kv.page_size * config.kv.page_size;
    return times;
}

}  // namespace engine
