/*
 * A chat with a hybrid model, in C: full attention, a sliding window and a recurrent state, each
 * with pages of its own, over one prefix cache. The same loop stands in examples/cpp,
 * examples/hybrid.rs and bindings/go/examples, and each prints the same text.
 *
 *     cc -Iinclude examples/c/hybrid.c -Ltarget/release -lradixkv -o hybrid
 *     LD_LIBRARY_PATH=target/release ./hybrid
 */
#include <radixkv.h>

#include <stdio.h>
#include <stdlib.h>

enum { FULL, WINDOW, STATE, GROUPS };

/* The memory of the states, by page. K and V of the other groups are left to the imagination. */
static uint32_t states[8];
static rkv_cache *cache;

static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

/* A system prompt of 100 tokens, then a question of one's own. */
static void serve(const char *name, uint32_t question, uint32_t length) {
    uint32_t ids[256] = {0}, page;
    for (uint32_t i = 100; i < length; i++) ids[i] = question + i;
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = length};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info info = {.struct_size = sizeof info};
    must(rkv_sequence_begin(cache, &args, &info));

    rkv_page_copy open[GROUPS];
    size_t count;
    must(rkv_sequence_read_group_row(cache, info.sequence, STATE, 0, &page, 1, &count));
    if (info.cached_position_count == 0) states[page] = 1;
    for (uint64_t end, at = info.cached_position_count; at < length;) {
        /* What it waits for: states, since the others are shared as whole pages. */
        must(rkv_sequence_read_copies(cache, info.sequence, open, sizeof *open, GROUPS, &count));
        for (size_t i = 0; i < count; i++)
            states[open[i].target_page] = states[open[i].source_page];
        if (count > 0) must(rkv_sequence_confirm_copies(cache, info.sequence));

        /* Chunks end where begin says: there the states are saved. */
        const uint64_t *save = info.checkpoint_at;
        end = save[0] > at ? save[0] : save[1] > at ? save[1] : length;
        for (; at < end; at++) states[page] = (states[page] * 31 + ids[at]) % 1000003;
        must(rkv_sequence_publish(cache, info.sequence, at, NULL));
        if (at < length) must(rkv_sequence_checkpoint(cache, info.sequence, &count));
    }
    printf("%s: %u tokens, %d known, %d reused; state %u\n", name, length,
           (int)info.known_position_count, (int)info.cached_position_count, states[page]);
    must(rkv_sequence_release(cache, info.sequence));
}

int main(void) {
    const rkv_group_config groups[GROUPS] = {{RKV_GROUP_FULL, FULL, 0, 0, 0, 0},
                                             {RKV_GROUP_WINDOW, WINDOW, 64, 0, 0, 0},
                                             {RKV_GROUP_STATE, STATE, 0, 0, 0, 0}};
    rkv_page_table_config config;
    rkv_page_table *table;
    must(rkv_page_table_config_init(&config, sizeof config));
    config.groups = groups;
    config.group_count = GROUPS;
    config.group_size = sizeof groups[0];
    config.pools = (const rkv_pool_config[GROUPS]){{65, 0}, {33, 0}, {8, 0}};
    config.pool_count = GROUPS;
    config.pool_size = sizeof(rkv_pool_config);
    must(rkv_page_table_create(&config, &table));
    must(rkv_cache_create(table, NULL, &cache));
    serve("A", 1000, 130);
    serve("B", 2000, 145);
    serve("C", 3000, 160);
    serve("A, next turn", 1000, 175);
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    return 0;
}
