/* What the fragments of docs/groups.md leave out: the engine around them. */
#include <radixkv.h>

void check(rkv_status status);
void carry_out(const rkv_page_copy *copies, size_t count);
uint64_t next_chunk(uint64_t computed, uint64_t prompt);
void compute(rkv_sequence_id sequence, uint64_t computed, uint64_t end);
void serve(rkv_cache *cache, rkv_sequence_begin_args begin_args,
           uint64_t prompt);
void copy_states(const rkv_plan_arrays *arrays);
void confirm(const rkv_plan_arrays *arrays);
void create(void);
void compute_leaving_states(rkv_sequence_id sequence, const uint32_t *row, uint64_t count);
void verify(rkv_cache *cache, rkv_sequence_id sequence, rkv_tokens drafts, const uint32_t *row,
            uint64_t computed, uint64_t k, uint64_t accepted);
void create_runners(rkv_page_table *table, rkv_runner *full, rkv_runner *sliding);
void step(rkv_plan *plan, const rkv_plan_row *rows, size_t row_count, uint32_t layers,
          rkv_runner *full, rkv_runner *sliding);
void begin(rkv_cache *cache, rkv_tokens tokens, uint32_t *full, rkv_locked_page *window,
           size_t capacity);
void grow(rkv_cache *cache, rkv_cache_insert_args args, rkv_lock_id lock, uint64_t computed);
void publish(rkv_cache *cache, rkv_cache_insert_args args, const uint32_t *window_row,
             const uint32_t *state_row, size_t page_count, uint32_t *published,
             uint32_t *window_published, uint32_t *state_published);

void create(void) {
    rkv_page_table_config config;
    rkv_page_table *table;
    rkv_cache *cache;
#include "groups-1.inc"
}

void begin(rkv_cache *cache, rkv_tokens tokens, uint32_t *full, rkv_locked_page *window,
           size_t capacity) {
    rkv_cache_match_result match = {.struct_size = sizeof match};
    rkv_locked_page checkpoint;
    size_t window_count, checkpoint_count;
#include "groups-2.inc"
}

void publish(rkv_cache *cache, rkv_cache_insert_args args, const uint32_t *window_row,
             const uint32_t *state_row, size_t page_count, uint32_t *published,
             uint32_t *window_published, uint32_t *state_published) {
    rkv_cache_insert_result result = {.struct_size = sizeof result};
#include "groups-3.inc"
}

void grow(rkv_cache *cache, rkv_cache_insert_args args, rkv_lock_id lock, uint64_t computed) {
    rkv_cache_insert_result result = {.struct_size = sizeof result};
#include "groups-4.inc"
}

void serve(rkv_cache *cache, rkv_sequence_begin_args begin_args,
           uint64_t prompt) {
    rkv_sequence_info info = {.struct_size = sizeof info};
    rkv_sequence_publish_result published = {.struct_size = sizeof published};
    rkv_page_copy copies[16];
    uint64_t end;
    size_t count;
#include "groups-5.inc"
}

void verify(rkv_cache *cache, rkv_sequence_id sequence, rkv_tokens drafts, const uint32_t *row,
            uint64_t computed, uint64_t k, uint64_t accepted) {
    rkv_sequence_publish_result published = {.struct_size = sizeof published};
#include "groups-6.inc"
}

void create_runners(rkv_page_table *table, rkv_runner *full, rkv_runner *sliding) {
#include "groups-7.inc"
}

void step(rkv_plan *plan, const rkv_plan_row *rows, size_t row_count, uint32_t layers,
          rkv_runner *full, rkv_runner *sliding) {
    rkv_plan_arrays arrays = {.struct_size = sizeof arrays};
    rkv_plan_group_arrays states = {.struct_size = sizeof states};
#include "groups-8.inc"
}
