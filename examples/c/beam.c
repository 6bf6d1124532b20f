/*
 * Two stages of one request, in C: the first thinks and is retained; the second continues it and
 * runs a beam search, in which beams share every page that they have in common.
 *
 *     cc -Iinclude examples/c/beam.c -Ltarget/release -lradixkv -o beam
 *     LD_LIBRARY_PATH=target/release ./beam
 *
 * The model is a joke, its KV is the token itself. So the copies can be carried out here, and at
 * the end each row can be read back.
 */
#include <radixkv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_SIZE = 4, PAGES = 64, SLOTS = 32, WIDTH = 4, STEPS = 6, LENGTH = 64 };

/* KV memory: one number for each position of each page. */
static uint32_t kv[PAGES][PAGE_SIZE];

typedef struct beam {
    rkv_sequence_id sequence;
    uint32_t slot;
    uint32_t score;
    uint32_t tokens[LENGTH];
    size_t token_count;
} beam;

/* A token that would go on from one of the beams. */
typedef struct candidate {
    size_t parent;
    uint32_t token, score;
} candidate;

static rkv_page_table *table;
static rkv_cache *cache;

/* Every fallible call returns a status; the message is the calling thread's. */
static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

static rkv_tokens text(const uint32_t *ids, size_t count) {
    rkv_tokens tokens = {0};
    tokens.struct_size = sizeof tokens;
    tokens.ids = ids;
    tokens.count = count;
    return tokens;
}

static uint32_t *position_of(uint32_t slot, uint64_t position) {
    int64_t place;
    must(rkv_page_table_read_slot_mapping(table, slot, &position, 1, &place));
    return &kv[place / PAGE_SIZE][place % PAGE_SIZE];
}

/* Computes the KV of positions, and says so: whole pages are the cache's from then on. */
static void compute(const beam *b, uint64_t from) {
    rkv_sequence_publish_result result = {0};
    uint64_t at;
    for (at = from; at < b->token_count; at++) *position_of(b->slot, at) = b->tokens[at];
    result.struct_size = sizeof result;
    must(rkv_sequence_publish(cache, b->sequence, b->token_count, &result));
}

/* Carries out what a new sequence was told to copy. */
static void copy(rkv_sequence_id sequence) {
    rkv_page_copy copy;
    size_t count;
    must(rkv_sequence_read_copies(cache, sequence, &copy, sizeof copy, 1, &count));
    if (count == 0) return;
    memcpy(kv[copy.target_page], kv[copy.source_page], copy.position_count * sizeof kv[0][0]);
    must(rkv_sequence_confirm_copies(cache, sequence));
}

static void decode(beam *b, uint32_t token) {
    rkv_tokens one = text(&token, 1);
    must(rkv_sequence_append(cache, b->sequence, &one));
    b->tokens[b->token_count++] = token;
    compute(b, b->token_count - 1);
}

/* The model: how much it likes a token after the last one. */
static uint32_t like(const beam *b, uint32_t token) {
    uint32_t last = b->tokens[b->token_count - 1];
    return (last * 31 + token * 17 + (uint32_t)b->token_count) % 23;
}

static void print_pages(const char *when) {
    rkv_page_table_stats pages = {0};
    pages.struct_size = sizeof pages;
    must(rkv_page_table_read_stats(table, &pages));
    must(rkv_page_table_check(table));
    printf("%s: %u pages cached, %u private\n", when, (unsigned)pages.cached_page_count,
           (unsigned)pages.private_page_count);
}

/* The best tokens over all beams. */
static void choose(const beam *beams, candidate *best) {
    size_t found = 0, at, place;
    for (at = 0; at < WIDTH; at++) {
        uint32_t token;
        for (token = 100; token < 110; token++) {
            candidate next;
            next.parent = at;
            next.token = token;
            next.score = beams[at].score + like(&beams[at], token);
            for (place = found; place > 0 && best[place - 1].score < next.score; place--) {
                if (place < WIDTH) best[place] = best[place - 1];
            }
            if (place < WIDTH) best[place] = next;
            if (found < WIDTH) found++;
        }
    }
}

/* Goes on with the best candidates: a beam is forked for each of its candidates but the first,
 * which it takes itself; a beam with none is released. */
static void advance(beam *beams, const candidate *best) {
    beam next[WIDTH];
    size_t at, made = 0;
    for (at = 0; at < WIDTH; at++) {
        size_t wanted = 0, which;
        const candidate *mine[WIDTH];
        rkv_sequence_fork_child children[WIDTH];
        for (which = 0; which < WIDTH; which++) {
            if (best[which].parent == at) mine[wanted++] = &best[which];
        }
        if (wanted == 0) {
            must(rkv_sequence_release(cache, beams[at].sequence));
            continue;
        }
        if (wanted > 1) {
            rkv_sequence_fork_args args = {0};
            args.struct_size = sizeof args;
            args.parent = beams[at].sequence;
            args.child_count = wanted - 1;
            must(rkv_sequence_fork(cache, &args, children, sizeof *children));
        }
        for (which = 0; which < wanted; which++) {
            beam *b = &next[made++];
            *b = beams[at];
            if (which > 0) {
                const rkv_sequence_fork_child *child = &children[which - 1];
                b->sequence = child->sequence;
                b->slot = child->slot;
                copy(b->sequence);
            }
            b->score = mine[which]->score;
        }
        /* Only now: the children copied what the beam had, not what it writes next. */
        for (which = 0; which < wanted; which++) {
            decode(&next[made - wanted + which], mine[which]->token);
        }
    }
    memcpy(beams, next, sizeof next);
}

static rkv_sequence_id think(void) {
    beam b = {0};
    rkv_sequence_begin_args args = {0};
    rkv_sequence_info state = {0};
    rkv_tokens prompt;
    bool retained;
    for (b.token_count = 0; b.token_count < 10; b.token_count++) {
        b.tokens[b.token_count] = 1 + (uint32_t)b.token_count;
    }
    prompt = text(b.tokens, b.token_count);
    args.struct_size = sizeof args;
    args.tokens = &prompt;
    state.struct_size = sizeof state;
    must(rkv_sequence_begin(cache, &args, &state));
    b.sequence = state.sequence;
    b.slot = state.slot;
    compute(&b, state.cached_position_count);
    while (b.token_count < 17) decode(&b, 50 + (uint32_t)b.token_count);
    must(rkv_sequence_retain(cache, b.sequence, &retained));
    return b.sequence;
}

static void search(rkv_sequence_id parent) {
    static const uint32_t suffix[2] = {90, 91};
    beam beams[WIDTH], first = {0};
    rkv_sequence_continue_args args = {0};
    rkv_sequence_info state = {0};
    rkv_sequence_fork_args fork = {0};
    rkv_sequence_fork_child children[WIDTH - 1];
    rkv_tokens tokens = text(suffix, 2);
    size_t at, step;
    args.struct_size = sizeof args;
    args.parent = parent;
    args.tokens = &tokens;
    state.struct_size = sizeof state;
    must(rkv_sequence_continue(cache, &args, &state));
    printf("continued: %u of %u positions inherited\n", (unsigned)state.inherited_position_count,
           (unsigned)state.position_count);
    first.sequence = state.sequence;
    first.slot = state.slot;
    copy(first.sequence);
    for (at = 0; at < state.cached_position_count; at++) {
        first.tokens[at] = *position_of(first.slot, at);
    }
    memcpy(first.tokens + at, suffix, sizeof suffix);
    first.token_count = (size_t)state.position_count;
    compute(&first, state.cached_position_count);

    fork.struct_size = sizeof fork;
    fork.parent = first.sequence;
    fork.child_count = WIDTH - 1;
    must(rkv_sequence_fork(cache, &fork, children, sizeof *children));
    for (at = 0; at < WIDTH; at++) {
        beams[at] = first;
        if (at > 0) {
            const rkv_sequence_fork_child *child = &children[at - 1];
            beams[at].sequence = child->sequence;
            beams[at].slot = child->slot;
            copy(child->sequence);
        }
        /* Beams that are equal would go on alike. */
        decode(&beams[at], 100 + (uint32_t)at);
    }
    print_pages("forked");
    for (step = 0; step < STEPS; step++) {
        candidate best[WIDTH];
        choose(beams, best);
        advance(beams, best);
        print_pages("step");
    }
    for (at = 0; at < WIDTH; at++) {
        size_t i;
        printf("beam %u, score %2u:", (unsigned)at, (unsigned)beams[at].score);
        for (i = 19; i < beams[at].token_count; i++) {
            printf(" %u", (unsigned)beams[at].tokens[i]);
        }
        for (i = 0; i < beams[at].token_count; i++) {
            if (*position_of(beams[at].slot, i) != beams[at].tokens[i]) {
                printf(" position %u holds the KV of another token", (unsigned)i);
            }
        }
        printf("\n");
        must(rkv_sequence_release(cache, beams[at].sequence));
    }
}

int main(void) {
    rkv_page_table_config config;
    rkv_sequence_id parent;
    must(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE_SIZE;
    config.page_count = PAGES;
    config.slot_count = SLOTS;
    must(rkv_page_table_create(&config, &table));
    must(rkv_cache_create(table, NULL, &cache));
    parent = think();
    print_pages("retained");
    search(parent);
    must(rkv_sequence_drop(cache, parent));
    print_pages("dropped");
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    return 0;
}
