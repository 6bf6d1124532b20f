/* M09: a call on groups or pools that is refused for an output has changed nothing. */
#include "hybrid.h"
#include "outputs.h"

typedef struct world {
    fixture f;
    uint32_t ids[24];
    rkv_tokens tokens;
    rows given;
    rkv_lock_id lock;
} world;

static void open_world(world *w) {
    const uint64_t checkpoints[2] = {24, 0};
    memset(w, 0, sizeof *w);
    w->f = new_hybrid(20, 12, 6);
    count_up(w->ids, 24, 1);
    w->tokens = text(w->ids, 24);
    w->lock = lock_node(&w->f, serve_rows(&w->f, text(w->ids, 16), 4, 8, 16).node);
    w->given = compute(&w->f, 6, 4, checkpoints);
}

static void close_world(world *w) {
    CHECK_OK(rkv_cache_unlock(w->f.cache, w->lock));
    end_hybrid(&w->f);
}

/* One number of all that can be seen of it. */
static uint64_t hash_of(const world *w) {
    static char dump[1 << 16];
    size_t bytes = 0;
    CHECK_OK(rkv_cache_dump(w->f.cache, RKV_DUMP_JSON, dump, sizeof dump, &bytes));
    uint64_t hash = hashed(0, dump, bytes);
    for (uint32_t pool = 0; pool < GROUP_COUNT; pool++) {
        rkv_pool_stats stats = pool_of(&w->f, pool);
        hash = hashed(hash, &stats, sizeof stats);
    }
    for (uint32_t group = WINDOW; group < GROUP_COUNT; group++) {
        rkv_locked_page pages[MOST];
        hash = hashed(hash, pages, locked_pages(&w->f, w->lock, group, pages) * sizeof *pages);
    }
    return hash;
}

static void m09_pools(void) {
    world w;
    open_world(&w);
    rkv_page_table *table = w.f.table;
    BAD_STRUCT_FROM(&w, rkv_pool_stats, offsetof(rkv_pool_stats, retained_page_count), p,
                    rkv_page_table_read_pool_stats(table, 1, p), "out_stats");
    MISPLACED(&w, uint32_t, p, rkv_page_table_allocate_pool_pages(table, 1, 2, p), "pages");
    /* more than are free, so that it would have to evict */
    MISPLACED(&w, uint32_t, p, rkv_page_table_allocate_pool_pages(table, 1, 6, p), "pages");
    close_world(&w);
}

static void m09_groups_of_the_cache(void) {
    world w;
    open_world(&w);
    rkv_cache *cache = w.f.cache;
    const size_t cost = sizeof(rkv_group_cost), held = sizeof(rkv_locked_page),
                 gone = sizeof(rkv_evicted_page);
    BAD_STRUCT(&w, rkv_group_depths, p,
               rkv_cache_probe_groups(cache, NULL, &w.tokens, NULL, cost, 0, OTHER, p),
               "out_depths");
    spare_size = sizeof(rkv_group_depths);
    MISPLACED(&w, size_t, p,
              rkv_cache_probe_groups(cache, NULL, &w.tokens, NULL, cost, 0, p, OTHER),
              "out_count");
    MISALIGNED(&w, rkv_group_cost, p,
               rkv_cache_probe_groups(cache, NULL, &w.tokens, p, cost, 3, OTHER, OTHER), "costs");
    spare_size = 0;
    const size_t numbers = sizeof(rkv_group_stats);
    MISPLACED(&w, size_t, p, rkv_cache_read_group_stats(cache, OTHER, numbers, 3, p), "out_count");
    MISPLACED(&w, rkv_group_stats, p, rkv_cache_read_group_stats(cache, p, numbers, 3, OTHER),
               "groups");
    MISPLACED(&w, size_t, p, rkv_cache_read_locked_pages(cache, w.lock, 1, OTHER, held, 4, p),
              "out_count");
    MISPLACED(&w, rkv_locked_page, p,
               rkv_cache_read_locked_pages(cache, w.lock, 1, p, held, 4, OTHER), "pages");
    MISPLACED(&w, size_t, p, rkv_cache_evict_pool(cache, 1, 2, OTHER, gone, 4, OTHER, p),
              "out_freed_count");
    MISALIGNED(&w, size_t, p, rkv_cache_evict_pool(cache, 1, 2, OTHER, gone, 4, p, OTHER),
               "out_evicted_count");
    MISALIGNED(&w, rkv_evicted_page, p,
               rkv_cache_evict_pool(cache, 1, 2, p, gone, 4, OTHER, OTHER), "evicted");
    close_world(&w);
}

static void m09_insert_of_groups(void) {
    world w;
    open_world(&w);
    rkv_group_row lists[GROUP_COUNT - 1];
    rkv_cache_insert_args args = insert_args(&w.tokens, w.given.pages[SPINE], 6);
    point_rows(lists, &w.given, NULL, 6);
    args.groups = lists;
    args.group_count = GROUP_COUNT - 1;
    args.group_size = sizeof lists[0];
    BAD_STRUCT_FROM(&w, rkv_cache_insert_result,
                    offsetof(rkv_cache_insert_result, claimed_group_page_count), p,
                    rkv_cache_insert(w.f.cache, &args, OTHER, p), "out_result");
    spare_size = sizeof(rkv_cache_insert_result);
    MISALIGNED(&w, uint32_t, p,
               (lists[1].published_pages = p,
                rkv_cache_insert(w.f.cache, &args, NULL, OTHER)),
               "args.groups[1].published_pages");
    spare_size = 0;
    close_world(&w);
}

static void m09_sequences_with_groups(void) {
    world w;
    open_world(&w);
    rkv_cache *cache = w.f.cache;
    rkv_sequence_begin_args args;
    rkv_sequence_info info;
    memset(&args, 0, sizeof args);
    memset(&info, 0, sizeof info);
    args.struct_size = sizeof args;
    info.struct_size = sizeof info;
    rkv_tokens tokens = text(w.ids, 9);
    args.tokens = &tokens;
    CHECK_OK(rkv_sequence_begin(cache, &args, &info));
    rkv_sequence_id id = info.sequence;
    MISPLACED(&w, uint32_t, p, rkv_sequence_read_group_row(cache, id, WINDOW, 0, p, 8, OTHER),
              "pages");
    MISPLACED(&w, size_t, p, rkv_sequence_read_group_row(cache, id, WINDOW, 0, OTHER, 8, p),
              "out_count");
    MISPLACED(&w, size_t, p, rkv_sequence_checkpoint(cache, id, p), "out_copy_count");
    const size_t size = sizeof(rkv_published_group);
    MISPLACED(&w, size_t, p, rkv_sequence_read_published(cache, id, OTHER, size, 2, p),
              "out_count");
    MISPLACED(&w, rkv_published_group, p,
               rkv_sequence_read_published(cache, id, p, size, 2, OTHER), "groups");
    MISALIGNED(&w, size_t, p, rkv_sequence_donate(cache, id, p), "out_checkpoint_count");
    rkv_plan *plan = NULL;
    rkv_plan_row row;
    memset(&row, 0, sizeof row);
    row.sequence = id;
    row.start = info.cached_position_count;
    row.count = 1;
    CHECK_OK(rkv_plan_create(w.f.table, &plan));
    CHECK_OK(rkv_plan_set(plan, &row, 1, sizeof row));
    BAD_STRUCT(&w, rkv_plan_group_arrays, p, rkv_plan_view_group(plan, WINDOW, 0, p),
               "out_arrays");
    rkv_plan_destroy(plan);
    CHECK_OK(rkv_sequence_release(cache, id));
    close_world(&w);
}

int main(void) {
    RUN(m09_sequences_with_groups);
    RUN(m09_pools);
    RUN(m09_groups_of_the_cache);
    RUN(m09_insert_of_groups);
    return check_result();
}
