/* What the fragment of docs/runner.md leaves out: the engine's own. */
#include <radixkv.h>

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
