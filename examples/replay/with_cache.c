/* The way of a request through the prefix cache: begin, publish, append, release. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "radixkv.h"
#include "replay.h"

typedef struct run {
    rkv_cache *cache;
    const replay_options *options;
    replay_result *result;
    live_queue live;
    uint64_t output_count; /* output tokens so far, over all requests */
} run;

static void publish(run *r, rkv_sequence_id sequence, uint64_t position_count)
{
    rkv_sequence_publish_result published = {.struct_size = sizeof published};
    uint64_t start = clock_nanoseconds();
    must(rkv_sequence_publish(r->cache, sequence, position_count, &published),
         "rkv_sequence_publish");
    phase_add(&r->result->publish, start, 1);
}

/* Publishes what the oldest request generated and ends it: its pages may be evicted from now on. */
static void release_oldest(run *r)
{
    live_request oldest = live_queue_pop(&r->live);
    publish(r, oldest.sequence, oldest.position_count);
    uint64_t start = clock_nanoseconds();
    must(rkv_sequence_release(r->cache, oldest.sequence), "rkv_sequence_release");
    phase_add(&r->result->release, start, 1);
}

/* Returns 0 when the pool is too small for the prompt even with nothing else alive. */
static int begin(run *r, const rkv_tokens *prompt, rkv_sequence_info *state)
{
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = prompt};
    for (;;) {
        uint64_t start = clock_nanoseconds();
        rkv_status status = rkv_sequence_begin(r->cache, &args, state);
        phase_add(&r->result->begin, start, 1);
        if (status == RKV_STATUS_OK)
            return 1;
        if (status != RKV_STATUS_OUT_OF_PAGES)
            must(status, "rkv_sequence_begin");
        if (r->live.count == 0)
            return 0;
        /* All or nothing: the refused call took no page, so waiting is all there is to do. */
        r->result->wait_count++;
        release_oldest(r);
    }
}

/* Appends the output token by token, as decoding does; returns how many tokens found room. */
static uint32_t decode(run *r, rkv_sequence_id sequence, uint32_t token_count)
{
    uint32_t id;
    rkv_tokens token = {.struct_size = sizeof token, .ids = &id, .count = 1};
    uint32_t done = 0;
    while (done < token_count) {
        rkv_status status = RKV_STATUS_OK;
        uint32_t first = done;
        uint64_t start = clock_nanoseconds();
        for (; done < token_count; done++) {
            id = trace_output_token(r->output_count + done);
            status = rkv_sequence_append(r->cache, sequence, &token);
            if (status != RKV_STATUS_OK)
                break;
        }
        phase_add(&r->result->append, start, done - first);
        if (status == RKV_STATUS_OK)
            break;
        if (status != RKV_STATUS_OUT_OF_PAGES)
            must(status, "rkv_sequence_append");
        if (r->live.count == 0) {
            r->result->cut_count++;
            break;
        }
        r->result->wait_count++;
        release_oldest(r);
    }
    r->output_count += done;
    return done;
}

static void handle(run *r, const trace_request *request, const uint32_t *tokens)
{
    rkv_tokens prompt = {
        .struct_size = sizeof prompt, .ids = tokens, .count = request->token_count};
    rkv_sequence_info state = {.struct_size = sizeof state};
    r->result->prompt_token_count += request->token_count;
    if (!prompt_fits(request, r->options, r->result))
        return;
    if (r->live.count == r->live.capacity)
        release_oldest(r);
    if (!begin(r, &prompt, &state)) {
        r->result->refused_count++;
        return;
    }
    r->result->hit_token_count += state.cached_token_count;
    /* An engine copies the KV of what it is told here; this program has no KV. */
    if (state.copy_count > 0) {
        uint64_t start = clock_nanoseconds();
        must(rkv_sequence_confirm_copies(r->cache, state.sequence), "rkv_sequence_confirm_copies");
        r->result->begin.nanoseconds += clock_nanoseconds() - start;
    }
    for (uint64_t done = state.cached_position_count; done < request->token_count;) {
        uint64_t left = request->token_count - done;
        done += left < r->options->chunk ? left : r->options->chunk;
        publish(r, state.sequence, done);
    }
    uint32_t output = output_that_fits(request, r->options, r->result);
    output = decode(r, state.sequence, output);
    /* The last token of an output was sampled, but never fed back: it has no KV. */
    live_request entry = {state.sequence, request->token_count + (output > 0 ? output - 1 : 0)};
    live_queue_push(&r->live, entry);
}

/* After the last release every page is free or reclaimable, and every invariant holds. */
static void audit(const rkv_page_table *table, const rkv_cache *cache, replay_result *result)
{
    rkv_page_table_stats pages = {.struct_size = sizeof pages};
    rkv_cache_stats counts = {.struct_size = sizeof counts};
    must(rkv_cache_check(cache), "rkv_cache_check");
    must(rkv_page_table_check(table), "rkv_page_table_check");
    must(rkv_page_table_read_stats(table, &pages), "rkv_page_table_read_stats");
    must(rkv_cache_read_stats(cache, &counts), "rkv_cache_read_stats");
    int whole = pages.free_page_count + pages.cached_page_count == pages.total_page_count;
    if (!whole || pages.reclaimable_page_count != pages.cached_page_count ||
        pages.free_slot_count != pages.slot_count || counts.sequence_count != 0) {
        fprintf(stderr, "\naudit: pages, locks or slots are left over after the last release\n");
        exit(1);
    }
    if (counts.hit_position_count < result->hit_token_count) {
        fprintf(stderr, "\naudit: the cache counted fewer hits than its sequences reported\n");
        exit(1);
    }
    result->evicted_page_count = counts.evicted_page_count;
    result->cached_position_count = counts.cached_page_count * pages.page_size;
    result->index_bytes = counts.index_bytes;
}

void replay_with_cache(const trace *t, const replay_options *options, progress *bar,
                       replay_result *result)
{
    rkv_page_table_config config;
    rkv_page_table *table;
    run r = {.options = options, .result = result};
    memset(result, 0, sizeof *result);
    result->request_count = t->request_count;
    must(rkv_page_table_config_init(&config, sizeof config), "rkv_page_table_config_init");
    config.page_size = options->page_size;
    config.page_count = options->page_count + 1; /* page 0 is reserved */
    config.slot_count = options->concurrency;
    config.row_page_limit = row_page_limit(t, options);
    must(rkv_page_table_create(&config, &table), "rkv_page_table_create");
    must(rkv_cache_create(table, NULL, &r.cache), "rkv_cache_create");
    r.live = live_queue_new(options->concurrency);
    uint32_t *tokens = malloc(t->longest * sizeof *tokens);
    if (tokens == NULL)
        abort();

    for (size_t i = 0; i < t->request_count; i++) {
        trace_prompt(t, &t->requests[i], tokens);
        handle(&r, &t->requests[i], tokens);
        progress_step(bar, t->requests[i].token_count);
    }
    while (r.live.count > 0)
        release_oldest(&r);
    audit(table, r.cache, result);

    free(tokens);
    free(r.live.entries);
    rkv_cache_destroy(r.cache);
    rkv_page_table_destroy(table);
}
