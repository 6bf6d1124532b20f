/* A page table with its cache, and the calls that all worlds make on them. */
#include "longest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t house_journal_bytes;
uint32_t house_window;

struct house house_open(uint32_t page_size, uint32_t page_count, uint32_t slot_count,
                        uint32_t index, uint32_t retained)
{
    struct house house = {.page_size = page_size};
    rkv_page_table_config config;
    rkv_cache_config cache_config;
    CHECK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = page_size;
    config.page_count = page_count + 1;
    config.slot_count = slot_count;
    const rkv_group_config groups[] = {
        {.kind = RKV_GROUP_FULL}, {.kind = RKV_GROUP_WINDOW, .window = house_window}};
    if (house_window > 0) {
        config.groups = groups;
        config.group_count = 2;
        config.group_size = sizeof *groups;
    }
    TIME(rkv_page_table_create, &config, &house.table);
    CHECK(rkv_cache_config_init(&cache_config, sizeof cache_config));
    cache_config.index = index;
    cache_config.retained_sequence_limit = retained;
    cache_config.journal_bytes = house_journal_bytes;
    TIME(rkv_cache_create, house.table, &cache_config, &house.cache);
    reader_of_pages(house.table);
    return house;
}

void house_close(struct house *house)
{
    TIME_VOID(rkv_cache_destroy, house->cache);
    reader_stop();
    TIME_VOID(rkv_page_table_destroy, house->table);
}

void house_looks(const struct house *house, unsigned count)
{
    rkv_cache_stats stats = {.struct_size = sizeof stats};
    rkv_page_table_stats pages = {.struct_size = sizeof pages};
    for (unsigned i = 0; i < count; i++) {
        bool answer;
        size_t bytes;
        TIME(rkv_cache_read_stats, house->cache, &stats);
        TIME(rkv_page_table_read_stats, house->table, &pages);
        TIME(rkv_cache_contains_page, house->cache, 1 + i, &answer);
        TIME(rkv_page_table_can_reserve, house->table, RKV_NO_SLOT, 1 + i, &answer);
        if (i == 0) {
            TIME(rkv_cache_dump, house->cache, RKV_DUMP_JSON, NULL, 0, &bytes);
            char *text = allocate(bytes, 1);
            TIME(rkv_cache_dump, house->cache, RKV_DUMP_JSON, text, bytes, &bytes);
            free(text);
            TIME(rkv_cache_check, house->cache);
            TIME(rkv_page_table_check, house->table);
        }
    }
}

rkv_tokens text(const uint32_t *ids, size_t count)
{
    return (rkv_tokens){.struct_size = sizeof(rkv_tokens), .ids = ids, .count = count};
}

rkv_sequence_info begin(const struct house *house, const rkv_namespace *space,
                         const rkv_tokens *tokens)
{
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .space = space, .tokens = tokens};
    rkv_sequence_info state = {.struct_size = sizeof state};
    TIME(rkv_sequence_begin, house->cache, &args, &state);
    if (state.copy_count > 0) {
        rkv_page_copy copies[RKV_GROUP_LIMIT];
        size_t count;
        TIME(rkv_sequence_read_copies, house->cache, state.sequence, copies, sizeof *copies,
             RKV_GROUP_LIMIT, &count);
        TIME(rkv_sequence_confirm_copies, house->cache, state.sequence);
    }
    return state;
}

void publish(const struct house *house, const rkv_sequence_info *state)
{
    rkv_sequence_publish_result result = {.struct_size = sizeof result};
    TIME(rkv_sequence_publish, house->cache, state->sequence, state->position_count, &result);
}

void request(const struct house *house, const rkv_namespace *space, const rkv_tokens *tokens)
{
    rkv_sequence_info state = begin(house, space, tokens);
    publish(house, &state);
    TIME(rkv_sequence_release, house->cache, state.sequence);
}

rkv_cache_match_result match(const struct house *house, const rkv_tokens *tokens, uint32_t *pages,
                size_t capacity)
{
    rkv_cache_match_result found = {.struct_size = sizeof found};
    TIME(rkv_cache_match, house->cache, NULL, tokens, 0, pages, capacity, &found);
    return found;
}

void evict(const struct house *house, size_t page_count)
{
    size_t count;
    TIME(rkv_cache_evict, house->cache, page_count, NULL, 0, &count);
}

void on_node(const struct house *house, rkv_node_id node)
{
    rkv_node_info info = {.struct_size = sizeof info};
    uint32_t pages[256];
    rkv_lock_id lock;
    size_t count;
    TIME(rkv_cache_lock, house->cache, node, &lock);
    TIME(rkv_node_read_info, house->cache, node, &info);
    if (info.page_count <= 256) {
        TIME(rkv_node_read_pages, house->cache, node, pages, 256, &count);
    }
    TIME(rkv_cache_unlock, house->cache, lock);
}

void evict_much(const struct house *house, size_t page_count)
{
    situation_many(true);
    evict(house, page_count);
    situation_many(false);
}
