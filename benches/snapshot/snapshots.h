/* Shared by the benchmark of the snapshot cache: what is stored, and the scan it is measured by. */
#ifndef RADIXKV_BENCH_SNAPSHOTS_H
#define RADIXKV_BENCH_SNAPSHOTS_H

#include "../index/bench.h"

/* How stored lists hang together. */
enum shape {
    SHARED_PROMPT,  /* 1024 tokens that all share, then 32 to 128 of their own */
    CHATS,          /* 256 tokens that all share; 8 turns of 50 to 250 tokens, each turn an entry */
    NOTHING_SHARED, /* 1024 tokens of their own */
    SHAPES,
};
extern const char *const SHAPE[SHAPES];

/* The longest prompt of any shape. */
enum { PROMPT_LIMIT = 256 + 8 * 250 + 64 };

/* Tokens that a query has after the entry that it finds. */
enum { NEW_TOKENS = 16 };

/* Writes the tokens of an entry, at most PROMPT_LIMIT; returns how many there are. */
size_t list_of(enum shape shape, uint32_t entry, uint32_t *ids);

/* What a node of a tree of the first so many entries has of a list: the entry's node, or, for the
 * number behind the last one, what all of them share. Writes the list. */
struct part {
    size_t from, count;
};
struct part part_of(enum shape shape, uint32_t node, uint32_t entry_count, uint32_t *ids);
/* The nodes on the way to an entry. Returns how many there are. */
enum { WAY_LIMIT = 9 };
unsigned way_of(enum shape shape, uint32_t entry, uint32_t entry_count, uint32_t *nodes);

/* The same lists in one array, without any structure. */
struct scan {
    uint32_t **lists;
    size_t *counts;
    uint32_t *memory;
    uint32_t entry_count;
};

void scan_open(struct scan *scan, enum shape shape, uint32_t entry_count);
void scan_close(struct scan *scan);
/* Tokens of the longest list that the query begins with. */
size_t scan_longest(const struct scan *scan, const uint32_t *ids, size_t count);

/* What any tree has to do for a match and its release. */
struct floor;
struct floor_way {
    unsigned depth;
    uint32_t slots[WAY_LIMIT];
};
struct floor *floor_open(enum shape shape, uint32_t entry_count);
void floor_close(struct floor *floor);
void floor_way(const struct floor *floor, uint32_t entry, struct floor_way *way);
/* Returns the tokens of the entry. */
size_t floor_match(struct floor *floor, const struct floor_way *way, const uint32_t *ids);

/* The same entries in a tree of their own and in an index of page size 1, as a table. */
void run_trees(void);

#endif
