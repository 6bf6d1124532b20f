/* What the fragment of docs/cuda.md leaves out: the engine's own, and the driver's. */
#include <radixkv.h>

void check(rkv_status status);
void project(uint32_t layer, void *stream);
void finish(uint32_t layer, void *stream);
void begin_capture(void *stream);
void end_capture(void *stream);
void launch(void *stream);
void steps(rkv_runner *runner, rkv_plan *plan, const rkv_plan_row *rows, size_t row_count,
           void *stream, uint16_t *q, uint16_t *k, uint16_t *v, uint16_t *out);

void steps(rkv_runner *runner, rkv_plan *plan, const rkv_plan_row *rows, size_t row_count,
           void *stream, uint16_t *q, uint16_t *k, uint16_t *v, uint16_t *out) {
    const uint32_t layers = 2;
#include "cuda-1.inc"
}
