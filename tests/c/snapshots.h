/* A snapshot cache, and an account of what becomes of the snapshots that are put into it. */
#ifndef RKV_TESTS_SNAPSHOTS_H
#define RKV_TESTS_SNAPSHOTS_H

#include "fixture.h"

enum { NUMBER_LIMIT = 256 };

/* Snapshots are numbered from 0; a snapshot is a piece of heap that holds its number. */
typedef struct shelf {
    rkv_snapshot_cache *cache;
    int made_count;
    int destroyed[NUMBER_LIMIT]; /* how often */
    int order[NUMBER_LIMIT];     /* in which order */
    int order_count;
    void (*visit)(struct shelf *); /* called by destructors, inside the library's call */
} shelf;

static inline void destroy_number(void *data, uint64_t size_bytes, void *user_data) {
    shelf *s = user_data;
    int number = *(const int *)data;
    CHECK(size_bytes >= 1);
    CHECK(number >= 0 && number < s->made_count);
    CHECK_EQ(s->destroyed[number]++, 0);
    s->order[s->order_count++] = number;
    free(data);
    if (s->visit != NULL) {
        s->visit(s);
    }
}

static inline shelf new_shelf(uint64_t entry_limit, uint64_t byte_limit) {
    shelf s;
    rkv_snapshot_cache_config config;
    memset(&s, 0, sizeof s);
    CHECK_OK(rkv_snapshot_cache_config_init(&config, sizeof config));
    config.entry_limit = entry_limit;
    config.byte_limit = byte_limit;
    if (!CHECK_OK(rkv_snapshot_cache_create(&config, &s.cache))) {
        exit(1);
    }
    return s;
}

static inline rkv_snapshot_cache_stats shelf_stats(const shelf *s) {
    rkv_snapshot_cache_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_snapshot_cache_read_stats(s->cache, &stats));
    return stats;
}

/* Destroys the cache: no pin is out, and each snapshot was destroyed exactly once. */
static inline void end_shelf(shelf *s) {
    CHECK_OK(rkv_snapshot_cache_check(s->cache));
    CHECK_EQ(shelf_stats(s).pin_count, 0);
    CHECK_EQ(shelf_stats(s).detached_count, 0);
    rkv_snapshot_cache_destroy(s->cache);
    for (int number = 0; number < s->made_count; number++) {
        CHECK_EQ(s->destroyed[number], 1);
    }
}

static inline rkv_snapshot_cache_insert_args shelf_args(shelf *s, const rkv_tokens *tokens,
                                                  uint64_t size_bytes) {
    rkv_snapshot_cache_insert_args args;
    int *data = malloc(sizeof *data);
    if (data == NULL || s->made_count == NUMBER_LIMIT) {
        exit(1);
    }
    *data = s->made_count++;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.tokens = tokens;
    args.data = data;
    args.size_bytes = size_bytes;
    args.destructor = destroy_number;
    args.user_data = s;
    return args;
}

static inline rkv_snapshot_cache_insert_result put_args(
    shelf *s, const rkv_snapshot_cache_insert_args *args) {
    rkv_snapshot_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    CHECK_OK(rkv_snapshot_cache_insert(s->cache, args, &result));
    CHECK_OK(rkv_snapshot_cache_check(s->cache));
    return result;
}

static inline rkv_snapshot_cache_insert_result put_bytes(shelf *s, rkv_tokens tokens,
                                                   uint64_t size_bytes) {
    rkv_snapshot_cache_insert_args args = shelf_args(s, &tokens, size_bytes);
    return put_args(s, &args);
}

/* Stores the next number for a list; returns the number. */
static inline int put(shelf *s, rkv_tokens tokens) {
    CHECK_EQ(put_bytes(s, tokens, 1).stored, 1);
    return s->made_count - 1;
}

static inline rkv_snapshot_cache_match_result new_found(void) {
    rkv_snapshot_cache_match_result match;
    memset(&match, 0, sizeof match);
    match.struct_size = sizeof match;
    return match;
}

/* The match of a list, pinned. */
static inline rkv_snapshot_cache_match_result get_in(const shelf *s, const rkv_namespace *space,
                                        rkv_tokens tokens) {
    rkv_snapshot_cache_match_result match = new_found();
    CHECK_OK(rkv_snapshot_cache_match(s->cache, space, &tokens, 0, &match));
    CHECK_OK(rkv_snapshot_cache_check(s->cache));
    CHECK((match.pin == 0) == (match.token_count == 0));
    CHECK_EQ(match.full_hit, match.pin != 0 && match.token_count == tokens.count);
    return match;
}

static inline rkv_snapshot_cache_match_result get(const shelf *s, rkv_tokens tokens) {
    return get_in(s, NULL, tokens);
}

static inline void let_go(const shelf *s, rkv_snapshot_cache_match_result match) {
    CHECK_OK(rkv_snapshot_cache_release(s->cache, match.pin));
    CHECK_OK(rkv_snapshot_cache_check(s->cache));
}

/* The number of a match that is a hit; -1 for a miss. */
static inline int number_of(rkv_snapshot_cache_match_result match) {
    return match.pin == 0 ? -1 : *(const int *)match.data;
}

/* Uses an entry: a match and its release. Returns the number, -1 for a miss. */
static inline int use(const shelf *s, rkv_tokens tokens) {
    rkv_snapshot_cache_match_result match = get(s, tokens);
    int number = number_of(match);
    if (match.pin != 0) {
        let_go(s, match);
    }
    return number;
}

static inline bool take_out(const shelf *s, rkv_tokens tokens) {
    bool removed = false;
    CHECK_OK(rkv_snapshot_cache_remove(s->cache, NULL, &tokens, &removed));
    CHECK_OK(rkv_snapshot_cache_check(s->cache));
    return removed;
}

/* Tokens that a match would find. */
static inline size_t look_in(const shelf *s, const rkv_namespace *space, rkv_tokens tokens) {
    size_t found = 99;
    CHECK_OK(rkv_snapshot_cache_probe(s->cache, space, &tokens, &found));
    return found;
}

static inline size_t look(const shelf *s, rkv_tokens tokens) { return look_in(s, NULL, tokens); }

/* What was destroyed is exactly these, in this order. */
static inline bool gone_are(const shelf *s, int count, const int *numbers) {
    return s->order_count == count
           && memcmp(s->order, numbers, (size_t)count * sizeof *numbers) == 0;
}

#endif
