/* The runner in 16 and 8 bits: what is stored is the nearest value, and attention is over exactly
 * what is stored. Then a small model end to end: the same logits by every path (K26, D12). */
#include "runner_fixture.h"

/* ---- number formats, decoded by their definition ---- */

static double decode(uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
    int exponent = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
    if (has_infinity && exponent == (1 << exponent_bits) - 1) {
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    }
    if (!has_infinity && (bits & 0x7F) == 0x7F) {
        return (double)NAN;
    }
    double fraction = (double)mantissa / (double)(1u << mantissa_bits);
    return exponent == 0 ? sign * ldexp(fraction, 1 - bias)
                         : sign * ldexp(1 + fraction, exponent - bias);
}

typedef struct number_format {
    uint32_t dtype;
    size_t bytes;
    int exponent_bits, mantissa_bits;
    bool has_infinity;
} number_format;

static const number_format F16 = {RKV_DTYPE_F16, 2, 5, 10, true};
static const number_format BF16 = {RKV_DTYPE_BF16, 2, 8, 7, true};
static const number_format E4M3 = {RKV_DTYPE_FP8_E4M3, 1, 4, 3, false};

static double value_at(const number_format *format, const void *base, size_t index) {
    uint32_t bits;
    if (format->bytes == 1) {
        bits = ((const uint8_t *)base)[index];
    } else {
        bits = ((const uint16_t *)base)[index];
    }
    return decode(bits, format->exponent_bits, format->mantissa_bits, format->has_infinity);
}

/* The 16-bit number nearest to a value below 2 in size, found by trying: no arithmetic of its own
 * that could be wrong in the same way as the library's. */
static uint16_t nearest(const number_format *format, float value) {
    uint16_t best = 0;
    uint32_t low = 0, high = format->dtype == RKV_DTYPE_F16 ? 0x4400 : 0x4080; /* 4.0 */
    double size = fabs((double)value);
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        double got = decode(middle, format->exponent_bits, format->mantissa_bits, true);
        *(got <= size ? &low : &high) = middle;
    }
    double below = decode(low, format->exponent_bits, format->mantissa_bits, true);
    double above = decode(high, format->exponent_bits, format->mantissa_bits, true);
    best = (uint16_t)(size - below < above - size ? low : high);
    return (uint16_t)(best | (value < 0 ? 0x8000u : 0u));
}

/* Keys, values and queries of a prompt in a 16-bit format. */
static uint16_t *narrow(const number_format *format, const float *values, size_t count) {
    uint16_t *made = malloc(count * sizeof *made);
    if (made == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        made[i] = nearest(format, values[i]);
    }
    return made;
}

enum { COUNT = 37, PAGE_SIZE = 8 };

typedef struct narrow_case {
    const number_format *format, *stored;
    uint32_t layout;
    float k_scale, v_scale;
    bool by_head; /* times 1 for the first KV head, 2 for the second */
} narrow_case;

/* Computes a prompt in two chunks, then compares with attention over what the pages hold. */
static void check_narrow(const narrow_case *c) {
    fixture f = new_fixture(PAGE_SIZE, 32);
    rkv_runner_config config = small_runner();
    config.dtype = c->format->dtype;
    config.kv_dtype = c->stored->dtype;
    config.kv_layout = c->layout;
    rkv_runner *runner = NULL;
    rkv_plan *plan = NULL;
    CHECK_OK(rkv_runner_create(f.table, &config, &runner));
    CHECK_OK(rkv_plan_create(f.table, &plan));
    uint32_t ids[COUNT];
    count_up(ids, COUNT, 1);
    rkv_sequence_info state = begin(&f, text(ids, COUNT));
    uint16_t out[COUNT * QUERY_HEADS * HEAD_DIM];
    float lse[COUNT * QUERY_HEADS];
    const size_t q_size = QUERY_HEADS * HEAD_DIM, kv_size = KV_HEADS * HEAD_DIM;
    chunk whole = chunk_of(state.sequence, ids, 0, COUNT);
    tensors t = new_tensors(&whole, 1, 1);
    uint16_t *q = narrow(c->format, t.q, COUNT * q_size);
    uint16_t *k = narrow(c->format, t.k, COUNT * kv_size);
    uint16_t *v = narrow(c->format, t.v, COUNT * kv_size);
    for (size_t at = 0; at < COUNT; at += 20) {
        rkv_plan_row row = whole.row;
        row.start = at;
        row.count = COUNT - at < 20 ? COUNT - at : 20;
        CHECK_OK(rkv_plan_set(plan, &row, 1, sizeof(rkv_plan_row)));
        rkv_runner_append_prefill_args args = layer_args(&t, 1);
        args.q = q + at * q_size;
        args.k = k + at * kv_size;
        args.v = v + at * kv_size;
        args.out = out + at * q_size;
        args.lse = lse + at * QUERY_HEADS;
        args.k_scale = c->k_scale;
        args.v_scale = c->v_scale;
        const float k_scales[KV_HEADS] = {c->k_scale, 2 * c->k_scale};
        const float v_scales[KV_HEADS] = {c->v_scale, 2 * c->v_scale};
        if (c->by_head) {
            args.k_scales = k_scales;
            args.v_scales = v_scales;
            args.k_scale = args.v_scale = 77; /* not read */
        }
        CHECK_OK(rkv_runner_append_prefill(runner, plan, &args));
    }
    /* what is stored: the nearest value */
    rkv_runner_kv_memory memory;
    CHECK_OK(rkv_runner_read_kv_memory(runner, 1, &memory, sizeof memory));
    uint32_t pages[8];
    row_of(&f, state.slot, pages, 8);
    static double keys[COUNT][KV_HEADS][HEAD_DIM], values[COUNT][KV_HEADS][HEAD_DIM];
    size_t far = 0;
    bool same_format = c->format == c->stored;
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t head = 0; head < KV_HEADS; head++) {
            double of_head = c->by_head && head == 1 ? 2 : 1;
            double k_scale = same_format ? 1 : (double)c->k_scale * of_head;
            double v_scale = same_format ? 1 : (double)c->v_scale * of_head;
            for (size_t d = 0; d < HEAD_DIM; d++) {
                size_t at = pages[i / PAGE_SIZE] * memory.page_stride +
                            i % PAGE_SIZE * memory.position_stride + head * memory.head_stride + d;
                keys[i][head][d] = value_at(c->stored, memory.k, at) * k_scale;
                values[i][head][d] = value_at(c->stored, memory.v, at) * v_scale;
                size_t from = (i * KV_HEADS + head) * HEAD_DIM + d;
                double key = value_at(c->format, k, from), value = value_at(c->format, v, from);
                double step = ldexp(1, -c->stored->mantissa_bits - 1);
                double least = ldexp(1, -10);   /* half of the smallest number of e4m3 */
                far += fabs(keys[i][head][d] - key) > fabs(key) * step + least * k_scale;
                far += fabs(values[i][head][d] - value) > fabs(value) * step + least * v_scale;
                far += same_format && !(keys[i][head][d] >= key && keys[i][head][d] <= key);
            }
        }
    }
    CHECK_EQ(far, 0);
    /* attention over it; the result is rounded once to the format, weights may be rounded too */
    const double tolerance = ldexp(1, -c->format->mantissa_bits);
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t head = 0; head < QUERY_HEADS; head++) {
            double weights[COUNT], total = 0, want[HEAD_DIM] = {0};
            size_t kv_head = head / (QUERY_HEADS / KV_HEADS);
            for (size_t key = 0; key <= i; key++) {
                double dot = 0;
                for (size_t d = 0; d < HEAD_DIM; d++) {
                    dot += value_at(c->format, q, (i * QUERY_HEADS + head) * HEAD_DIM + d) *
                           keys[key][kv_head][d];
                }
                weights[key] = exp(dot / sqrt(HEAD_DIM));
                total += weights[key];
            }
            for (size_t key = 0; key <= i; key++) {
                for (size_t d = 0; d < HEAD_DIM; d++) {
                    want[d] += weights[key] / total * values[key][kv_head][d];
                }
            }
            wrong += !(fabs((double)lse[i * QUERY_HEADS + head] - log(total)) < 1e-3);
            for (size_t d = 0; d < HEAD_DIM; d++) {
                double got = value_at(c->format, out, (i * QUERY_HEADS + head) * HEAD_DIM + d);
                wrong += !(fabs(got - want[d]) <= tolerance);
            }
        }
    }
    CHECK_EQ(wrong, 0);
    free(q);
    free(k);
    free(v);
    free_tensors(&t);
    release(&f, state.sequence);
    rkv_plan_destroy(plan);
    rkv_runner_destroy(runner);
    end_fixture(&f);
}

/* Scales are for fp8: here they change nothing. */
static void k20_sixteen_bits(void) {
    const narrow_case cases[] = {{&F16, &F16, RKV_KV_LAYOUT_NHD, 0, 0, false},
                                 {&F16, &F16, RKV_KV_LAYOUT_HND, 3, 2, false},
                                 {&BF16, &BF16, RKV_KV_LAYOUT_NHD, 0, 0, false},
                                 {&BF16, &BF16, RKV_KV_LAYOUT_HND, 3, 2, true}};
    for (size_t i = 0; i < 4; i++) {
        check_narrow(&cases[i]);
    }
}

static void k22_fp8_keys_and_values(void) {
    const narrow_case cases[] = {{&BF16, &E4M3, RKV_KV_LAYOUT_NHD, 1, 1, false},
                                 {&BF16, &E4M3, RKV_KV_LAYOUT_HND, 0.25f, 0.01f, false},
                                 {&F16, &E4M3, RKV_KV_LAYOUT_NHD, 1.0f / 400, 3, false},
                                 {&BF16, &E4M3, RKV_KV_LAYOUT_NHD, 0.25f, 0.01f, true},
                                 {&F16, &E4M3, RKV_KV_LAYOUT_HND, 0.02f, 0.5f, true}};
    for (size_t i = 0; i < 5; i++) {
        check_narrow(&cases[i]);
    }
}

/* ---- a model ---- */

enum { WIDTH = QUERY_HEADS * HEAD_DIM, VOCABULARY = 16 };

/* Hidden states of `count` positions from `start` on, through all layers: each layer's keys and
 * values depend on what the layer before made of the prefix. */
static void forward(const runner_fixture *r, rkv_sequence_id sequence, const uint32_t *ids,
                    size_t start, size_t count, double logits[VOCABULARY]) {
    float *x = floats(count * WIDTH), *out = floats(count * WIDTH);
    float *k = floats(count * WIDTH / 2), *v = floats(count * WIDTH / 2);
    for (size_t i = 0; i < count; i++) {
        for (size_t d = 0; d < WIDTH; d++) {
            x[i * WIDTH + d] = element(9, 0, ids[start + i], start + i, 0, d);
        }
    }
    chunk rows = chunk_of(sequence, ids, start, count);
    set_plan(r, &rows, 1);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < count * WIDTH / 2; i++) {
            size_t at = i / (WIDTH / 2) * WIDTH + i % (WIDTH / 2);
            k[i] = x[at] - 0.5f * x[at + WIDTH / 2];
            v[i] = x[at + WIDTH / 2] + 0.25f * x[at];
        }
        rkv_runner_append_prefill_args args;
        memset(&args, 0, sizeof args);
        args.struct_size = sizeof args;
        args.layer = layer;
        args.q = x;
        args.k = k;
        args.v = v;
        args.out = out;
        CHECK_OK(rkv_runner_append_prefill(r->runner, r->plan, &args));
        for (size_t i = 0; i < count * WIDTH; i++) {
            x[i] += tanhf(out[i]);
        }
    }
    for (size_t token = 0; token < VOCABULARY; token++) {
        logits[token] = 0;
        for (size_t d = 0; d < WIDTH; d++) {
            logits[token] += (double)x[(count - 1) * WIDTH + d] *
                             (double)element(10, 0, (uint32_t)token, 0, 0, d);
        }
    }
    free(x);
    free(k);
    free(v);
    free(out);
}

static double largest_difference(const double *a, const double *b) {
    double largest = 0;
    for (size_t i = 0; i < VOCABULARY; i++) {
        double difference = fabs(a[i] - b[i]);
        largest = difference > largest || isnan(difference) ? difference : largest;
    }
    return largest;
}

/* Full prefill, full prefill whose pages are published, and append prefill behind what was: the
 * same logits, at every length that the second prompt shares. */
static void k26_d12_logit_consistency(void) {
    for (size_t shared = 1; shared < 48; shared += 5) {
        runner_fixture r = new_runner(16, 32, 0), alone = new_runner(16, 32, RKV_CACHE_WHOLE_PAGES);
        uint32_t first[48], second[48];
        double baseline[VOCABULARY], cached[VOCABULARY], appended[VOCABULARY];
        double first_alone[VOCABULARY];
        count_up(first, 48, 1);
        memcpy(second, first, sizeof first);
        count_up(second + shared, 48 - shared, 400);
        rkv_sequence_info state = begin(&alone.f, text(second, 48));
        CHECK_EQ(state.cached_position_count, 0);
        forward(&alone, state.sequence, second, 0, 48, baseline);
        release(&alone.f, state.sequence);
        state = begin(&alone.f, text(first, 48));
        CHECK_EQ(state.cached_position_count, 0);
        forward(&alone, state.sequence, first, 0, 48, first_alone);
        release(&alone.f, state.sequence);
        state = begin(&r.f, text(first, 48));
        forward(&r, state.sequence, first, 0, 48, cached);
        publish(&r.f, state.sequence, 48);
        release(&r.f, state.sequence);
        CHECK(largest_difference(first_alone, cached) < 1e-4);
        state = begin(&r.f, text(second, 48));
        CHECK_EQ(state.cached_position_count, shared);
        forward(&r, state.sequence, second, shared, 48 - shared, appended);
        CHECK(largest_difference(baseline, appended) < 1e-4);
        CHECK(largest_difference(baseline, cached) > 1e-2);
        publish(&r.f, state.sequence, 48);
        release(&r.f, state.sequence);
        /* and the exact full hit */
        state = begin(&r.f, text(second, 48));
        CHECK_EQ(state.cached_position_count, 47);
        forward(&r, state.sequence, second, 47, 1, appended);
        CHECK(largest_difference(baseline, appended) < 1e-4);
        release(&r.f, state.sequence);
        end_runner(&r);
        end_runner(&alone);
    }
}

/* Scales of heads come for K and V, or for neither, and on the CPU they are looked at. */
static void k22_scales_of_heads_that_are_none(void) {
    runner_fixture r = new_runner(4, 16, 0);
    rkv_runner_config config = small_runner();
    config.dtype = RKV_DTYPE_BF16;
    config.kv_dtype = RKV_DTYPE_FP8_E4M3;
    rkv_runner *runner = NULL;
    CHECK_OK(rkv_runner_create(r.f.table, &config, &runner));
    uint32_t ids[4];
    count_up(ids, 4, 1);
    rkv_sequence_info state = begin(&r.f, text(ids, 4));
    const chunk whole = chunk_of(state.sequence, ids, 0, 4);
    set_plan(&r, &whole, 1);
    tensors t = new_tensors(&whole, 1, 0);
    const float good[] = {1, 2, 3}, negative[] = {1, -2}, none[] = {(float)NAN, 1};
    const float huge[] = {1, 1e37f}; /* a number, but 256 times as much is none */
    const float *odd = (const float *)(const void *)((const char *)good + 1);
    const struct {
        const float *k, *v;
        const char *words;
    } bad[] = {{good, NULL, "args.v_scales is NULL"}, {NULL, good, "args.k_scales is NULL"},
               {odd, good, "k_scales"},               {good, odd, "v_scales"},
               {negative, good, "k_scales[1]"},       {good, none, "v_scales[0]"},
               {huge, good, "args.k_scales[1]"},      {good, huge, "args.v_scales[1]"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rkv_runner_append_prefill_args args = layer_args(&t, 0);
        args.k_scales = bad[i].k;
        args.v_scales = bad[i].v;
        CHECK_STATUS(rkv_runner_append_prefill(runner, r.plan, &args),
                     RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names(bad[i].words));
    }
    /* so are all factors that are numbers while what is computed with them is none */
    const char *factors[] = {"k_scale", "v_scale", "scale", "soft_cap", "soft_cap"};
    for (size_t i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        rkv_runner_append_prefill_args one = layer_args(&t, 0);
        switch (i) {
        case 0: one.k_scale = 1e37f; break;
        case 1: one.v_scale = 1e37f; break;
        case 2: one.scale = 1e36f; break;
        case 3: one.soft_cap = 1e-37f; break;
        default: one.soft_cap = 1e-40f; break;
        }
        CHECK_STATUS(rkv_runner_append_prefill(runner, r.plan, &one), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names(factors[i]));
        /* those of heads stand in the place of the first two */
        one.k_scales = one.v_scales = good;
        CHECK_STATUS(rkv_runner_append_prefill(runner, r.plan, &one),
                     i < 2 ? RKV_STATUS_OK : RKV_STATUS_INVALID_ARGUMENT);
    }
    /* without fp8 they are not read, as k_scale is not */
    rkv_runner_append_prefill_args args = layer_args(&t, 0);
    args.k_scales = args.v_scales = negative;
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    check_tensors(&t, &whole, 1, 0, 0);
    free_tensors(&t);
    rkv_runner_destroy(runner);
    release(&r.f, state.sequence);
    end_runner(&r);
}

/* It is the number nearest to 1 / sqrt(head_dim): the same bits. */
static void k20_a_scale_that_is_not_given(void) {
    const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512, 576};
    fixture f = new_fixture(PAGE_SIZE, 32);
    uint32_t ids[COUNT];
    count_up(ids, COUNT, 1);
    rkv_sequence_info state = begin(&f, text(ids, COUNT));
    const chunk whole = chunk_of(state.sequence, ids, 0, COUNT);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        const size_t q_count = (size_t)COUNT * QUERY_HEADS * dims[i];
        const size_t kv_count = (size_t)COUNT * KV_HEADS * dims[i];
        rkv_runner_config config = small_runner();
        config.layer_count = 1;
        config.head_dim = dims[i];
        rkv_runner *runner = NULL;
        rkv_plan *plan = NULL;
        CHECK_OK(rkv_runner_create(f.table, &config, &runner));
        CHECK_OK(rkv_plan_create(f.table, &plan));
        CHECK_OK(rkv_plan_set(plan, &whole.row, 1, sizeof(rkv_plan_row)));
        float *q = floats(q_count), *k = floats(kv_count), *v = floats(kv_count);
        float *out[2] = {floats(q_count), floats(q_count)};
        for (size_t at = 0; at < q_count; at++) {
            q[at] = 16.0f * element(1, 0, 1, at, 0, 0); /* far apart, so that weights differ */
        }
        for (size_t at = 0; at < kv_count; at++) {
            k[at] = element(2, 0, 1, at, 0, 0);
            v[at] = element(3, 0, 1, at, 0, 0);
        }
        for (int given = 0; given < 2; given++) {
            rkv_runner_append_prefill_args args;
            memset(&args, 0, sizeof args);
            args.struct_size = sizeof args;
            args.q = q;
            args.k = k;
            args.v = v;
            args.out = out[given];
            args.scale = given ? (float)(1 / sqrt((double)dims[i])) : 0.0f;
            CHECK_OK(rkv_runner_append_prefill(runner, plan, &args));
        }
        CHECK_EQ(memcmp(out[0], out[1], q_count * sizeof *q), 0);
        free(q);
        free(k);
        free(v);
        free(out[0]);
        free(out[1]);
        rkv_plan_destroy(plan);
        rkv_runner_destroy(runner);
    }
    release(&f, state.sequence);
    end_fixture(&f);
}

int main(void) {
    RUN(k20_sixteen_bits);
    RUN(k20_a_scale_that_is_not_given);
    RUN(k22_fp8_keys_and_values);
    RUN(k22_scales_of_heads_that_are_none);
    RUN(k26_d12_logit_consistency);
    return check_result();
}
