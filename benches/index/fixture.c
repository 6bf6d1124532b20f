/* Tokens, prompts, and one page table with its cache. */
#include "bench.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void check_status(rkv_status status, const char *call, const char *file, int line)
{
    if (status == RKV_STATUS_OK) {
        return;
    }
    char message[512] = "";
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s:%d: %s\n  %s: %s\n", file, line, call, rkv_status_name((int32_t)status),
            message);
    exit(1);
}

void check_condition(bool holds, const char *condition, const char *file, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
        exit(1);
    }
}

void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    REQUIRE(memory != NULL);
    return memory;
}

void *floor_memory(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    madvise(memory, bytes, options.reserve_mib > 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, 0, bytes);
    return memory;
}

void floor_memory_free(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

uint64_t rng_next(struct rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint32_t rng_below(struct rng *rng, uint32_t bound)
{
    return (uint32_t)(((rng_next(rng) >> 32) * bound) >> 32);
}

double rng_unit(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

void rng_shuffle(struct rng *rng, uint32_t *values, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t other = rng_below(rng, (uint32_t)i);
        uint32_t value = values[i - 1];
        values[i - 1] = values[other];
        values[other] = value;
    }
}

uint32_t *rng_order(struct rng *rng, uint32_t count)
{
    uint32_t *values = allocate(count, sizeof *values);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = i;
    }
    rng_shuffle(rng, values, count);
    return values;
}

void tokens_fill(uint64_t seed, uint64_t index, uint32_t *ids, size_t count)
{
    struct rng rng = {seed * 0x2545f4914f6cdd1du};
    rng.state = rng_next(&rng) ^ (index * 0xd6e8feb86659fd93u);
    for (size_t i = 0; i < count; i++) {
        ids[i] = rng_below(&rng, VOCABULARY);
    }
}

void prompts_init(struct prompts *prompts, size_t prompt_count, size_t token_capacity)
{
    memset(prompts, 0, sizeof *prompts);
    prompts->memory = allocate(prompt_count * token_capacity, sizeof *prompts->memory);
    for (size_t i = 0; i < BATCH; i++) {
        prompts->ids[i] = prompts->memory + (i % prompt_count) * token_capacity;
    }
}

void prompts_free(struct prompts *prompts)
{
    free(prompts->memory);
    prompts->memory = NULL;
}

/* Nothing is copied: their number is what counts. */
enum { TIER_PAGE_BYTES = 16 };

static size_t heap_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

void fixture_open(struct fixture *fixture, uint32_t page_size, size_t token_capacity,
                  size_t longest_prompt)
{
    memset(fixture, 0, sizeof *fixture);
    fixture->page_size = page_size;
    fixture->page_capacity = longest_prompt / page_size + 1;
    fixture->pages = allocate(fixture->page_capacity, sizeof *fixture->pages);

    rkv_page_table_config config;
    CHECK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = page_size;
    config.page_count = (uint32_t)(token_capacity / page_size) + 1;
    config.slot_count = 64;
    CHECK(rkv_page_table_create(&config, &fixture->table));
    fixture->heap_bytes = heap_in_use();
    rkv_cache_config cache_config;
    CHECK(rkv_cache_config_init(&cache_config, sizeof cache_config));
    cache_config.index = options.index;
    cache_config.journal_bytes = options.journal_bytes;
    CHECK(rkv_cache_create(fixture->table, &cache_config, &fixture->cache));
    if (options.tiers) {
        rkv_tier_config tiers;
        CHECK(rkv_tier_config_init(&tiers, sizeof tiers));
        tiers.page_bytes = TIER_PAGE_BYTES;
        tiers.host_bytes = (uint64_t)config.page_count * TIER_PAGE_BYTES;
        /* What is counted is the owner of what the device has: nothing is copied until pages get
         * short. */
        tiers.store_after_uses = UINT32_MAX;
        CHECK(rkv_cache_attach_tiers(fixture->cache, &tiers));
    }
}

/* What an engine calls in each step for the tiers: copies are said to be done, and are not made. */
static void step_tiers(struct fixture *fixture)
{
    rkv_copy_job jobs[64];
    rkv_fetch_end ends[4];
    rkv_cache_poll_result got = {.struct_size = sizeof got};
    CHECK(rkv_cache_poll(fixture->cache, jobs, sizeof *jobs, 64, ends, sizeof *ends, 4, &got));
    for (size_t i = 0; i < got.job_count; i++) {
        CHECK(rkv_cache_complete(fixture->cache, &jobs[i].job, 1, true));
    }
}

static void fetch_from_tiers(struct fixture *fixture, rkv_sequence_id sequence)
{
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    CHECK(rkv_sequence_fetch(fixture->cache, sequence, 0, 0, &fetch));
    REQUIRE(!fetch.is_open);
    /* A step has many requests. */
    if (++fixture->fetches % BATCH == 0) {
        step_tiers(fixture);
    }
}

void fixture_close(struct fixture *fixture)
{
    rkv_cache_destroy(fixture->cache);
    rkv_page_table_destroy(fixture->table);
    free(fixture->pages);
    memset(fixture, 0, sizeof *fixture);
}

void fixture_verify(const struct fixture *fixture)
{
    if (!options.count) {
        CHECK(rkv_cache_check(fixture->cache));
        CHECK(rkv_page_table_check(fixture->table));
    }
}

void fixture_memory(const struct fixture *fixture, const char *workload)
{
    rkv_cache_stats stats = {.struct_size = sizeof stats};
    CHECK(rkv_cache_read_stats(fixture->cache, &stats));
    struct memory_row row = {
        .page_size = fixture->page_size,
        .position_count = stats.cached_page_count * fixture->page_size,
        .node_count = stats.node_count,
        .index_bytes = stats.index_bytes,
        .heap_bytes = heap_in_use() - fixture->heap_bytes,
    };
    snprintf(row.workload, sizeof row.workload, "%s", workload);
    memory_row_emit(&row);
}

uint64_t fixture_request(struct fixture *fixture, const uint32_t *ids, size_t count)
{
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = count};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info state = {.struct_size = sizeof state};
    rkv_sequence_publish_result published = {.struct_size = sizeof published};
    CHECK(rkv_sequence_begin(fixture->cache, &args, &state));
    if (state.copy_count > 0) {
        CHECK(rkv_sequence_confirm_copies(fixture->cache, state.sequence));
    }
    if (options.tiers) {
        fetch_from_tiers(fixture, state.sequence);
    }
    CHECK(rkv_sequence_publish(fixture->cache, state.sequence, count, &published));
    CHECK(rkv_sequence_release(fixture->cache, state.sequence));
    return state.cached_position_count;
}

uint64_t fixture_match(struct fixture *fixture, const uint32_t *ids, size_t count,
                       rkv_node_id *out_node)
{
    rkv_tokens tokens = {.struct_size = sizeof tokens, .ids = ids, .count = count};
    rkv_cache_match_result match = {.struct_size = sizeof match};
    CHECK(rkv_cache_match(fixture->cache, NULL, &tokens, 0, fixture->pages, fixture->page_capacity,
                          &match));
    if (out_node != NULL) {
        *out_node = match.node;
    }
    return match.position_count;
}

size_t page_floor(const struct fixture *fixture, size_t position_count)
{
    return position_count - position_count % fixture->page_size;
}
