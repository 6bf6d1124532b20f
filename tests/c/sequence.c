/* The life of a request: begin, publish, append, truncate, release. */
#include "fixture.h"

static void k14_begin_is_one_transaction(void) {
    fixture f = new_fixture(4, 16);
    uint32_t ids[20], pages[8];
    count_up(ids, 20, 1);
    rkv_sequence_info first = begin(&f, text(ids, 18));
    CHECK(first.sequence != 0 && first.slot < 8 && first.node == 0);
    CHECK(first.position_count == 18 && first.cached_position_count == 0);
    CHECK(first.page_count == 5 && first.shared_page_count == 0);
    CHECK_EQ(first.copy_count, 0);
    publish(&f, first.sequence, 18);
    release(&f, first.sequence);
    /* matched, locked, a slot, the shared pages mapped, the others allocated */
    rkv_sequence_info state = begin(&f, text(ids, 20));
    CHECK(state.cached_position_count == 16 && state.cached_token_count == 16);
    CHECK(state.page_count == 5 && state.shared_page_count == 4);
    CHECK_EQ(info_of(&f, state.node).lock_count, 1);
    CHECK_EQ(row_of(&f, state.slot, pages, 8), 5);
    check_shared(&f, state.slot, 4);
    CHECK_EQ(cache_stats(&f).sequence_count, 1);
    CHECK_EQ(table_stats(&f).free_slot_count, 7);
    CHECK(reclaimable_pages(&f) == 0 && private_pages(&f) == 1);
    rkv_sequence_info seen = query(&f, state.sequence);
    CHECK(memcmp(&seen, &state, sizeof seen) == 0);
    release(&f, state.sequence);
    CHECK_EQ(reclaimable_pages(&f), 4);
    end_fixture(&f);
}

static void k14_reserve_at_begin(void) {
    fixture f = new_fixture(4, 16);
    uint32_t ids[6];
    count_up(ids, 6, 1);
    rkv_tokens tokens = text(ids, 6);
    rkv_sequence_begin_args args = sequence_args(&tokens);
    rkv_sequence_info state = new_state();
    args.reserve_position_count = 7;
    CHECK_OK(rkv_sequence_begin(f.cache, &args, &state));
    CHECK(state.page_count == 4 && state.position_count == 6);
    CHECK_EQ(private_pages(&f), 4);
    release(&f, state.sequence);
    end_fixture(&f);
}

/* A probe may find the whole prompt, of which begin leaves a token: what is charged follows from a
   probe of all but the last. */
static void k14_a_prompt_that_is_cached_whole(void) {
    fixture f = new_fixture(4, 3);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    serve(&f, text(ids, 8));
    CHECK_EQ(probe(&f, text(ids, 8)), 8);
    size_t reused = probe(&f, text(ids, 7));
    CHECK_EQ(reused, 7);
    rkv_sequence_info state = begin(&f, text(ids, 8));
    CHECK_EQ(state.cached_position_count, reused);
    CHECK_EQ(state.copy_count, 1);
    CHECK_EQ(private_pages(&f), state.page_count - reused / 4);
    release(&f, state.sequence);
    end_fixture(&f);

    /* when those pages are all, and in use, one is missing, though the whole prompt is cached */
    f = new_fixture(4, 2);
    rkv_sequence_info holder = begin(&f, text(ids, 8));
    publish(&f, holder.sequence, 8);
    rkv_tokens tokens = text(ids, 8);
    rkv_sequence_begin_args args = sequence_args(&tokens);
    CHECK_EQ(probe(&f, tokens), 8);
    CHECK_STATUS(rkv_sequence_begin(f.cache, &args, &state), RKV_STATUS_OUT_OF_PAGES);
    rkv_shortage lack = {0};
    lack.struct_size = sizeof lack;
    CHECK_OK(rkv_last_shortage(&lack));
    CHECK_EQ(lack.needed_page_count, 1);
    release(&f, holder.sequence);
    end_fixture(&f);
}

/* B06: a refused suffix restores every reference. M04: reported, all or nothing. */
static void k14_refused_begin_leaves_no_trace(void) {
    fixture f = new_fixture_with(2, 8, 2, 0);
    uint32_t ids[20], other[6];
    count_up(ids, 20, 1);
    count_up(other, 6, 50);
    serve(&f, text(ids, 4));
    rkv_sequence_info holder = begin(&f, text(other, 6));
    publish(&f, holder.sequence, 6);
    /* 2 pages shared, 3 locked by the holder, 3 free: 4 more don't fit, though 2 are reclaimable
       until the match locks them */
    snapshot before = take(&f);
    rkv_sequence_info state = new_state();
    state.sequence = 77;
    CHECK_STATUS(try_begin(&f, text(ids, 12), &state), RKV_STATUS_OUT_OF_PAGES);
    CHECK_EQ(state.sequence, 77);
    CHECK(same(&f, &before));
    rkv_shortage shortage;
    shortage.struct_size = sizeof shortage;
    CHECK_OK(rkv_last_shortage(&shortage));
    CHECK_EQ(shortage.needed_page_count, 4);
    CHECK_EQ(shortage.free_page_count, 3);
    CHECK_EQ(shortage.private_page_count, 0);
    CHECK(shortage.free_page_count + shortage.reclaimable_page_count
          < shortage.needed_page_count);
    check_sane(&f);
    CHECK_EQ(probe(&f, text(ids, 12)), 4);
    /* out of slots */
    rkv_sequence_info second = begin(&f, text(ids, 4));
    before = take(&f);
    CHECK_STATUS(try_begin(&f, text(ids, 4), &state), RKV_STATUS_OUT_OF_SLOTS);
    CHECK(same(&f, &before) && state.sequence == 77);
    release(&f, second.sequence);
    /* a prompt longer than any row */
    static uint32_t long_ids[100];
    count_up(long_ids, 100, 1);
    before = take(&f);
    CHECK(try_begin(&f, text(long_ids, 100), &state) != RKV_STATUS_OK);
    CHECK(same(&f, &before));
    /* no tokens at all */
    CHECK_STATUS(try_begin(&f, text(ids, 0), &state), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(same(&f, &before));
    release(&f, holder.sequence);
    end_fixture(&f);
}

static void b06_a_cancelled_request_restores_everything(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[10];
    count_up(ids, 10, 1);
    serve(&f, text(ids, 4));
    /* once before: the row keeps its memory for the next sequence */
    release(&f, begin(&f, text(ids, 10)).sequence);
    rkv_page_table_stats before = table_stats(&f);
    for (int i = 0; i < 100; i++) {
        rkv_sequence_info state = begin(&f, text(ids, 10));
        CHECK_EQ(state.cached_position_count, 4);
        release(&f, state.sequence);
    }
    rkv_page_table_stats after = table_stats(&f);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK_EQ(cache_stats(&f).node_count, nodes(&f, 1));
    end_fixture(&f);
}

/* K15: at least one token is computed, and the cut is never inside an image. */
static void k15_the_cut_is_a_token_boundary(void) {
    const uint32_t sizes[] = {1, 2, 4, 16};
    for (size_t s = 0; s < 4; s++) {
        fixture f = new_fixture(sizes[s], 128);
        const uint32_t ids[4] = {1, 2, 0, 3};
        rkv_token_item picture = image(2, 1, 30);
        rkv_token_item twins[2] = {image(1, 2, 15), image(2, 2, 15)};
        /* text is last: all but that token */
        CHECK_EQ(serve(&f, with_items(ids, 4, &picture, 1)), 0);
        rkv_sequence_info state = begin(&f, with_items(ids, 4, &picture, 1));
        size_t published = 33 / sizes[s] * sizes[s];
        if (published == 33) {
            CHECK(state.cached_position_count == 32 && state.cached_token_count == 3);
        } else {
            CHECK_EQ(state.cached_position_count, published >= 32 ? 32 : 2);
        }
        release(&f, state.sequence);
        /* the image is last: it is computed whole */
        rkv_sequence_info whole = begin(&f, with_items(ids, 3, &picture, 1));
        CHECK(whole.cached_position_count == 2 && whole.cached_token_count == 2);
        CHECK_EQ(whole.position_count, 32);
        release(&f, whole.sequence);
        /* two equal images in a row are two tokens */
        CHECK_EQ(serve(&f, with_items(ids, 3, twins, 2)), 1);
        state = begin(&f, with_items(ids, 3, twins, 2));
        CHECK(state.cached_position_count == 16 && state.cached_token_count == 2);
        release(&f, state.sequence);
        /* an image alone can't be reused at all */
        rkv_token_item alone = image(0, 3, 16);
        serve(&f, with_items(ids, 1, &alone, 1));
        state = begin(&f, with_items(ids, 1, &alone, 1));
        CHECK(state.cached_position_count == 0 && state.shared_page_count == 0);
        release(&f, state.sequence);
        end_fixture(&f);
    }
}

/* K17: nothing is inserted, shared pages are never written, the private page goes back. */
static void k17_full_hit(void) {
    const uint32_t sizes[] = {1, 2, 4};
    for (size_t s = 0; s < 3; s++) {
        fixture f = new_fixture(sizes[s], 32);
        uint32_t ids[8], first_row[8], row[8];
        count_up(ids, 8, 1);
        size_t pages = 8 / sizes[s];
        rkv_sequence_info first = begin(&f, text(ids, 8));
        publish(&f, first.sequence, 8);
        row_of(&f, first.slot, first_row, 8);
        release(&f, first.sequence);
        uint64_t free_before = free_pages(&f);
        rkv_sequence_info state = begin(&f, text(ids, 8));
        CHECK_EQ(state.cached_position_count, 7);
        CHECK_EQ(state.shared_page_count, pages - 1);
        CHECK_EQ(row_of(&f, state.slot, row, 8), pages);
        CHECK(memcmp(row, first_row, (pages - 1) * sizeof *row) == 0);
        /* the last position has a page of its own, copied from the cached one */
        CHECK(row[pages - 1] != first_row[pages - 1]);
        check_shared(&f, state.slot, pages - 1);
        const rkv_page_copy copy = copy_of(&f, state.sequence);
        CHECK_EQ(copy.position_count, sizes[s] - 1);
        if (sizes[s] > 1) {
            CHECK_EQ(copy.source_page, first_row[pages - 1]);
            CHECK_EQ(copy.target_page, row[pages - 1]);
            CHECK_OK(rkv_sequence_confirm_copies(f.cache, state.sequence));
        }
        CHECK_EQ(cache_stats(&f).node_count, nodes(&f, 1));
        CHECK_EQ(private_pages(&f), 1);
        /* published or not, it ends as before */
        if (s != 1) {
            rkv_sequence_publish_result result = publish(&f, state.sequence, 8);
            CHECK(result.claimed_page_count == 0 && result.remapped_page_count == 1);
            CHECK_EQ(result.first_remapped_index, pages - 1);
        }
        CHECK_EQ(info_of(&f, query(&f, state.sequence).node).lock_count, 1);
        release(&f, state.sequence);
        CHECK_EQ(free_pages(&f), free_before);
        CHECK_EQ(cached_pages(&f), pages);
        end_fixture(&f);
    }
}

static void k18_release(void) {
    fixture f = new_fixture(2, 16), g = new_fixture(2, 16);
    uint32_t ids[5];
    count_up(ids, 5, 1);
    rkv_sequence_info state = begin(&f, text(ids, 5)), other = begin(&g, text(ids, 5));
    CHECK(state.sequence != other.sequence);
    publish(&f, state.sequence, 5);
    CHECK(private_pages(&f) == 1 && reclaimable_pages(&f) == 0);
    CHECK_STATUS(rkv_sequence_release(g.cache, state.sequence), RKV_STATUS_STALE_SEQUENCE);
    release(&f, state.sequence);
    CHECK(private_pages(&f) == 0 && reclaimable_pages(&f) == 2);
    CHECK_EQ(table_stats(&f).free_slot_count, 8);
    snapshot before = take(&f);
    CHECK_STATUS(rkv_sequence_release(f.cache, state.sequence), RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(rkv_sequence_release(f.cache, other.sequence), RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(rkv_sequence_release(f.cache, 0), RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(rkv_sequence_release(f.cache, UINT64_MAX), RKV_STATUS_STALE_SEQUENCE);
    CHECK(same(&f, &before));
    /* the slot is used again, the id is not */
    rkv_sequence_info next = begin(&f, text(ids, 5));
    CHECK(next.sequence != state.sequence);
    CHECK_STATUS(rkv_sequence_release(f.cache, state.sequence), RKV_STATUS_STALE_SEQUENCE);
    release(&f, next.sequence);
    release(&g, other.sequence);
    end_fixture(&f);
    end_fixture(&g);
}

static void append_allocates_as_it_goes(void) {
    fixture f = new_fixture(2, 4);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_sequence_info state = begin(&f, text(ids, 3));
    CHECK_EQ(query(&f, state.sequence).page_count, 2);
    append(&f, state.sequence, 4);
    CHECK_EQ(query(&f, state.sequence).page_count, 2);
    append(&f, state.sequence, 5);
    CHECK_EQ(query(&f, state.sequence).page_count, 3);
    /* M04: all or nothing; four more don't fit, three do */
    snapshot before = take(&f);
    rkv_tokens more = text(ids + 5, 3), none = text(ids, 0);
    uint32_t four[4] = {6, 7, 8, 9};
    rkv_tokens too_many = text(four, 4);
    CHECK(rkv_sequence_append(f.cache, state.sequence, &too_many) != RKV_STATUS_OK);
    CHECK(same(&f, &before));
    CHECK_OK(rkv_sequence_append(f.cache, state.sequence, &none));
    CHECK(same(&f, &before));
    CHECK_OK(rkv_sequence_append(f.cache, state.sequence, &more));
    CHECK_EQ(query(&f, state.sequence).position_count, 8);
    release(&f, state.sequence);
    end_fixture(&f);
}

static void m04_append_out_of_pages(void) {
    fixture f = new_fixture(2, 4);
    uint32_t ids[4] = {1, 2, 3, 4}, page;
    rkv_sequence_info state = begin(&f, text(ids, 4));
    allocate(&f, 1, &page);
    append(&f, state.sequence, 5);
    snapshot before = take(&f);
    rkv_tokens more = text(ids, 2);
    CHECK_STATUS(rkv_sequence_append(f.cache, state.sequence, &more), RKV_STATUS_OUT_OF_PAGES);
    CHECK(same(&f, &before));
    CHECK_EQ(query(&f, state.sequence).position_count, 5);
    CHECK_OK(rkv_page_table_free_pages(f.table, &page, 1));
    CHECK_OK(rkv_sequence_append(f.cache, state.sequence, &more));
    release(&f, state.sequence);
    end_fixture(&f);
}

/* Draft tokens are taken off again: never the prompt, what is published, or a part of an image. */
static void truncate_drops_drafts(void) {
    fixture f = new_fixture(2, 32);
    const uint32_t ids[6] = {1, 2, 3, 4, 0, 5};
    rkv_token_item picture = image(1, 1, 5);
    rkv_tokens more = with_items(ids + 3, 3, &picture, 1);
    rkv_sequence_info state = begin(&f, text(ids, 3));
    CHECK_STATUS(rkv_sequence_truncate(f.cache, state.sequence, 2), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_OK(rkv_sequence_append(f.cache, state.sequence, &more));
    CHECK_EQ(query(&f, state.sequence).position_count, 10);
    publish(&f, state.sequence, 5);
    append(&f, state.sequence, 70);
    append(&f, state.sequence, 71);
    uint64_t pages = query(&f, state.sequence).page_count;
    CHECK_OK(rkv_sequence_truncate(f.cache, state.sequence, 10));
    CHECK_EQ(query(&f, state.sequence).position_count, 10);
    CHECK_EQ(query(&f, state.sequence).page_count, pages);
    const uint64_t bad[] = {11, UINT64_MAX, 8, 5, 3, 0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_STATUS(rkv_sequence_truncate(f.cache, state.sequence, bad[i]),
                     RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("position_count"));
        CHECK_EQ(query(&f, state.sequence).position_count, 10);
    }
    CHECK_OK(rkv_sequence_truncate(f.cache, state.sequence, 4));
    /* what is computed instead is what others find */
    append(&f, state.sequence, 80);
    append(&f, state.sequence, 81);
    publish(&f, state.sequence, 6);
    const uint32_t now[6] = {1, 2, 3, 4, 80, 81};
    CHECK_EQ(probe(&f, text(now, 6)), 6);
    CHECK_EQ(probe(&f, text(ids, 4)), 4);
    release(&f, state.sequence);
    end_fixture(&f);
}

static void b05_no_leak_after_any_life_cycle(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[40];
    uint64_t random = 42;
    for (int round = 0; round < 400; round++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t family = (uint32_t)(random >> 33) % 3, length = (uint32_t)(random >> 40) % 32;
        count_up(ids, 40, 1000 * family);
        ids[length / 2] = (uint32_t)(random >> 50) % 4;
        rkv_sequence_info state = begin(&f, text(ids, length + 1));
        if (round % 5 != 0) {
            if (state.copy_count > 0) {
                CHECK_OK(rkv_sequence_confirm_copies(f.cache, state.sequence));
            }
            publish(&f, state.sequence, state.position_count / 2);
            append(&f, state.sequence, 7);
            publish(&f, state.sequence, state.position_count + 1);
        }
        check_sane(&f);
        release(&f, state.sequence);
        CHECK_EQ(private_pages(&f), 0);
        CHECK_EQ(reclaimable_pages(&f), cached_pages(&f));
    }
    evict(&f, 100);
    CHECK_EQ(free_pages(&f), 32);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(k14_begin_is_one_transaction);
    RUN_BOTH(k14_reserve_at_begin);
    RUN(k14_a_prompt_that_is_cached_whole);
    RUN_BOTH(k14_refused_begin_leaves_no_trace);
    RUN_BOTH(b06_a_cancelled_request_restores_everything);
    RUN(k15_the_cut_is_a_token_boundary);
    RUN_BOTH(k17_full_hit);
    RUN_BOTH(k18_release);
    RUN_BOTH(append_allocates_as_it_goes);
    RUN_BOTH(m04_append_out_of_pages);
    RUN_BOTH(truncate_drops_drafts);
    RUN_BOTH(b05_no_leak_after_any_life_cycle);
    return check_result();
}
