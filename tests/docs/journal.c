/* What the fragment of docs/journal.md leaves out: the buffers, and what is done with a record. It
 * is run with buffers that have no room at first. */
#include <radixkv.h>
#include <stdlib.h>

static uint64_t page_count;

static void check(rkv_status status) {
    if (status != RKV_STATUS_OK) abort();
}

/* All is told: the consumer has nothing to do. */
static void sleep_milliseconds(unsigned count) {
    (void)count;
    exit(page_count == 6 ? 0 : 1);
}

static void forget_all(void) { page_count = 0; }

static void *room(void *memory, uint64_t count, size_t size) {
    void *grown = realloc(memory, (size_t)count * size);
    if (grown == NULL) abort();
    return grown;
}

static void grow(rkv_journal_buffers *buffers, uint64_t pages, uint64_t tokens, uint64_t items) {
    buffers->records = room(buffers->records, 8, sizeof *buffers->records);
    buffers->record_capacity = 8;
    buffers->pages = room(buffers->pages, pages, sizeof *buffers->pages);
    buffers->page_capacity = (size_t)pages;
    buffers->tokens = room(buffers->tokens, tokens, sizeof *buffers->tokens);
    buffers->token_capacity = (size_t)tokens;
    buffers->items = room(buffers->items, items, sizeof *buffers->items);
    buffers->item_capacity = (size_t)items;
}

static void apply(const rkv_journal_record *records, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) page_count += records[i].page_count;
}

static void follow(rkv_cache *cache, rkv_journal_buffers buffers) {
    uint32_t page = 0;
    uint64_t number = 0;
    rkv_cache_read_contents_result contents = {.struct_size = sizeof contents};
    rkv_cache_read_journal_result journal = {.struct_size = sizeof journal};
#include "journal-1.inc"
}

int main(void) {
    rkv_page_table_config table_config;
    rkv_cache_config config;
    rkv_page_table *table;
    rkv_cache *cache;
    check(rkv_page_table_config_init(&table_config, sizeof table_config));
    table_config.page_count = 65;
    check(rkv_page_table_create(&table_config, &table));
    check(rkv_cache_config_init(&config, sizeof config));
    config.journal_bytes = 1 << 16;
    check(rkv_cache_create(table, &config, &cache));
    uint32_t ids[100] = {0};
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = 100};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info state = {.struct_size = sizeof state};
    check(rkv_sequence_begin(cache, &args, &state));
    check(rkv_sequence_publish(cache, state.sequence, 100, NULL));
    rkv_journal_buffers buffers = {
        .struct_size = sizeof buffers,
        .record_size = sizeof *buffers.records,
        .item_size = sizeof *buffers.items,
    };
    follow(cache, buffers);
}
