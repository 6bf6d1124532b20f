/* G14: a model with full attention, a sliding window and a state, served by the library's rows: a
 * runner for each of the first two over one page table, the state by the engine. */
#include "runner_groups.h"

static void g14_two_runners_and_a_state_compute_a_chat(void) {
    for (size_t chunk = 3; chunk <= 48; chunk *= 2) {
        engine e = new_engine(40, 24);
        uint32_t ids[LONGEST];
        count_up(ids, LONGEST, 1);
        CHECK_EQ(chat(&e, ids, 38, chunk), 0);
        CHECK_EQ(chat(&e, ids, 38, chunk), 36);
        CHECK_EQ(chat(&e, ids, 60, chunk), 36);
        CHECK_EQ(chat(&e, ids, 64, chunk), 56);
        count_up(ids + 23, LONGEST - 23, 500);
        CHECK_EQ(chat(&e, ids, 50, chunk), 20);
        CHECK_EQ(chat(&e, ids, 50, chunk), 48);
        end_engine(&e);
    }
}

/* The window's row has holes; without them it begins at a position of its own. */
static void g14_a_plan_holds_the_pages_of_each_group(void) {
    engine e = new_engine(40, 24);
    uint32_t ids[40], spine[MOST], window[MOST];
    count_up(ids, 40, 1);
    CHECK_EQ(chat(&e, ids, 38, 12), 0);
    rkv_sequence_info info = begin(&e.f, text(ids, 40));
    CHECK(info.cached_position_count == 36 && info.copy_count == 1);
    set_plan(&e, info.sequence, 36, 4);
    size_t count = 0;
    const rkv_sequence_id id = info.sequence;
    CHECK_OK(rkv_sequence_read_group_row(e.f.cache, id, SPINE, 0, spine, MOST, &count));
    CHECK_OK(rkv_sequence_read_group_row(e.f.cache, id, WINDOW, 0, window, MOST, &count));
    CHECK_EQ(count, 10);
    const rkv_plan_arrays all = arrays_of(&e);
    CHECK(all.copy_count == 1 && all.copy_group[0] == STATE);
    for (uint32_t flags = 0; flags <= RKV_PLAN_COMPACT; flags += RKV_PLAN_COMPACT) {
        const rkv_plan_group_arrays first = group_arrays(&e, SPINE, flags);
        CHECK(first.row_count == 1 && first.indptr[0] == 0 && first.indptr[1] == 10);
        CHECK(memcmp(first.indices, spine, 10 * sizeof *spine) == 0);
        CHECK(first.indices == all.indices && first.slot_mapping == all.slot_mapping);
        CHECK(first.first_position == NULL && first.sink_page_count == NULL);
    }
    const rkv_plan_group_arrays holes = group_arrays(&e, WINDOW, 0);
    CHECK(holes.indptr[1] == 10 && holes.last_page_len[0] == PAGE);
    CHECK(memcmp(holes.indices, window, 10 * sizeof *window) == 0);
    CHECK(holes.indices[6] == 0 && holes.indices[7] != 0);
    CHECK(holes.first_position == NULL && holes.sink_page_count == NULL);
    const rkv_plan_group_arrays compact = group_arrays(&e, WINDOW, RKV_PLAN_COMPACT);
    CHECK(compact.indptr[1] == 3 && compact.first_position[0] == 28);
    CHECK(compact.sink_page_count[0] == 0 && compact.last_page_len[0] == PAGE);
    CHECK(memcmp(compact.indices, window + 7, 3 * sizeof *window) == 0);
    for (size_t i = 0; i < 4; i++) {
        CHECK_EQ(holes.slot_mapping[i], (int64_t)window[9] * PAGE + (int64_t)i);
        CHECK_EQ(compact.slot_mapping[i], holes.slot_mapping[i]);
    }
    release(&e.f, info.sequence);
    end_engine(&e);
}

int main(void) {
    RUN(g14_two_runners_and_a_state_compute_a_chat);
    RUN(g14_a_plan_holds_the_pages_of_each_group);
    return check_result();
}
