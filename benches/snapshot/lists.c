/* Token lists of the three shapes, and the linear scan over them. */
#include "snapshots.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 909, TURNS = 8, CHAT_SYSTEM = 256, PROMPT_SYSTEM = 1024 };

const char *const SHAPE[SHAPES] = {
    [SHARED_PROMPT] = "shared prompt",
    [CHATS] = "chats",
    [NOTHING_SHARED] = "nothing shared",
};

/* Appends tokens that depend on (part, index) alone; the first tells lists apart. */
static size_t append(uint32_t *ids, size_t at, uint64_t part, uint32_t index, size_t count)
{
    tokens_fill(SEED + part, index, ids + at, count);
    return at + count;
}

size_t list_of(enum shape shape, uint32_t entry, uint32_t *ids)
{
    struct rng rng = {SEED + entry};
    size_t at = 0;
    switch (shape) {
    case SHARED_PROMPT:
        at = append(ids, at, 0, 0, PROMPT_SYSTEM);
        at = append(ids, at, 1, entry, 32 + rng_below(&rng, 97));
        ids[PROMPT_SYSTEM] = FRESH + entry;
        return at;
    case CHATS: {
        uint32_t chat = entry / TURNS;
        at = append(ids, at, 2, 0, CHAT_SYSTEM);
        for (uint32_t turn = 0; turn <= entry % TURNS; turn++) {
            struct rng length = {SEED + chat * TURNS + turn};
            at = append(ids, at, 3 + turn, chat, 50 + rng_below(&length, 201));
        }
        ids[CHAT_SYSTEM] = FRESH + chat;
        return at;
    }
    default:
        at = append(ids, at, 20, entry, PROMPT_SYSTEM);
        ids[0] = FRESH + entry;
        return at;
    }
}

struct part part_of(enum shape shape, uint32_t node, uint32_t entry_count, uint32_t *ids)
{
    size_t system = shape == CHATS ? CHAT_SYSTEM : shape == SHARED_PROMPT ? PROMPT_SYSTEM : 0;
    if (node == entry_count) {
        list_of(shape, 0, ids);
        return (struct part){.from = 0, .count = system};
    }
    bool goes_on = shape == CHATS && node % TURNS > 0;
    size_t from = goes_on ? list_of(shape, node - 1, ids) : system;
    return (struct part){.from = from, .count = list_of(shape, node, ids) - from};
}

unsigned way_of(enum shape shape, uint32_t entry, uint32_t entry_count, uint32_t *nodes)
{
    unsigned depth = 0;
    if (shape != NOTHING_SHARED) {
        nodes[depth++] = entry_count;
    }
    uint32_t first = shape == CHATS ? entry / TURNS * TURNS : entry;
    while (first <= entry) {
        nodes[depth++] = first++;
    }
    return depth;
}

void scan_open(struct scan *scan, enum shape shape, uint32_t entry_count)
{
    static uint32_t ids[PROMPT_LIMIT];
    size_t total = 0;
    scan->entry_count = entry_count;
    scan->lists = allocate(entry_count, sizeof *scan->lists);
    scan->counts = allocate(entry_count, sizeof *scan->counts);
    for (uint32_t i = 0; i < entry_count; i++) {
        total += scan->counts[i] = list_of(shape, i, ids);
    }
    scan->memory = allocate(total, sizeof *scan->memory);
    total = 0;
    for (uint32_t i = 0; i < entry_count; i++) {
        scan->lists[i] = scan->memory + total;
        total += list_of(shape, i, scan->lists[i]);
    }
}

void scan_close(struct scan *scan)
{
    free(scan->lists);
    free(scan->counts);
    free(scan->memory);
}

size_t scan_longest(const struct scan *scan, const uint32_t *ids, size_t count)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < scan->entry_count; i++) {
        /* Shorter lists than the best are out, and so is a list with another first token. */
        size_t length = scan->counts[i];
        if (length > longest && length <= count && scan->lists[i][0] == ids[0] &&
            memcmp(scan->lists[i], ids, length * sizeof *ids) == 0) {
            longest = length;
        }
    }
    return longest;
}
