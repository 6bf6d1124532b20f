/* The page table alone: a million pages, a million slots, a row of 131,072 pages. */
#include "longest.h"

#include <stdlib.h>

enum { REPEATS = 1000 };

static void looks(const rkv_page_table *table, uint32_t slot)
{
    rkv_page_table_stats stats = {.struct_size = sizeof stats};
    for (unsigned i = 0; i < 200; i++) {
        bool can;
        size_t count;
        TIME(rkv_page_table_read_stats, table, &stats);
        TIME(rkv_page_table_can_reserve, table, slot, 1 + i, &can);
        TIME(rkv_page_table_can_reserve, table, RKV_NO_SLOT, 1 + i, &can);
        TIME(rkv_page_table_row_capacity, table, slot, &count);
    }
    for (unsigned i = 0; i < 3; i++) {
        TIME(rkv_page_table_check, table);
    }
}

/* A row of so many pages: at once, page by page, read as an engine reads it. */
static void rows(rkv_page_table *table, uint32_t page_size, uint32_t *pages, uint32_t page_count)
{
    uint32_t slot;
    size_t count;
    TIME(rkv_page_table_allocate_slot, table, &slot);
    TIME(rkv_page_table_reserve, table, slot, (size_t)page_count * page_size);
    for (unsigned i = 0; i < 20; i++) {
        TIME(rkv_page_table_read_row, table, slot, 0, pages, page_count, &count);
    }
    TIME(rkv_page_table_free_slot, table, slot);
    TIME(rkv_page_table_allocate_slot, table, &slot);
    for (size_t i = 1; i <= page_count; i++) {
        TIME(rkv_page_table_reserve, table, slot, i * page_size);
    }
    uint64_t *positions = allocate(page_count, sizeof *positions);
    int64_t *mapping = allocate(page_count, sizeof *mapping);
    int32_t *indices = allocate(page_count, sizeof *indices), indptr[2], last[1];
    for (uint32_t i = 0; i < page_count; i++) {
        positions[i] = (uint64_t)i * page_size;
    }
    rkv_page_table_batch_row row = {slot, page_count * page_size};
    rkv_page_table_batch_arrays arrays = {.struct_size = sizeof arrays, .indptr = indptr,
        .indices = indices,
                               .indices_capacity = page_count, .last_page_len = last};
    for (unsigned i = 0; i < 20; i++) {
        TIME(rkv_page_table_read_slot_mapping, table, slot, positions, page_count, mapping);
        TIME(rkv_page_table_read_batch, table, &row, 1, sizeof row, &arrays, &count);
    }
    free(positions);
    free(mapping);
    free(indices);
    TIME(rkv_page_table_free_slot, table, slot);
    /* Pages that the caller has, mapped into a row at once. */
    TIME(rkv_page_table_allocate_slot, table, &slot);
    TIME(rkv_page_table_allocate_pages, table, page_count, pages);
    TIME(rkv_page_table_map, table, slot, 0, pages, page_count);
    looks(table, slot);
    TIME(rkv_page_table_free_slot, table, slot);
}

void world_pages(uint32_t page_size, uint32_t index)
{
    (void)index;
    rkv_page_table *table;
    rkv_page_table_config config;
    uint32_t *pages = allocate(sizes.pages, sizeof *pages);
    uint32_t *slots = allocate(sizes.slots, sizeof *slots);
    CHECK(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = page_size;
    config.page_count = sizes.pages + 1;
    config.slot_count = sizes.slots;
    situation(page_size == 1 ? "10^6 pages, 10^6 slots, page 1"
                             : "10^6 pages, 10^6 slots, page 16");
    TIME(rkv_page_table_create, &config, &table);
    reader_of_pages(table);
    situation(page_size == 1 ? "a row of 131,072 pages, page 1"
                             : "a row of 131,072 pages, page 16");
    rows(table, page_size, pages, sizes.positions);
    situation(page_size == 1 ? "10^6 pages, 10^6 slots, page 1"
                             : "10^6 pages, 10^6 slots, page 16");
    for (unsigned i = 0; i < REPEATS; i++) {
        TIME(rkv_page_table_allocate_pages, table, 1 + i % 64, pages);
        TIME(rkv_page_table_free_pages, table, pages, 1 + i % 64);
    }
    for (uint32_t i = 0; i < sizes.slots; i++) {
        TIME(rkv_page_table_allocate_slot, table, &slots[i]);
    }
    looks(table, slots[0]);
    for (uint32_t i = 0; i < sizes.slots; i += 3) {
        TIME(rkv_page_table_reserve, table, slots[i], page_size);
        TIME(rkv_page_table_free_slot, table, slots[i]);
    }
    situation("10^6 pages in one call");
    TIME(rkv_page_table_allocate_pages, table, sizes.pages, pages);
    TIME(rkv_page_table_free_pages, table, pages, sizes.pages);
    TIME(rkv_page_table_allocate_pages, table, sizes.pages, pages);
    reader_stop();
    situation(page_size == 1 ? "10^6 pages, 10^6 slots, page 1"
                             : "10^6 pages, 10^6 slots, page 16");
    TIME_VOID(rkv_page_table_destroy, table);
    free(pages);
    free(slots);
}
