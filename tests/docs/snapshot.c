/* What the fragment of docs/snapshot.md leaves out: the engine's own. */
#include <radixkv.h>

void restore(const void *data, size_t size);
void *save(size_t *size);
void destroy(void *data, uint64_t size_bytes, void *context);
void serve(rkv_snapshot_cache *cache, rkv_tokens prompt, uint32_t predicted);

void serve(rkv_snapshot_cache *cache, rkv_tokens prompt, uint32_t predicted) {
    size_t size;
#include "snapshot-1.inc"
}
