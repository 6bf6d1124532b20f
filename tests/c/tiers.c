/* Tiers below the pages of a cache: what was evicted comes back, also after a restart. */
#define _XOPEN_SOURCE 700
#include "tiers.h"

#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[64];

static void make_directory(void) {
    strcpy(directory, "/tmp/radixkv-pages-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        exit(1);
    }
}

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *where) {
    (void)what, (void)kind, (void)where;
    return remove(path);
}

static void remove_directory(void) {
    CHECK_EQ(nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static rkv_tier_config disk_config(void) {
    rkv_tier_config config = tier_config();
    config.directory = directory;
    config.disk_bytes = 1 << 20;
    config.worker_count = 2;
    config.commit_interval_ms = 1;
    return config;
}

/* T02: host memory. */
static void t02_host_memory(void) {
    engine e = {.f = journal_fixture()};
    rkv_tier_config config = tier_config();
    uint8_t *memory = calloc(16, BYTES);
    config.host_memory = memory;
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    uint32_t ids[33];
    count_up(ids, 33, 1);
    CHECK_EQ(request(&e, ids, 33), 0);
    until_stored(&e, 8, 0);
    CHECK_EQ(evict(&e.f, 8), 8);
    rkv_sequence_info state = begin(&e.f, text(ids, 33));
    rkv_sequence_fetch_result look = {.struct_size = sizeof look};
    CHECK_OK(rkv_sequence_fetch(e.f.cache, state.sequence, 0, RKV_FETCH_LOOK_ONLY, &look));
    CHECK_EQ(look.is_open, 0);
    CHECK_EQ(look.position_count, 32);
    CHECK_EQ(look.host_position_count, 32);
    release(&e.f, state.sequence);
    CHECK_EQ(request(&e, ids, 33), 32);
    CHECK_EQ(request(&e, ids, 33), 0); /* the device has it */
    rkv_tier_stats stats = tier_stats(&e.f);
    CHECK_EQ(stats.host.page_count, 8);
    CHECK_EQ(stats.host.used_bytes, 8 * BYTES);
    CHECK_EQ(stats.host.byte_limit, 16 * BYTES);
    CHECK_EQ(stats.host.fetched_page_count, 8);
    CHECK_EQ(stats.complete_count, 1);
    CHECK_EQ(e.loads, 8);
    CHECK_EQ(stats.open_job_count + stats.copied_page_count + stats.open_fetch_count, 0);
    CHECK_OK(rkv_cache_shrink_tiers(e.f.cache, UINT64_MAX, UINT64_MAX));
    CHECK_EQ(tier_stats(&e.f).host.used_bytes, 8 * BYTES);
    CHECK_OK(rkv_cache_shrink_tiers(e.f.cache, 4 * BYTES - 1, 0));
    CHECK_EQ(tier_stats(&e.f).host.used_bytes, 3 * BYTES);
    CHECK_EQ(tier_stats(&e.f).host.evicted_page_count, 5);
    CHECK_OK(rkv_cache_detach_tiers(e.f.cache, 0));
    free(memory);
    CHECK_EQ(tier_stats(&e.f).host.byte_limit, 0);
    end_engine(&e);
}

/* T02: after a restart, from the disk; the eventfd says when there is something to do. */
static void t02_restart(void) {
    make_directory();
    uint32_t ids[33];
    count_up(ids, 33, 1);
    rkv_tier_config config = disk_config();
    for (int round = 0; round < 3; round++) {
        engine e = {.f = journal_fixture()};
        config.flags = round == 2 ? RKV_TIERS_THREADS : 0;
        CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
        CHECK_EQ(tier_stats(&e.f).disk.page_count, round == 0 ? 0 : 8);
        CHECK(round < 2 || tier_stats(&e.f).is_ring == 0);
        if (round == 0) {
            CHECK_EQ(request(&e, ids, 33), 0);
            struct pollfd ready = {event_fd, POLLIN, 0};
            CHECK_EQ(poll(&ready, 1, MINUTE), 1);
            uint64_t times = 0;
            CHECK_EQ(read(event_fd, &times, sizeof times), sizeof times);
            until_stored(&e, 8, 8);
        } else {
            for (int i = 0; i < MINUTE && tier_stats(&e.f).followed_number == 0; i++) {
                rkv_sequence_info state = begin(&e.f, text(ids, 33));
                rkv_sequence_fetch_result look = {.struct_size = sizeof look};
                CHECK_OK(rkv_sequence_fetch(e.f.cache, state.sequence, 0, RKV_FETCH_LOOK_ONLY,
                                            &look));
                CHECK_EQ(look.position_count, 0); /* host memory has nothing */
                CHECK_OK(rkv_sequence_fetch(e.f.cache, state.sequence, 1, RKV_FETCH_LOOK_ONLY,
                                            &look));
                release(&e.f, state.sequence);
                if (look.position_count == 32) {
                    break;
                }
                pause_a_little();
            }
            CHECK_EQ(request(&e, ids, 33), 32);
            CHECK_EQ(tier_stats(&e.f).disk.fetched_page_count, 8);
            /* They came from below: nothing was copied from the device. */
            CHECK_EQ(tier_stats(&e.f).host.page_count, 8);
            CHECK_EQ(tier_stats(&e.f).host.stored_page_count, 0);
        }
        if (round == 1) {
            CHECK_OK(rkv_cache_detach_tiers(e.f.cache, MINUTE));
        }
        end_engine(&e);
    }
    /* T14: what was made for another model is not read. */
    engine e = {.f = journal_fixture()};
    config.fingerprint[3] = 1;
    REFUSED(&e.f, rkv_cache_attach_tiers(e.f.cache, &config), RKV_STATUS_STORAGE, "model");
    end_engine(&e);
    remove_directory();
}

/* T05: what was flushed is there when the process ends without a word. */
static void t05_flush(void) {
    make_directory();
    uint32_t ids[33];
    count_up(ids, 33, 1);
    rkv_tier_config config = disk_config();
    config.commit_interval_ms = MINUTE; /* nothing else commits */
    const pid_t child = fork();
    if (child == 0) {
        engine e = {.f = journal_fixture()};
        CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
        CHECK_OK(rkv_cache_flush_tiers(e.f.cache, 0)); /* there is nothing */
        CHECK_EQ(request(&e, ids, 33), 0);
        for (int i = 0; i < MINUTE && e.stores < 8; i++) {
            step(&e);
            pause_a_little();
        }
        CHECK_OK(rkv_cache_flush_tiers(e.f.cache, MINUTE));
        CHECK_EQ(tier_stats(&e.f).disk.stored_page_count, 8);
        /* Killed, if all is well. */
        if (check_result() == 0) {
            kill(getpid(), SIGKILL);
        }
        _exit(1);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    engine e = {.f = journal_fixture()};
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    CHECK_EQ(tier_stats(&e.f).disk.page_count, 8);
    CHECK_EQ(request(&e, ids, 33), 32);
    end_engine(&e);
    remove_directory();
}

/* T09: nothing that was fetched is used before the ranks agree, and no more than that. */
static void t09_agree(void) {
    engine e = {.f = journal_fixture()};
    rkv_tier_config config = tier_config();
    config.flags = RKV_TIERS_AGREE;
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    uint32_t ids[33];
    count_up(ids, 33, 1);
    CHECK_EQ(request(&e, ids, 33), 0);
    until_stored(&e, 8, 0);
    CHECK_EQ(evict(&e.f, 6), 6);
    rkv_sequence_info state = begin(&e.f, text(ids, 33));
    CHECK_EQ(state.cached_position_count, 8);
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    CHECK_OK(rkv_sequence_fetch(e.f.cache, state.sequence, UINT64_MAX, 0, &fetch));
    CHECK_EQ(fetch.position_count, 24);
    CHECK_OK(rkv_cache_cancel_prefetch(e.f.cache, 1)); /* the number of a fetch, which goes on */
    uint64_t positions = 0;
    CHECK_STATUS(rkv_sequence_agree(e.f.cache, state.sequence, 20, &positions),
                 RKV_STATUS_PENDING);
    rkv_fetch_end end = until_fetched(&e);
    CHECK_EQ(end.position_count, 32);
    CHECK_EQ(info(&e, state.sequence).cached_position_count, 8);
    CHECK_OK(rkv_sequence_agree(e.f.cache, state.sequence, 21, &positions));
    CHECK_EQ(positions, 20);
    CHECK_EQ(cache_stats(&e.f).cached_page_count, 5);
    /* Another rank has less: what this one has on the device is computed again. */
    CHECK_OK(rkv_sequence_agree(e.f.cache, state.sequence, 4, &positions));
    CHECK_EQ(positions, 4);
    state = info(&e, state.sequence);
    CHECK_EQ(state.cached_position_count, 4);
    CHECK_EQ(state.shared_page_count, 1);
    compute(&e, &state, ids);
    REFUSED(&e.f, rkv_sequence_agree(e.f.cache, state.sequence, 3, &positions),
            RKV_STATUS_INVALID_STATE, "computed");
    release(&e.f, state.sequence);
    end_engine(&e);
}

static rkv_cache_prefetch_result prefetch(engine *e, uint32_t *ids, size_t count,
                                          uint64_t deadline_ms, uint32_t flags) {
    rkv_cache_prefetch_result begun = {.struct_size = sizeof begun};
    rkv_tokens tokens = text(ids, count);
    CHECK_OK(rkv_cache_prefetch(e->f.cache, NULL, &tokens, deadline_ms, flags, &begun));
    return begun;
}

/* T18: what the disk has is in host memory when the prompt begins. */
static void t18_prefetch(void) {
    make_directory();
    uint32_t ids[33];
    count_up(ids, 33, 1);
    rkv_tier_config config = disk_config();
    for (int round = 0; round < 2; round++) {
        engine e = {.f = journal_fixture()};
        CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
        if (round == 0) {
            CHECK_EQ(request(&e, ids, 33), 0);
            until_stored(&e, 8, 8);
            CHECK_OK(rkv_cache_detach_tiers(e.f.cache, MINUTE));
            end_engine(&e);
            continue;
        }
        CHECK_EQ(prefetch(&e, ids, 33, 0, 0).prefetch, 0);
        CHECK_EQ(prefetch(&e, ids, 4, UINT64_MAX, 0).prefetch, 0);
        rkv_cache_prefetch_result look = prefetch(&e, ids, 33, 1, RKV_FETCH_LOOK_ONLY);
        CHECK_EQ(look.prefetch + look.host_position_count + look.cached_position_count, 0);
        CHECK_EQ(look.position_count, 32);
        rkv_cache_prefetch_result begun = prefetch(&e, ids, 33, UINT64_MAX, 0);
        CHECK(begun.prefetch != 0);
        CHECK_EQ(begun.position_count, 32);
        CHECK_EQ(begun.asked_position_count, 0);
        for (int i = 0; i < MINUTE && tier_stats(&e.f).open_prefetch_count > 0; i++) {
            pause_a_little();
        }
        CHECK_EQ(prefetch(&e, ids, 33, 1, RKV_FETCH_LOOK_ONLY).host_position_count, 32);
        CHECK_OK(rkv_cache_cancel_prefetch(e.f.cache, begun.prefetch));
        CHECK_EQ(request(&e, ids, 33), 32);
        CHECK_EQ(prefetch(&e, ids, 33, UINT64_MAX, 0).cached_position_count, 32);
        rkv_tier_stats stats = tier_stats(&e.f);
        CHECK_EQ(stats.host.fetched_page_count, 8);
        CHECK_EQ(stats.prefetched_disk_page_count, 8);
        CHECK_EQ(stats.prefetched_remote_page_count + stats.refused_prefetch_count, 0);
        CHECK_EQ(stats.prefetch_count, 1);
        end_engine(&e);
    }
    remove_directory();
}

/* M01: wrong calls change nothing. */
static void m01_tiers(void) {
    make_directory();
    engine e = {.f = journal_fixture()};
    fixture *f = &e.f;
    rkv_tier_config good = tier_config(), config;
    BAD(f, rkv_tier_config_init(NULL, sizeof config), "config");
    BAD(f, rkv_tier_config_init(&config, offsetof(rkv_tier_config, remote) - 1), "config");
    BAD(f, rkv_cache_attach_tiers(NULL, &good), "cache");
    BAD(f, rkv_cache_attach_tiers(f->cache, NULL), "config");
    BAD_INPUT_SIZES_FROM(f, rkv_tier_config, offsetof(rkv_tier_config, remote), good, p,
                         rkv_cache_attach_tiers(f->cache, p), "config");
#define WRONG(field, value, word)                                                                 \
    config = good;                                                                                \
    config.field = value;                                                                         \
    BAD(f, rkv_cache_attach_tiers(f->cache, &config), word)
    WRONG(flags, 4, "flags");
    WRONG(page_bytes, 0, "page_bytes");
    WRONG(host_bytes, BYTES - 1, "host_bytes");
    WRONG(host_bytes, UINT64_MAX, "host_bytes");
    WRONG(disk_bytes, 1, "directory");
    WRONG(directory, "", "directory");
    WRONG(directory, directory, "disk_bytes");
    WRONG(store_after_uses, 256, "store_after_uses");
    WRONG(worker_count, 0, "worker_count");
    WRONG(worker_count, 65, "worker_count");
    WRONG(commit_interval_ms, 0, "commit_interval_ms");
    WRONG(commit_interval_ms, 60001, "commit_interval_ms");
    WRONG(event_fd, 9999, "event_fd");
    config = good;
    config.directory = "/proc/no/such/place";
    config.disk_bytes = 1 << 20;
    REFUSED(f, rkv_cache_attach_tiers(f->cache, &config), RKV_STATUS_STORAGE,
            "/proc/no/such/place");
    fixture plain = new_fixture(PAGE, PAGES);
    REFUSED(&plain, rkv_cache_attach_tiers(plain.cache, &good), RKV_STATUS_INVALID_STATE,
            "journal");
    end_fixture(&plain);

    /* Without tiers there is nothing to ask. */
    uint32_t ids[33];
    count_up(ids, 33, 1);
    rkv_sequence_info state = begin(f, text(ids, 33));
    rkv_sequence_fetch_result fetch = {.struct_size = sizeof fetch};
    rkv_cache_poll_result polled = {.struct_size = sizeof polled};
    uint64_t positions = 0, job = 1;
    REFUSED(f, rkv_sequence_fetch(f->cache, state.sequence, 0, 0, &fetch),
            RKV_STATUS_INVALID_STATE, "tiers");
    rkv_cache_prefetch_result begun = {.struct_size = sizeof begun};
    rkv_tokens tokens = text(ids, 33);
    REFUSED(f, rkv_cache_prefetch(f->cache, NULL, &tokens, 1, 0, &begun),
            RKV_STATUS_INVALID_STATE, "tiers");
    REFUSED(f, rkv_cache_cancel_prefetch(f->cache, 1), RKV_STATUS_INVALID_STATE, "tiers");
    REFUSED(f, rkv_cache_poll(f->cache, NULL, 0, 0, NULL, 0, 0, &polled),
            RKV_STATUS_INVALID_STATE, "tiers");
    REFUSED(f, rkv_cache_complete(f->cache, &job, 1, true), RKV_STATUS_INVALID_STATE, "tiers");
    REFUSED(f, rkv_sequence_agree(f->cache, state.sequence, 0, &positions),
            RKV_STATUS_INVALID_STATE, "tiers");
    REFUSED(f, rkv_cache_detach_tiers(f->cache, 0), RKV_STATUS_INVALID_STATE, "tiers");
    REFUSED(f, rkv_cache_flush_tiers(f->cache, 0), RKV_STATUS_INVALID_STATE, "tiers");
    REFUSED(f, rkv_cache_shrink_tiers(f->cache, 0, 0), RKV_STATUS_INVALID_STATE, "tiers");

    CHECK_OK(rkv_cache_attach_tiers(f->cache, &good));
    REFUSED(f, rkv_cache_attach_tiers(f->cache, &good), RKV_STATUS_INVALID_STATE, "tiers");
    rkv_tier_stats stats = {.struct_size = sizeof stats};
    BAD(f, rkv_cache_read_tier_stats(NULL, &stats), "cache");
    OUTPUT_SIZES_FROM(f, rkv_tier_stats, offsetof(rkv_tier_stats, remote), p,
                      rkv_cache_read_tier_stats(f->cache, p), "out_stats");
    BAD(f, rkv_sequence_fetch(NULL, state.sequence, 0, 0, &fetch), "cache");
    BAD(f, rkv_sequence_fetch(f->cache, state.sequence, 0, 2, &fetch), "flags");
    OUTPUT_SIZES_FROM(f, rkv_sequence_fetch_result,
                      offsetof(rkv_sequence_fetch_result, asked_position_count), p,
                 rkv_sequence_fetch(f->cache, state.sequence, 0, 0, p), "out_fetch");
    REFUSED(f, rkv_sequence_fetch(f->cache, state.sequence + (UINT64_C(1) << 20), 0, 0, &fetch),
            RKV_STATUS_STALE_SEQUENCE, "stale");
    BAD(f, rkv_cache_prefetch(NULL, NULL, &tokens, 1, 0, &begun), "cache");
    BAD(f, rkv_cache_prefetch(f->cache, NULL, NULL, 1, 0, &begun), "tokens");
    BAD(f, rkv_cache_prefetch(f->cache, NULL, &tokens, 1, 2, &begun), "flags");
    ids[31] = RKV_TEXT_ID_LIMIT;
    BAD(f, rkv_cache_prefetch(f->cache, NULL, &tokens, 1, 0, &begun), "[31]");
    ids[31] = 32;
    BAD_INPUT_SIZES(f, rkv_namespace, (rkv_namespace){.struct_size = sizeof(rkv_namespace)}, p,
                    rkv_cache_prefetch(f->cache, p, &tokens, 1, 0, &begun), "space");
    OUTPUT_SIZES(f, rkv_cache_prefetch_result, p,
                 rkv_cache_prefetch(f->cache, NULL, &tokens, 1, 0, p), "out_prefetch");
    BAD(f, rkv_cache_cancel_prefetch(NULL, 1), "cache");
    BAD(f, rkv_cache_cancel_prefetch(f->cache, 0), "prefetch 0");
    BAD(f, rkv_cache_cancel_prefetch(f->cache, 7), "prefetch 7");
    rkv_copy_job jobs[4];
    rkv_fetch_end ends[4];
    BAD(f, rkv_cache_poll(NULL, jobs, sizeof *jobs, 4, ends, sizeof *ends, 4, &polled), "cache");
    BAD(f, rkv_cache_poll(f->cache, NULL, sizeof *jobs, 4, ends, sizeof *ends, 4, &polled),
        "jobs");
    BAD(f, rkv_cache_poll(f->cache, jobs, 8, 4, ends, sizeof *ends, 4, &polled), "job_size");
    BAD(f, rkv_cache_poll(f->cache, jobs, sizeof *jobs, 4, NULL, sizeof *ends, 4, &polled),
        "ends");
    BAD(f, rkv_cache_poll(f->cache, jobs, sizeof *jobs, 4, ends, 8, 4, &polled), "end_size");
    OUTPUT_SIZES(f, rkv_cache_poll_result, p,
                 rkv_cache_poll(f->cache, jobs, sizeof *jobs, 4, ends, sizeof *ends, 4, p),
                 "out_result");
    BAD(f, rkv_cache_complete(NULL, &job, 1, true), "cache");
    BAD(f, rkv_cache_complete(f->cache, NULL, 1, true), "jobs");
    BAD(f, rkv_cache_complete(f->cache, &job, 1, true), "jobs[0]");
    CHECK_OK(rkv_cache_complete(f->cache, NULL, 0, true));
    BAD(f, rkv_sequence_agree(NULL, state.sequence, 0, &positions), "cache");
    BAD(f, rkv_sequence_agree(f->cache, state.sequence, 0, NULL), "out_position_count");
    REFUSED(f, rkv_sequence_agree(f->cache, state.sequence + (UINT64_C(1) << 20), 0, &positions),
            RKV_STATUS_STALE_SEQUENCE, "stale");
    BAD(f, rkv_cache_detach_tiers(NULL, 0), "cache");
    BAD(f, rkv_cache_flush_tiers(NULL, 0), "cache");
    BAD(f, rkv_cache_shrink_tiers(NULL, 0, 0), "cache");

    /* While a copy goes on the tiers stay, and nothing is completed twice. */
    compute(&e, &state, ids);
    release(f, state.sequence);
    for (int i = 0; i < MINUTE && polled.job_count == 0; i++) {
        CHECK_OK(rkv_cache_poll(f->cache, jobs, sizeof *jobs, 1, NULL, 0, 0, &polled));
        pause_a_little();
    }
    CHECK_EQ(polled.job_count, 1);
    CHECK_EQ(tier_stats(f).copied_page_count, 1);
    REFUSED(f, rkv_cache_detach_tiers(f->cache, 0), RKV_STATUS_INVALID_STATE,
            "not complete: 1; open fetches: 0");
    CHECK_EQ(evict(f, 8), 8);
    CHECK_EQ(table_stats(f).free_page_count, PAGES - 1);
    uint64_t twice[2] = {jobs[0].job, jobs[0].job};
    BAD(f, rkv_cache_complete(f->cache, twice, 2, true), "jobs[1]");
    memset(jobs[0].host, computed(ids, 0), BYTES);
    CHECK_OK(rkv_cache_complete(f->cache, twice, 1, true));
    BAD(f, rkv_cache_complete(f->cache, twice, 1, true), "jobs[0]");
    CHECK_EQ(table_stats(f).free_page_count, PAGES);
    end_engine(&e); /* its tiers go with it */
    remove_directory();
}

/* M01: pages that the library hands out. */
static void m01_an_external_pool_is_refused(void) {
    rkv_tier_config good = tier_config();
    rkv_page_table_config config;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE;
    config.page_count = PAGES;
    config.flags = RKV_PAGE_TABLE_EXTERNAL_POOL;
    good.flags = 0;
    fixture f = {NULL, NULL, PAGE};
    rkv_cache_config cache;
    CHECK_OK(rkv_page_table_create(&config, &f.table));
    CHECK_OK(rkv_cache_config_init(&cache, sizeof cache));
    cache.journal_bytes = 1 << 16;
    CHECK_OK(rkv_cache_create(f.table, &cache, &f.cache));
    REFUSED(&f, rkv_cache_attach_tiers(f.cache, &good), RKV_STATUS_UNSUPPORTED, "external");
    end_fixture(&f);
}

/* T16: pools and their pages are named one by one; what is wrong is named too. */
static void t16_pools(void) {
    const rkv_group_config groups[] = {{RKV_GROUP_FULL, 0, 0, 0, 0, 0},
                                       {RKV_GROUP_WINDOW, 1, 6, 0, 0, 0}};
    const rkv_pool_config pools[] = {{PAGES + 1, 0}, {PAGES + 1, 0}};
    rkv_page_table_config table;
    CHECK_OK(rkv_page_table_config_init(&table, sizeof table));
    table.page_size = PAGE;
    table.slot_count = 4;
    table.groups = groups;
    table.group_count = 2;
    table.pools = pools;
    table.pool_count = 2;
    fixture f = {NULL, NULL, PAGE};
    CHECK_OK(rkv_page_table_create(&table, &f.table));
    rkv_cache_config cache;
    CHECK_OK(rkv_cache_config_init(&cache, sizeof cache));
    cache.journal_bytes = 1 << 16;
    CHECK_OK(rkv_cache_create(f.table, &cache, &f.cache));

    rkv_tier_config config = tier_config();
    BAD(&f, rkv_cache_attach_tiers(f.cache, &config), "config.pool_count");
    rkv_tier_pool_config each[] = {{BYTES, 16 * BYTES, NULL}, {40, 16 * 40, NULL}};
    config.pools = each;
    config.pool_count = 2;
    BAD(&f, rkv_cache_attach_tiers(f.cache, &config), "config.pools");
    config.page_bytes = config.host_bytes = 0;
    config.pool_size = 23;
    BAD(&f, rkv_cache_attach_tiers(f.cache, &config), "config.pool_size");
    config.pool_size = sizeof each[0];
    config.pool_count = 9;
    BAD(&f, rkv_cache_attach_tiers(f.cache, &config), "config.pool_count");
    config.pool_count = 1;
    BAD(&f, rkv_cache_attach_tiers(f.cache, &config), "config.pool_count");
    config.pool_count = 2;
    each[1].page_bytes = 0;
    BAD(&f, rkv_cache_attach_tiers(f.cache, &config), "config.pools[1].page_bytes");
    each[1].page_bytes = 40;
    each[1].host_bytes = 39;
    BAD(&f, rkv_cache_attach_tiers(f.cache, &config), "config.pools[1].host_bytes");
    each[1].host_bytes = 16 * 40;
    config.flags = RKV_TIERS_AGREE;
    CHECK_OK(rkv_cache_attach_tiers(f.cache, &config));
    CHECK_OK(rkv_cache_detach_tiers(f.cache, 0));
    config.flags = 0;
    CHECK_OK(rkv_cache_attach_tiers(f.cache, &config));
    CHECK_EQ(tier_stats(&f).host.byte_limit, 16 * BYTES + 16 * 40);

    /* All pages of a prompt are stored, those of the window too, each with its size. */
    uint32_t ids[33];
    count_up(ids, 33, 1);
    const rkv_tokens tokens = text(ids, 33);
    rkv_sequence_begin_args begin = {.struct_size = sizeof begin, .tokens = &tokens};
    rkv_sequence_info info = {.struct_size = sizeof info};
    CHECK_OK(rkv_sequence_begin(f.cache, &begin, &info));
    CHECK_OK(rkv_sequence_publish(f.cache, info.sequence, 33, NULL));
    CHECK_OK(rkv_sequence_release(f.cache, info.sequence));
    size_t of_group[2] = {0, 0};
    for (int i = 0; i < MINUTE && of_group[0] + of_group[1] < 16; i++) {
        rkv_copy_job jobs[8];
        rkv_cache_poll_result polled = {.struct_size = sizeof polled};
        CHECK_OK(rkv_cache_poll(f.cache, jobs, sizeof *jobs, 8, NULL, 0, 0, &polled));
        for (size_t at = 0; at < polled.job_count; at++) {
            CHECK_EQ(jobs[at].byte_count, jobs[at].group == 0 ? BYTES : 40);
            memset(jobs[at].host, 1, jobs[at].byte_count);
            of_group[jobs[at].group]++;
            CHECK_OK(rkv_cache_complete(f.cache, &jobs[at].job, 1, true));
        }
        pause_a_little();
    }
    CHECK_EQ(of_group[0], 8);
    CHECK_EQ(of_group[1], 8);
    CHECK_OK(rkv_cache_detach_tiers(f.cache, 1000));
    rkv_cache_destroy(f.cache);
    rkv_page_table_destroy(f.table);
}

int main(void) {
    event_fd = eventfd(0, EFD_NONBLOCK);
    RUN_BOTH(t02_host_memory);
    RUN_BOTH(t02_restart);
    RUN_BOTH(t05_flush);
    RUN_BOTH(t09_agree);
    RUN_BOTH(t18_prefetch);
    RUN(t16_pools);
    RUN(m01_an_external_pool_is_refused);
    RUN(m01_tiers);
    close(event_fd);
    return check_result();
}
