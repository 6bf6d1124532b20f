/* K26: the test plan of the multimodal radix cache, case by case. Page size 1 as there; what the
 * plan does with a runtime is done with sequences. D12 compares logits and needs a model. */
#include "fixture.h"

static uint32_t new_slot(const fixture *f) {
    uint32_t slot = 0;
    CHECK_OK(rkv_page_table_allocate_slot(f->table, &slot));
    return slot;
}

static void map(const fixture *f, uint32_t slot, size_t at, const uint32_t *pages, size_t count) {
    CHECK_OK(rkv_page_table_map(f->table, slot, at, pages, count));
}

static void check_conserved(const fixture *f) {
    check_sane(f);
    CHECK_EQ(free_pages(f) + cached_pages(f), table_stats(f).total_page_count);
}

static rkv_cache_insert_result insert_from(const fixture *f, rkv_tokens tokens,
                                           const uint32_t *pages,
                                     size_t page_count, const rkv_cache_match_result *match) {
    rkv_cache_insert_args args = insert_args(&tokens, pages, page_count);
    rkv_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    args.from_node = match->node;
    args.from_token_index = match->token_count;
    args.from_page_index = match->page_count;
    CHECK_OK(rkv_cache_insert(f->cache, &args, NULL, &result));
    return result;
}

static rkv_cache_match_result match_into(const fixture *f, rkv_tokens tokens, uint32_t *pages,
                            size_t capacity) {
    rkv_cache_match_result match = new_match();
    CHECK_OK(rkv_cache_match(f->cache, NULL, &tokens, 0, pages, capacity, &match));
    return match;
}

static void k26_a1_split_correctness(void) {
    fixture f = new_fixture(1, 16);
    const uint32_t ids[4] = {1, 2, 3, 4}, query_ids[3] = {1, 2, 99};
    uint32_t pages[4], got[4];
    size_t count = 0;
    rkv_node_id child = 0;
    allocate(&f, 4, pages);
    insert_pages(&f, NULL, text(ids, 4), pages, 4);
    rkv_cache_match_result match = match_into(&f, text(query_ids, 3), got, 4);
    CHECK_EQ(match.token_count, 2);
    CHECK(match.page_count == 2 && memcmp(got, pages, 2 * sizeof *got) == 0);
    CHECK_EQ(info_of(&f, match.node).position_count, 2);
    CHECK_OK(rkv_node_read_children(f.cache, match.node, &child, 1, &count));
    CHECK_EQ(count, 1);
    CHECK_EQ(info_of(&f, child).position_count, 2);
    CHECK_OK(rkv_node_read_pages(f.cache, child, got, 4, &count));
    CHECK(count == 2 && memcmp(got, pages + 2, 2 * sizeof *got) == 0);
    end_fixture(&f);
}

static void k26_a2_image_kv_length(void) {
    fixture f = new_fixture(1, 800);
    const uint32_t ids[4] = {1, 0, 11, 12};
    rkv_token_item picture = image(1, 1, 729);
    CHECK_EQ(insert(&f, with_items(ids, 4, &picture, 1)).claimed_page_count, 732);
    static uint32_t pages[800];
    rkv_cache_match_result match = match_into(&f, with_items(ids, 4, &picture, 1), pages, 800);
    CHECK(match.position_count == 732 && match.page_count == 732 && match.token_count == 4);
    match = match_of(&f, with_items(ids, 2, &picture, 1));
    CHECK(match.position_count == 730 && match.token_count == 2);
    end_fixture(&f);
}

static void k26_a3_lock_invariants(void) {
    fixture f = new_fixture(1, 16);
    const uint32_t ids[3] = {1, 2, 3};
    rkv_node_id node = insert(&f, text(ids, 3)).node, parent = info_of(&f, node).parent;
    rkv_lock_id node_lock = lock_node(&f, node);
    CHECK(info_of(&f, node).lock_count == 1 && info_of(&f, parent).lock_count == 1);
    CHECK_OK(rkv_cache_unlock(f.cache, node_lock));
    CHECK(info_of(&f, node).lock_count == 0 && info_of(&f, parent).lock_count == 0);
    CHECK_STATUS(rkv_cache_unlock(f.cache, node_lock), RKV_STATUS_STALE_LOCK);
    CHECK(info_of(&f, node).lock_count == 0 && info_of(&f, parent).lock_count == 0);
    end_fixture(&f);
}

static void k26_b4_cache_miss_page_ownership(void) {
    fixture f = new_fixture_with(1, 99, 10, 0);
    uint32_t ids[10], pages[10];
    count_up(ids, 10, 1);
    uint64_t initial_free = free_pages(&f);
    uint32_t slot = new_slot(&f);
    allocate(&f, 10, pages);
    map(&f, slot, 0, pages, 10);
    rkv_cache_insert_result result = insert_pages(&f, NULL, text(ids, 10), pages, 10);
    CHECK_EQ(result.claimed_page_count, 10);
    CHECK_OK(rkv_cache_unlock(f.cache, lock_node(&f, result.node)));
    CHECK_OK(rkv_page_table_free_slot(f.table, slot));
    CHECK_EQ(free_pages(&f), initial_free - 10);
    CHECK_EQ(evict(&f, 10), 10);
    CHECK_EQ(free_pages(&f), initial_free);
    end_fixture(&f);
}

static void k26_b5_partial_hit_page_ownership(void) {
    fixture f = new_fixture_with(1, 99, 10, 0);
    uint32_t ids[10], all[10];
    count_up(ids, 10, 1);
    insert(&f, text(ids, 5));
    uint32_t slot = new_slot(&f);
    rkv_cache_match_result match = match_into(&f, text(ids, 10), all, 10);
    CHECK_EQ(match.position_count, 5);
    allocate(&f, 5, all + 5);
    map(&f, slot, 0, all, 5);
    map(&f, slot, 5, all + 5, 5);
    CHECK_EQ(insert_from(&f, text(ids, 10), all, 10, &match).claimed_page_count, 5);
    CHECK_OK(rkv_page_table_free_slot(f.table, slot));
    CHECK_EQ(cached_pages(&f), 10);
    check_conserved(&f);
    end_fixture(&f);
}

static void k26_c6_insert_idempotency(void) {
    fixture f = new_fixture(1, 32);
    uint32_t ids[10], pages[10];
    count_up(ids, 10, 1);
    allocate(&f, 10, pages);
    rkv_cache_insert_result a = insert_pages(&f, NULL, text(ids, 10), pages, 10);
    CHECK_EQ(a.claimed_page_count, 10);
    rkv_cache_insert_result b = insert_pages(&f, NULL, text(ids, 10), pages, 10);
    CHECK(b.node == a.node && b.claimed_page_count == 0);
    CHECK_EQ(cached_pages(&f), 10);
    end_fixture(&f);
}

/* The insert returns the node that is locked already: exactly one lock remains. */
static void k26_c7_lock_transfer_identity(void) {
    fixture f = new_fixture(1, 16);
    const uint32_t ids[3] = {1, 2, 3};
    rkv_sequence_info first = begin(&f, text(ids, 3));
    CHECK_EQ(publish(&f, first.sequence, 3).claimed_page_count, 3);
    rkv_node_id node = query(&f, first.sequence).node;
    CHECK_EQ(info_of(&f, node).lock_count, 1);
    release(&f, first.sequence);
    CHECK_EQ(info_of(&f, node).lock_count, 0);
    rkv_cache_match_result match = match_of(&f, text(ids, 3));
    CHECK(match.node == node && match.position_count == 3);
    rkv_sequence_info second = begin(&f, text(ids, 3));
    CHECK_EQ(second.node, node);
    CHECK_EQ(publish(&f, second.sequence, 3).claimed_page_count, 0);
    CHECK_EQ(query(&f, second.sequence).node, node);
    CHECK_EQ(info_of(&f, node).lock_count, 1);
    release(&f, second.sequence);
    CHECK_EQ(info_of(&f, node).lock_count, 0);
    end_fixture(&f);
}

static void k26_c8_full_prompt_match_suffix(void) {
    fixture f = new_fixture(1, 16);
    const uint32_t ids[3] = {1, 2, 3};
    serve(&f, text(ids, 3));
    rkv_sequence_info state = begin(&f, text(ids, 3));
    CHECK_EQ(state.cached_position_count, 2);
    CHECK_EQ(state.shared_page_count, 2);
    uint32_t row[3];
    bool cached = true;
    CHECK_EQ(row_of(&f, state.slot, row, 3), 3);
    CHECK_OK(rkv_cache_contains_page(f.cache, row[2], &cached));
    CHECK(!cached); /* the last token is computed into a private page */
    release(&f, state.sequence);
    end_fixture(&f);
}

static void k26_c9_multi_batch_shared_pages(void) {
    fixture f = new_fixture(1, 800);
    const uint32_t ids[3] = {1, 0, 2};
    rkv_token_item picture = image(1, 1, 729);
    static uint32_t first_row[800], second_row[800];
    rkv_sequence_info a = begin(&f, with_items(ids, 3, &picture, 1));
    publish(&f, a.sequence, 731);
    rkv_sequence_info b = begin(&f, with_items(ids, 3, &picture, 1));
    CHECK_EQ(b.cached_position_count, 730);
    for (uint32_t step = 0; step < 10; step++) {
        append(&f, a.sequence, 100 + step);
        append(&f, b.sequence, 200 + step);
    }
    CHECK_EQ(row_of(&f, a.slot, first_row, 800), 741);
    CHECK_EQ(row_of(&f, b.slot, second_row, 800), 741);
    CHECK(memcmp(first_row, second_row, 730 * sizeof *first_row) == 0);
    for (size_t i = 730; i < 741; i++) {
        for (size_t j = 730; j < 741; j++) {
            CHECK(first_row[i] != second_row[j]);
        }
    }
    release(&f, a.sequence);
    release(&f, b.sequence);
    check_conserved(&f);
    end_fixture(&f);
}

static void k26_c10_full_prompt_match_page_ownership(void) {
    fixture f = new_fixture_with(1, 99, 10, 0);
    const uint32_t ids[4] = {1, 2, 3, 4};
    uint32_t pages[4], row[4];
    rkv_sequence_info first = begin(&f, text(ids, 4));
    publish(&f, first.sequence, 4);
    row_of(&f, first.slot, pages, 4);
    release(&f, first.sequence);
    uint64_t initial_free = free_pages(&f);
    CHECK_EQ(initial_free, 95);
    CHECK_EQ(match_of(&f, text(ids, 4)).position_count, 4);
    rkv_sequence_info second = begin(&f, text(ids, 4));
    CHECK(second.cached_position_count == 3 && second.shared_page_count == 3);
    CHECK_EQ(row_of(&f, second.slot, row, 4), 4);
    CHECK(memcmp(row, pages, 3 * sizeof *row) == 0);
    for (size_t i = 0; i < 4; i++) {
        CHECK(row[3] != pages[i]);
    }
    CHECK_EQ(free_pages(&f), initial_free - 1);
    release(&f, second.sequence);
    CHECK_EQ(free_pages(&f), initial_free);
    end_fixture(&f);
}

static void k26_c11_tiny_hit_text_only(void) {
    fixture f = new_fixture_with(1, 99, 10, 0);
    uint32_t ids[10], pages[10], second[3] = {1, 100, 101}, all[3];
    count_up(ids, 10, 1);
    uint32_t slot = new_slot(&f);
    allocate(&f, 10, pages);
    map(&f, slot, 0, pages, 10);
    CHECK_EQ(insert_pages(&f, NULL, text(ids, 10), pages, 10).claimed_page_count, 10);
    CHECK_OK(rkv_page_table_free_slot(f.table, slot));
    check_conserved(&f);
    slot = new_slot(&f);
    rkv_cache_match_result match = match_into(&f, text(second, 3), all, 3);
    CHECK_EQ(match.position_count, 1);
    rkv_lock_id lock = lock_node(&f, match.node);
    allocate(&f, 2, all + 1);
    map(&f, slot, 0, all, 1);
    map(&f, slot, 1, all + 1, 2);
    rkv_cache_insert_result result = insert_from(&f, text(second, 3), all, 3, &match);
    CHECK_EQ(result.claimed_page_count, 2);
    CHECK(result.node != match.node);
    rkv_lock_id longer = lock_node(&f, result.node);
    CHECK_OK(rkv_cache_unlock(f.cache, lock));
    CHECK_OK(rkv_cache_unlock(f.cache, longer));
    CHECK_OK(rkv_page_table_free_slot(f.table, slot));
    CHECK_EQ(cached_pages(&f), 12);
    check_conserved(&f);
    evict(&f, 99);
    CHECK_EQ(free_pages(&f), 99);
    end_fixture(&f);
}

static void k26_e13_memory_pressure(void) {
    fixture f = new_fixture(1, 100);
    rkv_lock_id locks[100];
    uint32_t pages[10];
    for (uint32_t i = 0; i < 100; i++) {
        locks[i] = lock_node(&f, insert(&f, text(&i, 1)).node);
    }
    CHECK_STATUS(rkv_page_table_allocate_pages(f.table, 10, pages), RKV_STATUS_OUT_OF_PAGES);
    CHECK(message_names("locked"));
    for (size_t i = 0; i < 50; i++) {
        CHECK_OK(rkv_cache_unlock(f.cache, locks[i]));
    }
    allocate(&f, 10, pages);
    CHECK_EQ(cached_pages(&f), 90);
    CHECK_OK(rkv_page_table_free_pages(f.table, pages, 10));
    end_fixture(&f);
}

static void k26_e14_no_double_free(void) {
    fixture f = new_fixture(1, 200);
    uint32_t ids[60];
    uint64_t random = 7;
    for (int round = 0; round < 1000; round++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        size_t length = 3 + (random >> 33) % 40;
        for (size_t i = 0; i < length; i++) {
            ids[i] = (uint32_t)(random >> (20 + i % 24)) & 3;
        }
        rkv_token_item picture = image(1, (uint8_t)(random >> 60), 20);
        rkv_sequence_info state = begin(&f, with_items(ids, length, &picture, 1));
        publish(&f, state.sequence, state.position_count);
        append(&f, state.sequence, 9);
        release(&f, state.sequence);
        CHECK_EQ(free_pages(&f) + cached_pages(&f), 200);
        if (round % 50 == 0) {
            check_conserved(&f);
        }
    }
    check_conserved(&f);
    end_fixture(&f);
}

static void k26_e15_page_conservation(void) {
    fixture f = new_fixture_with(1, 99, 10, 0);
    const uint32_t first[3] = {1, 2, 3}, third[4] = {1, 2, 4, 5};
    uint32_t ids[11];
    CHECK_EQ(free_pages(&f), 99);
    CHECK_EQ(serve(&f, text(first, 3)), 0);
    check_conserved(&f);
    CHECK_EQ(serve(&f, text(first, 3)), 2);
    check_conserved(&f);
    CHECK_EQ(serve(&f, text(third, 4)), 2);
    check_conserved(&f);
    ids[0] = 1;
    count_up(ids + 1, 10, 0);
    for (size_t i = 0; i < 50; i++) {
        serve(&f, text(ids, i % 10 + 2));
        check_conserved(&f);
    }
    evict(&f, 99);
    CHECK_EQ(free_pages(&f), 99);
    end_fixture(&f);
}

static rkv_namespace image_space(uint8_t name) {
    rkv_namespace space = new_namespace();
    space.flags = RKV_NAMESPACE_IMAGE;
    memset(space.image_digest, name, sizeof space.image_digest);
    return space;
}

static void k26_e16_namespace_pruning(void) {
    fixture f = new_fixture_with(1, 99, 10, 0);
    const uint32_t ids[3] = {1, 2, 3};
    for (uint8_t i = 0; i < 10; i++) {
        rkv_namespace space = image_space(i);
        insert_in(&f, &space, text(ids, 3));
    }
    CHECK_EQ(cache_stats(&f).namespace_count, 10);
    evict(&f, 100);
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    rkv_namespace space = image_space(0);
    insert_in(&f, &space, text(ids, 2));
    CHECK_EQ(cache_stats(&f).namespace_count, 1);
    end_fixture(&f);
}

static void k26_e17_match_only_no_root_creation(void) {
    fixture f = new_fixture_with(1, 99, 10, 0);
    const uint32_t ids[3] = {1, 2, 3};
    for (uint8_t i = 0; i < 100; i++) {
        rkv_namespace space = image_space(i);
        rkv_cache_match_result match = match_in(&f, &space, text(ids, 3), 0);
        CHECK(match.position_count == 0 && match.node == 0);
    }
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    rkv_namespace space = image_space(42);
    insert_in(&f, &space, text(ids, 3));
    CHECK_EQ(cache_stats(&f).namespace_count, 1);
    CHECK_EQ(match_in(&f, &space, text(ids, 3), 0).position_count, 3);
    end_fixture(&f);
}

static void k26_e18_from_page_index_alignment(void) {
    fixture f = new_fixture_with(1, 999, 10, 0);
    uint32_t ids[12];
    static uint32_t pages[740];
    uint32_t got[10];
    size_t count = 0;
    count_up(ids, 12, 0);
    ids[0] = 500;
    rkv_token_item picture = image(1, 45, 729);
    allocate(&f, 740, pages);
    insert_pages(&f, NULL, with_items(ids, 2, &picture, 1), pages, 730);
    rkv_tokens all = with_items(ids, 12, &picture, 1);
    rkv_cache_match_result match = match_of(&f, all);
    CHECK(match.position_count == 730 && match.token_count == 2 && match.page_count == 730);
    rkv_cache_insert_result result = insert_from(&f, all, pages, 740, &match);
    CHECK_EQ(result.claimed_page_count, 10);
    CHECK_OK(rkv_node_read_pages(f.cache, result.node, got, 10, &count));
    CHECK(count == 10 && memcmp(got, pages + 730, sizeof got) == 0);
    end_fixture(&f);
}

int main(void) {
    RUN(k26_a1_split_correctness);
    RUN_BOTH(k26_a2_image_kv_length);
    RUN_BOTH(k26_a3_lock_invariants);
    RUN_BOTH(k26_b4_cache_miss_page_ownership);
    RUN_BOTH(k26_b5_partial_hit_page_ownership);
    RUN_BOTH(k26_c6_insert_idempotency);
    RUN_BOTH(k26_c7_lock_transfer_identity);
    RUN_BOTH(k26_c8_full_prompt_match_suffix);
    RUN_BOTH(k26_c9_multi_batch_shared_pages);
    RUN_BOTH(k26_c10_full_prompt_match_page_ownership);
    RUN_BOTH(k26_c11_tiny_hit_text_only);
    RUN_BOTH(k26_e13_memory_pressure);
    RUN_BOTH(k26_e14_no_double_free);
    RUN_BOTH(k26_e15_page_conservation);
    RUN_BOTH(k26_e16_namespace_pruning);
    RUN_BOTH(k26_e17_match_only_no_root_creation);
    RUN(k26_e18_from_page_index_alignment);
    return check_result();
}
