/* Going on from a sequence that finished or still runs: what is retained, for how long, and what a
 * child inherits. */
#include "fixture.h"

static size_t retained_ids(const fixture *f, rkv_sequence_id *ids, size_t capacity) {
    size_t count = 0;
    CHECK_OK(rkv_cache_read_retained(f->cache, ids, capacity, &count));
    return count;
}

static bool owns(const fixture *f, uint32_t page) {
    bool contains = false;
    CHECK_OK(rkv_cache_contains_page(f->cache, page, &contains));
    return contains;
}

static rkv_shortage last_shortage(void) {
    rkv_shortage shortage;
    memset(&shortage, 0, sizeof shortage);
    shortage.struct_size = sizeof shortage;
    CHECK_OK(rkv_last_shortage(&shortage));
    return shortage;
}

static size_t drop_retained(const fixture *f, size_t page_count) {
    size_t gained = 0;
    CHECK_OK(rkv_cache_drop_retained(f->cache, page_count, &gained));
    return gained;
}

static fixture new_bounded_fixture(uint32_t page_size, uint32_t page_count,
                                   uint32_t sequence_limit, uint32_t page_limit) {
    fixture f = {new_table(page_size, page_count + 1, 8), NULL, page_size};
    rkv_cache_config config;
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.retained_sequence_limit = sequence_limit;
    config.retained_page_limit = page_limit;
    config.index = fixture_index;
    CHECK_OK(rkv_cache_create(f.table, &config, &f.cache));
    return f;
}

/* The slot is free, the tokens and the pages stay: the published ones, and the one not full. */
static void c01_finished_sequences_are_retained(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[10];
    rkv_sequence_id listed[2] = {0, 0};
    count_up(ids, 10, 1);
    rkv_tokens tokens = text(ids, 10);
    rkv_sequence_begin_args args = sequence_args(&tokens);
    rkv_sequence_info state = new_state();
    args.reserve_position_count = 8;
    CHECK_OK(rkv_sequence_begin(f.cache, &args, &state));
    CHECK_EQ(private_pages(&f), 5);
    publish(&f, state.sequence, 10);
    CHECK(retain(&f, state.sequence));
    check_sane(&f);
    CHECK_EQ(table_stats(&f).free_slot_count, 8);
    CHECK(cached_pages(&f) == 2 && private_pages(&f) == 1);
    rkv_cache_stats stats = cache_stats(&f);
    CHECK(stats.sequence_count == 0 && stats.retained_sequence_count == 1);
    CHECK_EQ(stats.retained_page_count, 3);
    CHECK_EQ(retained_ids(&f, listed, 2), 1);
    CHECK_EQ(listed[0], state.sequence);
    /* it is no live sequence any more */
    CHECK_STATUS(rkv_sequence_read_info(f.cache, state.sequence, &state),
                 RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(rkv_sequence_release(f.cache, state.sequence), RKV_STATUS_STALE_SEQUENCE);
    CHECK_OK(rkv_sequence_drop(f.cache, state.sequence));
    CHECK_STATUS(rkv_sequence_drop(f.cache, state.sequence), RKV_STATUS_STALE_SEQUENCE);
    CHECK(private_pages(&f) == 0 && reclaimable_pages(&f) == 2);
    stats = cache_stats(&f);
    CHECK(stats.retained_sequence_count == 0 && stats.retained_page_count == 0);
    CHECK_EQ(stats.displaced_sequence_count, 0);
    end_fixture(&f);
}

/* What was not computed is kept as tokens alone; a copy that was not confirmed is given up. */
static void c01_only_what_is_computed_is_kept(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[16], other[8] = {1, 2, 3, 4, 5, 6, 90, 91};
    count_up(ids, 16, 1);
    rkv_sequence_info state = begin(&f, text(ids, 16));
    publish(&f, state.sequence, 9);
    CHECK(retain(&f, state.sequence));
    CHECK_EQ(cache_stats(&f).retained_page_count, 3);
    rkv_sequence_info child = continue_from(&f, state.sequence, text(ids, 1));
    CHECK(child.position_count == 17 && child.cached_position_count == 9);
    release(&f, child.sequence);
    /* copies two positions, and ends before that is done */
    state = begin(&f, text(other, 8));
    CHECK_EQ(copy_of(&f, state.sequence).position_count, 2);
    CHECK(retain(&f, state.sequence));
    child = continue_from(&f, state.sequence, text(ids, 0));
    CHECK(child.position_count == 8 && child.cached_position_count == 4);
    release(&f, child.sequence);
    CHECK(drop_retained(&f, SIZE_MAX) > 0);
    CHECK_EQ(private_pages(&f), 0);
    end_fixture(&f);
}

/* The first to finish goes first, also when somebody went on from it since. */
static void c01_bounded_by_sequences(void) {
    fixture f = new_bounded_fixture(4, 64, 3, 0);
    rkv_sequence_id id[5], listed[4] = {0, 0, 0, 0};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t ids[6];
        count_up(ids, 6, 100 * i);
        id[i] = serve_and_retain(&f, text(ids, 6));
    }
    CHECK_EQ(private_pages(&f), 3);
    uint32_t more[6] = {7, 8, 9, 10, 11, 12};
    rkv_sequence_info child = continue_from(&f, id[0], text(more, 1));
    confirm_copies(&f, child.sequence);
    release(&f, child.sequence);
    CHECK(retained_ids(&f, listed, 4) == 3 && listed[0] == id[0] && listed[2] == id[2]);
    id[3] = serve_and_retain(&f, text(more, 6));
    CHECK(retained_ids(&f, listed, 4) == 3 && listed[0] == id[1] && listed[2] == id[3]);
    /* the displaced one gave everything back */
    CHECK(private_pages(&f) == 3 && reclaimable_pages(&f) == 1);
    CHECK_EQ(cache_stats(&f).displaced_sequence_count, 1);
    CHECK_STATUS(rkv_sequence_drop(f.cache, id[0]), RKV_STATUS_STALE_SEQUENCE);
    CHECK_OK(rkv_sequence_drop(f.cache, id[2]));
    CHECK(retained_ids(&f, listed, 4) == 2 && listed[0] == id[1] && listed[1] == id[3]);
    CHECK_EQ(cache_stats(&f).displaced_sequence_count, 1);
    end_fixture(&f);
}

/* Pages count once, however many retained sequences share them. */
static void c01_bounded_by_pages(void) {
    fixture f = new_bounded_fixture(4, 64, 0, 6);
    uint32_t ids[28];
    count_up(ids, 28, 1);
    rkv_sequence_id a = serve_and_retain(&f, text(ids, 16));
    CHECK_EQ(cache_stats(&f).retained_page_count, 4);
    /* the same four pages and one of its own, for a second time and a third */
    ids[16] = 90;
    rkv_sequence_id b = serve_and_retain(&f, text(ids, 17));
    ids[16] = 91;
    rkv_sequence_id c = serve_and_retain(&f, text(ids, 17));
    CHECK_EQ(cache_stats(&f).retained_page_count, 6);
    CHECK_EQ(cache_stats(&f).retained_sequence_count, 3);
    /* one page more: the first alone frees none, so the second goes as well */
    uint32_t other[4] = {500, 501, 502, 503};
    rkv_sequence_id d = serve_and_retain(&f, text(other, 4));
    CHECK_EQ(cache_stats(&f).retained_page_count, 6);
    CHECK_EQ(cache_stats(&f).displaced_sequence_count, 2);
    CHECK_STATUS(rkv_sequence_drop(f.cache, a), RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(rkv_sequence_drop(f.cache, b), RKV_STATUS_STALE_SEQUENCE);
    /* more than all may have: it is released, and displaces nobody */
    ids[16] = 17;
    rkv_sequence_info large = begin(&f, text(ids, 28));
    publish(&f, large.sequence, 28);
    CHECK(!retain(&f, large.sequence));
    CHECK_EQ(cache_stats(&f).retained_sequence_count, 2);
    CHECK_STATUS(rkv_sequence_release(f.cache, large.sequence), RKV_STATUS_STALE_SEQUENCE);
    CHECK_EQ(table_stats(&f).free_slot_count, 8);
    CHECK_OK(rkv_sequence_drop(f.cache, c));
    CHECK_OK(rkv_sequence_drop(f.cache, d));
    CHECK_EQ(reclaimable_pages(&f), cached_pages(&f));
    end_fixture(&f);
}

static void c01_default_bounds(void) {
    fixture f = new_fixture(1, 4096);
    for (uint32_t i = 0; i < 1030; i++) {
        const uint32_t ids[2] = {i, 1};
        serve_and_retain(&f, text(ids, 1 + i % 2));
    }
    CHECK_EQ(cache_stats(&f).retained_sequence_count, 1024);
    CHECK_EQ(cache_stats(&f).displaced_sequence_count, 6);
    /* half of the pages */
    static uint32_t ids[2049];
    count_up(ids, 2049, 5000);
    rkv_sequence_info state = begin(&f, text(ids, 2049));
    publish(&f, state.sequence, 2049);
    CHECK(!retain(&f, state.sequence));
    serve_and_retain(&f, text(ids, 2048));
    CHECK_EQ(cache_stats(&f).retained_page_count, 2048);
    CHECK_EQ(cache_stats(&f).retained_sequence_count, 1);
    end_fixture(&f);
}

/* C02, C09: a child maps its parent's pages. Nothing is looked up. */
static void c02_children_continue_by_reference(void) {
    for (int running = 0; running < 2; running++) {
        fixture f = new_fixture(4, 32);
        uint32_t ids[12], suffix[3] = {70, 71, 72}, row[8], parent_row[8];
        count_up(ids, 12, 1);
        rkv_sequence_info parent = begin(&f, text(ids, 12));
        publish(&f, parent.sequence, 12);
        row_of(&f, parent.slot, parent_row, 8);
        if (!running) {
            CHECK(retain(&f, parent.sequence));
        }
        rkv_cache_stats before = cache_stats(&f);
        rkv_tokens more = text(suffix, 3);
        rkv_sequence_continue_args args = continue_args(parent.sequence, &more);
        args.flags = running ? RKV_CONTINUE_RUNNING : 0;
        args.reserve_position_count = 6;
        rkv_sequence_info child = continue_as(&f, &args);
        CHECK(child.position_count == 15 && child.cached_position_count == 12);
        CHECK(child.inherited_position_count == 12 && child.cached_token_count == 12);
        CHECK(child.shared_page_count == 3 && child.page_count == 6);
        CHECK_EQ(child.copy_count, 0);
        CHECK_EQ(row_of(&f, child.slot, row, 8), 6);
        CHECK(memcmp(row, parent_row, 3 * sizeof *row) == 0);
        check_shared(&f, child.slot, 3);
        rkv_cache_stats after = cache_stats(&f);
        CHECK_EQ(after.inherit_count, before.inherit_count + 1);
        CHECK_EQ(after.inherited_position_count, before.inherited_position_count + 12);
        CHECK_EQ(after.lookup_count, before.lookup_count);
        CHECK_EQ(after.hit_position_count, before.hit_position_count);
        CHECK_EQ(info_of(&f, child.node).lock_count, 2);
        /* it outlives its parent, and publishes what it computes */
        if (running) {
            release(&f, parent.sequence);
        } else {
            CHECK_OK(rkv_sequence_drop(f.cache, parent.sequence));
        }
        CHECK_EQ(evict(&f, 100), 0);
        append(&f, child.sequence, 73);
        CHECK_EQ(publish(&f, child.sequence, 16).claimed_page_count, 1);
        const uint32_t all[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 70, 71, 72, 73};
        CHECK_EQ(probe(&f, text(all, 16)), 16);
        CHECK_EQ(info_of(&f, query(&f, child.sequence).node).lock_count, 1);
        release(&f, child.sequence);
        CHECK_EQ(private_pages(&f), 0);
        end_fixture(&f);
    }
}

/* Generation after generation, each retained and each with an image more. */
static void c02_children_of_children(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[5] = {1, 2, 3, 4, 5};
    rkv_sequence_id last = serve_and_retain(&f, text(ids, 5));
    uint64_t positions = 5;
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t suffix[3] = {60 + i, 0, 61 + i};
        rkv_token_item picture = image(1, (uint8_t)i, 5);
        rkv_sequence_info child = continue_from(&f, last, with_items(suffix, 3, &picture, 1));
        CHECK_EQ(child.cached_position_count, positions);
        CHECK_EQ(child.cached_token_count, 5 + 3 * i);
        positions += 7;
        CHECK_EQ(child.position_count, positions);
        if (child.copy_count > 0) {
            confirm_copies(&f, child.sequence);
        }
        CHECK_OK(rkv_sequence_drop(f.cache, last));
        publish(&f, child.sequence, positions);
        CHECK(retain(&f, child.sequence));
        last = child.sequence;
        check_sane(&f);
    }
    CHECK_EQ(cache_stats(&f).image_count, 6);
    CHECK_OK(rkv_sequence_drop(f.cache, last));
    evict(&f, 100);
    CHECK_EQ(free_pages(&f), 64);
    CHECK_EQ(cache_stats(&f).image_count, 0);
    end_fixture(&f);
}

/* Neither evictions nor allocations take retained pages; who needs them says so. */
static void c03_retention_is_a_guarantee(void) {
    fixture f = new_fixture(4, 8);
    uint32_t ids[28], other[32];
    count_up(ids, 28, 1);
    count_up(other, 32, 100);
    rkv_sequence_id first = serve_and_retain(&f, text(ids, 6));
    rkv_sequence_id second = serve_and_retain(&f, text(other, 7));
    CHECK_EQ(cache_stats(&f).retained_page_count, 4);
    CHECK_EQ(evict(&f, 100), 0);
    CHECK_EQ(reclaimable_pages(&f), 0);
    rkv_sequence_info state = new_state();
    snapshot before = take(&f);
    CHECK_STATUS(try_begin(&f, text(ids, 28), &state), RKV_STATUS_OUT_OF_PAGES);
    CHECK(same(&f, &before));
    rkv_shortage shortage = last_shortage();
    CHECK(shortage.needed_page_count == 6 && shortage.free_page_count == 4);
    CHECK_EQ(shortage.retained_page_count, 4);
    CHECK(message_names("retained"));
    /* exactly what is lacking: the first to finish goes, the second stays */
    CHECK_EQ(drop_retained(&f, 2), 2);
    CHECK_EQ(cache_stats(&f).displaced_sequence_count, 1);
    CHECK_STATUS(rkv_sequence_drop(f.cache, first), RKV_STATUS_STALE_SEQUENCE);
    state = begin(&f, text(ids, 24));
    CHECK_EQ(free_pages(&f) + reclaimable_pages(&f), 0);
    CHECK_EQ(probe(&f, text(other, 7)), 4);
    release(&f, state.sequence);
    CHECK_EQ(drop_retained(&f, 0), 0);
    CHECK_EQ(cache_stats(&f).retained_sequence_count, 1);
    /* dropping what others use makes no room, so it goes on until none is left */
    rkv_sequence_info child = continue_from(&f, second, text(ids, 1));
    CHECK_EQ(drop_retained(&f, SIZE_MAX), 0);
    CHECK_EQ(cache_stats(&f).retained_sequence_count, 0);
    confirm_copies(&f, child.sequence);
    release(&f, child.sequence);
    CHECK_EQ(free_pages(&f) + reclaimable_pages(&f), 8);
    end_fixture(&f);
}

/* The page that is not full is copied, at every length; one position at least is computed. */
static void c04_the_last_page_is_copied(void) {
    const uint32_t sizes[] = {1, 2, 4, 16};
    for (size_t s = 0; s < 4; s++) {
        for (uint32_t length = 1; length <= 9; length++) {
            fixture f = new_fixture(sizes[s], 64);
            uint32_t ids[9], row[16];
            count_up(ids, 9, 1);
            rkv_sequence_info parent = begin(&f, text(ids, length));
            publish(&f, parent.sequence, length);
            row_of(&f, parent.slot, row, 16);
            CHECK(retain(&f, parent.sequence));
            for (uint32_t more = 0; more < 3; more++) {
                rkv_sequence_info child = continue_from(&f, parent.sequence, text(ids, more));
                uint64_t reused = more > 0 ? length : length - 1;
                CHECK_EQ(child.cached_position_count, reused);
                CHECK_EQ(child.shared_page_count, reused / sizes[s]);
                rkv_page_copy copy = copy_of(&f, child.sequence);
                CHECK_EQ(copy.position_count, reused % sizes[s]);
                CHECK(child.position_count > child.cached_position_count);
                if (child.copy_count > 0) {
                    CHECK_EQ(copy.source_page, row[reused / sizes[s]]);
                    CHECK(copy.target_page != copy.source_page);
                    confirm_copies(&f, child.sequence);
                }
                check_shared(&f, child.slot, child.shared_page_count);
                publish(&f, child.sequence, child.position_count);
                release(&f, child.sequence);
                check_sane(&f);
            }
            CHECK_OK(rkv_sequence_drop(f.cache, parent.sequence));
            end_fixture(&f);
        }
    }
}

/* The page to copy from outlives a parent that is dropped or released, until the copy is done. */
static void c04_the_source_outlives_its_parent(void) {
    for (int how = 0; how < 4; how++) {
        fixture f = new_fixture(4, 8);
        uint32_t ids[6], more = 50, pages[8];
        count_up(ids, 6, 1);
        rkv_sequence_info parent = begin(&f, text(ids, 6));
        publish(&f, parent.sequence, 6);
        bool live = how % 2 == 0;
        if (!live) {
            CHECK(retain(&f, parent.sequence));
        }
        rkv_tokens suffix = text(&more, 1);
        rkv_sequence_continue_args args = continue_args(parent.sequence, &suffix);
        args.flags = RKV_CONTINUE_RUNNING;
        rkv_sequence_info child = continue_as(&f, &args), twin = continue_as(&f, &args);
        const rkv_page_copy copy = copy_of(&f, child.sequence);
        CHECK(copy.position_count == 2);
        CHECK_EQ(copy_of(&f, twin.sequence).source_page, copy.source_page);
        if (live) {
            release(&f, parent.sequence);
        } else {
            CHECK_OK(rkv_sequence_drop(f.cache, parent.sequence));
        }
        check_sane(&f);
        /* neither free nor anybody's to take */
        CHECK(free_pages(&f) == 4 && private_pages(&f) == 3);
        CHECK_STATUS(rkv_page_table_free_pages(f.table, &copy.source_page, 1),
                     RKV_STATUS_INVALID_ARGUMENT);
        allocate(&f, 4, pages);
        for (size_t i = 0; i < 4; i++) {
            CHECK(pages[i] != copy.source_page);
        }
        CHECK_OK(rkv_page_table_free_pages(f.table, pages, 4));
        confirm_copies(&f, child.sequence);
        CHECK_EQ(private_pages(&f), 3);
        /* the second copy is done, or given up */
        if (how < 2) {
            confirm_copies(&f, twin.sequence);
            CHECK_EQ(private_pages(&f), 2);
        }
        release(&f, twin.sequence);
        CHECK_EQ(private_pages(&f), 1);
        release(&f, child.sequence);
        end_fixture(&f);
    }
}

/* A live parent goes on in its page: it publishes it, or gives it up for somebody else's. */
static void c04_the_source_is_published_meanwhile(void) {
    for (int published_by_other = 0; published_by_other < 2; published_by_other++) {
        fixture f = new_fixture(4, 16);
        uint32_t ids[8], more = 50;
        count_up(ids, 8, 1);
        rkv_sequence_info parent = begin(&f, text(ids, 5));
        append(&f, parent.sequence, 6);
        publish(&f, parent.sequence, 6);
        rkv_tokens suffix = text(&more, 1);
        rkv_sequence_continue_args args = continue_args(parent.sequence, &suffix);
        args.flags = RKV_CONTINUE_RUNNING;
        rkv_sequence_info child = continue_as(&f, &args);
        const rkv_page_copy copy = copy_of(&f, child.sequence);
        /* what the child is to copy can't be taken back, only what comes after it */
        append(&f, parent.sequence, 99);
        snapshot before = take(&f);
        CHECK_STATUS(rkv_sequence_truncate(f.cache, parent.sequence, 5), RKV_STATUS_INVALID_STATE);
        CHECK(message_names("position_count") && same(&f, &before));
        CHECK_OK(rkv_sequence_truncate(f.cache, parent.sequence, 6));
        append(&f, parent.sequence, 7);
        append(&f, parent.sequence, 8);
        if (published_by_other) {
            serve(&f, text(ids, 8));
        }
        rkv_sequence_publish_result result = publish(&f, parent.sequence, 8);
        CHECK_EQ(result.claimed_page_count, published_by_other ? 0 : 1);
        CHECK_EQ(owns(&f, copy.source_page), !published_by_other);
        release(&f, parent.sequence);
        check_sane(&f);
        evict(&f, 100);
        CHECK_EQ(cached_pages(&f), published_by_other ? 1 : 2);
        CHECK_EQ(copy_of(&f, child.sequence).source_page, copy.source_page);
        CHECK_EQ(free_pages(&f), 13);
        confirm_copies(&f, child.sequence);
        CHECK_EQ(evict(&f, 100), published_by_other ? 0 : 1);
        CHECK_EQ(free_pages(&f), 14);
        release(&f, child.sequence);
        end_fixture(&f);
    }
}

int main(void) {
    RUN_BOTH(c01_finished_sequences_are_retained);
    RUN(c01_only_what_is_computed_is_kept); /* the block-hash index copies nothing at begin */
    RUN_BOTH(c01_bounded_by_sequences);
    RUN_BOTH(c01_bounded_by_pages);
    RUN_BOTH(c01_default_bounds);
    RUN_BOTH(c02_children_continue_by_reference);
    RUN_BOTH(c02_children_of_children);
    RUN_BOTH(c03_retention_is_a_guarantee);
    RUN_BOTH(c04_the_last_page_is_copied);
    RUN_BOTH(c04_the_source_outlives_its_parent);
    RUN_BOTH(c04_the_source_is_published_meanwhile);
    return check_result();
}
