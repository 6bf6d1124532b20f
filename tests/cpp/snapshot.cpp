// rkv::SnapshotCache, rkv::SnapshotPin and their typed forms: what is stored, found and kept.
#include "check.hpp"

#include <type_traits>
#include <utility>
#include <vector>

static_assert(!std::is_copy_constructible_v<rkv::SnapshotCache>);
static_assert(!std::is_copy_constructible_v<rkv::SnapshotPin>);
static_assert(std::is_nothrow_move_constructible_v<rkv::SnapshotCache>);
static_assert(std::is_nothrow_move_assignable_v<rkv::SnapshotCache>);
static_assert(std::is_nothrow_move_constructible_v<rkv::TypedSnapshotPin<int>>);
static_assert(std::is_nothrow_move_assignable_v<rkv::TypedSnapshotPin<int>>);

namespace {

using test::ids;

/// A state that counts how many of its kind there are.
struct State {
    static inline int alive = 0;
    explicit State(int name) : number(name) { ++alive; }
    State(State&& other) noexcept : number(other.number) { ++alive; }
    State& operator=(State&&) = delete;
    ~State() { --alive; }
    int number;
};

std::unique_ptr<State> state(int number) { return std::make_unique<State>(number); }

rkv_snapshot_cache_config limited(std::uint64_t entry_limit) {
    rkv_snapshot_cache_config config = rkv::SnapshotCache::config();
    config.entry_limit = entry_limit;
    return config;
}

// S01, S04
void finds_the_longest_prefix() {
    rkv::TypedSnapshotCache<State> cache;
    CHECK(!cache.match({1, 2, 3}));
    CHECK_EQ(cache.insert({1, 2}, state(2), 10).stored, 1u);
    cache.insert({1, 2, 3, 4}, State(4), 20, 55);
    {
        const auto pin = cache.match({1, 2, 3, 4});
        CHECK(pin && pin.full_hit() && pin.next_token() == 55u);
        CHECK_EQ(pin.token_count(), 4u);
        CHECK_EQ(pin.size_bytes(), 20u);
        CHECK_EQ((*pin).number, 4);
    }
    const auto pin = cache.match(ids(1, 3));
    CHECK(!pin.full_hit() && !pin.next_token());
    CHECK_EQ(pin->number, 2);
    CHECK_EQ(cache.base().probe(ids(1, 9)), 4u);
    const rkv::Namespace lora = rkv::Namespace().lora(0);
    CHECK(!cache.match({1, 2}, lora));
    cache.insert({1, 2}, state(7), 1, std::nullopt, lora);
    CHECK_EQ(cache.match({1, 2}, lora)->number, 7);
    const auto stats = cache.base().stats();
    CHECK_EQ(stats.entry_count, 3u);
    CHECK_EQ(stats.entry_bytes, 31u);
    CHECK_EQ(stats.pin_count, 1u);
    CHECK_EQ(stats.full_hit_count, 2u);
    CHECK(cache.base().remove({1, 2}, lora));
    CHECK(!cache.base().remove({1, 2}, lora));
    cache.base().check_invariants();
}

// S01
void finds_what_can_be_trimmed() {
    rkv::TypedSnapshotCache<State> cache;
    cache.insert({1, 2, 3, 4}, state(4), 20, std::nullopt, rkv::Namespace(),
                 RKV_SNAPSHOT_INSERT_TRIMMABLE);
    CHECK(!cache.match({1, 2, 9}));
    const auto pin = cache.match({1, 2, 9}, rkv::Namespace(), RKV_SNAPSHOT_MATCH_TRIMMABLE);
    CHECK(pin && !pin.full_hit());
    CHECK_EQ(pin->number, 4);
    CHECK_EQ(pin.token_count(), 4u);
    CHECK_EQ(pin.common_token_count(), 2u);
    CHECK_EQ(cache.match({1, 2, 3, 4, 5}).common_token_count(), 4u);
    cache.base().check_invariants();
}

// S02, S05: readers keep what they have; each pin ends with its object, once.
void pins_release_themselves() {
    State::alive = 0;
    rkv::TypedSnapshotCache<State> cache(limited(1));
    cache.insert({1, 2}, state(1), 1);
    {
        auto first = cache.match({1, 2});
        auto moved = std::move(first);
        CHECK(!first && moved);
        CHECK_EQ(cache.insert({1, 2}, state(2), 1).replaced, 1u);
        CHECK_EQ(moved->number, 1);
        CHECK_EQ(cache.match({1, 2})->number, 2);
        CHECK_EQ(State::alive, 2);
        first = std::move(moved);
        CHECK_EQ(cache.base().stats().detached_count, 1u);
        first = cache.match({1, 2});
        CHECK_EQ(first->number, 2);
        CHECK_EQ(State::alive, 1);
        // S03: everything is pinned, so the cache runs over its limit.
        cache.insert({5}, state(5), 1);
        CHECK_EQ(cache.base().stats().entry_count, 2u);
        auto second = cache.match({5});
        second.reset();
        second.reset();
        CHECK_EQ(cache.base().stats().entry_count, 1u);
    }
    CHECK_EQ(cache.base().stats().pin_count, 0u);
    CHECK_EQ(State::alive, 1);
    cache.base().clear();
    CHECK_EQ(State::alive, 0);
}

// S05: a pin that C code released already cannot be released again.
void tells_of_a_second_release() {
    rkv::SnapshotCache cache;
    cache.insert({1}, state(1), 1);
    rkv::SnapshotPin pin = cache.match({1});
    const rkv_pin_id id = pin.get();
    CHECK_EQ(rkv_snapshot_cache_release(cache.get(), id), RKV_STATUS_OK);
    CHECK_THROWS(RKV_STATUS_STALE_PIN, pin.reset());
    CHECK_EQ(pin.release(), id);
    // A pin can be given to C code, and be taken from it.
    auto found = rkv::sized<rkv_snapshot_cache_match_result>();
    const std::vector<std::uint32_t> ids{1, 2};
    const rkv::TokenView tokens(ids);
    CHECK_EQ(rkv_snapshot_cache_match(cache.get(), nullptr, tokens.get(), 0, &found),
             RKV_STATUS_OK);
    pin = cache.adopt_pin(found);
    CHECK_EQ(static_cast<State*>(pin.data())->number, 1);
    pin.reset();
    CHECK_EQ(cache.stats().pin_count, 0u);
    // Not by a cache that is none: its pin would release nothing.
    CHECK_EQ(rkv_snapshot_cache_match(cache.get(), nullptr, tokens.get(), 0, &found),
             RKV_STATUS_OK);
    rkv::SnapshotCache moved = std::move(cache);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)cache.adopt_pin(found));  // NOLINT: of a moved-from one
    CHECK_EQ(moved.stats().pin_count, 1u);
    moved.adopt_pin(found).reset();
    CHECK_EQ(moved.stats().pin_count, 0u);
}

// M03: a pin outlives the cache, and takes the snapshot along.
void pins_outlive_the_cache() {
    State::alive = 0;
    rkv::TypedSnapshotPin<State> pin;
    {
        rkv::TypedSnapshotCache<State> cache;
        cache.insert({1}, state(1), 1);
        cache.insert({2}, state(2), 1);
        pin = cache.match({1, 9});
    }
    CHECK_EQ(State::alive, 1);
    CHECK_EQ(pin->number, 1);
    pin.reset();
    CHECK_EQ(State::alive, 0);
}

// M01, S06, S07: a snapshot that is not taken, or not kept, is deleted all the same.
void deletes_what_is_not_stored() {
    State::alive = 0;
    rkv::SnapshotCache cache;
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, cache.insert({RKV_TEXT_ID_LIMIT}, state(1), 1));
    CHECK_EQ(State::alive, 0);
    rkv::SnapshotCache disabled(limited(0));
    CHECK_EQ(disabled.insert({1}, state(1), 1).stored, 0u);
    CHECK_EQ(State::alive, 0);
    rkv::SnapshotCache moved = std::move(cache);
    CHECK(cache.get() == nullptr);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.match({1}));
    rkv_snapshot_cache* raw = moved.release();
    rkv::SnapshotCache taken(raw);
    CHECK_EQ(taken.stats().entry_count, 0u);
    taken.reset();
    CHECK(taken.get() == nullptr);
}

#if defined(RKV_FAULT_INJECTION)
// M02
void survives_a_panic() {
    auto silent = [](std::uint32_t, const char*) {};
    rkv::set_log_callback(RKV_LOG_ERROR, silent);
    State::alive = 0;
    {
        rkv::SnapshotCache cache;
        cache.insert({1}, state(1), 1);
        CHECK_THROWS(RKV_STATUS_INTERNAL, rkv::fault_panic(cache));
        CHECK_THROWS(RKV_STATUS_POISONED, (void)cache.match({1}));
    }
    CHECK_EQ(State::alive, 0);
    rkv::clear_log_callback();
}
#endif


// M01, M03: a pin that owns nothing asks no cache, which may be gone.
void empty_pins_ask_nobody() {
    rkv::SnapshotPin miss, pin;
    {
        rkv::SnapshotCache cache;
        cache.insert({1}, state(1), 1);
        miss = cache.match({9});
        pin = cache.match({1});
        CHECK(!miss && pin);
        CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)miss.parts());
    }
    rkv::SnapshotPin taken = std::move(pin);
    taken.reset();  // the cache behind the handle goes with its last pin
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)miss.parts());
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)pin.parts());  // NOLINT: moved from
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)taken.parts());
}

// What may be written is made of parts: of an object nobody knows which bytes those are.
void an_object_alone_is_not_storable() {
    rkv::SnapshotCache cache;
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)cache.insert({1}, state(9), 1000, std::nullopt, rkv::Namespace(),
                                    RKV_SNAPSHOT_INSERT_STORABLE));
    CHECK_EQ(State::alive, 0);
    CHECK_EQ(cache.stats().entry_count, 0u);
}

}  // namespace

int main() {
    finds_the_longest_prefix();
    finds_what_can_be_trimmed();
    pins_release_themselves();
    tells_of_a_second_release();
    pins_outlive_the_cache();
    empty_pins_ask_nobody();
    deletes_what_is_not_stored();
#if defined(RKV_FAULT_INJECTION)
    survives_a_panic();
#endif
    an_object_alone_is_not_storable();
}
