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

/* Beside a window every row is causal: what others would see is gone. */
static void k21_rows_are_causal_beside_a_window(void) {
    engine e = new_engine(40, 24);
    uint32_t ids[20];
    count_up(ids, 20, 1);
    rkv_sequence_info info = begin(&e.f, text(ids, 20));
    for (uint32_t mask = RKV_MASK_BIDIRECTIONAL; mask <= RKV_MASK_CONTEXT; mask++) {
        rkv_plan_row row;
        memset(&row, 0, sizeof row);
        row.sequence = info.sequence;
        row.start = mask == RKV_MASK_CONTEXT ? 8 : 0;
        row.count = 4;
        row.mask = mask;
        CHECK_STATUS(rkv_plan_set(e.plan, &row, 1, sizeof row), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("group 1 has a window"));
    }
    release(&e.f, info.sequence);
    end_engine(&e);
}

/* Of two groups with full attention each has its own pages of a context, and a state none. */
static void k21_a_context_in_several_groups(void) {
    const rkv_group_config groups[GROUP_COUNT] = {group_of(RKV_GROUP_FULL, 0, 0),
                                                  group_of(RKV_GROUP_FULL, 1, 0),
                                                  group_of(RKV_GROUP_STATE, 2, 0)};
    const rkv_pool_config pools[GROUP_COUNT] = {{41, 0}, {31, 0}, {9, 0}};
    rkv_page_table_config config;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE;
    config.slot_count = 4;
    config.groups = groups;
    config.group_count = GROUP_COUNT;
    config.pools = pools;
    config.pool_count = GROUP_COUNT;
    engine e;
    memset(&e, 0, sizeof e);
    e.f.page_size = PAGE;
    CHECK_OK(rkv_page_table_create(&config, &e.f.table));
    CHECK_OK(rkv_cache_create(e.f.table, NULL, &e.f.cache));
    CHECK_OK(rkv_plan_create(e.f.table, &e.plan));
    e.parts[0] = new_part(&e.f, 0, 0, K_DIM);
    e.parts[1] = new_part(&e.f, 1, 0, 96);
    uint32_t ids[22];
    count_up(ids, 22, 1);
    rkv_sequence_info info = begin(&e.f, text(ids, 22));
    set_plan(&e, info.sequence, 0, 22);
    check_attention(&e, &e.parts[0], ids, 0, 22);
    check_attention(&e, &e.parts[1], ids, 0, 22);
    publish(&e.f, info.sequence, 20);
    /* the last position's query, as if it were none: it sees the same keys */
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = info.sequence;
    row.start = 22;
    row.count = 1;
    row.mask = RKV_MASK_CONTEXT;
    CHECK_OK(rkv_plan_set(e.plan, &row, 1, sizeof row));
    check_attention(&e, &e.parts[0], ids, 21, 1);
    check_attention(&e, &e.parts[1], ids, 21, 1);
    const rkv_plan_group_arrays second = group_arrays(&e, 1, 0);
    CHECK(second.indptr[1] == 6 && second.last_page_len[0] == 2 && second.slot_mapping[0] == -1);
    const rkv_plan_group_arrays states = group_arrays(&e, STATE, 0);
    CHECK(states.indptr[1] == 1);
    release(&e.f, info.sequence);
    end_engine(&e);
}

int main(void) {
    RUN(g14_two_runners_and_a_state_compute_a_chat);
    RUN(g14_a_plan_holds_the_pages_of_each_group);
    RUN(k21_rows_are_causal_beside_a_window);
    RUN(k21_a_context_in_several_groups);
    return check_result();
}
