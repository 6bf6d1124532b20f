/* The block-hash index: a node for each page, found by its digest. What it has in common with the
 * radix tree is shown by the tests that run with both, see RUN_BOTH. */
#include "fixture.h"

/* The whole tree as text; the caller frees it. */
static char *dump_of(const fixture *f) {
    size_t bytes = 0;
    CHECK_OK(rkv_cache_dump(f->cache, RKV_DUMP_JSON, NULL, 0, &bytes));
    char *dump = malloc(bytes);
    if (dump == NULL) {
        exit(1);
    }
    CHECK_OK(rkv_cache_dump(f->cache, RKV_DUMP_JSON, dump, bytes, &bytes));
    return dump;
}

/* Checks that the index knows each page of a list by the digest that others compute. */
static void check_digests(const fixture *f, const rkv_namespace *space, rkv_tokens tokens,
                          size_t pages) {
    rkv_page_digest digests[64];
    rkv_tokens_page_digests_args args;
    size_t count = 0;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.page_size = f->page_size;
    args.space = space;
    args.tokens = &tokens;
    CHECK_OK(rkv_tokens_page_digests(&args, digests, 64, &count));
    CHECK_EQ(count, pages);
    char *dump = dump_of(f);
    for (size_t page = 0; page < count; page++) {
        char hex[65];
        for (size_t i = 0; i < 32; i++) {
            snprintf(hex + 2 * i, 3, "%02x", digests[page].bytes[i]);
        }
        CHECK(strstr(dump, hex) != NULL);
    }
    free(dump);
}

static void h01_the_index_has_the_digests_that_others_compute(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[20];
    count_up(ids, 20, 1);
    insert(&f, text(ids, 18));
    check_digests(&f, NULL, text(ids, 18), 4);
    rkv_namespace space = new_namespace();
    space.flags = RKV_NAMESPACE_LORA;
    insert_in(&f, &space, text(ids, 18));
    check_digests(&f, &space, text(ids, 18), 4);
    /* published chunk by chunk, cut inside an image: the next chunk goes on in it */
    rkv_token_item items[2] = {image(3, 1, 14), image(4, 1, 14)};
    rkv_tokens prompt = with_items(ids, 20, items, 2);
    rkv_sequence_info state = begin(&f, prompt);
    CHECK_EQ(state.position_count, 46);
    for (uint64_t computed = 1; computed <= 46; computed += 3) {
        publish(&f, state.sequence, computed);
    }
    publish(&f, state.sequence, 46);
    check_digests(&f, NULL, prompt, 11);
    release(&f, state.sequence);
    CHECK_EQ(probe(&f, prompt), 44);
    end_fixture(&f);
}

/* H02: a node is a page; its id, its path and its children are there as in the tree. */
static void h02_a_node_for_each_page(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[8], pages[4], got[4];
    count_up(ids, 8, 1);
    allocate(&f, 4, pages);
    rkv_node_id node = insert_pages(&f, NULL, text(ids, 8), pages, 4).node;
    CHECK_EQ(cache_stats(&f).node_count, 4);
    rkv_node_id root = root_of(&f, node), at = node;
    for (size_t page = 4; page-- > 0;) {
        rkv_node_info info = info_of(&f, at);
        size_t count = 0;
        CHECK(info.page_count == 1 && info.position_count == 2);
        CHECK_EQ(info.end_position, 2 * (page + 1));
        CHECK_EQ(info.child_count, page < 3);
        CHECK_OK(rkv_node_read_pages(f.cache, at, got, 4, &count));
        CHECK(count == 1 && got[0] == pages[page]);
        at = info.parent;
    }
    CHECK_EQ(at, root);
    /* a match that ends anywhere splits nothing: each end has its node already */
    for (uint32_t tokens = 2; tokens <= 8; tokens += 2) {
        CHECK_EQ(match_of(&f, text(ids, tokens)).page_count, tokens / 2);
        CHECK_EQ(cache_stats(&f).node_count, 4);
    }
    CHECK_EQ(match_of(&f, text(ids, 8)).node, node);
    CHECK_EQ(evict(&f, 1), 1);
    CHECK(is_stale(&f, node));
    end_fixture(&f);
}

/* H02: children by their digests, whatever the order of their insertion. */
static void h02_children_are_ordered(void) {
    enum { COUNT = 100 };
    rkv_node_id orders[2][COUNT];
    uint32_t first_pages[2][COUNT];
    for (uint32_t run = 0; run < 2; run++) {
        fixture f = new_fixture(1, COUNT + 1);
        uint32_t of_token[COUNT + 2] = {0};
        rkv_node_id root = 0;
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t id = run == 0 ? i : COUNT - 1 - i, page = 0;
            allocate(&f, 1, &page);
            of_token[page] = id;
            root = root_of(&f, insert_pages(&f, NULL, text(&id, 1), &page, 1).node);
        }
        size_t count = 0;
        CHECK_OK(rkv_node_read_children(f.cache, root, orders[run], COUNT, &count));
        CHECK_EQ(count, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            uint32_t page = 0;
            CHECK_OK(rkv_node_read_pages(f.cache, orders[run][i], &page, 1, &count));
            first_pages[run][i] = of_token[page];
        }
        end_fixture(&f);
    }
    CHECK(memcmp(first_pages[0], first_pages[1], sizeof first_pages[0]) == 0);
}

/* H02: going on from an earlier match is checked, although the index keeps no tokens. */
static void h02_insert_resumes_after_its_own_prefix_only(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[8], other[8], pages[4];
    count_up(ids, 8, 1);
    count_up(other, 8, 1);
    other[3] = 77;
    rkv_cache_match_result match = new_match();
    insert(&f, text(ids, 4));
    match = match_of(&f, text(ids, 8));
    CHECK(match.page_count == 2 && match.token_count == 4);
    allocate(&f, 4, pages);
    rkv_tokens wrong = text(other, 8), right = text(ids, 8);
    rkv_cache_insert_args args = insert_args(&wrong, pages, 4);
    rkv_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    args.from_node = match.node;
    args.from_token_index = match.token_count;
    args.from_page_index = match.page_count;
    snapshot before = take(&f);
    CHECK_STATUS(rkv_cache_insert(f.cache, &args, NULL, &result), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("tokens") && same(&f, &before));
    args.tokens = &right;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    CHECK_EQ(result.claimed_page_count, 2);
    CHECK_EQ(probe(&f, right), 8);
    CHECK_OK(rkv_page_table_free_pages(f.table, pages, 2));
    end_fixture(&f);
}

/* H02: ids that are no text ids, which could look like other tokens, match nothing. */
static void h02_bad_ids_match_nothing(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_token_item items[2] = {image(1, 1, 5), image(2, 1, 5)};
    items[1].kind = RKV_TOKEN_COORD;
    items[1].position_count = 0;
    items[1].bin = 3;
    memset(items[1].digest, 0, sizeof items[1].digest);
    insert(&f, with_items(ids, 4, items, 2));
    CHECK_EQ(probe(&f, with_items(ids, 4, items, 2)), 8);
    for (uint32_t offset = 0; offset < 24; offset++) {
        uint32_t bad[8] = {1};
        const uint32_t bases[4] = {RKV_TEXT_ID_LIMIT, RKV_TEXT_ID_LIMIT + (1u << 20),
                                   RKV_TEXT_ID_LIMIT + (1u << 21), UINT32_MAX - 24};
        for (size_t base = 0; base < 4; base++) {
            for (size_t at = 1; at < 8; at++) {
                bad[at] = bases[base] + offset;
            }
            bad[6] = RKV_TEXT_ID_LIMIT + 3;
            CHECK(probe(&f, text(bad, 8)) <= 1);
        }
    }
    end_fixture(&f);
}

static void h03_lookup_references_the_leading_run(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[10], fork_ids[10], pages[5], got[5];
    count_up(ids, 10, 1);
    memcpy(fork_ids, ids, sizeof ids);
    fork_ids[5] = 90; /* the third page is another one */
    allocate(&f, 5, pages);
    rkv_node_id end = insert_pages(&f, NULL, text(ids, 10), pages, 5).node;
    rkv_cache_match_result match = new_match();
    rkv_tokens fork = text(fork_ids, 10);
    CHECK_OK(rkv_cache_match(f.cache, NULL, &fork, RKV_MATCH_LOCK, got, 5, &match));
    CHECK(match.page_count == 2 && match.token_count == 4 && match.lock != 0);
    CHECK(memcmp(got, pages, 2 * sizeof *got) == 0);
    /* known pages after an unknown one are no run */
    CHECK_EQ(probe(&f, text(ids + 2, 8)), 0);
    /* referenced: they stay, and are counted */
    CHECK_EQ(info_of(&f, match.node).lock_count, 1);
    CHECK_EQ(reclaimable_pages(&f), 3);
    CHECK_EQ(evict(&f, 100), 3);
    CHECK(is_stale(&f, end));
    CHECK_EQ(probe(&f, text(ids, 10)), 4);
    /* several lookups accumulate; each release takes one back */
    rkv_lock_id first = match.lock;
    CHECK_OK(rkv_cache_match(f.cache, NULL, &fork, RKV_MATCH_LOCK, NULL, 0, &match));
    CHECK_EQ(info_of(&f, match.node).lock_count, 2);
    CHECK_OK(rkv_cache_unlock(f.cache, first));
    CHECK_EQ(evict(&f, 100), 0);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    CHECK_STATUS(rkv_cache_unlock(f.cache, match.lock), RKV_STATUS_STALE_LOCK);
    CHECK_EQ(reclaimable_pages(&f), 2);
    CHECK_EQ(evict(&f, 100), 2);
    CHECK_EQ(free_pages(&f), 32);
    end_fixture(&f);
}

/* Every page of the run is refreshed, page by page; those after it are not. */
static void h03_a_touch_refreshes_each_page_of_the_run(void) {
    fixture f = new_fixture(1, 16);
    uint32_t old_ids[3] = {1, 2, 3}, new_ids[3] = {11, 12, 13}, pages[6], victims[6];
    size_t count = 0;
    allocate(&f, 6, pages);
    insert_pages(&f, NULL, text(old_ids, 3), pages, 3);
    insert_pages(&f, NULL, text(new_ids, 3), pages + 3, 3);
    CHECK_EQ(match_of(&f, text(old_ids, 2)).page_count, 2);
    CHECK_OK(rkv_cache_evict(f.cache, 6, victims, 6, &count));
    /* the third page of the old one wasn't touched; the touched ones go last, the deeper first */
    const uint32_t wanted[6] = {pages[2], pages[5], pages[4], pages[3], pages[1], pages[0]};
    CHECK(count == 6 && memcmp(victims, wanted, sizeof victims) == 0);
    end_fixture(&f);
}

/* Parts of pages: those of the known run itself are reused by copy, no other page is looked at. */
static void h03_no_part_of_another_page(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[12], fork_ids[12];
    count_up(ids, 12, 1);
    memcpy(fork_ids, ids, sizeof ids);
    fork_ids[7] = 90; /* the last token of the second page */
    serve(&f, text(ids, 12));
    CHECK_EQ(probe(&f, text(fork_ids, 12)), 4);
    rkv_sequence_info state = begin(&f, text(fork_ids, 12));
    CHECK(state.cached_position_count == 4 && state.copy_count == 0);
    release(&f, state.sequence);
    /* a full hit recomputes one token: the last page is known, so its start is copied */
    state = begin(&f, text(ids, 12));
    CHECK(state.cached_position_count == 11 && copy_of(&f, state.sequence).position_count == 3);
    CHECK(state.shared_page_count == 2 && copy_of(&f, state.sequence).source_page != 0);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, state.sequence));
    CHECK_EQ(publish(&f, state.sequence, 12).remapped_page_count, 1);
    release(&f, state.sequence);
    end_fixture(&f);
}

static void h04_publishing_twice_adds_nothing(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[8], first[4], second[4];
    count_up(ids, 8, 1);
    allocate(&f, 4, first);
    allocate(&f, 4, second);
    rkv_cache_insert_result result = insert_pages(&f, NULL, text(ids, 8), first, 4);
    CHECK(result.claimed_page_count == 4 && result.duplicate_page_count == 0);
    rkv_node_id node = result.node;
    result = insert_pages(&f, NULL, text(ids, 8), second, 4);
    CHECK(result.claimed_page_count == 0 && result.duplicate_page_count == 4);
    CHECK_EQ(result.node, node);
    CHECK(cached_pages(&f) == 4 && cache_stats(&f).node_count == 4);
    CHECK_OK(rkv_page_table_free_pages(f.table, second, 4));
    /* two prefills of one prompt at once: the second one ends up on the first one's pages */
    uint32_t other[8], rows[2][4];
    count_up(other, 8, 100);
    rkv_sequence_info one = begin(&f, text(other, 8)), two = begin(&f, text(other, 8));
    CHECK_EQ(publish(&f, one.sequence, 8).claimed_page_count, 4);
    CHECK_EQ(publish(&f, two.sequence, 8).remapped_page_count, 4);
    CHECK(row_of(&f, one.slot, rows[0], 4) == 4 && row_of(&f, two.slot, rows[1], 4) == 4);
    CHECK(memcmp(rows[0], rows[1], sizeof rows[0]) == 0);
    CHECK_EQ(cached_pages(&f), 8);
    release(&f, one.sequence);
    release(&f, two.sequence);
    end_fixture(&f);
}

static void h05_evict_takes_unreferenced_pages_only(void) {
    fixture f = new_fixture(2, 16);
    uint32_t used[6] = {1, 2, 3, 4, 5, 6}, unused[6] = {1, 2, 30, 40, 50, 60};
    insert(&f, text(used, 6));
    insert(&f, text(unused, 6));
    CHECK_EQ(cached_pages(&f), 5); /* the first page is shared */
    rkv_cache_match_result match = match_in(&f, NULL, text(used, 6), RKV_MATCH_LOCK);
    CHECK_EQ(evict(&f, SIZE_MAX), 2);
    CHECK_EQ(free_pages(&f), 13);
    CHECK_EQ(probe(&f, text(used, 6)), 6);
    CHECK_EQ(probe(&f, text(unused, 6)), 2);
    CHECK_EQ(evict(&f, SIZE_MAX), 0);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    CHECK_EQ(evict(&f, SIZE_MAX), 3);
    CHECK_EQ(free_pages(&f), 16);
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    end_fixture(&f);
}

/* A cache for each model: equal digests, and nothing in common. */
static void h06_two_caches_share_nothing(void) {
    fixture one = new_fixture(2, 16), two = new_fixture(2, 16);
    uint32_t ids[6];
    count_up(ids, 6, 1);
    rkv_node_id node = insert(&one, text(ids, 6)).node;
    CHECK(probe(&one, text(ids, 6)) == 6 && probe(&two, text(ids, 6)) == 0);
    CHECK(cached_pages(&two) == 0 && cache_stats(&two).node_count == 0);
    rkv_lock_id lock = 0;
    CHECK_STATUS(rkv_cache_lock(two.cache, node, &lock), RKV_STATUS_STALE_NODE);
    CHECK(insert(&two, text(ids, 6)).node != node);
    CHECK_EQ(evict(&one, SIZE_MAX), 3);
    CHECK(probe(&one, text(ids, 6)) == 0 && probe(&two, text(ids, 6)) == 6);
    end_fixture(&one);
    end_fixture(&two);
}

/* H07: cached pages, and prefixes that no longer one goes on. */
static void h07_statistics(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[8];
    rkv_cache_stats stats = cache_stats(&f);
    CHECK(stats.cached_page_count == 0 && stats.prefix_count == 0);
    count_up(ids, 8, 1);
    insert(&f, text(ids, 4));
    CHECK_EQ(cache_stats(&f).prefix_count, 1);
    insert(&f, text(ids, 8)); /* goes on with it */
    CHECK_EQ(cache_stats(&f).prefix_count, 1);
    ids[5] = 50;
    insert(&f, text(ids, 8)); /* forks after two pages */
    stats = cache_stats(&f);
    CHECK(stats.cached_page_count == 6 && stats.prefix_count == 2);
    CHECK_EQ(stats.node_count, nodes(&f, 3));
    ids[0] = 70;
    insert(&f, text(ids, 2)); /* has nothing in common */
    CHECK_EQ(cache_stats(&f).prefix_count, 3);
    CHECK_EQ(evict(&f, 2), 2); /* the oldest leaf, up to the fork */
    CHECK_EQ(cache_stats(&f).prefix_count, 2);
    CHECK_EQ(evict(&f, 4), 4);
    CHECK_EQ(cache_stats(&f).prefix_count, 1);
    CHECK_EQ(evict(&f, 1), 1);
    CHECK_EQ(cache_stats(&f).prefix_count, 0);
    end_fixture(&f);
}

/* A program that was compiled before prefix_count existed: what lies behind its struct stays. */
static void h07_older_callers_get_the_older_numbers(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_cache_stats stats;
    memset(&stats, 0xA5, sizeof stats);
    stats.struct_size = offsetof(rkv_cache_stats, prefix_count);
    insert(&f, text(ids, 4));
    CHECK_OK(rkv_cache_read_stats(f.cache, &stats));
    CHECK_EQ(stats.cached_page_count, 2);
    CHECK_EQ(stats.prefix_count, UINT64_C(0xA5A5A5A5A5A5A5A5));
    end_fixture(&f);
}

int main(void) {
    RUN_BLOCK_HASH(h01_the_index_has_the_digests_that_others_compute);
    RUN_BLOCK_HASH(h02_a_node_for_each_page);
    RUN_BLOCK_HASH(h02_children_are_ordered);
    RUN_BLOCK_HASH(h02_insert_resumes_after_its_own_prefix_only);
    RUN_BLOCK_HASH(h02_bad_ids_match_nothing);
    RUN_BLOCK_HASH(h03_lookup_references_the_leading_run);
    RUN_BLOCK_HASH(h03_a_touch_refreshes_each_page_of_the_run);
    RUN_BLOCK_HASH(h03_no_part_of_another_page);
    RUN_BLOCK_HASH(h04_publishing_twice_adds_nothing);
    RUN_BLOCK_HASH(h05_evict_takes_unreferenced_pages_only);
    RUN_BOTH(h06_two_caches_share_nothing);
    RUN_BOTH(h07_statistics);
    RUN_BOTH(h07_older_callers_get_the_older_numbers);
    return check_result();
}
