/* Memory for indexes that is reserved beforehand: caches use it and give it back, and a reserve
 * that is too small, or that has no huge pages, breaks nothing. */
#include "check.h"

enum { PAGES = 20000, BRANCHES = 3000, MIB = 1 << 20 };

static rkv_index_memory_stats stats(void)
{
    rkv_index_memory_stats stats = {.struct_size = sizeof stats};
    CHECK_OK(rkv_read_index_memory_stats(&stats));
    CHECK(stats.used_bytes <= stats.reserved_bytes);
    CHECK(stats.huge_page_bytes <= stats.reserved_bytes);
    return stats;
}

/* A cache with many prompts, each of which is found again. */
static void many_prompts(uint32_t index, uint64_t least_used)
{
    rkv_page_table_config config;
    rkv_cache_config cache_config;
    rkv_page_table *table = NULL;
    rkv_cache *cache = NULL;
    uint64_t before = stats().used_bytes;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = 4;
    config.page_count = PAGES;
    CHECK_OK(rkv_page_table_create(&config, &table));
    CHECK_OK(rkv_cache_config_init(&cache_config, sizeof cache_config));
    cache_config.index = index;
    CHECK_OK(rkv_cache_create(table, &cache_config, &cache));
    for (uint32_t at = 0; at < 2 * BRANCHES; at++) {
        uint32_t ids[24];
        size_t positions = 0, count = 0;
        for (uint32_t i = 0; i < 24; i++) {
            ids[i] = i < 8 ? i : at * 100 + i;
        }
        rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = 24};
        rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
        rkv_sequence_info info = {.struct_size = sizeof info};
        rkv_sequence_publish_result published = {.struct_size = sizeof published};
        CHECK_OK(rkv_sequence_begin(cache, &args, &info));
        CHECK_OK(rkv_sequence_publish(cache, info.sequence, 24, &published));
        CHECK_OK(rkv_sequence_release(cache, info.sequence));
        CHECK_OK(rkv_cache_probe(cache, NULL, &tokens, &positions, &count));
        CHECK_EQ(positions, 24);
    }
    CHECK_OK(rkv_cache_check(cache));
    CHECK(stats().used_bytes >= before + least_used);
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    CHECK_EQ(stats().used_bytes, before);
}

static void a_reserve_is_used_and_given_back(void)
{
    CHECK_EQ(stats().reserved_bytes, 0);
    /* Without one, nothing of it is used. */
    many_prompts(RKV_INDEX_RADIX, 0);
    CHECK_EQ(stats().used_bytes, 0);

    CHECK_STATUS(rkv_reserve_index_memory(MIB, 3), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("huge_pages"));
    CHECK_STATUS(rkv_reserve_index_memory(0, RKV_HUGE_PAGES_TRY), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("byte_count"));
    CHECK_STATUS(rkv_reserve_index_memory(UINT64_MAX, RKV_HUGE_PAGES_TRY),
                 RKV_STATUS_OUT_OF_MEMORY);
    CHECK_EQ(stats().reserved_bytes, 0);

    /* Either there are huge pages for all of it, or it says that there are not. */
    rkv_status required = rkv_reserve_index_memory(3 * MIB, RKV_HUGE_PAGES_REQUIRE);
    if (required == RKV_STATUS_OK) {
        CHECK_EQ(stats().huge_page_bytes, 4 * MIB);
    } else {
        CHECK_EQ(required, RKV_STATUS_UNSUPPORTED);
        CHECK(message_names("huge pages"));
        CHECK_EQ(stats().reserved_bytes, 0);
        CHECK_OK(rkv_reserve_index_memory(3 * MIB, RKV_HUGE_PAGES_TRY));
    }
    CHECK_EQ(stats().reserved_bytes, 4 * MIB);
    CHECK_STATUS(rkv_reserve_index_memory(MIB, RKV_HUGE_PAGES_OFF), RKV_STATUS_INVALID_STATE);

    /* Some of it, and more than there is. */
    many_prompts(RKV_INDEX_RADIX, MIB);
    many_prompts(RKV_INDEX_BLOCK_HASH, MIB);
}

int main(void)
{
    RUN(a_reserve_is_used_and_given_back);
    return check_result();
}
