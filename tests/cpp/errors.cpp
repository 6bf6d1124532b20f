// rkv::Error and rkv::OutOfPages, what a failure leaves behind, version and log.
#include "check.hpp"

#include <cstring>
#include <type_traits>

static_assert(std::is_base_of_v<std::exception, rkv::Error>);
static_assert(std::is_base_of_v<rkv::Error, rkv::OutOfPages>);
static_assert(std::is_nothrow_copy_constructible_v<rkv::OutOfPages>);

namespace {

using test::ids;

bool same(const rkv_cache_stats& a, const rkv_cache_stats& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}
bool same(const rkv_page_table_stats& a, const rkv_page_table_stats& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

// M04, K14: the shortage in numbers; locks, pages, slots and statistics as before.
void tells_the_shortage() {
    rkv::PageTable table = test::table(12, 4);
    rkv::Cache cache(table);
    const auto held = table.allocate_pages(1);
    rkv::Sequence running = cache.begin(ids(1, 17));
    running.publish(17);
    rkv::Sequence old = cache.begin(ids(500, 9));
    old.publish(9);
    old.reset();

    const auto cache_before = cache.stats();
    const auto table_before = table.stats();
    bool refused = false;
    try {
        (void)cache.begin(ids(900, 26));
    } catch (const rkv::OutOfPages& error) {
        refused = true;
        CHECK_EQ(error.status(), RKV_STATUS_OUT_OF_PAGES);
        CHECK(error.what()[0] != '\0');
        CHECK_EQ(error.shortage().needed_page_count, 7u);
        CHECK_EQ(error.shortage().free_page_count, 3u);
        CHECK_EQ(error.shortage().reclaimable_page_count, 2u);
        CHECK_EQ(error.shortage().locked_page_count, 4u);
        CHECK_EQ(error.shortage().private_page_count, 2u);
    }
    CHECK(refused);
    CHECK(same(table.stats(), table_before));
    CHECK(same(cache.stats(), cache_before));
    test::audit(table, cache);

    // It is an Error for those who only want to know that.
    CHECK_THROWS(RKV_STATUS_OUT_OF_PAGES, (void)table.allocate_pages(6));
    CHECK(same(table.stats(), table_before));
    const rkv_sequence_info before = running.info();
    CHECK_THROWS(RKV_STATUS_OUT_OF_PAGES, running.append(ids(900, 24)));
    const rkv_sequence_info after = running.info();
    CHECK(std::memcmp(&before, &after, sizeof before) == 0);
    running.append(ids(900, 23));
    CHECK_EQ(table.stats().free_page_count, 0u);
    CHECK_EQ(cache.stats().evicted_page_count, 2u);
    table.free_pages(held);
    test::audit(table, cache);
}

void runs_out_of_slots() {
    rkv::PageTable table = test::table(33, 4, 1);
    rkv::Cache cache(table);
    rkv::Sequence one = cache.begin({1, 2, 3});
    const auto before = table.stats();
    CHECK_THROWS(RKV_STATUS_OUT_OF_SLOTS, (void)cache.begin({4, 5, 6}));
    CHECK_THROWS(RKV_STATUS_OUT_OF_SLOTS, (void)table.allocate_slot());
    CHECK(same(table.stats(), before));
    one.reset();
    one = cache.begin({4, 5, 6});
    test::audit(table, cache);
}

// M01: refused with the argument's name, and nothing has changed.
void refuses_bad_arguments() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const auto pages = table.allocate_pages(2);
    const rkv_cache_insert_result inserted = cache.insert(ids(1, 8), pages);
    const auto before = cache.stats();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, cache.insert(ids(50, 8), pages));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.match({1}, {}, 99));
    CHECK_THROWS(RKV_STATUS_STALE_NODE, (void)cache.lock(inserted.node + 1));
    CHECK_THROWS(RKV_STATUS_STALE_LOCK, cache.adopt_lock(12345).reset());
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.begin({}));
    CHECK_THROWS(RKV_STATUS_STALE_SEQUENCE, (void)cache.adopt_sequence(12345).info());
    rkv_namespace raw = *rkv::Namespace().get();
    raw.lora_id = 5;  // without its flag
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.match({1}, rkv::Namespace(raw)));
    CHECK(same(cache.stats(), before));

    // K08: a node that was evicted is stale, also in what went on from it.
    rkv::Match match = cache.match(ids(1, 8));
    CHECK_EQ(cache.evict(2), 2u);
    CHECK_THROWS(RKV_STATUS_STALE_NODE, (void)cache.lock(match.found.node));
    CHECK_THROWS(RKV_STATUS_STALE_NODE, (void)cache.node_info(match.found.node));
    CHECK_THROWS(RKV_STATUS_STALE_NODE, (void)cache.node_pages(match.found.node));
    const auto fresh = table.allocate_pages(3);
    CHECK_THROWS(RKV_STATUS_STALE_NODE, cache.insert_after(match.found, ids(1, 12), fresh));
    table.free_pages(fresh);
    test::audit(table, cache);
}

void checks_statuses() {
    rkv::check(RKV_STATUS_OK);
    CHECK_EQ(rkv::status_name(RKV_STATUS_STALE_NODE), std::string("RKV_STATUS_STALE_NODE"));
    const std::string message =
        CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::coord_bin(2));
    CHECK_EQ(message, rkv::last_error_message());
}

void knows_its_version() {
    rkv::require_version();
    CHECK_EQ(rkv::version(), std::to_string(RKV_VERSION_MAJOR) + "." +
                                 std::to_string(RKV_VERSION_MINOR) + "." +
                                 std::to_string(RKV_VERSION_PATCH));
    CHECK((rkv::features() & RKV_FEATURE_RADIX_INDEX) != 0);
}

// M02: with a build that can panic, what the log hears and what the handles do afterwards.
void logs() {
    std::vector<std::string> messages;
    auto log = [&](std::uint32_t level, const char* message) {
        CHECK_EQ(level, static_cast<std::uint32_t>(RKV_LOG_ERROR));
        messages.emplace_back(message);
    };
    rkv::set_log_callback(RKV_LOG_ERROR, log);
#if defined(RKV_FAULT_INJECTION)
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    rkv::Sequence sequence = cache.begin({1, 2, 3});
    CHECK_THROWS(RKV_STATUS_INTERNAL, rkv::fault_panic(cache));
    CHECK(!messages.empty());
    CHECK_THROWS(RKV_STATUS_POISONED, (void)cache.stats());
    CHECK_THROWS(RKV_STATUS_POISONED, sequence.reset());
    CHECK_THROWS(RKV_STATUS_POISONED, (void)table.stats());
#endif
    const std::size_t heard = messages.size();
    rkv::clear_log_callback();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::coord_bin(2));
    CHECK_EQ(messages.size(), heard);
}


int heard = 0;
void hears(std::uint32_t, const char*) { ++heard; }

// M02: a function, and what is const, hear the log as well.
void logs_to_anything() {
    static const auto constant = [](std::uint32_t, const char*) { ++heard; };
    for (const bool to_function : {true, false}) {
        if (to_function) rkv::set_log_callback(RKV_LOG_ERROR, hears);
        else rkv::set_log_callback(RKV_LOG_ERROR, constant);
#if defined(RKV_FAULT_INJECTION)
        rkv::PageTable table = test::table(33, 4);
        rkv::Cache cache(table);
        const int before = heard;
        CHECK_THROWS(RKV_STATUS_INTERNAL, rkv::fault_panic(cache));
        CHECK(heard > before);
#endif
        rkv::clear_log_callback();
    }
}

}  // namespace

int main() {
    tells_the_shortage();
    runs_out_of_slots();
    refuses_bad_arguments();
    checks_statuses();
    knows_its_version();
    logs();
    logs_to_anything();
}
