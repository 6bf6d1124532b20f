/* The hit-rate curves as one self-contained SVG file. */
#ifndef REPLAY_CHART_H
#define REPLAY_CHART_H

#include <stdint.h>

typedef struct chart_line {
    const char *name;
    const uint64_t *pool_tokens; /* ascending */
    const double *hit_rates;     /* 0 to 1 */
    unsigned point_count;
} chart_line;

/* Whether the file can be written: better asked before the replay than found out after it. */
int chart_writable(const char *path);

/* Says what went wrong on stderr and returns 0 when the file cannot be written. */
int chart_write(const char *path, const char *subtitle, const chart_line *lines,
                unsigned line_count);

#endif
