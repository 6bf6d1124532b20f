/* What the fragments of docs/tiers.md leave out: the engine around the loop. */
#include <radixkv.h>
#include <string.h>

extern rkv_cache *cache;
extern uint8_t *kv;
void goes_on(rkv_sequence_id sequence, uint64_t computed);
void step(void);
void admit(const rkv_sequence_begin_args *prompt);

#include "tiers-1.inc"
