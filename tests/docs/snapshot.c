/* What the fragments of docs/snapshot.md leave out: the engine's own. */
#include <radixkv.h>

#include <string.h>
#include <sys/eventfd.h>

void check(rkv_status status);
void restore(const void *data, size_t size);
void *save(size_t *size);
void cut(uint64_t token_count);
void destroy(void *data, uint64_t size_bytes, void *context);
void serve(rkv_snapshot_cache *cache, rkv_tokens prompt, uint32_t predicted);
void serve_trimmed(rkv_snapshot_cache *cache, rkv_tokens prompt);
void serve_others_until_readable(int event_fd);
void attach(rkv_snapshot_cache *cache, rkv_tokens prompt, const uint8_t *digest);
void serve_from_disk(rkv_snapshot_cache *cache, rkv_tokens prompt, rkv_snapshot_tier_config config);

void serve(rkv_snapshot_cache *cache, rkv_tokens prompt, uint32_t predicted) {
    size_t size;
#include "snapshot-1.inc"
}

void serve_trimmed(rkv_snapshot_cache *cache, rkv_tokens prompt) {
    rkv_snapshot_cache_insert_args args = {.struct_size = sizeof args, .tokens = &prompt};
    rkv_snapshot_cache_match_result found = {.struct_size = sizeof found};
#include "snapshot-2.inc"
}

void attach(rkv_snapshot_cache *cache, rkv_tokens prompt, const uint8_t *digest) {
    rkv_snapshot_cache_insert_args args = {.struct_size = sizeof args, .tokens = &prompt};
#include "snapshot-3.inc"
}

void serve_from_disk(rkv_snapshot_cache *cache, rkv_tokens prompt,
                     rkv_snapshot_tier_config config) {
    rkv_snapshot_cache_match_result found = {.struct_size = sizeof found};
#include "snapshot-4.inc"
}
