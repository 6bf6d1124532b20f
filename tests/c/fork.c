/* Forks: children that share what their parent has, for beam search and parallel sampling. */
#include "fixture.h"

enum { BEAMS = 6 };

static void c08_whole_pages_are_shared(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[10], row[8], parent_row[8];
    rkv_sequence_fork_child children[BEAMS];
    count_up(ids, 10, 1);
    rkv_sequence_info parent = begin(&f, text(ids, 10));
    publish(&f, parent.sequence, 10);
    row_of(&f, parent.slot, parent_row, 8);
    uint64_t before = private_pages(&f);
    fork_into(&f, parent.sequence, BEAMS, children);
    check_sane(&f);
    CHECK_EQ(private_pages(&f), before + BEAMS);
    for (size_t i = 0; i < BEAMS; i++) {
        rkv_sequence_info child = query(&f, children[i].sequence);
        CHECK(child.slot == children[i].slot && child.position_count == 10);
        /* nothing left to compute: the next token is the child's own */
        CHECK(child.cached_position_count == 10 && child.inherited_position_count == 10);
        CHECK_EQ(row_of(&f, child.slot, row, 8), 3);
        CHECK(memcmp(row, parent_row, 2 * sizeof *row) == 0);
        check_shared(&f, child.slot, 2);
        CHECK(child.copy_count == 1 && children[i].copy_count == 1);
        const rkv_page_copy copy = copy_of(&f, child.sequence);
        CHECK(copy.position_count == 2 && copy.group == 0);
        CHECK(copy.source_page == parent_row[2] && copy.target_page == row[2]);
        for (size_t j = 0; j < i; j++) {
            CHECK(copy_of(&f, children[j].sequence).target_page != row[2]);
        }
    }
    /* the parent is as it was, and keeps its page */
    rkv_sequence_info after = query(&f, parent.sequence);
    CHECK(after.copy_count == 0 && after.page_count == 3);
    append(&f, parent.sequence, 11);
    /* losing beams free exactly their private pages */
    for (size_t i = 0; i < BEAMS; i++) {
        before = private_pages(&f);
        release(&f, children[i].sequence);
        CHECK_EQ(private_pages(&f), before - 1);
        CHECK_EQ(cached_pages(&f), 2);
        check_sane(&f);
    }
    release(&f, parent.sequence);
    CHECK(private_pages(&f) == 0 && reclaimable_pages(&f) == 2);
    end_fixture(&f);
}

/* Three steps of a beam search with pages of two tokens: the best two beams are forked again. */
static void c08_forks_of_forks(void) {
    fixture f = new_fixture_with(2, 256, 64, 0);
    uint32_t ids[5] = {1, 2, 3, 4, 5};
    rkv_sequence_id beams[BEAMS], next[BEAMS];
    rkv_sequence_id prompt = serve_and_retain(&f, text(ids, 5));
    rkv_sequence_info first = continue_from(&f, prompt, text(ids, 1));
    confirm_copies(&f, first.sequence);
    publish(&f, first.sequence, 6);
    rkv_sequence_fork_child children[BEAMS];
    fork_into(&f, first.sequence, BEAMS, children);
    release(&f, first.sequence);
    for (size_t i = 0; i < BEAMS; i++) {
        beams[i] = children[i].sequence;
    }
    for (uint32_t step = 0; step < 3; step++) {
        for (uint32_t i = 0; i < BEAMS; i++) {
            if (query(&f, beams[i]).copy_count > 0) {
                confirm_copies(&f, beams[i]);
            }
            append(&f, beams[i], 100 + 10 * step + i);
        }
        for (size_t winner = 0; winner < 2; winner++) {
            publish(&f, beams[winner], 7 + step);
            fork_into(&f, beams[winner], BEAMS / 2, children);
            for (size_t i = 0; i < BEAMS / 2; i++) {
                next[winner * BEAMS / 2 + i] = children[i].sequence;
            }
        }
        for (size_t i = 0; i < BEAMS; i++) {
            release(&f, beams[i]);
        }
        check_sane(&f);
        memcpy(beams, next, sizeof beams);
    }
    /* one that survived says all that led to it, one that lost has left nothing */
    const uint32_t story[8] = {1, 2, 3, 4, 5, 1, 100, 110}, other[7] = {1, 2, 3, 4, 5, 1, 101};
    append(&f, beams[0], 7);
    if (query(&f, beams[0]).copy_count > 0) {
        confirm_copies(&f, beams[0]);
    }
    publish(&f, beams[0], 10);
    CHECK_EQ(probe(&f, text(story, 8)), 8);
    CHECK_EQ(probe(&f, text(other, 7)), 6);
    for (size_t i = 0; i < BEAMS; i++) {
        release(&f, beams[i]);
    }
    CHECK_EQ(cache_stats(&f).sequence_count, 0);
    CHECK_OK(rkv_sequence_drop(f.cache, prompt));
    CHECK_EQ(private_pages(&f), 0);
    evict(&f, 1000);
    CHECK_EQ(free_pages(&f), 256);
    end_fixture(&f);
}

/* All or none: the numbers are exact, and nothing is evicted for a fork that can't be. */
static void c08_all_or_nothing(void) {
    fixture f = new_fixture(4, 10);
    uint32_t ids[12];
    rkv_sequence_fork_child children[BEAMS];
    memset(children, 0xA5, sizeof children);
    count_up(ids, 12, 500);
    serve(&f, text(ids, 12));
    count_up(ids, 12, 1);
    rkv_sequence_info parent = begin(&f, text(ids, 6));
    publish(&f, parent.sequence, 6);
    /* 3 reclaimable, 5 free: 6 children with two pages each don't fit, 4 do */
    rkv_sequence_fork_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.parent = parent.sequence;
    args.child_count = BEAMS;
    args.reserve_position_count = 3;
    snapshot before = take(&f);
    CHECK_STATUS(rkv_sequence_fork(f.cache, &args, children, sizeof *children),
                 RKV_STATUS_OUT_OF_PAGES);
    CHECK(same(&f, &before));
    rkv_shortage shortage;
    shortage.struct_size = sizeof shortage;
    CHECK_OK(rkv_last_shortage(&shortage));
    CHECK(shortage.needed_page_count == 12 && shortage.free_page_count == 5);
    CHECK(shortage.reclaimable_page_count == 3 && shortage.retained_page_count == 0);
    for (size_t i = 0; i < sizeof children; i++) {
        CHECK(((const uint8_t *)children)[i] == 0xA5);
    }
    args.child_count = 4;
    CHECK_OK(rkv_sequence_fork(f.cache, &args, children, sizeof *children));
    CHECK_EQ(free_pages(&f) + reclaimable_pages(&f), 0);
    CHECK_EQ(cache_stats(&f).evicted_page_count, 3);
    for (size_t i = 0; i < 4; i++) {
        release(&f, children[i].sequence);
    }
    /* eight slots, one in use */
    args.child_count = 8;
    args.reserve_position_count = 0;
    before = take(&f);
    CHECK_STATUS(rkv_sequence_fork(f.cache, &args, children, sizeof *children),
                 RKV_STATUS_OUT_OF_SLOTS);
    CHECK(message_names("8") && message_names("7") && same(&f, &before));
    release(&f, parent.sequence);
    end_fixture(&f);
}

/* At a page boundary there is nothing to copy, and a child takes no page before it needs one. */
static void c08_at_a_page_boundary(void) {
    fixture f = new_fixture(4, 8);
    uint32_t ids[8];
    rkv_sequence_fork_child children[7];
    count_up(ids, 8, 1);
    rkv_sequence_info parent = begin(&f, text(ids, 8));
    publish(&f, parent.sequence, 8);
    fork_into(&f, parent.sequence, 7, children);
    CHECK(private_pages(&f) == 0 && free_pages(&f) == 6);
    CHECK_EQ(info_of(&f, query(&f, parent.sequence).node).lock_count, 8);
    for (size_t i = 0; i < 7; i++) {
        CHECK_EQ(children[i].copy_count, 0);
    }
    append(&f, children[0].sequence, 9);
    CHECK_EQ(private_pages(&f), 1);
    for (size_t i = 0; i < 7; i++) {
        release(&f, children[i].sequence);
    }
    release(&f, parent.sequence);
    end_fixture(&f);
}

/* The first child to fill a page publishes it; a twin that wrote the same is remapped (K16), one
   that went on otherwise publishes beside it. */
static void c08_children_publish(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[8], row[4], twin_row[4];
    rkv_sequence_fork_child children[3];
    count_up(ids, 8, 1);
    rkv_sequence_info parent = begin(&f, text(ids, 6));
    publish(&f, parent.sequence, 6);
    fork_into(&f, parent.sequence, 3, children);
    release(&f, parent.sequence);
    for (uint32_t i = 0; i < 3; i++) {
        rkv_sequence_publish_result result;
        result.struct_size = sizeof result;
        append(&f, children[i].sequence, 7);
        append(&f, children[i].sequence, i == 2 ? 99 : 8);
        CHECK_STATUS(rkv_sequence_publish(f.cache, children[i].sequence, 8, &result),
                     RKV_STATUS_INVALID_STATE);
        confirm_copies(&f, children[i].sequence);
    }
    CHECK_EQ(publish(&f, children[0].sequence, 8).claimed_page_count, 1);
    rkv_sequence_publish_result result = publish(&f, children[1].sequence, 8);
    CHECK(result.remapped_page_count == 1 && result.first_remapped_index == 1);
    CHECK_EQ(publish(&f, children[2].sequence, 8).claimed_page_count, 1);
    row_of(&f, children[0].slot, row, 4);
    row_of(&f, children[1].slot, twin_row, 4);
    CHECK(row[0] == twin_row[0] && row[1] == twin_row[1]);
    row_of(&f, children[2].slot, twin_row, 4);
    CHECK(row[0] == twin_row[0] && row[1] != twin_row[1]);
    CHECK_EQ(probe(&f, text(ids, 8)), 8);
    for (size_t i = 0; i < 3; i++) {
        check_sane(&f);
        release(&f, children[i].sequence);
    }
    CHECK_EQ(reclaimable_pages(&f), 3);
    end_fixture(&f);
}

/* A retained sequence can be forked too, as can one whose prefill is under way. */
static void c08_any_parent(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[11];
    rkv_sequence_fork_child children[2];
    count_up(ids, 11, 1);
    rkv_sequence_id kept = serve_and_retain(&f, text(ids, 10));
    fork_into(&f, kept, 2, children);
    CHECK_OK(rkv_sequence_drop(f.cache, kept));
    CHECK_EQ(query(&f, children[1].sequence).cached_position_count, 10);
    release(&f, children[0].sequence);
    confirm_copies(&f, children[1].sequence);
    release(&f, children[1].sequence);
    CHECK_EQ(private_pages(&f), 0);
    /* 8 found, 2 more computed, one to come: the children compute that for themselves */
    rkv_sequence_info parent = begin(&f, text(ids, 11));
    publish(&f, parent.sequence, 10);
    fork_into(&f, parent.sequence, 2, children);
    rkv_sequence_info child = query(&f, children[0].sequence);
    CHECK(child.position_count == 11 && child.cached_position_count == 10);
    /* what a child began with is its prompt: it can't be taken back */
    confirm_copies(&f, children[0].sequence);
    append(&f, children[0].sequence, 60);
    CHECK_STATUS(rkv_sequence_truncate(f.cache, children[0].sequence, 10),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK_OK(rkv_sequence_truncate(f.cache, children[0].sequence, 11));
    release(&f, children[0].sequence);
    release(&f, parent.sequence);
    release(&f, children[1].sequence);
    end_fixture(&f);
}

/* The cache goes while copies are open and sequences are retained: nothing is lost (M03). */
static void c08_the_cache_goes_first(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[10];
    rkv_sequence_fork_child children[3];
    count_up(ids, 10, 1);
    rkv_sequence_id kept = serve_and_retain(&f, text(ids, 10));
    fork_into(&f, kept, 3, children);
    CHECK_OK(rkv_sequence_drop(f.cache, kept));
    serve_and_retain(&f, text(ids, 9));
    rkv_cache_destroy(f.cache);
    rkv_page_table_stats stats = table_stats(&f);
    CHECK_EQ(stats.free_page_count, stats.total_page_count);
    CHECK_EQ(stats.free_slot_count, stats.slot_count);
    CHECK_OK(rkv_page_table_check(f.table));
    CHECK_OK(rkv_cache_create(f.table, NULL, &f.cache));
    serve_and_retain(&f, text(ids, 9));
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(c08_whole_pages_are_shared);
    RUN_BOTH(c08_forks_of_forks);
    RUN_BOTH(c08_all_or_nothing);
    RUN_BOTH(c08_at_a_page_boundary);
    RUN_BOTH(c08_children_publish);
    RUN_BOTH(c08_any_parent);
    RUN_BOTH(c08_the_cache_goes_first);
    return check_result();
}
