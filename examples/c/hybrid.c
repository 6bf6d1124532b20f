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

enum { FULL, WINDOW, STATE, GROUPS, LONGEST = 256 };

static rkv_page_table *table;
static rkv_cache *cache;
/* The memory of the states, by page. K and V of the other groups are left to the imagination. */
static uint64_t states[8];

static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

/* Carries out what a sequence waits for: states, since the others are shared as whole pages. */
static void copy_states(rkv_sequence_id sequence) {
    rkv_page_copy copies[GROUPS];
    size_t count;
    must(rkv_sequence_read_copies(cache, sequence, copies, GROUPS, sizeof copies[0], &count));
    for (size_t i = 0; i < count; i++)
        states[copies[i].target_page] = states[copies[i].source_page];
    must(rkv_sequence_confirm_copies(cache, sequence));
}

/* A system prompt of 100 tokens, then a question of one's own. */
static void serve(const char *name, uint32_t question, uint32_t length) {
    uint32_t ids[LONGEST], state, count = 100 + length;
    for (uint32_t i = 0; i < count; i++) ids[i] = i < 100 ? 1 + i : question + i - 100;
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = count};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info info = {.struct_size = sizeof info};
    rkv_sequence_publish_result published = {.struct_size = sizeof published};
    must(rkv_sequence_begin(cache, &args, &info));
    if (info.copy_count > 0) copy_states(info.sequence);

    size_t row_length, copy_count, saved = 0;
    must(rkv_sequence_read_group_row(cache, info.sequence, STATE, 0, &state, 1, &row_length));
    if (info.cached_position_count == 0) states[state] = 0;
    for (uint64_t at = info.cached_position_count; at < count;) {
        /* Chunks end where begin says: there the states are saved. */
        uint64_t end = count;
        for (int i = 1; i >= 0; i--)
            if (info.checkpoint_at[i] > at) end = info.checkpoint_at[i];
        for (; at < end; at++) states[state] = (states[state] * 31 + ids[at]) % 1000003;
        must(rkv_sequence_publish(cache, info.sequence, at, &published));
        if (at == info.checkpoint_at[0] || at == info.checkpoint_at[1]) {
            must(rkv_sequence_checkpoint(cache, info.sequence, &copy_count));
            if (copy_count > 0) copy_states(info.sequence);
            saved += copy_count;
        }
    }
    printf("%s: %u tokens, %u known, %u reused; %zu states saved; state %u\n", name, count,
           (unsigned)info.known_position_count, (unsigned)info.cached_position_count, saved,
           (unsigned)states[state]);
    must(rkv_sequence_release(cache, info.sequence));
}

int main(void) {
    const rkv_group_config groups[GROUPS] = {{RKV_GROUP_FULL, FULL, 0, 0, 0, 0},
                                             {RKV_GROUP_WINDOW, WINDOW, 64, 0, 0, 0},
                                             {RKV_GROUP_STATE, STATE, 0, 0, 0, 0}};
    const rkv_pool_config pools[GROUPS] = {{65, 0}, {33, 0}, {8, 0}};
    rkv_page_table_config config;
    must(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = 16;
    config.groups = groups;
    config.group_count = GROUPS;
    config.pools = pools;
    config.pool_count = GROUPS;
    must(rkv_page_table_create(&config, &table));
    must(rkv_cache_create(table, NULL, &cache));
    serve("A", 1000, 30);
    serve("B", 2000, 45);
    serve("C", 3000, 60);
    serve("A, next turn", 1000, 75);
    serve("B again", 2000, 45);
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    return 0;
}
