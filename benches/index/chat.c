/* The conversations of W2 and W7. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

enum { SEED = 202 };

void chat_open(struct chat *chat)
{
    struct rng rng = {SEED};
    memset(chat, 0, sizeof *chat);
    chat->history = allocate(CHAT_CONVERSATIONS, sizeof *chat->history);
    prompts_init(&chat->prompts, BATCH, CHAT_TOKENS);
    for (uint32_t c = 0; c < CHAT_CONVERSATIONS; c++) {
        uint32_t end = 0;
        for (uint32_t t = 0; t < CHAT_TURNS; t++) {
            uint32_t count =
                CHAT_TURN_LEAST + rng_below(&rng, CHAT_TURN_MOST - CHAT_TURN_LEAST + 1);
            tokens_fill(SEED, c * CHAT_TURNS + t, chat->history[c] + end, count);
            chat->history[c][end] = FRESH + c * CHAT_TURNS + t;
            end += count;
            chat->end[c][t] = end;
            chat->order[c * CHAT_TURNS + t] = c;
        }
    }
    rng_shuffle(&rng, chat->order, CHAT_REQUESTS);
}

void chat_close(struct chat *chat)
{
    prompts_free(&chat->prompts);
    free(chat->history);
}

void chat_restart(struct chat *chat)
{
    memset(chat->next_turn, 0, sizeof chat->next_turn);
}

void chat_prepare(struct chat *chat, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t c = chat->order[first + i];
        size_t length = chat->end[c][chat->next_turn[c]++];
        memcpy(chat->prompts.ids[i], chat->history[c], length * sizeof **chat->history);
        chat->prompts.count[i] = length;
    }
}
