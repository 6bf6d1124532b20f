/* J08: admission for the whole prompt, pages chunk by chunk. */
#include "fixture.h"

/* Begins a prompt of which the first positions alone get pages. */
static rkv_status try_part(const fixture *f, rkv_tokens tokens, uint64_t first, uint64_t reserve,
                           rkv_sequence_info *state) {
    rkv_sequence_begin_args args = sequence_args(&tokens);
    args.allocate_position_count = first;
    args.reserve_position_count = reserve;
    return rkv_sequence_begin(f->cache, &args, state);
}

static rkv_sequence_info begin_part(const fixture *f, rkv_tokens tokens, uint64_t first) {
    rkv_sequence_info state = new_state();
    CHECK_OK(try_part(f, tokens, first, 0, &state));
    return state;
}

static void get_pages(const fixture *f, rkv_sequence_id sequence, uint64_t positions) {
    CHECK_OK(rkv_sequence_allocate(f->cache, sequence, positions));
}

static rkv_plan_row plan_row(rkv_sequence_id sequence, uint64_t start, uint64_t count) {
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = sequence;
    row.start = start;
    row.count = count;
    return row;
}

/* A prefill in chunks: each asks for its pages, computes, and publishes. */
static void j08_pages_come_chunk_by_chunk(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[40], pages[16];
    rkv_plan *plan = NULL;
    count_up(ids, 40, 1);
    CHECK_OK(rkv_plan_create(f.table, &plan));
    rkv_sequence_info state = begin_part(&f, text(ids, 40), 10);
    CHECK(state.position_count == 40 && state.page_count == 3 && state.shared_page_count == 0);
    CHECK(private_pages(&f) == 3 && free_pages(&f) == 29);
    for (uint64_t done = 0; done < 40; done += 10) {
        rkv_plan_row chunk = plan_row(state.sequence, done, 10);
        if (done > 0) {
            /* without pages nothing of it can be computed, and it cannot be called computed */
            snapshot before = take(&f);
            CHECK_STATUS(rkv_plan_set(plan, &chunk, 1, sizeof chunk), RKV_STATUS_INVALID_ARGUMENT);
            CHECK(message_names("allocate"));
            rkv_sequence_publish_result result;
            result.struct_size = sizeof result;
            CHECK_STATUS(rkv_sequence_publish(f.cache, state.sequence, done + 10, &result),
                         RKV_STATUS_INVALID_ARGUMENT);
            CHECK(message_names("computed_position_count"));
            CHECK(same(&f, &before));
            get_pages(&f, state.sequence, done + 10);
        }
        const uint64_t length = (done + 10 + 3) / 4;
        CHECK_EQ(query(&f, state.sequence).page_count, length);
        CHECK_EQ(row_of(&f, state.slot, pages, 16), length);
        CHECK_OK(rkv_plan_set(plan, &chunk, 1, sizeof chunk));
        publish(&f, state.sequence, done + 10);
        CHECK_EQ(cached_pages(&f), (done + 10) / 4);
        CHECK_EQ(cached_pages(&f) + private_pages(&f), length);
        check_sane(&f);
    }
    CHECK_EQ(probe(&f, text(ids, 40)), 40);
    /* fewer than there are, and all again: nothing happens */
    snapshot before = take(&f);
    get_pages(&f, state.sequence, 0);
    get_pages(&f, state.sequence, 7);
    get_pages(&f, state.sequence, 40);
    CHECK_STATUS(rkv_sequence_allocate(f.cache, state.sequence, 41), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("position_count"));
    CHECK(same(&f, &before));
    rkv_plan_destroy(plan);
    release(&f, state.sequence);
    CHECK_EQ(private_pages(&f), 0);
    end_fixture(&f);
}

/* Zero, and everything or more, is what it always was: all pages and the reserve. */
static void j08_all_at_once(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[18];
    count_up(ids, 18, 1);
    const uint64_t all[] = {0, 18, 19, UINT64_MAX};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        rkv_sequence_info state = new_state();
        CHECK_OK(try_part(&f, text(ids, 18), all[i], 6, &state));
        CHECK_EQ(state.page_count, 6);
        release(&f, state.sequence);
    }
    rkv_sequence_info state = new_state();
    CHECK_OK(try_part(&f, text(ids, 18), 17, 6, &state));
    CHECK_EQ(state.page_count, 5);
    release(&f, state.sequence);
    end_fixture(&f);
}

/* A prompt that does not fit is refused, however little of it is to get pages now. */
static void j08_admission_is_for_the_whole_prompt(void) {
    fixture f = new_fixture(4, 12);
    uint32_t ids[33], held[4];
    count_up(ids, 33, 1);
    allocate(&f, 4, held);
    rkv_sequence_info state = new_state();
    state.sequence = 77;
    snapshot before = take(&f);
    CHECK_STATUS(try_part(&f, text(ids, 33), 4, 0, &state), RKV_STATUS_OUT_OF_PAGES);
    rkv_shortage lack;
    lack.struct_size = sizeof lack;
    CHECK_OK(rkv_last_shortage(&lack));
    CHECK(lack.needed_page_count == 9 && lack.free_page_count == 8);
    CHECK_STATUS(try_part(&f, text(ids, 30), 4, 3, &state), RKV_STATUS_OUT_OF_PAGES);
    CHECK(state.sequence == 77 && same(&f, &before));
    CHECK_OK(try_part(&f, text(ids, 30), 4, 2, &state));
    CHECK_EQ(state.page_count, 1);
    release(&f, state.sequence);
    CHECK_OK(rkv_page_table_free_pages(f.table, held, 4));
    end_fixture(&f);
}

/* Two prompts that fit one by one: the second lacks pages in its middle, keeps what it has, and
 * goes on when the first is done, with pages that are evicted for it. */
static void j08_a_shortage_in_the_middle(void) {
    fixture f = new_fixture(4, 8);
    uint32_t ids[28], others[28];
    count_up(ids, 28, 1);
    count_up(others, 28, 100);
    rkv_sequence_info a = begin_part(&f, text(ids, 28), 4);
    rkv_sequence_info b = begin_part(&f, text(others, 28), 4);
    get_pages(&f, a.sequence, 20);
    publish(&f, a.sequence, 20);
    get_pages(&f, b.sequence, 12);
    publish(&f, b.sequence, 12);
    CHECK_EQ(free_pages(&f), 0);
    snapshot before = take(&f);
    CHECK_STATUS(rkv_sequence_allocate(f.cache, b.sequence, 28), RKV_STATUS_OUT_OF_PAGES);
    rkv_shortage lack;
    lack.struct_size = sizeof lack;
    CHECK_OK(rkv_last_shortage(&lack));
    CHECK(lack.needed_page_count == 4 && lack.free_page_count == 0);
    CHECK(lack.reclaimable_page_count == 0 && lack.locked_page_count == 8);
    CHECK(same(&f, &before));
    CHECK_EQ(query(&f, b.sequence).page_count, 3);
    get_pages(&f, b.sequence, 12);
    release(&f, a.sequence);
    get_pages(&f, b.sequence, 28);
    CHECK_EQ(cache_stats(&f).evicted_page_count, 4);
    CHECK_EQ(publish(&f, b.sequence, 28).shared_page_count, 7);
    CHECK(probe(&f, text(others, 28)) == 28 && probe(&f, text(ids, 28)) == 4);
    release(&f, b.sequence);
    end_fixture(&f);
}

/* What is reused is in the row whatever was asked for, with the page to copy into. */
static void j08_what_is_reused_has_its_pages(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[40], row[16];
    count_up(ids, 40, 1);
    serve(&f, text(ids, 24));
    count_up(ids + 18, 22, 500);
    const bool copies = fixture_index == RKV_INDEX_RADIX;
    rkv_sequence_info state = begin_part(&f, text(ids, 40), 1);
    CHECK_EQ(state.shared_page_count, 4);
    CHECK_EQ(state.page_count, copies ? 5 : 4);
    CHECK_EQ(row_of(&f, state.slot, row, 16), state.page_count);
    if (copies) {
        const rkv_page_copy copy = copy_of(&f, state.sequence);
        CHECK(copy.position_count == 2 && copy.target_page == row[4]);
        confirm_copies(&f, state.sequence);
    }
    get_pages(&f, state.sequence, 40);
    CHECK_EQ(publish(&f, state.sequence, 40).claimed_page_count, 6);
    CHECK_EQ(probe(&f, text(ids, 40)), 40);
    release(&f, state.sequence);
    /* all of it is cached: nothing is left to allocate but the page of the last token */
    state = begin_part(&f, text(ids, 40), 1);
    CHECK(state.page_count == 10 && copy_of(&f, state.sequence).position_count == 3);
    snapshot before = take(&f);
    get_pages(&f, state.sequence, 40);
    CHECK(same(&f, &before));
    release(&f, state.sequence);
    end_fixture(&f);
}

/* Others publish the prompt meanwhile: the sequence locks more than its row is long, and publishes
 * what it has. */
static void j08_others_are_further(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[40];
    count_up(ids, 40, 1);
    rkv_sequence_info state = begin_part(&f, text(ids, 40), 8);
    serve(&f, text(ids, 40));
    rkv_sequence_publish_result done = publish(&f, state.sequence, 8);
    CHECK(done.claimed_page_count == 0 && done.remapped_page_count == 2);
    CHECK_EQ(info_of(&f, done.node).end_position, 40);
    CHECK(reclaimable_pages(&f) == 0 && private_pages(&f) == 0);
    CHECK_EQ(query(&f, state.sequence).page_count, 2);
    get_pages(&f, state.sequence, 40);
    done = publish(&f, state.sequence, 40);
    CHECK(done.remapped_page_count == 8 && done.first_remapped_index == 2);
    CHECK_EQ(private_pages(&f), 0);
    release(&f, state.sequence);
    CHECK_EQ(cached_pages(&f), 10);
    end_fixture(&f);
}

/* Whatever reads a row by position sees how long it is. */
static void j08_a_short_row_is_read_as_it_is(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[40];
    count_up(ids, 40, 1);
    rkv_sequence_info state = begin_part(&f, text(ids, 40), 8);
    const uint64_t there[2] = {0, 7}, beyond[2] = {7, 8};
    int64_t mapping[2];
    size_t capacity = 0;
    CHECK_OK(rkv_page_table_row_capacity(f.table, state.slot, &capacity));
    CHECK_EQ(capacity, 8);
    CHECK_OK(rkv_page_table_read_slot_mapping(f.table, state.slot, there, 2, mapping));
    CHECK_STATUS(rkv_page_table_read_slot_mapping(f.table, state.slot, beyond, 2, mapping),
                 RKV_STATUS_INVALID_ARGUMENT);
    rkv_page_table_batch_row row = {state.slot, 9};
    int32_t indptr[2], indices[4], last[1];
    rkv_page_table_batch_arrays arrays = {sizeof arrays, 0, indptr, indices, 4, last};
    size_t count = 0;
    CHECK_STATUS(rkv_page_table_read_batch(f.table, &row, 1, sizeof row, &arrays, &count),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("rows[0]"));
    row.position_count = 8;
    CHECK_OK(rkv_page_table_read_batch(f.table, &row, 1, sizeof row, &arrays, &count));
    CHECK(count == 2 && last[0] == 4);
    bool can = false;
    CHECK_OK(rkv_page_table_can_reserve(f.table, state.slot, 40, &can));
    CHECK(can);
    release(&f, state.sequence);
    end_fixture(&f);
}

/* Decoding asks for all that is missing; draft tokens are taken back without a look at the row. */
static void j08_append_and_truncate(void) {
    fixture f = new_fixture(4, 12);
    uint32_t ids[40];
    count_up(ids, 40, 1);
    rkv_sequence_info state = begin_part(&f, text(ids, 40), 4);
    append(&f, state.sequence, 77);
    CHECK(query(&f, state.sequence).page_count == 11 && free_pages(&f) == 1);
    CHECK_OK(rkv_sequence_truncate(f.cache, state.sequence, 40));
    publish(&f, state.sequence, 40);
    release(&f, state.sequence);
    evict(&f, 100);
    /* all or nothing: it lacks the pages of the prompt, not those of the token */
    state = begin_part(&f, text(ids, 40), 4);
    uint32_t held[9];
    allocate(&f, 9, held);
    snapshot before = take(&f);
    const uint32_t id = 77;
    rkv_tokens one = text(&id, 1);
    CHECK_STATUS(rkv_sequence_append(f.cache, state.sequence, &one), RKV_STATUS_OUT_OF_PAGES);
    CHECK(same(&f, &before) && query(&f, state.sequence).position_count == 40);
    CHECK_OK(rkv_sequence_truncate(f.cache, state.sequence, 40));
    CHECK_OK(rkv_page_table_free_pages(f.table, held, 9));
    release(&f, state.sequence);
    end_fixture(&f);
}

/* A prompt in its middle is a parent like others: its children have what is computed, and their own
 * pages for the rest, all or the first. */
static void j08_parents_and_children(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[40];
    count_up(ids, 40, 1);
    rkv_sequence_info parent = begin_part(&f, text(ids, 40), 10);
    publish(&f, parent.sequence, 10);
    rkv_sequence_fork_child child;
    fork_into(&f, parent.sequence, 1, &child);
    rkv_sequence_info state = query(&f, child.sequence);
    CHECK(state.cached_position_count == 10 && state.page_count == 10);
    CHECK(state.shared_page_count == 2 && copy_of(&f, state.sequence).position_count == 2);
    release(&f, child.sequence);
    const uint32_t more[4] = {70, 71, 72, 73};
    rkv_tokens suffix = text(more, 4), all = text(ids, 20);
    rkv_sequence_continue_args args = continue_args(parent.sequence, &suffix);
    args.flags = RKV_CONTINUE_RUNNING;
    args.allocate_position_count = 16;
    state = continue_as(&f, &args);
    CHECK(state.position_count == 44 && state.page_count == 4);
    CHECK(state.cached_position_count == 10 && copy_of(&f, state.sequence).position_count == 2);
    /* the parent goes: what it computed stays for the copy, the rest of its row was never there */
    CHECK(retain(&f, parent.sequence));
    confirm_copies(&f, state.sequence);
    CHECK_OK(rkv_sequence_drop(f.cache, parent.sequence));
    get_pages(&f, state.sequence, 44);
    CHECK_EQ(publish(&f, state.sequence, 44).shared_page_count, 11);
    release(&f, state.sequence);
    /* without a parent the same count is for the sequence that begins instead */
    args.all_tokens = &all;
    args.allocate_position_count = 13;
    evict(&f, 100);
    state = continue_as(&f, &args);
    CHECK(state.position_count == 20 && state.page_count == 4);
    CHECK_EQ(state.inherited_position_count, 0);
    release(&f, state.sequence);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(j08_pages_come_chunk_by_chunk);
    RUN_BOTH(j08_all_at_once);
    RUN_BOTH(j08_admission_is_for_the_whole_prompt);
    RUN_BOTH(j08_a_shortage_in_the_middle);
    RUN_BOTH(j08_what_is_reused_has_its_pages);
    RUN_BOTH(j08_others_are_further);
    RUN_BOTH(j08_a_short_row_is_read_as_it_is);
    RUN_BOTH(j08_append_and_truncate);
    RUN_BOTH(j08_parents_and_children);
    return check_result();
}
