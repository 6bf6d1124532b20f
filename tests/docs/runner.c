/* What the fragments of docs/runner.md leave out: the engine's own. */
#include <math.h>
#include <radixkv.h>

void check(rkv_status status);
void project(const float *x, uint32_t layer, float *q, float *k, float *v);
const float *finish(const float *x, const float *out, uint32_t layer);
void step(rkv_cache *cache, rkv_runner *runner, rkv_plan *plan, uint64_t a, uint64_t b);

void step(rkv_cache *cache, rkv_runner *runner, rkv_plan *plan, uint64_t a, uint64_t b) {
    static float q[65 * 8 * 64], k[65 * 2 * 64], v[65 * 2 * 64], out[65 * 8 * 64];
    const float *x = q;
    const uint32_t layers = 2;
    rkv_sequence_publish_result result = {.struct_size = sizeof result};
#include "runner-1.inc"
}

void latent(rkv_runner_config config, rkv_runner_append_prefill_args args);

void latent(rkv_runner_config config, rkv_runner_append_prefill_args args) {
#include "runner-2.inc"
    (void)config;
    (void)args;
}

void branches(rkv_plan *plan, rkv_sequence_id id);

void branches(rkv_plan *plan, rkv_sequence_id id) {
#include "runner-3.inc"
    check(rkv_plan_set(plan, &row, 1, sizeof row));
}

void keep(rkv_cache *cache, rkv_runner *runner, rkv_plan *plan, rkv_sequence_id id,
          rkv_tokens a_and_c);

void keep(rkv_cache *cache, rkv_runner *runner, rkv_plan *plan, rkv_sequence_id id,
          rkv_tokens a_and_c) {
#include "runner-4.inc"
}

void masks(rkv_plan *plan, rkv_sequence_id audio);

void masks(rkv_plan *plan, rkv_sequence_id audio) {
#include "runner-5.inc"
    check(rkv_plan_set(plan, &encoded, 1, sizeof encoded));
    check(rkv_plan_set(plan, &crossed, 1, sizeof crossed));
}

void two(rkv_runner *narrow, rkv_runner *wide, rkv_plan *plan, const rkv_plan_row *rows,
         size_t row_count, const rkv_runner_append_prefill_args *narrow_args,
         const rkv_runner_append_prefill_args *wide_args);

void two(rkv_runner *narrow, rkv_runner *wide, rkv_plan *plan, const rkv_plan_row *rows,
         size_t row_count, const rkv_runner_append_prefill_args *narrow_args,
         const rkv_runner_append_prefill_args *wide_args) {
    const uint32_t layers = 2;
#include "runner-6.inc"
}
