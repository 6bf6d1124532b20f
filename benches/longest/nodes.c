/*
 * Worlds of many nodes: a million in two levels, 100,000 siblings, many namespaces, many images.
 */
#include "longest.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 1101, LOOKS = 200, FAN = 1000, RUN_PAGES = 4 };

static void children_of(const struct house *house, rkv_node_id node)
{
    size_t count;
    TIME(rkv_node_read_children, house->cache, node, NULL, 0, &count);
    rkv_node_id *children = allocate(count, sizeof *children);
    TIME(rkv_node_read_children, house->cache, node, children, count, &count);
    free(children);
}

/* Matches, probes, inserts and evictions, each after the other, in a tree of prompts. */
static void lookups(const struct house *house, struct rng *rng, uint32_t prompt_count,
                    void (*write)(uint32_t prompt, uint32_t *ids), uint32_t token_count)
{
    uint32_t *ids = allocate(token_count, sizeof *ids);
    uint32_t *pages = allocate(token_count, sizeof *pages);
    for (unsigned i = 0; i < 20000; i++) {
        write(rng_below(rng, prompt_count), ids);
        rkv_tokens tokens = text(ids, token_count);
        size_t found;
        rkv_cache_match_result hit = match(house, &tokens, pages, token_count);
        TIME(rkv_cache_probe, house->cache, NULL, &tokens, NULL, &found);
        if (hit.node != 0 && i < LOOKS) {
            on_node(house, hit.node);
        }
        evict(house, 1 + i % 64);
        request(house, NULL, &tokens);
    }
    free(ids);
    free(pages);
}

static uint32_t edge_tokens;    /* of each of two levels */

static void write_leaf(uint32_t leaf, uint32_t *ids)
{
    tokens_fill(SEED, leaf / FAN, ids, edge_tokens);
    ids[0] = leaf / FAN;
    tokens_fill(SEED + 1, leaf, ids + edge_tokens, edge_tokens);
    ids[edge_tokens] = leaf % FAN;
}

void world_nodes(uint32_t page_size, uint32_t index)
{
    uint32_t count = sizes.nodes;
    struct rng rng = {SEED};
    /* At page size 1 one token is a page, and several make the edge of a node. */
    edge_tokens = page_size == 1 ? 4 : page_size;
    uint32_t *order = allocate(count, sizeof *order);
    uint32_t ids[512];
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
    }
    rng_shuffle(&rng, order, count);
    situation(index == RKV_INDEX_BLOCK_HASH ? "10^6 nodes, block hash, page 16"
              : page_size == 1              ? "10^6 nodes, page 1"
                                            : "10^6 nodes, page 16");
    uint32_t leaf_pages = edge_tokens / page_size;
    struct house house =
        house_open(page_size, (count + count / FAN + 1024) * leaf_pages, 64, index, 0);
    for (uint32_t i = 0; i < count; i++) {
        write_leaf(order[i], ids);
        rkv_tokens tokens = text(ids, 2 * edge_tokens);
        request(&house, NULL, &tokens);
    }
    free(order);
    house_looks(&house, LOOKS);
    lookups(&house, &rng, count, write_leaf, 2 * edge_tokens);
    evict_much(&house, (size_t)count * leaf_pages * 9 / 10);
    house_close(&house);
}

static uint32_t prefix_tokens;

static void write_sibling(uint32_t sibling, uint32_t *ids)
{
    tokens_fill(SEED + 2, 0, ids, prefix_tokens);
    tokens_fill(SEED + 3, sibling, ids + prefix_tokens, edge_tokens);
    ids[prefix_tokens] = FRESH + sibling;
}

void world_siblings(uint32_t page_size, uint32_t index)
{
    uint32_t count = sizes.siblings, ids[1024];
    struct rng rng = {SEED};
    prefix_tokens = 64;
    edge_tokens = 2 * page_size;
    situation(index == RKV_INDEX_BLOCK_HASH ? "10^5 siblings, block hash, page 16"
              : page_size == 1              ? "10^5 siblings, page 1"
                                            : "10^5 siblings, page 16");
    struct house house = house_open(page_size, 2 * count + 1024, 64, index, 0);
    for (uint32_t i = 0; i < count; i++) {
        write_sibling(i, ids);
        rkv_tokens tokens = text(ids, prefix_tokens + edge_tokens);
        request(&house, NULL, &tokens);
    }
    rkv_tokens prefix = text(ids, prefix_tokens);
    for (unsigned i = 0; i < 10; i++) {
        children_of(&house, match(&house, &prefix, NULL, 0).node);
    }
    house_looks(&house, LOOKS);
    lookups(&house, &rng, count, write_sibling, prefix_tokens + edge_tokens);
    evict_much(&house, 2 * count);
    house_close(&house);
}

static void namespaces_of(const struct house *house)
{
    size_t count;
    for (unsigned i = 0; i < 5; i++) {
        TIME(rkv_cache_read_namespaces, house->cache, NULL, 0, NULL, 0, &count);
        rkv_namespace *spaces = allocate(count, sizeof *spaces);
        rkv_node_id *roots = allocate(count, sizeof *roots);
        TIME(rkv_cache_read_namespaces, house->cache, spaces, sizeof *spaces, roots, count,
             &count);
        free(spaces);
        free(roots);
    }
}

static void clear_everything(const struct house *house)
{
    rkv_cache_clear_args args = {.struct_size = sizeof args, .flags = RKV_CLEAR_EVERYTHING};
    rkv_cache_clear_result result = {.struct_size = sizeof result};
    TIME(rkv_cache_clear, house->cache, &args, &result);
    REQUIRE(result.namespace_count > 0);
}

/* One prompt in each namespace, and all of them forgotten again. */
void world_namespaces(uint32_t page_size, uint32_t index)
{
    uint32_t count = sizes.namespaces, ids[256];
    tokens_fill(SEED + 5, 0, ids, page_size);
    rkv_tokens tokens = text(ids, page_size);
    situation(index == RKV_INDEX_BLOCK_HASH ? "10^5 namespaces, block hash, page 16"
                                            : "10^5 namespaces, page 16");
    struct house house = house_open(page_size, count + 64, 64, index, 0);
    rkv_namespace space = {.struct_size = sizeof space, .flags = RKV_NAMESPACE_LORA};
    for (uint32_t i = 0; i < count; i++) {
        space.lora_id = i;
        request(&house, &space, &tokens);
    }
    house_looks(&house, LOOKS);
    for (uint32_t i = 0; i < 10000; i++) {
        evict(&house, 1);
        space.lora_id = count + i;
        request(&house, &space, &tokens);
    }
    evict_much(&house, count / 2);
    namespaces_of(&house);
    clear_everything(&house);
    house_close(&house);
}

/* Prompts of one image each, all different. */
void world_images(uint32_t page_size, uint32_t index)
{
    uint32_t count = sizes.images, ids[4] = {7, 0, 8, 9};
    rkv_token_item item = {
        .token_index = 1, .kind = RKV_TOKEN_IMAGE, .position_count = 2 * page_size};
    rkv_tokens tokens = text(ids, 4);
    tokens.items = &item;
    tokens.item_size = sizeof item;
    tokens.item_count = 1;
    situation(index == RKV_INDEX_BLOCK_HASH ? "10^5 images, block hash, page 16"
                                            : "10^5 images, page 16");
    struct house house = house_open(page_size, 4 * count, 64, index, 0);
    for (uint32_t i = 0; i < count + 10000; i++) {
        memcpy(item.digest, &i, sizeof i);
        request(&house, NULL, &tokens);
        if (i >= count) {
            size_t found;
            TIME(rkv_cache_probe, house.cache, NULL, &tokens, NULL, &found);
            evict(&house, RUN_PAGES);
        }
    }
    house_looks(&house, LOOKS);
    evict_much(&house, count);
    house_close(&house);
}
