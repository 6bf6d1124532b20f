/* What the fragment of docs/journal.md leaves out: the buffers, and what is done with a record. */
#include <radixkv.h>

void check(rkv_status status);
void sleep_milliseconds(unsigned count);
void forget_all(void);
void grow(rkv_journal_buffers *buffers, uint64_t pages, uint64_t tokens, uint64_t items);
void apply(const rkv_journal_record *records, uint64_t count);
void follow(rkv_cache *cache, rkv_journal_buffers buffers);

void follow(rkv_cache *cache, rkv_journal_buffers buffers) {
    uint32_t page = 0;
    uint64_t number = 0;
    rkv_cache_read_contents_result contents = {.struct_size = sizeof contents};
    rkv_cache_read_journal_result journal = {.struct_size = sizeof journal};
#include "journal-1.inc"
}
