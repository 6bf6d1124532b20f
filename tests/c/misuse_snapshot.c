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
    BAD_INPUT_SIZES_FROM(s, rkv_snapshot_cache_insert_args,
                         offsetof(rkv_snapshot_cache_insert_args, parts), good, p,
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

/* What a snapshot is made of: every way to say it wrongly. */
static void m01_snapshot_parts(void) {
    shelves all;
    open_shelves(&all);
    shelf *s = &all.s;
    uint8_t bytes[4] = {1, 2, 3, 4};
    rkv_snapshot_part parts[2] = {{bytes, 4}, {NULL, 0}};
    rkv_snapshot_cache_insert_args good = shelf_args(s, &all.tokens, sizeof(int)), args;
    good.flags = RKV_SNAPSHOT_INSERT_STORABLE;
    good.parts = parts;
    good.part_count = 2;
    good.part_size = sizeof parts[0];
    args = good;
    args.flags = 0;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, NULL), "args.parts");
    args.parts = NULL;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, NULL), "args.parts");
    args = good;
    args.parts = NULL;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, NULL), "args.parts");
    args = good;
    args.part_count = 0;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, NULL), "args.part_count");
    args.part_count = UINT64_MAX;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, NULL), "args.part");
    const uint64_t sizes[] = {0, 1, 8, 15, 17, 1000000, UINT64_MAX};
    for (size_t at = 0; at < sizeof sizes / sizeof sizes[0]; at++) {
        args = good;
        args.part_size = sizes[at];
        BAD(s, rkv_snapshot_cache_insert(s->cache, &args, NULL), "args.part_size");
    }
    parts[1].size_bytes = 1;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &good, NULL), "args.parts[1].data");
    parts[1].data = bytes;
    parts[1].size_bytes = UINT64_MAX;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &good, NULL), "args.parts[1].size_bytes");
    parts[1].size_bytes = 0;
    /* without parts, data is the part */
    args = good;
    args.parts = NULL;
    args.part_count = args.part_size = 0;
    args.data = NULL;
    BAD(s, rkv_snapshot_cache_insert(s->cache, &args, NULL), "args.data");
    /* nothing was taken over; nothing is below memory, and that is no error */
    CHECK_OK(rkv_snapshot_cache_insert(s->cache, &good, NULL));
    rkv_snapshot_cache_match_result match = get(s, all.tokens);
    CHECK_EQ(match.is_copy, 0);
    rkv_snapshot_part found[2];
    size_t count = 77;
    mark(found, sizeof found);
    rkv_snapshot_cache *cache = s->cache;
    rkv_pin_id pin = match.pin;
    const size_t size = sizeof found[0];
    BAD(s, rkv_snapshot_cache_read_parts(NULL, pin, found, size, 2, &count), "cache");
    BAD(s, rkv_snapshot_cache_read_parts(cache, pin, found, size - 1, 2, &count), "part_size");
    BAD(s, rkv_snapshot_cache_read_parts(cache, pin, found, size, 2, NULL), "out_count");
    REFUSED(s, rkv_snapshot_cache_read_parts(cache, 0, found, size, 2, &count),
            RKV_STATUS_STALE_PIN, "pin");
    CHECK_EQ(count, 77);
    REFUSED(s, rkv_snapshot_cache_read_parts(cache, pin, found, size, 1, &count),
            RKV_STATUS_BUFFER_TOO_SMALL, "parts");
    CHECK_EQ(count, 2);
    UNTOUCHED(found);
    CHECK_OK(rkv_snapshot_cache_read_parts(cache, pin, found, size, 2, &count));
    CHECK(found[0].data == bytes && found[0].size_bytes == 4 && found[1].size_bytes == 0);
    CHECK_OK(rkv_snapshot_cache_read_parts(cache, all.pinned.pin, found, size, 2, &count));
    CHECK_EQ(count, 0);
    let_go(s, match);
    close_shelves(&all);
}

/* What is below memory: calls that come without it, and configs that make no sense. */
static void m01_snapshot_tiers(void) {
    shelves all;
    open_shelves(&all);
    shelf *s = &all.s;
    rkv_snapshot_cache *cache = s->cache;
    rkv_snapshot_tier_config config, bad;
    mark(&config, sizeof config);
    BAD(s, rkv_snapshot_tier_config_init(NULL, sizeof config), "config");
    BAD(s, rkv_snapshot_tier_config_init(&config, 0), "struct_size");
    const size_t first = offsetof(rkv_snapshot_tier_config, remote);
    BAD(s, rkv_snapshot_tier_config_init(&config, first - 1), "struct_size");
    UNTOUCHED(config);
    CHECK_OK(rkv_snapshot_tier_config_init(&config, sizeof config));
    CHECK(config.struct_size == sizeof config && config.event_fd == -1);
    CHECK(config.directory == NULL && config.byte_limit == 0);
    config.directory = "/proc/no/such/place";
    config.byte_limit = 1 << 20;
    BAD(s, rkv_snapshot_cache_attach(NULL, &config), "cache");
    BAD(s, rkv_snapshot_cache_attach(cache, NULL), "config");
    BAD_INPUT_SIZES_FROM(s, rkv_snapshot_tier_config, first, config, p,
                         rkv_snapshot_cache_attach(cache, p), "config");
#define BAD_FIELD(field, value)                                                                   \
    do {                                                                                          \
        bad = config;                                                                             \
        bad.field = value;                                                                        \
        BAD(s, rkv_snapshot_cache_attach(cache, &bad), "config." #field);                         \
    } while (0)
    BAD_FIELD(flags, 1);
    BAD_FIELD(directory, NULL);
    BAD_FIELD(directory, "");
    BAD_FIELD(byte_limit, 0);
    BAD_FIELD(byte_limit, 1);
    BAD_FIELD(byte_limit, 4096); /* a block, and no note */
    BAD_FIELD(worker_count, 0);
    BAD_FIELD(worker_count, 65);
    BAD_FIELD(waiting_byte_limit, 0);
    BAD_FIELD(commit_interval_ms, 0);
    BAD_FIELD(commit_interval_ms, 60001);
    BAD_FIELD(event_fd, -2);
    BAD_FIELD(event_fd, 1000000);
    BAD_FIELD(remote_timeout_ms, 1);
    BAD_FIELD(reserved, 1);
    rkv_remote_store remote = {.struct_size = sizeof remote};
    BAD_FIELD(remote, &remote); /* without functions */
    config.remote = &remote;
    BAD_FIELD(directory, NULL); /* and a limit */
    config.remote = NULL;
    REFUSED(s, rkv_snapshot_cache_attach(cache, &config), RKV_STATUS_STORAGE,
            "/proc/no/such/place");
    /* of a name that is longer than a message the end is told, and what is wrong with it */
    char far[2048] = "/proc";
    while (strlen(far) < 1500) {
        strcat(far, "/a-name-that-is-not-there");
    }
    config.directory = strcat(far, "/last");
    REFUSED(s, rkv_snapshot_cache_attach(cache, &config), RKV_STATUS_STORAGE, "there/last");
    REFUSED(s, rkv_snapshot_cache_attach(cache, &config), RKV_STATUS_STORAGE, "cannot be opened");
    BAD(s, rkv_snapshot_cache_detach(NULL, 0), "cache");
    REFUSED(s, rkv_snapshot_cache_detach(cache, 0), RKV_STATUS_INVALID_STATE, "attached");
    BAD(s, rkv_snapshot_cache_flush(NULL, 0), "cache");
    REFUSED(s, rkv_snapshot_cache_flush(cache, 0), RKV_STATUS_INVALID_STATE, "attached");

    rkv_snapshot_cache_fetch_result started;
    rkv_tokens tokens = all.tokens;
    rkv_namespace space = new_namespace();
    rkv_token_item item = image(1, 1, 3);
    rkv_tokens items = with_items(all.ids, 2, &item, 1);
    mark(&started, sizeof started);
    started.struct_size = sizeof started;
    BAD(s, rkv_snapshot_cache_fetch(NULL, NULL, &tokens, 0, &started), "cache");
    BAD(s, rkv_snapshot_cache_fetch(cache, NULL, NULL, 0, &started), "tokens");
    BAD(s, rkv_snapshot_cache_fetch(cache, NULL, &items, 0, &started), "item_count");
    BAD(s, rkv_snapshot_cache_fetch(cache, NULL, &tokens, 2, &started), "flags");
    BAD_INPUT_SIZES(s, rkv_namespace, space, p,
                    rkv_snapshot_cache_fetch(cache, p, &tokens, 0, &started), "space");
    UNTOUCHED_STRUCT(started);
    OUTPUT_SIZES(s, rkv_snapshot_cache_fetch_result, p,
                 rkv_snapshot_cache_fetch(cache, NULL, &tokens, 0, p), "out_fetch");
    /* with nothing below memory there is nothing to fetch */
    CHECK_OK(rkv_snapshot_cache_fetch(cache, NULL, &tokens, 0, &started));
    CHECK(started.ticket == 0 && started.token_count == 0);

    rkv_snapshot_cache_match_result match;
    mark(&match, sizeof match);
    match.struct_size = sizeof match;
    BAD(s, rkv_snapshot_cache_take(NULL, 1, &match), "cache");
    BAD(s, rkv_snapshot_cache_take(cache, 1, NULL), "out_match");
    REFUSED(s, rkv_snapshot_cache_take(cache, 1, &match), RKV_STATUS_STALE_TICKET, "ticket");
    UNTOUCHED_STRUCT(match);
    BAD(s, rkv_snapshot_cache_cancel(NULL, 1), "cache");
    REFUSED(s, rkv_snapshot_cache_cancel(cache, 1), RKV_STATUS_STALE_TICKET, "ticket");
    rkv_snapshot_tier_stats stats;
    mark(&stats, sizeof stats);
    BAD(s, rkv_snapshot_cache_read_tier_stats(NULL, &stats), "cache");
    UNTOUCHED(stats);
    OUTPUT_SIZES_FROM(s, rkv_snapshot_tier_stats, offsetof(rkv_snapshot_tier_stats, remote), p,
                      rkv_snapshot_cache_read_tier_stats(cache, p), "out_stats");
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
    RUN(m01_snapshot_parts);
    RUN(m01_snapshot_tiers);
    RUN(m01_snapshot_lookups);
    RUN(m01_snapshot_pins);
    RUN(m01_swapped_snapshot_handles);
    return check_result();
}
