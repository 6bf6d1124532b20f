/* What the fragments of docs/external.md leave out: the engine around them. Rows of one's own are
 * run, in a table that has no room for two of them. */
#include <radixkv.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE_SIZE = 16, PAGES = 16 };

static rkv_page_table *table;
static rkv_cache *cache;

void create(uint32_t page_count);
void publish(rkv_cache_insert_args args, uint32_t *pages, uint32_t *published_pages);

static void check(rkv_status status) {
    char text[256];
    if (status == RKV_STATUS_OK) return;
    (void)rkv_last_error_message(text, sizeof text);
    printf("%s: %s\n", rkv_status_name((int32_t)status), text);
    exit(1);
}

static void free_page(uint32_t page) { (void)page; }

void create(uint32_t page_count) {
    rkv_page_table_config config;
    check(rkv_page_table_config_init(&config, sizeof config));
#include "external-1.inc"
}

void publish(rkv_cache_insert_args args, uint32_t *pages, uint32_t *published_pages) {
    rkv_cache_insert_result result = {.struct_size = sizeof result};
#include "external-2.inc"
}

static uint64_t computed_count;

static void compute(const uint32_t *pages, uint64_t from, uint64_t end) {
    (void)pages;
    computed_count += end - from;
}

typedef struct request {
    uint32_t slot;
    rkv_cache_insert_result result;
} request;

static request begin(rkv_tokens tokens, size_t count) {
    const size_t capacity = PAGES, page_size = PAGE_SIZE;
    rkv_cache_match_result match = {.struct_size = sizeof match};
    rkv_cache_insert_result result = {.struct_size = sizeof result};
    uint32_t slot, pages[PAGES];
    size_t page_count;
#include "external-3.inc"
    return (request){slot, result};
}

static void end(request ended) {
    const uint32_t slot = ended.slot;
    const rkv_cache_insert_result result = ended.result;
#include "external-4.inc"
}

int main(void) {
    rkv_page_table_config config;
    uint32_t ids[80], slot;
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids};
    for (uint32_t i = 0; i < 80; i++) ids[i] = i;
    check(rkv_page_table_config_init(&config, sizeof config));
    config.page_count = PAGES;
    check(rkv_page_table_create(&config, &table));
    check(rkv_cache_create(table, NULL, &cache));
    check(rkv_page_table_allocate_slot(table, &slot));
    /* Nobody is given what a row has. */
    request first = begin(tokens, 80);
    if (rkv_page_table_reserve(table, slot, 15 * PAGE_SIZE) != RKV_STATUS_OUT_OF_PAGES) return 2;
    request second = begin(tokens, 80);
    if (computed_count != 80 + 16) return 3; /* with the page of the last token */
    end(first);
    if (rkv_page_table_reserve(table, slot, 11 * PAGE_SIZE) != RKV_STATUS_OUT_OF_PAGES) return 4;
    check(rkv_page_table_check(table));
    end(second);
    check(rkv_page_table_reserve(table, slot, 15 * PAGE_SIZE));
    check(rkv_page_table_check(table));
    check(rkv_page_table_free_slot(table, slot));
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    return 0;
}
