/* What the fragments of docs/tiers.md leave out: the engine around the loop. It is run: what one
 * process left in the directory is found again, and by no other model. */
#define _XOPEN_SOURCE 700
#include <radixkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 65, COUNT = 100, PAGE = 4096 };

static rkv_page_table *table;
static rkv_cache *cache;
static uint8_t *kv;
static uint8_t model;
static uint64_t reused;
static bool goes;

static bool is_refused;

static void check(rkv_status status) {
    char text[512];
    if (status == RKV_STATUS_OK) return;
    (void)rkv_last_error_message(text, sizeof text);
    is_refused = status == RKV_STATUS_STORAGE && strstr(text, "fingerprint") != NULL;
    if (is_refused) return;
    printf("%s: %s\n", rkv_status_name((int32_t)status), text);
    exit(1);
}

/* Computes the rest, publishes it and ends. */
static void goes_on(rkv_sequence_id sequence, uint64_t computed) {
    rkv_sequence_info state = {.struct_size = sizeof state};
    uint32_t row[PAGES];
    size_t count;
    check(rkv_sequence_read_info(cache, sequence, &state));
    check(rkv_page_table_read_row(table, state.slot, 0, row, PAGES, &count));
    for (size_t i = 0; i < computed / 16; i++) {
        if (kv[(size_t)row[i] * PAGE] != model) exit(2);
    }
    for (size_t i = computed / 16; i < count; i++) {
        memset(kv + (size_t)row[i] * PAGE, model, PAGE);
    }
    check(rkv_sequence_publish(cache, sequence, COUNT, NULL));
    check(rkv_sequence_release(cache, sequence));
    reused = computed;
    goes = true;
}

static void attach(const char *directory, const uint8_t *digest) {
    const uint64_t page_bytes = PAGE, host_bytes = 64 * PAGE, disk_bytes = 64 * PAGE;
#include "tiers-1.inc"
}

void step(void);
void admit(const rkv_sequence_begin_args *prompt);

#include "tiers-2.inc"

static void steps(void) {
    const struct timespec millisecond = {0, 1000000};
    step();
    nanosleep(&millisecond, NULL);
}

/* A process in the small, on what those before it left: what it reuses. */
static uint64_t run(const char *directory, uint8_t who) {
    rkv_cache_config config;
    uint8_t digest[32] = {who};
    uint32_t ids[COUNT] = {0};
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = COUNT};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_tier_stats stats = {.struct_size = sizeof stats};
    model = who;
    is_refused = goes = false;
    reused = 0;
    memset(kv, 0, PAGES * PAGE);
    check(rkv_cache_config_init(&config, sizeof config));
    config.journal_bytes = 1 << 16;
    check(rkv_cache_create(table, &config, &cache));
    attach(directory, digest);
    if (!is_refused) {
        admit(&args);
        while (!goes) steps();
        do {
            steps();
            check(rkv_cache_read_tier_stats(cache, &stats));
        } while (stats.host.page_count < COUNT / 16);
        check(rkv_cache_flush_tiers(cache, 60000));
        check(rkv_cache_detach_tiers(cache, 60000));
    }
    rkv_cache_destroy(cache);
    return reused;
}

int main(void) {
    const char *files[] = {"format", "lock", "records.redb", "data"};
    char directory[] = "/tmp/radixkv-docs-XXXXXX", path[64];
    rkv_page_table_config config;
    if (mkdtemp(directory) == NULL) return 3;
    kv = malloc(PAGES * PAGE);
    check(rkv_page_table_config_init(&config, sizeof config));
    config.page_count = PAGES;
    check(rkv_page_table_create(&config, &table));
    if (run(directory, 'A') != 0 || is_refused) return 4;
    if (run(directory, 'B') != 0 || !is_refused) return 5;
    if (run(directory, 'A') != COUNT / 16 * 16) return 6;
    rkv_page_table_destroy(table);
    free(kv);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, files[i]);
        (void)unlink(path);
    }
    return rmdir(directory) == 0 ? 0 : 7;
}
