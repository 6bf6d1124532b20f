/* Latent KV: V of a position is the beginning of its K, which memory has once. Beside a runner that
 * is given the same V apart: every result must have the same bits. */
#include <math.h>

#include "fixture.h"

enum { K_DIM = 576, V_DIM = 512, HEADS = 8, PAGE = 4, LONGEST = 96 };

static rkv_runner_config latent_config(uint32_t dtype, uint32_t kv_dtype, uint32_t layout,
                                       uint32_t flags) {
    rkv_runner_config config;
    CHECK_OK(rkv_runner_config_init(&config, sizeof config));
    config.layer_count = 2;
    config.query_head_count = HEADS;
    config.kv_head_count = 1;
    config.head_dim = K_DIM;
    config.v_head_dim = V_DIM;
    config.dtype = dtype;
    config.kv_dtype = kv_dtype;
    config.kv_layout = layout;
    config.thread_count = 2;
    config.flags = flags;
    return config;
}

/* Random bits of numbers between -2 and 2. */
static void fill(void *into, size_t count, uint32_t dtype, uint32_t seed) {
    for (size_t i = 0; i < count; i++) {
        uint64_t x = (seed + 1) * UINT64_C(0x9E3779B97F4A7C15) + i * UINT64_C(0xBF58476D1CE4E5B9);
        x ^= x >> 31;
        x *= UINT64_C(0x94D049BB133111EB);
        const float number = (float)(x >> 40) / (float)(1 << 22) - 2.0f;
        if (dtype == RKV_DTYPE_F32) {
            memcpy((char *)into + 4 * i, &number, 4);
        } else {
            uint32_t bits;
            memcpy(&bits, &number, 4);
            const uint16_t upper = (uint16_t)(bits >> 16);
            memcpy((char *)into + 2 * i, &upper, 2);
        }
    }
}

/* The first V_DIM elements of each row of K_DIM. */
static void beginnings(void *into, const void *k, size_t rows, size_t size) {
    for (size_t row = 0; row < rows; row++) {
        memcpy((char *)into + row * V_DIM * size, (const char *)k + row * K_DIM * size,
               V_DIM * size);
    }
}

typedef struct pair {
    fixture f;
    rkv_plan *plan;
    rkv_runner *latent, *apart;
    uint32_t dtype;
} pair;

static void *bytes(size_t count) {
    void *made = calloc(count, 4);
    if (made == NULL) {
        exit(1);
    }
    return made;
}

/* One step of one layer by both runners. `kept` is the latent KV of all positions so far. */
static void attend(const pair *p, uint32_t layer, size_t start, size_t count, float scale) {
    const size_t size = p->dtype == RKV_DTYPE_F32 ? 4 : 2;
    void *q = bytes(count * HEADS * K_DIM), *k = bytes(count * K_DIM), *v = bytes(count * V_DIM);
    void *out[2] = {bytes(count * HEADS * V_DIM), bytes(count * HEADS * V_DIM)};
    float *lse[2] = {bytes(count * HEADS), bytes(count * HEADS)};
    fill(q, count * HEADS * K_DIM, p->dtype, (uint32_t)(1000 * layer + start));
    fill(k, count * K_DIM, p->dtype, (uint32_t)(7777 + 1000 * layer + start));
    beginnings(v, k, count, size);
    for (size_t which = 0; which < 2; which++) {
        rkv_runner_append_prefill_args args;
        memset(&args, 0, sizeof args);
        args.struct_size = sizeof args;
        args.layer = layer;
        args.q = q;
        args.k = k;
        args.v = which == 0 ? NULL : v;
        args.out = out[which];
        args.lse = lse[which];
        args.k_scale = scale;
        args.v_scale = which == 0 ? 9.0f : scale; /* not read of a latent runner */
        CHECK_OK(rkv_runner_append_prefill(which == 0 ? p->latent : p->apart, p->plan, &args));
    }
    CHECK(memcmp(out[0], out[1], count * HEADS * V_DIM * size) == 0);
    CHECK(memcmp(lse[0], lse[1], count * HEADS * sizeof(float)) == 0);
    double sum = 0;
    for (size_t i = 0; i < count * HEADS; i++) {
        sum += (double)lse[0][i];
    }
    CHECK(isfinite(sum));
    free(q);
    free(k);
    free(v);
    for (size_t which = 0; which < 2; which++) {
        free(out[which]);
        free(lse[which]);
    }
}

static void compute(const pair *p, rkv_sequence_id id, size_t start, size_t end, size_t chunk,
                    float scale) {
    for (size_t at = start; at < end; at += chunk) {
        const size_t count = end - at < chunk ? end - at : chunk;
        rkv_plan_row row;
        memset(&row, 0, sizeof row);
        row.sequence = id;
        row.start = at;
        row.count = count;
        CHECK_OK(rkv_plan_set(p->plan, &row, 1, sizeof row));
        /* the copy of a page that a prefix ends in is carried out by both */
        CHECK_OK(rkv_runner_prepare_plan(p->apart, p->plan, RKV_PREPARE_KEEP_COPIES_OPEN, NULL));
        CHECK_OK(rkv_runner_prepare_plan(p->latent, p->plan, 0, NULL));
        attend(p, 0, at, count, scale);
        attend(p, 1, at, count, scale);
    }
}

/* `shared` positions end two behind a page. */
static void prompts(uint32_t dtype, uint32_t kv_dtype, uint32_t layout, uint32_t shared) {
    const uint32_t whole = 2 * shared + 10, next = 2 * shared;
    pair p;
    memset(&p, 0, sizeof p);
    p.f = new_fixture(PAGE, 128);
    p.dtype = dtype;
    CHECK_OK(rkv_plan_create(p.f.table, &p.plan));
    rkv_runner_config config = latent_config(dtype, kv_dtype, layout, RKV_RUNNER_LATENT);
    CHECK_OK(rkv_runner_create(p.f.table, &config, &p.latent));
    config.flags = 0;
    CHECK_OK(rkv_runner_create(p.f.table, &config, &p.apart));
    const float scale = kv_dtype == RKV_DTYPE_FP8_E4M3 ? 0.25f : 1.0f;
    uint32_t ids[LONGEST];
    count_up(ids, LONGEST, 1);
    /* whole, then one that shares its beginning, two positions of a page by copy, then decoding */
    rkv_sequence_info first = begin(&p.f, text(ids, whole));
    compute(&p, first.sequence, 0, whole, whole / 2 - 2, scale);
    publish(&p.f, first.sequence, whole);
    ids[shared] = 9999;
    rkv_sequence_info second = begin(&p.f, text(ids, next));
    CHECK(second.cached_position_count == shared && second.copy_count == 1);
    compute(&p, second.sequence, shared, next, 7, scale);
    const uint32_t decoded[3] = {5, 6, 7};
    const rkv_tokens more = text(decoded, 3);
    CHECK_OK(rkv_sequence_append(p.f.cache, second.sequence, &more));
    compute(&p, second.sequence, next, next + 3, 1, scale);
    release(&p.f, first.sequence);
    release(&p.f, second.sequence);
    rkv_plan_destroy(p.plan);
    rkv_runner_destroy(p.latent);
    rkv_runner_destroy(p.apart);
    end_fixture(&p.f);
}

/* MLA, absorbed: 576 of K, of which V is the first 512. */
static void latent_values_are_the_beginnings_of_keys(void) {
    const uint32_t layouts[] = {RKV_KV_LAYOUT_NHD, RKV_KV_LAYOUT_HND};
    /* valgrind looks at memory, and would take a minute for the longer ones */
    const uint32_t shared = getenv("RKV_RUNNER") == NULL ? 30 : 14;
    for (size_t i = 0; i < 2; i++) {
        prompts(RKV_DTYPE_F32, RKV_DTYPE_F32, layouts[i], shared);
        prompts(RKV_DTYPE_BF16, RKV_DTYPE_BF16, layouts[i], shared);
        prompts(RKV_DTYPE_BF16, RKV_DTYPE_FP8_E4M3, layouts[i], shared);
    }
}

/* K alone takes memory, and can lie in the engine's. */
static void latent_memory_has_keys_alone(void) {
    fixture f = new_fixture(PAGE, 8);
    rkv_runner_config config =
        latent_config(RKV_DTYPE_F32, RKV_DTYPE_F32, RKV_KV_LAYOUT_NHD, RKV_RUNNER_LATENT);
    uint64_t bytes_of_page = 0;
    CHECK_OK(rkv_runner_supports(&config, PAGE, &bytes_of_page));
    CHECK_EQ(bytes_of_page, 2 * PAGE * K_DIM * 4);
    rkv_runner *runner = NULL;
    CHECK_OK(rkv_runner_create(f.table, &config, &runner));
    rkv_runner_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    CHECK_OK(rkv_runner_read_stats(runner, &stats));
    CHECK_EQ(stats.page_bytes, bytes_of_page);
    const size_t pages = (size_t)table_stats(&f).total_page_count + 1;
    CHECK_EQ(stats.kv_bytes, pages * bytes_of_page);
    rkv_runner_kv_memory memory[2], seen;
    memset(memory, 0, sizeof memory);
    CHECK_OK(rkv_runner_read_kv_memory(runner, 1, &seen, sizeof seen));
    CHECK(seen.k == seen.v && seen.v_position_stride == K_DIM);
    rkv_runner_destroy(runner);
    float *lent = bytes(2 * pages * PAGE * K_DIM);
    for (size_t i = 0; i < 2; i++) {
        memory[i].k = lent + i * pages * PAGE * K_DIM;
        memory[i].page_stride = PAGE * K_DIM;
        memory[i].position_stride = memory[i].head_stride = K_DIM;
    }
    config.kv_layers = memory;
    config.kv_layer_size = sizeof memory[0];
    CHECK_OK(rkv_runner_create(f.table, &config, &runner));
    CHECK_OK(rkv_runner_read_stats(runner, &stats));
    CHECK_EQ(stats.kv_bytes, 0);
    CHECK_OK(rkv_runner_read_kv_memory(runner, 1, &seen, sizeof seen));
    CHECK(seen.k == memory[1].k && seen.v == memory[1].k);
    rkv_runner_destroy(runner);

    memory[1].v = lent;
    CHECK_STATUS(rkv_runner_create(f.table, &config, &runner), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("kv_layers[1].v"));
    config.kv_layers = NULL;
    config.head_dim = 256;
    CHECK_STATUS(rkv_runner_create(f.table, &config, &runner), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("v_head_dim 512"));
    free(lent);
    end_fixture(&f);
}

/* What is refused in a call. */
static void latent_calls_have_no_values(void) {
    fixture f = new_fixture(PAGE, 16);
    rkv_plan *plan = NULL;
    rkv_runner *runner = NULL;
    rkv_runner_config config =
        latent_config(RKV_DTYPE_F32, RKV_DTYPE_F32, RKV_KV_LAYOUT_NHD, RKV_RUNNER_LATENT);
    CHECK_OK(rkv_plan_create(f.table, &plan));
    CHECK_OK(rkv_runner_create(f.table, &config, &runner));
    uint32_t ids[4];
    count_up(ids, 4, 1);
    const rkv_sequence_info info = begin(&f, text(ids, 4));
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = info.sequence;
    row.count = 4;
    CHECK_OK(rkv_plan_set(plan, &row, 1, sizeof row));
    float *q = bytes(4 * HEADS * K_DIM), *k = bytes(4 * K_DIM), *out = bytes(4 * HEADS * V_DIM);
    rkv_runner_append_prefill_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.q = q;
    args.k = k;
    args.v = k;
    args.out = out;
    CHECK_STATUS(rkv_runner_append_prefill(runner, plan, &args), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("args.v"));
    args.k = NULL;
    CHECK_STATUS(rkv_runner_append_prefill(runner, plan, &args), RKV_STATUS_INVALID_ARGUMENT);
    args.k = k;
    args.v = NULL;
    CHECK_OK(rkv_runner_append_prefill(runner, plan, &args));
    args.k = NULL; /* in the pages already */
    CHECK_OK(rkv_runner_append_prefill(runner, plan, &args));
    free(q);
    free(k);
    free(out);
    release(&f, info.sequence);
    rkv_plan_destroy(plan);
    rkv_runner_destroy(runner);
    end_fixture(&f);
}

/* V is stored as K is: what it is multiplied by is k_scale, which alone can be named. */
static void latent_factors_are_those_of_keys(void) {
    fixture f = new_fixture(PAGE, 16);
    rkv_plan *plan = NULL;
    rkv_runner *runner = NULL;
    rkv_runner_config config =
        latent_config(RKV_DTYPE_F32, RKV_DTYPE_FP8_E4M3, RKV_KV_LAYOUT_NHD, RKV_RUNNER_LATENT);
    CHECK_OK(rkv_plan_create(f.table, &plan));
    CHECK_OK(rkv_runner_create(f.table, &config, &runner));
    uint32_t id = 1;
    const rkv_sequence_info info = begin(&f, text(&id, 1));
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = info.sequence;
    row.count = 1;
    CHECK_OK(rkv_plan_set(plan, &row, 1, sizeof row));
    float *q = bytes(HEADS * K_DIM), *k = bytes(K_DIM), *out = bytes(HEADS * V_DIM);
    const float most = 0x1p119f, more = 0x1p120f;
    rkv_runner_append_prefill_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.q = q;
    args.k = k;
    args.out = out;
    args.scale = 0x1p-10f; /* with it the logits are numbers */
    args.k_scale = more;
    CHECK_STATUS(rkv_runner_append_prefill(runner, plan, &args), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("k_scale"));
    args.k_scale = most;
    args.v_scale = more; /* not read */
    CHECK_OK(rkv_runner_append_prefill(runner, plan, &args));
    args.k_scales = &more;
    CHECK_STATUS(rkv_runner_append_prefill(runner, plan, &args), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("args.k_scales[0]"));
    args.k_scales = &most;
    CHECK_OK(rkv_runner_append_prefill(runner, plan, &args));
    free(q);
    free(k);
    free(out);
    release(&f, info.sequence);
    rkv_plan_destroy(plan);
    rkv_runner_destroy(runner);
    end_fixture(&f);
}

int main(void) {
    RUN(latent_values_are_the_beginnings_of_keys);
    RUN(latent_memory_has_keys_alone);
    RUN(latent_calls_have_no_values);
    RUN(latent_factors_are_those_of_keys);
    return check_result();
}
