/* M01 and G14: what runners and plans of several groups refuse, with nothing changed. */
#include "misuse.h"
#include "runner_groups.h"

#define STATE_ERROR(f, call, word) REFUSED(f, call, RKV_STATUS_INVALID_STATE, word)

static void g14_groups_that_runners_refuse(void) {
    engine e = new_engine(20, 12);
    const fixture *f = &e.f;
    rkv_runner *runner = NULL;
    rkv_runner_config config = config_of(STATE, 0);
    BAD(f, rkv_runner_create(f->table, &config, &runner), "config.group 2");
    config.group = GROUP_COUNT;
    BAD(f, rkv_runner_create(f->table, &config, &runner), "config.group 3");
    config = config_of(WINDOW, 88);
    REFUSED(f, rkv_runner_create(f->table, &config, &runner), RKV_STATUS_UNSUPPORTED,
            "v_head_dim 88");
    REFUSED(f, rkv_runner_supports(&config, 4, NULL), RKV_STATUS_UNSUPPORTED, "v_head_dim 88");
    /* memory is lent for V as it is given: rows of 96 elements in strides of 64 share places */
    rkv_runner_kv_memory layer;
    CHECK_OK(rkv_runner_read_kv_memory(e.parts[1].runner, 0, &layer, sizeof layer));
    CHECK(layer.v_head_stride == 96 && layer.head_stride == K_DIM);
    config = config_of(WINDOW, 96);
    config.kv_layers = &layer;
    config.kv_layer_size = sizeof layer;
    layer.v_position_stride = layer.v_head_stride = layer.v_page_stride = 0;
    BAD(f, rkv_runner_create(f->table, &config, &runner), "kv_layers[0]");
    CHECK(runner == NULL);
    /* a page has K of 64 and V of 96 elements */
    uint64_t bytes = 0;
    CHECK_OK(rkv_runner_supports(&config, PAGE, &bytes));
    CHECK_EQ(bytes, PAGE * KV_HEADS * (64 + 96) * sizeof(float));
    config.kv_layers = NULL;
    CHECK_OK(rkv_runner_create(f->table, &config, &runner));
    rkv_runner_stats stats = {sizeof stats, 0, 0, 0};
    CHECK_OK(rkv_runner_read_stats(runner, &stats));
    /* page 0 and those of the pool of its group, no more */
    CHECK(stats.page_bytes == bytes && stats.kv_bytes == 13 * bytes);
    rkv_runner_destroy(runner);
    end_engine(&e);
}

/* A call may narrow the group's window, and not widen it. */
static void g14_windows_of_calls(void) {
    engine e = new_engine(20, 12);
    uint32_t ids[24];
    float out[HEADS * 96], lesser[HEADS * 96];
    count_up(ids, 24, 1);
    const rkv_sequence_info info = begin(&e.f, text(ids, 24));
    set_plan(&e, info.sequence, 0, 24);
    check_attention(&e, &e.parts[0], ids, 0, 24);
    check_attention(&e, &e.parts[1], ids, 0, 24);
    set_plan(&e, info.sequence, 23, 1);
    mark(out, sizeof out);
    BAD(&e.f, attend(&e, &e.parts[1], ids, 23, 1, WINDOW_SIZE + 1, out), "window 10");
    BAD(&e.f, attend(&e, &e.parts[1], ids, 23, 1, UINT32_MAX, out), "window");
    UNTOUCHED(out);
    CHECK_OK(attend(&e, &e.parts[1], ids, 23, 1, WINDOW_SIZE, out));
    CHECK_OK(attend(&e, &e.parts[1], ids, 23, 1, 0, lesser));
    CHECK(memcmp(out, lesser, sizeof out) == 0);
    CHECK_OK(attend(&e, &e.parts[1], ids, 23, 1, 4, lesser));
    part narrow = e.parts[1];
    narrow.window = 4;
    CHECK(fabs((double)lesser[5] - naive(&narrow, ids, 23, 0, 5)) < 1e-4);
    CHECK(fabs((double)lesser[5] - (double)out[5]) > 1e-4);
    /* a FULL group has none of its own */
    CHECK_OK(attend(&e, &e.parts[0], ids, 23, 1, 10, out));
    release(&e.f, info.sequence);
    end_engine(&e);
}

/* Rows that are no sequence's have pages of group 0 alone. */
static void g14_rows_of_callers_are_of_group_0(void) {
    engine e = new_engine(20, 12);
    uint32_t slot = 0, ids[8];
    float out[8 * HEADS * 96];
    count_up(ids, 8, 1);
    uint32_t spine[2];
    CHECK_OK(rkv_page_table_allocate_slot(e.f.table, &slot));
    take_pages(&e.f, SPINE, 2, spine);
    CHECK_OK(rkv_page_table_map(e.f.table, slot, 0, spine, 2));
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.slot = slot;
    row.count = 8;
    CHECK_OK(rkv_plan_set(e.plan, &row, 1, sizeof row));
    check_attention(&e, &e.parts[0], ids, 0, 8);
    STATE_ERROR(&e.f, attend(&e, &e.parts[1], ids, 0, 8, 0, out), "rows[0]");
    STATE_ERROR(&e.f, rkv_runner_prepare_plan(e.parts[1].runner, e.plan, 0, NULL), "rows[0]");
    rkv_plan_group_arrays arrays;
    mark(&arrays, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    STATE_ERROR(&e.f, rkv_plan_view_group(e.plan, WINDOW, 0, &arrays), "rows[0]");
    BAD(&e.f, rkv_plan_view_group(e.plan, GROUP_COUNT, 0, &arrays), "group 3");
    BAD(&e.f, rkv_plan_view_group(e.plan, UINT32_MAX, 0, &arrays), "group");
    BAD(&e.f, rkv_plan_view_group(e.plan, SPINE, 2, &arrays), "flags");
    BAD(&e.f, rkv_plan_view_group(NULL, SPINE, 0, &arrays), "plan");
    UNTOUCHED_STRUCT(arrays);
    CHECK_OK(rkv_plan_view_group(e.plan, SPINE, 0, &arrays));
    CHECK_EQ(arrays.row_count, 1);
    /* each runner copies pages of its own group */
    uint32_t pages[2];
    take_pages(&e.f, WINDOW, 2, pages);
    rkv_page_copy copy = {pages[0], pages[1], 2, SPINE};
    BAD(&e.f, rkv_runner_copy_pages(e.parts[1].runner, &copy, 1, sizeof copy), "copies[0].group");
    copy.group = WINDOW;
    BAD(&e.f, rkv_runner_copy_pages(e.parts[0].runner, &copy, 1, sizeof copy), "copies[0].group");
    CHECK_OK(rkv_runner_copy_pages(e.parts[1].runner, &copy, 1, sizeof copy));
    copy.source_page = 12;
    BAD(&e.f, rkv_runner_copy_pages(e.parts[1].runner, &copy, 1, sizeof copy), "source_page");
    give_pages(&e.f, WINDOW, pages, 2);
    CHECK_OK(rkv_page_table_free_slot(e.f.table, slot));
    end_engine(&e);
}

/* A step on pages that the window gave up since is refused, and so is one that needs them. */
static void g14_a_window_that_slid_after_set(void) {
    for (int publishes = 0; publishes < 2; publishes++) {
        engine e = new_engine(20, 12);
        uint32_t ids[24];
        float out[HEADS * 96];
        count_up(ids, 24, 1);
        const rkv_sequence_info info = begin(&e.f, text(ids, 24));
        for (size_t at = 0; at < 22; at += 11) {
            set_plan(&e, info.sequence, at, 11);
            check_attention(&e, &e.parts[0], ids, at, 11);
            check_attention(&e, &e.parts[1], ids, at, 11);
        }
        set_plan(&e, info.sequence, 22, 1);
        CHECK_OK(rkv_plan_check(e.plan));
        if (publishes) {
            publish(&e.f, info.sequence, 20);
        } else {
            CHECK_OK(rkv_sequence_slide(e.f.cache, info.sequence, 20));
        }
        STATE_ERROR(&e.f, rkv_plan_check(e.plan), "rows[0]");
        for (size_t i = 0; i < 2; i++) {
            STATE_ERROR(&e.f, attend(&e, &e.parts[i], ids, 22, 1, 0, out), "rows[0]");
        }
        set_plan(&e, info.sequence, 22, 1);
        CHECK_OK(attend(&e, &e.parts[1], ids, 22, 1, 0, out));
        /* a slide that gives up nothing more changes nothing */
        CHECK_OK(rkv_sequence_slide(e.f.cache, info.sequence, 20));
        CHECK_OK(rkv_plan_check(e.plan));
        /* position 19 attends to 11 and later, position 18 to 10, of a page that is gone */
        rkv_plan_row row;
        memset(&row, 0, sizeof row);
        row.sequence = info.sequence;
        row.start = 18;
        row.count = 4;
        BAD(&e.f, rkv_plan_set(e.plan, &row, 1, sizeof row), publishes ? "cache" : "group 1");
        CHECK_OK(rkv_plan_check(e.plan));
        release(&e.f, info.sequence);
        end_engine(&e);
    }
}

/* What nobody carried out is not confirmed: the copy of a state is the engine's. */
static void g14_copies_of_states_stay_open(void) {
    engine e = new_engine(20, 12);
    uint32_t ids[24];
    float out[4 * HEADS * 96];
    count_up(ids, 24, 1);
    CHECK_EQ(chat(&e, ids, 22, 24), 0);
    const rkv_sequence_info info = begin(&e.f, text(ids, 24));
    CHECK(info.cached_position_count == 20 && info.copy_count == 1);
    set_plan(&e, info.sequence, 20, 4);
    mark(out, sizeof out);
    for (size_t i = 0; i < 2; i++) {
        STATE_ERROR(&e.f, attend(&e, &e.parts[i], ids, 20, 4, 0, out), "group 2");
        STATE_ERROR(&e.f, rkv_runner_prepare_plan(e.parts[i].runner, e.plan, 0, NULL),
                    "RKV_PREPARE_KEEP_COPIES_OPEN");
    }
    UNTOUCHED(out);
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(rkv_runner_prepare_plan(e.parts[i].runner, e.plan, RKV_PREPARE_KEEP_COPIES_OPEN,
                                         NULL));
        STATE_ERROR(&e.f, rkv_runner_prepare_plan(e.parts[i].runner, e.plan, 0, NULL), "group 2");
    }
    CHECK_EQ(query(&e.f, info.sequence).copy_count, 1);
    copy_states(&e);
    CHECK_OK(rkv_sequence_confirm_copies(e.f.cache, info.sequence));
    check_attention(&e, &e.parts[0], ids, 20, 4);
    check_attention(&e, &e.parts[1], ids, 20, 4);
    release(&e.f, info.sequence);
    end_engine(&e);
}

/* Full attention and a window alone: pages that a prompt leaves inside are copied in both groups,
 * each by its runner, and the last one confirms. */
static void g14_copies_of_two_groups(void) {
    for (int how = 0; how < 3; how++) {
        engine e;
        memset(&e, 0, sizeof e);
        const rkv_group_config groups[2] = {group_of(RKV_GROUP_FULL, 0, 0),
                                            group_of(RKV_GROUP_WINDOW, 1, WINDOW_SIZE)};
        const rkv_pool_config pools[2] = {{31, 0}, {21, 0}};
        rkv_page_table_config config;
        CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
        config.page_size = PAGE;
        config.groups = groups;
        config.pools = pools;
        config.group_count = config.pool_count = 2;
        CHECK_OK(rkv_page_table_create(&config, &e.f.table));
        CHECK_OK(rkv_cache_create(e.f.table, NULL, &e.f.cache));
        CHECK_OK(rkv_plan_create(e.f.table, &e.plan));
        e.f.page_size = PAGE;
        e.parts[0] = new_part(&e.f, SPINE, 0, K_DIM);
        e.parts[1] = new_part(&e.f, WINDOW, WINDOW_SIZE, 96);
        part *first = &e.parts[how == 2], *last = &e.parts[how != 2];
        uint32_t ids[24];
        float out[2 * HEADS * 96];
        count_up(ids, 24, 1);
        rkv_sequence_info info = begin(&e.f, text(ids, 24));
        set_plan(&e, info.sequence, 0, 24);
        check_attention(&e, &e.parts[0], ids, 0, 24);
        check_attention(&e, &e.parts[1], ids, 0, 24);
        publish(&e.f, info.sequence, 24);
        release(&e.f, info.sequence);
        count_up(ids + 22, 2, 700);
        info = begin(&e.f, text(ids, 24));
        CHECK(info.cached_position_count == 22 && info.copy_count == 2);
        set_plan(&e, info.sequence, 22, 2);
        const rkv_plan_arrays arrays = arrays_of(&e);
        CHECK(arrays.copy_count == 2 && arrays.copy_group[0] == SPINE);
        CHECK(arrays.copy_group[1] == WINDOW && arrays.copy_position_count[1] == 2);
        CHECK(arrays.copy_sequence[1] == info.sequence);
        STATE_ERROR(&e.f, attend(&e, first, ids, 22, 2, 0, out), "RKV_PREPARE_KEEP_COPIES_OPEN");
        CHECK_OK(rkv_runner_prepare_plan(first->runner, e.plan, RKV_PREPARE_KEEP_COPIES_OPEN,
                                         NULL));
        CHECK_EQ(query(&e.f, info.sequence).copy_count, 2);
        if (how == 0) {
            CHECK_OK(rkv_runner_prepare_plan(last->runner, e.plan, 0, NULL));
            CHECK_EQ(query(&e.f, info.sequence).copy_count, 0);
        }
        check_attention(&e, last, ids, 22, 2);
        CHECK_EQ(query(&e.f, info.sequence).copy_count, 0);
        check_attention(&e, first, ids, 22, 2);
        release(&e.f, info.sequence);
        rkv_plan_destroy(e.plan);
        for (size_t i = 0; i < 2; i++) {
            rkv_runner_destroy(e.parts[i].runner);
            free(e.parts[i].memory);
        }
        rkv_cache_destroy(e.f.cache);
        rkv_page_table_destroy(e.f.table);
    }
}

/* The state that a child is still to copy is not changed by its parent. */
static void g14_a_parent_waits_for_its_children(void) {
    engine e = new_engine(20, 12);
    uint32_t ids[16];
    count_up(ids, 16, 1);
    const rkv_sequence_info parent = begin(&e.f, text(ids, 12));
    set_plan(&e, parent.sequence, 0, 12);
    check_attention(&e, &e.parts[0], ids, 0, 12);
    check_attention(&e, &e.parts[1], ids, 0, 12);
    publish(&e.f, parent.sequence, 12);
    const rkv_tokens rest = text(ids + 12, 4);
    rkv_sequence_continue_args args = continue_args(parent.sequence, &rest);
    args.flags = RKV_CONTINUE_RUNNING;
    rkv_sequence_info child;
    memset(&child, 0, sizeof child);
    child.struct_size = sizeof child;
    CHECK_OK(rkv_sequence_continue(e.f.cache, &args, &child));
    CHECK(child.cached_position_count == 12 && child.copy_count == 1);
    append(&e.f, parent.sequence, ids[12]);
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = parent.sequence;
    row.start = 12;
    row.count = 1;
    STATE_ERROR(&e.f, rkv_plan_set(e.plan, &row, 1, sizeof row), "children");
    CHECK_OK(rkv_sequence_confirm_copies(e.f.cache, child.sequence));
    set_plan(&e, parent.sequence, 12, 1);
    check_attention(&e, &e.parts[1], ids, 12, 1);
    release(&e.f, child.sequence);
    release(&e.f, parent.sequence);
    end_engine(&e);
}

/* What a sequence waits for is among a plan's copies wherever the row of a caller stands. */
static void g14_copies_of_rows_behind_a_callers(void) {
    for (int behind = 0; behind < 2; behind++) {
        engine e = new_engine(20, 12);
        uint32_t slot = 0, spine[1], ids[24];
        count_up(ids, 24, 1);
        CHECK_EQ(chat(&e, ids, 22, 24), 0);
        const rkv_sequence_info info = begin(&e.f, text(ids, 24));
        CHECK(info.cached_position_count == 20 && info.copy_count == 1);
        CHECK_OK(rkv_page_table_allocate_slot(e.f.table, &slot));
        take_pages(&e.f, SPINE, 1, spine);
        CHECK_OK(rkv_page_table_map(e.f.table, slot, 0, spine, 1));
        rkv_plan_row row[2];
        memset(row, 0, sizeof row);
        row[!behind].slot = slot;
        row[!behind].count = PAGE;
        row[behind].sequence = info.sequence;
        row[behind].start = 20;
        row[behind].count = 4;
        CHECK_OK(rkv_plan_set(e.plan, row, 2, sizeof row[0]));
        const rkv_plan_arrays arrays = arrays_of(&e);
        CHECK_EQ(arrays.copy_count, 1);
        CHECK(arrays.copy_count == 1 && arrays.copy_group[0] == STATE);
        STATE_ERROR(&e.f, rkv_runner_prepare_plan(e.parts[0].runner, e.plan, 0, NULL), "group 2");
        CHECK_EQ(query(&e.f, info.sequence).copy_count, 1);
        release(&e.f, info.sequence);
        CHECK_OK(rkv_page_table_free_slot(e.f.table, slot));
        end_engine(&e);
    }
}

int main(void) {
    RUN(g14_groups_that_runners_refuse);
    RUN(g14_windows_of_calls);
    RUN(g14_rows_of_callers_are_of_group_0);
    RUN(g14_a_window_that_slid_after_set);
    RUN(g14_copies_of_states_stay_open);
    RUN(g14_copies_of_rows_behind_a_callers);
    RUN(g14_copies_of_two_groups);
    RUN(g14_a_parent_waits_for_its_children);
    return check_result();
}
