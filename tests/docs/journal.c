/* What the fragment of docs/journal.md leaves out: the buffers, and what is done with a record. */
#include <radixkv.h>

void apply(const rkv_journal_record *records, uint64_t count);
void follow(rkv_cache *cache, rkv_cache_read_contents_args contents_args,
            rkv_cache_read_journal_args journal_args);

void follow(rkv_cache *cache, rkv_cache_read_contents_args contents_args,
            rkv_cache_read_journal_args journal_args) {
    rkv_cache_read_contents_result contents = {.struct_size = sizeof contents};
    rkv_cache_read_journal_result journal = {.struct_size = sizeof journal};
#include "journal-1.inc"
}
