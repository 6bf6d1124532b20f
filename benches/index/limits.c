/* Puts beside each row what was measured to be the least that any index takes for it. */
#include "report.h"

#include <stdio.h>
#include <string.h>

static const struct row *find(const struct report *report, const char *workload,
                              const char *operation, uint32_t page_size)
{
    for (size_t i = 0; i < report->row_count; i++) {
        const struct row *row = &report->rows[i];
        if (row->page_size == page_size && strcmp(row->workload, workload) == 0 &&
            strcmp(row->operation, operation) == 0) {
            return row;
        }
    }
    return NULL;
}

static double floor_of(const struct report *report, const struct row *row, const char *operation)
{
    char name[sizeof row->operation];
    int length = snprintf(name, sizeof name, "%s %s", row->workload, operation);
    bool fits = length > 0 && (size_t)length < sizeof name;
    const struct row *floor = fits ? find(report, "floor", name, row->page_size) : NULL;
    return floor != NULL ? floor->quiet : -1;
}

/*
 * Of a ratio between two sizes: what the floor of the large one has more than that of the small
 * one, on top of what the small one takes. So everything else costs the same at both sizes.
 */
static double limit_of_ratio(const struct report *report, const struct row *row)
{
    static const char END[] = ", cost at 1 M / 1 k";
    size_t length = strlen(row->operation);
    if (length < strlen(END) || strcmp(row->operation + length - strlen(END), END) != 0) {
        return -1;
    }
    int kept = (int)(length - strlen(END));
    char small[sizeof row->operation + 16], large[sizeof row->operation + 16];
    snprintf(small, sizeof small, "%.*s, 1 k leaves", kept, row->operation);
    snprintf(large, sizeof large, "%.*s, 1 M leaves", kept, row->operation);
    const struct row *low = find(report, row->workload, small, row->page_size);
    double least = floor_of(report, row, small);
    double most = floor_of(report, row, large);
    return low != NULL && least >= 0 && most >= 0 ? 1 + (most - least) / low->quiet : -1;
}

void report_limits(struct report *report)
{
    for (size_t i = 0; i < report->row_count; i++) {
        struct row *row = &report->rows[i];
        double limit = row->unit == UNIT_RATIO ? limit_of_ratio(report, row)
                                               : floor_of(report, row, row->operation);
        row->limit = limit >= 0 ? limit : row->limit;
    }
}
