/* M01: every way to call the functions on snapshot caches wrongly. */
#include "misuse.h"
#include "snapshots.h"

/* What is seen of a snapshot cache, to show that a refused call left no trace. */
typedef struct shelf_view {
    rkv_snapshot_cache_stats stats;
    int order_count;
} shelf_view;

static shelf_view view(const shelf *s) {
    shelf_view now;
    memset(&now, 0, sizeof now);
    now.stats = shelf_stats(s);
    now.order_count = s->order_count;
    return now;
}

static bool same_view(const shelf *s, const shelf_view *before) {
    shelf_view now = view(s);
    return memcmp(&now, before, sizeof now) == 0 && rkv_snapshot_cache_check(s->cache) == 0;
}

/* The macros of misuse.h, on a shelf. */
#undef REFUSED
#define REFUSED(s, call, want, word)                                                              \
    do {                                                                                          \
        shelf_view before_ = view(s);                                                             \
        forget_message();                                                                         \
        CHECK_STATUS(call, want);                                                                 \
        check_report(message_names(word), __FILE__, __LINE__, #call " names " word);              \
        check_report(same_view(s, &before_), __FILE__, __LINE__, #call " changes nothing");       \
    } while (0)

/* A cache with two entries, one of them pinned, and a pin that was released. */
typedef struct shelves {
    shelf s;
    rkv_snapshot_cache_match_result pinned, released;
    uint32_t ids[4];
    rkv_tokens tokens;
} shelves;

static void open_shelves(shelves *all) {
    memset(all, 0, sizeof *all);
    all->s = new_shelf(4, 1000);
    count_up(all->ids, 4, 1);
    put(&all->s, text(all->ids, 2));
    put(&all->s, text(all->ids, 3));
    all->released = get(&all->s, text(all->ids, 2));
    let_go(&all->s, all->released);
    all->pinned = get(&all->s, text(all->ids, 3));
    all->tokens = text(all->ids, 4);
}

static void close_shelves(shelves *all) {
    let_go(&all->s, all->pinned);
    end_shelf(&all->s);
}

static void m01_snapshot_cache_create(void) {
    shelves all;
    open_shelves(&all);
    shelf *s = &all.s;
    rkv_snapshot_cache *made = NULL;
    rkv_snapshot_cache_config config, filled;
    mark(&config, sizeof config);
    BAD(s, rkv_snapshot_cache_config_init(NULL, sizeof config), "config");
    BAD(s, rkv_snapshot_cache_config_init(&config, 0), "struct_size");
    BAD(s, rkv_snapshot_cache_config_init(&config, sizeof config - 1), "struct_size");
    BAD(s, rkv_snapshot_cache_config_init(&config, SIZE_MAX), "struct_size");
    UNTOUCHED(config);
    CHECK_OK(rkv_snapshot_cache_config_init(&config, sizeof config));
    CHECK(config.struct_size == sizeof config && config.flags == 0 && config.entry_limit == 1024);
    CHECK(config.byte_limit == UINT64_MAX);
    BAD(s, rkv_snapshot_cache_create(&config, NULL), "out_cache");
    BAD_INPUT_SIZES(s, rkv_snapshot_cache_config, config, p, rkv_snapshot_cache_create(p, &made),
                    "config");
    filled = config;
    filled.flags = 1;
    BAD(s, rkv_snapshot_cache_create(&filled, &made), "flags");
    CHECK(made == NULL);
    /* any limits are fine, and NULL takes the defaults */
    filled = config;
    filled.entry_limit = filled.byte_limit = UINT64_MAX;
    CHECK_OK(rkv_snapshot_cache_create(&filled, &made));
    rkv_snapshot_cache_destroy(made);
    CHECK_OK(rkv_snapshot_cache_create(NULL, &made));
    rkv_snapshot_cache_destroy(made);
    GOOD_BIGGER_INPUT(rkv_snapshot_cache_config, config, p,
                      rkv_snapshot_cache_create(p, &made));
    rkv_snapshot_cache_destroy(made);
    close_shelves(&all);
}

/* The statistics are how the other tests see what changed, so they come first. */
static void m01_snapshot_statistics(void) {
    shelves all;
    open_shelves(&all);
    shelf *s = &all.s;
    rkv_snapshot_cache_stats stats;
    mark(&stats, sizeof stats);
    BAD(s, rkv_snapshot_cache_read_stats(NULL, &stats), "cache");
    UNTOUCHED(stats);
    OUTPUT_SIZES(s, rkv_snapshot_cache_stats, p, rkv_snapshot_cache_read_stats(s->cache, p),
                 "out_stats");
    GOOD_BIGGER_OUTPUT(rkv_snapshot_cache_stats, p, rkv_snapshot_cache_read_stats(s->cache, p));
    BAD(s, rkv_snapshot_cache_check(NULL), "cache");
    BAD(s, rkv_snapshot_cache_clear(NULL), "cache");
    close_shelves(&all);
}

static void m01_snapshot_insert(void) {
    shelves all;
    open_shelves(&all);
    shelf *s = &all.s;
    rkv_namespace space = new_namespace();
    rkv_snapshot_cache_insert_result result;
    mark(&result, sizeof result);
    result.struct_size = sizeof result;
    rkv_snapshot_cache_insert_args good = shelf_args(s, &all.tokens, 1), args;
    good.space = &space;
    BAD(s, rkv_snapshot_cache_insert(NULL, &good, &result), "cache");
    BAD(s, rkv_snapshot_cache_insert(s->cache, NULL, &result), "args");
    BAD_INPUT_SIZES(s, rkv_snapshot_cache_insert_args, good, p,
                    rkv_snapshot_cache_insert(s->cache, p, &result), "args");
    args = good;
    args.flags = 1u << 31;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, &result), "flags");
    args = good;
    args.has_next_token = 2;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, &result), "has_next_token");
    args = good;
    args.next_token = 5;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, &result), "next_token");
    args = good;
    args.tokens = NULL;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, &result), "tokens");
    uint32_t ids[3] = {1, 2, RKV_TEXT_ID_LIMIT};
    rkv_token_item item = image(1, 1, 3);
    rkv_tokens bad[] = {text(ids, 3), with_items(ids, 2, &item, 1), text(NULL, 2),
                        text(ids, SIZE_MAX / 2)};
    const char *words[] = {"tokens.ids[2]", "item_count", "tokens.ids", "tokens.ids"};
    for (size_t i = 0; i < 4; i++) {
        args.tokens = &bad[i];
        BAD(s, rkv_snapshot_cache_insert(s->cache, &args, &result), "tokens");
        CHECK(message_names(words[i]));
    }
    BAD_INPUT_SIZES(s, rkv_tokens, all.tokens, p,
                    (args.tokens = p, rkv_snapshot_cache_insert(s->cache, &args, &result)),
                    "tokens");
    args = good;
    BAD_INPUT_SIZES(s, rkv_namespace, space, p,
                    (args.space = p, rkv_snapshot_cache_insert(s->cache, &args, &result)),
                    "space");
    UNTOUCHED_STRUCT(result);
    /* the result may be NULL, but not of a wrong size */
    const uint32_t small[] = {0, 1, 8, (uint32_t)sizeof result - 1, 0xA5A5A5A5u};
    for (size_t i = 0; i < 5; i++) {
        result.struct_size = small[i];
        BAD(s, rkv_snapshot_cache_insert(s->cache, &good, &result), "out_result");
    }
    UNTOUCHED_STRUCT(result);
    /* nothing was taken over by any of these */
    CHECK_OK(rkv_snapshot_cache_insert(s->cache, &good, NULL));
    rkv_snapshot_cache_insert_args second = shelf_args(s, &all.tokens, 1);
    GOOD_BIGGER_INPUT(rkv_snapshot_cache_insert_args, second, p,
                      rkv_snapshot_cache_insert(s->cache, p, NULL));
    second = shelf_args(s, &all.tokens, 1);
    GOOD_BIGGER_OUTPUT(rkv_snapshot_cache_insert_result, p,
                       rkv_snapshot_cache_insert(s->cache, &second, p));
    close_shelves(&all);
}

static void m01_snapshot_lookups(void) {
    shelves all;
    open_shelves(&all);
    shelf *s = &all.s;
    rkv_namespace space = new_namespace();
    rkv_tokens tokens = all.tokens;
    rkv_token_item item = image(1, 1, 3);
    rkv_tokens items = with_items(all.ids, 2, &item, 1), absent = text(NULL, 2);
    rkv_snapshot_cache_match_result match;
    size_t count = 77;
    bool removed = true;
    mark(&match, sizeof match);
    match.struct_size = sizeof match;
    BAD(s, rkv_snapshot_cache_match(NULL, NULL, &tokens, 0, &match), "cache");
    BAD(s, rkv_snapshot_cache_match(s->cache, NULL, NULL, 0, &match), "tokens");
    BAD(s, rkv_snapshot_cache_match(s->cache, NULL, &tokens, 2, &match), "flags");
    BAD(s, rkv_snapshot_cache_match(s->cache, NULL, &items, 0, &match), "item_count");
    BAD(s, rkv_snapshot_cache_match(s->cache, NULL, &absent, 0, &match), "tokens.ids");
    BAD_INPUT_SIZES(s, rkv_tokens, tokens, p,
                    rkv_snapshot_cache_match(s->cache, NULL, p, 0, &match), "tokens");
    BAD_INPUT_SIZES(s, rkv_namespace, space, p,
                    rkv_snapshot_cache_match(s->cache, p, &tokens, 0, &match), "space");
    UNTOUCHED_STRUCT(match);
    OUTPUT_SIZES_FROM(s, rkv_snapshot_cache_match_result,
                 offsetof(rkv_snapshot_cache_match_result, common_token_count), p,
                 rkv_snapshot_cache_match(s->cache, NULL, &tokens, 0, p), "out_match");
    BAD(s, rkv_snapshot_cache_probe(NULL, NULL, &tokens, &count), "cache");
    BAD(s, rkv_snapshot_cache_probe(s->cache, NULL, NULL, &count), "tokens");
    BAD(s, rkv_snapshot_cache_probe(s->cache, NULL, &items, &count), "item_count");
    BAD(s, rkv_snapshot_cache_probe(s->cache, NULL, &tokens, NULL), "out_token_count");
    BAD_INPUT_SIZES(s, rkv_namespace, space, p,
                    rkv_snapshot_cache_probe(s->cache, p, &tokens, &count), "space");
    BAD(s, rkv_snapshot_cache_remove(NULL, NULL, &tokens, &removed), "cache");
    BAD(s, rkv_snapshot_cache_remove(s->cache, NULL, NULL, &removed), "tokens");
    BAD(s, rkv_snapshot_cache_remove(s->cache, NULL, &items, &removed), "item_count");
    BAD_INPUT_SIZES(s, rkv_namespace, space, p,
                    rkv_snapshot_cache_remove(s->cache, p, &tokens, &removed), "space");
    CHECK(count == 77 && removed);
    /* out_removed may be NULL */
    CHECK_OK(rkv_snapshot_cache_remove(s->cache, NULL, &tokens, NULL));
    close_shelves(&all);
}

static void m01_snapshot_pins(void) {
    shelves all;
    open_shelves(&all);
    shelf *s = &all.s;
    BAD(s, rkv_snapshot_cache_release(NULL, all.pinned.pin), "cache");
    REFUSED(s, rkv_snapshot_cache_release(s->cache, 0), RKV_STATUS_STALE_PIN, "pin");
    REFUSED(s, rkv_snapshot_cache_release(s->cache, all.released.pin), RKV_STATUS_STALE_PIN,
            "pin");
    close_shelves(&all);
}

/* A handle of another kind is told apart, both ways. */
static void m01_swapped_snapshot_handles(void) {
    shelves all;
    open_shelves(&all);
    shelf *s = &all.s;
    fixture f = new_fixture(2, 8);
    rkv_snapshot_cache *as_snapshots = (rkv_snapshot_cache *)(void *)f.cache;
    rkv_cache *as_cache = (rkv_cache *)(void *)s->cache;
    rkv_page_table *as_table = (rkv_page_table *)(void *)s->cache;
    BAD(s, rkv_snapshot_cache_check(as_snapshots), "cache");
    BAD(s, rkv_snapshot_cache_release(as_snapshots, all.pinned.pin), "cache");
    as_snapshots = (rkv_snapshot_cache *)(void *)f.table;
    BAD(s, rkv_snapshot_cache_clear(as_snapshots), "cache");
    BAD(s, rkv_cache_check(as_cache), "cache");
    BAD(s, rkv_page_table_check(as_table), "table");
    /* destroying through the wrong kind does nothing */
    rkv_snapshot_cache_destroy(as_snapshots);
    rkv_cache_destroy(as_cache);
    rkv_page_table_destroy(as_table);
    end_fixture(&f);
    close_shelves(&all);
}

int main(void) {
    RUN(m01_snapshot_statistics);
    RUN(m01_snapshot_cache_create);
    RUN(m01_snapshot_insert);
    RUN(m01_snapshot_lookups);
    RUN(m01_snapshot_pins);
    RUN(m01_swapped_snapshot_handles);
    return check_result();
}
