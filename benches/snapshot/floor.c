/*
 * The floor of a match and its release: what any tree has to do for them, in memory of the size
 * that these things need at least, and nothing else.
 *
 * For each node of the way down the slot that leads to it, 4 bytes of a table that is half full,
 * the node's line of 64 bytes, and all of its tokens compared with the query's. Where the next slot
 * is depends on the node, since that says how many tokens it has; what it is was told beforehand.
 * At the end the entry is read, and pinning and releasing it moves it to the end of an order of
 * use: two writes to the node, and one to each of its neighbours.
 *
 * Left out: hashing, collisions, the locks, checks of arguments, numbers of pins, statistics,
 * namespaces, entries that are found on the way to none.
 */
#include "snapshots.h"

#include <stdlib.h>
#include <string.h>

/* Slots for each node. */
enum { SPREAD = 2 };

struct floor_node {
    const uint32_t *tokens;
    uint64_t *entry;            /* NULL: none ends here */
    uint32_t token_count, before, after, readers;
    char rest[32];
};

/* As large as what the library keeps of an entry. */
struct floor_entry {
    uint64_t words[6];
};

struct floor {
    enum shape shape;
    uint32_t node_count;
    uint32_t *place, *slot_of;  /* of the nodes, by number: not part of what is measured */
    uint32_t *slots;
    struct floor_node *nodes;
    uint32_t *tokens;
    struct floor_entry *entries;
    size_t slot_bytes, node_bytes, token_bytes, entry_bytes;
    uint32_t newest;
    size_t zero;                /* the compiler does not know that it is */
    uint64_t sum;
};

struct floor *floor_open(enum shape shape, uint32_t entry_count)
{
    static uint32_t ids[PROMPT_LIMIT];
    struct floor *floor = allocate(1, sizeof *floor);
    memset(floor, 0, sizeof *floor);
    struct rng rng = {entry_count};
    /* The node that all share is the last one. */
    uint32_t node_count = entry_count + 1;
    floor->shape = shape;
    floor->node_count = node_count;
    size_t total = 0;
    for (uint32_t i = 0; i < node_count; i++) {
        total += part_of(shape, i, entry_count, ids).count;
    }
    floor->slot_bytes = sizeof *floor->slots * SPREAD * node_count;
    floor->node_bytes = sizeof *floor->nodes * node_count;
    floor->entry_bytes = sizeof *floor->entries * node_count;
    floor->token_bytes = sizeof *floor->tokens * (total + 1);
    floor->slots = floor_memory(floor->slot_bytes);
    floor->nodes = floor_memory(floor->node_bytes);
    floor->entries = floor_memory(floor->entry_bytes);
    floor->tokens = floor_memory(floor->token_bytes);
    floor->place = rng_order(&rng, node_count);
    floor->slot_of = rng_order(&rng, SPREAD * node_count);
    uint32_t *order = rng_order(&rng, node_count), *neighbour = rng_order(&rng, node_count);
    uint32_t *at = floor->tokens;
    for (uint32_t i = 0; i < node_count; i++) {
        struct part part = part_of(shape, order[i], entry_count, ids);
        struct floor_node *node = &floor->nodes[floor->place[order[i]]];
        memcpy(at, ids + part.from, part.count * sizeof *at);
        *node = (struct floor_node){
            .tokens = at,
            .entry = floor->entries[i].words,
            .token_count = (uint32_t)part.count,
            .before = neighbour[i],
            .after = neighbour[(i + 1) % node_count],
        };
        at += part.count;
        floor->slots[floor->slot_of[order[i]]] = floor->place[order[i]];
    }
    free(order);
    free(neighbour);
    return floor;
}

void floor_close(struct floor *floor)
{
    floor_memory_free(floor->slots, floor->slot_bytes);
    floor_memory_free(floor->nodes, floor->node_bytes);
    floor_memory_free(floor->entries, floor->entry_bytes);
    floor_memory_free(floor->tokens, floor->token_bytes);
    free(floor->place);
    free(floor->slot_of);
    free(floor);
}

void floor_way(const struct floor *floor, uint32_t entry, struct floor_way *way)
{
    uint32_t nodes[WAY_LIMIT];
    way->depth = way_of(floor->shape, entry, floor->node_count - 1, nodes);
    for (unsigned level = 0; level < way->depth; level++) {
        way->slots[level] = floor->slot_of[nodes[level]];
    }
}

size_t floor_match(struct floor *floor, const struct floor_way *way, const uint32_t *ids)
{
    size_t found = 0, carried = 0;
    struct floor_node *node = NULL;
    for (unsigned level = 0; level < way->depth; level++) {
        node = &floor->nodes[floor->slots[way->slots[level] + (carried & floor->zero)]];
        carried = node->token_count;
        if (memcmp(node->tokens, ids + found, carried * sizeof *ids) != 0) {
            return 0;
        }
        found += carried;
    }
    uint32_t self = (uint32_t)(node - floor->nodes);
    floor->sum += node->entry[0] + node->entry[1];
    /* Out of the order, and in again at its end. */
    node->readers++;
    floor->nodes[node->before].readers ^= floor->zero;
    floor->nodes[node->after].readers ^= floor->zero;
    node->readers--;
    floor->nodes[floor->newest].readers ^= floor->zero;
    floor->newest = self;
    return found;
}
