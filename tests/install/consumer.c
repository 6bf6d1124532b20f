/* A program outside the tree, as C and as C++: an installed library is found, linked and works. */
#include <radixkv.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    uint32_t ids[32];
    uint32_t pages[2];
    rkv_page_table_config config;
    rkv_page_table *table = NULL;
    rkv_cache *cache = NULL;
    rkv_tokens tokens;
    rkv_cache_insert_args args;
    rkv_cache_insert_result inserted;
    size_t token_count = 0;
    size_t position_count = 0;
    uint32_t i;

    if (rkv_abi_version() < RKV_ABI_VERSION) {
        fprintf(stderr, "the library is older than the header\n");
        return 1;
    }
    if (rkv_page_table_config_init(&config, sizeof config)) return 2;
    config.page_size = 16;
    config.page_count = 8;
    if (rkv_page_table_create(&config, &table)) return 3;
    if (rkv_cache_create(table, NULL, &cache)) return 4;
    if (rkv_page_table_allocate_pages(table, 2, pages)) return 5;

    for (i = 0; i < 32; i++) ids[i] = i;
    memset(&tokens, 0, sizeof tokens);
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids;
    tokens.count = 32;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.tokens = &tokens;
    args.pages = pages;
    args.page_count = 2;
    memset(&inserted, 0, sizeof inserted);
    inserted.struct_size = sizeof inserted;
    if (rkv_cache_insert(cache, &args, NULL, &inserted)) return 6;
    if (inserted.claimed_page_count != 2) return 7;
    if (rkv_cache_probe(cache, NULL, &tokens, &token_count, &position_count)) return 8;
    if (token_count != 32 || position_count != 32) return 9;

    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    printf("radixkv %s\n", rkv_version_string());
    return 0;
}
