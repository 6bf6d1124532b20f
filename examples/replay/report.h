/* The table on stdout. */
#ifndef REPLAY_REPORT_H
#define REPLAY_REPORT_H

#include "replay.h"
#include "trace.h"

/* "128 Ki", "4 Mi", "1000": exact for whole multiples, else with one decimal. */
const char *report_size(uint64_t tokens, char out[16]);

void report_legend(void);
void report_head(const trace *t, const replay_options *options);
void report_row(const replay_options *options, const replay_result *result);
void report_page_table_alone(const replay_options *options, const replay_result *result);

double report_hit_rate(const replay_result *result);

#endif
