/* The snapshot cache: what is found, what is kept, what goes and in which order. */
#include "snapshots.h"

static void s01_longest_stored_prefix(void) {
    shelf s = new_shelf(64, UINT64_MAX);
    uint32_t ids[8], other[8];
    count_up(ids, 8, 1);
    count_up(other, 8, 1);
    other[3] = 99;
    CHECK_EQ(use(&s, text(ids, 8)), -1);
    int two = put(&s, text(ids, 2)), five = put(&s, text(ids, 5));
    int branch = put(&s, text(other, 6));
    for (size_t count = 0; count <= 8; count++) {
        int want = count < 2 ? -1 : count < 5 ? two : five;
        rkv_snapshot_cache_match_result match = get(&s, text(ids, count));
        CHECK_EQ(number_of(match), want);
        CHECK_EQ(match.token_count, want < 0 ? 0 : want == two ? 2 : 5);
        CHECK_EQ(look(&s, text(ids, count)), match.token_count);
        if (match.pin != 0) {
            let_go(&s, match);
        }
    }
    CHECK_EQ(use(&s, text(other, 5)), two);
    CHECK_EQ(use(&s, text(other, 6)), branch);
    CHECK_EQ(use(&s, text(other, 8)), branch);
    CHECK_EQ(use(&s, text(&ids[1], 4)), -1);
    end_shelf(&s);
}

/* Every token counts, also the last of many, whatever the order in which lists came. */
static void s01_tokens_are_compared(void) {
    enum { LONG = 5000 };
    static uint32_t ids[LONG];
    shelf s = new_shelf(64, UINT64_MAX);
    count_up(ids, LONG, 7);
    int whole = put(&s, text(ids, LONG));
    for (size_t at = 0; at < LONG; at += 1 + at / 3) {
        ids[at]++;
        CHECK_EQ(use(&s, text(ids, LONG)), -1);
        ids[at]--;
    }
    /* cut the one segment in pieces, from behind and from the front */
    int middle = put(&s, text(ids, 2500)), late = put(&s, text(ids, 4999));
    int early = put(&s, text(ids, 1));
    CHECK_EQ(shelf_stats(&s).node_count, 4);
    CHECK_EQ(use(&s, text(ids, LONG)), whole);
    CHECK_EQ(use(&s, text(ids, LONG - 1)), late);
    CHECK_EQ(use(&s, text(ids, LONG - 2)), middle);
    CHECK_EQ(use(&s, text(ids, 2499)), early);
    ids[4999]++;
    CHECK_EQ(use(&s, text(ids, LONG)), late);
    /* ids beyond the limit match nothing; the largest below it is an id like others */
    ids[0] = RKV_TEXT_ID_LIMIT;
    CHECK_EQ(use(&s, text(ids, LONG)), -1);
    ids[0] = RKV_TEXT_ID_LIMIT - 1;
    put(&s, text(ids, 1));
    CHECK_EQ(look(&s, text(ids, 3)), 1);
    end_shelf(&s);
}

static void s01_namespaces_share_nothing(void) {
    shelf s = new_shelf(8, UINT64_MAX);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_namespace tenant = new_namespace();
    rkv_tokens tokens = text(ids, 3);
    rkv_snapshot_cache_insert_args args = shelf_args(&s, &tokens, 1);
    tenant.salt[31] = 1;
    args.space = &tenant;
    CHECK_EQ(look_in(&s, &tenant, text(ids, 4)), 0);
    CHECK_EQ(shelf_stats(&s).namespace_count, 0);
    put_args(&s, &args);
    CHECK_EQ(look_in(&s, &tenant, text(ids, 4)), 3);
    CHECK_EQ(look(&s, text(ids, 4)), 0);
    int ours = put(&s, text(ids, 3));
    rkv_snapshot_cache_match_result theirs = get_in(&s, &tenant, text(ids, 3));
    CHECK_EQ(number_of(theirs), 0);
    let_go(&s, theirs);
    CHECK_EQ(use(&s, text(ids, 3)), ours);
    CHECK_EQ(shelf_stats(&s).namespace_count, 2);
    /* a namespace goes with its last entry */
    CHECK(take_out(&s, text(ids, 3)));
    CHECK_EQ(shelf_stats(&s).namespace_count, 1);
    bool removed = false;
    CHECK_OK(rkv_snapshot_cache_remove(s.cache, &tenant, &tokens, &removed));
    CHECK(removed);
    CHECK_EQ(shelf_stats(&s).namespace_count, 0);
    end_shelf(&s);
}

static void s01_probe_changes_nothing(void) {
    shelf s = new_shelf(2, UINT64_MAX);
    uint32_t ids[3] = {1, 2, 3};
    put(&s, text(&ids[0], 1));
    put(&s, text(&ids[1], 1));
    rkv_snapshot_cache_stats before = shelf_stats(&s);
    CHECK_EQ(look(&s, text(ids, 3)), 1);
    rkv_snapshot_cache_stats after = shelf_stats(&s);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    /* it was no use: the oldest still goes */
    put(&s, text(&ids[2], 1));
    CHECK(gone_are(&s, 1, (const int[]){0}));
    end_shelf(&s);
}

static void s02_replacing_keeps_readers(void) {
    shelf s = new_shelf(4, UINT64_MAX);
    uint32_t ids[3] = {1, 2, 3};
    int first = put(&s, text(ids, 3));
    rkv_snapshot_cache_match_result early = get(&s, text(ids, 3)), twin = get(&s, text(ids, 3));
    CHECK(early.pin != twin.pin);
    CHECK_EQ(put_bytes(&s, text(ids, 3), 5).replaced, 1);
    rkv_snapshot_cache_match_result late = get(&s, text(ids, 3));
    CHECK_EQ(number_of(late), first + 1);
    /* who read the first goes on doing so */
    CHECK(number_of(early) == first && number_of(twin) == first && s.order_count == 0);
    rkv_snapshot_cache_stats stats = shelf_stats(&s);
    CHECK(stats.entry_count == 1 && stats.entry_bytes == 5 && stats.pin_count == 3);
    CHECK(stats.detached_count == 1 && stats.detached_bytes == 1 && stats.replaced_count == 1);
    let_go(&s, early);
    CHECK_EQ(number_of(twin), first);
    let_go(&s, twin);
    CHECK(gone_are(&s, 1, &first));
    let_go(&s, late);
    /* without a reader the old one goes at once */
    CHECK_EQ(put_bytes(&s, text(ids, 3), 1).replaced, 1);
    CHECK(gone_are(&s, 2, (const int[]){first, first + 1}));
    CHECK_EQ(shelf_stats(&s).entry_count, 1);
    end_shelf(&s);
}

static void s03_least_recently_used_goes_first(void) {
    shelf s = new_shelf(3, UINT64_MAX);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    for (size_t i = 0; i < 3; i++) {
        put(&s, text(&ids[i], 1));
    }
    /* 0 is used; 1 is inserted again, as 3 */
    CHECK_EQ(use(&s, text(&ids[0], 1)), 0);
    put(&s, text(&ids[1], 1));
    CHECK(gone_are(&s, 1, (const int[]){1}));
    put(&s, text(&ids[5], 1));
    put(&s, text(&ids[6], 1));
    CHECK(gone_are(&s, 3, (const int[]){1, 2, 0}));
    CHECK_EQ(shelf_stats(&s).evicted_count, 2);
    CHECK_EQ(shelf_stats(&s).entry_count, 3);
    end_shelf(&s);
}

/* An entry is in use until its last pin is released: that is its last use. */
static void s03_a_use_lasts_until_its_release(void) {
    shelf s = new_shelf(3, UINT64_MAX);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    for (size_t i = 0; i < 3; i++) {
        put(&s, text(&ids[i], 1));
    }
    rkv_snapshot_cache_match_result first = get(&s, text(&ids[0], 1));
    use(&s, text(&ids[1], 1));
    use(&s, text(&ids[2], 1));
    let_go(&s, first);
    put(&s, text(&ids[3], 1));
    put(&s, text(&ids[4], 1));
    CHECK(gone_are(&s, 2, (const int[]){1, 2}));
    end_shelf(&s);
}

static void s03_bounded_by_bytes(void) {
    shelf s = new_shelf(100, 1000);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    CHECK_EQ(put_bytes(&s, text(&ids[0], 1), 400).evicted_count, 0);
    CHECK_EQ(put_bytes(&s, text(&ids[1], 1), 400).evicted_count, 0);
    CHECK_EQ(put_bytes(&s, text(&ids[2], 1), 200).evicted_count, 0);
    CHECK_EQ(shelf_stats(&s).entry_bytes, 1000);
    CHECK_EQ(put_bytes(&s, text(&ids[3], 1), 500).evicted_count, 2);
    CHECK(gone_are(&s, 2, (const int[]){0, 1}));
    CHECK_EQ(shelf_stats(&s).entry_bytes, 700);
    /* exactly as large as the limit: everything else goes */
    CHECK_EQ(put_bytes(&s, text(&ids[4], 1), 1000).evicted_count, 2);
    CHECK_EQ(shelf_stats(&s).entry_count, 1);
    /* larger: not stored, and nothing is lost for it, not even the entry of the same tokens */
    rkv_snapshot_cache_insert_result result = put_bytes(&s, text(&ids[4], 1), 1001);
    CHECK(result.stored == 0 && result.replaced == 0 && result.evicted_count == 0);
    CHECK_EQ(s.destroyed[5], 1);
    CHECK_EQ(use(&s, text(&ids[4], 1)), 4);
    CHECK_EQ(shelf_stats(&s).rejected_count, 1);
    end_shelf(&s);
}

/* What only readers keep takes memory too. */
static void s03_detached_bytes_count(void) {
    shelf s = new_shelf(100, 1000);
    uint32_t ids[2] = {1, 2};
    put_bytes(&s, text(&ids[0], 1), 300);
    put_bytes(&s, text(&ids[1], 1), 400);
    rkv_snapshot_cache_match_result old = get(&s, text(&ids[1], 1));
    CHECK_EQ(put_bytes(&s, text(&ids[1], 1), 500).evicted_count, 1);
    CHECK(gone_are(&s, 1, (const int[]){0}));
    CHECK(shelf_stats(&s).entry_bytes == 500 && shelf_stats(&s).detached_bytes == 400);
    let_go(&s, old);
    CHECK(gone_are(&s, 2, (const int[]){0, 1}));
    /* sizes are the caller's word: sums of absurd ones wrap nowhere */
    end_shelf(&s);
    s = new_shelf(100, UINT64_MAX);
    put_bytes(&s, text(&ids[0], 1), UINT64_MAX);
    rkv_snapshot_cache_match_result pinned = get(&s, text(&ids[0], 1));
    put_bytes(&s, text(&ids[1], 1), UINT64_MAX);
    CHECK(shelf_stats(&s).entry_count == 2 && shelf_stats(&s).entry_bytes == UINT64_MAX);
    let_go(&s, pinned);
    CHECK_EQ(shelf_stats(&s).entry_bytes, UINT64_MAX);
    CHECK_EQ(shelf_stats(&s).entry_count, 1);
    end_shelf(&s);
}

static void s03_everything_pinned(void) {
    shelf s = new_shelf(2, UINT64_MAX);
    uint32_t ids[8];
    rkv_snapshot_cache_match_result pins[4];
    count_up(ids, 8, 1);
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQ(put_bytes(&s, text(&ids[i], 1), 1).evicted_count, 0);
        pins[i] = get(&s, text(&ids[i], 1));
    }
    CHECK(shelf_stats(&s).entry_count == 4 && shelf_stats(&s).pinned_entry_count == 4);
    /* the new entry stays, or the insert would be in vain; it gives way to the next */
    CHECK_EQ(put_bytes(&s, text(&ids[4], 1), 1).evicted_count, 0);
    CHECK_EQ(put_bytes(&s, text(&ids[5], 1), 1).evicted_count, 1);
    CHECK(gone_are(&s, 1, (const int[]){4}));
    /* releases shrink it, oldest use first, until the limit holds */
    let_go(&s, pins[2]);
    CHECK(gone_are(&s, 3, (const int[]){4, 5, 2}));
    CHECK_EQ(shelf_stats(&s).entry_count, 3);
    let_go(&s, pins[0]);
    CHECK(gone_are(&s, 4, (const int[]){4, 5, 2, 0}));
    let_go(&s, pins[1]);
    let_go(&s, pins[3]);
    CHECK(s.order_count == 4 && shelf_stats(&s).entry_count == 2);
    end_shelf(&s);
}

static void s04_a_full_hit_needs_no_forward_pass(void) {
    shelf s = new_shelf(8, UINT64_MAX);
    uint32_t ids[5];
    count_up(ids, 5, 1);
    rkv_tokens tokens = text(ids, 4);
    rkv_snapshot_cache_insert_args args = shelf_args(&s, &tokens, 77);
    args.has_next_token = 1;
    args.next_token = UINT32_MAX; /* an id of the model's, whatever it is */
    put_args(&s, &args);
    put(&s, text(ids, 2));
    rkv_snapshot_cache_match_result match = get(&s, text(ids, 4));
    CHECK(match.full_hit == 1 && match.has_next_token == 1 && match.next_token == UINT32_MAX);
    CHECK(match.token_count == 4 && match.size_bytes == 77 && match.data == args.data);
    let_go(&s, match);
    /* of a part of the prompt: the token is that after the part */
    match = get(&s, text(ids, 5));
    CHECK(match.full_hit == 0 && match.has_next_token == 1 && match.token_count == 4);
    let_go(&s, match);
    /* a snapshot that came without */
    match = get(&s, text(ids, 2));
    CHECK(match.full_hit == 1 && match.has_next_token == 0 && match.next_token == 0);
    let_go(&s, match);
    CHECK_EQ(use(&s, text(&ids[3], 1)), -1);
    rkv_snapshot_cache_stats stats = shelf_stats(&s);
    CHECK(stats.lookup_count == 4 && stats.hit_count == 3 && stats.full_hit_count == 2);
    CHECK(stats.lookup_token_count == 12 && stats.hit_token_count == 10);
    end_shelf(&s);
}

static void s06_bound_zero_disables(void) {
    const uint64_t limits[3][2] = {{0, UINT64_MAX}, {9, 0}, {0, 0}};
    uint32_t ids[2] = {1, 2};
    for (size_t i = 0; i < 3; i++) {
        shelf s = new_shelf(limits[i][0], limits[i][1]);
        for (uint64_t size_bytes = 1; size_bytes < 3; size_bytes++) {
            CHECK_EQ(put_bytes(&s, text(ids, 2), size_bytes).stored, 0);
        }
        CHECK(gone_are(&s, 2, (const int[]){0, 1}));
        CHECK(use(&s, text(ids, 2)) == -1 && look(&s, text(ids, 2)) == 0);
        CHECK(!take_out(&s, text(ids, 2)));
        CHECK_EQ(shelf_stats(&s).rejected_count, 2);
        end_shelf(&s);
    }
}

static void s06_no_tokens_match_nothing(void) {
    shelf s = new_shelf(4, UINT64_MAX);
    uint32_t id = 1;
    CHECK_EQ(put_bytes(&s, text(NULL, 0), 1).stored, 0);
    put(&s, text(&id, 1));
    CHECK(use(&s, text(NULL, 0)) == -1 && look(&s, text(NULL, 0)) == 0);
    CHECK(!take_out(&s, text(NULL, 0)));
    CHECK_EQ(shelf_stats(&s).entry_count, 1);
    end_shelf(&s);
}

static void s08_removing_prunes_the_path(void) {
    shelf s = new_shelf(64, UINT64_MAX);
    uint32_t ids[64], branch[64];
    count_up(ids, 64, 1);
    count_up(branch, 64, 1);
    branch[40] = 1000;
    put(&s, text(ids, 64));
    CHECK_EQ(shelf_stats(&s).node_count, 1);
    put(&s, text(branch, 64));
    CHECK_EQ(shelf_stats(&s).node_count, 3);
    put(&s, text(ids, 10));
    put(&s, text(ids, 50));
    CHECK_EQ(shelf_stats(&s).node_count, 5);
    /* a point where lists part stays as long as they do, and no longer */
    CHECK(take_out(&s, text(branch, 64)));
    CHECK_EQ(shelf_stats(&s).node_count, 3);
    CHECK(!take_out(&s, text(branch, 64)) && !take_out(&s, text(ids, 41)));
    CHECK(take_out(&s, text(ids, 10)));
    CHECK(take_out(&s, text(ids, 64)));
    CHECK_EQ(shelf_stats(&s).node_count, 1);
    CHECK_EQ(use(&s, text(ids, 64)), 3);
    CHECK(take_out(&s, text(ids, 50)));
    CHECK(shelf_stats(&s).node_count == 0 && shelf_stats(&s).namespace_count == 0);
    CHECK_EQ(shelf_stats(&s).removed_count, 4);
    CHECK(gone_are(&s, 4, (const int[]){1, 2, 0, 3}));
    end_shelf(&s);
}

/* Turns of chats, of which the oldest go: nodes and memory stay those of what is left. */
static void s08_churn_does_not_grow_the_tree(void) {
    enum { ENTRIES = 8, TURN = 50, TURNS = 6 };
    shelf s = new_shelf(ENTRIES, UINT64_MAX);
    uint32_t ids[TURN * TURNS];
    uint64_t most = 0;
    for (uint32_t chat = 0; chat < 40; chat++) {
        count_up(ids, TURN * TURNS, chat * 10);
        for (size_t turn = 1; turn <= TURNS; turn++) {
            put(&s, text(ids, turn * TURN));
        }
        rkv_snapshot_cache_stats stats = shelf_stats(&s);
        CHECK(stats.node_count < 2 * stats.entry_count);
        most = stats.index_bytes > most && chat < 5 ? stats.index_bytes : most;
        CHECK(stats.index_bytes <= 2 * most);
    }
    CHECK_OK(rkv_snapshot_cache_clear(s.cache));
    CHECK(shelf_stats(&s).node_count == 0 && shelf_stats(&s).entry_count == 0);
    end_shelf(&s);
}

int main(void) {
    RUN(s01_longest_stored_prefix);
    RUN(s01_tokens_are_compared);
    RUN(s01_namespaces_share_nothing);
    RUN(s01_probe_changes_nothing);
    RUN(s02_replacing_keeps_readers);
    RUN(s03_least_recently_used_goes_first);
    RUN(s03_a_use_lasts_until_its_release);
    RUN(s03_bounded_by_bytes);
    RUN(s03_detached_bytes_count);
    RUN(s03_everything_pinned);
    RUN(s04_a_full_hit_needs_no_forward_pass);
    RUN(s06_bound_zero_disables);
    RUN(s06_no_tokens_match_nothing);
    RUN(s08_removing_prunes_the_path);
    RUN(s08_churn_does_not_grow_the_tree);
    return check_result();
}
