/* M01: an attachment that is refused leaves the directory as it is. */
#define _XOPEN_SOURCE 700
#include "tiers.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static char directory[64];

static int remove_one(const char *path, const struct stat *what, int kind, struct FTW *where) {
    (void)what, (void)kind, (void)where;
    return remove(path);
}

static void new_directory(void) {
    strcpy(directory, "/tmp/radixkv-refused-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        exit(1);
    }
}

static void m01_what_is_refused_changes_no_directory(void) {
    new_directory();
    uint32_t ids[33];
    count_up(ids, 33, 1);
    rkv_tier_config good = tier_config();
    good.directory = directory;
    good.disk_bytes = 1 << 20;
    good.commit_interval_ms = 1;
    engine e = {.f = journal_fixture()};
    fixture *f = &e.f;
    CHECK_OK(rkv_cache_attach_tiers(f->cache, &good));
    CHECK_EQ(request(&e, ids, 33), 0);
    until_stored(&e, 8, 8);
    CHECK_OK(rkv_cache_detach_tiers(f->cache, MINUTE));

    /* Room for one page or two: an attachment lets the others go, a refused one doesn't. */
    rkv_tier_config small = good;
    small.disk_bytes = 2 * 4096;
    rkv_tier_config bad = small;
    bad.event_fd = 1 << 20;
    BAD(f, rkv_cache_attach_tiers(f->cache, &bad), "config.event_fd");
    bad = small;
    bad.store_after_uses = 256;
    BAD(f, rkv_cache_attach_tiers(f->cache, &bad), "config.store_after_uses");
    bad = small;
    bad.remote_timeout_ms = 1;
    BAD(f, rkv_cache_attach_tiers(f->cache, &bad), "config.remote_timeout_ms");
    const rkv_tier_pool_config pools[] = {{BYTES, 16 * BYTES, NULL}, {BYTES, 16 * BYTES, NULL}};
    bad = small;
    bad.page_bytes = bad.host_bytes = 0;
    bad.pools = pools;
    bad.pool_count = 2;
    BAD(f, rkv_cache_attach_tiers(f->cache, &bad), "config.pool_count");
    fixture plain = new_fixture(PAGE, PAGES + 1);
    REFUSED(&plain, rkv_cache_attach_tiers(plain.cache, &small), RKV_STATUS_INVALID_STATE,
            "journal");
    end_fixture(&plain);

    /* Pages of another size are another layout's: a wrong start must not cost what is there. */
    bad = small;
    bad.page_bytes = 2 * BYTES;
    REFUSED(f, rkv_cache_attach_tiers(f->cache, &bad), RKV_STATUS_STORAGE,
            "pages of 96 bytes of group 0, whose page_bytes are 192 here");

    CHECK_OK(rkv_cache_attach_tiers(f->cache, &good));
    CHECK_EQ(tier_stats(f).disk.page_count, 8);
    CHECK_EQ(tier_stats(f).unusable_page_count, 0);
    CHECK_OK(rkv_cache_detach_tiers(f->cache, MINUTE));

    /* What the smaller one lets go is counted. */
    CHECK_OK(rkv_cache_attach_tiers(f->cache, &small));
    CHECK_EQ(tier_stats(f).disk.page_count, 1);
    CHECK_EQ(tier_stats(f).disk.evicted_page_count, 7);
    CHECK_OK(rkv_cache_detach_tiers(f->cache, MINUTE));
    end_engine(&e);
    CHECK_EQ(nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Disks of these sizes are refused: the field is named, and the directory is not made. */
static void refuse_disks(const uint64_t *sizes, size_t count) {
    new_directory();
    char below[80];
    snprintf(below, sizeof below, "%s/pages", directory);
    engine e = {.f = journal_fixture()};
    rkv_tier_config config = tier_config();
    config.directory = below;
    for (size_t i = 0; i < count; i++) {
        config.disk_bytes = sizes[i];
        BAD(&e.f, rkv_cache_attach_tiers(e.f.cache, &config), "config.disk_bytes");
        CHECK(access(below, F_OK) != 0);
    }
    end_engine(&e);
    CHECK_EQ(nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* There are no numbers for so many pages. */
static void m01_more_pages_than_have_numbers(void) {
    const uint64_t sizes[] = {UINT64_C(1) << 52, UINT64_MAX};
    refuse_disks(sizes, 2);
}

/* A page takes whole blocks of the disk, and its note. */
static void m01_a_disk_with_room_for_no_page(void) {
    const uint64_t sizes[] = {BYTES, 4096};
    refuse_disks(sizes, 2);
}

/* What would be written to wake somebody goes into an eventfd, and into nothing else: a config
   that was zeroed names standard input. */
static void m01_only_an_eventfd_wakes(void) {
    strcpy(directory, "/tmp/radixkv-refused-XXXXXX");
    const int file = mkstemp(directory), null = open("/dev/null", O_RDWR), real = eventfd(0, 0);
    int ends[2];
    if (file < 0 || null < 0 || real < 0 || pipe(ends) != 0) {
        exit(1);
    }
    CHECK_EQ(unlink(directory), 0);
    rkv_snapshot_cache *snapshots = NULL;
    CHECK_OK(rkv_snapshot_cache_create(NULL, &snapshots));
    rkv_snapshot_tier_config below;
    CHECK_OK(rkv_snapshot_tier_config_init(&below, sizeof below));
    below.directory = "/proc/no/such/place";
    below.byte_limit = 1 << 20;
    engine e = {.f = journal_fixture()};
    rkv_tier_config config = tier_config();
    const int others[] = {file, null, ends[0], ends[1]};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        config.event_fd = below.event_fd = others[i];
        BAD(&e.f, rkv_cache_attach_tiers(e.f.cache, &config), "is no eventfd");
        CHECK_STATUS(rkv_snapshot_cache_attach(snapshots, &below), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("is no eventfd"));
    }
    CHECK_EQ(lseek(file, 0, SEEK_END), 0);
    config.event_fd = below.event_fd = real;
    CHECK_OK(rkv_cache_attach_tiers(e.f.cache, &config));
    CHECK_OK(rkv_cache_detach_tiers(e.f.cache, MINUTE));
    CHECK_STATUS(rkv_snapshot_cache_attach(snapshots, &below), RKV_STATUS_STORAGE);
    rkv_snapshot_cache_destroy(snapshots);
    end_engine(&e);
    const int all[] = {file, null, real, ends[0], ends[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK_EQ(close(all[i]), 0);
    }
}

int main(void) {
    RUN(m01_what_is_refused_changes_no_directory);
    RUN(m01_more_pages_than_have_numbers);
    RUN(m01_a_disk_with_room_for_no_page);
    RUN(m01_only_an_eventfd_wakes);
    return check_result();
}
