/* What is read of groups, with less room than it needs, and with none. */
#include "hybrid.h"

/* J06, M01: (NULL, 0) asks; NULL with room for more is refused, and no count is told. */
static void j06_null_has_no_room(void) {
    fixture f = new_hybrid(40, 40, 9);
    uint32_t ids[40], found[MOST];
    size_t count = 77;
    count_up(ids, 40, 1);
    serve_rows(&f, text(ids, 40), 10, 20, 40);
    rkv_cache_match_result match = lock_match(&f, text(ids, 39), found);
    rkv_sequence_info state = begin(&f, text(ids, 40));
    CHECK_STATUS(rkv_cache_read_locked_pages(f.cache, match.lock, WINDOW, NULL,
                                             sizeof(rkv_locked_page), 4, &count),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("pages is NULL") && count == 77);
    CHECK_STATUS(rkv_cache_read_group_stats(f.cache, NULL, sizeof(rkv_group_stats), 3, &count),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("groups is NULL") && count == 77);
    CHECK_STATUS(rkv_sequence_read_published(f.cache, state.sequence, NULL,
                                             sizeof(rkv_published_group), 2, &count),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("groups is NULL") && count == 77);
    CHECK_OK(rkv_cache_read_group_stats(f.cache, NULL, 0, 0, &count));
    CHECK_EQ(count, GROUP_COUNT);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    release(&f, state.sequence);
    end_hybrid(&f);
}

/* J06: too little room is refused with the count, and nothing is written. */
static void j06_too_little_room_for_groups(void) {
    fixture f = new_hybrid(40, 40, 9);
    uint32_t ids[40], found[MOST];
    size_t count = 77;
    count_up(ids, 40, 1);
    serve_rows(&f, text(ids, 40), 10, 20, 40);
    rkv_cache_match_result match = lock_match(&f, text(ids, 39), found);
    rkv_locked_page pages[MOST];
    const size_t locked = locked_pages(&f, match.lock, WINDOW, pages);
    CHECK(locked > 1);
    memset(pages, 0xA5, sizeof pages);
    CHECK_STATUS(rkv_cache_read_locked_pages(f.cache, match.lock, WINDOW, pages, sizeof *pages,
                                             locked - 1, &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(count == locked && pages[0].page == 0xA5A5A5A5u);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    end_hybrid(&f);
}

int main(void) {
    RUN(j06_null_has_no_room);
    RUN(j06_too_little_room_for_groups);
    return check_result();
}
