// rkv::SnapshotCache over a directory or a store that caches share: what is written, fetched, taken
// and given up.
#include "check.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

static_assert(!std::is_copy_constructible_v<rkv::SnapshotFetch>);
static_assert(std::is_nothrow_move_constructible_v<rkv::SnapshotFetch>);
static_assert(std::is_nothrow_move_assignable_v<rkv::SnapshotFetch>);

namespace {

using namespace std::chrono_literals;
using test::ids;
using Bytes = std::vector<std::uint8_t>;

/// A directory that goes with its object.
class Directory {
public:
    Directory() {
        std::string name = (std::filesystem::temp_directory_path() / "radixkv-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) std::abort();
        path = name;
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() { std::filesystem::remove_all(path); }
    std::string path;
};

/// A state of two parts, which any thread may delete.
struct State {
    static inline std::atomic<int> alive = 0;
    explicit State(std::uint8_t first) : head(3, first), body(50000) {
        std::iota(body.begin(), body.end(), first);
        ++alive;
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { --alive; }

    [[nodiscard]] std::vector<rkv_snapshot_part> parts() const {
        return {{head.data(), head.size()}, {body.data(), body.size()}};
    }
    Bytes head, body;
};

rkv_snapshot_tier_config config(const Directory& directory) {
    rkv_snapshot_tier_config config = rkv::SnapshotCache::tier_config();
    config.directory = directory.path.c_str();
    config.byte_limit = 64 << 20;
    config.worker_count = 2;
    return config;
}

void put(rkv::SnapshotCache& cache, rkv::TokenView tokens, std::uint8_t first,
         std::uint32_t flags = 0) {
    auto state = std::make_unique<State>(first);
    const auto parts = state->parts();
    CHECK_EQ(cache.insert_storable(tokens, std::move(state), parts, 7, rkv::Namespace(), flags)
                 .stored, 1u);
}

rkv::SnapshotPin wait(rkv::SnapshotFetch& fetch) {
    for (;;) {
        if (auto pin = fetch.take()) return std::move(*pin);
        std::this_thread::sleep_for(1ms);
    }
}

Bytes bytes(const rkv_snapshot_part& part) {
    const auto* data = static_cast<const std::uint8_t*>(part.data);
    return {data, data + part.size_bytes};
}

// T01: what was written is there after a restart, with equal bytes.
void comes_back() {
    const Directory directory;
    {
        rkv::SnapshotCache cache;
        cache.attach(config(directory));
        put(cache, ids(1, 4), 9);
        const auto pin = cache.match(ids(1, 4));
        CHECK(pin && !pin.is_copy() && pin.fetchable_token_count() == 0);
        CHECK_EQ(static_cast<State*>(pin.data())->head[0], 9);
        CHECK_EQ(pin.parts().size(), 2u);
        CHECK(cache.flush(1min));
        CHECK_EQ(cache.tier_stats().entry_count, 1u);
    }
    CHECK_EQ(State::alive, 0);
    rkv::SnapshotCache cache;
    cache.attach(config(directory));
    const auto miss = cache.match(ids(1, 6));
    CHECK(!miss);
    CHECK_EQ(miss.fetchable_token_count(), 4u);
    auto fetch = cache.fetch(ids(1, 6));
    CHECK(fetch && fetch.token_count() == 4 && fetch.common_token_count() == 4);
    CHECK_EQ(fetch.size_bytes(), 50003u);
    const auto pin = wait(fetch);
    CHECK(!fetch);
    CHECK(pin && pin.is_copy() && pin.next_token() == 7u);
    const State want(9);
    const auto parts = pin.parts();
    CHECK_EQ(parts.size(), 2u);
    CHECK(bytes(parts[0]) == want.head && bytes(parts[1]) == want.body);
    CHECK(parts[0].data == pin.data());
    CHECK(!cache.fetch(ids(1, 6)));
    cache.check_invariants();
}

// T01: of a state that can be trimmed a part is found below memory, too.
void comes_back_to_be_trimmed() {
    const Directory directory;
    rkv::SnapshotCache cache;
    cache.attach(config(directory));
    put(cache, ids(1, 8), 1, RKV_SNAPSHOT_INSERT_TRIMMABLE);
    CHECK(cache.detach(1min));
    cache.clear();
    cache.attach(config(directory));
    CHECK(!cache.fetch(ids(1, 5)));
    auto fetch = cache.fetch(ids(1, 5), rkv::Namespace(), RKV_SNAPSHOT_MATCH_TRIMMABLE);
    CHECK(fetch && fetch.token_count() == 8 && fetch.common_token_count() == 5);
    const auto pin = wait(fetch);
    CHECK(pin && pin.token_count() == 8 && pin.common_token_count() == 5);
}

// T11: a fetch that nobody waits for any more ends with its object. A read may end at any time, and
// what it brought is in memory from then on: each of these is of a state of its own.
void gives_up() {
    const Directory directory;
    rkv::SnapshotCache cache;
    cache.attach(config(directory));
    for (const std::uint32_t first : {10u, 20u, 30u}) put(cache, ids(first, 4), 1);
    CHECK(cache.detach(1min));
    cache.clear();
    cache.attach(config(directory));
    {
        auto first = cache.fetch(ids(10, 4));
        auto second = std::move(first);
        CHECK(!first && second);
        CHECK_EQ(cache.tier_stats().ticket_count, 1u);
        first = cache.fetch(ids(20, 4));
        CHECK_EQ(cache.tier_stats().ticket_count, 2u);
        second.reset();
        second.reset();
        CHECK_EQ(cache.tier_stats().ticket_count, 1u);
    }
    CHECK_EQ(cache.tier_stats().ticket_count, 0u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::SnapshotFetch().take());
    auto given = cache.fetch(ids(30, 4));
    const rkv_ticket_id ticket = given.release();
    CHECK_EQ(rkv_snapshot_cache_cancel(cache.get(), ticket), RKV_STATUS_OK);
}

// T11: what is out when the directory goes is stale.
void is_stale_without_a_directory() {
    const Directory directory;
    rkv::SnapshotCache cache;
    cache.attach(config(directory));
    put(cache, ids(1, 4), 1);
    CHECK(cache.detach(1min));
    cache.clear();
    cache.attach(config(directory));
    auto stale = cache.fetch(ids(1, 4));
    CHECK(cache.detach(1min));
    CHECK_THROWS(RKV_STATUS_STALE_TICKET, stale.reset());
}

/// A store that caches share, in this process.
struct Shared {
    enum class What { has, get, put, remove };

    template <What what>
    static void call(void* store, rkv_remote_item* items, std::size_t item_size, std::size_t count,
                     std::uint64_t) {
        auto& [lock, values] = *static_cast<Shared*>(store);
        const std::lock_guard<std::mutex> guard(lock);
        for (std::size_t at = 0; at < count; ++at) {
            auto& item = *reinterpret_cast<rkv_remote_item*>(reinterpret_cast<char*>(items) +
                                                             at * item_size);
            std::array<std::uint8_t, 32> key{};
            std::copy_n(item.key, key.size(), key.begin());
            auto* data = static_cast<std::uint8_t*>(item.bytes);
            if (what == What::put) values[key] = Bytes(data, data + item.byte_count);
            const auto found = values.find(key);
            item.answer = found == values.end() ? RKV_REMOTE_MISSING : RKV_REMOTE_DONE;
            if (found == values.end()) continue;
            if (what == What::get) {
                const Bytes& value = found->second;
                const auto most = static_cast<std::size_t>(item.byte_count);
                std::copy_n(value.begin(), std::min(value.size(), most), data);
                item.byte_count = value.size();
            }
            if (what == What::remove) values.erase(found);
        }
    }
    [[nodiscard]] rkv_remote_store functions() {
        auto made = rkv::sized<rkv_remote_store>();
        made.user_data = this;
        made.has = call<What::has>;
        made.get = call<What::get>;
        made.put = call<What::put>;
        made.remove = call<What::remove>;
        return made;
    }
    std::mutex lock;
    std::map<std::array<std::uint8_t, 32>, Bytes> values;
};

// T13: what a store has that caches share is not known before it has answered.
void comes_from_a_shared_store() {
    Shared store;
    const rkv_remote_store functions = store.functions();
    rkv_snapshot_tier_config config = rkv::SnapshotCache::tier_config();
    config.remote = &functions;
    {
        rkv::SnapshotCache cache;
        cache.attach(config);
        put(cache, ids(1, 100), 9);
        CHECK(cache.detach(1min));
    }
    rkv::SnapshotCache cache;
    cache.attach(config);
    put(cache, ids(1, 30), 5);
    auto fetch = cache.fetch(ids(1, 150));
    CHECK(fetch && fetch.token_count() == 0 && fetch.common_token_count() == 0);
    CHECK_EQ(fetch.size_bytes(), 0u);
    const auto pin = wait(fetch);
    CHECK(pin && pin.is_copy() && pin.token_count() == 100 && pin.common_token_count() == 100);
    CHECK_EQ(pin.parts().size(), 2u);
    CHECK(cache.detach(1min));
}

// T14: one owner, and no way on without a directory.
void says_why_not() {
    const Directory directory;
    rkv::SnapshotCache cache, second;
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, (void)cache.flush(0ms));
    CHECK_THROWS(RKV_STATUS_INVALID_STATE, cache.detach(0ms));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, cache.attach(rkv::SnapshotCache::tier_config()));
    cache.attach(config(directory));
    CHECK_THROWS(RKV_STATUS_STORAGE, second.attach(config(directory)));
    // M01: what is refused is deleted all the same.
    auto state = std::make_unique<State>(std::uint8_t{1});
    const rkv_snapshot_part none{nullptr, 5};
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 cache.insert_storable({1}, std::move(state), {&none, 1}));
    CHECK_EQ(State::alive, 0);
}

}  // namespace

int main() {
    comes_back();
    comes_back_to_be_trimmed();
    gives_up();
    is_stale_without_a_directory();
    comes_from_a_shared_store();
    says_why_not();
}
