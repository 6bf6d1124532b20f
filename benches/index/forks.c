/*
 * Children of parents of 1k to 128k tokens: continued with 8 tokens, forked into 32, retained and
 * dropped again. Beside them what else they could do, a begin by lookup, and what remains when
 * everything else is taken away, the copy of the row.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHILDREN = 64, BEAMS = 32, SUFFIX_TOKENS = 8, ROUNDS = 64, SEED = 808 };
/* A parent ends inside a page: each child is told to copy that. */
enum { ODD_TOKENS = 5, LONGEST = 131072 + ODD_TOKENS + SUFFIX_TOKENS };
static const uint32_t LENGTH[] = {1024, 4096, 16384, 65536, 131072};
enum { LENGTHS = sizeof LENGTH / sizeof *LENGTH };

enum operation { CONTINUE, BEGIN, FORK, RELEASE, RETAIN, DROP, COPY_ROW, OPERATIONS };
static const char *const OPERATION[OPERATIONS] = {
    [CONTINUE] = "continue",
    [BEGIN] = "begin by lookup instead",
    [FORK] = "fork into 32",
    [RELEASE] = "release a child",
    [RETAIN] = "retain",
    [DROP] = "drop a retained one",
    [COPY_ROW] = "copy of the row alone",
};

struct forks {
    struct fixture fixture;
    uint32_t *ids;
    uint32_t length;
    rkv_sequence_id parent;
    rkv_sequence_id children[CHILDREN];
    rkv_sequence_fork_child forked[BEAMS];
    uint32_t *rows[CHILDREN + 1];
    size_t row_length;
};

static void go_on(void *context, size_t i)
{
    struct forks *forks = context;
    rkv_tokens tokens = {
        .struct_size = sizeof tokens, .ids = forks->ids + forks->length, .count = SUFFIX_TOKENS};
    rkv_sequence_continue_args args = {
        .struct_size = sizeof args, .parent = forks->parent, .tokens = &tokens};
    rkv_sequence_info state = {.struct_size = sizeof state};
    CHECK(rkv_sequence_continue(forks->fixture.cache, &args, &state));
    REQUIRE(state.inherited_position_count == forks->length);
    forks->children[i] = state.sequence;
}

static void begin(void *context, size_t i)
{
    struct forks *forks = context;
    rkv_tokens tokens = {.struct_size = sizeof tokens,
                         .ids = forks->ids,
                         .count = forks->length + SUFFIX_TOKENS};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info state = {.struct_size = sizeof state};
    CHECK(rkv_sequence_begin(forks->fixture.cache, &args, &state));
    REQUIRE(state.cached_position_count == page_floor(&forks->fixture, forks->length));
    forks->children[i] = state.sequence;
}

static void fork_32(void *context, size_t i)
{
    struct forks *forks = context;
    rkv_sequence_fork_args args = {
        .struct_size = sizeof args, .parent = forks->parent, .child_count = BEAMS};
    (void)i;
    CHECK(rkv_sequence_fork(forks->fixture.cache, &args, forks->forked,
                            sizeof(rkv_sequence_fork_child)));
}

static void release(void *context, size_t i)
{
    struct forks *forks = context;
    CHECK(rkv_sequence_release(forks->fixture.cache, forks->children[i]));
}

static void retain(void *context, size_t i)
{
    struct forks *forks = context;
    bool retained = false;
    CHECK(rkv_sequence_retain(forks->fixture.cache, forks->children[i], &retained));
    REQUIRE(retained);
}

static void drop(void *context, size_t i)
{
    struct forks *forks = context;
    CHECK(rkv_sequence_drop(forks->fixture.cache, forks->children[i]));
}

static void copy_row(void *context, size_t i)
{
    struct forks *forks = context;
    memcpy(forks->rows[i], forks->rows[CHILDREN], forks->row_length * sizeof **forks->rows);
}

static void open(struct forks *forks, uint32_t page_size, uint32_t length)
{
    forks->length = length + ODD_TOKENS;
    tokens_fill(SEED, length, forks->ids, forks->length + SUFFIX_TOKENS);
    /* Retained sequences may have half of the pages. */
    fixture_open(&forks->fixture, page_size, 3 * (size_t)length + 4 * CHILDREN * 64, LONGEST);
    rkv_tokens tokens = {
        .struct_size = sizeof tokens, .ids = forks->ids, .count = forks->length};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info state = {.struct_size = sizeof state};
    rkv_sequence_publish_result published = {.struct_size = sizeof published};
    CHECK(rkv_sequence_begin(forks->fixture.cache, &args, &state));
    CHECK(rkv_sequence_publish(forks->fixture.cache, state.sequence, forks->length, &published));
    forks->parent = forks->children[0] = state.sequence;
    retain(forks, 0);
    forks->row_length = length / page_size;
}

static void take_children(struct forks *forks)
{
    for (size_t i = 0; i < BEAMS; i++) {
        forks->children[i] = forks->forked[i].sequence;
    }
}

static void run(struct forks *forks, struct meter *meters, uint32_t page_size, uint32_t length,
                unsigned number, bool last)
{
    size_t rounds = options.count ? 2 : ROUNDS;
    for (int i = 0; i < OPERATIONS; i++) {
        meter_begin(&meters[i], run_timing(number));
    }
    open(forks, page_size, length);
    for (size_t round = 0; round < rounds; round++) {
        meter_calls(&meters[CONTINUE], go_on, forks, CHILDREN);
        meter_calls(&meters[RELEASE], release, forks, CHILDREN);
        meter_calls(&meters[FORK], fork_32, forks, 1);
        take_children(forks);
        meter_calls(&meters[RETAIN], retain, forks, BEAMS);
        meter_calls(&meters[DROP], drop, forks, BEAMS);
        meter_calls(&meters[BEGIN], begin, forks, CHILDREN);
        for (size_t i = 0; i < CHILDREN; i++) {
            release(forks, i);
        }
        meter_calls(&meters[COPY_ROW], copy_row, forks, CHILDREN);
    }
    if (last) {
        fixture_verify(&forks->fixture);
    }
    fixture_close(&forks->fixture);
    for (int i = 0; i < OPERATIONS; i++) {
        meter_end(&meters[i]);
    }
}

void run_forks(uint32_t page_size)
{
    static struct forks forks;
    static struct meter meters[LENGTHS][OPERATIONS];
    forks.ids = allocate(LONGEST, sizeof *forks.ids);
    for (size_t i = 0; i <= CHILDREN; i++) {
        forks.rows[i] = allocate(LONGEST / page_size + 1, sizeof **forks.rows);
    }
    unsigned runs = run_count(6);
    for (int at = 0; at < LENGTHS; at++) {
        for (int i = 0; i < OPERATIONS; i++) {
            char name[56];
            snprintf(name, sizeof name, "%s, %uk", OPERATION[i], LENGTH[at] / 1024);
            meter_init(&meters[at][i], name);
        }
        for (unsigned number = 0; number < runs; number++) {
            run(&forks, meters[at], page_size, LENGTH[at], number, number + 1 == runs);
        }
    }
    for (int i = 0; i < OPERATIONS; i++) {
        for (int at = 0; at < LENGTHS; at++) {
            meter_emit(&meters[at][i], "forks", page_size, -1, -1);
            meter_free(&meters[at][i]);
        }
    }
    for (size_t i = 0; i <= CHILDREN; i++) {
        free(forks.rows[i]);
    }
    free(forks.ids);
}
