/* J03: calls over many items do what as many single calls in order do, each with its status. */
#include "misuse.h"

#define N 4

static rkv_sequence_append_item added(rkv_sequence_id sequence, const uint32_t *ids,
                                      size_t count) {
    rkv_sequence_append_item item = {sequence, ids, count, NULL};
    return item;
}

static void append_all(const fixture *f, const rkv_sequence_append_item *items, size_t count,
                       rkv_status *statuses) {
    CHECK_OK(rkv_sequence_append_many(f->cache, items, count, sizeof *items, statuses));
}

static rkv_sequence_publish_item computed(rkv_sequence_id sequence, uint64_t positions) {
    rkv_sequence_publish_item item = {sequence, positions};
    return item;
}

/* Decoding: to each sequence its token in one call, to be published when a page is full. */
static void j03_a_decoding_step_is_one_call(void) {
    fixture f = new_fixture(4, 64), single = new_fixture(4, 64);
    uint32_t prompt[6];
    rkv_sequence_id ids[N], others[N];
    for (uint32_t i = 0; i < N; i++) {
        count_up(prompt, 6, 1 + 100 * i);
        ids[i] = begin(&f, text(prompt, 6)).sequence;
        others[i] = begin(&single, text(prompt, 6)).sequence;
    }
    for (uint32_t step = 0; step < 11; step++) {
        uint32_t drawn[N];
        rkv_sequence_append_item items[N];
        rkv_sequence_publish_item done[N];
        rkv_sequence_publish_result results[N];
        rkv_status statuses[N], published[N];
        for (uint32_t i = 0; i < N; i++) {
            drawn[i] = 7 + step * 10 + i;
            items[i] = added(ids[i], &drawn[i], 1);
            done[i] = computed(ids[i], 6 + step);
        }
        CHECK_OK(rkv_sequence_publish_many(f.cache, done, N, sizeof *done, results,
                                           sizeof *results, published));
        append_all(&f, items, N, statuses);
        for (uint32_t i = 0; i < N; i++) {
            rkv_tokens token = text(&drawn[i], 1);
            rkv_sequence_publish_result want;
            memset(&want, 0, sizeof want);
            want.struct_size = sizeof want;
            CHECK_OK(rkv_sequence_publish(single.cache, others[i], 6 + step, &want));
            CHECK_OK(rkv_sequence_append(single.cache, others[i], &token));
            CHECK_STATUS(statuses[i], RKV_STATUS_OK);
            CHECK_STATUS(published[i], RKV_STATUS_OK);
            CHECK_EQ(results[i].struct_size, sizeof want);
            CHECK_EQ(results[i].claimed_page_count, want.claimed_page_count);
            CHECK_EQ(results[i].shared_page_count, want.shared_page_count);
            CHECK_EQ(results[i].first_remapped_index, want.first_remapped_index);
            CHECK_EQ(query(&f, ids[i]).position_count, query(&single, others[i]).position_count);
            CHECK_EQ(query(&f, ids[i]).page_count, query(&single, others[i]).page_count);
        }
        check_sane(&f);
    }
    rkv_status statuses[N];
    CHECK_EQ(cached_pages(&f), cached_pages(&single));
    CHECK_OK(rkv_sequence_release_many(f.cache, ids, N, statuses));
    for (uint32_t i = 0; i < N; i++) {
        CHECK_STATUS(statuses[i], RKV_STATUS_OK);
        CHECK_OK(rkv_sequence_release(single.cache, others[i]));
    }
    CHECK_EQ(private_pages(&f), 0);
    CHECK_EQ(cache_stats(&f).sequence_count, 0);
    end_fixture(&f);
    end_fixture(&single);
}

/* What fails says so for itself; the others are done, in order. */
static void j03_each_item_has_a_status(void) {
    fixture f = new_fixture(4, 8);
    uint32_t ids[64], bad[1] = {RKV_TEXT_ID_LIMIT};
    count_up(ids, 64, 1);
    rkv_sequence_id a = begin(&f, text(ids, 4)).sequence;
    rkv_sequence_id b = begin(&f, text(ids + 20, 4)).sequence;
    rkv_tokens images, empty = text(NULL, 0);
    rkv_token_item picture = image(1, 9, 3);
    images = with_items(ids, 2, &picture, 1);
    rkv_sequence_append_item items[] = {
        added(a, ids + 4, 2), added(12345, ids, 1), added(a, ids + 6, 3), added(b, bad, 1),
        added(b, ids + 24, 24), added(b, NULL, 1), {b, NULL, 0, &images},
        {b, ids, 1, &images}, {b, NULL, 0, &empty}, added(b, NULL, 0), added(b, ids + 24, 1),
        added(0, ids, 1),
    };
    const rkv_status want[] = {
        RKV_STATUS_OK, RKV_STATUS_STALE_SEQUENCE, RKV_STATUS_OK, RKV_STATUS_INVALID_ARGUMENT,
        RKV_STATUS_OUT_OF_PAGES, RKV_STATUS_INVALID_ARGUMENT, RKV_STATUS_OK,
        RKV_STATUS_INVALID_ARGUMENT, RKV_STATUS_OK, RKV_STATUS_OK, RKV_STATUS_OK,
        RKV_STATUS_STALE_SEQUENCE,
    };
    enum { COUNT = sizeof items / sizeof *items };
    rkv_status statuses[COUNT];
    append_all(&f, items, COUNT, statuses);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_STATUS(statuses[i], want[i]);
    }
    CHECK(message_names("items[11]: "));
    CHECK_EQ(query(&f, a).position_count, 4 + 2 + 3);
    CHECK_EQ(query(&f, b).position_count, 4 + 4 + 1);
    /* the last shortage is that of the item */
    rkv_shortage shortage;
    memset(&shortage, 0, sizeof shortage);
    shortage.struct_size = sizeof shortage;
    CHECK_OK(rkv_last_shortage(&shortage));
    CHECK_EQ(shortage.needed_page_count, 6);
    /* the message is that of the last that failed, not of the last item */
    append_all(&f, items + 3, 2, statuses);
    CHECK(message_names("items[1]: "));
    append_all(&f, items + 7, 4, statuses);
    CHECK(message_names("items[0]: ids and tokens"));

    rkv_sequence_publish_item done[] = {computed(a, 8), computed(a, 9), computed(a, 10),
                                        computed(7, 1), computed(b, 8)};
    rkv_sequence_publish_result results[5];
    memset(results, 0xA5, sizeof results);
    CHECK_OK(rkv_sequence_publish_many(f.cache, done, 5, sizeof *done, results, sizeof *results,
                                       statuses));
    CHECK(statuses[0] == RKV_STATUS_OK && results[0].claimed_page_count == 2);
    CHECK(statuses[1] == RKV_STATUS_OK && results[1].claimed_page_count == 0);
    CHECK_STATUS(statuses[2], RKV_STATUS_INVALID_ARGUMENT);
    CHECK(results[2].claimed_page_count == UINT64_C(0xA5A5A5A5A5A5A5A5));
    CHECK_STATUS(statuses[3], RKV_STATUS_STALE_SEQUENCE);
    CHECK(statuses[4] == RKV_STATUS_OK && results[4].claimed_page_count == 2);
    CHECK(message_names("items[3]: "));
    CHECK_OK(rkv_sequence_publish_many(f.cache, done, 1, sizeof *done, NULL, 0, statuses));

    rkv_sequence_id ends[] = {a, b, a, 0};
    CHECK_OK(rkv_sequence_release_many(f.cache, ends, 4, statuses));
    CHECK(statuses[0] == RKV_STATUS_OK && statuses[1] == RKV_STATUS_OK);
    CHECK(statuses[2] == RKV_STATUS_STALE_SEQUENCE && statuses[3] == RKV_STATUS_STALE_SEQUENCE);
    CHECK(message_names("sequences[3]: "));
    CHECK_EQ(private_pages(&f), 0);
    end_fixture(&f);
}

/* Prompts begin in order: each as after the one before, until there is no room. */
static void j03_begin_in_order(void) {
    fixture f = new_fixture_with(4, 12, 4, 0);
    uint32_t ids[64];
    count_up(ids, 64, 1);
    insert(&f, text(ids, 8));
    rkv_tokens hit = text(ids, 13), fresh = text(ids + 30, 9), large = text(ids, 48),
               none = text(ids, 0);
    const rkv_tokens *prompts[] = {&hit, &large, &fresh, &none, NULL, &hit, &large, &hit};
    const rkv_status want[] = {
        RKV_STATUS_OK, RKV_STATUS_OUT_OF_PAGES, RKV_STATUS_OK, RKV_STATUS_INVALID_ARGUMENT,
        RKV_STATUS_INVALID_ARGUMENT, RKV_STATUS_OK, RKV_STATUS_OUT_OF_PAGES, RKV_STATUS_OK,
    };
    rkv_sequence_begin_args args[8];
    rkv_sequence_info states[8];
    rkv_status statuses[8];
    memset(states, 0xA5, sizeof states);
    for (size_t i = 0; i < 8; i++) {
        args[i] = sequence_args(prompts[i]);
    }
    args[2].allocate_position_count = 4;
    CHECK_OK(rkv_sequence_begin_many(f.cache, args, 8, sizeof *args, states, sizeof *states,
                                     statuses));
    for (size_t i = 0; i < 8; i++) {
        CHECK_STATUS(statuses[i], want[i]);
        if (want[i] == RKV_STATUS_OK) {
            rkv_sequence_info now = query(&f, states[i].sequence);
            CHECK(memcmp(&now, &states[i], sizeof now) == 0);
            CHECK_EQ(states[i].cached_position_count, prompts[i] == &hit ? 8 : 0);
        } else {
            CHECK(states[i].sequence == UINT64_C(0xA5A5A5A5A5A5A5A5));
        }
    }
    CHECK_EQ(states[2].page_count, 1);
    CHECK(message_names("items[6]: "));
    end_fixture(&f);
}

/* Lookups: as single ones, pages and locks included. */
static void j03_match_and_probe(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[32], pages[2][4], one;
    count_up(ids, 32, 1);
    rkv_namespace tenant = new_namespace();
    tenant.salt[0] = 5;
    insert(&f, text(ids, 12));
    insert_in(&f, &tenant, text(ids, 8));
    rkv_tokens all = text(ids, 12), part = text(ids, 6), miss = text(ids + 5, 8);
    rkv_cache_match_item items[] = {
        {NULL, &all, pages[0], 4, RKV_MATCH_LOCK, 0}, {&tenant, &all, pages[1], 4, 0, 0},
        {NULL, &all, &one, 1, RKV_MATCH_LOCK, 0},     {NULL, &miss, NULL, 0, 0, 0},
        {NULL, &part, NULL, 0, 0, 0},                 {NULL, &all, NULL, 0, 2, 0},
        {NULL, &all, NULL, 0, 0, 1},                  {NULL, NULL, NULL, 0, 0, 0},
    };
    rkv_cache_match_result matches[8];
    rkv_status statuses[8];
    memset(matches, 0, sizeof matches);
    CHECK_OK(rkv_cache_match_many(f.cache, items, 8, sizeof *items, matches, sizeof *matches,
                                  statuses));
    for (size_t i = 0; i < 8; i++) {
        CHECK_STATUS(statuses[i], i == 2  ? RKV_STATUS_BUFFER_TOO_SMALL
                                  : i < 5 ? RKV_STATUS_OK
                                          : RKV_STATUS_INVALID_ARGUMENT);
    }
    CHECK(matches[0].page_count == 3 && matches[0].lock != 0 && matches[1].page_count == 2);
    CHECK(matches[2].page_count == 3 && matches[2].lock == 0 && matches[2].node == 0);
    const bool parts = fixture_index == RKV_INDEX_RADIX;
    CHECK(matches[3].token_count == 0 && matches[4].position_count == (parts ? 6 : 4));
    CHECK_EQ(matches[4].partial_position_count, parts ? 2 : 0);
    CHECK_EQ(matches[4].partial_page, parts ? pages[0][1] : 0);
    CHECK(pages[0][0] != pages[1][0] && rkv_last_error_message(NULL, 0) > 1);
    CHECK(message_names("items[7]: tokens"));
    CHECK_EQ(reclaimable_pages(&f), 2);

    rkv_cache_probe_item asked[] = {{NULL, &all}, {&tenant, &all}, {NULL, NULL}, {NULL, &miss},
                                    {NULL, &part}};
    rkv_cache_probe_result found[5];
    memset(found, 0, sizeof found);
    snapshot before = take(&f);
    CHECK_OK(rkv_cache_probe_many(f.cache, asked, 5, sizeof *asked, found, sizeof *found,
                                  statuses));
    CHECK(same(&f, &before));
    CHECK_STATUS(statuses[2], RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("items[2]: tokens"));
    CHECK(found[0].position_count == 12 && found[1].position_count == 8);
    CHECK(found[2].position_count == 0 && found[3].position_count == 0);
    CHECK(found[4].position_count == (parts ? 6 : 4));
    CHECK_OK(rkv_cache_unlock(f.cache, matches[0].lock));
    end_fixture(&f);
}

/* Arrays of nothing, of larger elements, and arrays that cannot be. */
static void j03_arrays(void) {
    fixture f = new_fixture(4, 16);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_sequence_id a = begin(&f, text(ids, 4)).sequence;
    rkv_status statuses[2] = {RKV_STATUS_BUSY, RKV_STATUS_BUSY};
    rkv_cache *cache = f.cache;
    snapshot before = take(&f);
    CHECK_OK(rkv_sequence_begin_many(cache, NULL, 0, sizeof(rkv_sequence_begin_args), NULL, 0,
                                     NULL));
    CHECK_OK(rkv_sequence_append_many(cache, NULL, 0, sizeof(rkv_sequence_append_item), NULL));
    CHECK_OK(rkv_sequence_publish_many(cache, NULL, 0, sizeof(rkv_sequence_publish_item), NULL, 0,
                                       NULL));
    CHECK_OK(rkv_sequence_release_many(cache, NULL, 0, NULL));
    CHECK_OK(rkv_cache_match_many(cache, NULL, 0, sizeof(rkv_cache_match_item), NULL, 0, NULL));
    CHECK_OK(rkv_cache_probe_many(cache, NULL, 0, sizeof(rkv_cache_probe_item), NULL, 0, NULL));

    /* a newer caller's elements: what this library doesn't know must be zero */
    struct newer {
        rkv_sequence_append_item known;
        uint64_t unknown;
    } items[2];
    memset(items, 0, sizeof items);
    items[0].known = added(a, ids + 4, 1);
    items[1].known = added(a, ids + 5, 1);
    items[1].unknown = 1;
    const rkv_sequence_append_item *given = &items[0].known;
    const size_t sizes[] = {0, 8, sizeof *given - 8, sizeof *given + 4, 4104, SIZE_MAX};
    for (size_t i = 0; i < 6; i++) {
        CHECK_STATUS(rkv_sequence_append_many(cache, given, 2, sizes[i], statuses),
                     RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("item_size"));
    }
    CHECK_STATUS(rkv_sequence_append_many(cache, given, 2, sizeof *items, statuses),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("items[1]"));
    CHECK_STATUS(rkv_sequence_append_many(cache, NULL, 2, sizeof *items, statuses),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_sequence_append_many(cache, given, SIZE_MAX / 2, sizeof *items, statuses),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_sequence_release_many(cache, NULL, 1, statuses), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_sequence_release_many(NULL, &a, 1, statuses), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(same(&f, &before) && statuses[0] == RKV_STATUS_BUSY);
    items[1].unknown = 0;
    CHECK_OK(rkv_sequence_append_many(cache, given, 2, sizeof *items, statuses));
    CHECK(statuses[0] == RKV_STATUS_OK && statuses[1] == RKV_STATUS_OK);
    CHECK_EQ(query(&f, a).position_count, 6);

    /* and its results: zeros behind what this library knows */
    struct newer_result {
        rkv_sequence_publish_result known;
        uint64_t unknown;
    } result;
    memset(&result, 0xA5, sizeof result);
    rkv_sequence_publish_item done = computed(a, 4);
    CHECK_OK(rkv_sequence_publish_many(cache, &done, 1, sizeof done, &result.known, sizeof result,
                                       statuses));
    CHECK(result.known.struct_size == sizeof result && result.known.claimed_page_count == 1);
    CHECK_EQ(result.unknown, 0);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(j03_a_decoding_step_is_one_call);
    RUN_BOTH(j03_each_item_has_a_status);
    RUN_BOTH(j03_begin_in_order);
    RUN_BOTH(j03_match_and_probe);
    RUN_BOTH(j03_arrays);
    return check_result();
}
