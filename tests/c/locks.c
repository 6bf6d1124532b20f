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
    CHECK_OK(rkv_cache_lock(f.cache, middle));
    CHECK_OK(rkv_cache_lock(f.cache, middle));
    CHECK_OK(rkv_cache_lock(f.cache, leaf));
    CHECK_EQ(info_of(&f, leaf).lock_count, 1);
    CHECK_EQ(info_of(&f, middle).lock_count, 3);
    CHECK_EQ(info_of(&f, top).lock_count, 3);
    CHECK_EQ(info_of(&f, root).lock_count, 3);
    check_sane(&f);
    /* one unlock undoes one lock, and only of that very node */
    CHECK_OK(rkv_cache_unlock(f.cache, leaf));
    CHECK_STATUS(rkv_cache_unlock(f.cache, leaf), RKV_STATUS_NOT_LOCKED);
    CHECK_STATUS(rkv_cache_unlock(f.cache, top), RKV_STATUS_NOT_LOCKED);
    CHECK_STATUS(rkv_cache_unlock(f.cache, root), RKV_STATUS_NOT_LOCKED);
    CHECK_EQ(info_of(&f, top).lock_count, 2);
    CHECK_EQ(evict(&f, 100), 2);
    CHECK(is_stale(&f, leaf));
    CHECK_OK(rkv_cache_unlock(f.cache, middle));
    CHECK_OK(rkv_cache_unlock(f.cache, middle));
    CHECK_STATUS(rkv_cache_unlock(f.cache, middle), RKV_STATUS_NOT_LOCKED);
    CHECK_EQ(evict(&f, 100), 4);
    end_fixture(&f);
}

static void k08_stale_and_foreign_nodes(void) {
    fixture f = new_fixture(1, 16), g = new_fixture(1, 16);
    uint32_t ids[4];
    count_up(ids, 4, 1);
    rkv_node_id node = insert(&f, text(ids, 4)).node;
    CHECK(insert(&g, text(ids, 4)).node != node);
    const rkv_node_id never[] = {0, 1, UINT64_MAX, node + 1, node ^ (UINT64_C(1) << 40)};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        CHECK_STATUS(rkv_cache_lock(f.cache, never[i]), RKV_STATUS_STALE_NODE);
        CHECK_STATUS(rkv_cache_unlock(f.cache, never[i]), RKV_STATUS_STALE_NODE);
    }
    CHECK_STATUS(rkv_cache_lock(g.cache, node), RKV_STATUS_STALE_NODE);
    CHECK_STATUS(rkv_cache_unlock(g.cache, node), RKV_STATUS_STALE_NODE);
    CHECK_EQ(evict(&f, 4), 4);
    /* the place of the evicted node is taken again, under another id */
    CHECK(insert(&f, text(ids, 4)).node != node);
    CHECK_STATUS(rkv_cache_lock(f.cache, node), RKV_STATUS_STALE_NODE);
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
    CHECK(match.locked_node == match.node && match.node != 0);
    CHECK_EQ(evict(&f, 100), 2);
    CHECK_OK(rkv_cache_unlock(f.cache, match.locked_node));
    CHECK_EQ(evict(&f, 100), 2);
    /* nothing matched, nothing locked */
    match = match_in(&f, NULL, text(ids, 4), RKV_MATCH_LOCK);
    CHECK_EQ(match.locked_node, 0);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(k08_lock_protects_the_path);
    RUN_BOTH(k08_stale_and_foreign_nodes);
    RUN_BOTH(k08_match_and_lock_in_one_step);
    return check_result();
}
