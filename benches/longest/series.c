/* Notes how long calls took: for each call of a series the least of its rounds. */
#include "longest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SERIES_LIMIT = 1024, SITUATION_LIMIT = 128, WATCHED_LIMIT = 4 };

/* From here on a call is worth a closer look: a system call, and a word with the reader. */
static const double LONG_NANOSECONDS = 20e3;

/*
 * What part of a call's own time the longest read meanwhile took, in each watched round; negative:
 * no read.
 */
struct waits {
    float part[WATCHED_LIMIT];
};

struct call {
    uint64_t own;           /* ticks */
    float part;
};

struct series {
    const char *function;
    unsigned situation;
    bool varies;            /* rounds differ in how many calls there are */
    struct call *present;   /* of those: the calls of this round */
    uint64_t *least;        /* ticks of each call */
    struct waits *waits;
    size_t count;           /* calls in this round */
    size_t length, capacity;
};

static struct series series[SERIES_LIMIT];
static unsigned series_count = 1;
static char situations[SITUATION_LIMIT][sizeof((struct longest_row *)NULL)->situation];
static unsigned situation_count = 1, present;
static bool watched, varying;
static unsigned watched_round;

void situation(const char *text)
{
    for (unsigned i = 1; i < situation_count; i++) {
        if (strcmp(situations[i], text) == 0) {
            present = i;
            return;
        }
    }
    REQUIRE(situation_count < SITUATION_LIMIT);
    snprintf(situations[situation_count], sizeof situations[0], "%s", text);
    present = situation_count++;
}

void situation_many(bool many)
{
    static const char MANY[] = ", many pages in one call";
    char text[sizeof situations[0]];
    snprintf(text, sizeof text, "%s%s", situations[present], many ? MANY : "");
    char *end = strstr(text, MANY);
    if (!many && end != NULL) {
        *end = '\0';
    }
    situation(text);
}

void round_begin(bool is_watched)
{
    watched_round += watched;
    watched = is_watched;
    REQUIRE(watched_round < WATCHED_LIMIT);
    reader_allow(is_watched);
    for (unsigned i = 1; i < series_count; i++) {
        series[i].count = 0;
    }
}

void calls_vary(bool vary)
{
    varying = vary;
}

static void note(struct series *into, size_t at, struct call call)
{
    into->least[at] = call.own < into->least[at] ? call.own : into->least[at];
    if (call.part >= 0) {
        into->waits[at].part[watched_round] = call.part;
    }
}

static int compare_calls(const void *left, const void *right)
{
    uint64_t a = ((const struct call *)left)->own;
    uint64_t b = ((const struct call *)right)->own;
    return (a < b) - (a > b);
}

/* Where rounds differ, the longest call of one stands beside the longest of another, and so on. */
static void note_by_length(struct series *into)
{
    qsort(into->present, into->count, sizeof *into->present, compare_calls);
    for (size_t at = 0; at < into->count; at++) {
        note(into, at, into->present[at]);
    }
}

void round_end(void)
{
    reader_stop();
    /* Rounds that differ would compare calls that are not the same work. */
    for (unsigned i = 1; i < series_count; i++) {
        if (series[i].varies) {
            note_by_length(&series[i]);
        } else {
            REQUIRE(series[i].count == series[i].length);
        }
    }
}

static unsigned series_of(const char *function)
{
    for (unsigned i = 1; i < series_count; i++) {
        if (series[i].situation == present && strcmp(series[i].function, function) == 0) {
            return i;
        }
    }
    REQUIRE(series_count < SERIES_LIMIT);
    series[series_count].function = function;
    series[series_count].situation = present;
    series[series_count].varies = varying;
    return series_count++;
}

static void extend(struct series *into)
{
    if (into->length == into->capacity) {
        into->capacity = into->capacity == 0 ? 64 : 2 * into->capacity;
        into->least = realloc(into->least, into->capacity * sizeof *into->least);
        into->waits = realloc(into->waits, into->capacity * sizeof *into->waits);
        REQUIRE(into->least != NULL && into->waits != NULL);
        if (into->varies) {
            into->present = realloc(into->present, into->capacity * sizeof *into->present);
            REQUIRE(into->present != NULL);
        }
    }
    into->least[into->length] = UINT64_MAX;
    for (unsigned i = 0; i < WATCHED_LIMIT; i++) {
        into->waits[into->length].part[i] = -1;
    }
    into->length++;
}

/* Nanoseconds that the processor gave to this thread. */
static double worked(void)
{
    struct timespec now;
    REQUIRE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double worked_before;

void call_begin(void)
{
    if (watched) {
        reader_forget();
    }
    worked_before = worked();
}

/*
 * What a call took: the time on the clock, or where that is long the time that the thread worked,
 * when it is less. Other programs, and a reader that was let in, are not the call's own time.
 */
static uint64_t own_ticks(uint64_t ticks)
{
    if (nanoseconds((double)ticks) < LONG_NANOSECONDS) {
        return ticks;
    }
    uint64_t own = (uint64_t)((worked() - worked_before) / nanoseconds(1));
    return own < ticks ? own : ticks;
}

void call_end(struct site *site, const char *function, uint64_t ticks)
{
    if (site->situation != present) {
        site->series = series_of(function);
        site->situation = present;
    }
    struct series *into = &series[site->series];
    REQUIRE(into->varies == varying);
    size_t at = into->count++;
    if (at == into->length) {
        extend(into);
    }
    struct call call = {.own = own_ticks(ticks), .part = -1};
    /* A short call makes nobody wait; asking the reader takes longer than the call. */
    if (watched && nanoseconds((double)ticks) > LONG_NANOSECONDS) {
        uint64_t wait = reader_longest();
        if (wait > 0) {
            float part = (float)wait / (float)call.own;
            call.part = part < 1 ? part : 1;
        }
    }
    if (into->varies) {
        into->present[at] = call;
    } else {
        note(into, at, call);
    }
}

/*
 * The median of the rounds in which the reader read at all: on a busy machine it may not run, or be
 * interrupted.
 */
static double part_of(const struct waits *waits)
{
    float seen[WATCHED_LIMIT];
    unsigned count = 0;
    for (unsigned i = 0; i < WATCHED_LIMIT; i++) {
        if (waits->part[i] >= 0) {
            unsigned at = count++;
            for (; at > 0 && seen[at - 1] > waits->part[i]; at--) {
                seen[at] = seen[at - 1];
            }
            seen[at] = waits->part[i];
        }
    }
    return count == 0 ? -1 : (double)seen[(count - 1) / 2];
}

static int compare_ticks(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static struct longest_row row_of(struct series *of)
{
    struct longest_row row = {.call_count = of->length, .p99 = -1, .wait = -1};
    snprintf(row.function, sizeof row.function, "%s", of->function);
    snprintf(row.situation, sizeof row.situation, "%s", situations[of->situation]);
    for (size_t i = 0; i < of->length; i++) {
        double wait = part_of(&of->waits[i]) * nanoseconds((double)of->least[i]) / 1e3;
        row.wait = wait > row.wait ? wait : row.wait;
    }
    qsort(of->least, of->length, sizeof *of->least, compare_ticks);
    row.longest = nanoseconds((double)of->least[of->length - 1]) / 1e3;
    if (of->length >= 100) {
        row.p99 = nanoseconds((double)of->least[of->length * 99 / 100]) / 1e3;
    }
    return row;
}

void series_report(int descriptor)
{
    for (unsigned i = 1; i < series_count; i++) {
        if (series[i].length > 0) {
            struct longest_row row = row_of(&series[i]);
            /* Smaller than PIPE_BUF, so it arrives whole. */
            REQUIRE(write(descriptor, &row, sizeof row) == (ssize_t)sizeof row);
        }
    }
}
