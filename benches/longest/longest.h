/*
 * Shared by the benchmark of the longest calls: what notes how long each call took, and the worlds
 * in which calls are made.
 *
 * A world is one function in one file. It builds something large, makes every call that it is
 * about, and destroys all again, and does so round after round with the same calls: the n-th call
 * of a series is the same work in every round, so the least of its times is free of whatever else
 * the machine did. In half of the rounds a second thread reads the page table all the time, and
 * how long its reads take while a call runs is noted beside that call.
 */
#ifndef RADIXKV_BENCH_LONGEST_H
#define RADIXKV_BENCH_LONGEST_H

#include "../index/bench.h"

/* ---- series: the calls of one function in one situation ----------------------------------- */

/* Where in the source calls are made, so that their series need not be looked for each time. */
struct site {
    unsigned situation;     /* 0: not looked for yet */
    unsigned series;
};

/* What the calls that follow have in common, e.g. "10^6 nodes, page 16". */
void situation(const char *text);
/* Says of the calls that follow that they are about far more pages than an engine's, or ends it. */
void situation_many(bool many);
/*
 * Says that how many calls follow is not the same in every round, as where something is waited for,
 * or ends it. The longest call of a round is then compared with the longest of another. A function
 * has in one situation either such calls or others.
 */
void calls_vary(bool vary);
/* Between the calls of a round: which one it is, and whether a reader is there. */
void round_begin(bool is_watched);
void round_end(void);

void call_begin(void);
void call_end(struct site *site, const char *function, uint64_t ticks);

/* Makes a call, and notes how long it took. A call that fails ends the program. */
#define TIME(function, ...)                                                       \
    do {                                                                          \
        static struct site site_;                                                 \
        call_begin();                                                             \
        uint64_t start_ = ticks_now();                                            \
        rkv_status status_ = function(__VA_ARGS__);                               \
        uint64_t taken_ = ticks_now() - start_;                                   \
        check_status(status_, #function, __FILE__, __LINE__);                     \
        call_end(&site_, #function, taken_);                                      \
    } while (0)

/* The same for functions that return nothing. */
#define TIME_VOID(function, ...)                                                  \
    do {                                                                          \
        static struct site site_;                                                 \
        call_begin();                                                             \
        uint64_t start_ = ticks_now();                                            \
        function(__VA_ARGS__);                                                    \
        uint64_t taken_ = ticks_now() - start_;                                   \
        call_end(&site_, #function, taken_);                                      \
    } while (0)

/* One line of the result; times in microseconds. */
struct longest_row {
    char function[48];
    char situation[72];
    uint64_t call_count;    /* of one round */
    double longest;         /* each call at the quickest of its rounds */
    double p99;             /* of those; negative for fewer than 100 calls */
    double wait;            /* longest read meanwhile; negative: none was seen */
};
/* Sends the rows of all series, when the rounds are over. */
void series_report(int descriptor);

/* ---- the reader --------------------------------------------------------------------------- */

/* Reads take the lock that the calls take. Both end before what they read is destroyed. */
void reader_of_pages(const rkv_page_table *table);
void reader_of_snapshots(rkv_snapshot_cache *cache);
void reader_stop(void);
/* For call_begin() and call_end(): forget what was seen; the longest read since, in ticks, or 0. */
void reader_forget(void);
uint64_t reader_longest(void);
void reader_allow(bool allowed);

/* ---- the header --------------------------------------------------------------------------- */

/* Prints how many functions there are, and which are missing; false when one is. */
bool covers_header(const char *path, const struct longest_row *rows, size_t row_count,
                   bool names_missing);

/* ---- worlds ------------------------------------------------------------------------------- */

/* Sizes; --small divides them by SMALLER, to try the program. */
enum { SMALLER = 32 };

struct sizes {
    uint32_t nodes, slots, pages, snapshots, siblings, namespaces, retained, images;
    uint32_t positions;     /* of the long prompts and rows */
    uint32_t depth;         /* nodes on one path */
    uint32_t cleared;       /* nodes that are cleared in one call */
    uint32_t stored;        /* pages, or snapshots, below memory */
};
extern struct sizes sizes;

void world_nodes(uint32_t page_size, uint32_t index);
void world_siblings(uint32_t page_size, uint32_t index);
void world_path(uint32_t page_size, uint32_t index);
void world_namespaces(uint32_t page_size, uint32_t index);
void world_images(uint32_t page_size, uint32_t index);
void world_long(uint32_t page_size, uint32_t index);
void world_path_of_groups(uint32_t page_size, uint32_t index);
void world_slots(uint32_t page_size, uint32_t index);
void world_retained(uint32_t page_size, uint32_t index);
void world_pages(uint32_t page_size, uint32_t index);
void world_journal(uint32_t page_size, uint32_t index);
void world_runner(uint32_t page_size, uint32_t index);
void world_snapshots(uint32_t page_size, uint32_t index);
void world_snapshot_chain(uint32_t page_size, uint32_t index);
void world_path_of_images(uint32_t page_size, uint32_t index);
void world_meanwhile(uint32_t page_size, uint32_t index);
void world_batches(uint32_t page_size, uint32_t index);
void world_chunks(uint32_t page_size, uint32_t index);
void world_clear(uint32_t page_size, uint32_t index);
void world_groups(uint32_t page_size, uint32_t index);
void world_long_windows(uint32_t page_size, uint32_t index);
void world_group_tiers(uint32_t page_size, uint32_t index);
void world_tiers(uint32_t page_size, uint32_t index);
void world_snapshot_tiers(uint32_t page_size, uint32_t index);

/* ---- what worlds have in common ----------------------------------------------------------- */

struct house {
    rkv_page_table *table;
    rkv_cache *cache;
    uint32_t page_size;
};
/* The journal that the next caches get. */
extern uint64_t house_journal_bytes;
/* Positions of a sliding window in a group of layers beside the first; 0 for none. */
extern uint32_t house_window;
/* Creates both, timed; the reader starts. `retained` of 0 takes the default. */
struct house house_open(uint32_t page_size, uint32_t page_count, uint32_t slot_count,
                        uint32_t index, uint32_t retained);
/* Destroys both, timed; the reader ends between the two. */
void house_close(struct house *house);
/* The calls that look at all of it, `count` of each but for those that go through everything. */
void house_looks(const struct house *house, unsigned count);

rkv_tokens text(const uint32_t *ids, size_t count);
/* Begin, publish all, release; each timed. */
void request(const struct house *house, const rkv_namespace *space, const rkv_tokens *tokens);
rkv_sequence_info begin(const struct house *house, const rkv_namespace *space,
                         const rkv_tokens *tokens);
void publish(const struct house *house, const rkv_sequence_info *state);
rkv_cache_match_result match(const struct house *house, const rkv_tokens *tokens, uint32_t *pages,
                size_t capacity);
void evict(const struct house *house, size_t page_count);
/* As much as nobody asks for, to see who waits for it. */
void evict_much(const struct house *house, size_t page_count);
/* Calls on nodes that a match found. */
void on_node(const struct house *house, rkv_node_id node);

/* ---- a directory -------------------------------------------------------------------------- */

/* A new directory below TMPDIR; it goes with all that is in it. */
const char *directory_make(void);
void directory_remove(void);

#endif
