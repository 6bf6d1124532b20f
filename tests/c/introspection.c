/* What can be seen from outside: nodes, pages, children, counters, dumps. */
#include "fixture.h"

static void node_info_tells_the_path(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[12];
    count_up(ids, 12, 1);
    rkv_node_id top = insert(&f, text(ids, 4)).node;
    rkv_node_id leaf = insert(&f, text(ids, 12)).node;
    rkv_node_info info = info_of(&f, leaf);
    CHECK(info.struct_size == sizeof info && info.parent == top);
    CHECK(info.position_count == 8 && info.page_count == 4 && info.end_position == 12);
    CHECK(info.child_count == 0 && info.lock_count == 0 && info.hit_count == 0);
    info = info_of(&f, top);
    CHECK(info.position_count == 4 && info.page_count == 2 && info.end_position == 4);
    CHECK_EQ(info.child_count, 1);
    rkv_node_info root = info_of(&f, info.parent);
    CHECK(root.parent == 0 && root.page_count == 0 && root.position_count == 0);
    CHECK(root.end_position == 0 && root.child_count == 1);
    end_fixture(&f);
}

/* K05, K09: a match is one moment for all it covers; a probe and an insert over it are none. */
static void k09_recency_is_a_logical_clock(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_node_id top = insert(&f, text(ids, 4)).node;
    rkv_node_id leaf = insert(&f, text(ids, 8)).node;
    CHECK(info_of(&f, leaf).last_access > info_of(&f, top).last_access);
    match_of(&f, text(ids, 8));
    uint64_t time = info_of(&f, leaf).last_access;
    CHECK_EQ(info_of(&f, top).last_access, time);
    CHECK(info_of(&f, top).hit_count == 1 && info_of(&f, leaf).hit_count == 1);
    probe(&f, text(ids, 8));
    insert(&f, text(ids, 8));
    rkv_lock_id leaf_lock = lock_node(&f, leaf);
    CHECK_OK(rkv_cache_unlock(f.cache, leaf_lock));
    CHECK_EQ(info_of(&f, leaf).last_access, time);
    match_of(&f, text(ids, 4));
    CHECK(info_of(&f, top).last_access > time && info_of(&f, top).hit_count == 2);
    CHECK(info_of(&f, leaf).last_access == time && info_of(&f, leaf).hit_count == 1);
    end_fixture(&f);
}

static void node_pages_the_two_call_way(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[8], pages[4], got[5] = {77, 77, 77, 77, 77};
    size_t count = 99;
    count_up(ids, 8, 1);
    allocate(&f, 4, pages);
    rkv_node_id node = insert_pages(&f, NULL, text(ids, 8), pages, 4).node;
    CHECK_OK(rkv_node_read_pages(f.cache, node, NULL, 0, &count));
    CHECK_EQ(count, 4);
    count = 99;
    CHECK_STATUS(rkv_node_read_pages(f.cache, node, got, 3, &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(count == 4 && got[0] == 77);
    CHECK_OK(rkv_node_read_pages(f.cache, node, got, 5, &count));
    CHECK(count == 4 && memcmp(got, pages, sizeof pages) == 0 && got[4] == 77);
    CHECK_OK(rkv_node_read_pages(f.cache, root_of(&f, node), got, 5, &count));
    CHECK_EQ(count, 0);
    end_fixture(&f);
}

/* Children come in the order of their keys, however many and however they were inserted. */
static void node_children_are_ordered(void) {
    enum { COUNT = 100 };
    fixture f = new_fixture(1, COUNT + 2);
    rkv_node_id nodes[COUNT], got[COUNT + 1];
    uint32_t ids[2] = {1, 0};
    size_t count = 99;
    rkv_node_id parent = insert(&f, text(ids, 1)).node;
    for (uint32_t i = 0; i < COUNT; i++) {
        ids[1] = (i * 37) % COUNT;
        nodes[ids[1]] = insert(&f, text(ids, 2)).node;
    }
    CHECK_OK(rkv_node_read_children(f.cache, parent, NULL, 0, &count));
    CHECK_EQ(count, COUNT);
    got[0] = 77;
    count = 99;
    CHECK_STATUS(rkv_node_read_children(f.cache, parent, got, COUNT - 1, &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(count == COUNT && got[0] == 77);
    got[COUNT] = 77;
    CHECK_OK(rkv_node_read_children(f.cache, parent, got, COUNT + 1, &count));
    CHECK(count == COUNT && memcmp(got, nodes, sizeof nodes) == 0 && got[COUNT] == 77);
    CHECK_OK(rkv_node_read_children(f.cache, nodes[5], got, COUNT, &count));
    CHECK_EQ(count, 0);
    end_fixture(&f);
}

static void cache_counters(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[16], fork_ids[16];
    count_up(ids, 16, 1);
    memcpy(fork_ids, ids, sizeof ids);
    count_up(fork_ids + 6, 10, 100);
    rkv_cache_stats stats = cache_stats(&f);
    CHECK(stats.lookup_count == 0 && stats.inserted_page_count == 0 && stats.node_count == 0);
    insert(&f, text(ids, 16));
    insert(&f, text(ids, 16));
    match_of(&f, text(fork_ids, 15));
    rkv_sequence_info state = begin(&f, text(fork_ids, 16));
    stats = cache_stats(&f);
    CHECK(stats.cached_page_count == 4 && stats.sequence_count == 1);
    CHECK(stats.namespace_count == 1 && stats.node_count == 3 && stats.image_count == 0);
    CHECK_EQ(stats.lookup_count, 2);
    CHECK_EQ(stats.lookup_position_count, 31);
    CHECK_EQ(stats.hit_position_count, 12);
    CHECK_EQ(stats.partial_hit_position_count, 4);
    CHECK_EQ(stats.inserted_page_count, 4);
    CHECK_EQ(stats.duplicate_page_count, 4);
    CHECK_EQ(stats.evicted_page_count, 0);
    CHECK(stats.index_bytes > 0);
    CHECK_OK(rkv_sequence_confirm_copies(f.cache, state.sequence));
    publish(&f, state.sequence, 16);
    release(&f, state.sequence);
    evict(&f, 3);
    stats = cache_stats(&f);
    CHECK_EQ(stats.inserted_page_count, 7);
    CHECK_EQ(stats.evicted_page_count, 3);
    CHECK(stats.sequence_count == 0 && stats.cached_page_count == 4);
    end_fixture(&f);
}

static void page_table_counters(void) {
    fixture f = new_fixture_with(4, 32, 3, 0);
    rkv_page_table_stats stats = table_stats(&f);
    CHECK(stats.struct_size == sizeof stats && stats.page_size == 4);
    CHECK(stats.total_page_count == 32 && stats.free_page_count == 32);
    CHECK(stats.slot_count == 3 && stats.free_slot_count == 3 && stats.memory_bytes > 0);
    uint32_t slot = 0;
    CHECK_OK(rkv_page_table_allocate_slot(f.table, &slot));
    CHECK_OK(rkv_page_table_reserve(f.table, slot, 5));
    stats = table_stats(&f);
    CHECK(stats.free_slot_count == 2 && stats.private_page_count == 2);
    end_fixture(&f);
}

static void dump_in(const fixture *f, uint32_t format, const char *begins) {
    static char buffer[1 << 16];
    size_t need = 0, again = 0;
    CHECK_OK(rkv_cache_dump(f->cache, format, NULL, 0, &need));
    CHECK(need > 1 && need < sizeof buffer);
    memset(buffer, 'x', sizeof buffer);
    CHECK_STATUS(rkv_cache_dump(f->cache, format, buffer, need - 1, &again),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(again == need && buffer[0] == 'x');
    CHECK_OK(rkv_cache_dump(f->cache, format, buffer, need, &again));
    CHECK_EQ(again, need);
    CHECK_EQ(strlen(buffer), need - 1);
    CHECK_EQ(buffer[need], 'x');
    CHECK(strncmp(buffer, begins, strlen(begins)) == 0);
    /* brackets close */
    int depth = 0, lowest = 0;
    for (const char *c = buffer; *c != 0; c++) {
        depth += (*c == '{') - (*c == '}');
        lowest = depth < lowest ? depth : lowest;
    }
    CHECK(depth == 0 && lowest == 0);
}

static void dump_is_text(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    dump_in(&f, RKV_DUMP_JSON, "{");
    dump_in(&f, RKV_DUMP_DOT, "digraph");
    insert(&f, text(ids, 8));
    match_of(&f, text(ids, 4));
    rkv_namespace space = new_namespace();
    space.flags = RKV_NAMESPACE_LORA | RKV_NAMESPACE_IMAGE;
    space.epoch = 7;
    insert_in(&f, &space, text(ids, 8));
    dump_in(&f, RKV_DUMP_JSON, "{");
    dump_in(&f, RKV_DUMP_DOT, "digraph");
    size_t need = 77;
    CHECK_STATUS(rkv_cache_dump(f.cache, 2, NULL, 0, &need), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("format") && need == 77);
    end_fixture(&f);
}

int main(void) {
    RUN(node_info_tells_the_path);
    RUN_BOTH(k09_recency_is_a_logical_clock);
    RUN(node_pages_the_two_call_way);
    RUN(node_children_are_ordered);
    RUN(cache_counters);
    RUN_BOTH(page_table_counters);
    RUN_BOTH(dump_is_text);
    return check_result();
}
