/* The calls of hot_path.py from C, over the same library: lines of "name nanoseconds". */
#include <radixkv.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKENS 1104
#define BATCH 256
#define REPEATS 100

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(rkv_status status)
{
    if (status != RKV_STATUS_OK) {
        fprintf(stderr, "%s\n", rkv_status_name(status));
        exit(1);
    }
}

/* The least of several runs, for each call. */
#define BEST(name, count, call)                                   \
    do {                                                          \
        double best = 1e300;                                      \
        for (int run = 0; run < REPEATS; run++) {                 \
            double start = now();                                 \
            for (int i = 0; i < (count); i++) {                   \
                call;                                             \
            }                                                     \
            double each = (now() - start) / (count);              \
            best = each < best ? each : best;                     \
        }                                                         \
        printf("%s %.1f\n", name, best);                          \
    } while (0)

int main(void)
{
    rkv_page_table_config pages;
    must(rkv_page_table_config_init(&pages, sizeof pages));
    pages.page_count = 70000;
    pages.slot_count = 512;
    rkv_page_table *table;
    must(rkv_page_table_create(&pages, &table));
    rkv_cache *cache;
    must(rkv_cache_create(table, NULL, &cache));

    static uint32_t ids[TOKENS], row[TOKENS];
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = i + 1;
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = TOKENS};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info info = {.struct_size = sizeof info};
    rkv_sequence_publish_result done = {.struct_size = sizeof done};
    must(rkv_sequence_begin(cache, &args, &info));
    must(rkv_sequence_publish(cache, info.sequence, TOKENS, &done));
    must(rkv_sequence_release(cache, info.sequence));

    rkv_cache_match_result found = {.struct_size = sizeof found};
    size_t count, positions;
    BEST("match", 500, must(rkv_cache_match(cache, NULL, &tokens, 0, NULL, 0, &found)));
    BEST("match_pages", 500, must(rkv_cache_match(cache, NULL, &tokens, 0, row, TOKENS, &found)));
    BEST("match_unlock", 500,
         must(rkv_cache_match(cache, NULL, &tokens, RKV_MATCH_LOCK, row, TOKENS, &found));
         must(rkv_cache_unlock(cache, found.lock)));
    BEST("probe", 500, must(rkv_cache_probe(cache, NULL, &tokens, &count, &positions)));

    static uint32_t prompt[64], decoded = 5;
    static rkv_sequence_append_item items[BATCH];
    static rkv_sequence_publish_item computed[BATCH];
    static rkv_status statuses[BATCH];
    tokens.ids = prompt;
    tokens.count = 64;
    for (uint32_t i = 0; i < BATCH; i++) {
        for (uint32_t j = 0; j < 64; j++)
            prompt[j] = 100000 * (i + 1) + j;
        must(rkv_sequence_begin(cache, &args, &info));
        items[i] = (rkv_sequence_append_item){.sequence = info.sequence, .ids = &decoded,
                                              .id_count = 1};
        computed[i] = (rkv_sequence_publish_item){.sequence = info.sequence,
                                                  .computed_position_count = 64};
    }
    BEST("append_many_256", 10,
         must(rkv_sequence_append_many(cache, items, BATCH, sizeof items[0], statuses)));
    BEST("publish_many_256", 10,
         must(rkv_sequence_publish_many(cache, computed, BATCH, sizeof computed[0], NULL, 0,
                                        statuses)));
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    return 0;
}
