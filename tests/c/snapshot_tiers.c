/* The snapshot cache over a directory: what comes back, also after a restart, and what does not. */
#define _XOPEN_SOURCE 700
#include "snapshots.h"

#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Long enough for any disk. */
#define MINUTE 60000

static char directory[64];
static int event_fd;
static int destroyed; /* by any thread, when nothing is written any more */

static void make_directory(void) {
    strcpy(directory, "/tmp/radixkv-tiers-XXXXXX");
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

static rkv_snapshot_tier_config tier_config(void) {
    rkv_snapshot_tier_config config;
    CHECK_OK(rkv_snapshot_tier_config_init(&config, sizeof config));
    config.directory = directory;
    config.byte_limit = 64 << 20;
    config.worker_count = 2;
    config.commit_interval_ms = 1;
    config.event_fd = event_fd;
    return config;
}

/* Another process with the same directory, as far as the library knows. */
static rkv_snapshot_cache *restart(rkv_snapshot_cache *old) {
    rkv_snapshot_cache *cache = NULL;
    if (old != NULL) {
        CHECK_OK(rkv_snapshot_cache_flush(old, MINUTE));
        CHECK_OK(rkv_snapshot_cache_check(old));
        rkv_snapshot_cache_destroy(old);
    }
    rkv_snapshot_tier_config config = tier_config();
    CHECK_OK(rkv_snapshot_cache_create(NULL, &cache));
    CHECK_OK(rkv_snapshot_cache_attach(cache, &config));
    return cache;
}

static void end(rkv_snapshot_cache *cache) {
    CHECK_OK(rkv_snapshot_cache_check(cache));
    CHECK_OK(rkv_snapshot_cache_detach(cache, MINUTE));
    rkv_snapshot_cache_destroy(cache);
}

static rkv_snapshot_tier_stats tier_stats(rkv_snapshot_cache *cache) {
    rkv_snapshot_tier_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_snapshot_cache_read_tier_stats(cache, &stats));
    return stats;
}

static void count_destroyed(void *data, uint64_t size_bytes, void *user_data) {
    (void)data, (void)size_bytes, (void)user_data;
    destroyed++;
}

/* A state of three parts, one of them empty. */
static uint8_t small_part[7], large_part[70001];
static const rkv_snapshot_part parts[] = {
    {small_part, sizeof small_part}, {NULL, 0}, {large_part, sizeof large_part}};
enum { WHOLE = sizeof small_part + sizeof large_part };

static rkv_snapshot_cache_insert_args storable(const rkv_tokens *tokens) {
    rkv_snapshot_cache_insert_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.flags = RKV_SNAPSHOT_INSERT_STORABLE;
    args.tokens = tokens;
    args.data = small_part;
    args.size_bytes = WHOLE;
    args.destructor = count_destroyed;
    args.parts = parts;
    args.part_count = 3;
    args.part_size = sizeof parts[0];
    return args;
}

static void fill_parts(void) {
    for (size_t at = 0; at < sizeof large_part; at++) {
        large_part[at] = (uint8_t)(at * 31 >> 3);
    }
    memcpy(small_part, "seven b", sizeof small_part);
}

static rkv_snapshot_cache_match_result find(rkv_snapshot_cache *cache, rkv_tokens tokens,
                                            uint32_t flags) {
    rkv_snapshot_cache_match_result match = new_found();
    CHECK_OK(rkv_snapshot_cache_match(cache, NULL, &tokens, flags, &match));
    return match;
}

static rkv_snapshot_cache_fetch_result fetch(rkv_snapshot_cache *cache, const rkv_namespace *space,
                                             rkv_tokens tokens, uint32_t flags) {
    rkv_snapshot_cache_fetch_result started;
    memset(&started, 0, sizeof started);
    started.struct_size = sizeof started;
    CHECK_OK(rkv_snapshot_cache_fetch(cache, space, &tokens, flags, &started));
    return started;
}

/* Sleeps on the eventfd until a fetch has ended. */
static rkv_snapshot_cache_match_result take_when_there(rkv_snapshot_cache *cache,
                                                       rkv_ticket_id ticket) {
    rkv_snapshot_cache_match_result match = new_found();
    for (;;) {
        rkv_status status = rkv_snapshot_cache_take(cache, ticket, &match);
        if (status != RKV_STATUS_PENDING) {
            CHECK_OK(status);
            return match;
        }
        struct pollfd wait = {event_fd, POLLIN, 0};
        uint64_t count;
        if (!CHECK(poll(&wait, 1, MINUTE) == 1)) {
            exit(1);
        }
        CHECK(read(event_fd, &count, sizeof count) == sizeof count);
    }
}

static void t01_a_restart_finds_all(void) {
    uint32_t ids[8];
    count_up(ids, 8, 1);
    make_directory();
    rkv_namespace tenant = new_namespace();
    tenant.salt[0] = 7;
    rkv_tokens three = text(ids, 3), six = text(ids, 6);
    rkv_snapshot_cache *cache = restart(NULL);
    rkv_snapshot_cache_insert_args args = storable(&three);
    args.space = &tenant;
    args.has_next_token = 1;
    args.next_token = 99;
    destroyed = 0;
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    /* one part, that is data itself, and a state that can be trimmed */
    args = storable(&six);
    args.flags |= RKV_SNAPSHOT_INSERT_TRIMMABLE;
    args.data = large_part;
    args.size_bytes = sizeof large_part;
    args.parts = NULL;
    args.part_count = args.part_size = 0;
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    /* what may not be written */
    rkv_tokens other = text(&ids[5], 2);
    args = storable(&other);
    args.flags = 0;
    args.parts = NULL;
    args.part_count = args.part_size = 0;
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));

    cache = restart(cache);
    CHECK_EQ(destroyed, 3);
    CHECK_EQ(tier_stats(cache).entry_count, 2);
    rkv_snapshot_cache_match_result match = new_found();
    rkv_tokens asked = text(ids, 5);
    CHECK_OK(rkv_snapshot_cache_match(cache, &tenant, &asked, 0, &match));
    CHECK(match.pin == 0 && match.token_count == 0 && match.fetchable_token_count == 3);
    CHECK_EQ(find(cache, other, 0).fetchable_token_count, 0);
    rkv_snapshot_cache_fetch_result started = fetch(cache, &tenant, asked, 0);
    CHECK(started.ticket != 0 && started.token_count == 3 && started.common_token_count == 3);
    CHECK_EQ(started.size_bytes, WHOLE);
    match = take_when_there(cache, started.ticket);
    CHECK(match.pin != 0 && match.token_count == 3 && match.common_token_count == 3);
    CHECK(match.is_copy == 1 && match.has_next_token == 1 && match.next_token == 99);
    CHECK_EQ(match.size_bytes, WHOLE);
    rkv_snapshot_part found[3];
    size_t count = 0;
    CHECK_OK(rkv_snapshot_cache_read_parts(cache, match.pin, NULL, 0, 0, &count));
    CHECK_EQ(count, 3);
    CHECK_OK(rkv_snapshot_cache_read_parts(cache, match.pin, found, sizeof found[0], 3, &count));
    CHECK(found[0].data == match.data);
    for (size_t at = 0; at < 3; at++) {
        CHECK_EQ(found[at].size_bytes, parts[at].size_bytes);
        CHECK_EQ((uintptr_t)found[at].data % 16, 0);
        CHECK(parts[at].size_bytes == 0 ||
              memcmp(found[at].data, parts[at].data, (size_t)parts[at].size_bytes) == 0);
    }
    /* now it is in memory, and stays while it is used */
    CHECK_EQ(fetch(cache, &tenant, asked, 0).ticket, 0);
    CHECK_OK(rkv_snapshot_cache_clear(cache));
    CHECK(memcmp(match.data, small_part, sizeof small_part) == 0);
    CHECK_OK(rkv_snapshot_cache_release(cache, match.pin));
    CHECK_EQ(tier_stats(cache).entry_count, 0);
    end(cache);
    remove_directory();
}

static void t01_branches_fetch_what_can_be_trimmed(void) {
    uint32_t ids[8];
    count_up(ids, 8, 1);
    make_directory();
    rkv_tokens six = text(ids, 6);
    rkv_snapshot_cache *cache = restart(NULL);
    rkv_snapshot_cache_insert_args args = storable(&six);
    args.flags |= RKV_SNAPSHOT_INSERT_TRIMMABLE;
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    cache = restart(cache);
    ids[4] = 50;
    rkv_tokens branch = text(ids, 6);
    CHECK_EQ(find(cache, branch, 0).fetchable_token_count, 0);
    CHECK_EQ(find(cache, branch, RKV_SNAPSHOT_MATCH_TRIMMABLE).fetchable_token_count, 4);
    CHECK_EQ(fetch(cache, NULL, branch, 0).ticket, 0);
    rkv_snapshot_cache_fetch_result started =
        fetch(cache, NULL, branch, RKV_SNAPSHOT_MATCH_TRIMMABLE);
    CHECK(started.token_count == 6 && started.common_token_count == 4);
    rkv_snapshot_cache_match_result match = take_when_there(cache, started.ticket);
    CHECK(match.token_count == 6 && match.common_token_count == 4 && match.full_hit == 0);
    CHECK_OK(rkv_snapshot_cache_release(cache, match.pin));
    match = find(cache, branch, RKV_SNAPSHOT_MATCH_TRIMMABLE);
    CHECK(match.pin != 0 && match.is_copy == 1 && match.fetchable_token_count == 0);
    CHECK_OK(rkv_snapshot_cache_release(cache, match.pin));
    end(cache);
    remove_directory();
}

static int garbage(const char *path, const struct stat *what, int kind, struct FTW *where) {
    (void)where;
    const char *name = strrchr(path, '/') + 1;
    if (kind != FTW_F || strcmp(name, "data") != 0) {
        return 0;
    }
    FILE *file = fopen(path, "r+b");
    if (file == NULL) {
        return 1;
    }
    for (long at = 0; at < (long)what->st_size; at++) {
        fputc((int)(at % 251), file);
    }
    return fclose(file);
}

/* A wrong byte is never passed on: it is a miss, and the record goes. */
static void t04_damage_is_a_miss(void) {
    uint32_t ids[8];
    count_up(ids, 8, 1);
    make_directory();
    rkv_tokens three = text(ids, 3);
    rkv_snapshot_cache *cache = restart(NULL);
    rkv_snapshot_cache_insert_args args = storable(&three);
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    CHECK_OK(rkv_snapshot_cache_flush(cache, MINUTE));
    rkv_snapshot_cache_destroy(cache);
    CHECK_EQ(nftw(directory, garbage, 16, FTW_PHYS), 0);
    cache = restart(NULL);
    rkv_snapshot_cache_fetch_result started = fetch(cache, NULL, three, 0);
    CHECK(started.ticket != 0);
    rkv_snapshot_cache_match_result match = take_when_there(cache, started.ticket);
    CHECK(match.pin == 0 && match.data == NULL && match.token_count == 0);
    rkv_snapshot_tier_stats stats = tier_stats(cache);
    CHECK(stats.damaged_count == 1 && stats.failed_load_count == 1 && stats.entry_count == 0);
    CHECK_EQ(fetch(cache, NULL, three, 0).ticket, 0);
    end(cache);
    remove_directory();
}

static void t11_t12_tickets(void) {
    uint32_t ids[8];
    count_up(ids, 8, 1);
    make_directory();
    rkv_tokens three = text(ids, 3), others = text(ids + 4, 4);
    rkv_snapshot_cache *cache = restart(NULL);
    rkv_snapshot_cache_insert_args args = storable(&others);
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    args = storable(&three);
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    cache = restart(cache);
    rkv_ticket_id first = fetch(cache, NULL, others, 0).ticket;
    CHECK_OK(rkv_snapshot_cache_cancel(cache, first));
    rkv_snapshot_cache_match_result match = new_found();
    CHECK_STATUS(rkv_snapshot_cache_take(cache, first, &match), RKV_STATUS_STALE_TICKET);
    CHECK_STATUS(rkv_snapshot_cache_cancel(cache, first), RKV_STATUS_STALE_TICKET);
    rkv_ticket_id second = fetch(cache, NULL, three, 0).ticket;
    /* none when the read has ended meanwhile: memory has it then */
    rkv_ticket_id third = fetch(cache, NULL, three, 0).ticket;
    CHECK(second != 0 && second != third && second != first && first != 0);
    CHECK_EQ(tier_stats(cache).joined_count, third != 0);
    for (int at = 0; at < 2; at++) {
        rkv_ticket_id ticket = at == 0 ? third : second;
        if (ticket == 0) {
            continue;
        }
        match = take_when_there(cache, ticket);
        CHECK(match.pin != 0 && match.is_copy == 1);
        CHECK_OK(rkv_snapshot_cache_release(cache, match.pin));
    }
    CHECK_EQ(tier_stats(cache).ticket_count, 0);
    /* what is out when the directory goes is stale */
    CHECK_OK(rkv_snapshot_cache_clear(cache));
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
    cache = restart(cache);
    first = fetch(cache, NULL, three, 0).ticket;
    CHECK(first != 0);
    CHECK_OK(rkv_snapshot_cache_detach(cache, MINUTE));
    CHECK_STATUS(rkv_snapshot_cache_take(cache, first, &match), RKV_STATUS_STALE_TICKET);
    CHECK_STATUS(rkv_snapshot_cache_detach(cache, 0), RKV_STATUS_INVALID_STATE);
    CHECK_STATUS(rkv_snapshot_cache_flush(cache, 0), RKV_STATUS_INVALID_STATE);
    CHECK_EQ(tier_stats(cache).byte_limit, 0);
    rkv_snapshot_cache_destroy(cache);
    remove_directory();
}

static void t14_one_owner_of_one_kind(void) {
    make_directory();
    rkv_snapshot_cache *first = restart(NULL), *second = NULL;
    CHECK_OK(rkv_snapshot_cache_create(NULL, &second));
    rkv_snapshot_tier_config config = tier_config();
    CHECK_STATUS(rkv_snapshot_cache_attach(second, &config), RKV_STATUS_STORAGE);
    CHECK(message_names(directory));
    CHECK_STATUS(rkv_snapshot_cache_attach(first, &config), RKV_STATUS_INVALID_STATE);
    end(first);
    config.fingerprint[31] = 1;
    CHECK_STATUS(rkv_snapshot_cache_attach(second, &config), RKV_STATUS_STORAGE);
    CHECK(message_names("fingerprint") && message_names(directory));
    config.fingerprint[31] = 0;
    CHECK_OK(rkv_snapshot_cache_attach(second, &config));
    end(second);
    /* a place where there can be none */
    CHECK_OK(rkv_snapshot_cache_create(NULL, &second));
    config.directory = "/proc/no/such/place";
    CHECK_STATUS(rkv_snapshot_cache_attach(second, &config), RKV_STATUS_STORAGE);
    CHECK(message_names("/proc/no/such/place"));
    rkv_snapshot_cache_destroy(second);
    remove_directory();
}

static pthread_t owner;
static int lets_go, holder; /* 1: a thread of the library, 2: the owner, who goes on */

static int read_flag(const int *flag) {
    return __atomic_load_n(flag, __ATOMIC_SEQ_CST);
}

static void set_flag(int *flag, int value) {
    __atomic_store_n(flag, value, __ATOMIC_SEQ_CST);
}

/* Keeps the thread of the library that destroys it. */
static void hold_on(void *data, uint64_t size_bytes, void *user_data) {
    (void)data, (void)size_bytes, (void)user_data;
    const int who = pthread_equal(pthread_self(), owner) ? 2 : 1;
    set_flag(&holder, who);
    while (who == 1 && !read_flag(&lets_go)) {
        (void)poll(NULL, 0, 1);
    }
}

static void insert_large(rkv_snapshot_cache *cache, uint32_t id, void *data, uint64_t size_bytes,
                         rkv_snapshot_destructor destructor) {
    rkv_tokens tokens = text(&id, 1);
    rkv_snapshot_cache_insert_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.flags = RKV_SNAPSHOT_INSERT_STORABLE;
    args.tokens = &tokens;
    args.data = data;
    args.size_bytes = size_bytes;
    args.destructor = destructor;
    CHECK_OK(rkv_snapshot_cache_insert(cache, &args, NULL));
}

/* What a removed write gives back of waiting_byte_limit, when what it came from is let go, is room
 * for what was refused meanwhile. */
static void give_room_back(bool waits_first) {
    const uint64_t mib = 1 << 20;
    uint8_t *bytes = calloc(64, mib);
    rkv_snapshot_cache *cache = NULL;
    rkv_snapshot_tier_config config;
    make_directory();
    config = tier_config();
    config.flags = RKV_TIERS_THREADS;
    config.worker_count = 1;
    config.byte_limit = 256 * mib;
    config.waiting_byte_limit = 64 * mib;
    CHECK_OK(rkv_snapshot_cache_create(NULL, &cache));
    CHECK_OK(rkv_snapshot_cache_attach(cache, &config));
    owner = pthread_self();
    set_flag(&lets_go, 0);
    /* The one thread writes the first one while the second waits, and both are removed. Who comes
     * last destroys the second: until that is the committer, which is held then. */
    do {
        const uint64_t before = tier_stats(cache).write_ns;
        set_flag(&holder, 0);
        insert_large(cache, 1, bytes, 48 * mib, NULL);
        while (tier_stats(cache).write_ns == before) {
            (void)poll(NULL, 0, 1);
        }
        insert_large(cache, 2, bytes, 16 * mib, hold_on);
        for (uint32_t id = 2; id >= 1; id--) {
            rkv_tokens tokens = text(&id, 1);
            CHECK_OK(rkv_snapshot_cache_remove(cache, NULL, &tokens, NULL));
        }
        while (read_flag(&holder) == 0 || tier_stats(cache).waiting_bytes > 16 * mib) {
            (void)poll(NULL, 0, 1);
        }
    } while (read_flag(&holder) == 2);
    insert_large(cache, 3, bytes, 60 * mib, NULL);
    CHECK_EQ(tier_stats(cache).throttled_count, 1);
    set_flag(&lets_go, 1);
    while (waits_first && tier_stats(cache).waiting_bytes > 0) {
        (void)poll(NULL, 0, 1);
    }
    CHECK_OK(rkv_snapshot_cache_flush(cache, MINUTE));
    CHECK_EQ(tier_stats(cache).entry_count, 1);
    CHECK_EQ(tier_stats(cache).writing_count, 0);
    end(cache);
    free(bytes);
    remove_directory();
}

static void t08_removed_writes_give_their_room_back(void) {
    give_room_back(true);
    give_room_back(false);
}

int main(void) {
    event_fd = eventfd(0, EFD_CLOEXEC);
    fill_parts();
    RUN(t01_a_restart_finds_all);
    RUN(t01_branches_fetch_what_can_be_trimmed);
    RUN(t04_damage_is_a_miss);
    RUN(t08_removed_writes_give_their_room_back);
    RUN(t11_t12_tickets);
    RUN(t14_one_owner_of_one_kind);
    close(event_fd);
    return check_result();
}
