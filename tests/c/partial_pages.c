/* Reuse inside a page: what a match reports, the copy that a sequence is told to make, and the
 * protection of its source. */
#include "fixture.h"

static void b08_match_ends_inside_a_page(void) {
    fixture f = new_fixture(4, 16);
    uint32_t ids[12], query_ids[12], pages[3];
    count_up(ids, 12, 1);
    allocate(&f, 3, pages);
    rkv_node_id node = insert_pages(&f, NULL, text(ids, 12), pages, 3).node;
    for (uint32_t common = 0; common <= 12; common++) {
        memcpy(query_ids, ids, sizeof ids);
        count_up(query_ids + common, 12 - common, 100);
        rkv_cache_match_result match = match_of(&f, text(query_ids, 12));
        CHECK_EQ(match.token_count, common);
        CHECK_EQ(match.page_count, common / 4);
        CHECK_EQ(match.partial_position_count, common % 4);
        CHECK_EQ(match.partial_page, common % 4 ? pages[common / 4] : 0);
        CHECK_EQ(match.partial_node != 0, common % 4 != 0);
        CHECK_EQ(match.node != 0, common >= 4);
        CHECK_EQ(probe(&f, text(query_ids, 12)), common);
    }
    CHECK_EQ(match_of(&f, text(ids, 12)).node, node);
    end_fixture(&f);
}

/* Several children begin alike: the one with the longest common start is the source. */
static void b08_longest_common_start(void) {
    fixture f = new_fixture(16, 64);
    uint32_t ids[32], pages[17], wanted[32];
    count_up(ids, 32, 1);
    allocate(&f, 17, pages);
    insert_pages(&f, NULL, text(ids, 16), pages, 1);
    /* child i shares i + 1 tokens of the second page with the query to come */
    for (uint32_t i = 0; i < 15; i++) {
        uint32_t child = (i * 7) % 15;
        uint32_t both[2] = {pages[0], pages[1 + child]};
        memcpy(wanted, ids, sizeof ids);
        count_up(wanted + 17 + child, 15 - child, 1000 + 50 * child);
        CHECK_EQ(insert_pages(&f, NULL, text(wanted, 32), both, 2).claimed_page_count, 1);
    }
    for (uint32_t common = 1; common <= 15; common++) {
        memcpy(wanted, ids, sizeof ids);
        count_up(wanted + 16 + common, 16 - common, 5000);
        rkv_cache_match_result match = match_of(&f, text(wanted, 32));
        CHECK_EQ(match.token_count, 16 + common);
        CHECK_EQ(match.partial_position_count, common);
        /* children `common - 1` and above share as much: any of them will do */
        CHECK(match.partial_page != 0);
    }
    rkv_cache_match_result match = match_of(&f, text(ids, 32));
    CHECK_EQ(match.token_count, 31);
    CHECK_EQ(match.partial_page, pages[15]);
    CHECK_OK(rkv_page_table_free_pages(f.table, pages + 16, 1));
    end_fixture(&f);
}

/* Same image, other question, at a page size where the image ends inside a page. */
static void b08_same_image_other_question(void) {
    fixture f = new_fixture(16, 64);
    uint32_t first[8] = {1, 2, 0, 10, 11, 12, 13, 14}, second[8] = {1, 2, 0, 20, 21, 22, 23, 24};
    rkv_token_item picture = image(2, 1, 100);
    uint32_t row[16], other_row[16];
    /* 102 positions end inside page 6, which the first question fills */
    static uint32_t question[40];
    count_up(question, 40, 10);
    question[0] = 1;
    question[1] = 2;
    rkv_sequence_info a = begin(&f, with_items(question, 40, &picture, 1));
    publish(&f, a.sequence, a.position_count);
    row_of(&f, a.slot, row, 16);
    rkv_sequence_info b = begin(&f, with_items(second, 8, &picture, 1));
    CHECK(b.cached_position_count == 102 && b.cached_token_count == 3);
    const rkv_page_copy copy = copy_of(&f, b.sequence);
    CHECK(b.shared_page_count == 6 && copy.position_count == 6);
    CHECK_EQ(copy.source_page, row[6]);
    row_of(&f, b.slot, other_row, 16);
    CHECK(memcmp(row, other_row, 6 * sizeof *row) == 0);
    CHECK_EQ(copy.target_page, other_row[6]);
    CHECK(other_row[6] != row[6]);
    check_shared(&f, b.slot, 6);
    CHECK_EQ(cache_stats(&f).partial_hit_position_count, 6);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, b.sequence));
    CHECK_EQ(query(&f, b.sequence).copy_count, 0);
    release(&f, a.sequence);
    release(&f, b.sequence);
    /* another image after the same two tokens is no match */
    rkv_token_item other = image(2, 2, 100);
    CHECK_EQ(probe(&f, with_items(first, 8, &other, 1)), 2);
    end_fixture(&f);
}

static void b08_copy_must_be_confirmed(void) {
    fixture f = new_fixture(4, 16);
    uint32_t ids[8], fork_ids[8] = {1, 2, 3, 4, 5, 6, 90, 91};
    count_up(ids, 8, 1);
    serve(&f, text(ids, 8));
    rkv_sequence_info state = begin(&f, text(fork_ids, 8));
    CHECK(state.cached_position_count == 6 && copy_of(&f, state.sequence).position_count == 2);
    rkv_sequence_publish_result result;
    memset(&result, 0xA5, sizeof result);
    result.struct_size = sizeof result;
    CHECK_STATUS(rkv_sequence_publish(f.cache, state.sequence, 8, &result),
                 RKV_STATUS_INVALID_STATE);
    CHECK_EQ(result.claimed_page_count, UINT64_C(0xA5A5A5A5A5A5A5A5));
    rkv_sequence_info seen = query(&f, state.sequence);
    CHECK(memcmp(&seen, &state, sizeof seen) == 0);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, state.sequence));
    CHECK_STATUS(rkv_sequence_confirm_copies(f.cache, state.sequence), RKV_STATUS_INVALID_STATE);
    seen = query(&f, state.sequence);
    CHECK_EQ(seen.copy_count, 0);
    CHECK_EQ(copy_of(&f, seen.sequence).target_page, 0);
    CHECK_EQ(publish(&f, state.sequence, 8).claimed_page_count, 1);
    release(&f, state.sequence);
    CHECK_EQ(probe(&f, text(ids, 8)), 8);
    CHECK_EQ(probe(&f, text(fork_ids, 8)), 8);
    end_fixture(&f);
}

/* The source is protected until the copy is confirmed, or the sequence ends. */
static void b08_source_is_protected(void) {
    for (int confirm = 0; confirm < 2; confirm++) {
        fixture f = new_fixture(4, 16);
        uint32_t ids[8], fork_ids[8] = {1, 2, 3, 4, 5, 6, 90, 91};
        bool cached = false;
        count_up(ids, 8, 1);
        serve(&f, text(ids, 8));
        rkv_sequence_info state = begin(&f, text(fork_ids, 8));
        CHECK_EQ(reclaimable_pages(&f), 0);
        CHECK_EQ(evict(&f, 10), 0);
        const uint32_t source = copy_of(&f, state.sequence).source_page;
        CHECK_OK(rkv_cache_contains_page(f.cache, source, &cached));
        CHECK(cached);
        if (confirm) {
            CHECK_OK(rkv_sequence_confirm_copies(f.cache, state.sequence));
            CHECK_EQ(evict(&f, 10), 1);
            /* the whole page that it shares is the sequence's lock from now on */
            rkv_node_id node = query(&f, state.sequence).node;
            CHECK_EQ(info_of(&f, node).lock_count, 1);
            CHECK_EQ(info_of(&f, node).end_position, 4);
        }
        release(&f, state.sequence);
        CHECK_EQ(reclaimable_pages(&f), confirm ? 1 : 2);
        end_fixture(&f);
    }
}

/* Reuse within the first page: nothing is shared, and the source alone is locked. */
static void b08_first_page(void) {
    fixture f = new_fixture(4, 16);
    uint32_t ids[4] = {1, 2, 3, 4}, fork_ids[4] = {1, 2, 90, 91};
    serve(&f, text(ids, 4));
    rkv_sequence_info state = begin(&f, text(fork_ids, 4));
    CHECK(state.cached_position_count == 2 && state.shared_page_count == 0);
    const rkv_page_copy copy = copy_of(&f, state.sequence);
    CHECK(copy.position_count == 2 && copy.source_page != 0);
    CHECK_EQ(evict(&f, 1), 0);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, state.sequence));
    CHECK_EQ(evict(&f, 1), 1);
    release(&f, state.sequence);
    end_fixture(&f);
}

/* J05: the source is protected, and no page behind it: a long node stays reclaimable but for the
 * pages that the sequence shares and the one that it copies from. */
static void j05_a_cut_protects_one_page(void) {
    const uint32_t cuts[] = {1, 2, 6, 14, 38};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        fixture f = new_fixture(4, 32);
        uint32_t ids[40], fork_ids[40], pages[10];
        const uint32_t shared = cuts[i] / 4;
        count_up(ids, 40, 1);
        memcpy(fork_ids, ids, sizeof ids);
        count_up(fork_ids + cuts[i], 40 - cuts[i], 100);
        allocate(&f, 10, pages);
        insert_pages(&f, NULL, text(ids, 40), pages, 10);
        CHECK_EQ(reclaimable_pages(&f), 10);
        rkv_sequence_info state = begin(&f, text(fork_ids, cuts[i] + 1));
        CHECK_EQ(state.shared_page_count, shared);
        CHECK_EQ(copy_of(&f, state.sequence).source_page, pages[shared]);
        CHECK_EQ(reclaimable_pages(&f), 10 - shared - 1);
        CHECK_EQ(info_of(&f, state.node).end_position, 4 * (shared + 1));
        CHECK_EQ(info_of(&f, state.node).page_count, 1);
        check_sane(&f);
        CHECK_OK(rkv_sequence_confirm_copies(f.cache, state.sequence));
        CHECK_EQ(reclaimable_pages(&f), 10 - shared);
        /* the others are there as before, and go when they have to */
        CHECK_EQ(probe(&f, text(ids, 40)), 40);
        CHECK_EQ(evict(&f, 100), 10 - shared);
        release(&f, state.sequence);
        CHECK_EQ(reclaimable_pages(&f), shared);
        end_fixture(&f);
    }
}

/* What lies behind the source can be evicted while the copy is open, for the request itself too. */
static void j05_what_is_behind_the_source_makes_room(void) {
    fixture f = new_fixture(4, 10);
    uint32_t ids[40], fork_ids[30];
    bool cached = false;
    count_up(ids, 40, 1);
    memcpy(fork_ids, ids, sizeof fork_ids);
    count_up(fork_ids + 14, 16, 100);
    serve(&f, text(ids, 40));
    CHECK_EQ(free_pages(&f), 0);
    /* 3 pages shared, the fourth is copied; of the 6 behind it, 5 are needed */
    rkv_sequence_info state = begin(&f, text(fork_ids, 30));
    CHECK(state.cached_position_count == 14 && copy_of(&f, state.sequence).position_count == 2);
    CHECK(state.page_count == 8 && reclaimable_pages(&f) == 1);
    CHECK_EQ(evict(&f, 100), 1);
    CHECK_OK(rkv_cache_contains_page(f.cache, copy_of(&f, state.sequence).source_page, &cached));
    CHECK(cached);
    CHECK_EQ(probe(&f, text(ids, 40)), 16);
    /* cancelled with the copy open, nothing is left locked */
    release(&f, state.sequence);
    CHECK_EQ(reclaimable_pages(&f), 4);
    end_fixture(&f);
}

/* Several copies out of one node, of one page and of others: each holds its own. */
static void j05_several_cuts_in_one_node(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[40], fork_ids[40];
    const uint32_t cuts[4] = {14, 13, 30, 6}, left[4] = {6, 6, 2, 2};
    rkv_sequence_id sequences[4];
    count_up(ids, 40, 1);
    insert(&f, text(ids, 40));
    for (uint32_t i = 0; i < 4; i++) {
        memcpy(fork_ids, ids, sizeof ids);
        fork_ids[cuts[i]] = 900 + i;
        rkv_sequence_info state = begin(&f, text(fork_ids, cuts[i] + 1));
        CHECK_EQ(copy_of(&f, state.sequence).position_count, cuts[i] % 4);
        sequences[i] = state.sequence;
        CHECK_EQ(reclaimable_pages(&f), left[i]);
    }
    /* 7 shared pages and the eighth are kept for the third */
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, sequences[0]));
    CHECK_EQ(reclaimable_pages(&f), 2);
    release(&f, sequences[2]);
    CHECK_EQ(reclaimable_pages(&f), 6);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, sequences[1]));
    CHECK_EQ(reclaimable_pages(&f), 7);
    for (uint32_t i = 0; i < 4; i++) {
        if (i != 2) {
            release(&f, sequences[i]);
        }
    }
    CHECK(reclaimable_pages(&f) == 10 && probe(&f, text(ids, 40)) == 40);
    end_fixture(&f);
}

/* Where protecting the source would make the request impossible, the reuse is given up. */
static void b08_source_gives_way_to_the_request(void) {
    fixture f = new_fixture(4, 4);
    uint32_t ids[16], fork_ids[16];
    count_up(ids, 16, 1);
    memcpy(fork_ids, ids, sizeof ids);
    count_up(fork_ids + 6, 10, 100);
    serve(&f, text(ids, 16));
    CHECK_EQ(free_pages(&f), 0);
    rkv_sequence_info state = begin(&f, text(fork_ids, 16));
    CHECK(state.cached_position_count == 4 && state.shared_page_count == 1);
    CHECK(state.copy_count == 0 && state.page_count == 4);
    release(&f, state.sequence);
    end_fixture(&f);
}

/* The same for a full hit in a full pool: its last page makes room for the private one. */
static void b08_full_hit_in_a_full_pool(void) {
    for (uint32_t size = 1; size <= 4; size *= 2) {
        fixture f = new_fixture(size, 4);
        uint32_t ids[16], page;
        count_up(ids, 16, 1);
        serve(&f, text(ids, 4 * size));
        rkv_sequence_info state = begin(&f, text(ids, 4 * size));
        CHECK(state.cached_position_count == 3 * size && state.copy_count == 0);
        CHECK(state.shared_page_count == 3 && state.page_count == 4);
        CHECK_STATUS(rkv_page_table_allocate_pages(f.table, 1, &page), RKV_STATUS_OUT_OF_PAGES);
        CHECK_EQ(publish(&f, state.sequence, 4 * size).claimed_page_count, 1);
        release(&f, state.sequence);
        CHECK_EQ(probe(&f, text(ids, 4 * size)), 4 * size);
        end_fixture(&f);
    }
}

/* A lock of a match protects the partial page too. */
static void b08_locked_match_covers_the_partial_page(void) {
    fixture f = new_fixture(4, 16);
    uint32_t ids[12], fork_ids[12];
    count_up(ids, 12, 1);
    memcpy(fork_ids, ids, sizeof ids);
    fork_ids[6] = 90;
    insert(&f, text(ids, 12));
    rkv_cache_match_result match = match_in(&f, NULL, text(fork_ids, 12), RKV_MATCH_LOCK);
    CHECK(match.page_count == 1 && match.partial_position_count == 2);
    CHECK(match.lock != 0 && match.partial_page != 0);
    /* J05: and nothing behind it */
    CHECK_EQ(info_of(&f, match.partial_node).end_position, 8);
    CHECK_EQ(info_of(&f, match.partial_node).lock_count, 1);
    CHECK_EQ(reclaimable_pages(&f), 1);
    bool cached = false;
    CHECK_EQ(evict(&f, 100), 1);
    CHECK_OK(rkv_cache_contains_page(f.cache, match.partial_page, &cached));
    CHECK(cached);
    CHECK_EQ(match_of(&f, text(fork_ids, 12)).token_count, 6);
    CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
    CHECK_EQ(reclaimable_pages(&f), cached_pages(&f));
    end_fixture(&f);
}

/* Switched off: a cut is a page boundary that isn't inside an image. */
static void b08_whole_pages_only(void) {
    fixture f = new_fixture_with(4, 64, 8, RKV_CACHE_WHOLE_PAGES);
    uint32_t ids[12], fork_ids[12];
    count_up(ids, 12, 1);
    memcpy(fork_ids, ids, sizeof ids);
    fork_ids[6] = 90;
    insert(&f, text(ids, 12));
    rkv_cache_match_result match = match_of(&f, text(fork_ids, 12));
    CHECK(match.token_count == 4 && match.partial_position_count == 0);
    CHECK(match.partial_page == 0 && match.partial_node == 0);
    CHECK_EQ(probe(&f, text(fork_ids, 12)), 4);
    rkv_sequence_info state = begin(&f, text(ids, 12));
    CHECK(state.cached_position_count == 8 && state.copy_count == 0);
    release(&f, state.sequence);
    /* 2 + 9 positions: the boundaries at 4 and 8 are inside the image, 12 is behind it */
    const uint32_t prompt[5] = {50, 51, 0, 52, 53};
    rkv_token_item picture = image(2, 1, 9);
    CHECK_EQ(serve(&f, with_items(prompt, 5, &picture, 1)), 0);
    CHECK_EQ(match_of(&f, with_items(prompt, 5, &picture, 1)).position_count, 12);
    CHECK_EQ(match_of(&f, with_items(prompt, 3, &picture, 1)).position_count, 0);
    state = begin(&f, with_items(prompt, 4, &picture, 1));
    CHECK_EQ(state.cached_position_count, 0);
    release(&f, state.sequence);
    state = begin(&f, with_items(prompt, 5, &picture, 1));
    CHECK_EQ(state.cached_position_count, 12);
    release(&f, state.sequence);
    /* an image that begins and ends on boundaries is no obstacle */
    const uint32_t even[6] = {60, 61, 62, 63, 0, 64};
    rkv_token_item aligned = image(4, 2, 8);
    serve(&f, with_items(even, 6, &aligned, 1));
    CHECK_EQ(match_of(&f, with_items(even, 6, &aligned, 1)).position_count, 12);
    CHECK_EQ(match_of(&f, with_items(even, 4, NULL, 0)).position_count, 4);
    end_fixture(&f);
}

/* K15 with pages larger than a position: every cut of a mixed prompt, on token boundaries. */
static void k15_no_cut_inside_an_image(void) {
    const uint32_t sizes[] = {1, 3, 4, 16};
    for (size_t s = 0; s < 4; s++) {
        fixture f = new_fixture(sizes[s], 200);
        uint32_t ids[9], other[9];
        rkv_token_item items[3] = {image(1, 1, 13), image(4, 2, 1), image(5, 3, 20)}, changed[3];
        const uint64_t ends[10] = {0, 1, 14, 15, 16, 17, 37, 38, 39, 40};
        count_up(ids, 9, 1);
        serve(&f, with_items(ids, 9, items, 3));
        uint64_t published = 40 / sizes[s] * sizes[s];
        for (size_t at = 0; at < 9; at++) {
            /* the token at this index is another one */
            memcpy(other, ids, sizeof ids);
            memcpy(changed, items, sizeof items);
            other[at] = 77;
            for (size_t i = 0; i < 3; i++) {
                if (items[i].token_index == at) {
                    changed[i].digest[0] ^= 1;
                }
            }
            size_t want = at;
            while (ends[want] > published) {
                want--;
            }
            rkv_cache_match_result match = match_of(&f, with_items(other, 9, changed, 3));
            CHECK_EQ(match.token_count, want);
            CHECK_EQ(match.position_count, ends[want]);
            rkv_sequence_info state = begin(&f, with_items(other, 9, changed, 3));
            CHECK_EQ(state.cached_position_count, ends[want]);
            CHECK_EQ(state.cached_token_count, want);
            release(&f, state.sequence);
        }
        end_fixture(&f);
    }
}

/* What is copied from was used with the pages before it: others go first that nobody used since.
 * No question fills its page, so nothing else holds what they have in common. */
static void b08_the_source_was_used(void) {
    for (uint32_t whole = 0; whole < 2; whole++) {
        for (int how = 0; how < 2; how++) {
            fixture f = new_fixture(4, 16);
            uint32_t ids[8], fork_ids[8], other[4] = {50, 51, 52, 53};
            const uint32_t common = 4 * whole + 2;
            count_up(ids, 8, 1);
            memcpy(fork_ids, ids, sizeof ids);
            fork_ids[common] = 90;
            serve(&f, text(ids, 4 * whole + 4));
            serve(&f, text(other, 4));
            if (how == 0) {
                CHECK_EQ(serve(&f, text(fork_ids, common + 1)), common);
            } else {
                rkv_cache_match_result match =
                    match_in(&f, NULL, text(fork_ids, common + 1), RKV_MATCH_LOCK);
                CHECK_EQ(match.partial_position_count, 2);
                CHECK_OK(rkv_cache_unlock(f.cache, match.lock));
            }
            CHECK_EQ(evict(&f, 1), 1);
            CHECK_EQ(probe(&f, text(other, 4)), 0);
            CHECK_EQ(probe(&f, text(fork_ids, common + 1)), common);
            end_fixture(&f);
        }
    }
}

int main(void) {
    RUN(b08_match_ends_inside_a_page);
    RUN(b08_longest_common_start);
    RUN(b08_same_image_other_question);
    RUN(b08_copy_must_be_confirmed);
    RUN(b08_source_is_protected);
    RUN(b08_first_page);
    RUN(b08_the_source_was_used);
    RUN(j05_a_cut_protects_one_page);
    RUN(j05_what_is_behind_the_source_makes_room);
    RUN(j05_several_cuts_in_one_node);
    RUN(b08_source_gives_way_to_the_request);
    RUN_BOTH(b08_full_hit_in_a_full_pool);
    RUN(b08_locked_match_covers_the_partial_page);
    RUN_BOTH(b08_whole_pages_only);
    RUN(k15_no_cut_inside_an_image);
    return check_result();
}
