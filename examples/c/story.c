/*
 * The story of two requests that share a system prompt and an image, in C. The same story stands in
 * examples/cpp, examples/story.rs and bindings/go/examples, and each prints the same text.
 *
 *     cc -Iinclude examples/c/story.c -Ltarget/release -lradixkv -o story
 *     LD_LIBRARY_PATH=target/release ./story
 */
#include <radixkv.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_SIZE = 16, PAGES = 16, SYSTEM = 40, IMAGE_POSITIONS = 50 };

/* Every fallible call returns a status; the message is the calling thread's. */
static void must(rkv_status status) {
    char message[256];
    if (status == RKV_STATUS_OK) return;
    rkv_last_error_message(message, sizeof message);
    fprintf(stderr, "%s: %s\n", rkv_status_name((int32_t)status), message);
    exit(1);
}

/* A prompt: the system prompt, the image, and a question of `question` ids from `first` on. */
typedef struct prompt {
    uint32_t ids[256];
    rkv_token_item image;
    rkv_tokens tokens;
} prompt;

static void make_prompt(prompt *p, uint32_t first, uint32_t question) {
    static const char picture[] = "a picture of a cat";
    uint32_t i;
    memset(p, 0, sizeof *p);
    for (i = 0; i < SYSTEM; i++) p->ids[i] = 1 + i;
    /* The image is one token that takes 50 positions. Its digest is its identity. */
    p->image.kind = RKV_TOKEN_IMAGE;
    p->image.token_index = SYSTEM;
    p->image.position_count = IMAGE_POSITIONS;
    must(rkv_image_digest(picture, sizeof picture - 1, p->image.digest));
    for (i = 0; i < question; i++) p->ids[SYSTEM + 1 + i] = first + i;
    p->tokens.struct_size = sizeof p->tokens;
    p->tokens.ids = p->ids;
    p->tokens.count = SYSTEM + 1 + question;
    p->tokens.items = &p->image;
    p->tokens.item_size = sizeof p->image;
    p->tokens.item_count = 1;
}

/* How much of a prompt is cached. Changes nothing: good for admission and routing. */
static size_t probe(const rkv_cache *cache, const rkv_tokens *tokens) {
    size_t positions = 0;
    must(rkv_cache_probe(cache, NULL, tokens, NULL, &positions));
    return positions;
}

static void begin(rkv_cache *cache, const rkv_tokens *tokens, rkv_sequence_info *state) {
    rkv_sequence_begin_args args = {0};
    args.struct_size = sizeof args;
    args.tokens = tokens;
    must(rkv_sequence_begin(cache, &args, state));
    printf("   begin: %u positions reused, %u pages in the row, %u of them shared\n",
           (unsigned)state->cached_position_count, (unsigned)state->page_count,
           (unsigned)state->shared_page_count);
}

static void publish(rkv_cache *cache, rkv_sequence_id sequence, uint64_t computed) {
    rkv_sequence_publish_result result = {0};
    result.struct_size = sizeof result;
    must(rkv_sequence_publish(cache, sequence, computed, &result));
    printf("   publish: %u pages claimed, %u pages of the row shared\n",
           (unsigned)result.claimed_page_count, (unsigned)result.shared_page_count);
}

static void print_pages(const rkv_page_table *table) {
    rkv_page_table_stats stats = {0};
    stats.struct_size = sizeof stats;
    must(rkv_page_table_read_stats(table, &stats));
    printf("   pages: %u free, %u cached, %u private; %u reclaimable\n",
           (unsigned)stats.free_page_count, (unsigned)stats.cached_page_count,
           (unsigned)stats.private_page_count, (unsigned)stats.reclaimable_page_count);
}

int main(void) {
    rkv_page_table_config config;
    rkv_page_table *table = NULL;
    rkv_cache *cache = NULL;
    prompt a, b;
    rkv_tokens text = {0};
    uint32_t decoded, long_ids[150], evicted[PAGES];
    int32_t indptr[3], indices[2 * PAGES], last_page_len[2];
    rkv_page_copy copy = {0};
    size_t copies = 0;
    rkv_sequence_info state_a = {0}, state_b = {0}, state_c = {0};
    rkv_page_table_batch_row rows[2];
    rkv_page_table_batch_arrays arrays = {0};
    rkv_sequence_begin_args args_c = {0};
    rkv_shortage shortage = {0};
    rkv_cache_stats stats = {0};
    size_t count = 0;
    uint32_t i;
    state_a.struct_size = state_b.struct_size = state_c.struct_size = sizeof state_a;
    text.struct_size = sizeof text;

    /* Page 0 is reserved for padding, so a pool of 16 pages has 17. */
    must(rkv_page_table_config_init(&config, sizeof config));
    config.page_size = PAGE_SIZE;
    config.page_count = PAGES + 1;
    must(rkv_page_table_create(&config, &table));
    must(rkv_cache_create(table, NULL, &cache));
    printf("1. A page table of %d pages of %d positions, and a cache on it\n", PAGES, PAGE_SIZE);
    print_pages(table);

    /* Nothing is cached yet. `begin` takes a slot and a private page per 16 positions. Then the
     * engine computes all positions, and publishes: whole pages become the cache's. */
    make_prompt(&a, 100, 12);
    must(rkv_tokens_position_count(&a.tokens, &count));
    printf("2. Request A: %u tokens, %u positions\n", (unsigned)a.tokens.count, (unsigned)count);
    printf("   probe: %u positions cached\n", (unsigned)probe(cache, &a.tokens));
    begin(cache, &a.tokens, &state_a);
    publish(cache, state_a.sequence, count);

    /* The shared beginning ends inside a page. Whole pages are mapped; of the next one the engine
     * copies what matched, in every layer, since nobody may write to a page of the cache. */
    make_prompt(&b, 200, 20);
    must(rkv_tokens_position_count(&b.tokens, &count));
    printf("3. Request B, same image, other question: %u tokens, %u positions\n",
           (unsigned)b.tokens.count, (unsigned)count);
    printf("   probe: %u positions cached\n", (unsigned)probe(cache, &b.tokens));
    begin(cache, &b.tokens, &state_b);
    must(rkv_sequence_read_copies(cache, state_b.sequence, &copy, sizeof copy, 1, &copies));
    printf("   copy: %u positions into a private page; compute from token %u on\n",
           (unsigned)copy.position_count, (unsigned)state_b.cached_token_count);
    must(rkv_sequence_confirm_copies(cache, state_b.sequence));
    publish(cache, state_b.sequence, count);

    /* Decode: a token at a time; a page is allocated when one is full. Generated tokens can be
     * published too. */
    for (decoded = 1000; decoded < 1020; decoded++) {
        text.ids = &decoded;
        text.count = 1;
        must(rkv_sequence_append(cache, state_b.sequence, &text));
    }
    must(rkv_sequence_read_info(cache, state_b.sequence, &state_b));
    printf("4. B decodes 20 tokens: %u positions, %u pages in the row\n",
           (unsigned)state_b.position_count, (unsigned)state_b.page_count);
    publish(cache, state_b.sequence, state_b.position_count);

    /* One step over both: the arrays that paged attention kernels take. */
    rows[0].slot = state_a.slot;
    rows[0].position_count = (uint32_t)state_a.position_count;
    rows[1].slot = state_b.slot;
    rows[1].position_count = (uint32_t)state_b.position_count;
    arrays.struct_size = sizeof arrays;
    arrays.indptr = indptr;
    arrays.indices = indices;
    arrays.indices_capacity = sizeof indices / sizeof *indices;
    arrays.last_page_len = last_page_len;
    must(rkv_page_table_read_batch(table, rows, 2, sizeof *rows, &arrays, &count));
    printf("5. A batch of both: indptr %d %d %d, last page lengths %d %d\n", indptr[0], indptr[1],
           indptr[2], last_page_len[0], last_page_len[1]);
    print_pages(table);

    /* A request that does not fit is refused whole, and told why: everything cached is in use. */
    for (i = 0; i < 150; i++) long_ids[i] = 5000 + i;
    text.ids = long_ids;
    text.count = 150;
    args_c.struct_size = sizeof args_c;
    args_c.tokens = &text;
    printf("6. Request C: %u tokens of its own\n", (unsigned)text.count);
    if (rkv_sequence_begin(cache, &args_c, &state_c) != RKV_STATUS_OUT_OF_PAGES) return 1;
    shortage.struct_size = sizeof shortage;
    must(rkv_last_shortage(&shortage));
    printf("   refused: %u pages needed, %u free, %u reclaimable, %u locked, %u private\n",
           (unsigned)shortage.needed_page_count, (unsigned)shortage.free_page_count,
           (unsigned)shortage.reclaimable_page_count, (unsigned)shortage.locked_page_count,
           (unsigned)shortage.private_page_count);

    /* Private pages return to the pool. What was published stays cached, and may be evicted now. */
    must(rkv_sequence_release(cache, state_a.sequence));
    must(rkv_sequence_release(cache, state_b.sequence));
    printf("7. A and B are released\n");
    print_pages(table);
    stats.struct_size = sizeof stats;
    must(rkv_cache_read_stats(cache, &stats));
    printf("   cache: %u lookups for %u positions, %u found, %u of them by copy\n",
           (unsigned)stats.lookup_count, (unsigned)stats.lookup_position_count,
           (unsigned)stats.hit_position_count, (unsigned)stats.partial_hit_position_count);

    /* Now it fits: what was used longest ago is evicted, page by page, no more than needed. */
    printf("8. Request C again\n");
    begin(cache, &text, &state_c);
    print_pages(table);
    must(rkv_sequence_release(cache, state_c.sequence));
    printf("   still cached: %u positions of A, %u of B\n", (unsigned)probe(cache, &a.tokens),
           (unsigned)probe(cache, &b.tokens));

    /* Eviction on demand reports its victims, for an engine that moves them elsewhere. */
    must(rkv_cache_evict(cache, PAGES, evicted, PAGES, &count));
    printf("9. Evicted by hand: %u pages\n", (unsigned)count);
    print_pages(table);
    must(rkv_page_table_check(table));
    must(rkv_cache_check(cache));
    printf("   audit: every page is in exactly one state\n");

    rkv_page_table_destroy(table); /* in any order */
    rkv_cache_destroy(cache);
    return 0;
}
