/* What the fragment of docs/continuations.md leaves out. */
#include <radixkv.h>

void check(rkv_status status);
void begin(rkv_cache *cache, rkv_sequence_begin_args args, rkv_sequence_info state);

void begin(rkv_cache *cache, rkv_sequence_begin_args args, rkv_sequence_info state) {
#include "continuations-1.inc"
}
