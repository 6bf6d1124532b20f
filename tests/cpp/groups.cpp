// Groups of layers: an engine with a hybrid model that keeps its own rows.
#include "check.hpp"

namespace {

enum : std::uint32_t { SPINE, WINDOW, STATE };

rkv::PageTable hybrid() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = 4;
    return rkv::PageTable(
        config, {rkv::full_group(), rkv::window_group(WINDOW, 9), rkv::state_group(STATE)},
        {rkv::pool_of(41), rkv::pool_of(21), rkv::pool_of(6)});
}

// G06: a lock goes along with a request that grows, until it is told what the window has passed.
void a_lock_goes_along() {
    rkv::PageTable table = hybrid();
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> tokens = test::ids(1, 40);
    const std::vector<std::uint32_t> spine = table.allocate_pool_pages(SPINE, 10);
    const std::vector<std::uint32_t> window = table.allocate_pool_pages(WINDOW, 10);
    rkv::Lock lock;
    const std::vector<std::uint32_t> first(tokens.begin(), tokens.begin() + 4);
    rkv_cache_insert_result done = cache.insert_groups(first, spine, {{WINDOW, window, {}}}, lock);
    const rkv_lock_id id = lock.id();
    done = cache.insert_moving(lock, {done.node, 4, 1}, tokens, spine, {{WINDOW, window, {}}});
    CHECK_EQ(done.lock, id);
    CHECK_EQ(done.claimed_group_page_count, 9u);
    CHECK_EQ(cache.locked_pages(lock, WINDOW).size(), 10u);
    cache.slide(lock, 40);
    CHECK_EQ(cache.locked_pages(lock, WINDOW).size(), 2u);
    lock.reset();
    CHECK_THROWS(RKV_STATUS_STALE_LOCK, cache.slide(lock, 40));
    test::audit(table, cache);
}

// G02, G03, G06: what is found, what each group costs, and what a lock keeps.
void a_lookup_ends_where_every_group_can() {
    rkv::PageTable table = hybrid();
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> tokens = test::ids(1, 40);
    const std::vector<std::uint32_t> spine = table.allocate_pool_pages(SPINE, 10);
    const std::vector<std::uint32_t> window = table.allocate_pool_pages(WINDOW, 10);
    std::vector<std::uint32_t> states(10), published(10);
    states[4] = table.allocate_pool_pages(STATE, 1)[0];
    rkv::Lock inserted;
    const rkv_cache_insert_result done = cache.insert_groups(
        tokens, spine, {{WINDOW, window, {}}, {STATE, states, published}}, inserted);
    CHECK_EQ(done.claimed_page_count, 10u);
    CHECK_EQ(done.claimed_group_page_count, 11u);
    CHECK(published == states);
    CHECK_EQ(cache.locked_pages(inserted, WINDOW).size(), 2u);
    inserted.reset();

    rkv::Match match = cache.match(tokens, rkv::Namespace(), RKV_MATCH_LOCK);
    CHECK_EQ(match.found.position_count, 20u);
    CHECK_EQ(match.found.known_position_count, 40u);
    CHECK_EQ(match.found.limiting_group, static_cast<std::uint32_t>(STATE));
    CHECK_EQ(match.found.checkpoint_at[0], 36u);
    CHECK_EQ(match.found.checkpoint_at[1], 40u);
    const rkv::GroupProbe probe = cache.probe_groups(tokens);
    CHECK_EQ(probe.costs.size(), 3u);
    CHECK_EQ(probe.costs[STATE].lost_position_count, 20u);
    CHECK_EQ(probe.depths.position_count, 20u);

    const std::vector<rkv_locked_page> held = cache.locked_pages(match.lock, WINDOW);
    CHECK_EQ(held.size(), 2u);
    CHECK_EQ(held[0].page_index, 3u);
    CHECK_EQ(held[0].page, window[3]);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.locked_pages(match.lock, SPINE));
    // G08: inner pages first; what is locked stays.
    // Room for none is no report, and not none.
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.evict_pool_reported(WINDOW, 100, 0));
    CHECK_EQ(cache.group_stats()[WINDOW].evicted_page_count, 0u);
    const rkv::EvictedPages gone = cache.evict_pool_reported(WINDOW, 100);
    CHECK_EQ(gone.freed_page_count, 8u);
    CHECK_EQ(gone.pages.size(), 8u);
    CHECK_EQ(gone.pages[0].group, static_cast<std::uint32_t>(WINDOW));
    CHECK_EQ(cache.evict_pool(STATE, 1), 0u);
    match.lock.reset();
    CHECK_EQ(cache.evict_pool(STATE, 1), 1u);
    CHECK_EQ(cache.match(tokens).found.position_count, 0u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.evict_pool(3, 1));
    test::audit(table, cache);
}

// G09: the shortage names the pool.
void pages_come_from_a_pool() {
    rkv::PageTable table = hybrid();
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> pages = table.allocate_pool_pages(STATE, 5);
    CHECK_EQ(table.pool_stats(STATE).private_page_count, 5u);
    try {
        (void)table.allocate_pool_pages(STATE, 1);
        CHECK(false);
    } catch (const rkv::OutOfPages& error) {
        CHECK_EQ(error.shortage().pool, static_cast<std::uint32_t>(STATE));
    }
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, table.free_pool_pages(WINDOW, pages));
    table.free_pool_pages(STATE, pages);
    CHECK_EQ(table.pool_stats(STATE).free_page_count, 5u);
    test::audit(table, cache);
}

void wrong_rows_are_refused() {
    rkv::PageTable table = hybrid();
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> tokens = test::ids(1, 8);
    const std::vector<std::uint32_t> spine = table.allocate_pool_pages(SPINE, 2);
    const std::vector<std::uint32_t> none(2), bad = {0, 7};
    std::vector<std::uint32_t> one(1);
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL,
                 (void)cache.insert_groups(tokens, spine, {{WINDOW, none, one}}));
    const std::string message =
        CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                     (void)cache.insert_groups(tokens, spine, {{WINDOW, bad, {}}}));
    CHECK(message.find("args.groups[0]: pages[1] 7") != std::string::npos);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)rkv::PageTable(rkv::PageTable::config(), {rkv::full_group()},
                                      {rkv::pool_of(1)}));
    CHECK_EQ(cache.insert_groups(tokens, spine, {}).claimed_page_count, 2u);
    test::audit(table, cache);
}

// G01: chunks, and groups that draw from one pool.
void groups_share_a_pool() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = 4;
    config.page_count = 41;
    rkv::PageTable table(config, {rkv::full_group(), rkv::chunk_group(0, 8)});
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> spine = table.allocate_pages(5);
    const std::vector<std::uint32_t> chunk = table.allocate_pages(5);
    const rkv_cache_insert_result done =
        cache.insert_groups(test::ids(1, 20), spine, {{1, chunk, {}}});
    CHECK_EQ(done.claimed_group_page_count, 5u);
    CHECK_EQ(table.pool_stats(0).cached_page_count, 10u);
    CHECK_EQ(cache.match(test::ids(1, 20)).found.position_count, 20u);
    CHECK_EQ(cache.group_stats().at(1).cached_page_count, 5u);
    const std::vector<std::uint32_t> gone = cache.evict_reported(1);
    CHECK(!gone.empty());
    for (const std::uint32_t page : gone) CHECK(!cache.contains_page(page));
    CHECK_EQ(table.pool_stats(0).cached_page_count, 10u - gone.size());
    test::audit(table, cache);
}

// G05, G07: the second request takes a window of the first one's pages, and a copy of its state.
void sequences_have_a_row_in_each_group() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = 4;
    rkv::PageTable table(config,
                         {rkv::full_group(), rkv::window_group(1, 9), rkv::state_group(2)},
                         {rkv::pool_of(21), rkv::pool_of(21), rkv::pool_of(7)});
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> ids = test::ids(1, 24);
    rkv::Sequence first = cache.begin(ids);
    (void)first.publish(20);
    CHECK_EQ(first.published().at(0).claimed_page_count, 5u);
    CHECK_EQ(first.checkpoint(), 1u);
    CHECK_EQ(first.copies().at(0).source_page, first.group_row(2).at(0));
    std::vector<rkv_page_copy> done;
    const auto carry_out = [&](const rkv_page_copy& copy) { done.push_back(copy); };
    CHECK_EQ(first.carry_out_copies(carry_out), 1u);
    CHECK_EQ(first.carry_out_copies(carry_out), 0u);
    CHECK_EQ(first.checkpoint(), 0u);
    rkv::Sequence second = cache.begin(ids);
    CHECK_EQ(second.info().cached_position_count, 20u);
    try {
        second.carry_out_copies([](const rkv_page_copy&) { throw std::runtime_error("no"); });
        CHECK(false);
    } catch (const std::runtime_error&) {
        CHECK_EQ(second.copies().size(), 1u);
    }
    CHECK_EQ(second.carry_out_copies(carry_out), 1u);
    CHECK_EQ(done.at(1).source_page, done.at(0).target_page);
    CHECK_EQ(done.at(1).target_page, second.group_row(2).at(0));
    CHECK(second.copies().empty());
    CHECK_EQ(second.group_row(1).at(3), first.group_row(1).at(3));
    second.slide(24);
    CHECK_EQ(second.group_row(1).at(3), 0u);
    first.reset();
    second.reset();
    test::audit(table, cache);
}

// G07, G08, G11: a path keeps one state, drafts are taken back with theirs, the last is left
// behind.
void states_of_a_sequence() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = 4;
    rkv::PageTable table(config, {rkv::full_group(), rkv::state_group(1, 1)},
                         {rkv::pool_of(41), rkv::pool_of(9)});
    rkv_cache_config limited = rkv::Cache::config();
    limited.checkpoint_limit = 1;
    rkv::Cache cache(table, limited);
    rkv::Sequence sequence = cache.begin(test::ids(1, 12));
    sequence.publish(8);
    CHECK_EQ(sequence.published().size(), 1u);
    CHECK_EQ(sequence.published().at(0).claimed_page_count, 0u);
    CHECK_EQ(sequence.checkpoint(), 1u);
    sequence.confirm_copies();
    sequence.publish(12);
    const std::vector<std::uint32_t> row = sequence.group_row(1);
    sequence.append(5);
    sequence.append(6);
    sequence.truncate(14);
    CHECK_EQ(sequence.group_row(1).at(0), row.at(1));
    sequence.append(7);
    sequence.append(8);
    sequence.truncate(16);
    sequence.publish(16);
    CHECK_EQ(sequence.donate(), 1u);
    CHECK(!sequence);
    CHECK_EQ(cache.stats().dropped_checkpoint_count, 1u);
    CHECK_EQ(table.pool_stats(1).cached_page_count, 1u);
    test::audit(table, cache);
}


// K09, G08: what other groups have of the pool can be had and is told, too.
void all_of_a_pool_is_reported() {
    rkv_page_table_config config = rkv::PageTable::config();
    config.page_size = 4;
    config.page_count = 41;
    rkv::PageTable table(config, {rkv::full_group(), rkv::chunk_group(0, 8)});
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> spine = table.allocate_pages(20);
    const std::vector<std::uint32_t> chunk = table.allocate_pages(20);
    (void)cache.insert_groups(test::ids(1, 80), spine, {{1, chunk, {}}});
    CHECK_EQ(table.pool_stats(0).cached_page_count, 40u);
    CHECK_EQ(cache.evict_reported(40).size(), 40u);
    CHECK_EQ(table.pool_stats(0).free_page_count, 40u);
    test::audit(table, cache);
}

}  // namespace

int main() {
    sequences_have_a_row_in_each_group();
    states_of_a_sequence();
    a_lock_goes_along();
    a_lookup_ends_where_every_group_can();
    pages_come_from_a_pool();
    wrong_rows_are_refused();
    groups_share_a_pool();
    all_of_a_pool_is_reported();
}
