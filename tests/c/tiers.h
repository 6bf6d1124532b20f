/* An engine with tiers below its cache, for the programs that test them. */
#ifndef TESTS_TIERS_H
#define TESTS_TIERS_H

#include "misuse.h"

#include <time.h>

enum { PAGE = 4, PAGES = 24, BYTES = 96, MINUTE = 60000 };

static int event_fd = -1;

/* An engine in the small: its KV memory says which tokens were computed into a page. */
typedef struct engine {
    fixture f;
    uint8_t kv[PAGES + 1][BYTES];
    rkv_fetch_end ends[16];
    size_t end_count;
    size_t loads, stores;
} engine;

static fixture journal_fixture(void) {
    fixture f = {new_table(PAGE, PAGES + 1, 8), NULL, PAGE};
    rkv_cache_config config;
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.journal_bytes = 1 << 16;
    config.index = fixture_index;
    CHECK_OK(rkv_cache_create(f.table, &config, &f.cache));
    return f;
}

static rkv_tier_config tier_config(void) {
    rkv_tier_config config;
    CHECK_OK(rkv_tier_config_init(&config, sizeof config));
    config.page_bytes = BYTES;
    config.host_bytes = 16 * BYTES;
    config.event_fd = event_fd;
    return config;
}

static rkv_tier_stats tier_stats(const fixture *f) {
    rkv_tier_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_cache_read_tier_stats(f->cache, &stats));
    return stats;
}

static void pause_a_little(void) {
    const struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

/* One step of the engine: what there is to copy is copied. */
static void step(engine *e) {
    rkv_copy_job jobs[8];
    rkv_cache_poll_result polled = {.struct_size = sizeof polled};
    CHECK_OK(rkv_cache_poll(e->f.cache, jobs, sizeof *jobs, 8, e->ends + e->end_count,
                            sizeof *e->ends, 16 - e->end_count, &polled));
    e->end_count += polled.end_count;
    for (size_t i = 0; i < polled.job_count; i++) {
        uint8_t *page = e->kv[jobs[i].page];
        CHECK_EQ(jobs[i].byte_count, BYTES);
        if (jobs[i].direction == RKV_COPY_LOAD) {
            CHECK(jobs[i].sequence != 0);
            memcpy(page, jobs[i].host, BYTES);
            e->loads++;
        } else {
            CHECK_EQ(jobs[i].sequence, 0);
            memcpy(jobs[i].host, page, BYTES);
            e->stores++;
        }
        CHECK_OK(rkv_cache_complete(e->f.cache, &jobs[i].job, 1, true));
    }
}

/* Until the tiers have so many pages in host memory and on disk. */
static void until_stored(engine *e, uint64_t host, uint64_t disk) {
    for (int i = 0; i < MINUTE; i++) {
        step(e);
        rkv_tier_stats stats = tier_stats(&e->f);
        if (stats.host.stored_page_count >= host && stats.disk.stored_page_count >= disk) {
            return;
        }
        pause_a_little();
    }
    CHECK(false);
}

static rkv_fetch_end until_fetched(engine *e) {
    for (int i = 0; i < MINUTE && e->end_count == 0; i++) {
        step(e);
        pause_a_little();
    }
    CHECK_EQ(e->end_count, 1);
    e->end_count = 0;
    return e->ends[0];
}

static uint8_t computed(const uint32_t *ids, size_t page) {
    uint32_t sum = 7;
    for (size_t i = 0; i < (page + 1) * PAGE; i++) {
        sum = sum * 31 + ids[i];
    }
    return (uint8_t)(sum >> 8 | 1);
}

/* The whole pages of a sequence from one on, as they would be computed. */
static void compute(engine *e, const rkv_sequence_info *state, const uint32_t *ids) {
    uint32_t row[PAGES];
    size_t count = 0;
    CHECK_OK(rkv_page_table_read_row(e->f.table, state->slot, 0, row, PAGES, &count));
    for (size_t page = 0; page < state->position_count / PAGE; page++) {
        uint8_t *there = e->kv[row[page]];
        if (page < state->cached_position_count / PAGE) {
            CHECK(there[0] == computed(ids, page) && there[BYTES - 1] == there[0]);
        } else {
            memset(there, computed(ids, page), BYTES);
        }
    }
    rkv_sequence_publish_result done = {.struct_size = sizeof done};
    CHECK_OK(rkv_sequence_publish(e->f.cache, state->sequence, state->position_count, &done));
}

static rkv_sequence_info info(engine *e, rkv_sequence_id id) {
    rkv_sequence_info state = {.struct_size = sizeof state};
    CHECK_OK(rkv_sequence_read_info(e->f.cache, id, &state));
    return state;
}

/* A request to its end; the positions that were fetched. */
static uint64_t request(engine *e, uint32_t *ids, size_t count) {
    rkv_sequence_info state = begin(&e->f, text(ids, count));
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    CHECK_OK(rkv_sequence_fetch(e->f.cache, state.sequence, UINT64_MAX, 0, &fetch));
    uint64_t before = state.cached_position_count;
    if (fetch.is_open) {
        rkv_sequence_publish_result done = {.struct_size = sizeof done};
        CHECK_STATUS(rkv_sequence_publish(e->f.cache, state.sequence, 1, &done),
                     RKV_STATUS_PENDING);
        rkv_fetch_end end = until_fetched(e);
        CHECK_EQ(end.sequence, state.sequence);
        CHECK_EQ(end.flags, 0);
        CHECK_EQ(end.brought_page_count, end.wanted_page_count);
        state = info(e, state.sequence);
        CHECK_EQ(end.position_count, state.cached_position_count);
    } else if (state.copy_count > 0) {
        CHECK_OK(rkv_sequence_confirm_copies(e->f.cache, state.sequence));
    }
    compute(e, &state, ids);
    release(&e->f, state.sequence);
    return state.cached_position_count - before;
}

static void end_engine(engine *e) {
    CHECK_OK(rkv_cache_check(e->f.cache));
    end_fixture(&e->f);
}

#endif
