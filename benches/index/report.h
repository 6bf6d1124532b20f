/* Rows on their way from the process of a workload to the table. */
#ifndef RADIXKV_BENCH_REPORT_H
#define RADIXKV_BENCH_REPORT_H

#include "bench.h"

struct report {
    struct row rows[512];
    size_t row_count;
    struct memory_row memory_rows[64];
    size_t memory_row_count;
};

void rows_to(int descriptor);
/* Reads rows until the writing end is closed. */
void report_read(struct report *report, int descriptor);
/* Page 1 is measured against page 16: its targets are known only now. */
void report_page_one_targets(struct report *report);
/* Rows get the floor that was measured for them as their limit. */
void report_limits(struct report *report);
void report_markdown(const struct report *report);
void report_json(const struct report *report);

#endif
