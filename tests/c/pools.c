/* Pools beside those that groups draw from. */
#include "hybrid.h"

/* G08: a pool that no group draws from gets nothing by evictions, and nothing else goes for it. */
static void g08_a_pool_of_no_group(void) {
    const rkv_pool_config pools[2] = {{9, 0}, {5, 0}};
    rkv_page_table_config config;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE;
    config.pools = pools;
    config.pool_count = 2;
    fixture f = {NULL, NULL, PAGE};
    CHECK_OK(rkv_page_table_create(&config, &f.table));
    CHECK_OK(rkv_cache_create(f.table, NULL, &f.cache));
    uint32_t ids[16], pages[4];
    count_up(ids, 16, 1);
    insert(&f, text(ids, 16));
    take_pages(&f, 1, 4, pages);
    CHECK_STATUS(rkv_page_table_allocate_pool_pages(f.table, 1, 1, pages), RKV_STATUS_OUT_OF_PAGES);
    CHECK_EQ(pool_of(&f, 1).reclaimable_page_count, 0);
    rkv_evicted_page gone[4];
    size_t count = 77, freed = 77;
    CHECK_EQ(evict_pool(&f, 1, 4), 0);
    CHECK_OK(rkv_cache_evict_pool(f.cache, 1, 4, gone, sizeof gone[0], 4, &count, &freed));
    CHECK(count == 0 && freed == 0);
    CHECK_EQ(pool_of(&f, 0).cached_page_count, 4);
    CHECK_EQ(evict_pool(&f, 0, 4), 4);
    give_pages(&f, 1, pages, 4);
    end_fixture(&f);
}

int main(void) {
    RUN(g08_a_pool_of_no_group);
    return check_result();
}
