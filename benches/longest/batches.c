/*
 * Worlds of batches: 256 sequences that begin, grow, are published and end in one call each, and as
 * many lookups; a prompt that gets its pages chunk by chunk; and many nodes cleared in one call.
 */
#include "longest.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 1606, ITEMS = 256, STEPS = 32 };

static rkv_tokens tokens[ITEMS];
static rkv_sequence_info states[ITEMS];
static rkv_sequence_id sequences[ITEMS];
static rkv_status statuses[ITEMS];

static void all_done(const char *function)
{
    for (unsigned i = 0; i < ITEMS; i++) {
        check_status(statuses[i], function, __FILE__, __LINE__);
    }
}

static void begin_all(const struct house *house)
{
    rkv_sequence_begin_args args[ITEMS];
    for (unsigned i = 0; i < ITEMS; i++) {
        args[i] = (rkv_sequence_begin_args){.struct_size = sizeof *args, .tokens = &tokens[i]};
    }
    TIME(rkv_sequence_begin_many, house->cache, args, ITEMS, sizeof *args, states, sizeof *states,
         statuses);
    all_done("rkv_sequence_begin_many");
    for (unsigned i = 0; i < ITEMS; i++) {
        sequences[i] = states[i].sequence;
        if (states[i].copy_count > 0) {
            TIME(rkv_sequence_confirm_copies, house->cache, sequences[i]);
        }
    }
}

static void publish_all(const struct house *house)
{
    rkv_sequence_publish_item items[ITEMS];
    static rkv_sequence_publish_result results[ITEMS];
    for (unsigned i = 0; i < ITEMS; i++) {
        items[i] = (rkv_sequence_publish_item){sequences[i], states[i].position_count};
    }
    TIME(rkv_sequence_publish_many, house->cache, items, ITEMS, sizeof *items, results,
         sizeof *results, statuses);
    all_done("rkv_sequence_publish_many");
}

/* So many tokens for each. */
static void append_all(const struct house *house, const uint32_t *ids, size_t count)
{
    rkv_sequence_append_item items[ITEMS];
    for (unsigned i = 0; i < ITEMS; i++) {
        items[i] = (rkv_sequence_append_item){
            .sequence = sequences[i], .ids = ids + i, .id_count = count};
        states[i].position_count += count;
    }
    TIME(rkv_sequence_append_many, house->cache, items, ITEMS, sizeof *items, statuses);
    all_done("rkv_sequence_append_many");
}

/* What an engine's steps do with 256 sequences at once. */
static void live(const struct house *house, const uint32_t *ids)
{
    begin_all(house);
    publish_all(house);
    for (unsigned step = 0; step < STEPS; step++) {
        append_all(house, ids + (size_t)step * ITEMS, 1);
        publish_all(house);
    }
    append_all(house, ids, 256);
    publish_all(house);
    TIME(rkv_sequence_release_many, house->cache, sequences, ITEMS, statuses);
    all_done("rkv_sequence_release_many");
}

static void look_up(const struct house *house, size_t page_capacity)
{
    rkv_cache_match_item matched[ITEMS];
    rkv_cache_probe_item probed[ITEMS];
    static rkv_cache_match_result matches[ITEMS];
    static rkv_cache_probe_result lengths[ITEMS];
    /* All write to the same place: nobody reads it. */
    uint32_t *pages = allocate(page_capacity, sizeof *pages);
    for (unsigned i = 0; i < ITEMS; i++) {
        matched[i] = (rkv_cache_match_item){
            .tokens = &tokens[i], .pages = pages, .page_capacity = page_capacity};
        probed[i] = (rkv_cache_probe_item){.tokens = &tokens[i]};
    }
    for (unsigned i = 0; i < 3; i++) {
        TIME(rkv_cache_match_many, house->cache, matched, ITEMS, sizeof *matched, matches,
             sizeof *matches, statuses);
        all_done("rkv_cache_match_many");
        TIME(rkv_cache_probe_many, house->cache, probed, ITEMS, sizeof *probed, lengths,
             sizeof *lengths, statuses);
        all_done("rkv_cache_probe_many");
        REQUIRE(matches[ITEMS - 1].position_count == tokens[ITEMS - 1].count &&
                lengths[ITEMS - 1].position_count == tokens[ITEMS - 1].count);
    }
    free(pages);
}

void world_batches(uint32_t page_size, uint32_t index)
{
    uint32_t length = sizes.positions, prompt = length / 32, shared = prompt / 2;
    uint32_t *ids = allocate((size_t)ITEMS * prompt, sizeof *ids);
    uint32_t *long_ids = allocate(length, sizeof *long_ids);
    situation(index == RKV_INDEX_BLOCK_HASH ? "256 prompts of 4,096, block hash, page 16"
              : page_size == 1              ? "256 prompts of 4,096, page 1"
                                            : "256 prompts of 4,096, page 16");
    struct house house = house_open(
        page_size, (ITEMS * (2 * prompt + 2048) + 2 * length) / page_size, 1024, index, 0);
    for (uint32_t i = 0; i < ITEMS; i++) {
        uint32_t *own = ids + (size_t)i * prompt;
        tokens_fill(SEED, i % 16, own, shared);
        tokens_fill(SEED + 1, i, own + shared, prompt - shared);
        tokens[i] = text(own, prompt);
    }
    /* Cold, and warm. */
    live(&house, ids);
    live(&house, ids + ITEMS);
    look_up(&house, prompt / page_size);
    situation(index == RKV_INDEX_BLOCK_HASH ? "256 times a prompt of 131,072, block hash, page 16"
              : page_size == 1              ? "256 times a prompt of 131,072, page 1"
                                            : "256 times a prompt of 131,072, page 16");
    tokens_fill(SEED + 2, 0, long_ids, length);
    rkv_tokens long_prompt = text(long_ids, length);
    request(&house, NULL, &long_prompt);
    for (unsigned i = 0; i < ITEMS; i++) {
        tokens[i] = long_prompt;
    }
    live(&house, ids);
    look_up(&house, length / page_size);
    house_close(&house);
    free(ids);
    free(long_ids);
}

/* A prompt of 131,072 positions, whose pages come chunk by chunk, and once all at once. */
static void chunked(const struct house *house, const uint32_t *ids, uint64_t chunk)
{
    rkv_tokens prompt = text(ids, sizes.positions);
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &prompt,
                                    .allocate_position_count = sizes.positions / 512};
    rkv_sequence_info state = {.struct_size = sizeof state};
    TIME(rkv_sequence_begin, house->cache, &args, &state);
    for (uint64_t end = args.allocate_position_count; end < state.position_count;) {
        end = end + chunk < state.position_count ? end + chunk : state.position_count;
        TIME(rkv_sequence_allocate, house->cache, state.sequence, end);
        rkv_sequence_publish_result result = {.struct_size = sizeof result};
        TIME(rkv_sequence_publish, house->cache, state.sequence, end, &result);
    }
    TIME(rkv_sequence_release, house->cache, state.sequence);
}

void world_chunks(uint32_t page_size, uint32_t index)
{
    uint32_t length = sizes.positions, chunk = length / 16, filler = 256;
    uint32_t *ids = allocate(length, sizeof *ids);
    situation(page_size == 1 ? "131,072 positions in chunks, page 1"
                             : "131,072 positions in chunks, page 16");
    struct house house = house_open(page_size, 2 * length / page_size, 64, index, 0);
    tokens_fill(SEED + 3, 0, ids, length);
    for (uint32_t i = 0; i < 4; i++) {
        ids[0] = FRESH + i;
        chunked(&house, ids, i % 2 == 0 ? chunk : length);
    }
    /* Full of short prompts: a chunk takes the pages of many nodes. */
    for (uint32_t i = 0; i < 2 * length / filler; i++) {
        ids[0] = FRESH_MISS + i;
        rkv_tokens prompt = text(ids, filler);
        request(&house, NULL, &prompt);
    }
    for (uint32_t i = 4; i < 6; i++) {
        ids[0] = FRESH + i;
        chunked(&house, ids, i % 2 == 0 ? chunk : length);
    }
    house_close(&house);
    free(ids);
}

/* One namespace of many nodes, cleared while some of it is in use. */
void world_clear(uint32_t page_size, uint32_t index)
{
    uint32_t count = sizes.cleared, fan = 100, ids[64] = {0};
    rkv_namespace space = {.struct_size = sizeof space, .flags = RKV_NAMESPACE_LORA, .lora_id = 3};
    rkv_cache_clear_args args = {
        .struct_size = sizeof args, .flags = RKV_CLEAR_NAMESPACE, .space = &space};
    rkv_cache_clear_result result = {.struct_size = sizeof result};
    rkv_tokens prompt = text(ids, 2 * page_size);
    situation(index == RKV_INDEX_BLOCK_HASH ? "10^5 nodes cleared, block hash, page 16"
                                            : "10^5 nodes cleared, page 16");
    struct house house = house_open(page_size, 2 * count, 1024, index, 100);
    rkv_sequence_id kept[100];
    for (unsigned round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < count; i++) {
            tokens_fill(SEED + 4, i / fan, ids, page_size);
            tokens_fill(SEED + 5, i, ids + page_size, page_size);
            request(&house, &space, &prompt);
        }
        /* Half of those are retained, the others run on. */
        for (unsigned i = 0; i < 100; i++) {
            ids[page_size] = FRESH + i;
            rkv_sequence_info state = begin(&house, &space, &prompt);
            publish(&house, &state);
            kept[i] = state.sequence;
            bool retained = true;
            if (i % 2 == 0) {
                TIME(rkv_sequence_retain, house.cache, state.sequence, &retained);
            }
            REQUIRE(retained);
        }
        TIME(rkv_cache_clear, house.cache, &args, &result);
        REQUIRE(result.namespace_count == 1 && result.dropped_sequence_count == 50);
        for (unsigned i = 1; i < 100; i += 2) {
            TIME(rkv_sequence_release, house.cache, kept[i]);
        }
    }
    house_close(&house);
}
