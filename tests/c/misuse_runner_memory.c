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

int main(void) {
    RUN(m01_memory_of_k_and_v);
    return check_result();
}
