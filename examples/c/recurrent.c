/*
 * Snapshots of a recurrent model, in C: prompts that share a beginning are computed from there.
 *
 * A recurrent model has no KV that grows with the prompt. All it knows is a state of fixed size,
 * and the state after a prefix serves every prompt that begins with it. This program runs a small
 * network over the turns of two chats, once from the first token each time, once with a snapshot
 * cache, and prints the steps that each needed. What it says is the same.
 *
 *     cc -Iinclude examples/c/recurrent.c -Ltarget/release -lradixkv -o recurrent
 *     LD_LIBRARY_PATH=target/release ./recurrent
 */
#include <radixkv.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 32, VOCABULARY = 96, SYSTEM = 200, TURN = 40, TURNS = 4, REPLY = 12 };
enum { LONGEST = SYSTEM + TURNS * (TURN + REPLY), STRIDE = 64 };

static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

/* ---- the model ---- */

typedef struct state {
    float hidden[WIDTH];
} state;

static float embedding[VOCABULARY][WIDTH], recurrent[WIDTH][WIDTH];
static unsigned long step_count;

/* Weights between -1 and 1 that depend on nothing but their order. */
static float weight(void) {
    static uint32_t random = 12345;
    random = random * 1664525u + 1013904223u;
    return (float)(random >> 8) / 8388608.0f - 1.0f;
}

static void make_model(void) {
    for (int i = 0; i < VOCABULARY; i++) {
        for (int j = 0; j < WIDTH; j++) embedding[i][j] = weight();
    }
    for (int i = 0; i < WIDTH; i++) {
        for (int j = 0; j < WIDTH; j++) recurrent[i][j] = 0.3f * weight();
    }
}

/* One step: the state after one more token. */
static void step(state *now, uint32_t token) {
    state next;
    for (int i = 0; i < WIDTH; i++) {
        float sum = embedding[token][i];
        for (int j = 0; j < WIDTH; j++) sum += recurrent[i][j] * now->hidden[j];
        next.hidden[i] = sum / (1.0f + (sum < 0 ? -sum : sum));
    }
    *now = next;
    step_count++;
}

/* The token that the model predicts in a state. */
static uint32_t predict(const state *now) {
    uint32_t best = 0;
    float most = 0;
    for (uint32_t token = 0; token < VOCABULARY; token++) {
        float sum = 0;
        for (int j = 0; j < WIDTH; j++) sum += embedding[token][j] * now->hidden[j];
        if (token == 0 || sum > most) {
            best = token;
            most = sum;
        }
    }
    return best;
}

/* ---- the cache ---- */

static void destroy_state(void *data, uint64_t size_bytes, void *user_data) {
    (void)size_bytes;
    (void)user_data;
    free(data);
}

static rkv_tokens list(const uint32_t *ids, size_t count) {
    rkv_tokens tokens = {0};
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids;
    tokens.count = count;
    return tokens;
}

/* Gives the cache a copy of a state. It is the cache's from then on, kept or not. */
static void store(rkv_snapshot_cache *cache, const uint32_t *ids, size_t count, const state *now) {
    rkv_tokens tokens = list(ids, count);
    rkv_snapshot_cache_insert_args args = {0};
    state *copy = malloc(sizeof *copy);
    if (copy == NULL) return; /* one snapshot less */
    *copy = *now;
    args.struct_size = sizeof args;
    args.tokens = &tokens;
    args.data = copy;
    args.size_bytes = sizeof *copy;
    args.destructor = destroy_state;
    args.has_next_token = 1;
    args.next_token = predict(now);
    must(rkv_snapshot_cache_insert(cache, &args, NULL));
}

/* The state after a prompt and the first token of the reply, from the longest snapshot there is. */
static uint32_t prefill(rkv_snapshot_cache *cache, const uint32_t *ids, size_t count, state *now,
                        size_t *out_reused) {
    rkv_tokens tokens = list(ids, count);
    rkv_snapshot_cache_match_result match = {0};
    size_t at = 0;
    match.struct_size = sizeof match;
    memset(now, 0, sizeof *now);
    must(rkv_snapshot_cache_match(cache, NULL, &tokens, 0, &match));
    if (match.pin != 0) {
        memcpy(now, match.data, sizeof *now); /* the pin keeps it from being destroyed meanwhile */
        at = (size_t)match.token_count;
        must(rkv_snapshot_cache_release(cache, match.pin));
    }
    *out_reused = at;
    if (match.full_hit && match.has_next_token) return match.next_token; /* nothing to compute */
    while (at < count) {
        step(now, ids[at++]);
        if (at % STRIDE == 0 || at == count) store(cache, ids, at, now);
    }
    return predict(now);
}

/* ---- the chats ---- */

/* The turns of a chat: a system prompt that all share, then questions and replies. */
static void chat(rkv_snapshot_cache *cache, uint32_t user, uint32_t *said, bool tell) {
    uint32_t ids[LONGEST];
    size_t count = 0, reused;
    for (; count < SYSTEM; count++) ids[count] = (uint32_t)(count * 7 % VOCABULARY);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        state now;
        unsigned long before = step_count;
        for (uint32_t i = 0; i < TURN; i++) {
            ids[count++] = (user * 31 + turn * 17 + i * 5) % VOCABULARY;
        }
        uint32_t token = prefill(cache, ids, count, &now, &reused);
        if (tell) {
            printf("chat %u, turn %u: %3zu tokens, %3zu from a snapshot, %3lu steps\n",
                   (unsigned)user, (unsigned)turn, count, reused, step_count - before);
        }
        for (uint32_t i = 0; i < REPLY; i++) {
            *said++ = token;
            ids[count++] = token;
            step(&now, token);
            token = predict(&now);
        }
        /* The next turn begins with this reply. */
        store(cache, ids, count, &now);
    }
}

/* Two chats, and the first one again. Returns the steps that they took. */
static unsigned long run(uint64_t entry_limit, uint32_t said[3][TURNS * REPLY]) {
    const uint32_t users[3] = {1, 2, 1};
    rkv_snapshot_cache_config config;
    rkv_snapshot_cache *cache;
    must(rkv_snapshot_cache_config_init(&config, sizeof config));
    config.entry_limit = entry_limit; /* 0: nothing is stored */
    must(rkv_snapshot_cache_create(&config, &cache));
    step_count = 0;
    for (int i = 0; i < 3; i++) chat(cache, users[i], said[i], entry_limit > 0);
    rkv_snapshot_cache_destroy(cache);
    return step_count;
}

int main(void) {
    static uint32_t without[3][TURNS * REPLY], with[3][TURNS * REPLY];
    make_model();
    unsigned long all = run(0, without);
    unsigned long some = run(64, with);
    if (memcmp(without, with, sizeof with) != 0) {
        fprintf(stderr, "what was said differs\n");
        return 1;
    }
    printf("%lu steps without snapshots, %lu with them; the same tokens were said\n", all, some);
    return 0;
}
