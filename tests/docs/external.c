/* What the fragments of docs/external.md leave out: the engine around them. */
#include <radixkv.h>

void check(rkv_status status);
void free_page(uint32_t page);
void create(uint32_t page_count);
void publish(rkv_cache *cache, rkv_cache_insert_args args, uint32_t *pages,
             uint32_t *published_pages);

void create(uint32_t page_count) {
    rkv_page_table_config config;
    rkv_page_table *table;
    rkv_cache *cache;
    check(rkv_page_table_config_init(&config, sizeof config));
#include "external-1.inc"
}

void publish(rkv_cache *cache, rkv_cache_insert_args args, uint32_t *pages,
             uint32_t *published_pages) {
    rkv_cache_insert_result result = {.struct_size = sizeof result};
#include "external-2.inc"
}
