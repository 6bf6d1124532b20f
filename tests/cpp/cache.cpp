// rkv::Cache, rkv::Match and rkv::Lock: match, insert, lock, evict, and what can be seen.
#include "check.hpp"

#include <array>
#include <type_traits>
#include <utility>

// What a temporary namespace is made of does not end before a reference to it.
static_assert(!std::is_reference_v<decltype(std::declval<rkv::Namespace>().lora(1))>);
static_assert(!std::is_reference_v<decltype(std::declval<rkv::Namespace>().epoch(1).lora(2))>);
static_assert(std::is_reference_v<decltype(std::declval<rkv::Namespace&>().lora(1))>);

static_assert(!std::is_copy_constructible_v<rkv::Cache>);
static_assert(!std::is_copy_constructible_v<rkv::Lock>);
static_assert(std::is_nothrow_move_constructible_v<rkv::Cache>);
static_assert(std::is_nothrow_move_assignable_v<rkv::Cache>);
static_assert(std::is_nothrow_move_constructible_v<rkv::Lock>);
static_assert(std::is_nothrow_move_assignable_v<rkv::Lock>);
static_assert(std::is_nothrow_move_constructible_v<rkv::Match>);

namespace {

using test::ids;

/// Allocates and inserts the whole pages of the tokens; returns what insert said.
rkv_cache_insert_result publish(rkv::PageTable& table, rkv::Cache& cache, rkv::TokenView tokens,
                          const rkv::Namespace& ns = {}) {
    const auto pages = table.allocate_pages(tokens.position_count() / cache.page_size());
    return cache.insert(tokens, pages, {}, ns);
}

// K05, K06, K07
void matches() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    CHECK_EQ(cache.page_size(), 4u);
    CHECK_EQ(cache.match({1, 2, 3}).found.token_count, 0u);

    const std::vector<std::uint32_t> tokens = ids(100, 16);
    const std::vector<std::uint32_t> pages = table.allocate_pages(4);
    std::vector<std::uint32_t> published(4);
    const rkv_cache_insert_result inserted = cache.insert(tokens, pages, published);
    CHECK_EQ(inserted.claimed_page_count, 4u);
    CHECK_EQ(inserted.duplicate_page_count, 0u);
    CHECK(published == pages);
    CHECK(cache.contains_page(pages[0]));
    CHECK(!cache.contains_page(0));

    rkv::Match match = cache.match(tokens);
    CHECK_EQ(match.found.node, inserted.node);
    CHECK_EQ(match.found.page_count, 4u);
    CHECK(match.pages == pages);
    CHECK(!match.lock);

    // Ten positions: two whole pages, two positions of the third. The id stays with the deep end.
    match = cache.match(ids(100, 10));
    CHECK_EQ(match.found.token_count, 10u);
    CHECK_EQ(match.found.page_count, 2u);
    CHECK_EQ(match.found.partial_position_count, 2u);
    CHECK_EQ(match.found.partial_page, pages[2]);
    CHECK_EQ(match.found.partial_node, inserted.node);
    CHECK_EQ(match.pages.size(), 2u);
    CHECK_EQ(cache.node_info(match.found.node).child_count, 1u);

    // Into the caller's buffer, when it is large enough and when it is not.
    std::array<std::uint32_t, 4> buffer{};
    CHECK_EQ(cache.match(tokens, buffer).page_count, 4u);
    CHECK_EQ(buffer[3], pages[3]);
    const rkv_cache_stats before = cache.stats();
    std::array<std::uint32_t, 1> small{};
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL, cache.match(tokens, small));
    CHECK_EQ(small[0], 0u);
    CHECK_EQ(cache.stats().lookup_count, before.lookup_count);
    // An empty one: the pages are not wanted.
    CHECK_EQ(cache.match(tokens, rkv::span<std::uint32_t>()).page_count, 4u);

    // Going on from a match: the tokens continue, the first two pages are not read.
    std::vector<std::uint32_t> longer = ids(100, 8);
    for (std::uint32_t id : ids(500, 8)) longer.push_back(id);
    const rkv::Match start = cache.match(longer, {}, RKV_MATCH_LOCK);
    CHECK_EQ(start.found.token_count, 8u);
    std::vector<std::uint32_t> branch(2, 0);
    for (std::uint32_t page : table.allocate_pages(2)) branch.push_back(page);
    const rkv_cache_insert_result grown = cache.insert_after(start.found, longer, branch,
                                                             published);
    CHECK_EQ(grown.claimed_page_count, 2u);
    CHECK_EQ(published[3], branch[3]);
    CHECK_EQ(cache.match(longer).found.page_count, 4u);

    // Again: nothing is claimed, `published` tells whose page counts, ours stay ours.
    const std::vector<std::uint32_t> mine = table.allocate_pages(4);
    const rkv_cache_insert_result again = cache.insert(tokens, mine, published);
    CHECK_EQ(again.node, inserted.node);
    CHECK_EQ(again.claimed_page_count, 0u);
    CHECK_EQ(again.duplicate_page_count, 4u);
    CHECK(published == pages);
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL, cache.insert(tokens, mine, small));
    table.free_pages(mine);
    test::audit(table, cache);
}

// K11
void keeps_namespaces_apart() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> tokens = ids(1, 8);
    std::array<std::uint8_t, 32> salt{};
    salt[31] = 1;
    const rkv::Digest digest = rkv::image_digest("x", 1);
    const std::vector<rkv::Namespace> all{
        rkv::Namespace(), rkv::Namespace().lora(0), rkv::Namespace().lora(7),
        rkv::Namespace().epoch(1), rkv::Namespace().salt(salt), rkv::Namespace().image(digest)};
    for (const rkv::Namespace& ns : all) {
        CHECK_EQ(cache.match(tokens, ns).found.page_count, 0u);
        CHECK_EQ(publish(table, cache, tokens, ns).claimed_page_count, 2u);
        CHECK_EQ(cache.probe(tokens, ns).token_count, 8u);
    }
    CHECK_EQ(cache.stats().namespace_count, all.size());
    CHECK_EQ(cache.namespaces().size(), all.size());
    CHECK_EQ(cache.evict(1000), 2 * all.size());
    CHECK_EQ(cache.stats().namespace_count, 0u);
    test::audit(table, cache);
}

// K11: what is cleared is gone for all but its holder.
void clears() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const std::vector<std::uint32_t> tokens = ids(1, 8);
    const std::vector<rkv::Namespace> all{rkv::Namespace(), rkv::Namespace().epoch(1),
                                          rkv::Namespace().lora(7).epoch(1)};
    for (const rkv::Namespace& ns : all) publish(table, cache, tokens, ns);
    rkv::Match match = cache.match(tokens, all[1], RKV_MATCH_LOCK);
    CHECK_EQ(cache.clear(all[2]).freed_page_count, 2u);
    const rkv_cache_clear_result done = cache.clear(all[1], RKV_CLEAR_EPOCH);
    CHECK_EQ(done.namespace_count, 1u);
    CHECK_EQ(done.held_page_count, 2u);
    CHECK_EQ(cache.probe(tokens, all[1]).token_count, 0u);
    CHECK_EQ(cache.probe(tokens).token_count, 8u);
    match.lock.reset();
    CHECK_EQ(cache.stats().cached_page_count, 2u);
    CHECK_EQ(cache.clear_everything().freed_page_count, 2u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, cache.clear(rkv::Namespace(), 0));
    test::audit(table, cache);
}

// K08: a Lock undoes exactly itself, at the end of its scope or when told.
void locks() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const rkv_node_id node = publish(table, cache, ids(1, 16)).node;
    const auto lock_count = [&] { return cache.node_info(node).lock_count; };
    {
        rkv::Lock one = cache.lock(node);
        rkv::Lock two = cache.lock(node);
        CHECK_EQ(lock_count(), 2u);
        CHECK_EQ(cache.stats().reclaimable_page_count, 0u);
        CHECK_EQ(cache.evict(4), 0u);

        CHECK(one.id() != two.id());
        const rkv_lock_id first = one.id();
        rkv::Lock moved = std::move(one);
        CHECK(!one);  // NOLINT: what a moved-from one does is what is tested
        CHECK_EQ(moved.id(), first);
        CHECK_EQ(lock_count(), 2u);
        moved = std::move(two);
        CHECK_EQ(lock_count(), 1u);
        moved.reset();
        CHECK_EQ(lock_count(), 0u);
        moved.reset();

        rkv::Match match = cache.match(ids(1, 16), {}, RKV_MATCH_LOCK);
        CHECK_EQ(match.lock.id(), match.found.lock);
        CHECK_EQ(match.found.node, node);
        CHECK_EQ(lock_count(), 1u);
        std::array<std::uint32_t, 4> pages{};
        const rkv_cache_match_result again = cache.match(ids(1, 16), pages, match.lock);
        CHECK_EQ(again.lock, match.lock.id());
        CHECK_EQ(lock_count(), 1u);
        // A miss holds nothing, and lets go of what was held.
        CHECK_EQ(cache.match(ids(900, 8), pages, match.lock).lock, 0u);
        CHECK(!match.lock);
        CHECK_EQ(lock_count(), 0u);

        const auto more = table.allocate_pages(1);
        const rkv_cache_insert_result done = cache.insert(ids(500, 4), more, match.lock);
        CHECK_EQ(match.lock.id(), done.lock);
        CHECK_EQ(cache.node_info(done.node).lock_count, 1u);
        match.lock.reset();

        const rkv_lock_id raw = cache.lock(node).release();
        CHECK_EQ(lock_count(), 1u);
        const rkv::Lock adopted = cache.adopt_lock(raw);
        CHECK_EQ(lock_count(), 1u);
    }
    CHECK_EQ(lock_count(), 0u);
    CHECK_THROWS(RKV_STATUS_STALE_LOCK, cache.adopt_lock(12345).reset());
    CHECK_EQ(lock_count(), 0u);
    test::audit(table, cache);
}

// K09
void evicts() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    publish(table, cache, ids(1, 16));
    publish(table, cache, ids(500, 16));
    const std::vector<std::uint32_t> first = cache.match(ids(1, 16)).pages;
    const std::vector<std::uint32_t> second = cache.match(ids(500, 16)).pages;

    // From the end of what was used longest ago, page by page.
    CHECK(cache.evict_reported(2) == (std::vector<std::uint32_t>{first[3], first[2]}));
    CHECK_EQ(cache.probe(ids(1, 16)).token_count, 8u);
    CHECK_EQ(cache.probe(ids(500, 16)).position_count, 16u);

    std::array<std::uint32_t, 1> one{};
    CHECK_EQ(cache.evict(5, one), 1u);
    CHECK_EQ(one[0], first[1]);
    CHECK_EQ(cache.evict(5, rkv::span<std::uint32_t>()), 0u);
    CHECK_EQ(cache.evict(1), 1u);
    CHECK_EQ(cache.probe(ids(1, 16)).token_count, 0u);
    CHECK_EQ(cache.evict_reported(100).size(), 4u);
    CHECK(cache.evict_reported(100).empty());
    CHECK_EQ(cache.stats().evicted_page_count, 8u);
    CHECK(!cache.contains_page(second[0]));
    test::audit(table, cache);
}

void shows_nodes() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    std::vector<std::uint32_t> left = ids(1, 8);
    std::vector<std::uint32_t> right = left;
    for (std::uint32_t id : ids(100, 4)) left.push_back(id);
    for (std::uint32_t id : ids(200, 8)) right.push_back(id);
    const rkv_node_id left_node = publish(table, cache, left).node;
    const std::vector<std::uint32_t> pages = table.allocate_pages(4);
    std::vector<std::uint32_t> published(4);
    const rkv_node_id right_node = cache.insert(right, pages, published).node;
    table.free_pages({pages[0], pages[1]});

    const rkv_node_info info = cache.node_info(right_node);
    CHECK_EQ(info.page_count, 2u);
    CHECK_EQ(info.position_count, 8u);
    CHECK_EQ(info.end_position, 16u);
    CHECK(cache.node_pages(right_node) ==
          (std::vector<std::uint32_t>(published.begin() + 2, published.end())));
    std::array<std::uint32_t, 2> buffer{};
    CHECK_EQ(cache.node_pages(right_node, buffer), 2u);
    CHECK_EQ(buffer[1], published[3]);
    CHECK_EQ(cache.node_info(left_node).parent, info.parent);
    CHECK(cache.node_children(info.parent) ==
          (std::vector<rkv_node_id>{left_node, right_node}));
    std::array<rkv_node_id, 2> children{};
    CHECK_EQ(cache.node_children(info.parent, children), 2u);
    CHECK_EQ(children[0], left_node);
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL,
                 cache.node_children(info.parent, rkv::span<rkv_node_id>()));
    CHECK(cache.node_children(left_node).empty());
    CHECK_EQ(cache.node_children(left_node, {}), 0u);

    const std::string json = cache.dump();
    CHECK_EQ(json.front(), '{');
    CHECK_EQ(json[json.find_last_not_of("\n")], '}');
    CHECK_EQ(cache.dump(RKV_DUMP_DOT).find("digraph"), 0u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.dump(7));
    test::audit(table, cache);
}

// B08: with whole pages only, nothing of a page is reused.
void takes_a_configuration() {
    rkv::PageTable table = test::table(33, 4);
    rkv_cache_config config = rkv::Cache::config();
    config.flags = RKV_CACHE_WHOLE_PAGES;
    rkv::Cache cache(table, config);
    publish(table, cache, ids(1, 16));
    CHECK_EQ(cache.match(ids(1, 10)).found.position_count, 8u);
    CHECK_THROWS(RKV_STATUS_BUSY, (void)rkv::Cache(table));
    config.index = 99;
    rkv::PageTable other = test::table(33, 4);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::Cache(other, config));
    test::audit(other, rkv::Cache(other));
}

// M03: in any order, and what is left behind is still usable.
void destroys_in_any_order() {
    auto table = std::make_unique<rkv::PageTable>(test::table(33, 4));
    auto cache = std::make_unique<rkv::Cache>(*table);
    publish(*table, *cache, ids(1, 16));
    table.reset();
    CHECK_EQ(cache->match(ids(1, 16)).found.page_count, 4u);
    rkv::Match match = cache->match(ids(1, 16), {}, RKV_MATCH_LOCK);
    cache.reset();
    CHECK_EQ(match.pages.size(), 4u);
    match.lock.reset();  // unlocks in a cache that lived on for it, and ends with it

    rkv::PageTable second = test::table(33, 4);
    rkv::Cache first_cache(second);
    const rkv_node_id node = publish(second, first_cache, ids(1, 16)).node;
    rkv::Lock lock = first_cache.lock(node);
    first_cache.reset();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)first_cache.stats());
    CHECK_THROWS(RKV_STATUS_BUSY, (void)rkv::Cache(second));
    lock = rkv::Lock();
    CHECK_EQ(second.stats().free_page_count, 32u);
    rkv::Cache next(second);
    test::audit(second, next);

    // What locks nothing keeps nothing alive.
    const rkv::Match miss = next.match({1, 2, 3}, {}, RKV_MATCH_LOCK);
    next.reset();
    rkv::Cache last(second);
    test::audit(second, last);
}

// A C handle passes in and out.
void adopts_and_releases() {
    rkv::PageTable table = test::table(33, 4);
    rkv::Cache cache(table);
    const rkv_node_id node = publish(table, cache, ids(1, 16)).node;
    rkv::Lock lock = cache.lock(node);
    const rkv_lock_id id = lock.id();
    rkv_cache* raw = cache.release();
    CHECK(cache.get() == nullptr);
    CHECK_EQ(cache.page_size(), 0u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)cache.match({1}));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, lock.reset());
    lock = rkv::Lock();

    rkv::Cache adopted(raw, 4);
    CHECK_EQ(adopted.node_info(node).lock_count, 1u);
    adopted.adopt_lock(id).reset();
    CHECK_EQ(adopted.match(ids(1, 16)).pages.size(), 4u);
    rkv::Cache moved = std::move(adopted);
    CHECK(adopted.get() == nullptr);  // NOLINT: what a moved-from one does is what is tested
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)adopted.begin({1}));
    // An owner without a cache would end nothing: the lock and the sequence stayed for ever.
    const rkv_lock_id second = moved.lock(node).release();
    const rkv_sequence_id began = moved.begin({1}).release();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)adopted.adopt_lock(second));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)adopted.adopt_sequence(began));
    moved.adopt_lock(second).reset();
    moved.adopt_sequence(began).reset();
    CHECK_EQ(moved.stats().cached_page_count, 4u);
    test::audit(table, moved);
}

// A lock that is none moves nowhere: the library would take one that nobody undoes, and begin in
// the default namespace.
void an_empty_lock_moves_nowhere() {
    rkv::PageTable table = test::table(41, 4);
    rkv::Cache cache(table);
    const rkv::Namespace anna = rkv::Namespace().salt(std::array<std::uint8_t, 32>{7});
    const std::vector<std::uint32_t> tokens = test::ids(1, 12), pages = table.allocate_pages(3);
    rkv::Lock lock;
    // Less than a page: nothing is published, and there is no lock.
    const rkv_cache_insert_result done = cache.insert(test::ids(1, 3), pages, lock, {}, anna);
    CHECK(!lock);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)cache.insert_moving(lock, {done.node, 0, 0}, tokens, pages));
    CHECK_EQ(cache.stats().lock_count, 0u);
    CHECK_EQ(cache.probe(tokens).token_count, 0u);
    (void)cache.insert(tokens, pages, lock, {}, anna);
    CHECK(static_cast<bool>(lock));
    lock.reset();
    CHECK_EQ(cache.evict(3), 3u);
    test::audit(table, cache);
}

// A match of nothing has no node, and says nothing of its namespace: the library would begin in
// the default one.
void what_found_nothing_is_inserted_with_its_namespace() {
    rkv::PageTable table = test::table(41, 4);
    rkv::Cache cache(table);
    const rkv::Namespace anna = rkv::Namespace().salt(std::array<std::uint8_t, 32>{7});
    const std::vector<std::uint32_t> tokens = test::ids(1, 12), pages = table.allocate_pages(3);
    const rkv::Match missed = cache.match(tokens, anna, RKV_MATCH_LOCK);
    CHECK_EQ(missed.found.node, 0u);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)cache.insert_after(missed.found, tokens, pages));
    CHECK_EQ(cache.probe(tokens).token_count, 0u);
    CHECK_EQ(cache.insert_after(missed.found, tokens, pages, {}, anna).claimed_page_count, 3u);
    CHECK_EQ(cache.probe(tokens, anna).token_count, 12u);
    CHECK_EQ(cache.probe(tokens).token_count, 0u);
    CHECK_EQ(cache.evict(3), 3u);
    test::audit(table, cache);
}

}  // namespace

int main() {
    matches();
    keeps_namespaces_apart();
    clears();
    locks();
    an_empty_lock_moves_nowhere();
    what_found_nothing_is_inserted_with_its_namespace();
    evicts();
    shows_nodes();
    takes_a_configuration();
    destroys_in_any_order();
    adopts_and_releases();
}
