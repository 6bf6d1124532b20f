/* A request trace: prompts as token ids, outputs as counts. data/README.md has the file format. */
#ifndef REPLAY_TRACE_H
#define REPLAY_TRACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct trace_request {
    size_t first_unit;     /* index into trace.units */
    uint32_t token_count;  /* of the prompt, at least 1 */
    uint32_t output_count; /* tokens generated after it */
} trace_request;

typedef struct trace {
    char name[32];
    uint32_t unit_size; /* tokens that one unit id stands for */
    uint32_t *units;    /* unit ids of all prompts, one prompt after another */
    trace_request *requests;
    size_t request_count;
    uint64_t prompt_token_count;
    uint64_t output_token_count;
    uint64_t distinct_token_count; /* held by a cache without bounds, outputs included */
    uint32_t longest;              /* tokens of the longest request, output included */
} trace;

/* Reads a file; says what is wrong with it on stderr and returns 0 when it cannot. */
int trace_read(trace *out, const char *path);
void trace_free(trace *t);

/* Writes the request's token_count prompt tokens. */
void trace_prompt(const trace *t, const trace_request *request, uint32_t *tokens);

/* Token of the n-th output token of a whole run: occurs in no prompt and only once. */
uint32_t trace_output_token(uint64_t n);

#endif
