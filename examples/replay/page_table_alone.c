/* The same requests with a page table and no cache: every prompt is computed whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "radixkv.h"
#include "replay.h"

typedef struct run {
    rkv_page_table *table;
    const replay_options *options;
    replay_result *result;
    live_queue live;
} run;

static void release_oldest(run *r)
{
    live_request oldest = live_queue_pop(&r->live);
    uint64_t start = clock_nanoseconds();
    must(rkv_page_table_free_slot(r->table, (uint32_t)oldest.sequence), "rkv_page_table_free_slot");
    phase_add(&r->result->release, start, 1);
}

/* Makes the row long enough, waiting for older requests to end. Returns 0 when that won't do. */
static int reserve(run *r, uint32_t slot, uint64_t position_count)
{
    for (;;) {
        rkv_status status = rkv_page_table_reserve(r->table, slot, position_count);
        if (status == RKV_STATUS_OK)
            return 1;
        if (status != RKV_STATUS_OUT_OF_PAGES)
            must(status, "rkv_page_table_reserve");
        if (r->live.count == 0)
            return 0;
        r->result->wait_count++;
        release_oldest(r);
    }
}

static void handle(run *r, const trace_request *request)
{
    uint32_t slot;
    r->result->prompt_token_count += request->token_count;
    if (!prompt_fits(request, r->options, r->result))
        return;
    if (r->live.count == r->live.capacity)
        release_oldest(r);
    uint64_t start = clock_nanoseconds();
    must(rkv_page_table_allocate_slot(r->table, &slot), "rkv_page_table_allocate_slot");
    int fits = reserve(r, slot, request->token_count);
    phase_add(&r->result->begin, start, 1);
    if (!fits) {
        must(rkv_page_table_free_slot(r->table, slot), "rkv_page_table_free_slot");
        r->result->refused_count++;
        return;
    }
    uint32_t output_count = output_that_fits(request, r->options, r->result), done = 0;
    start = clock_nanoseconds();
    while (done < output_count && reserve(r, slot, (uint64_t)request->token_count + done + 1))
        done++;
    phase_add(&r->result->append, start, done);
    r->result->cut_count += done < output_count;
    live_queue_push(&r->live, (live_request){slot, request->token_count + done});
}

void replay_page_table_alone(const trace *t, const replay_options *options, progress *bar,
                             replay_result *result)
{
    rkv_page_table_config config;
    rkv_page_table_stats pages = {.struct_size = sizeof pages};
    run r = {.options = options, .result = result};
    memset(result, 0, sizeof *result);
    result->request_count = t->request_count;
    must(rkv_page_table_config_init(&config, sizeof config), "rkv_page_table_config_init");
    config.page_size = options->page_size;
    config.page_count = options->page_count + 1; /* page 0 is reserved */
    config.slot_count = options->concurrency;
    config.row_page_limit = row_page_limit(t, options);
    must(rkv_page_table_create(&config, &r.table), "rkv_page_table_create");
    r.live = live_queue_new(options->concurrency);

    for (size_t i = 0; i < t->request_count; i++) {
        handle(&r, &t->requests[i]);
        progress_step(bar, t->requests[i].token_count);
    }
    while (r.live.count > 0)
        release_oldest(&r);
    must(rkv_page_table_check(r.table), "rkv_page_table_check");
    must(rkv_page_table_read_stats(r.table, &pages), "rkv_page_table_read_stats");
    if (pages.free_page_count != pages.total_page_count) {
        fprintf(stderr, "\naudit: pages are left over after the last release\n");
        exit(1);
    }

    free(r.live.entries);
    rkv_page_table_destroy(r.table);
}
