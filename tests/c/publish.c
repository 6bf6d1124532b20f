/* Publishing: what goes to the cache, what was there already, who protects it. */
#include "fixture.h"

/* K16: two prefills of one prompt at once: the later one takes over the published pages. */
static void k16_somebody_published_first(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[7], first_row[8], before[8], after[8];
    count_up(ids, 7, 1);
    rkv_sequence_info a = begin(&f, text(ids, 7)), b = begin(&f, text(ids, 7));
    CHECK(a.cached_position_count == 0 && b.cached_position_count == 0);
    rkv_sequence_publish_result result = publish(&f, a.sequence, 7);
    CHECK(result.claimed_page_count == 3 && result.remapped_page_count == 0);
    CHECK(result.shared_page_count == 3 && result.first_remapped_index == 4);
    row_of(&f, a.slot, first_row, 8);
    row_of(&f, b.slot, before, 8);
    CHECK_EQ(private_pages(&f), 5);
    result = publish(&f, b.sequence, 7);
    CHECK(result.claimed_page_count == 0 && result.remapped_page_count == 3);
    CHECK(result.first_remapped_index == 0 && result.shared_page_count == 3);
    row_of(&f, b.slot, after, 8);
    CHECK(memcmp(after, first_row, 3 * sizeof *after) == 0);
    CHECK_EQ(after[3], before[3]);
    CHECK(after[3] != first_row[3]);
    CHECK(private_pages(&f) == 2 && cached_pages(&f) == 3);
    CHECK_EQ(cache_stats(&f).duplicate_page_count, 3);
    /* each of the two holds exactly one lock on the same node */
    CHECK_EQ(query(&f, a.sequence).node, query(&f, b.sequence).node);
    CHECK_EQ(info_of(&f, query(&f, a.sequence).node).lock_count, 2);
    check_sane(&f);
    release(&f, a.sequence);
    CHECK_EQ(info_of(&f, query(&f, b.sequence).node).lock_count, 1);
    release(&f, b.sequence);
    CHECK_EQ(reclaimable_pages(&f), 3);
    end_fixture(&f);
}

/* Ownership is per page, not "the first n": the other one published a shorter prefix. */
static void k16_remapped_and_claimed_in_one_call(void) {
    fixture f = new_fixture(2, 24);
    uint32_t ids[12], row[8], published[8];
    count_up(ids, 12, 1);
    rkv_sequence_info longer = begin(&f, text(ids, 12)), shorter = begin(&f, text(ids, 5));
    publish(&f, shorter.sequence, 5);
    row_of(&f, shorter.slot, published, 8);
    rkv_sequence_publish_result result = publish(&f, longer.sequence, 12);
    CHECK(result.claimed_page_count == 4 && result.remapped_page_count == 2);
    CHECK(result.first_remapped_index == 0 && result.shared_page_count == 6);
    row_of(&f, longer.slot, row, 8);
    CHECK(memcmp(row, published, 2 * sizeof *row) == 0);
    check_shared(&f, longer.slot, 6);
    CHECK_EQ(info_of(&f, query(&f, longer.sequence).node).lock_count, 1);
    release(&f, shorter.sequence);
    release(&f, longer.sequence);
    end_fixture(&f);
}

static void k16_publishing_again_keeps_one_lock(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_sequence_info state = begin(&f, text(ids, 8));
    for (uint64_t computed = 0; computed <= 8; computed++) {
        for (int again = 0; again < 2; again++) {
            rkv_sequence_publish_result result = publish(&f, state.sequence, computed);
            CHECK_EQ(result.shared_page_count, computed / 2);
            CHECK_EQ(result.claimed_page_count, again == 0 && computed % 2 == 0 && computed > 0);
            CHECK_EQ(result.first_remapped_index, 4);
            rkv_node_id node = query(&f, state.sequence).node;
            CHECK((node != 0) == (computed >= 2));
            if (node != 0) {
                CHECK_EQ(info_of(&f, node).lock_count, 1);
                CHECK_EQ(info_of(&f, node).end_position, computed / 2 * 2);
            }
        }
        check_sane(&f);
    }
    /* fewer than before does nothing */
    rkv_sequence_publish_result result = publish(&f, state.sequence, 3);
    CHECK(result.claimed_page_count == 0 && result.shared_page_count == 4);
    release(&f, state.sequence);
    CHECK_EQ(reclaimable_pages(&f), 4);
    end_fixture(&f);
}

/* K16: publishing names the node that the sequence keeps locked. The earlier one's id is good for
 * as long as a lock of the caller's own is on it. */
static void k16_publishing_tells_the_node(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[12];
    count_up(ids, 12, 1);
    rkv_sequence_info state = begin(&f, text(ids, 12));
    CHECK_EQ(publish(&f, state.sequence, 1).node, 0);
    rkv_node_id first = publish(&f, state.sequence, 4).node;
    CHECK_EQ(publish(&f, state.sequence, 4).node, first);
    CHECK_EQ(query(&f, state.sequence).node, first);
    rkv_node_id second = publish(&f, state.sequence, 8).node;
    CHECK_EQ(query(&f, state.sequence).node, second);
    CHECK_EQ(info_of(&f, second).end_position, 8);
    CHECK_EQ(info_of(&f, second).lock_count, 1);
    /* nobody else had it locked: the radix tree's node grew, and the id would mean a shorter one */
    CHECK(is_stale(&f, first) == (fixture_index == RKV_INDEX_RADIX));
    rkv_lock_id second_lock = lock_node(&f, second);
    rkv_node_id third = publish(&f, state.sequence, 12).node;
    CHECK(third != second);
    CHECK_EQ(info_of(&f, second).end_position, 8);
    CHECK_EQ(info_of(&f, third).end_position, 12);
    /* also below it */
    rkv_lock_id third_lock = lock_node(&f, third);
    CHECK_OK(rkv_cache_unlock(f.cache, second_lock));
    release(&f, state.sequence);
    CHECK_EQ(evict(&f, 16), 0);
    CHECK_EQ(info_of(&f, second).end_position, 8);
    CHECK_OK(rkv_cache_unlock(f.cache, third_lock));
    end_fixture(&f);
}

/* A program that was compiled before the result had a node. */
static void an_older_result_has_no_node(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[4];
    count_up(ids, 4, 1);
    rkv_sequence_info state = begin(&f, text(ids, 4));
    rkv_sequence_publish_result result;
    memset(&result, 0xA5, sizeof result);
    result.struct_size = offsetof(rkv_sequence_publish_result, node);
    rkv_node_id untouched = result.node;
    CHECK_OK(rkv_sequence_publish(f.cache, state.sequence, 4, &result));
    CHECK_EQ(result.shared_page_count, 2);
    CHECK_EQ(result.node, untouched);
    end_fixture(&f);
}

/* K16: who does not ask for the result publishes the same. */
static void k16_the_result_may_be_left_out(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_sequence_info state = begin(&f, text(ids, 8));
    CHECK_OK(rkv_sequence_publish(f.cache, state.sequence, 6, NULL));
    CHECK_EQ(query(&f, state.sequence).shared_page_count, 3);
    CHECK_EQ(publish(&f, state.sequence, 8).claimed_page_count, 1);
    release(&f, state.sequence);
    end_fixture(&f);
}

/* K25: generated tokens are published too, and go before the prompt that they extend. */
static void k25_generated_tokens(void) {
    fixture f = new_fixture(2, 16);
    uint32_t all[8];
    count_up(all, 8, 1);
    rkv_sequence_info state = begin(&f, text(all, 4));
    publish(&f, state.sequence, 4);
    for (uint32_t id = 5; id <= 8; id++) {
        append(&f, state.sequence, id);
        publish(&f, state.sequence, query(&f, state.sequence).position_count);
    }
    CHECK_EQ(query(&f, state.sequence).shared_page_count, 4);
    release(&f, state.sequence);
    CHECK_EQ(probe(&f, text(all, 8)), 8);
    CHECK_EQ(evict(&f, 1), 1);
    CHECK_EQ(probe(&f, text(all, 8)), 6);
    CHECK_EQ(evict(&f, 1), 1);
    CHECK_EQ(probe(&f, text(all, 8)), 4);
    end_fixture(&f);
}

/* K25: what was generated ages alone while the prompt is used again. */
static void k25_the_prompt_outlives_older_work(void) {
    fixture f = new_fixture(2, 16);
    uint32_t all[8], other[4];
    count_up(all, 8, 1);
    count_up(other, 4, 50);
    rkv_sequence_info state = begin(&f, text(all, 4));
    for (uint32_t id = 5; id <= 8; id++) {
        append(&f, state.sequence, id);
    }
    publish(&f, state.sequence, 8);
    release(&f, state.sequence);
    serve(&f, text(other, 4));
    CHECK_EQ(match_of(&f, text(all, 4)).token_count, 4);
    CHECK_EQ(evict(&f, 4), 4);
    CHECK_EQ(probe(&f, text(all, 8)), 4);
    CHECK_EQ(probe(&f, text(other, 4)), 0);
    end_fixture(&f);
}

/* B02: what a live sequence maps is protected, matched or newly published, until it ends. */
static void b02_mapped_pages_are_protected(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[10], row[8], pages[8];
    count_up(ids, 10, 1);
    serve(&f, text(ids, 4));
    rkv_sequence_info state = begin(&f, text(ids, 10));
    publish(&f, state.sequence, 10);
    CHECK_EQ(evict(&f, 100), 0);
    CHECK_STATUS(rkv_page_table_allocate_pages(f.table, 12, pages), RKV_STATUS_OUT_OF_PAGES);
    CHECK_EQ(row_of(&f, state.slot, row, 8), 5);
    check_shared(&f, state.slot, 5);
    release(&f, state.sequence);
    /* and nothing keeps a reference for ever */
    CHECK_EQ(evict(&f, 100), 5);
    CHECK_EQ(free_pages(&f), 16);
    end_fixture(&f);
}

/* B07: each whole page of a chunk can be found before the last chunk is computed. */
static void b07_chunked_prefill(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[50];
    count_up(ids, 50, 1);
    serve(&f, text(ids, 9));
    rkv_sequence_info state = begin(&f, text(ids, 50));
    CHECK_EQ(state.cached_position_count, 8); /* progress starts here */
    uint64_t computed = state.cached_position_count;
    const uint64_t chunks[] = {1, 2, 4, 7, 16, 3, 9};
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        computed += chunks[i];
        rkv_sequence_publish_result result = publish(&f, state.sequence, computed);
        CHECK_EQ(result.shared_page_count, computed / 4);
        rkv_sequence_info second = begin(&f, text(ids, 50));
        CHECK_EQ(second.cached_position_count, computed / 4 * 4);
        release(&f, second.sequence);
        check_sane(&f);
    }
    CHECK_EQ(computed, 50);
    release(&f, state.sequence);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(k16_somebody_published_first);
    RUN_BOTH(k16_remapped_and_claimed_in_one_call);
    RUN_BOTH(k16_publishing_again_keeps_one_lock);
    RUN_BOTH(k16_publishing_tells_the_node);
    RUN_BOTH(an_older_result_has_no_node);
    RUN_BOTH(k16_the_result_may_be_left_out);
    RUN_BOTH(k25_generated_tokens);
    RUN_BOTH(k25_the_prompt_outlives_older_work);
    RUN_BOTH(b02_mapped_pages_are_protected);
    RUN_BOTH(b07_chunked_prefill);
    return check_result();
}
