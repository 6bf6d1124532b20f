/*
 * W7: the chat of W2 on a hybrid model: full attention, a window of 1024 and recurrent states,
 * saved where begin says. The pools are tight: about half of what all conversations take, windows
 * for half of them, and three states for five.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPINE, WINDOW, STATE, GROUPS };
enum { WINDOW_SIZE = 1024, SPINE_TOKENS = 450000, WINDOW_TOKENS = 250 * WINDOW_SIZE, STATES = 300 };

struct w7 {
    rkv_page_table *table;
    rkv_cache *cache;
    struct chat chat;
    /* Of the run that looks before each request. */
    uint64_t asked, known, reused, lost[GROUPS];
};

static void open(struct w7 *w7, uint32_t page_size)
{
    const rkv_group_config groups[GROUPS] = {
        {.kind = RKV_GROUP_FULL, .pool = SPINE},
        {.kind = RKV_GROUP_WINDOW, .pool = WINDOW, .window = WINDOW_SIZE},
        {.kind = RKV_GROUP_STATE, .pool = STATE},
    };
    const rkv_pool_config pools[GROUPS] = {{.page_count = SPINE_TOKENS / page_size + 1},
                                           {.page_count = WINDOW_TOKENS / page_size + 1},
                                           {.page_count = STATES + 1}};
    rkv_page_table_config config;
    CHECK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = page_size;
    config.slot_count = 64;
    config.groups = groups;
    config.group_count = GROUPS;
    config.pools = pools;
    config.pool_count = GROUPS;
    CHECK(rkv_page_table_create(&config, &w7->table));
    rkv_cache_config cache_config;
    CHECK(rkv_cache_config_init(&cache_config, sizeof cache_config));
    cache_config.journal_bytes = options.journal_bytes;
    CHECK(rkv_cache_create(w7->table, &cache_config, &w7->cache));
}

/* begin; to each place where states are to be saved: publish, checkpoint, confirm; to the end;
 * release. */
static void request(void *context, size_t i)
{
    struct w7 *w7 = context;
    const size_t count = w7->chat.prompts.count[i];
    rkv_tokens tokens = {
        .struct_size = sizeof tokens, .ids = w7->chat.prompts.ids[i], .count = count};
    rkv_sequence_begin_args args = {.struct_size = sizeof args, .tokens = &tokens};
    rkv_sequence_info info = {.struct_size = sizeof info};
    rkv_sequence_publish_result published = {.struct_size = sizeof published};
    args.allocate_position_count = WINDOW_SIZE;
    CHECK(rkv_sequence_begin(w7->cache, &args, &info));
    if (info.copy_count > 0) {
        CHECK(rkv_sequence_confirm_copies(w7->cache, info.sequence));
    }
    for (uint64_t computed = info.cached_position_count; computed < count;) {
        uint64_t end = computed + WINDOW_SIZE < count ? computed + WINDOW_SIZE : count;
        for (size_t at = 0; at < 2; at++) {
            const uint64_t save = info.checkpoint_at[at];
            end = computed < save && save < end ? save : end;
        }
        CHECK(rkv_sequence_allocate(w7->cache, info.sequence, end));
        CHECK(rkv_sequence_publish(w7->cache, info.sequence, end, &published));
        if (end == info.checkpoint_at[0] || end == info.checkpoint_at[1]) {
            size_t copies;
            CHECK(rkv_sequence_checkpoint(w7->cache, info.sequence, &copies));
            if (copies > 0) {
                CHECK(rkv_sequence_confirm_copies(w7->cache, info.sequence));
            }
        }
        computed = end;
    }
    CHECK(rkv_sequence_release(w7->cache, info.sequence));
    w7->reused += info.cached_position_count;
}

static void look(struct w7 *w7, size_t i)
{
    rkv_tokens tokens = {.struct_size = sizeof tokens,
                         .ids = w7->chat.prompts.ids[i],
                         .count = w7->chat.prompts.count[i]};
    rkv_group_cost costs[GROUPS];
    rkv_group_depths depths = {.struct_size = sizeof depths};
    size_t count;
    CHECK(rkv_cache_probe_groups(w7->cache, NULL, &tokens, costs, sizeof costs[0], GROUPS, &count,
                                 &depths));
    w7->asked += tokens.count;
    w7->known += depths.known_position_count;
    for (size_t group = 0; group < GROUPS; group++) {
        w7->lost[group] += costs[group].lost_position_count;
    }
}

static void run(struct w7 *w7, struct meter *meter, uint32_t page_size, unsigned number, bool last)
{
    size_t request_count = options.count ? CHAT_REQUESTS / 2 : CHAT_REQUESTS;
    const bool looks = meter == NULL;
    chat_restart(&w7->chat);
    open(w7, page_size);
    if (!looks) {
        meter_begin(meter, run_timing(number));
    }
    for (size_t first = 0; first < request_count; first += BATCH) {
        size_t count = request_count - first < BATCH ? request_count - first : BATCH;
        chat_prepare(&w7->chat, first, count);
        if (!looks) {
            meter_calls(meter, request, w7, count);
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            look(w7, i);
            request(w7, i);
        }
    }
    if (!looks) {
        meter_end(meter);
    }
    if (last && !options.count) {
        CHECK(rkv_cache_check(w7->cache));
        CHECK(rkv_page_table_check(w7->table));
    }
    rkv_cache_destroy(w7->cache);
    rkv_page_table_destroy(w7->table);
}

static void rate_emit(const char *what, uint64_t part, uint64_t whole, uint32_t page_size)
{
    struct row row = row_new("W7", what, page_size);
    row.unit = UNIT_RATIO;
    row.median = row.quiet = (double)part / (double)whole;
    row_emit(&row);
}

void run_w7(uint32_t page_size)
{
    static struct w7 w7;
    struct meter meter;
    chat_open(&w7.chat);
    if (!options.count) {
        run(&w7, NULL, page_size, 0, true);
        REQUIRE(w7.known > 0);
        rate_emit("of the positions asked for: known", w7.known, w7.asked, page_size);
        rate_emit("of the positions asked for: reused", w7.reused, w7.asked, page_size);
        rate_emit("of the known positions: lost to the window", w7.lost[WINDOW], w7.known,
                  page_size);
        rate_emit("of the known positions: lost to states", w7.lost[STATE], w7.known, page_size);
    }
    meter_init(&meter, "hybrid chat request");
    unsigned runs = run_count(14);
    for (unsigned number = 0; number < runs; number++) {
        run(&w7, &meter, page_size, number, number + 1 == runs);
    }
    meter_emit(&meter, "W7", page_size, -1, -1);
    meter_free(&meter);
    chat_close(&w7.chat);
}
