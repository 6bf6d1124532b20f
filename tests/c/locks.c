/* Locks: what they protect, and what undoes them. */
#include "fixture.h"

static void k08_lock_protects_the_path(void) {
    fixture f = new_fixture(1, 16);
    uint32_t ids[6];
    count_up(ids, 6, 1);
    rkv_node_id top = insert(&f, text(ids, 2)).node;
    rkv_node_id middle = insert(&f, text(ids, 4)).node;
    rkv_node_id leaf = insert(&f, text(ids, 6)).node;
    rkv_node_id root = root_of(&f, top);
    CHECK(root != top && info_of(&f, root).parent == 0);
    rkv_lock_id first = lock_node(&f, middle), second = lock_node(&f, middle);
    rkv_lock_id deep = lock_node(&f, leaf);
    CHECK(first != second && second != deep);
    CHECK_EQ(cache_stats(&f).lock_count, 3);
    CHECK_EQ(info_of(&f, leaf).lock_count, 1);
    /* its own two, and the child that is protected */
    CHECK_EQ(info_of(&f, middle).lock_count, 3);
    CHECK_EQ(info_of(&f, top).lock_count, 1);
    CHECK_EQ(info_of(&f, root).lock_count, 1);
    check_sane(&f);
    /* an unlock undoes its own lock, once */
    CHECK_OK(rkv_cache_unlock(f.cache, deep));
    CHECK_STATUS(rkv_cache_unlock(f.cache, deep), RKV_STATUS_STALE_LOCK);
    CHECK_EQ(info_of(&f, middle).lock_count, 2);
    CHECK_EQ(info_of(&f, top).lock_count, 1);
    CHECK_EQ(evict(&f, 100), 2);
    CHECK(is_stale(&f, leaf));
    CHECK_OK(rkv_cache_unlock(f.cache, first));
    CHECK_STATUS(rkv_cache_unlock(f.cache, first), RKV_STATUS_STALE_LOCK);
    CHECK_EQ(evict(&f, 100), 0);
    CHECK_OK(rkv_cache_unlock(f.cache, second));
    CHECK_EQ(cache_stats(&f).lock_count, 0);
    CHECK_EQ(info_of(&f, root).lock_count, 0);
    CHECK_EQ(evict(&f, 100), 4);
    end_fixture(&f);
}

/* A lock keeps what it was taken on when the node is split, and others lock the parts. */
static void k08_a_lock_outlives_splits(void) {
    fixture f = new_fixture(1, 16);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_lock_id whole = lock_node(&f, insert(&f, text(ids, 8)).node);
    rkv_cache_match_result half = match_in(&f, NULL, text(ids, 4), RKV_MATCH_LOCK);
    rkv_cache_match_result quarter = match_in(&f, NULL, text(ids, 2), RKV_MATCH_LOCK);
    CHECK_OK(rkv_cache_unlock(f.cache, half.lock));
    CHECK_EQ(reclaimable_pages(&f), 0);
    CHECK_OK(rkv_cache_unlock(f.cache, whole));
    check_sane(&f);
    CHECK_EQ(reclaimable_pages(&f), 6);
    CHECK_EQ(evict(&f, 100), 6);
    CHECK_EQ(probe(&f, text(ids, 8)), 2);
    CHECK_OK(rkv_cache_unlock(f.cache, quarter.lock));
    CHECK_EQ(evict(&f, 100), 2);
    end_fixture(&f);
}

/* Ids of nodes, of other caches, and of what was undone undo nothing. */
static void k08_stale_and_foreign_ids(void) {
    fixture f = new_fixture(1, 16), g = new_fixture(1, 16);
    uint32_t ids[4];
    count_up(ids, 4, 1);
    rkv_node_id node = insert(&f, text(ids, 4)).node;
    CHECK(insert(&g, text(ids, 4)).node != node);
    rkv_lock_id lock = 77;
    const rkv_node_id never[] = {0, 1, UINT64_MAX, node + 1, node ^ (UINT64_C(1) << 40)};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        CHECK_STATUS(rkv_cache_lock(f.cache, never[i], &lock), RKV_STATUS_STALE_NODE);
    }
    CHECK_STATUS(rkv_cache_lock(g.cache, node, &lock), RKV_STATUS_STALE_NODE);
    CHECK_EQ(lock, 77);
    lock = lock_node(&f, node);
    const rkv_lock_id strange[] = {0, 1, UINT64_MAX, lock + 1, lock ^ (UINT64_C(1) << 24),
                                   lock ^ (UINT64_C(1) << 50)};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        CHECK_STATUS(rkv_cache_unlock(f.cache, strange[i]), RKV_STATUS_STALE_LOCK);
    }
    CHECK_STATUS(rkv_cache_unlock(g.cache, lock), RKV_STATUS_STALE_LOCK);
    CHECK_EQ(info_of(&f, node).lock_count, 1);
    CHECK_OK(rkv_cache_unlock(f.cache, lock));
    /* the next lock of the same node is another one */
    rkv_lock_id again = lock_node(&f, node);
    CHECK(again != lock);
    CHECK_STATUS(rkv_cache_unlock(f.cache, lock), RKV_STATUS_STALE_LOCK);
    CHECK_OK(rkv_cache_unlock(f.cache, again));
    CHECK_EQ(evict(&f, 4), 4);
    /* the place of the evicted node is taken again, under another id */
    CHECK(insert(&f, text(ids, 4)).node != node);
    CHECK_STATUS(rkv_cache_lock(f.cache, node, &lock), RKV_STATUS_STALE_NODE);
    CHECK_EQ(reclaimable_pages(&f), 4);
    end_fixture(&f);
    end_fixture(&g);
}

static void k08_match_and_lock_in_one_step(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    insert(&f, text(ids, 8));
    rkv_cache_match_result match = match_in(&f, NULL, text(ids, 4), RKV_MATCH_LOCK);
    CHECK(match.lock != 0 && match.node != 0);
    CHECK_EQ(evict(&f, 100), 2);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    CHECK_EQ(evict(&f, 100), 2);
    /* nothing matched, nothing locked */
    match = match_in(&f, NULL, text(ids, 4), RKV_MATCH_LOCK);
    CHECK_EQ(match.lock, 0);
    end_fixture(&f);
}

/* What is inserted with a lock stays, also when nobody else wants it. */
static void k08_insert_and_lock_in_one_step(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[9], pages[4];
    count_up(ids, 9, 1);
    allocate(&f, 4, pages);
    rkv_tokens first = text(ids, 5), longer = text(ids, 9), none = text(ids, 1);
    rkv_cache_insert_args args = insert_args(&first, pages, 4);
    args.flags = RKV_INSERT_LOCK;
    rkv_cache_insert_result result, more, nothing;
    result.struct_size = more.struct_size = nothing.struct_size = sizeof result;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    CHECK(result.lock != 0 && result.claimed_page_count == 2);
    CHECK_EQ(evict(&f, 100), 0);
    /* all of it again, and more: each insert has a lock of its own */
    args.tokens = &longer;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &more));
    CHECK(more.lock != 0 && more.lock != result.lock && more.claimed_page_count == 2);
    CHECK_OK(rkv_cache_unlock(f.cache, result.lock));
    CHECK_EQ(evict(&f, 100), 0);
    /* no whole page, no lock */
    args.tokens = &none;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &nothing));
    CHECK(nothing.lock == 0 && nothing.node == 0);
    CHECK_EQ(cache_stats(&f).lock_count, 1);
    check_sane(&f);
    CHECK_OK(rkv_cache_unlock(f.cache, more.lock));
    CHECK_EQ(evict(&f, 100), 4);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(k08_lock_protects_the_path);
    RUN_BOTH(k08_a_lock_outlives_splits);
    RUN_BOTH(k08_stale_and_foreign_ids);
    RUN_BOTH(k08_match_and_lock_in_one_step);
    RUN_BOTH(k08_insert_and_lock_in_one_step);
    return check_result();
}
