/* W2: a chat, with room for all of it. */
#include "bench.h"

#include <string.h>

struct w2 {
    struct fixture fixture;
    struct chat chat;
};

static void request(void *context, size_t i)
{
    struct w2 *w2 = context;
    fixture_request(&w2->fixture, w2->chat.prompts.ids[i], w2->chat.prompts.count[i]);
}

static void run(struct w2 *w2, struct meter *meter, uint32_t page_size, unsigned number, bool last)
{
    size_t request_count = options.count ? CHAT_REQUESTS / 2 : CHAT_REQUESTS;
    chat_restart(&w2->chat);
    fixture_open(&w2->fixture, page_size, CHAT_CONVERSATIONS * CHAT_TOKENS + CHAT_TOKENS,
                 CHAT_TOKENS);
    meter_begin(meter, run_timing(number));
    for (size_t first = 0; first < request_count; first += BATCH) {
        size_t count = request_count - first < BATCH ? request_count - first : BATCH;
        chat_prepare(&w2->chat, first, count);
        meter_calls(meter, request, w2, count);
    }
    meter_end(meter);
    if (number == 0) {
        fixture_memory(&w2->fixture, "W2");
    }
    if (last) {
        fixture_verify(&w2->fixture);
    }
    fixture_close(&w2->fixture);
}

void run_w2(uint32_t page_size)
{
    static struct w2 w2;
    struct meter meter;
    meter_init(&meter, "chat request");
    chat_open(&w2.chat);
    unsigned runs = run_count(14);
    for (unsigned number = 0; number < runs; number++) {
        run(&w2, &meter, page_size, number, number + 1 == runs);
    }
    meter_emit(&meter, "W2", page_size, 1.1, -1);
    meter_free(&meter);
    chat_close(&w2.chat);
}
