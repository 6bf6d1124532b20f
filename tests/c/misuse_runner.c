/* M01: every way to call the functions of the runner and of plans wrongly. */
#include "misuse.h"
#include "runner_fixture.h"

static void m01_runner_config(void) {
    fixture f = new_fixture(4, 16);
    rkv_runner_config good = small_runner(), config;
    rkv_runner *runner = NULL;
    CHECK_STATUS(rkv_runner_config_init(NULL, sizeof config), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_runner_config_init(&config, 8), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("struct_size"));
    BAD(&f, rkv_runner_create(NULL, &good, &runner), "table");
    BAD(&f, rkv_runner_create(f.table, NULL, &runner), "config");
    BAD(&f, rkv_runner_create(f.table, &good, NULL), "out_runner");
    const size_t first = offsetof(rkv_runner_config, group);
    BAD_INPUT_SIZES_FROM(&f, rkv_runner_config, first, good, p,
                         rkv_runner_create(f.table, p, &runner), "config");
    BAD_INPUT_SIZES_FROM(&f, rkv_runner_config, first, good, p, rkv_runner_supports(p, 4, NULL),
                         "config");
    GOOD_BIGGER_INPUT(rkv_runner_config, good, p, rkv_runner_supports(p, 4, NULL));
    BAD(&f, rkv_runner_supports(&good, 0, NULL), "page_size");
    BAD(&f, rkv_runner_supports(&good, RKV_PAGE_SIZE_MAX + 1, NULL), "page_size");
    const struct {
        size_t offset;
        uint32_t value;
        const char *word;
        rkv_status status;
    } wrong[] = {
        {offsetof(rkv_runner_config, backend), 7, "backend", RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, layer_count), 0, "layer_count", RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, layer_count), UINT32_MAX, "layer_count",
         RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, query_head_count), 0, "query_head_count",
         RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, query_head_count), 5, "query_head_count",
         RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, kv_head_count), 0, "kv_head_count",
         RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, kv_head_count), 3, "kv_head_count",
         RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, head_dim), 0, "head_dim", RKV_STATUS_UNSUPPORTED},
        {offsetof(rkv_runner_config, head_dim), 72, "head_dim", RKV_STATUS_UNSUPPORTED},
        {offsetof(rkv_runner_config, dtype), 9, "dtype", RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, dtype), RKV_DTYPE_FP8_E4M3, "dtype", RKV_STATUS_UNSUPPORTED},
        {offsetof(rkv_runner_config, kv_dtype), 4, "kv_dtype", RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, kv_dtype), RKV_DTYPE_F16, "kv_dtype", RKV_STATUS_UNSUPPORTED},
        {offsetof(rkv_runner_config, kv_layout), 2, "kv_layout", RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, flags), 4, "flags", RKV_STATUS_INVALID_ARGUMENT},
        {offsetof(rkv_runner_config, device), 1, "device", RKV_STATUS_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        config = good;
        memcpy((char *)&config + wrong[i].offset, &wrong[i].value, sizeof wrong[i].value);
        REFUSED(&f, rkv_runner_create(f.table, &config, &runner), wrong[i].status, wrong[i].word);
        REFUSED(&f, rkv_runner_supports(&config, 4, NULL), wrong[i].status, wrong[i].word);
    }
    config = good;
    config.thread_count = 1025;
    BAD(&f, rkv_runner_create(f.table, &config, &runner), "thread_count");
    CHECK(runner == NULL);
    end_fixture(&f);
}

/* Memory that the engine lends. */
static void m01_kv_memory(void) {
    runner_fixture r = new_runner(4, 16, 0);
    rkv_runner_config config = small_runner();
    rkv_runner *runner = NULL;
    rkv_runner_kv_memory good[LAYERS], layers[LAYERS], seen;
    for (uint32_t i = 0; i < LAYERS; i++) {
        CHECK_OK(rkv_runner_read_kv_memory(r.runner, i, &good[i], sizeof good[i]));
    }
    config.kv_layers = layers;
    config.kv_layer_size = sizeof *layers;
    for (int wrong = 0; wrong < 9; wrong++) {
        memcpy(layers, good, sizeof layers);
        rkv_runner_kv_memory *bad = &layers[1];
        const char *word = "kv_layers[1]";
        switch (wrong) {
        case 0: bad->k = NULL; break;
        case 1: bad->v = NULL; break;
        case 2: bad->k = (char *)bad->k + 2; break;
        case 3: bad->v = (char *)bad->v + 1; break;
        case 4: bad->head_stride = HEAD_DIM - 1; break;
        case 5: bad->position_stride = HEAD_DIM; break;
        case 6: bad->page_stride -= 1; break;
        default: bad->page_stride = wrong == 7 ? UINT64_MAX : 0;
        }
        BAD(&r.f, rkv_runner_create(r.f.table, &config, &runner), word);
    }
    config.kv_layer_size = 0;
    BAD(&r.f, rkv_runner_create(r.f.table, &config, &runner), "kv_layer_size");
    /* what is as long as layer_count says is not read when that is refused */
    config.layer_count = UINT32_MAX;
    BAD(&r.f, rkv_runner_create(r.f.table, &config, &runner), "layer_count");
    CHECK(runner == NULL);
    mark(&seen, sizeof seen);
    BAD(&r.f, rkv_runner_read_kv_memory(NULL, 0, &seen, sizeof seen), "runner");
    BAD(&r.f, rkv_runner_read_kv_memory(r.runner, LAYERS, &seen, sizeof seen), "layer");
    BAD(&r.f, rkv_runner_read_kv_memory(r.runner, UINT32_MAX, &seen, sizeof seen), "layer");
    BAD(&r.f, rkv_runner_read_kv_memory(r.runner, 0, NULL, sizeof seen), "out_memory");
    UNTOUCHED(seen);
    rkv_runner_stats stats;
    BAD(&r.f, rkv_runner_read_stats(NULL, &stats), "runner");
    OUTPUT_SIZES(&r.f, rkv_runner_stats, p, rkv_runner_read_stats(r.runner, p), "out_stats");
    GOOD_BIGGER_OUTPUT(rkv_runner_stats, p, rkv_runner_read_stats(r.runner, p));
    /* handles of another kind */
    BAD(&r.f, rkv_runner_read_stats((rkv_runner *)(void *)r.plan, &stats), "runner");
    rkv_runner_destroy(NULL);
    rkv_plan_destroy(NULL);
    end_runner(&r);
}

static void m01_page_copies(void) {
    runner_fixture r = new_runner(4, 16, 0);
    uint32_t ids[8], pages[3];
    count_up(ids, 8, 1);
    insert(&r.f, text(ids, 4));
    rkv_cache_match_result cached = match_of(&r.f, text(ids, 4));
    uint32_t cached_page = 0;
    size_t count = 0;
    CHECK_OK(rkv_node_read_pages(r.f.cache, cached.node, &cached_page, 1, &count));
    allocate(&r.f, 3, pages);
    CHECK_OK(rkv_page_table_free_pages(r.f.table, &pages[2], 1));
    const rkv_page_copy good = {pages[0], pages[1], 4, 0};
    const rkv_page_copy wrong[] = {
        {pages[0], pages[1], 5, 0},          {pages[0], pages[1], UINT32_MAX, 0},
        {pages[0], pages[0], 1, 0},          {pages[0], cached_page, 1, 0},
        {pages[0], pages[2], 1, 0},          {pages[2], pages[0], 1, 0},
        {0, pages[0], 1, 0},                 {pages[0], 0, 1, 0},
        {pages[0], 17, 1, 0},                {UINT32_MAX, pages[0], 1, 0},
        {pages[0], pages[1], 1, 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rkv_page_copy both[2] = {good, wrong[i]};
        BAD(&r.f, rkv_runner_copy_pages(r.runner, both, 2, sizeof *both), "copies");
    }
    BAD(&r.f, rkv_runner_copy_pages(r.runner, &good, 1, sizeof good - 4), "element_size");
    BAD(&r.f, rkv_runner_copy_pages(NULL, &good, 1, sizeof good), "runner");
    BAD(&r.f, rkv_runner_copy_pages(r.runner, NULL, 1, sizeof(rkv_page_copy)), "copies");
    CHECK_OK(rkv_runner_copy_pages(r.runner, NULL, 0, sizeof(rkv_page_copy)));
    CHECK_OK(rkv_runner_copy_pages(r.runner, &good, 1, sizeof good));
    CHECK_OK(rkv_page_table_free_pages(r.f.table, pages, 2));
    end_runner(&r);
}

enum { ROW = sizeof(rkv_plan_row) };

static void m01_plans(void) {
    runner_fixture r = new_runner(4, 16, 0);
    rkv_plan *plan = NULL;
    uint32_t ids[20];
    count_up(ids, 20, 1);
    rkv_sequence_info a = begin(&r.f, text(ids, 12));
    CHECK_EQ(publish(&r.f, a.sequence, 8).claimed_page_count, 2);
    rkv_plan_row good, row;
    memset(&good, 0, sizeof good);
    good.sequence = a.sequence;
    good.start = 8;
    good.count = 4;
    CHECK_OK(rkv_plan_set(r.plan, &good, 1, ROW));
    BAD(&r.f, rkv_plan_create(NULL, &plan), "table");
    BAD(&r.f, rkv_plan_create((rkv_page_table *)(void *)r.runner, &plan), "table");
    BAD(&r.f, rkv_plan_create(r.f.table, NULL), "out_plan");
    BAD(&r.f, rkv_plan_set(NULL, &good, 1, ROW), "plan");
    BAD(&r.f, rkv_plan_set(r.plan, NULL, 1, ROW), "rows");
    BAD(&r.f, rkv_plan_set(r.plan, &good, SIZE_MAX, ROW), "rows");
    const size_t sizes[] = {0, 1, ROW - 24, ROW - 1, ROW + 1, 5000, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        BAD_SIZE(&r.f, rkv_plan_row, 40, rkv_plan_set(r.plan, &good, 1, sizes[i]), "element_size");
        BAD_SIZE(&r.f, rkv_plan_row, 40, rkv_plan_set(r.plan, NULL, 0, sizes[i]), "element_size");
    }
    /* elements of a newer caller, who sets nothing new, or does */
    struct {
        rkv_plan_row base;
        uint64_t future;
    } newer[1] = {{good, 0}};
    CHECK_OK(rkv_plan_set(r.plan, &newer[0].base, 1, sizeof newer[0]));
    newer[0].future = 1;
    BAD(&r.f, rkv_plan_set(r.plan, &newer[0].base, 1, sizeof newer[0]), "rows[0]");
    const uint64_t spans[][2] = {{8, 0}, {8, 5}, {12, 1}, {UINT64_MAX, 2}, {8, UINT64_MAX},
                                 {0, 12}, {7, 1}, {4, 8}};
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        row = good;
        row.start = spans[i][0];
        row.count = spans[i][1];
        BAD(&r.f, rkv_plan_set(r.plan, &row, 1, ROW), "start");
    }
    const rkv_region regions[][2] = {{{9, 9}, {9, 10}}, {{10, 9}, {10, 11}}, {{9, 11}, {10, 12}},
                                     {{7, 9}, {9, 10}}, {{8, 9}, {11, 13}}};
    for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
        row = good;
        row.regions = regions[i];
        row.region_count = 2;
        BAD(&r.f, rkv_plan_set(r.plan, &row, 1, ROW), "regions");
    }
    row = good;
    row.region_count = 1;
    BAD(&r.f, rkv_plan_set(r.plan, &row, 1, ROW), "regions");
    rkv_plan_row twice[2] = {good, good};
    twice[0].count = 2;
    twice[1].start = 10;
    twice[1].count = 2;
    BAD(&r.f, rkv_plan_set(r.plan, twice, 2, ROW), "rows[1]");
    row = good;
    row.sequence = a.sequence + 5;
    REFUSED(&r.f, rkv_plan_set(r.plan, &row, 1, ROW), RKV_STATUS_STALE_SEQUENCE, "sequence");
    row.sequence = 0;
    row.slot = a.slot;
    REFUSED(&r.f, rkv_plan_set(r.plan, &row, 1, ROW), RKV_STATUS_INVALID_STATE, "sequence");
    row.slot = 99;
    BAD(&r.f, rkv_plan_set(r.plan, &row, 1, ROW), "slot");
    /* after all that, the plan is as it was set first */
    rkv_plan_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    CHECK_OK(rkv_plan_view(r.plan, &arrays));
    CHECK(arrays.row_count == 1 && arrays.position_count == 4);
    BAD(&r.f, rkv_plan_view(NULL, &arrays), "plan");
    OUTPUT_SIZES(&r.f, rkv_plan_arrays, p, rkv_plan_view(r.plan, p), "out_arrays");
    release(&r.f, a.sequence);
    end_runner(&r);
}

static rkv_plan_capacity capacity_of(uint64_t rows, uint64_t positions, uint64_t pages) {
    rkv_plan_capacity capacity;
    memset(&capacity, 0, sizeof capacity);
    capacity.struct_size = sizeof capacity;
    capacity.row_count = rows;
    capacity.position_count = positions;
    capacity.page_count = pages;
    return capacity;
}

/* What was reserved is a limit, on the CPU too. */
static void m01_plan_capacity(void) {
    runner_fixture r = new_runner(4, 32, 0);
    uint32_t ids[20];
    count_up(ids, 20, 1);
    rkv_sequence_info a = begin(&r.f, text(ids, 12)), b = begin(&r.f, text(ids + 4, 8));
    rkv_plan_row rows[2];
    memset(rows, 0, sizeof rows);
    rows[0].sequence = a.sequence;
    rows[0].count = 6;
    rows[1].sequence = b.sequence;
    rows[1].count = 2;
    CHECK_OK(rkv_plan_set(r.plan, rows, 2, ROW));
    REFUSED(&r.f, rkv_runner_reserve_plan(r.runner, r.plan), RKV_STATUS_INVALID_STATE,
            "rkv_plan_reserve");
    rkv_plan_capacity good = capacity_of(2, 8, 3), bad = good;
    BAD(&r.f, rkv_plan_reserve(NULL, &good), "plan");
    BAD(&r.f, rkv_plan_reserve(r.plan, NULL), "capacity");
    BAD_INPUT_SIZES(&r.f, rkv_plan_capacity, good, sized, rkv_plan_reserve(r.plan, sized),
                    "capacity");
    bad.flags = 8;
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "flags");
    bad = capacity_of(0, 8, 3);
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "row_count");
    bad = capacity_of(2, UINT64_MAX, 3);
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "position_count");
    bad = capacity_of(2, 8, 0);
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "page_count");
    bad = good;
    bad.row_position_count = 9;
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "row_position_count");
    /* the step that is set would not fit */
    bad = capacity_of(1, 8, 3);
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "row_count 2");
    bad = capacity_of(2, 7, 3);
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "position_count 8");
    bad = good;
    bad.row_position_count = 5;
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "row_position_count 6");
    bad = capacity_of(2, 8, 2);
    BAD(&r.f, rkv_plan_reserve(r.plan, &bad), "page_count 3");
    CHECK_OK(rkv_plan_reserve(r.plan, &good));
    CHECK_OK(rkv_runner_reserve_plan(r.runner, r.plan));
    CHECK_OK(rkv_runner_reserve_plan(r.runner, r.plan));
    /* from now on */
    rows[1].count = 3;
    BAD(&r.f, rkv_plan_set(r.plan, rows, 2, ROW), "position_count 9");
    rows[1].count = 2;
    const rkv_region region = {1, 3};
    rows[0].regions = &region;
    rows[0].region_count = 1;
    BAD(&r.f, rkv_plan_set(r.plan, rows, 2, ROW), "regions");
    good.flags = RKV_PLAN_REGIONS | RKV_PLAN_SEPARATE;
    CHECK_OK(rkv_plan_reserve(r.plan, &good));
    CHECK_OK(rkv_plan_set(r.plan, rows, 2, ROW));
    CHECK_OK(rkv_plan_set(r.plan, NULL, 0, ROW));
    release(&r.f, a.sequence);
    release(&r.f, b.sequence);
    end_runner(&r);
}

/* What comes before a step, wrongly; on the CPU there are no streams. */
static void m01_prepared_plans(void) {
    runner_fixture r = new_runner(4, 32, 0), other = new_runner(4, 32, 0);
    const rkv_plan_capacity most = capacity_of(2, 8, 8);
    uint32_t ids[12];
    count_up(ids, 12, 1);
    rkv_sequence_info a = begin(&r.f, text(ids, 12));
    chunk whole = chunk_of(a.sequence, ids, 0, 8);
    REFUSED(&r.f, rkv_runner_prepare_plan(r.runner, r.plan, 0, NULL), RKV_STATUS_INVALID_STATE,
            "plan");
    set_plan(&r, &whole, 1);
    CHECK_OK(rkv_plan_reserve(r.plan, &most));
    CHECK_OK(rkv_plan_reserve(other.plan, &most));
    BAD(&r.f, rkv_runner_reserve_plan(NULL, r.plan), "runner");
    BAD(&r.f, rkv_runner_reserve_plan(r.runner, NULL), "plan");
    BAD(&r.f, rkv_runner_reserve_plan(r.runner, other.plan), "page table");
    BAD(&r.f, rkv_runner_prepare_plan(NULL, r.plan, 0, NULL), "runner");
    BAD(&r.f, rkv_runner_prepare_plan(r.runner, NULL, 0, NULL), "plan");
    BAD(&r.f, rkv_runner_prepare_plan(r.runner, other.plan, 0, NULL), "page table");
    BAD(&r.f, rkv_runner_prepare_plan(r.runner, r.plan, 2, NULL), "flags");
    BAD(&r.f, rkv_runner_prepare_plan(r.runner, r.plan, UINT32_MAX, NULL), "flags");
    BAD(&r.f, rkv_runner_prepare_plan(r.runner, r.plan, 0, &r), "stream");
    for (uint32_t flags = 0; flags < 2; flags++) {
        CHECK_OK(rkv_runner_prepare_plan(r.runner, r.plan, flags, NULL));
    }
    release(&r.f, a.sequence);
    REFUSED(&r.f, rkv_runner_prepare_plan(r.runner, r.plan, 0, NULL), RKV_STATUS_STALE_SEQUENCE,
            "sequence");
    end_runner(&r);
    end_runner(&other);
}

static void m01_append_prefill(void) {
    runner_fixture r = new_runner(4, 32, 0), other = new_runner(4, 32, 0);
    uint32_t ids[12];
    count_up(ids, 12, 1);
    rkv_sequence_info a = begin(&r.f, text(ids, 12));
    chunk whole = chunk_of(a.sequence, ids, 0, 12);
    tensors t = new_tensors(&whole, 1, 0);
    rkv_runner_append_prefill_args good = layer_args(&t, 0), args;
    rkv_plan *empty = NULL;
    CHECK_OK(rkv_plan_create(r.f.table, &empty));
    REFUSED(&r.f, rkv_runner_append_prefill(r.runner, empty, &good), RKV_STATUS_INVALID_STATE,
            "plan");
    rkv_plan_destroy(empty);
    set_plan(&r, &whole, 1);
    BAD(&r.f, rkv_runner_append_prefill(NULL, r.plan, &good), "runner");
    BAD(&r.f, rkv_runner_append_prefill(r.runner, NULL, &good), "plan");
    BAD(&r.f, rkv_runner_append_prefill(r.runner, other.plan, &good), "page table");
    BAD(&r.f, rkv_runner_append_prefill(r.runner, r.plan, NULL), "args");
    BAD_INPUT_SIZES_FROM(&r.f, rkv_runner_append_prefill_args, 152, good, p,
                    rkv_runner_append_prefill(r.runner, r.plan, p), "args");
    const char *words[] = {"layer", "q", "k", "v", "out", "k", "q", "out", "lse", "sinks",
                           "scale", "scale", "soft_cap", "k_scale", "v_scale", "reserved",
                           "stream", "q", "k", "v", "out", "q", "out overlaps", "out overlaps"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        args = good;
        switch (i) {
        case 0: args.layer = LAYERS; break;
        case 1: args.q = NULL; break;
        case 2: args.k = NULL; break;
        case 3: args.v = NULL; break;
        case 4: args.out = NULL; break;
        case 5: args.k = (const char *)args.k + 1; break;
        case 6: args.q = (const char *)args.q + 2; break;
        case 7: args.out = (char *)args.out + 3; break;
        case 8: args.lse = (float *)(void *)((char *)args.lse + 1); break;
        case 9: args.sinks = (const float *)(const void *)((const char *)t.lse + 2); break;
        case 10: args.scale = (float)NAN; break;
        case 11: args.scale = -1; break;
        case 12: args.soft_cap = (float)INFINITY; break;
        case 13: args.k_scale = -2; break;
        case 14: args.v_scale = (float)NAN; break;
        case 15: args.reserved = 1; break;
        case 16: args.stream = &args; break;
        case 17: args.q_position_stride = HEAD_DIM; break;
        case 18: args.k_head_stride = 1; break;
        case 19: args.v_position_stride = UINT64_MAX; break;
        case 20: args.out_head_stride = HEAD_DIM / 2; break;
        case 21: args.q_head_stride = UINT64_C(1) << 62; break;
        case 22: args.out = t.q; break;
        default: args.out = t.v; break;
        }
        BAD(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), words[i]);
    }
    for (size_t i = 0; i < t.count * QUERY_HEADS * HEAD_DIM; i++) {
        CHECK(isnan(t.out[i]));
    }
    for (size_t i = 0; i < r.memory_count; i++) {
        CHECK(isnan(r.memory[i]));
    }
    GOOD_BIGGER_INPUT(rkv_runner_append_prefill_args, good, p,
                      rkv_runner_append_prefill(r.runner, r.plan, p));
    check_tensors(&t, &whole, 1, 0, 0);
    free_tensors(&t);
    release(&r.f, a.sequence);
    end_runner(&r);
    end_runner(&other);
}

/* A plan whose rows are not what they were is refused, and writes nothing into others' pages. */
static void m01_plans_of_the_past(void) {
    runner_fixture r = new_runner(4, 32, 0);
    uint32_t ids[12];
    count_up(ids, 12, 1);
    rkv_sequence_info a = begin(&r.f, text(ids, 12)), b = begin(&r.f, text(ids, 12));
    chunk whole = chunk_of(a.sequence, ids, 0, 12), second = chunk_of(b.sequence, ids, 0, 12);
    tensors t = new_tensors(&whole, 1, 0);
    rkv_runner_append_prefill_args args = layer_args(&t, 0);
    set_plan(&r, &whole, 1);
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    publish(&r.f, a.sequence, 8);
    /* its own pages are the cache's now */
    REFUSED(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), RKV_STATUS_INVALID_STATE,
            "cache");
    set_plan(&r, &second, 1);
    CHECK_EQ(publish(&r.f, b.sequence, 8).remapped_page_count, 2);
    REFUSED(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), RKV_STATUS_INVALID_STATE,
            "rows[0]");
    second = chunk_of(b.sequence, ids, 8, 4);
    set_plan(&r, &second, 1);
    release(&r.f, b.sequence);
    REFUSED(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), RKV_STATUS_STALE_SEQUENCE,
            "sequence");
    free_tensors(&t);
    release(&r.f, a.sequence);
    end_runner(&r);
}

static void m01_merge_states(void) {
    runner_fixture r = new_runner(4, 8, 0);
    float from[QUERY_HEADS * HEAD_DIM] = {0}, into[QUERY_HEADS * HEAD_DIM];
    float lse[QUERY_HEADS] = {0}, into_lse[QUERY_HEADS];
    const void *outs[2] = {from, from};
    const float *lses[2] = {lse, lse};
    rkv_runner_merge_states_args good, args;
    memset(&good, 0, sizeof good);
    good.struct_size = sizeof good;
    good.state_count = 2;
    good.position_count = 1;
    good.outs = outs;
    good.lses = lses;
    good.out = into;
    good.lse = into_lse;
    mark(into, sizeof into);
    BAD(&r.f, rkv_runner_merge_states(NULL, &good), "runner");
    BAD(&r.f, rkv_runner_merge_states(r.runner, NULL), "args");
    BAD_INPUT_SIZES(&r.f, rkv_runner_merge_states_args, good, p,
                    rkv_runner_merge_states(r.runner, p),
                    "args");
    const char *words[] = {"state_count", "outs", "lses", "out", "lse", "stream", "args.out",
                           "outs[1]", "lses[1]"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const void *bad_outs[2] = {from, NULL};
        const float *bad_lses[2] = {lse, NULL};
        args = good;
        switch (i) {
        case 0: args.state_count = 0; break;
        case 1: args.outs = NULL; break;
        case 2: args.lses = NULL; break;
        case 3: args.out = NULL; break;
        case 4: args.lse = (float *)(void *)((char *)into_lse + 1); break;
        case 5: args.stream = &args; break;
        case 6: args.position_count = UINT64_MAX; break;
        case 7: args.outs = bad_outs; break;
        default: args.lses = bad_lses; break;
        }
        BAD(&r.f, rkv_runner_merge_states(r.runner, &args), words[i]);
    }
    UNTOUCHED(into);
    GOOD_BIGGER_INPUT(rkv_runner_merge_states_args, good, p, rkv_runner_merge_states(r.runner, p));
    end_runner(&r);
}

static void m01_spatial_decode(void) {
    fixture f = new_fixture(4, 8);
    static float logits[RKV_BIN_COUNT];
    uint32_t bin = 77;
    double value = 77;
    BAD(&f, rkv_spatial_decode(0, logits, RKV_BIN_COUNT, &bin, &value), "kind");
    BAD(&f, rkv_spatial_decode(RKV_TOKEN_IMAGE, logits, RKV_BIN_COUNT, &bin, &value), "kind");
    BAD(&f, rkv_spatial_decode(RKV_TOKEN_COORD, NULL, RKV_BIN_COUNT, &bin, &value), "logits");
    BAD(&f, rkv_spatial_decode(RKV_TOKEN_COORD, logits, RKV_BIN_COUNT - 1, &bin, &value),
        "logit_count");
    BAD(&f, rkv_spatial_decode(RKV_TOKEN_COORD, logits, 0, &bin, &value), "logit_count");
    BAD(&f, rkv_spatial_decode(RKV_TOKEN_COORD, logits, RKV_BIN_COUNT, NULL, &value), "out_bin");
    logits[5] = (float)NAN;
    BAD(&f, rkv_spatial_decode(RKV_TOKEN_COORD, logits, RKV_BIN_COUNT, &bin, &value), "logits[5]");
    CHECK(bin == 77 && value > 76);
    end_fixture(&f);
}

int main(void) {
    RUN(m01_runner_config);
    RUN(m01_kv_memory);
    RUN(m01_page_copies);
    RUN(m01_plans);
    RUN(m01_plan_capacity);
    RUN(m01_prepared_plans);
    RUN(m01_append_prefill);
    RUN(m01_plans_of_the_past);
    RUN(m01_merge_states);
    RUN(m01_spatial_decode);
    return check_result();
}
