/* Worlds of sequences: very long ones, a million at once, many that are retained. */
#include "longest.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 1202, CHILDREN = 32, SUFFIX = 8, DECODED = 4096 };

static void append(const struct house *house, rkv_sequence_id sequence, const uint32_t *ids,
                   size_t count)
{
    rkv_tokens tokens = text(ids, count);
    TIME(rkv_sequence_append, house->cache, sequence, &tokens);
}

static rkv_sequence_info query(const struct house *house, rkv_sequence_id sequence)
{
    rkv_sequence_info state = {.struct_size = sizeof state};
    TIME(rkv_sequence_read_info, house->cache, sequence, &state);
    return state;
}

static void retain(const struct house *house, rkv_sequence_id sequence)
{
    bool retained = false;
    TIME(rkv_sequence_retain, house->cache, sequence, &retained);
    REQUIRE(retained);
}

/* Children of a retained parent: continued, forked, retained and dropped themselves. */
static void children(const struct house *house, rkv_sequence_id parent, const uint32_t *ids)
{
    rkv_tokens more = text(ids, SUFFIX);
    rkv_sequence_continue_args args = {.struct_size = sizeof args, .parent = parent,
        .tokens = &more};
    rkv_sequence_info state = {.struct_size = sizeof state};
    for (unsigned i = 0; i < 100; i++) {
        TIME(rkv_sequence_continue, house->cache, &args, &state);
        if (state.copy_count > 0) {
            TIME(rkv_sequence_confirm_copies, house->cache, state.sequence);
        }
        retain(house, state.sequence);
        TIME(rkv_sequence_drop, house->cache, state.sequence);
    }
    rkv_sequence_fork_child forked[CHILDREN];
    rkv_sequence_fork_args fork = {.struct_size = sizeof fork, .parent = parent,
        .child_count = CHILDREN};
    for (unsigned i = 0; i < 10; i++) {
        TIME(rkv_sequence_fork, house->cache, &fork, forked, sizeof(rkv_sequence_fork_child));
        for (unsigned j = 0; j < CHILDREN; j++) {
            TIME(rkv_sequence_release, house->cache, forked[j].sequence);
        }
    }
}

/* Looks at the row of a long sequence, as a step of an engine does. */
static void look_at_row(const struct house *house, const rkv_sequence_info *state)
{
    size_t count, page_count = (size_t)state->page_count;
    uint32_t *pages = allocate(page_count, sizeof *pages);
    int32_t *indices = allocate(page_count, sizeof *indices), indptr[2], last[1];
    uint64_t position = state->position_count - 1;
    int64_t slot;
    rkv_page_table_batch_row row = {state->slot, (uint32_t)state->position_count};
    rkv_page_table_batch_arrays arrays = {.struct_size = sizeof arrays, .indptr = indptr,
        .indices = indices,
                               .indices_capacity = page_count, .last_page_len = last};
    for (unsigned i = 0; i < 100; i++) {
        TIME(rkv_page_table_read_row, house->table, state->slot, 0, pages, page_count, &count);
        TIME(rkv_page_table_read_batch, house->table, &row, 1, sizeof row, &arrays, &count);
        TIME(rkv_page_table_read_slot_mapping, house->table, state->slot, &position, 1, &slot);
        TIME(rkv_page_table_row_capacity, house->table, state->slot, &count);
    }
    free(pages);
    free(indices);
}

/* A prompt that the caller computed, published in one call; and once more, when all is there. */
static void insert(const struct house *house, uint32_t *ids, uint32_t length, uint32_t *pages)
{
    size_t count = length / house->page_size;
    ids[0] = FRESH + 1;
    rkv_tokens tokens = text(ids, length);
    rkv_cache_insert_args args = {
        .struct_size = sizeof args, .tokens = &tokens, .pages = pages, .page_count = count};
    rkv_cache_insert_result result = {.struct_size = sizeof result};
    TIME(rkv_page_table_allocate_pages, house->table, count, pages);
    TIME(rkv_cache_insert, house->cache, &args, NULL, &result);
    REQUIRE(result.claimed_page_count == count);
    TIME(rkv_cache_insert, house->cache, &args, NULL, &result);
    REQUIRE(result.claimed_page_count == 0);
}

/*
 * One prompt of 131,072 positions: computed in one piece and token by token, retained, continued,
 * matched to its middle, evicted a little at a time and at once, and inserted in one call.
 */
void world_long(uint32_t page_size, uint32_t index)
{
    uint32_t length = sizes.positions, page_count = length / page_size;
    uint32_t *ids = allocate(length + DECODED, sizeof *ids);
    uint32_t *pages = allocate(page_count, sizeof *pages);
    size_t count;
    tokens_fill(SEED, 0, ids, length + DECODED);
    situation(index == RKV_INDEX_BLOCK_HASH ? "131,072 positions, block hash, page 16"
              : page_size == 1              ? "131,072 positions, page 1"
                                            : "131,072 positions, page 16");
    struct house house =
        house_open(page_size, 4 * page_count + DECODED + CHILDREN * 100, 64, index, 0);
    rkv_tokens prompt = text(ids, length);
    rkv_tokens half = text(ids, length / 2);
    rkv_tokens odd = text(ids, length / 2 - page_size * 100 + 1);
    /* Cold, given up, and cold again: the longest release has everything private. */
    rkv_sequence_info state = begin(&house, NULL, &prompt);
    TIME(rkv_sequence_release, house.cache, state.sequence);
    state = begin(&house, NULL, &prompt);
    publish(&house, &state);
    for (uint32_t i = 0; i < DECODED; i++) {
        append(&house, state.sequence, ids + length + i, 1);
        state = query(&house, state.sequence);
        publish(&house, &state);
    }
    look_at_row(&house, &state);
    append(&house, state.sequence, ids, 512);
    TIME(rkv_sequence_truncate, house.cache, state.sequence, state.position_count);
    rkv_sequence_id parent = state.sequence;
    retain(&house, parent);
    children(&house, parent, ids);
    house_looks(&house, 100);
    for (unsigned i = 0; i < 20; i++) {
        match(&house, &prompt, pages, page_count);
        TIME(rkv_cache_probe, house.cache, NULL, &prompt, NULL, &count);
        request(&house, NULL, &prompt);
    }
    rkv_node_id node = match(&house, &half, pages, page_count).node;    /* splits the node */
    rkv_lock_id lock;
    TIME(rkv_cache_lock, house.cache, node, &lock);
    TIME(rkv_node_read_pages, house.cache, node, pages, page_count, &count);
    TIME(rkv_cache_unlock, house.cache, lock);
    request(&house, NULL, &odd);
    TIME(rkv_sequence_drop, house.cache, parent);
    /* An append as long as the prompt, to a sequence that has only begun. */
    rkv_tokens few = text(ids, 1);
    state = begin(&house, NULL, &few);
    append(&house, state.sequence, ids, length);
    TIME(rkv_sequence_truncate, house.cache, state.sequence, 1);
    TIME(rkv_sequence_release, house.cache, state.sequence);
    while (index == RKV_INDEX_RADIX && page_count > 8192 / page_size) {
        evict(&house, 64 / (page_size == 1 ? 1 : 16));
        page_count -= 64 / (page_size == 1 ? 1 : 16);
    }
    ids[0] = FRESH;
    prompt = text(ids, length);
    request(&house, NULL, &prompt);
    situation_many(true);
    evict(&house, SIZE_MAX);
    situation_many(false);
    request(&house, NULL, &prompt);
    insert(&house, ids, length, pages);
    house_close(&house);
    free(ids);
    free(pages);
}

/* A million sequences at once, a page each; some are released, the others end with the cache. */
void world_slots(uint32_t page_size, uint32_t index)
{
    uint32_t count = sizes.slots, ids[512];
    rkv_sequence_id *sequences = allocate(count, sizeof *sequences);
    situation("10^6 sequences, page 16");
    struct house house = house_open(page_size, 2 * count, count, index, 0);
    tokens_fill(SEED + 1, 0, ids, page_size);
    for (uint32_t i = 0; i < count; i++) {
        ids[0] = i;
        rkv_tokens tokens = text(ids, page_size / 2);
        sequences[i] = begin(&house, NULL, &tokens).sequence;
    }
    for (uint32_t i = 0; i < count; i += 16) {
        append(&house, sequences[i], ids, page_size);
        rkv_sequence_info state = query(&house, sequences[i]);
        publish(&house, &state);
    }
    house_looks(&house, 100);
    for (uint32_t i = 0; i < count; i += 7) {
        TIME(rkv_sequence_release, house.cache, sequences[i]);
    }
    house_close(&house);
    free(sequences);
}

/* Many retained sequences, that give way one by one, to one long one, and all at once. */
void world_retained(uint32_t page_size, uint32_t index)
{
    uint32_t count = sizes.retained, ids[512];
    uint32_t long_tokens = count * page_size;
    uint32_t *long_ids = allocate(long_tokens, sizeof *long_ids);
    rkv_sequence_id *sequences = allocate(count, sizeof *sequences);
    size_t found;
    tokens_fill(SEED + 2, 0, ids, 2 * page_size);
    tokens_fill(SEED + 3, 0, long_ids, long_tokens);
    long_ids[0] = FRESH_MISS;
    situation("10^5 retained sequences, page 16");
    /* Half of the pages: room for one page each and for the long one, not for both. */
    struct house house = house_open(page_size, 4 * count, 1024, index, count);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < count + count / 10; i++) {
            ids[0] = round * 4 * count + i;
            rkv_tokens tokens = text(ids, page_size + page_size / 2);
            rkv_sequence_info state = begin(&house, NULL, &tokens);
            publish(&house, &state);
            retain(&house, state.sequence);
        }
        TIME(rkv_cache_read_retained, house.cache, sequences, count, &found);
        house_looks(&house, 20);
        if (round == 0) {
            for (uint32_t i = 0; i < count / 2; i++) {
                TIME(rkv_sequence_drop, house.cache, sequences[i]);
            }
            /* More than anybody asks for, to see how many give way at once. */
            rkv_tokens tokens = text(long_ids, long_tokens);
            situation_many(true);
            rkv_sequence_info state = begin(&house, NULL, &tokens);
            publish(&house, &state);
            retain(&house, state.sequence);
            situation_many(false);
            TIME(rkv_cache_drop_retained, house.cache, 1, &found);
        }
    }
    TIME(rkv_cache_drop_retained, house.cache, SIZE_MAX, &found);
    house_close(&house);
    free(long_ids);
    free(sequences);
}
