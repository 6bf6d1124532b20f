/* G: sequences with several groups, as an engine that lets the library keep its rows uses them. */
#include "hybrid.h"

static rkv_sequence_info begin_chunked(const fixture *f, rkv_tokens tokens, size_t chunk) {
    rkv_sequence_begin_args args;
    rkv_sequence_info info;
    memset(&args, 0, sizeof args);
    memset(&info, 0, sizeof info);
    args.struct_size = sizeof args;
    info.struct_size = sizeof info;
    args.tokens = &tokens;
    args.allocate_position_count = chunk;
    CHECK_OK(rkv_sequence_begin(f->cache, &args, &info));
    return info;
}

static size_t group_row(const fixture *f, rkv_sequence_id id, uint32_t group,
                        uint32_t pages[MOST]) {
    size_t count = 0, again = 0;
    CHECK_OK(rkv_sequence_read_group_row(f->cache, id, group, 0, NULL, 0, &count));
    CHECK_OK(rkv_sequence_read_group_row(f->cache, id, group, 0, pages, MOST, &again));
    CHECK_EQ(count, again);
    return count;
}

static rkv_sequence_publish_result publish_to(const fixture *f, rkv_sequence_id id,
                                              uint64_t computed) {
    rkv_sequence_publish_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    CHECK_OK(rkv_sequence_publish(f->cache, id, computed, &result));
    return result;
}

/* What publishing did in the window's group; in that of the state it does nothing. */
static void check_published(const fixture *f, rkv_sequence_id id, uint32_t claimed,
                            uint32_t remapped) {
    rkv_published_group groups[2];
    size_t count = 0;
    CHECK_OK(rkv_sequence_read_published(f->cache, id, groups, sizeof groups[0], 2, &count));
    CHECK(count == 2 && groups[0].group == WINDOW && groups[1].group == STATE);
    CHECK_EQ(groups[0].claimed_page_count, claimed);
    CHECK_EQ(groups[0].remapped_page_count, remapped);
    CHECK(groups[1].claimed_page_count == 0 && groups[1].remapped_page_count == 0);
}

static size_t copies_of(const fixture *f, rkv_sequence_id id, rkv_page_copy copies[4]) {
    size_t count = 0;
    CHECK_OK(rkv_sequence_read_copies(f->cache, id, copies, sizeof copies[0], 4, &count));
    return count;
}

/* The second request of a chat takes the pages of group 0, a window of those of group 1, and a copy
 * of the state. */
static void g05_g07_a_prompt_is_computed_once(void) {
    fixture f = new_hybrid(20, 20, 6);
    uint32_t ids[24], pages[MOST], spine[MOST];
    rkv_page_copy copies[4];
    size_t copy_count = 0, count = 0;
    count_up(ids, 24, 1);
    rkv_sequence_info first = begin_chunked(&f, text(ids, 24), 12);
    CHECK(first.cached_position_count == 0 && first.copy_count == 0);
    CHECK_EQ(group_row(&f, first.sequence, WINDOW, pages), 3);
    CHECK_EQ(group_row(&f, first.sequence, STATE, pages), 1);
    publish_to(&f, first.sequence, 12);
    CHECK_OK(rkv_sequence_allocate(f.cache, first.sequence, 24));
    CHECK_EQ(publish_to(&f, first.sequence, 20).claimed_page_count, 2);
    check_published(&f, first.sequence, 2, 0);
    /* 8 positions before the next one: pages 3 and 4, and page 5 to write into. */
    CHECK_EQ(group_row(&f, first.sequence, WINDOW, pages), 6);
    CHECK(pages[2] == 0 && pages[3] != 0 && pages[4] != 0 && pages[5] != 0);
    CHECK_EQ(group_row(&f, first.sequence, SPINE, spine), 6);
    CHECK(spine[0] != 0 && spine[5] != 0);
    CHECK_EQ(pool_of(&f, WINDOW).reclaimable_page_count, 3);
    CHECK_OK(rkv_sequence_checkpoint(f.cache, first.sequence, &copy_count));
    CHECK_EQ(copy_count, 1);
    CHECK_EQ(copies_of(&f, first.sequence, copies), 1);
    CHECK_EQ(group_row(&f, first.sequence, STATE, pages), 1);
    CHECK(copies[0].group == STATE && copies[0].source_page == pages[0]);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, first.sequence));

    rkv_sequence_info second = begin_chunked(&f, text(ids, 24), 0);
    CHECK(second.cached_position_count == 20 && second.copy_count == 1);
    CHECK_EQ(copies_of(&f, second.sequence, copies), 1);
    CHECK_EQ(group_row(&f, second.sequence, STATE, pages), 1);
    CHECK(copies[0].group == STATE && copies[0].target_page == pages[0]);
    copy_count = 99;
    CHECK_STATUS(rkv_sequence_checkpoint(f.cache, second.sequence, &copy_count),
                 RKV_STATUS_INVALID_STATE);
    CHECK_EQ(copy_count, 99);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, second.sequence));
    CHECK_EQ(group_row(&f, second.sequence, WINDOW, pages), 6);
    CHECK(pages[2] == 0 && pages[3] != 0 && pages[5] != 0);
    /* From an index on. */
    CHECK_OK(rkv_sequence_read_group_row(f.cache, second.sequence, WINDOW, 4, pages, 2, &count));
    CHECK_EQ(count, 2);
    CHECK_OK(rkv_sequence_slide(f.cache, second.sequence, 24));
    CHECK_OK(rkv_sequence_release(f.cache, second.sequence));
    CHECK_OK(rkv_sequence_release(f.cache, first.sequence));
    CHECK_EQ(pool_of(&f, WINDOW).private_page_count, 0);
    end_hybrid(&f);
}

/* Two compute the same prompt: the second one takes the pages that the first one published, in each
 * group. Its states are there too, so it leaves none. */
static void g07_g11_a_prompt_is_computed_twice(void) {
    fixture f = new_hybrid(40, 40, 6);
    uint32_t ids[24];
    size_t copy_count = 0, left = 7;
    count_up(ids, 24, 1);
    rkv_sequence_id first = begin_chunked(&f, text(ids, 24), 0).sequence;
    rkv_sequence_id second = begin_chunked(&f, text(ids, 24), 0).sequence;
    publish_to(&f, first, 20);
    CHECK_OK(rkv_sequence_checkpoint(f.cache, first, &copy_count));
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, first));
    rkv_sequence_publish_result published = publish_to(&f, second, 20);
    CHECK(published.claimed_page_count == 0 && published.remapped_page_count == 5);
    check_published(&f, second, 0, 5);
    CHECK_OK(rkv_sequence_donate(f.cache, second, &left));
    CHECK_EQ(left, 0);
    publish_to(&f, first, 24);
    CHECK_OK(rkv_sequence_donate(f.cache, first, NULL));
    CHECK_STATUS(rkv_sequence_donate(f.cache, first, &left), RKV_STATUS_STALE_SEQUENCE);
    CHECK_EQ(pool_of(&f, STATE).cached_page_count, 2);
    CHECK_EQ(pool_of(&f, STATE).private_page_count, 0);
    end_hybrid(&f);
}

static void save_at(const fixture *f, rkv_sequence_id id, uint64_t position_count) {
    size_t copy_count = 0;
    publish_to(f, id, position_count);
    CHECK_OK(rkv_sequence_checkpoint(f->cache, id, &copy_count));
    CHECK_EQ(copy_count, 1);
    CHECK_OK(rkv_sequence_confirm_copies(f->cache, id));
}

/* A state that was saved inside an image is of no use, and none is to be saved there. */
static void g11_no_group_cuts_an_image(void) {
    fixture f = new_hybrid(40, 40, 6);
    uint32_t ids[15];
    uint64_t lost[GROUP_COUNT];
    count_up(ids, 15, 1);
    ids[6] = RKV_TEXT_ID_LIMIT;
    rkv_token_item picture = image(6, 7, 10); /* positions 6 to 15 */
    rkv_tokens prompt = with_items(ids, 15, &picture, 1);
    rkv_sequence_info first = begin_chunked(&f, prompt, 0);
    CHECK(first.checkpoint_at[0] == 20 && first.checkpoint_at[1] == 0);
    save_at(&f, first.sequence, 12);
    rkv_group_depths found = depths_of(&f, prompt, lost);
    CHECK(found.position_count == 0 && found.known_position_count == 4);
    CHECK(lost[WINDOW] == 0 && lost[STATE] == 4);
    CHECK(found.checkpoint_at[0] == 4 && found.checkpoint_at[1] == 20);
    save_at(&f, first.sequence, 16);
    publish_to(&f, first.sequence, 24);
    CHECK_OK(rkv_sequence_release(f.cache, first.sequence));
    /* Where it ends is a good place: another question about it. */
    ids[9] = 99;
    rkv_sequence_info second = begin_chunked(&f, prompt, 0);
    CHECK(second.cached_position_count == 16 && second.copy_count == 1);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, second.sequence));
    CHECK_OK(rkv_sequence_release(f.cache, second.sequence));
    /* Of a prompt that ends with one, a state is saved before it. */
    picture = image(6, 8, 16);
    rkv_tokens last = with_items(ids, 7, &picture, 1);
    rkv_sequence_info third = begin_chunked(&f, last, 0);
    CHECK(third.cached_position_count == 0 && third.known_position_count == 4);
    CHECK(third.checkpoint_at[0] == 4 && third.checkpoint_at[1] == 0);
    save_at(&f, third.sequence, 4);
    CHECK_OK(rkv_sequence_release(f.cache, third.sequence));
    CHECK_EQ(depths_of(&f, last, lost).position_count, 4);
    end_hybrid(&f);
}

/* A child waits for its copies in all groups, and the fork says how many there are. */
static void g11_children_say_how_many_copies(void) {
    fixture f = new_hybrid(40, 40, 8);
    uint32_t ids[24];
    uint64_t ends[2] = {20, 22};         /* with a page, and inside one */
    size_t expected[2] = {1, 3}, at;
    rkv_page_copy copies[4];
    count_up(ids, 24, 1);
    for (at = 0; at < 2; at++) {
        rkv_sequence_fork_child children[2];
        bool retained = true;
        rkv_sequence_id parent = begin_chunked(&f, text(ids, 24), 0).sequence;
        publish_to(&f, parent, ends[at]);
        fork_into(&f, parent, 2, children);
        CHECK_EQ(children[0].copy_count, expected[at]);
        CHECK_EQ(copies_of(&f, children[1].sequence, copies), children[1].copy_count);
        /* A state that is not copied yet is nothing to go on from. */
        CHECK_STATUS(rkv_sequence_retain(f.cache, children[0].sequence, &retained),
                     RKV_STATUS_INVALID_STATE);
        CHECK(message_names("copy"));
        CHECK_OK(rkv_sequence_release(f.cache, children[0].sequence));
        CHECK_OK(rkv_sequence_confirm_copies(f.cache, children[1].sequence));
        CHECK_OK(rkv_sequence_release(f.cache, children[1].sequence));
        CHECK_OK(rkv_sequence_release(f.cache, parent));
    }
    end_hybrid(&f);
}

static void m01_bad_arguments(void) {
    fixture f = new_hybrid(20, 20, 6);
    uint32_t ids[9], pages[MOST];
    size_t count = 7;
    count_up(ids, 9, 1);
    rkv_sequence_id id = begin_chunked(&f, text(ids, 9), 0).sequence;
    CHECK_STATUS(rkv_sequence_read_group_row(f.cache, id, 3, 0, pages, MOST, &count),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("group 3") && count == 7);
    CHECK_STATUS(rkv_sequence_read_group_row(f.cache, id, WINDOW, 4, pages, MOST, &count),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("first_index"));
    CHECK_STATUS(rkv_sequence_read_group_row(f.cache, id, WINDOW, 0, pages, 1, &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK_EQ(count, 3);
    rkv_published_group group;
    CHECK_STATUS(rkv_sequence_read_published(f.cache, id, &group, sizeof group, 1, &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK_EQ(count, 2);
    CHECK_STATUS(rkv_sequence_slide(f.cache, id, 10), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("computed_position_count"));
    CHECK_STATUS(rkv_sequence_checkpoint(f.cache, id, &count), RKV_STATUS_INVALID_STATE);
    CHECK_STATUS(rkv_sequence_truncate(f.cache, id, 9), RKV_STATUS_UNSUPPORTED);
    CHECK_OK(rkv_sequence_release(f.cache, id));
    CHECK_STATUS(rkv_sequence_slide(f.cache, id, 1), RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(rkv_sequence_read_published(f.cache, id, NULL, 0, 0, &count),
                 RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(rkv_sequence_checkpoint(f.cache, id, &count), RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(rkv_sequence_read_group_row(f.cache, id, 1, 0, pages, MOST, &count),
                 RKV_STATUS_STALE_SEQUENCE);
    end_hybrid(&f);
}

/* What waits for a copy is told how it ends, also where begin named none. */
static void told_to_copy(const fixture *f, rkv_sequence_id id) {
    rkv_sequence_publish_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    for (size_t slides = 0; slides < 2; slides++) {
        CHECK_STATUS(slides ? rkv_sequence_slide(f->cache, id, 20)
                            : rkv_sequence_publish(f->cache, id, 20, &result),
                     RKV_STATUS_INVALID_STATE);
        CHECK(message_names("rkv_sequence_read_copies()"));
        CHECK(message_names("rkv_sequence_confirm_copies()"));
    }
}

static void m01_open_copies(void) {
    fixture f = new_hybrid(40, 40, 8);
    uint32_t ids[24];
    size_t count = 0;
    rkv_sequence_fork_child child;
    count_up(ids, 24, 1);
    rkv_sequence_id first = begin_chunked(&f, text(ids, 24), 0).sequence;
    publish_to(&f, first, 20);
    CHECK_OK(rkv_sequence_checkpoint(f.cache, first, &count));
    told_to_copy(&f, first);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, first));
    fork_into(&f, first, 1, &child);
    told_to_copy(&f, child.sequence);
    rkv_sequence_id second = begin_chunked(&f, text(ids, 24), 0).sequence;
    told_to_copy(&f, second);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, second));
    publish_to(&f, second, 20);
    CHECK_OK(rkv_sequence_release(f.cache, second));
    CHECK_OK(rkv_sequence_release(f.cache, child.sequence));
    CHECK_OK(rkv_sequence_release(f.cache, first));
    end_hybrid(&f);
}

/* What has no pages was not computed: windows do not slide over it, and the row can be planned. */
static void m01_windows_slide_over_no_more_than_the_row(void) {
    fixture f = new_hybrid(20, 20, 6);
    uint32_t ids[40], before[MOST], after[MOST];
    rkv_plan *plan = NULL;
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    count_up(ids, 40, 1);
    row.sequence = begin_chunked(&f, text(ids, 40), 16).sequence;
    row.start = 12;
    row.count = 4;
    CHECK_OK(rkv_plan_create(f.table, &plan));
    CHECK_OK(rkv_plan_set(plan, &row, 1, sizeof row));
    const size_t count = group_row(&f, row.sequence, WINDOW, before);
    for (uint64_t past = 17; past <= 40; past += 23) {
        CHECK_STATUS(rkv_sequence_slide(f.cache, row.sequence, past),
                     RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("more than the 16 positions that the row has pages for"));
        CHECK_OK(rkv_plan_check(plan));
        CHECK_EQ(group_row(&f, row.sequence, WINDOW, after), count);
        CHECK(memcmp(before, after, count * sizeof *before) == 0);
    }
    CHECK_OK(rkv_sequence_slide(f.cache, row.sequence, 16));
    CHECK_OK(rkv_sequence_allocate(f.cache, row.sequence, 20));
    row.start = 16;
    CHECK_OK(rkv_plan_set(plan, &row, 1, sizeof row));
    rkv_plan_destroy(plan);
    CHECK_OK(rkv_sequence_release(f.cache, row.sequence));
    end_hybrid(&f);
}

int main(void) {
    RUN(g05_g07_a_prompt_is_computed_once);
    RUN(g07_g11_a_prompt_is_computed_twice);
    RUN(g11_no_group_cuts_an_image);
    RUN(g11_children_say_how_many_copies);
    RUN(m01_bad_arguments);
    RUN(m01_open_copies);
    RUN(m01_windows_slide_over_no_more_than_the_row);
    return check_result();
}
