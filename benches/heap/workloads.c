/* W1 to W6 of benches/index in the small, and everything else that memory is taken for. */
#include "heap.h"

#include <string.h>

enum { SEED = 1505 };

static rkv_tokens text(const uint32_t *ids, size_t count)
{
    return (rkv_tokens){.struct_size = sizeof(rkv_tokens), .ids = ids, .count = count};
}

static rkv_sequence_info begin(struct world *world, const rkv_namespace *space,
                                const rkv_tokens *tokens)
{
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .space = space, .tokens = tokens};
    rkv_sequence_info state = {.struct_size = sizeof state};
    CHECK(rkv_sequence_begin(world->cache, &args, &state));
    if (state.copy_count > 0) {
        CHECK(rkv_sequence_confirm_copies(world->cache, state.sequence));
    }
    return state;
}

static void publish(struct world *world, rkv_sequence_id sequence, uint64_t position_count)
{
    rkv_sequence_publish_result result = {.struct_size = sizeof result};
    CHECK(rkv_sequence_publish(world->cache, sequence, position_count, &result));
}

static void release(struct world *world, rkv_sequence_id sequence)
{
    CHECK(rkv_sequence_release(world->cache, sequence));
}

static void request(struct world *world, const rkv_namespace *space, const rkv_tokens *tokens)
{
    rkv_sequence_info state = begin(world, space, tokens);
    publish(world, state.sequence, state.position_count);
    release(world, state.sequence);
}

static void request_text(struct world *world, size_t count)
{
    rkv_tokens tokens = text(world->ids, count);
    request(world, NULL, &tokens);
}

/* Tokens of their own from `at` on. */
static void own(struct world *world, size_t at, uint32_t number, size_t count)
{
    tokens_fill(SEED, number, world->ids + at, count);
    world->ids[at] = FRESH + number;
}

static void shared_prompt(struct world *world)
{
    tokens_fill(SEED, UINT32_MAX, world->ids, 1024);
    for (uint32_t i = 0; i < 4096; i++) {
        uint32_t count = 32 + i % 97;
        own(world, 1024, i, count);
        request_text(world, 1024 + count);
    }
}

static void chat(struct world *world)
{
    for (uint32_t chat = 0; chat < 500; chat++) {
        for (uint32_t turn = 0, end = 0; turn < 8; turn++) {
            uint32_t count = 50 + (chat * 37 + turn * 91) % 351;
            own(world, end, chat * 8 + turn, count);
            end += count;
            request_text(world, end);
        }
    }
}

static void long_context(struct world *world)
{
    for (uint32_t i = 0; i < 64; i++) {
        own(world, 0, i, 32768);
        for (uint32_t j = 0; j < 4; j++) {
            own(world, 32768, 1000 + i * 4 + j, 64);
            request_text(world, 32768 + 64);
        }
    }
}

/* Three times as much as there is room for. */
static void churn(struct world *world)
{
    struct rng rng = {SEED};
    for (uint32_t i = 0; i < 6000; i++) {
        double skewed = rng_unit(&rng);
        own(world, 0, (uint32_t)(skewed * skewed * 1500), 1024);
        own(world, 1024, 2000 + i, 64);
        request_text(world, 1024 + 64);
    }
}

static void fan_out(struct world *world)
{
    tokens_fill(SEED, UINT32_MAX, world->ids, 64);
    for (uint32_t i = 0; i < 20000; i++) {
        own(world, 64, i, 64);
        request_text(world, 128);
    }
}

static void tree(struct world *world)
{
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t leaf = (i * 7919) % 10000;
        for (uint32_t level = 0, divisor = 1000; level < 4; level++, divisor /= 10) {
            tokens_fill(SEED + level, leaf / divisor, world->ids + level * 64, 64);
        }
        request_text(world, 256);
    }
}

/* Each token is published as soon as it is there; nobody releases the last ones. */
static void token_by_token(struct world *world)
{
    for (uint32_t i = 0; i < 64; i++) {
        own(world, 0, i, 2000);
        rkv_tokens tokens = text(world->ids, 1);
        rkv_sequence_info state = begin(world, NULL, &tokens);
        for (uint32_t at = 1; at < 2000; at++) {
            tokens = text(world->ids + at, 1);
            CHECK(rkv_sequence_append(world->cache, state.sequence, &tokens));
            publish(world, state.sequence, at + 1);
        }
        if (i < 48) {
            release(world, state.sequence);
        }
    }
}

static void forks(struct world *world)
{
    rkv_sequence_fork_child children[16];
    for (uint32_t i = 0; i < 32; i++) {
        bool retained;
        own(world, 0, i, 2005);
        rkv_tokens tokens = text(world->ids, 2005);
        rkv_sequence_info state = begin(world, NULL, &tokens);
        publish(world, state.sequence, 2005);
        CHECK(rkv_sequence_retain(world->cache, state.sequence, &retained));
        rkv_sequence_fork_args args = {
            .struct_size = sizeof args, .parent = state.sequence, .child_count = 16};
        CHECK(rkv_sequence_fork(world->cache, &args, children, sizeof *children));
        for (uint32_t j = 0; j < 16; j++) {
            if (children[j].copy_count > 0) {
                CHECK(rkv_sequence_confirm_copies(world->cache, children[j].sequence));
            }
            own(world, 0, 1000 + i * 16 + j, 100);
            tokens = text(world->ids, 100);
            CHECK(rkv_sequence_append(world->cache, children[j].sequence, &tokens));
            publish(world, children[j].sequence, 2105);
        }
    }
}

static void retained(struct world *world)
{
    for (uint32_t i = 0; i < 3000; i++) {
        bool kept;
        own(world, 0, i, 205);
        rkv_tokens tokens = text(world->ids, 205);
        rkv_sequence_info state = begin(world, NULL, &tokens);
        publish(world, state.sequence, 200);
        CHECK(rkv_sequence_retain(world->cache, state.sequence, &kept));
    }
}

/* Half of them are gone again. */
static void images(struct world *world)
{
    rkv_token_item item = {.token_index = 20, .kind = RKV_TOKEN_IMAGE, .position_count = 200};
    for (uint32_t i = 0; i < 4000; i++) {
        own(world, 0, i % 100, 20);
        own(world, 20, i, 20);
        rkv_tokens tokens = text(world->ids, 40);
        tokens.items = &item;
        tokens.item_size = sizeof item;
        tokens.item_count = 1;
        memcpy(item.digest, &i, sizeof i);
        request(world, NULL, &tokens);
    }
    size_t count;
    CHECK(rkv_cache_evict(world->cache, 2000 * 200 / world->page_size, NULL, 0, &count));
}

static void namespaces(struct world *world)
{
    rkv_namespace space = {.struct_size = sizeof space, .flags = RKV_NAMESPACE_LORA};
    own(world, 0, 0, 256);
    rkv_tokens tokens = text(world->ids, 256);
    for (uint32_t i = 0; i < 4000; i++) {
        space.lora_id = i;
        request(world, &space, &tokens);
    }
    size_t count;
    CHECK(rkv_cache_evict(world->cache, 1000 * 256 / world->page_size, NULL, 0, &count));
}

/* Sequences that have begun and published nothing. */
static void running(struct world *world)
{
    for (uint32_t i = 0; i < 200; i++) {
        own(world, 0, i, 2000 + i);
        rkv_tokens tokens = text(world->ids, 2000 + i);
        begin(world, NULL, &tokens);
    }
}

/* What is kept for the next ones when all is gone. */
static void emptied(struct world *world)
{
    size_t count;
    fan_out(world);
    CHECK(rkv_cache_evict(world->cache, SIZE_MAX, NULL, 0, &count));
}

const struct workload WORKLOADS[] = {
    {"W1 shared prompt", shared_prompt, 1400000, RKV_INDEX_RADIX},
    {"W2 chat", chat, 1800000, RKV_INDEX_RADIX},
    {"W3 long context", long_context, 2400000, RKV_INDEX_RADIX},
    {"W4 churn", churn, 600000, RKV_INDEX_RADIX},
    {"W5 fan-out", fan_out, 6000000, RKV_INDEX_RADIX},
    {"W6 tree", tree, 2000000, RKV_INDEX_RADIX},
    {"published token by token", token_by_token, 200000, RKV_INDEX_RADIX},
    {"forks", forks, 600000, RKV_INDEX_RADIX},
    {"retained", retained, 1600000, RKV_INDEX_RADIX},
    {"images", images, 2400000, RKV_INDEX_RADIX},
    {"namespaces", namespaces, 1200000, RKV_INDEX_RADIX},
    {"running", running, 600000, RKV_INDEX_RADIX},
    {"W5 fan-out, evicted again", emptied, 6000000, RKV_INDEX_RADIX},
    {"block hash, W1", shared_prompt, 1400000, RKV_INDEX_BLOCK_HASH},
    {"block hash, W2", chat, 1800000, RKV_INDEX_BLOCK_HASH},
    {"block hash, W4", churn, 600000, RKV_INDEX_BLOCK_HASH},
    {"block hash, token by token", token_by_token, 200000, RKV_INDEX_BLOCK_HASH},
    {"block hash, images", images, 2400000, RKV_INDEX_BLOCK_HASH},
    {"block hash, namespaces", namespaces, 1200000, RKV_INDEX_BLOCK_HASH},
    {0},
};

static void insert(struct world *world, size_t count)
{
    rkv_tokens tokens = text(world->ids, count);
    rkv_snapshot_cache_insert_args args = {
        .struct_size = sizeof args, .tokens = &tokens, .size_bytes = 1};
    CHECK(rkv_snapshot_cache_insert(world->snapshots, &args, NULL));
}

static void snapshots_shared(struct world *world)
{
    tokens_fill(SEED, UINT32_MAX, world->ids, 1024);
    for (uint32_t i = 0; i < 10000; i++) {
        own(world, 1024, i, 32 + i % 97);
        insert(world, 1024 + 32 + i % 97);
    }
}

static void snapshots_alone(struct world *world)
{
    for (uint32_t i = 0; i < 3000; i++) {
        own(world, 0, i, 1000 + i % 48);
        insert(world, 1000 + i % 48);
    }
}

/* Of 100 chats, after each token, as many as there is room for. */
static void snapshots_token_by_token(struct world *world)
{
    for (uint32_t chat = 0; chat < 100; chat++) {
        own(world, 0, chat, 256);
        for (uint32_t at = 1; at <= 256; at++) {
            insert(world, at);
        }
    }
}

static void snapshots_removed(struct world *world)
{
    snapshots_alone(world);
    for (uint32_t i = 0; i < 2000; i++) {
        own(world, 0, i, 1000 + i % 48);
        rkv_tokens tokens = text(world->ids, 1000 + i % 48);
        CHECK(rkv_snapshot_cache_remove(world->snapshots, NULL, &tokens, NULL));
    }
}

const struct workload SNAPSHOT_WORKLOADS[] = {
    {"snapshots, shared prompt", snapshots_shared, 0, 0},
    {"snapshots, nothing shared", snapshots_alone, 0, 0},
    {"snapshots, token by token", snapshots_token_by_token, 0, 0},
    {"snapshots, two thirds removed", snapshots_removed, 0, 0},
    {0},
};
