/* The command line. */
#ifndef REPLAY_OPTIONS_H
#define REPLAY_OPTIONS_H

#include <stdint.h>

#include "replay.h"

#define TRACE_LIMIT 8
#define POOL_LIMIT 32

typedef struct options {
    const char *traces[TRACE_LIMIT]; /* names in the data directory, or paths */
    unsigned trace_count;
    uint64_t pool_tokens[POOL_LIMIT]; /* none: chosen for each trace */
    unsigned pool_count;
    const char *data_directory;
    const char *svg_path;
    replay_options replay;
} options;

/* Ends the program after --help, and with a message and status 2 for what makes no sense. */
void options_parse(options *out, int argc, char **argv);

/* Ends it likewise for a pool of no page, or of more than there are numbers for. */
void options_check_pools(const uint64_t *tokens, unsigned count, uint32_t page_size);

#endif
