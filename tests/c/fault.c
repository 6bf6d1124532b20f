/* M02: a panic inside the library. Only with the fault-injection feature, which exports
 * rkv_fault_panic(). */
#define _XOPEN_SOURCE 700
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "misuse.h"
#include "snapshots.h"

#include <ftw.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

typedef struct log_record {
    int messages;
    uint32_t level;
    char last[256];
} log_record;

static void keep(uint32_t level, const char *message, void *user_data) {
    log_record *record = user_data;
    record->messages++;
    record->level = level;
    snprintf(record->last, sizeof record->last, "%s", message);
}

#define POISONED(call) CHECK_STATUS(call, RKV_STATUS_POISONED)

static void m02_poisoned_handles_refuse(void) {
    fixture f = new_fixture(2, 16), healthy = new_fixture(2, 16);
    uint32_t ids[8], pages[4];
    log_record record;
    memset(&record, 0, sizeof record);
    count_up(ids, 8, 1);
    rkv_node_id node = insert(&f, text(ids, 4)).node;
    rkv_sequence_id sequence = begin(&f, text(ids, 6)).sequence;
    uint32_t slot = 0;
    CHECK_OK(rkv_page_table_allocate_slot(f.table, &slot));
    rkv_set_log_callback(RKV_LOG_ERROR, keep, &record);
    CHECK_STATUS(rkv_fault_panic(f.cache), RKV_STATUS_INTERNAL);
    CHECK(message_names("injected fault"));
    /* the place in the source goes to the log, not to standard error */
    CHECK(record.messages == 1 && record.level == RKV_LOG_ERROR);
    CHECK(strstr(record.last, "injected fault") != NULL && strstr(record.last, ".rs") != NULL);
    rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);

    rkv_tokens tokens = text(ids, 8);
    rkv_cache_match_result match = new_match();
    rkv_cache_insert_args insert_into = insert_args(&tokens, pages, 4);
    rkv_sequence_begin_args begin_with = sequence_args(&tokens);
    rkv_sequence_info state = new_state();
    rkv_cache_insert_result inserted;
    rkv_sequence_publish_result published;
    rkv_node_info info;
    rkv_cache_stats cache_now;
    rkv_page_table_stats table_now;
    size_t count = 77;
    bool answer = true;
    inserted.struct_size = sizeof inserted;
    published.struct_size = sizeof published;
    info.struct_size = sizeof info;
    cache_now.struct_size = sizeof cache_now;
    table_now.struct_size = sizeof table_now;
    count_up(pages, 4, 1);
    for (int again = 0; again < 2; again++) {
        POISONED(rkv_cache_match(f.cache, NULL, &tokens, 0, NULL, 0, &match));
        CHECK(message_names("internal error"));
        POISONED(rkv_cache_probe(f.cache, NULL, &tokens, NULL, &count));
        POISONED(rkv_cache_insert(f.cache, &insert_into, NULL, &inserted));
        rkv_lock_id lock = 0;
        POISONED(rkv_cache_lock(f.cache, node, &lock));
        POISONED(rkv_cache_unlock(f.cache, lock));
        POISONED(rkv_cache_evict(f.cache, 1, NULL, 0, &count));
        rkv_cache_clear_args everything = {sizeof everything, RKV_CLEAR_EVERYTHING, NULL};
        rkv_cache_clear_result cleared = {.struct_size = sizeof cleared};
        POISONED(rkv_cache_clear(f.cache, &everything, &cleared));
        POISONED(rkv_cache_contains_page(f.cache, 1, &answer));
        POISONED(rkv_node_read_info(f.cache, node, &info));
        POISONED(rkv_node_read_pages(f.cache, node, NULL, 0, &count));
        POISONED(rkv_node_read_children(f.cache, node, NULL, 0, &count));
        POISONED(rkv_cache_read_stats(f.cache, &cache_now));
        POISONED(rkv_cache_check(f.cache));
        POISONED(rkv_cache_dump(f.cache, RKV_DUMP_JSON, NULL, 0, &count));
        POISONED(rkv_fault_panic(f.cache));
        POISONED(rkv_sequence_begin(f.cache, &begin_with, &state));
        POISONED(rkv_sequence_read_info(f.cache, sequence, &state));
        POISONED(rkv_sequence_read_copies(f.cache, sequence, NULL, 0, 0, &count));
        POISONED(rkv_sequence_confirm_copies(f.cache, sequence));
        POISONED(rkv_sequence_allocate(f.cache, sequence, 6));
        POISONED(rkv_sequence_append(f.cache, sequence, &tokens));
        POISONED(rkv_sequence_truncate(f.cache, sequence, 6));
        POISONED(rkv_sequence_publish(f.cache, sequence, 6, &published));
        POISONED(rkv_sequence_release(f.cache, sequence));
        /* the page table shares the state, so it refuses too */
        POISONED(rkv_page_table_read_stats(f.table, &table_now));
        POISONED(rkv_page_table_allocate_slot(f.table, &slot));
        POISONED(rkv_page_table_free_slot(f.table, slot));
        POISONED(rkv_page_table_allocate_pages(f.table, 1, pages));
        POISONED(rkv_page_table_free_pages(f.table, pages, 1));
        POISONED(rkv_page_table_map(f.table, slot, 0, pages, 1));
        POISONED(rkv_page_table_reserve(f.table, slot, 2));
        POISONED(rkv_page_table_can_reserve(f.table, slot, 2, &answer));
        POISONED(rkv_page_table_row_capacity(f.table, slot, &count));
        POISONED(rkv_page_table_read_row(f.table, slot, 0, NULL, 0, &count));
        POISONED(rkv_page_table_check(f.table));
    }
    CHECK(count == 77 && answer);
    rkv_cache *second = NULL;
    POISONED(rkv_cache_create(f.table, NULL, &second));
    CHECK(second == NULL);
    /* the process and other handles live on, and destroying stays allowed, in any order */
    insert(&healthy, text(ids, 4));
    CHECK_EQ(probe(&healthy, text(ids, 4)), 4);
    end_fixture(&healthy);
    rkv_page_table_destroy(f.table);
    rkv_cache_destroy(f.cache);
}

static void m02_cache_destroyed_first(void) {
    fixture f = new_fixture(2, 16);
    log_record record;
    memset(&record, 0, sizeof record);
    rkv_set_log_callback(RKV_LOG_ERROR, keep, &record);
    CHECK_STATUS(rkv_fault_panic(f.cache), RKV_STATUS_INTERNAL);
    rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);
    CHECK_EQ(record.messages, 1);
    rkv_cache_destroy(f.cache);
    POISONED(rkv_page_table_check(f.table));
    rkv_page_table_destroy(f.table);
    CHECK_STATUS(rkv_fault_panic(NULL), RKV_STATUS_INVALID_ARGUMENT);
}

static void m02_poisoned_snapshot_caches_refuse(void) {
    shelf s = new_shelf(4, UINT64_MAX), healthy = new_shelf(4, UINT64_MAX);
    uint32_t ids[3] = {1, 2, 3};
    rkv_tokens tokens = text(ids, 3);
    log_record record;
    memset(&record, 0, sizeof record);
    put(&s, text(ids, 2));
    put(&s, text(ids, 3));
    rkv_snapshot_cache_match_result released = get(&s, text(ids, 2)), match = new_found();
    let_go(&s, released);
    rkv_snapshot_cache_stats stats;
    stats.struct_size = sizeof stats;
    rkv_set_log_callback(RKV_LOG_ERROR, keep, &record);
    CHECK_STATUS(rkv_fault_panic_snapshot(s.cache), RKV_STATUS_INTERNAL);
    CHECK(record.messages == 1 && strstr(record.last, "injected fault") != NULL);
    rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);
    rkv_snapshot_cache_insert_args args = shelf_args(&s, &tokens, 1);
    size_t count = 77;
    bool removed = true;
    for (int again = 0; again < 2; again++) {
        POISONED(rkv_snapshot_cache_insert(s.cache, &args, NULL));
        POISONED(rkv_snapshot_cache_match(s.cache, NULL, &tokens, 0, &match));
        POISONED(rkv_snapshot_cache_probe(s.cache, NULL, &tokens, &count));
        POISONED(rkv_snapshot_cache_release(s.cache, released.pin));
        POISONED(rkv_snapshot_cache_remove(s.cache, NULL, &tokens, &removed));
        POISONED(rkv_snapshot_cache_clear(s.cache));
        POISONED(rkv_snapshot_cache_read_stats(s.cache, &stats));
        POISONED(rkv_snapshot_cache_check(s.cache));
        POISONED(rkv_fault_panic_snapshot(s.cache));
    }
    CHECK(count == 77 && removed && match.pin == 0);
    CHECK_EQ(s.order_count, 0);
    /* it can be destroyed: each snapshot goes once */
    rkv_snapshot_cache_destroy(s.cache);
    CHECK(s.destroyed[0] == 1 && s.destroyed[1] == 1 && s.destroyed[2] == 0);
    put(&healthy, text(ids, 2));
    CHECK_EQ(use(&healthy, text(ids, 3)), 0);
    end_shelf(&healthy);
    free(args.data);
    CHECK_STATUS(rkv_fault_panic_snapshot(NULL), RKV_STATUS_INVALID_ARGUMENT);
}

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *where) {
    (void)what, (void)kind, (void)where;
    return remove(path);
}

static void remove_directory(const char *directory) {
    CHECK_EQ(nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* A cache that tiers can be attached to. */
static fixture with_journal(void) {
    fixture f = {new_table(4, 25, 8), NULL, 4};
    rkv_cache_config config;
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.journal_bytes = 1 << 16;
    CHECK_OK(rkv_cache_create(f.table, &config, &f.cache));
    return f;
}

static rkv_tier_config host_memory(void) {
    rkv_tier_config below;
    CHECK_OK(rkv_tier_config_init(&below, sizeof below));
    below.page_bytes = 96;
    below.host_bytes = 16 * 96;
    return below;
}

/* What lies below a poisoned cache goes with it: nobody uses memory of the engine's any more, and
 * the next cache has the directory. */
static void m02_tiers_of_poisoned_caches_go(void) {
    char directory[] = "/tmp/radixkv-poisoned-XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    log_record record;
    memset(&record, 0, sizeof record);
    rkv_set_log_callback(RKV_LOG_ERROR, keep, &record);
    for (int round = 0; round < 2; round++) {
        fixture f = with_journal();
        rkv_tier_config below = host_memory();
        below.directory = directory;
        below.disk_bytes = 1 << 20;
        CHECK_OK(rkv_cache_attach_tiers(f.cache, &below));
        CHECK_STATUS(rkv_fault_panic(f.cache), RKV_STATUS_INTERNAL);
        POISONED(rkv_cache_detach_tiers(f.cache, 0));
        rkv_cache_destroy(f.cache);
        rkv_page_table_destroy(f.table);
    }
    rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);
    remove_directory(directory);
}

/* The same of a poisoned snapshot cache, also while a pin is out, which can't be released. */
/* A pin of a poisoned cache can't be released, and keeps it: what is made in between is no leak. */
static void keep_what_follows(void) {
#ifdef __SANITIZE_ADDRESS__
    __lsan_disable();
#endif
}

static void leave_what_follows(void) {
#ifdef __SANITIZE_ADDRESS__
    __lsan_enable();
#endif
}

static void m02_directories_of_poisoned_snapshot_caches_go(void) {
    char directory[] = "/tmp/radixkv-poisoned-XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    log_record record;
    memset(&record, 0, sizeof record);
    rkv_set_log_callback(RKV_LOG_ERROR, keep, &record);
    static char data[96];
    uint32_t ids[3] = {1, 2, 3};
    rkv_tokens tokens = text(ids, 3);
    for (int round = 0; round < 2; round++) {
        keep_what_follows();
        rkv_snapshot_cache *cache = NULL;
        CHECK_OK(rkv_snapshot_cache_create(NULL, &cache));
        rkv_snapshot_tier_config below;
        CHECK_OK(rkv_snapshot_tier_config_init(&below, sizeof below));
        below.directory = directory;
        below.byte_limit = 1 << 20;
        CHECK_OK(rkv_snapshot_cache_attach(cache, &below));
        rkv_snapshot_cache_insert_args args;
        memset(&args, 0, sizeof args);
        args.struct_size = sizeof args;
        args.flags = RKV_SNAPSHOT_INSERT_STORABLE;
        args.tokens = &tokens;
        args.data = data;
        args.size_bytes = sizeof data;
        CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
        rkv_snapshot_cache_match_result match;
        memset(&match, 0, sizeof match);
        match.struct_size = sizeof match;
        CHECK_OK(rkv_snapshot_cache_match(cache, NULL, &tokens, 0, &match));
        CHECK(match.pin != 0);
        CHECK_STATUS(rkv_fault_panic_snapshot(cache), RKV_STATUS_INTERNAL);
        rkv_snapshot_cache_destroy(cache);
        POISONED(rkv_snapshot_cache_release(cache, match.pin));
        leave_what_follows();
    }
    rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);
    remove_directory(directory);
}

/* Who sleeps until the tiers have something to poll for is woken: the poll says why. */
static void m02_who_sleeps_is_told_of_a_panic(void) {
    log_record record;
    memset(&record, 0, sizeof record);
    rkv_set_log_callback(RKV_LOG_ERROR, keep, &record);
    fixture f = with_journal();
    rkv_tier_config below = host_memory();
    below.event_fd = eventfd(0, EFD_CLOEXEC);
    CHECK(below.event_fd >= 0);
    CHECK_OK(rkv_cache_attach_tiers(f.cache, &below));
    CHECK_STATUS(rkv_fault_panic(f.cache), RKV_STATUS_INTERNAL);
    struct pollfd sleeper = {below.event_fd, POLLIN, 0};
    CHECK_EQ(poll(&sleeper, 1, 60000), 1);
    rkv_cache_destroy(f.cache);
    rkv_page_table_destroy(f.table);
    CHECK_EQ(close(below.event_fd), 0);
    rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);
}

int main(void) {
    RUN(m02_poisoned_handles_refuse);
    RUN(m02_cache_destroyed_first);
    RUN(m02_poisoned_snapshot_caches_refuse);
    RUN(m02_tiers_of_poisoned_caches_go);
    RUN(m02_directories_of_poisoned_snapshot_caches_go);
    RUN(m02_who_sleeps_is_told_of_a_panic);
    return check_result();
}
