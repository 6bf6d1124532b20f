/* What needs more memory than there is: refused, never an abort. The address space is limited here,
 * so that no test takes the machine with it. */
#define _XOPEN_SOURCE 700
#include <sys/resource.h>

#include "misuse.h"

/* A sanitizer's shadow needs more address space than any limit leaves. */
#if defined(__SANITIZE_ADDRESS__)
#define LIMITED 0
#else
#define LIMITED 1
#endif

static void limit_memory(void) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = (rlim_t)4 << 30;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

/* A table whose bookkeeping alone takes more than that, and tables beyond any bookkeeping. */
static void m04_out_of_memory(void) {
    const struct {
        uint32_t page_count, slot_count;
        rkv_status status;
        const char *word;
    } sizes[] = {
        {INT32_MAX, 1, RKV_STATUS_OUT_OF_MEMORY, "memory"},
        {INT32_MAX, 1000, RKV_STATUS_OUT_OF_MEMORY, "memory"},
        {UINT32_MAX, 1, RKV_STATUS_INVALID_ARGUMENT, "page_count"},
        {2, UINT32_MAX, RKV_STATUS_INVALID_ARGUMENT, "slot_count"},
    };
    for (size_t i = LIMITED ? 0 : 2; i < 4; i++) {
        rkv_page_table_config config;
        rkv_page_table *table = NULL;
        CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
        config.page_count = sizes[i].page_count;
        config.slot_count = sizes[i].slot_count;
        CHECK_STATUS(rkv_page_table_create(&config, &table), sizes[i].status);
        CHECK(message_names(sizes[i].word) && table == NULL);
        rkv_page_table_destroy(table);
    }
    /* the library works on */
    fixture f = new_fixture(2, 8);
    const uint32_t ids[4] = {1, 2, 3, 4};
    CHECK_EQ(serve(&f, text(ids, 4)), 0);
    CHECK_EQ(serve(&f, text(ids, 4)), 3);
    end_fixture(&f);
}

/* Images so long that their keys would fill the memory of any machine: answered, not stored. */
static void m01_absurd_images(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_token_item items[3] = {image(4, 1, UINT32_MAX), image(5, 2, UINT32_MAX),
                               image(6, 3, UINT32_MAX)};
    rkv_tokens tokens = with_items(c.ids, 8, items, 3);
    size_t positions = 0;
    CHECK_OK(rkv_tokens_position_count(&tokens, &positions));
    CHECK_EQ(positions, 5 + 3 * (uint64_t)UINT32_MAX);
    CHECK_EQ(probe(f, tokens), 4);
    CHECK_EQ(match_of(f, tokens).token_count, 4);
    rkv_sequence_info state = new_state();
    snapshot before = take(f);
    CHECK(try_begin(f, tokens, &state) != RKV_STATUS_OK);
    CHECK(rkv_sequence_append(f->cache, c.sequence, &tokens) != RKV_STATUS_OK);
    const uint32_t pages[4] = {1, 2, 3, 4};
    rkv_cache_insert_args args = insert_args(&tokens, pages, 4);
    rkv_cache_insert_result result;
    result.struct_size = sizeof result;
    CHECK_STATUS(rkv_cache_insert(f->cache, &args, NULL, &result), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(same(f, &before));
    close_caches(&c);
}

int main(void) {
    if (LIMITED) {
        limit_memory();
    }
    RUN(m04_out_of_memory);
    RUN(m01_absurd_images);
    return check_result();
}
