// J07: rkv::PageTable with an external pool: the program hands the pages out.
#include "check.hpp"

namespace {

rkv::PageTable external(std::uint32_t page_count) {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_count = page_count + 1;
    config.page_size = 4;
    config.flags = RKV_PAGE_TABLE_EXTERNAL_POOL;
    return rkv::PageTable(config);
}

void pages_are_adopted_and_given_back() {
    rkv::PageTable table = external(10);
    rkv::Cache cache(table);
    CHECK_EQ(table.stats().outside_page_count, 10u);
    CHECK_EQ(table.stats().slot_count, 0u);
    const std::vector<std::uint32_t> tokens = test::ids(1, 12);
    const std::vector<std::uint32_t> first = {3, 1, 2}, second = {3, 8, 2}, bad = {4, 5, 1};
    std::vector<std::uint32_t> published(3);
    CHECK_EQ(cache.insert(tokens, first, published).claimed_page_count, 3u);
    CHECK(published == first);
    CHECK_EQ(table.stats().outside_page_count, 7u);

    // What is published instead of the second page is in its place.
    CHECK_EQ(cache.insert(tokens, second, published).duplicate_page_count, 1u);
    CHECK(published == first);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, cache.insert(tokens, bad, published));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, cache.insert(tokens, second));

    rkv::Match match = cache.match(tokens, rkv::Namespace(), RKV_MATCH_LOCK);
    CHECK(match.pages == first);
    CHECK(cache.evict_reported(10).empty());
    match.lock.reset();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.evict(1));
    CHECK(cache.evict_reported(2) == (std::vector<std::uint32_t>{2, 1}));
    CHECK_EQ(table.stats().outside_page_count, 9u);
    test::audit(table, cache);
    cache.reset();
    CHECK_EQ(table.stats().outside_page_count, 10u);
}

void what_needs_pages_or_rows_is_unsupported() {
    rkv::PageTable table = external(4);
    rkv::Cache cache(table);
    CHECK_THROWS(RKV_STATUS_UNSUPPORTED, (void)table.allocate_pages(1));
    CHECK_THROWS(RKV_STATUS_UNSUPPORTED, (void)table.allocate_slot());
    CHECK_THROWS(RKV_STATUS_UNSUPPORTED, (void)table.can_reserve_new(4));
    CHECK_THROWS(RKV_STATUS_UNSUPPORTED, (void)rkv::Plan(table));
    const std::string message =
        CHECK_THROWS(RKV_STATUS_UNSUPPORTED, (void)cache.begin({1, 2, 3, 4, 5}));
    CHECK(message.find("external") != std::string::npos);
    test::audit(table, cache);
}

}  // namespace

int main() {
    pages_are_adopted_and_given_back();
    what_needs_pages_or_rows_is_unsupported();
}
