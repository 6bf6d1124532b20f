/*
 * The floor of lookups and evictions in a tree.
 *
 * A lookup: for each node of the way the slot that leads to it, the node's line, all of its keys
 * compared with the prompt's and its page numbers copied out; at the end the time of use written
 * into the last node. Slots, nodes and keys lie at random in memory of the size that these things
 * need at least: 8 bytes a slot with tables half full or fuller, a line of 64 bytes a node, 4 bytes
 * a key and a page number. Lookups of a batch wait for memory together: each of these steps is
 * asked for some lookups ahead. A single one begins when the one before it has ended.
 *
 * Left out: hashing keys (where slots are is told beforehand, for all levels at once, so the way
 * down is three loads that depend on each other and not one more a level), collisions, the lock,
 * checking of arguments, readers without a lock, more than one namespace, ends inside a page, the
 * order of recency, statistics.
 *
 * The order of use, where a row is about it: leaves are a list by their last use, and each that is
 * looked up goes to its end, for which its neighbours are asked for with its keys.
 *
 * An eviction: what to evict next is told beforehand, as by a list in one piece, and asked for
 * ahead; of each the page numbers are read, copied out and marked as free, and when nothing is
 * left of a leaf its slot, its node, its parent's count of children and the first line of its
 * memory are written. Left out: finding the victim, neighbours in any order, whether it is locked.
 */
#include "floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKUPS = 16384, EVICTIONS = 2048, AHEAD = 4, EVICT_TOKENS = 64, LINE_BYTES = 64 };

struct node {
    uint32_t *words;            /* keys, then pages */
    uint32_t key_count, child_count;
    uint64_t used;
    uint32_t older, newer;      /* leaves, by places */
    char rest[LINE_BYTES - 32];
};

struct tree {
    struct floor_shape shape;
    uint32_t page_size;
    uint32_t first[FLOOR_LEVELS];       /* number of the first node of each level */
    uint32_t divisor[FLOOR_LEVELS];     /* leaves for each node of a level */
    uint32_t *place, *slot_of;          /* of the nodes, by number: not part of what is measured */
    uint32_t *slots;                    /* every other word is a hash's */
    struct node *nodes;
    uint32_t *words;
    uint8_t *states;                    /* of the pages */
    size_t slot_bytes, node_bytes, word_bytes, state_bytes;
    uint64_t clock;
    size_t zero;                        /* the compiler does not know that it is */
    uint32_t ends;                      /* of the list of leaves, the place behind all nodes */
    bool reads_pages;
    struct prompts prompts;
    uint32_t way[BATCH][FLOOR_LEVELS];  /* slots of a prompt */
    uint32_t *pages;                    /* copied out, of each prompt */
    size_t page_capacity;
    struct victim {
        uint32_t node, slot, parent;
    } *victims;                         /* what goes, in turn */
    size_t evicted;
    uint32_t leaf_evictions;            /* until nothing is left of a leaf */
};

/* A compiler leaves out calls of functions that only fetch, unless it sees an effect. */
static inline void fetch(const void *memory)
{
    __builtin_prefetch(memory);
    __asm__ volatile("" : : "r"(memory));
}

bool floor_wanted(uint32_t page_size)
{
    return !options.count && options.index == RKV_INDEX_RADIX && page_size != 64;
}

void floor_name(struct meter *meter, const char *workload, const char *operation)
{
    char name[sizeof meter->operation];
    snprintf(name, sizeof name, "%s %s", workload, operation);
    meter_init(meter, name);
}

static uint32_t node_of(const struct tree *tree, unsigned level, uint32_t leaf)
{
    return tree->first[level] + leaf / tree->divisor[level];
}

static void list_victims(struct tree *tree, struct rng *rng)
{
    unsigned level = tree->shape.level_count - 1;
    uint32_t leaves = tree->shape.nodes[level];
    uint32_t *order = rng_order(rng, leaves);
    tree->victims = allocate(leaves, sizeof *tree->victims);
    for (uint32_t i = 0; i < leaves; i++) {
        uint32_t number = node_of(tree, level, order[i]);
        uint32_t parent = node_of(tree, level - 1, order[i]);
        tree->victims[i] = (struct victim){
            tree->place[number], 2 * tree->slot_of[number], tree->place[parent]};
    }
    free(order);
}

static void link_leaves(struct tree *tree, struct rng *rng, uint32_t node_count)
{
    unsigned level = tree->shape.level_count - 1;
    uint32_t leaves = tree->shape.nodes[level];
    uint32_t *order = rng_order(rng, leaves);
    tree->ends = node_count;
    uint32_t last = tree->ends;
    for (uint32_t i = 0; i <= leaves; i++) {
        uint32_t next =
            i < leaves ? tree->place[node_of(tree, level, order[i])] : tree->ends;
        tree->nodes[last].newer = next;
        tree->nodes[next].older = last;
        last = next;
    }
    free(order);
}

static void open(struct tree *tree, const struct floor_shape *shape, uint32_t page_size)
{
    memset(tree, 0, sizeof *tree);
    tree->shape = *shape;
    tree->page_size = page_size;
    struct rng rng = {shape->seed};
    uint32_t count = 0;
    size_t words = 0;
    uint32_t path_keys = 0;
    for (unsigned level = 0; level < shape->level_count; level++) {
        tree->first[level] = count;
        tree->divisor[level] = shape->nodes[shape->level_count - 1] / shape->nodes[level];
        count += shape->nodes[level];
        uint32_t node_words = shape->keys[level] + shape->keys[level] / page_size;
        words += (size_t)shape->nodes[level] * node_words;
        path_keys += shape->keys[level];
    }
    uint32_t slot_count = 1;
    while (slot_count < count) {
        slot_count *= 2;
    }
    tree->slot_bytes = 2 * sizeof *tree->slots * slot_count;
    tree->node_bytes = sizeof *tree->nodes * ((size_t)count + 1);
    tree->word_bytes = sizeof *tree->words * words;
    tree->state_bytes = words;
    tree->slots = floor_memory(tree->slot_bytes);
    tree->nodes = floor_memory(tree->node_bytes);
    tree->words = floor_memory(tree->word_bytes);
    tree->states = floor_memory(tree->state_bytes);
    tree->place = rng_order(&rng, count);
    tree->slot_of = rng_order(&rng, slot_count);
    uint32_t *order = rng_order(&rng, count);
    uint32_t *at = tree->words;
    uint32_t page_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = order[i];
        unsigned level = shape->level_count - 1;
        while (number < tree->first[level]) {
            level--;
        }
        struct node *node = &tree->nodes[tree->place[number]];
        node->words = at;
        node->key_count = shape->keys[level];
        tokens_fill(shape->seed + level, number - tree->first[level], at, node->key_count);
        at += node->key_count;
        for (uint32_t page = 0; page < node->key_count / page_size; page++) {
            *at++ = page_count++;
        }
        tree->slots[2 * tree->slot_of[number]] = tree->place[number];
    }
    free(order);
    tree->page_capacity = path_keys / page_size;
    tree->pages = allocate(tree->page_capacity * BATCH, sizeof *tree->pages);
    prompts_init(&tree->prompts, BATCH, path_keys);
    list_victims(tree, &rng);
    link_leaves(tree, &rng, count);
    tree->leaf_evictions = shape->keys[shape->level_count - 1] / EVICT_TOKENS;
}

static void close(struct tree *tree)
{
    floor_memory_free(tree->slots, tree->slot_bytes);
    floor_memory_free(tree->nodes, tree->node_bytes);
    floor_memory_free(tree->words, tree->word_bytes);
    floor_memory_free(tree->states, tree->state_bytes);
    free(tree->place);
    free(tree->slot_of);
    free(tree->pages);
    free(tree->victims);
    prompts_free(&tree->prompts);
}

/* Writes prompts of random leaves, as a tokenizer would leave them. */
static void prepare(struct tree *tree, struct rng *rng)
{
    const struct floor_shape *shape = &tree->shape;
    for (size_t i = 0; i < BATCH; i++) {
        uint32_t leaf = rng_below(rng, shape->nodes[shape->level_count - 1]);
        uint32_t *ids = tree->prompts.ids[i];
        for (unsigned level = 0; level < shape->level_count; level++) {
            uint32_t number = node_of(tree, level, leaf);
            tokens_fill(shape->seed + level, number - tree->first[level], ids,
                        shape->keys[level]);
            ids += shape->keys[level];
            tree->way[i][level] = 2 * tree->slot_of[number];
        }
    }
}

static void fetch_slots(const struct tree *tree, size_t i, size_t wait)
{
    for (unsigned level = 0; level < tree->shape.level_count; level++) {
        fetch(&tree->slots[tree->way[i][level] + wait]);
    }
}

static void fetch_nodes(const struct tree *tree, size_t i, size_t wait)
{
    for (unsigned level = 0; level < tree->shape.level_count; level++) {
        fetch(&tree->nodes[tree->slots[tree->way[i][level] + wait]]);
    }
}

static void fetch_keys(const struct tree *tree, size_t i, size_t wait)
{
    for (unsigned level = 0; level < tree->shape.level_count; level++) {
        const struct node *node = &tree->nodes[tree->slots[tree->way[i][level] + wait]];
        const char *at = (const char *)node->words;
        size_t bytes = sizeof *node->words * (node->key_count + node->key_count / tree->page_size);
        /* The processor goes on by itself where more lines than these follow. */
        size_t limit = bytes < 8 * LINE_BYTES ? bytes : 8 * LINE_BYTES;
        for (size_t line = 0; line < limit; line += LINE_BYTES) {
            fetch(at + line);
        }
        fetch(at + bytes - 1);
    }
}

/* Compares, copies the page numbers out and marks. Returns 0, which only the result tells. */
static size_t look_up(struct tree *tree, size_t i, size_t wait, bool reads_pages)
{
    const uint32_t *ids = tree->prompts.ids[i];
    uint32_t *pages = tree->pages + tree->page_capacity * i;
    struct node *node = NULL;
    for (unsigned level = 0; level < tree->shape.level_count; level++) {
        node = &tree->nodes[tree->slots[tree->way[i][level] + wait]];
        uint32_t key_count = node->key_count;
        REQUIRE(memcmp(node->words, ids, key_count * sizeof *ids) == 0);
        ids += key_count;
        if (reads_pages) {
            size_t page_count = key_count / tree->page_size;
            memcpy(pages, node->words + key_count, page_count * sizeof *pages);
            pages += page_count;
        }
    }
    node->used = ++tree->clock;
    return (size_t)(ids - tree->prompts.ids[i]) & tree->zero;
}

static struct node *leaf_of(const struct tree *tree, size_t i)
{
    return &tree->nodes[tree->slots[tree->way[i][tree->shape.level_count - 1]]];
}

static void fetch_neighbours(const struct tree *tree, size_t i)
{
    const struct node *leaf = leaf_of(tree, i);
    fetch(&tree->nodes[leaf->older]);
    fetch(&tree->nodes[leaf->newer]);
}

static void move_to_end(struct tree *tree, size_t i)
{
    struct node *leaf = leaf_of(tree, i), *ends = &tree->nodes[tree->ends];
    tree->nodes[leaf->older].newer = leaf->newer;
    tree->nodes[leaf->newer].older = leaf->older;
    leaf->older = ends->older;
    leaf->newer = tree->ends;
    uint32_t place = (uint32_t)(leaf - tree->nodes);
    tree->nodes[ends->older].newer = place;
    ends->older = place;
}

static void single(void *context, size_t i)
{
    struct tree *tree = context;
    /* The last load of the lookup before, which the first of this one has to wait for. */
    const uint32_t *last = tree->prompts.ids[(i + BATCH - 1) % BATCH];
    size_t previous = (i + BATCH - 1) % BATCH;
    const struct node *node =
        &tree->nodes[tree->slots[tree->way[previous][tree->shape.level_count - 1]]];
    size_t wait = (node->words[node->key_count - 1] ^ last[0]) & tree->zero;
    fetch_slots(tree, i, wait);
    fetch_nodes(tree, i, wait);
    fetch_keys(tree, i, wait);
    look_up(tree, i, wait, true);
}

static inline void look_up_all(struct tree *tree, bool in_order)
{
    for (size_t at = 0; at < BATCH + 3 * AHEAD; at++) {
        if (at < BATCH) {
            fetch_slots(tree, at, 0);
        }
        if (at >= AHEAD && at - AHEAD < BATCH) {
            fetch_nodes(tree, at - AHEAD, 0);
        }
        if (at >= 2 * AHEAD && at - 2 * AHEAD < BATCH) {
            fetch_keys(tree, at - 2 * AHEAD, 0);
            if (in_order) {
                fetch_neighbours(tree, at - 2 * AHEAD);
            }
        }
        if (at >= 3 * AHEAD) {
            look_up(tree, at - 3 * AHEAD, 0, tree->reads_pages);
            if (in_order) {
                move_to_end(tree, at - 3 * AHEAD);
            }
        }
    }
}

static void batch(void *context, size_t i)
{
    (void)i;
    look_up_all(context, false);
}

static void batch_in_order(void *context, size_t i)
{
    (void)i;
    look_up_all(context, true);
}

static const struct victim *victim(const struct tree *tree, size_t eviction)
{
    size_t leaves = tree->shape.nodes[tree->shape.level_count - 1];
    return &tree->victims[eviction / tree->leaf_evictions % leaves];
}

/* In three steps: the node, what it leads to, and the states of its pages, which were taken
 * together. */
static void fetch_victims(const struct tree *tree, size_t eviction)
{
    fetch(&tree->nodes[victim(tree, eviction + 3 * AHEAD)->node]);

    const struct victim *next = victim(tree, eviction + 2 * AHEAD);
    const struct node *node = &tree->nodes[next->node];
    const uint32_t *pages = node->words + node->key_count;
    fetch(&tree->slots[next->slot]);
    fetch(&tree->nodes[next->parent]);
    fetch(node->words);
    fetch(pages);

    node = &tree->nodes[victim(tree, eviction + AHEAD)->node];
    fetch(&tree->states[node->words[node->key_count]]);
}

static void evict(void *context, size_t i)
{
    struct tree *tree = context;
    (void)i;
    size_t eviction = tree->evicted++;
    fetch_victims(tree, eviction);
    const struct victim *gone = victim(tree, eviction);
    struct node *node = &tree->nodes[gone->node];
    size_t page_count = EVICT_TOKENS / tree->page_size;
    size_t part = eviction % tree->leaf_evictions;
    const uint32_t *from = node->words + node->key_count + part * page_count;
    for (size_t page = 0; page < page_count; page++) {
        tree->pages[page] = from[page];
        tree->states[from[page]] = 1;
    }
    if (part + 1 == tree->leaf_evictions) {
        tree->slots[gone->slot + 1] = 1;
        tree->nodes[gone->parent].child_count--;
        node->used = 0;
        node->words[0] = 0;
    }
}

static void measure_lookups(struct tree *tree, const struct floor_names *names)
{
    struct meter each, all, ordered;
    floor_name(&each, names->workload, names->single != NULL ? names->single : "");
    floor_name(&all, names->workload, names->batch != NULL ? names->batch : "");
    floor_name(&ordered, names->workload,
               names->batch_in_order != NULL ? names->batch_in_order : "");
    unsigned runs = run_count(6);
    tree->reads_pages = names->batch_reads_pages;
    for (unsigned run = 0; run < runs; run++) {
        struct rng rng = {7};
        meter_begin(&each, TIMING_BATCH);
        meter_begin(&all, TIMING_BATCH);
        meter_begin(&ordered, TIMING_BATCH);
        for (size_t i = 0; i < LOOKUPS; i += BATCH) {
            if (names->single != NULL) {
                prepare(tree, &rng);
                meter_calls(&each, single, tree, BATCH);
            }
            if (names->batch != NULL) {
                prepare(tree, &rng);
                meter_calls(&all, batch, tree, 1);
            }
            if (names->batch_in_order != NULL) {
                prepare(tree, &rng);
                meter_calls(&ordered, batch_in_order, tree, 1);
            }
        }
        meter_end(&each);
        meter_end(&all);
        meter_end(&ordered);
    }
    if (names->single != NULL) {
        meter_emit(&each, "floor", tree->page_size, -1, -1);
    }
    if (names->batch != NULL) {
        meter_emit(&all, "floor", tree->page_size, -1, -1);
    }
    if (names->batch_in_order != NULL) {
        meter_emit(&ordered, "floor", tree->page_size, -1, -1);
    }
    meter_free(&each);
    meter_free(&all);
    meter_free(&ordered);
}

static void measure_evictions(struct tree *tree, const struct floor_names *names)
{
    struct meter meter;
    floor_name(&meter, names->workload, names->evict);
    unsigned runs = run_count(6);
    for (unsigned run = 0; run < runs; run++) {
        meter_begin(&meter, TIMING_BATCH);
        for (size_t i = 0; i < EVICTIONS; i += BATCH) {
            meter_calls(&meter, evict, tree, BATCH);
        }
        meter_end(&meter);
    }
    meter_emit(&meter, "floor", tree->page_size, -1, -1);
    meter_free(&meter);
}

void floor_of_tree(const struct floor_shape *shape, const struct floor_names *names,
                   uint32_t page_size)
{
    static struct tree tree;
    if (!floor_wanted(page_size)) {
        return;
    }
    open(&tree, shape, page_size);
    measure_lookups(&tree, names);
    /* Last: it damages keys. */
    if (names->evict != NULL) {
        measure_evictions(&tree, names);
    }
    close(&tree);
}
