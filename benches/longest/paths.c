/*
 * Worlds of many nodes on one path: of text, behind an image, with a sliding window beside, and
 * published by somebody else while a sequence computes the same.
 */
#include "longest.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 1701, LOOKS = 200, REPEATS = 20 };

/* A prompt, perhaps with an image as its second token that ends with the second page. */
struct prompt {
    uint32_t *ids;
    rkv_token_item image;
    bool has_image;
    uint32_t page_size;
};

static struct prompt prompt_open(uint32_t page_size, uint32_t page_count, bool has_image)
{
    struct prompt prompt = {.page_size = page_size, .has_image = has_image};
    size_t count = (size_t)page_count * page_size;
    prompt.ids = allocate(count, sizeof *prompt.ids);
    tokens_fill(SEED, 0, prompt.ids, count);
    prompt.image = (rkv_token_item){.token_index = 1, .kind = RKV_TOKEN_IMAGE,
                                    .position_count = 2 * page_size - 1, .digest = {5}};
    return prompt;
}

/* Tokens of the first pages; an image is one token. */
static size_t token_count(const struct prompt *prompt, uint32_t page_count)
{
    size_t positions = (size_t)page_count * prompt->page_size;
    return prompt->has_image ? positions - 2 * prompt->page_size + 2 : positions;
}

static rkv_tokens first_pages(const struct prompt *prompt, uint32_t page_count)
{
    rkv_tokens tokens = text(prompt->ids, token_count(prompt, page_count));
    if (prompt->has_image) {
        tokens.items = &prompt->image;
        tokens.item_size = sizeof prompt->image;
        tokens.item_count = 1;
    }
    return tokens;
}

static rkv_cache_insert_result insert(const struct house *house, const struct prompt *prompt,
                                      const uint32_t *pages, uint32_t page_count,
                                      rkv_node_id from_node, uint32_t from_page)
{
    rkv_tokens tokens = first_pages(prompt, page_count);
    rkv_cache_insert_args args = {
        .struct_size = sizeof args, .tokens = &tokens, .pages = pages, .page_count = page_count,
        .from_node = from_node, .from_page_index = from_page,
        .from_token_index = from_node == 0 ? 0 : token_count(prompt, from_page)};
    rkv_cache_insert_result result = {.struct_size = sizeof result};
    TIME(rkv_cache_insert, house->cache, &args, NULL, &result);
    return result;
}

/* Publishes a page with another first token, after so many pages of the prompt. */
static void branch_at(const struct house *house, const struct prompt *prompt, uint32_t *pages,
                      uint32_t page, rkv_node_id from_node)
{
    uint32_t *id = &prompt->ids[token_count(prompt, page)], kept = *id, kept_page = pages[page];
    *id = FRESH;
    TIME(rkv_page_table_allocate_pages, house->table, 1, &pages[page]);
    rkv_cache_insert_result result =
        insert(house, prompt, pages, page + 1, from_node, from_node == 0 ? 0 : page);
    REQUIRE(result.claimed_page_count == 1);
    *id = kept;
    pages[page] = kept_page;
}

/*
 * Publishes a prompt page by page, and from each page another one goes on, so that there are as
 * many nodes. Each insert goes on from the node before it, as an engine's does.
 */
static void grow(const struct house *house, const struct prompt *prompt, uint32_t depth,
                 uint32_t *pages)
{
    rkv_node_id node = 0;
    for (uint32_t i = 0; i < depth; i++) {
        branch_at(house, prompt, pages, i, node);
        TIME(rkv_page_table_allocate_pages, house->table, 1, &pages[i]);
        rkv_cache_insert_result result = insert(house, prompt, pages, i + 1, node, i);
        REQUIRE(result.claimed_page_count == 1);
        node = result.node;
    }
}

/* The same nodes, in less time: the prompt in one call, then a branch at each page from its end. */
static void divide(const struct house *house, const struct prompt *prompt, uint32_t depth,
                   uint32_t *pages)
{
    uint32_t first = prompt->has_image ? 2 : 1;
    TIME(rkv_page_table_allocate_pages, house->table, depth, pages);
    REQUIRE(insert(house, prompt, pages, depth, 0, 0).claimed_page_count == depth);
    for (uint32_t i = depth - 1; i >= first; i--) {
        branch_at(house, prompt, pages, i, 0);
    }
}

static void look_up(const struct house *house, const struct prompt *prompt, uint32_t page_count,
                    uint32_t *pages)
{
    size_t found;
    rkv_tokens tokens = first_pages(prompt, page_count);
    rkv_cache_match_result hit = match(house, &tokens, pages, page_count);
    REQUIRE(hit.page_count == page_count);
    TIME(rkv_cache_probe, house->cache, NULL, &tokens, NULL, &found);
    on_node(house, hit.node);
    request(house, NULL, &tokens);
}

/* The whole prompt from its root on, with one page that the cache has not. */
static void insert_behind(const struct house *house, const struct prompt *prompt,
                          uint32_t page_count, uint32_t *pages)
{
    uint32_t *last = &prompt->ids[token_count(prompt, page_count - 1)], kept = *last;
    for (uint32_t i = 0; i < REPEATS; i++) {
        *last = FRESH_MISS + i;
        TIME(rkv_page_table_allocate_pages, house->table, 1, &pages[page_count - 1]);
        REQUIRE(insert(house, prompt, pages, page_count, 0, 0).claimed_page_count == 1);
    }
    *last = kept;
}

static void path(uint32_t page_size, uint32_t index, uint32_t depth, bool has_image)
{
    struct house house = house_open(page_size, 4 * depth + 64, 64, index, 0);
    struct prompt prompt = prompt_open(page_size, depth + 1, has_image);
    uint32_t *pages = allocate(depth + 1, sizeof *pages);
    if (has_image) {
        divide(&house, &prompt, depth, pages);
    } else {
        grow(&house, &prompt, depth, pages);
    }
    for (uint32_t i = 0; i < REPEATS; i++) {
        look_up(&house, &prompt, depth - i, pages);
    }
    look_up(&house, &prompt, depth, pages);
    insert_behind(&house, &prompt, depth + 1, pages);
    house_looks(&house, LOOKS);
    evict_much(&house, depth);
    house_close(&house);
    free(prompt.ids);
    free(pages);
}

void world_path(uint32_t page_size, uint32_t index)
{
    situation(page_size == 1 ? "10^4 nodes on a path, page 1" : "10^4 nodes on a path, page 16");
    path(page_size, index, sizes.depth, false);
}

/* Behind an image: as many nodes, and 131,072 positions in one node. */
void world_path_of_images(uint32_t page_size, uint32_t index)
{
    situation(index == RKV_INDEX_BLOCK_HASH ? "10^4 nodes behind an image, block hash, page 16"
                                            : "10^4 nodes behind an image, page 16");
    path(page_size, index, sizes.depth, true);
    situation(index == RKV_INDEX_BLOCK_HASH ? "131,072 behind an image, block hash, page 16"
                                            : "131,072 behind an image, page 16");
    uint32_t page_count = sizes.positions / page_size;
    struct house house = house_open(page_size, 3 * page_count, 64, index, 0);
    struct prompt prompt = prompt_open(page_size, page_count, true);
    uint32_t *pages = allocate(page_count, sizeof *pages);
    TIME(rkv_page_table_allocate_pages, house.table, page_count, pages);
    REQUIRE(insert(&house, &prompt, pages, page_count, 0, 0).claimed_page_count == page_count);
    REQUIRE(insert(&house, &prompt, pages, page_count, 0, 0).claimed_page_count == 0);
    for (uint32_t i = 0; i < REPEATS; i++) {
        look_up(&house, &prompt, page_count - i, pages);
    }
    prompt.image.digest[0]++;
    rkv_tokens tokens = first_pages(&prompt, page_count);
    request(&house, NULL, &tokens);
    evict_much(&house, 2 * page_count);
    house_close(&house);
    free(prompt.ids);
    free(pages);
}

/* The same path, where layers with a sliding window have pages as well. */
void world_path_of_groups(uint32_t page_size, uint32_t index)
{
    uint32_t depth = sizes.depth, *ids = allocate((depth + 1) * page_size, sizeof *ids);
    size_t found;
    tokens_fill(SEED, 0, ids, (depth + 1) * page_size);
    situation("10^4 nodes on a path, a window beside, page 16");
    house_window = 1024;
    struct house house = house_open(page_size, 6 * depth, 64, index, 0);
    house_window = 0;
    /* A node ends where the next prompt parts. */
    for (uint32_t i = 0; i < depth; i++) {
        for (unsigned branch = 0; branch < 2; branch++) {
            uint32_t *first = &ids[i * page_size], kept = *first;
            *first = branch == 0 ? FRESH : kept;
            rkv_tokens tokens = text(ids, (i + 1) * page_size);
            request(&house, NULL, &tokens);
            *first = kept;
        }
    }
    uint32_t *pages = allocate(depth, sizeof *pages);
    for (unsigned i = 0; i < 20; i++) {
        rkv_tokens tokens = text(ids, (depth - i) * page_size);
        rkv_cache_match_result hit = match(&house, &tokens, pages, depth);
        REQUIRE(hit.page_count > depth / 2);
        TIME(rkv_cache_probe, house.cache, NULL, &tokens, NULL, &found);
        on_node(&house, hit.node);
        request(&house, NULL, &tokens);
    }
    house_looks(&house, LOOKS);
    evict_much(&house, depth);
    house_close(&house);
    free(ids);
    free(pages);
}

/*
 * While a sequence computes a prompt somebody else publishes it, in as many nodes as it has pages;
 * then the sequence does, and takes all of those.
 */
void world_meanwhile(uint32_t page_size, uint32_t index)
{
    uint32_t depth = sizes.depth;
    situation(index == RKV_INDEX_BLOCK_HASH ? "others' 10^4 nodes meanwhile, block hash, page 16"
                                            : "others' 10^4 nodes meanwhile, page 16");
    struct house house = house_open(page_size, 6 * depth, 64, index, 0);
    struct prompt prompt = prompt_open(page_size, depth, false);
    uint32_t *pages = allocate(depth, sizeof *pages);
    rkv_tokens tokens = first_pages(&prompt, depth);
    rkv_sequence_info states[2];
    for (unsigned i = 0; i < 2; i++) {
        states[i] = begin(&house, NULL, &tokens);
    }
    divide(&house, &prompt, depth, pages);
    for (unsigned i = 0; i < 2; i++) {
        rkv_sequence_publish_result result = {.struct_size = sizeof result};
        TIME(rkv_sequence_publish, house.cache, states[i].sequence, states[i].position_count,
             &result);
        REQUIRE(result.remapped_page_count == depth);
    }
    for (unsigned i = 0; i < 2; i++) {
        TIME(rkv_sequence_release, house.cache, states[i].sequence);
    }
    house_close(&house);
    free(prompt.ids);
    free(pages);
}
