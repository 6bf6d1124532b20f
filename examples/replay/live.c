/* What the two ways of replaying share: the requests that are alive, and what fits the pool. */
#include <stdio.h>
#include <stdlib.h>

#include "radixkv.h"
#include "replay.h"

live_queue live_queue_new(uint32_t capacity)
{
    live_queue queue = {calloc(capacity, sizeof(live_request)), capacity, 0, 0};
    if (queue.entries == NULL)
        abort();
    return queue;
}

void live_queue_push(live_queue *queue, live_request entry)
{
    queue->entries[(queue->first + queue->count++) % queue->capacity] = entry;
}

live_request live_queue_pop(live_queue *queue)
{
    live_request entry = queue->entries[queue->first];
    queue->first = (queue->first + 1) % queue->capacity;
    queue->count--;
    return entry;
}

uint32_t row_page_limit(const trace *t, const replay_options *options)
{
    uint32_t longest = (t->longest - 1) / options->page_size + 1;
    return longest < options->page_count ? longest : options->page_count;
}

int prompt_fits(const trace_request *request, const replay_options *options,
                replay_result *result)
{
    if (request->token_count <= (uint64_t)options->page_count * options->page_size)
        return 1;
    result->refused_count++;
    return 0;
}

uint32_t output_that_fits(const trace_request *request, const replay_options *options,
                          replay_result *result)
{
    uint64_t pool = (uint64_t)options->page_count * options->page_size;
    uint64_t room = pool - request->token_count;
    if (!options->decode)
        return 0;
    if (request->output_count <= room)
        return request->output_count;
    result->cut_count++;
    return (uint32_t)room;
}

void must(rkv_status status, const char *call)
{
    if (status == RKV_STATUS_OK)
        return;
    char message[256];
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "\n%s: %s: %s\n", call, rkv_status_name((int32_t)status), message);
    exit(1);
}
