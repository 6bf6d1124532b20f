/*
 * Floors: what any index has to do for a workload on this machine, and nothing else. They are
 * measured in the process of the workload, after it, and stand in the column "limit" beside the
 * rows that they are the floor of.
 */
#ifndef RADIXKV_BENCH_FLOOR_H
#define RADIXKV_BENCH_FLOOR_H

#include "bench.h"

enum { FLOOR_LEVELS = 6 };

/* A tree by levels: so many nodes of so many keys each, and which one is above a leaf. */
struct floor_shape {
    uint64_t seed;
    unsigned level_count;
    uint32_t nodes[FLOOR_LEVELS];
    uint32_t keys[FLOOR_LEVELS];
};

/* Rows that a floor is measured for; NULL for those that are not there. */
struct floor_names {
    const char *workload;
    const char *single;         /* one lookup */
    const char *batch;          /* 64 in one call */
    const char *batch_in_order; /* the same, and the order of last use is kept */
    const char *evict;          /* 64 tokens */
    bool batch_reads_pages;
};

void floor_of_tree(const struct floor_shape *shape, const struct floor_names *names,
                   uint32_t page_size);
/* One of `document_count` documents of `token_count` tokens, matched whole. */
void floor_of_documents(const char *workload, const char *operation, uint32_t document_count,
                        uint32_t token_count, uint32_t page_size);
/* A request for which as much has to go as comes. */
void floor_of_churn(const char *workload, const char *operation, uint32_t page_size);
/* Whether rows of this page size have targets. */
bool floor_wanted(uint32_t page_size);
void floor_name(struct meter *meter, const char *workload, const char *operation);

#endif
