/* M09: a call that is refused for an output, because the pointer is NULL or misaligned, or the
 * struct's size is not its size, has changed nothing: every function that writes something. */
#include "outputs.h"
#include "runner_fixture.h"
#include "snapshots.h"

/* Everything that calls could change: a cache with nodes, locks, a sequence that runs, one that
 * waits to copy and one that is retained, a plan that is set, and a snapshot cache. */
typedef struct world {
    runner_fixture r;
    fixture *f;
    shelf s;
    uint32_t ids[24], pages[4];
    rkv_tokens tokens;
    rkv_node_id node;
    rkv_sequence_info running;
    rkv_sequence_id retained;
    rkv_snapshot_cache_match_result pinned;
    tensors t;
    /* Another cache that is called, with tiers; NULL for none. */
    rkv_cache *below;
} world;

static void open_world(world *w) {
    memset(w, 0, sizeof *w);
    w->r = new_runner(4, 40, 0);
    w->f = &w->r.f;
    w->s = new_shelf(4, 1000);
    count_up(w->ids, 24, 1);
    w->tokens = text(w->ids, 16);
    w->node = insert(w->f, text(w->ids, 8)).node;
    lock_node(w->f, w->node);
    w->running = begin(w->f, text(w->ids, 14));
    chunk rest = chunk_of(w->running.sequence, w->ids, 8, 6);
    set_plan(&w->r, &rest, 1);
    w->t = new_tensors(&rest, 1, 0);
    uint32_t other[12];
    count_up(other, 12, 100);
    w->retained = serve_and_retain(w->f, text(other, 10));
    insert(w->f, text(other + 4, 8));
    begin(w->f, text(other + 4, 7)); /* is told to copy 2 positions */
    allocate(w->f, 4, w->pages);
    put(&w->s, text(w->ids, 2));
    put(&w->s, text(w->ids, 3));
    w->pinned = get(&w->s, text(w->ids, 3));
}

static void close_world(world *w) {
    let_go(&w->s, w->pinned);
    end_shelf(&w->s);
    free_tensors(&w->t);
    end_runner(&w->r);
}

/* One number of all that can be seen of it. */
static uint64_t hash_of(const world *w) {
    static char dump[1 << 16];
    size_t bytes = 0;
    snapshot counts = take(w->f);
    uint64_t hash = hashed(0, &counts, sizeof counts);
    CHECK_OK(rkv_cache_dump(w->f->cache, RKV_DUMP_JSON, dump, sizeof dump, &bytes));
    hash = hashed(hash, dump, bytes);
    for (uint32_t slot = 0; slot < 8; slot++) {
        uint32_t row[40];
        size_t count = 0;
        if (rkv_page_table_read_row(w->f->table, slot, 0, row, 40, &count) == RKV_STATUS_OK) {
            hash = hashed(hash, row, count * sizeof *row);
        }
    }
    rkv_sequence_info state = query(w->f, w->running.sequence);
    hash = hashed(hash, &state, sizeof state);
    rkv_plan_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    CHECK_OK(rkv_plan_view(w->r.plan, &arrays));
    hash = hashed(hash, &arrays, sizeof arrays);
    hash = hashed(hash, w->r.memory, w->r.memory_count * sizeof *w->r.memory);
    hash = hashed(hash, w->t.out, w->t.count * QUERY_HEADS * HEAD_DIM * sizeof *w->t.out);
    rkv_snapshot_cache_stats stats = shelf_stats(&w->s);
    CHECK_OK(rkv_snapshot_cache_check(w->s.cache));
    if (w->below != NULL) {
        rkv_cache_stats of = {.struct_size = sizeof of};
        CHECK_OK(rkv_cache_read_stats(w->below, &of));
        hash = hashed(hash, &of, sizeof of);
    }
    return hashed(hash, &stats, sizeof stats);
}

static void m09_tokens(void) {
    world w;
    open_world(&w);
    const uint8_t bytes[3] = {1, 2, 3};
    rkv_token_item item = image(2, 7, 3);
    rkv_tokens tokens = with_items(w.ids, 4, &item, 1);
    rkv_tokens_page_digests_args digest = {sizeof digest, 4, NULL, &w.tokens, NULL, 0};
    static float logits[RKV_BIN_COUNT];
    MISPLACED(&w, uint32_t, p, rkv_coord_bin(0.5, p), "out_bin");
    MISPLACED(&w, double, p, rkv_coord_value(1, p), "out_value");
    MISPLACED(&w, uint32_t, p, rkv_size_bin(0.5, p), "out_bin");
    MISPLACED(&w, double, p, rkv_size_value(1, p), "out_value");
    MISPLACED(&w, uint8_t, p, rkv_image_digest(bytes, 3, p), "out_digest");
    MISPLACED(&w, uint32_t, p, rkv_tokens_build(&tokens, p, 8, OTHER, OTHER), "ids");
    MISPLACED(&w, rkv_token_item, p, rkv_tokens_build(&tokens, OTHER, 8, p, OTHER), "items");
    MISPLACED(&w, size_t, p, rkv_tokens_build(&tokens, OTHER, 8, OTHER, p), "out_token_count");
    MISPLACED(&w, rkv_region, p, rkv_tokens_regions(&tokens, p, 2, OTHER), "regions");
    MISPLACED(&w, size_t, p, rkv_tokens_regions(&tokens, OTHER, 2, p), "out_count");
    MISPLACED(&w, size_t, p, rkv_tokens_position_count(&tokens, p), "out_position_count");
    MISPLACED(&w, rkv_page_digest, p, rkv_tokens_page_digests(&digest, p, 4, OTHER), "digests");
    MISPLACED(&w, size_t, p, rkv_tokens_page_digests(&digest, OTHER, 4, p), "out_count");
    MISPLACED(&w, uint32_t, p,
              rkv_spatial_decode(RKV_TOKEN_COORD, logits, RKV_BIN_COUNT, p, OTHER), "out_bin");
    MISALIGNED(&w, double, p,
               rkv_spatial_decode(RKV_TOKEN_COORD, logits, RKV_BIN_COUNT, OTHER, p), "out_value");
    close_world(&w);
}

static void m09_page_table(void) {
    world w;
    open_world(&w);
    rkv_page_table *table = w.f->table;
    rkv_page_table_config config;
    CHECK_OK(rkv_page_table_config_init(&config, sizeof config));
    config.page_count = 8;
    const uint64_t positions[2] = {0, 5};
    rkv_page_table_batch_row row = {w.running.slot, 9};
    uint32_t slot = w.running.slot;
    rkv_page_table_batch_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.struct_size = sizeof arrays;
    rkv_page_table_batch_arrays *a = &arrays;
    MISPLACED(&w, rkv_page_table_config, p, rkv_page_table_config_init(p, sizeof *p), "config");
    MISPLACED(&w, rkv_page_table *, p, rkv_page_table_create(&config, p), "out_table");
    BAD_STRUCT(&w, rkv_page_table_stats, p, rkv_page_table_read_stats(table, p), "out_stats");
    MISPLACED(&w, uint32_t, p, rkv_page_table_allocate_slot(table, p), "out_slot");
    MISPLACED(&w, uint32_t, p, rkv_page_table_allocate_pages(table, 2, p), "pages");
    /* more than are free, so that it would have to evict */
    MISPLACED(&w, uint32_t, p, rkv_page_table_allocate_pages(table, 24, p), "pages");
    MISPLACED(&w, bool, p, rkv_page_table_can_reserve(table, slot, 9, p), "out_can");
    MISPLACED(&w, size_t, p, rkv_page_table_row_capacity(table, slot, p), "out_position_count");
    MISPLACED(&w, uint32_t, p, rkv_page_table_read_row(table, slot, 0, p, 4, OTHER), "pages");
    MISPLACED(&w, size_t, p, rkv_page_table_read_row(table, slot, 0, OTHER, 4, p), "out_count");
    MISPLACED(&w, int64_t, p, rkv_page_table_read_slot_mapping(table, slot, positions, 2, p),
              "out_mapping");
    arrays.indptr = OTHER;
    arrays.last_page_len = OTHER;
    arrays.indices = OTHER;
    arrays.indices_capacity = 8;
    MISPLACED(&w, size_t, p, rkv_page_table_read_batch(table, &row, 1, sizeof row, a, p),
              "out_index_count");
    MISPLACED(&w, int32_t, p,
              (a->indptr = p, rkv_page_table_read_batch(table, &row, 1, sizeof row, a, OTHER)),
              "arrays.indptr");
    arrays.indptr = OTHER;
    MISPLACED(&w, int32_t, p,
              (a->indices = p, rkv_page_table_read_batch(table, &row, 1, sizeof row, a, OTHER)),
              "arrays.indices");
    arrays.indices = OTHER;
    MISPLACED(&w, int32_t, p,
              (a->last_page_len = p,
               rkv_page_table_read_batch(table, &row, 1, sizeof row, a, OTHER)),
              "arrays.last_page_len");
    close_world(&w);
}

static void m09_cache(void) {
    world w;
    open_world(&w);
    rkv_cache *cache = w.f->cache;
    rkv_page_table *bare = new_table(2, 8, 2);
    rkv_cache_insert_args args = insert_args(&w.tokens, w.pages, 4);
    MISPLACED(&w, rkv_cache_config, p, rkv_cache_config_init(p, sizeof *p), "config");
    MISPLACED(&w, rkv_cache *, p, rkv_cache_create(bare, NULL, p), "out_cache");
    MISPLACED(&w, size_t, p, rkv_cache_evict(cache, 2, OTHER, 2, p), "out_count");
    MISPLACED(&w, uint32_t, p, rkv_cache_evict(cache, 2, p, 2, OTHER), "pages");
    MISPLACED(&w, bool, p, rkv_cache_contains_page(cache, 1, p), "out_contains");
    rkv_cache_clear_args everything = {sizeof everything, RKV_CLEAR_EVERYTHING, NULL};
    BAD_STRUCT(&w, rkv_cache_clear_result, p, rkv_cache_clear(cache, &everything, p),
               "out_result");
    spare_size = sizeof(rkv_cache_match_result);
    for (uint32_t flags = 0; flags <= RKV_MATCH_LOCK; flags++) {
        BAD_STRUCT_FROM(&w, rkv_cache_match_result,
                        offsetof(rkv_cache_match_result, known_position_count), p,
                        rkv_cache_match(cache, NULL, &w.tokens, flags, NULL, 0, p), "out_match");
        MISPLACED(&w, uint32_t, p,
                  rkv_cache_match(cache, NULL, &w.tokens, flags, p, 8, OTHER), "pages");
    }
    spare_size = 0;
    MISPLACED(&w, size_t, p, rkv_cache_probe(cache, NULL, &w.tokens, OTHER, p),
              "out_position_count");
    MISALIGNED(&w, size_t, p, rkv_cache_probe(cache, NULL, &w.tokens, p, OTHER),
               "out_token_count");
    BAD_STRUCT_FROM(&w, rkv_cache_insert_result,
                    offsetof(rkv_cache_insert_result, claimed_group_page_count), p,
                    rkv_cache_insert(cache, &args, OTHER, p), "out_result");
    spare_size = sizeof(rkv_cache_insert_result);
    MISALIGNED(&w, uint32_t, p, rkv_cache_insert(cache, &args, p, OTHER), "published_pages");
    spare_size = 0;
    BAD_STRUCT(&w, rkv_node_info, p, rkv_node_read_info(cache, w.node, p), "out_info");
    MISPLACED(&w, rkv_lock_id, p, rkv_cache_lock(cache, w.node, p), "out_lock");
    MISPLACED(&w, uint32_t, p, rkv_node_read_pages(cache, w.node, p, 4, OTHER), "pages");
    MISPLACED(&w, size_t, p, rkv_node_read_pages(cache, w.node, OTHER, 4, p), "out_count");
    rkv_node_id root = root_of(w.f, w.node);
    MISPLACED(&w, rkv_node_id, p, rkv_node_read_children(cache, root, p, 4, OTHER), "children");
    MISPLACED(&w, size_t, p, rkv_node_read_children(cache, root, OTHER, 4, p), "out_count");
    BAD_STRUCT_FROM(&w, rkv_cache_stats, offsetof(rkv_cache_stats, prefix_count), p,
                    rkv_cache_read_stats(cache, p), "out_stats");
    MISPLACED(&w, char, p, rkv_cache_dump(cache, RKV_DUMP_JSON, p, 64, OTHER), "buffer");
    MISPLACED(&w, size_t, p, rkv_cache_dump(cache, RKV_DUMP_JSON, OTHER, 64, p), "out_bytes");
    uint32_t page;
    rkv_shortage shortage;
    shortage.struct_size = sizeof shortage;
    CHECK_STATUS(rkv_page_table_allocate_pages(bare, 8, &page), RKV_STATUS_OUT_OF_PAGES);
    BAD_STRUCT(&w, rkv_shortage, p, rkv_last_shortage(p), "out_shortage");
    BAD_STRUCT(&w, rkv_index_memory_stats, p, rkv_read_index_memory_stats(p), "out_stats");
    CHECK_OK(rkv_last_shortage(&shortage));
    CHECK_EQ(shortage.needed_page_count, 8);
    rkv_page_table_destroy(bare);
    close_world(&w);
}

static void m09_many(void) {
    world w;
    open_world(&w);
    rkv_cache *cache = w.f->cache;
    rkv_sequence_id running = w.running.sequence;
    rkv_sequence_begin_args begin_args = sequence_args(&w.tokens), *b = &begin_args;
    rkv_sequence_append_item append = {running, w.ids, 1, NULL}, *a = &append;
    rkv_sequence_publish_item publish = {running, 14}, *d = &publish;
    rkv_cache_match_item find = {NULL, &w.tokens, NULL, 0, RKV_MATCH_LOCK, 0}, *m = &find;
    rkv_cache_probe_item ask = {NULL, &w.tokens}, *k = &ask;
    const size_t state = sizeof(rkv_sequence_info), result = sizeof(rkv_sequence_publish_result),
                 match = sizeof(rkv_cache_match_result), found = sizeof(rkv_cache_probe_result);
    MISPLACED(&w, rkv_sequence_info, p,
              rkv_sequence_begin_many(cache, b, 1, sizeof *b, p, state, OTHER), "states");
    MISPLACED(&w, rkv_status, p,
              rkv_sequence_begin_many(cache, b, 1, sizeof *b, OTHER, state, p), "statuses");
    MISPLACED(&w, rkv_status, p, rkv_sequence_append_many(cache, a, 1, sizeof *a, p), "statuses");
    MISALIGNED(&w, rkv_sequence_publish_result, p,
               rkv_sequence_publish_many(cache, d, 1, sizeof *d, p, result, OTHER), "results");
    MISPLACED(&w, rkv_status, p,
              rkv_sequence_publish_many(cache, d, 1, sizeof *d, OTHER, result, p), "statuses");
    MISPLACED(&w, rkv_status, p, rkv_sequence_release_many(cache, &running, 1, p), "statuses");
    MISPLACED(&w, rkv_cache_match_result, p,
              rkv_cache_match_many(cache, m, 1, sizeof *m, p, match, OTHER), "matches");
    MISPLACED(&w, rkv_status, p,
              rkv_cache_match_many(cache, m, 1, sizeof *m, OTHER, match, p), "statuses");
    MISPLACED(&w, rkv_cache_probe_result, p,
              rkv_cache_probe_many(cache, k, 1, sizeof *k, p, found, OTHER), "results");
    MISPLACED(&w, rkv_status, p,
              rkv_cache_probe_many(cache, k, 1, sizeof *k, OTHER, found, p), "statuses");
    close_world(&w);
}

static void m09_journal(void) {
    world w;
    open_world(&w);
    rkv_cache *cache = w.f->cache;
    static rkv_journal_record record;
    static rkv_journal_item item;
    rkv_journal_buffers buffers, *to = &buffers;
    memset(&buffers, 0, sizeof buffers);
    buffers.struct_size = sizeof buffers;
    BAD_STRUCT(&w, rkv_cache_read_journal_result, p, rkv_cache_read_journal(cache, 0, to, p),
               "out_result");
    BAD_STRUCT(&w, rkv_cache_read_journal_result, p,
               rkv_page_table_read_journal(w.f->table, 0, to, p), "out_result");
    BAD_STRUCT(&w, rkv_cache_read_contents_result, p, rkv_cache_read_contents(cache, 0, to, p),
               "out_result");
    buffers.record_size = sizeof record;
    buffers.item_size = sizeof item;
    buffers.record_capacity = buffers.item_capacity = 1;
    buffers.page_capacity = buffers.token_capacity = 4;
#define GIVEN(x) ((x).records = &record, (x).pages = OTHER, (x).tokens = OTHER, (x).items = &item)
    spare_size = sizeof(rkv_cache_read_journal_result);
    GIVEN(buffers);
    MISPLACED(&w, rkv_journal_record, p,
              (to->records = p, rkv_cache_read_journal(cache, 0, to, OTHER)),
              "buffers.records");
    GIVEN(buffers);
    MISPLACED(&w, uint32_t, p,
              (to->pages = p, rkv_cache_read_journal(cache, 0, to, OTHER)),
              "buffers.pages");
    GIVEN(buffers);
    MISPLACED(&w, uint32_t, p,
              (to->tokens = p, rkv_cache_read_journal(cache, 0, to, OTHER)),
              "buffers.tokens");
    GIVEN(buffers);
    MISPLACED(&w, rkv_journal_item, p,
              (to->items = p, rkv_cache_read_journal(cache, 0, to, OTHER)),
              "buffers.items");
    spare_size = sizeof(rkv_cache_read_contents_result);
    GIVEN(buffers);
    MISPLACED(&w, rkv_journal_record, p,
              (to->records = p, rkv_cache_read_contents(cache, 0, to, OTHER)),
              "buffers.records");
    GIVEN(buffers);
    MISPLACED(&w, uint32_t, p,
              (to->pages = p, rkv_cache_read_contents(cache, 0, to, OTHER)),
              "buffers.pages");
    GIVEN(buffers);
    MISPLACED(&w, uint32_t, p,
              (to->tokens = p, rkv_cache_read_contents(cache, 0, to, OTHER)),
              "buffers.tokens");
    GIVEN(buffers);
    MISPLACED(&w, rkv_journal_item, p,
              (to->items = p, rkv_cache_read_contents(cache, 0, to, OTHER)),
              "buffers.items");
#undef GIVEN
    spare_size = 0;
    close_world(&w);
}

static void m09_events(void) {
    world w;
    open_world(&w);
    rkv_event_encoder *encoder = NULL;
    rkv_page_table *table = new_table(4, 8, 2);
    rkv_cache *cache = NULL;
    rkv_cache_config config;
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.journal_bytes = 4096;
    CHECK_OK(rkv_cache_create(table, &config, &cache));
    MISPLACED(&w, rkv_event_encoder *, p, rkv_event_encoder_create(cache, NULL, p), "out_encoder");
    CHECK_OK(rkv_event_encoder_create(cache, NULL, &encoder));
    BAD_STRUCT(&w, rkv_event_batch, p,
               rkv_event_encoder_encode(encoder, 0, OTHER, sizeof spare, p), "out_batch");
    spare_size = sizeof(rkv_event_batch);
    MISPLACED(&w, uint8_t, p, rkv_event_encoder_encode(encoder, 0, p, 8, OTHER), "buffer");
    spare_size = 0;
    rkv_event_encoder_destroy(encoder);
    rkv_tier_config tiers;
    MISPLACED(&w, rkv_tier_config, p, rkv_tier_config_init(p, sizeof *p), "config");
    BAD_STRUCT_FROM(&w, rkv_tier_stats, offsetof(rkv_tier_stats, remote), p,
                    rkv_cache_read_tier_stats(cache, p), "out_stats");
    CHECK_OK(rkv_tier_config_init(&tiers, sizeof tiers));
    tiers.page_bytes = tiers.host_bytes = 64;
    CHECK_OK(rkv_cache_attach_tiers(cache, &tiers));
    w.below = cache;
    BAD_STRUCT(&w, rkv_cache_poll_result, p, rkv_cache_poll(cache, NULL, 0, 0, NULL, 0, 0, p),
               "out_result");
    spare_size = sizeof(rkv_cache_poll_result);
    MISPLACED(&w, rkv_copy_job, p, rkv_cache_poll(cache, p, sizeof *p, 4, NULL, 0, 0, OTHER),
              "jobs");
    MISPLACED(&w, rkv_fetch_end, p, rkv_cache_poll(cache, NULL, 0, 0, p, sizeof *p, 4, OTHER),
              "ends");
    spare_size = 0;
    BAD_STRUCT_FROM(&w, rkv_sequence_fetch_result,
                    offsetof(rkv_sequence_fetch_result, asked_position_count), p,
                    rkv_sequence_fetch(cache, 1, 0, 0, p),
               "out_fetch");
    uint32_t few[3] = {1, 2, 3};
    rkv_tokens expected = text(few, 3);
    BAD_STRUCT(&w, rkv_cache_prefetch_result, p,
               rkv_cache_prefetch(cache, NULL, &expected, 1, 0, p), "out_prefetch");
    MISPLACED(&w, uint64_t, p, rkv_sequence_agree(cache, 1, 0, p), "out_position_count");
    rkv_cache_destroy(cache);
    rkv_page_table_destroy(table);
    close_world(&w);
}

static void m09_sequences(void) {
    world w;
    open_world(&w);
    rkv_cache *cache = w.f->cache;
    rkv_sequence_id running = w.running.sequence;
    rkv_sequence_begin_args begin_with = sequence_args(&w.tokens);
    rkv_sequence_continue_args go_on = continue_args(w.retained, &w.tokens), again = go_on;
    again.parent = 1;
    again.all_tokens = &w.tokens;
    rkv_sequence_fork_args fork_into_two = {sizeof fork_into_two, 0, running, 2, 0};
    const size_t first_info = offsetof(rkv_sequence_info, known_position_count);
    BAD_STRUCT_FROM(&w, rkv_sequence_info, first_info, p,
                    rkv_sequence_begin(cache, &begin_with, p), "out_state");
    BAD_STRUCT_FROM(&w, rkv_sequence_info, first_info, p,
                    rkv_sequence_read_info(cache, running, p), "out_state");
    MISALIGNED(&w, rkv_sequence_publish_result, p, rkv_sequence_publish(cache, running, 14, p),
               "out_result");
    MISSIZED(&w, rkv_sequence_publish_result, offsetof(rkv_sequence_publish_result, node), p,
             rkv_sequence_publish(cache, running, 14, p), "out_result");
    BAD_STRUCT_FROM(&w, rkv_sequence_info, first_info, p,
                    rkv_sequence_continue(cache, &go_on, p), "out_state");
    BAD_STRUCT_FROM(&w, rkv_sequence_info, first_info, p,
                    rkv_sequence_continue(cache, &again, p), "out_state");
    MISPLACED(&w, rkv_page_copy, p,
              rkv_sequence_read_copies(cache, running, p, sizeof(rkv_page_copy), 1, OTHER),
              "copies");
    MISPLACED(&w, size_t, p,
              rkv_sequence_read_copies(cache, running, NULL, 0, 0, p), "out_count");
    MISPLACED(&w, rkv_sequence_fork_child, p,
              rkv_sequence_fork(cache, &fork_into_two, p, sizeof(rkv_sequence_fork_child)),
              "out_children");
    MISPLACED(&w, bool, p, rkv_sequence_retain(cache, running, p), "out_retained");
    MISPLACED(&w, size_t, p, rkv_cache_drop_retained(cache, SIZE_MAX, p), "out_page_count");
    MISPLACED(&w, size_t, p, rkv_cache_drop_retained_pool(cache, 0, SIZE_MAX, p),
              "out_page_count");
    MISPLACED(&w, rkv_namespace, p,
              rkv_cache_read_namespaces(cache, p, sizeof(rkv_namespace), NULL, 4, OTHER), "spaces");
    MISALIGNED(&w, rkv_node_id, p,
               rkv_cache_read_namespaces(cache, OTHER, sizeof(rkv_namespace), p, 4, OTHER),
               "roots")
    MISPLACED(&w, size_t, p,
              rkv_cache_read_namespaces(cache, OTHER, sizeof(rkv_namespace), NULL, 4, p),
              "out_count");
    MISPLACED(&w, rkv_sequence_id, p, rkv_cache_read_retained(cache, p, 4, OTHER), "sequences");
    MISPLACED(&w, size_t, p, rkv_cache_read_retained(cache, OTHER, 4, p), "out_count");
    close_world(&w);
}

static void m09_runner(void) {
    world w;
    open_world(&w);
    rkv_runner *runner = w.r.runner;
    rkv_runner_config config = small_runner();
    MISPLACED(&w, rkv_runner_config, p, rkv_runner_config_init(p, sizeof *p), "config");
    MISALIGNED(&w, uint64_t, p, rkv_runner_supports(&config, 4, p), "out_page_bytes");
    MISPLACED(&w, rkv_runner *, p, rkv_runner_create(w.f->table, &config, p), "out_runner");
    BAD_STRUCT(&w, rkv_runner_stats, p, rkv_runner_read_stats(runner, p), "out_stats");
    MISPLACED(&w, rkv_runner_kv_memory, p,
              rkv_runner_read_kv_memory(runner, 0, p, sizeof(rkv_runner_kv_memory)), "out_memory");
    MISPLACED(&w, rkv_plan *, p, rkv_plan_create(w.f->table, p), "out_plan");
    BAD_STRUCT(&w, rkv_plan_arrays, p, rkv_plan_view(w.r.plan, p), "out_arrays");
    rkv_runner_append_prefill_args args = layer_args(&w.t, 0), *a = &args;
    MISPLACED(&w, float, p,
              (a->out = p, rkv_runner_append_prefill(runner, w.r.plan, a)), "out");
    args.out = w.t.out;
    MISALIGNED(&w, float, p,
               (a->lse = p, rkv_runner_append_prefill(runner, w.r.plan, a)), "lse");
    const void *outs[1] = {w.t.q};
    const float *lses[1] = {w.t.lse};
    rkv_runner_merge_states_args merge = {sizeof merge, 1, 6, outs, lses, w.t.out, w.t.lse, NULL};
    rkv_runner_merge_states_args *m = &merge;
    MISPLACED(&w, float, p, (m->out = p, rkv_runner_merge_states(runner, m)), "out");
    merge.out = w.t.out;
    MISALIGNED(&w, float, p, (m->lse = p, rkv_runner_merge_states(runner, m)), "lse");
    close_world(&w);
}

static void m09_snapshots(void) {
    world w;
    open_world(&w);
    rkv_snapshot_cache *cache = w.s.cache;
    rkv_tokens longer = text(w.ids, 4), known = text(w.ids, 2);
    rkv_snapshot_cache_insert_args args = shelf_args(&w.s, &longer, 1);
    MISPLACED(&w, rkv_snapshot_cache_config, p, rkv_snapshot_cache_config_init(p, sizeof *p),
              "config");
    MISPLACED(&w, rkv_snapshot_cache *, p, rkv_snapshot_cache_create(NULL, p), "out_cache");
    BAD_STRUCT(&w, rkv_snapshot_cache_stats, p, rkv_snapshot_cache_read_stats(cache, p),
               "out_stats");
    MISALIGNED(&w, rkv_snapshot_cache_insert_result, p, rkv_snapshot_cache_insert(cache, &args, p),
               "out_result");
    MISSIZED(&w, rkv_snapshot_cache_insert_result, sizeof(rkv_snapshot_cache_insert_result), p,
             rkv_snapshot_cache_insert(cache, &args, p), "out_result");
    BAD_STRUCT_FROM(&w, rkv_snapshot_cache_match_result,
                    offsetof(rkv_snapshot_cache_match_result, common_token_count), p,
                    rkv_snapshot_cache_match(cache, NULL, &longer, 0, p), "out_match");
    MISPLACED(&w, size_t, p, rkv_snapshot_cache_probe(cache, NULL, &longer, p),
              "out_token_count");
    MISPLACED(&w, rkv_snapshot_tier_config, p, rkv_snapshot_tier_config_init(p, sizeof *p),
              "config");
    BAD_STRUCT_FROM(&w, rkv_snapshot_tier_stats, offsetof(rkv_snapshot_tier_stats, remote), p,
                    rkv_snapshot_cache_read_tier_stats(cache, p), "out_stats");
    BAD_STRUCT(&w, rkv_snapshot_cache_fetch_result, p,
               rkv_snapshot_cache_fetch(cache, NULL, &longer, 0, p), "out_fetch");
    BAD_STRUCT_FROM(&w, rkv_snapshot_cache_match_result,
                    offsetof(rkv_snapshot_cache_match_result, common_token_count), p,
                    rkv_snapshot_cache_take(cache, 1, p), "out_match");
    MISPLACED(&w, size_t, p, rkv_snapshot_cache_read_parts(cache, w.pinned.pin, NULL, 0, 0, p),
              "out_count");
    MISALIGNED(&w, rkv_snapshot_part, p,
               rkv_snapshot_cache_read_parts(cache, w.pinned.pin, p, sizeof *p, 2, OTHER), "parts");
    /* whose output is one byte, so that no pointer to it is misaligned */
    bool removed = false;
    CHECK_OK(rkv_snapshot_cache_remove(cache, NULL, &known, &removed));
    CHECK(removed);
    CHECK_EQ(w.s.destroyed[2], 0); /* a snapshot that was refused stays the caller's */
    put_args(&w.s, &args);
    close_world(&w);
}

int main(void) {
    RUN_BOTH(m09_tokens);
    RUN_BOTH(m09_page_table);
    RUN_BOTH(m09_cache);
    RUN_BOTH(m09_many);
    RUN_BOTH(m09_journal);
    RUN_BOTH(m09_events);
    RUN_BOTH(m09_sequences);
    RUN_BOTH(m09_runner);
    RUN_BOTH(m09_snapshots);
    return check_result();
}
