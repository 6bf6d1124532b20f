/* Locks that go along with what is inserted: an engine with books of its own, whose requests grow
 * page by page. */
#include "hybrid.h"

/* A request that grows has one lock, which goes along with what it inserts. */
static void k08_an_insert_moves_a_lock(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[12], pages[6];
    count_up(ids, 12, 1);
    allocate(&f, 6, pages);
    rkv_cache_insert_result result = {.struct_size = sizeof result};
    rkv_tokens tokens = text(ids, 2);
    rkv_cache_insert_args args = insert_args(&tokens, pages, 6);
    args.flags = RKV_INSERT_LOCK;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    const rkv_lock_id lock = result.lock;
    for (size_t count = 4; count <= 12; count += 2) {
        tokens = text(ids, count);
        args.from_node = result.node;
        args.from_token_index = args.from_page_index * 2 + 2;
        args.from_page_index++;
        args.lock = lock;
        CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
        CHECK(result.lock == lock && result.claimed_page_count == 1);
        CHECK_EQ(cache_stats(&f).lock_count, 1);
        CHECK_EQ(evict(&f, 100), 0);
        check_sane(&f);
    }
    /* without a new page it stays where it is */
    args.from_node = result.node;
    args.from_token_index = 12;
    args.from_page_index = 6;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    CHECK(result.lock == lock && result.node == args.from_node);
    /* of one group nothing slides */
    CHECK_OK(rkv_cache_slide_lock(f.cache, lock, 1000));
    CHECK_EQ(evict(&f, 100), 0);
    /* another lock keeps its own prefix, and the node that it is on */
    rkv_cache_match_result match = match_in(&f, NULL, tokens, RKV_MATCH_LOCK);
    uint32_t more[16], longer[8];
    count_up(more, 16, 1);
    memcpy(longer, pages, sizeof pages);
    allocate(&f, 2, longer + 6);
    tokens = text(more, 16);
    args.pages = longer;
    args.page_count = 8;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    CHECK(result.lock == lock && result.claimed_page_count == 2);
    CHECK_OK(rkv_cache_unlock(f.cache, lock));
    CHECK(!is_stale(&f, match.node));
    CHECK_EQ(evict(&f, 100), 2);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    CHECK_EQ(evict(&f, 100), 6);
    CHECK_STATUS(rkv_cache_slide_lock(f.cache, lock, 0), RKV_STATUS_STALE_LOCK);
    end_fixture(&f);
}

/* A lock that goes along protects what came until it is told that the window has passed it. */
static void g06_a_lock_goes_along(void) {
    fixture f = new_hybrid(12, 12, 5);
    uint32_t ids[40];
    rkv_locked_page held[MOST];
    count_up(ids, 40, 1);
    const uint64_t checkpoints[2] = {20, 40};
    rows given = compute(&f, 10, 10, checkpoints);
    rkv_group_row lists[2] = {{WINDOW, 0, given.pages[WINDOW], 10, NULL},
                              {STATE, 0, given.pages[STATE], 10, NULL}};
    rkv_cache_insert_result result = {.struct_size = sizeof result};
    rkv_tokens tokens = text(ids, 4);
    rkv_cache_insert_args args = insert_args(&tokens, given.pages[SPINE], 10);
    args.groups = lists;
    args.group_count = 2;
    args.group_size = sizeof lists[0];
    args.flags = RKV_INSERT_LOCK;
    CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
    for (size_t count = 2; count <= 10; count++) {
        tokens = text(ids, count * PAGE);
        args.from_node = result.node;
        args.from_token_index = (count - 1) * PAGE;
        args.from_page_index = count - 1;
        args.lock = result.lock;
        CHECK_OK(rkv_cache_insert(f.cache, &args, NULL, &result));
        CHECK_EQ(result.lock, args.lock);
        CHECK_EQ(locked_pages(&f, result.lock, WINDOW, held), count);
    }
    CHECK_EQ(locked_pages(&f, result.lock, STATE, held), 2);
    CHECK_EQ(pool_of(&f, WINDOW).reclaimable_page_count, 0);
    /* position 20 attends to 12 and up, and goes on from the state after 20 */
    CHECK_OK(rkv_cache_slide_lock(f.cache, result.lock, 20));
    CHECK_EQ(locked_pages(&f, result.lock, WINDOW, held), 7);
    CHECK(held[0].page_index == 3 && held[0].page == given.pages[WINDOW][3]);
    CHECK_EQ(locked_pages(&f, result.lock, STATE, held), 2);
    CHECK_OK(rkv_cache_slide_lock(f.cache, result.lock, 12)); /* it does not come back */
    CHECK_EQ(locked_pages(&f, result.lock, WINDOW, held), 7);
    CHECK_OK(rkv_cache_slide_lock(f.cache, result.lock, 40));
    CHECK_EQ(locked_pages(&f, result.lock, WINDOW, held), 2);
    CHECK_EQ(locked_pages(&f, result.lock, STATE, held), 1);
    CHECK_EQ(held[0].page_index, 9);
    CHECK_EQ(evict_pool(&f, WINDOW, 100), 8);
    CHECK_EQ(evict_pool(&f, STATE, 100), 1);
    CHECK_EQ(evict_pool(&f, SPINE, 100), 0);
    CHECK_EQ(match_of(&f, tokens).position_count, 40);
    /* all that may go does, and nothing else */
    CHECK_OK(rkv_cache_slide_lock(f.cache, result.lock, UINT64_MAX));
    CHECK_EQ(locked_pages(&f, result.lock, STATE, held), 0);
    CHECK_EQ(locked_pages(&f, result.lock, WINDOW, held), 0);
    CHECK_EQ(evict_pool(&f, SPINE, 100), 0);
    CHECK_OK(rkv_cache_unlock(f.cache, result.lock));
    CHECK_EQ(pool_of(&f, SPINE).reclaimable_page_count, 10);
    end_hybrid(&f);
}

int main(void) {
    RUN_BOTH(k08_an_insert_moves_a_lock);
    RUN(g06_a_lock_goes_along);
    return check_result();
}
