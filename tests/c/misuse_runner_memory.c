/* M01: memory and tensors of a runner that are each other's. */
#include "misuse.h"
#include "runner_fixture.h"

/* K and V of a layer, and those of two layers: two memories, or one with RKV_RUNNER_LATENT. */
static void m01_memory_of_k_and_v(void) {
    runner_fixture r = new_runner(4, 16, 0);
    rkv_runner_config config = small_runner();
    rkv_runner *runner = NULL;
    rkv_runner_kv_memory good[LAYERS], layers[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++) {
        CHECK_OK(rkv_runner_read_kv_memory(r.runner, i, &good[i], sizeof good[i]));
    }
    config.kv_layers = layers;
    config.kv_layer_size = sizeof *layers;
    memcpy(layers, good, sizeof layers);
    layers[1].v = layers[1].k;
    BAD(&r.f, rkv_runner_create(r.f.table, &config, &runner), "kv_layers[1].v is k");
    CHECK(message_names("RKV_RUNNER_LATENT"));
    for (size_t wrong = 0; wrong < 4; wrong++) {
        memcpy(layers, good, sizeof layers);
        switch (wrong) {
        case 0: layers[1].k = layers[0].k; break;
        case 1: layers[1].v = layers[0].v; break;
        case 2: layers[1].k = layers[0].v; break;
        default: layers[1].v = layers[0].k; break;
        }
        BAD(&r.f, rkv_runner_create(r.f.table, &config, &runner), "kv_layers[1]");
        CHECK(message_names("in part"));
    }
    /* all of it may be one: a layer that attends to what another one wrote */
    layers[0] = layers[1] = good[0];
    CHECK_OK(rkv_runner_create(r.f.table, &config, &runner));
    rkv_runner_destroy(runner);
    /* whose strides are wrong is said */
    memcpy(layers, good, sizeof layers);
    layers[1].v_page_stride = layers[1].page_stride;
    layers[1].v_position_stride = layers[1].position_stride;
    layers[1].v_head_stride = HEAD_DIM - 1;
    BAD(&r.f, rkv_runner_create(r.f.table, &config, &runner), "kv_layers[1].v: two elements");
    layers[1].v_head_stride = layers[1].head_stride;
    layers[1].head_stride = HEAD_DIM - 1;
    BAD(&r.f, rkv_runner_create(r.f.table, &config, &runner), "kv_layers[1].k: two elements");
    end_runner(&r);
}

/* What is written may be none of what is read, nor of the rest that is written. */
static void m01_tensors_that_overlap(void) {
    runner_fixture r = new_runner(4, 32, 0);
    uint32_t ids[12];
    count_up(ids, 12, 1);
    rkv_sequence_info a = begin(&r.f, text(ids, 12));
    chunk whole = chunk_of(a.sequence, ids, 0, 12);
    tensors t = new_tensors(&whole, 1, 0);
    rkv_runner_append_prefill_args good = layer_args(&t, 0), args;
    const size_t width = QUERY_HEADS * HEAD_DIM, numbers = 12 * width;
    const float *inputs[] = {t.q, t.k, t.v};
    set_plan(&r, &whole, 1);
    for (size_t i = 0; i < 3; i++) {
        args = good;
        args.lse = (float *)(void *)(uintptr_t)inputs[i];
        BAD(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), "lse overlaps an input");
        args = good;
        args.out = (void *)(uintptr_t)inputs[i];
        BAD(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), "out overlaps an input");
    }
    args = good;
    args.lse = (float *)args.out + numbers - 1; /* the last one of out */
    BAD(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), "lse overlaps out");
    /* no element of one is the other's, but they lie between each other */
    float *both = floats(2 * numbers);
    args = good;
    args.q = both;
    args.out = both + width;
    args.q_position_stride = args.out_position_stride = 2 * width;
    BAD(&r.f, rkv_runner_append_prefill(r.runner, r.plan, &args), "out overlaps an input");
    for (size_t i = 0; i < r.memory_count; i++) {
        CHECK(isnan(r.memory[i]));
    }
    /* side by side */
    memcpy(both, t.q, numbers * sizeof *both);
    args = good;
    args.q = both;
    args.lse = both + numbers;
    CHECK_OK(rkv_runner_append_prefill(r.runner, r.plan, &args));
    memcpy(t.lse, args.lse, 12 * QUERY_HEADS * sizeof *both);
    check_tensors(&t, &whole, 1, 0, 0);
    free(both);
    free_tensors(&t);
    release(&r.f, a.sequence);
    end_runner(&r);
}

int main(void) {
    RUN(m01_memory_of_k_and_v);
    RUN(m01_tensors_that_overlap);
    return check_result();
}
