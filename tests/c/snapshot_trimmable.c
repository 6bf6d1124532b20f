/* S01: entries that serve a list beyond which they go on, since the engine can cut them. */
#include "snapshots.h"

/* Stores the next number for a list, as one that can be cut. */
static int put_trimmable(shelf *s, rkv_tokens tokens) {
    rkv_snapshot_cache_insert_args args = shelf_args(s, &tokens, 1);
    args.flags = RKV_SNAPSHOT_INSERT_TRIMMABLE;
    CHECK_EQ(put_args(s, &args).stored, 1);
    return s->made_count - 1;
}

static rkv_snapshot_cache_match_result trim_in(const shelf *s, const rkv_namespace *space,
                                               rkv_tokens tokens) {
    rkv_snapshot_cache_match_result match = new_found();
    CHECK_OK(rkv_snapshot_cache_match(s->cache, space, &tokens, RKV_SNAPSHOT_MATCH_TRIMMABLE,
                                      &match));
    CHECK((match.pin == 0) == (match.common_token_count == 0));
    CHECK(match.common_token_count <= match.token_count);
    CHECK(match.common_token_count <= tokens.count);
    CHECK_EQ(match.full_hit, match.pin != 0 && match.token_count == tokens.count
                                 && match.common_token_count == tokens.count);
    if (match.pin != 0) {
        let_go(s, match);
    }
    return match;
}

/* What is found for a list, with how many of its tokens. */
static bool trims_to(const shelf *s, rkv_tokens tokens, int number, size_t common_count) {
    rkv_snapshot_cache_match_result match = trim_in(s, NULL, tokens);
    return number_of(match) == number && match.common_token_count == common_count;
}

static void s01_a_trimmable_entry_is_found_by_its_beginning(void) {
    shelf s = new_shelf(64, UINT64_MAX);
    uint32_t ids[10], branch[10];
    count_up(ids, 10, 1);
    count_up(branch, 10, 1);
    branch[6] = 99;
    CHECK(trims_to(&s, text(ids, 10), -1, 0));
    int eight = put_trimmable(&s, text(ids, 8));
    for (size_t count = 0; count <= 10; count++) {
        size_t common = count > 8 ? 8 : count;
        CHECK(trims_to(&s, text(ids, count), count == 0 ? -1 : eight, common));
    }
    CHECK(trims_to(&s, text(branch, 10), eight, 6));
    CHECK(trims_to(&s, text(&ids[1], 5), -1, 0));
    /* a hit says what the snapshot covers, and what of it is common */
    rkv_snapshot_cache_match_result match = trim_in(&s, NULL, text(branch, 10));
    CHECK(match.token_count == 8 && match.full_hit == 0);
    match = trim_in(&s, NULL, text(ids, 8));
    CHECK(match.token_count == 8 && match.full_hit == 1);
    CHECK_EQ(trim_in(&s, NULL, text(ids, 5)).full_hit, 0);
    /* another namespace has nothing of it */
    rkv_namespace tenant = new_namespace();
    tenant.epoch = 7;
    CHECK_EQ(trim_in(&s, &tenant, text(ids, 8)).pin, 0);
    end_shelf(&s);
}

static void s01_it_takes_both_flags(void) {
    shelf s = new_shelf(64, UINT64_MAX);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    int plain = put(&s, text(ids, 6));
    CHECK(trims_to(&s, text(ids, 5), -1, 0));
    CHECK(trims_to(&s, text(ids, 8), plain, 6));
    int trimmable = put_trimmable(&s, text(ids, 8));
    CHECK_EQ(use(&s, text(ids, 5)), -1);
    CHECK_EQ(look(&s, text(ids, 5)), 0);
    CHECK_EQ(use(&s, text(ids, 7)), plain);
    CHECK(trims_to(&s, text(ids, 5), trimmable, 5));
    CHECK(trims_to(&s, text(ids, 7), trimmable, 7));
    /* the last insert says what an entry is */
    int again = put(&s, text(ids, 8));
    CHECK(trims_to(&s, text(ids, 7), plain, 6));
    CHECK(trims_to(&s, text(ids, 8), again, 8));
    again = put_trimmable(&s, text(ids, 6));
    CHECK(trims_to(&s, text(ids, 7), again, 6));
    CHECK(trims_to(&s, text(ids, 3), again, 3));
    /* old callers do not know the last field, and may find something they cannot use: they get it
     * only if they ask */
    rkv_snapshot_cache_match_result match = new_found();
    rkv_tokens tokens = text(ids, 7);
    match.common_token_count = 55;
    match.struct_size = offsetof(rkv_snapshot_cache_match_result, common_token_count);
    CHECK_OK(rkv_snapshot_cache_match(s.cache, NULL, &tokens, 0, &match));
    CHECK(number_of(match) == again && match.common_token_count == 55);
    CHECK_OK(rkv_snapshot_cache_release(s.cache, match.pin));
    match = get(&s, text(ids, 7));
    CHECK(match.token_count == 6 && match.common_token_count == 6);
    let_go(&s, match);
    end_shelf(&s);
}

static void s01_of_several_the_one_that_is_whole_or_on_the_way(void) {
    shelf s = new_shelf(64, UINT64_MAX);
    uint32_t ids[12], other[12];
    count_up(ids, 12, 1);
    count_up(other, 12, 1);
    other[5] = 77;
    int far = put_trimmable(&s, text(ids, 12));
    int near = put_trimmable(&s, text(ids, 9));
    CHECK(trims_to(&s, text(ids, 7), near, 7));
    CHECK(trims_to(&s, text(ids, 11), far, 11));
    int whole = put(&s, text(ids, 7));
    CHECK(trims_to(&s, text(ids, 7), whole, 7));
    CHECK(trims_to(&s, text(ids, 6), near, 6));
    /* more in common wins over being whole */
    CHECK(trims_to(&s, text(ids, 8), near, 8));
    int side = put_trimmable(&s, text(other, 12));
    CHECK(trims_to(&s, text(other, 8), side, 8));
    int number = number_of(trim_in(&s, NULL, text(ids, 5)));
    CHECK(number == near || number == side);
    end_shelf(&s);
}

/* The way to what is left is right whatever goes: by hand, for the limits, by a clear. */
static void s01_the_way_is_right_after_others_went(void) {
    enum { CHATS = 6 };
    shelf s = new_shelf(2 * CHATS, UINT64_MAX);
    uint32_t ids[CHATS][9];
    int numbers[CHATS];
    for (uint32_t chat = 0; chat < CHATS; chat++) {
        count_up(ids[chat], 9, 1);
        ids[chat][4] = 100 + chat;
        put(&s, text(ids[chat], 6));
        numbers[chat] = put_trimmable(&s, text(ids[chat], 9));
    }
    for (uint32_t chat = 0; chat < CHATS; chat++) {
        CHECK(trims_to(&s, text(ids[chat], 8), numbers[chat], 8));
        CHECK(take_out(&s, text(ids[chat], 9)));
        CHECK_EQ(number_of(trim_in(&s, NULL, text(ids[chat], 8))), (int)(2 * chat));
        rkv_snapshot_cache_match_result match = trim_in(&s, NULL, text(ids[chat], 4));
        CHECK_EQ(match.pin != 0, chat + 1 < CHATS);
    }
    int kept = put_trimmable(&s, text(ids[0], 9));
    CHECK(trims_to(&s, text(ids[1], 4), kept, 4));
    for (uint32_t more = 0; more < 2 * CHATS; more++) {
        uint32_t one[2] = {500 + more, 1};
        put(&s, text(one, 2));
    }
    CHECK(trims_to(&s, text(ids[1], 4), -1, 0));
    put_trimmable(&s, text(ids[0], 9));
    CHECK_OK(rkv_snapshot_cache_clear(s.cache));
    CHECK(trims_to(&s, text(ids[0], 9), -1, 0));
    end_shelf(&s);
}

/* What a lookup counts is what is common. */
static void s01_common_tokens_are_counted(void) {
    shelf s = new_shelf(8, UINT64_MAX);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    put_trimmable(&s, text(ids, 8));
    CHECK_EQ(trim_in(&s, NULL, text(ids, 3)).common_token_count, 3);
    CHECK_EQ(trim_in(&s, NULL, text(ids, 8)).full_hit, 1);
    rkv_snapshot_cache_stats stats = shelf_stats(&s);
    CHECK(stats.lookup_count == 2 && stats.hit_count == 2 && stats.full_hit_count == 1);
    CHECK(stats.lookup_token_count == 11 && stats.hit_token_count == 11);
    end_shelf(&s);
}

int main(void) {
    RUN(s01_a_trimmable_entry_is_found_by_its_beginning);
    RUN(s01_it_takes_both_flags);
    RUN(s01_of_several_the_one_that_is_whole_or_on_the_way);
    RUN(s01_the_way_is_right_after_others_went);
    RUN(s01_common_tokens_are_counted);
    return check_result();
}
