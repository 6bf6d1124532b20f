/* K11: clearing while requests run: nothing of before is found again, whoever publishes it; what is
 * in use stays for its holder, and goes when it is let go. */
#include "misuse.h"

enum { ROOM = 64 };

static rkv_cache_clear_result new_result(void) {
    rkv_cache_clear_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    return result;
}

static rkv_cache_clear_args clear_args(uint32_t flags, const rkv_namespace *space) {
    rkv_cache_clear_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.flags = flags;
    args.space = space;
    return args;
}

static rkv_cache_clear_result clear(const fixture *f, uint32_t flags, const rkv_namespace *space) {
    rkv_cache_clear_args args = clear_args(flags, space);
    rkv_cache_clear_result result = new_result();
    CHECK_OK(rkv_cache_clear(f->cache, &args, &result));
    check_sane(f);
    return result;
}

static rkv_cache_clear_result clear_all(const fixture *f) {
    return clear(f, RKV_CLEAR_EVERYTHING, NULL);
}

static rkv_cache_match_result lock_match(const fixture *f, rkv_tokens tokens, uint32_t *pages) {
    rkv_cache_match_result match = new_match();
    CHECK_OK(rkv_cache_match(f->cache, NULL, &tokens, RKV_MATCH_LOCK, pages, ROOM, &match));
    return match;
}

/* What nobody uses goes at once, and leaves nothing. */
static void k11_unused_pages_are_free_at_once(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[32], other[32];
    count_up(ids, 32, 1);
    count_up(other, 32, 100);
    memcpy(other, ids, 8 * sizeof *ids);
    serve(&f, text(ids, 32));
    serve(&f, text(other, 32));
    CHECK_EQ(cached_pages(&f), 28);
    rkv_cache_clear_result done = clear_all(&f);
    CHECK_EQ(done.namespace_count, 1);
    CHECK_EQ(done.freed_page_count, 28);
    CHECK_EQ(done.held_page_count, 0);
    CHECK_EQ(done.waiting_page_count, 0);
    CHECK_EQ(free_pages(&f), 64);
    CHECK_EQ(cache_stats(&f).node_count, 0);
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    CHECK_EQ(probe(&f, text(ids, 32)), 0);
    CHECK_EQ(match_of(&f, text(ids, 32)).position_count, 0);
    /* and again there is nothing to clear; what comes then is found */
    done = clear_all(&f);
    CHECK_EQ(done.namespace_count, 0);
    CHECK_EQ(done.freed_page_count, 0);
    CHECK_EQ(serve(&f, text(ids, 32)), 0);
    CHECK_EQ(probe(&f, text(ids, 32)), 32);
    end_fixture(&f);
}

/* A lock keeps its pages and the node for its holder, for nobody else. */
static void k11_a_lock_keeps_what_it_protects(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[16], other[16], pages[ROOM], again[ROOM];
    count_up(ids, 16, 1);
    count_up(other, 16, 100);
    memcpy(other, ids, 4 * sizeof *ids);
    serve(&f, text(ids, 16));
    serve(&f, text(other, 16));
    rkv_cache_match_result held = lock_match(&f, text(ids, 8), pages);
    CHECK_EQ(held.page_count, 4);
    rkv_cache_clear_result done = clear_all(&f);
    CHECK_EQ(done.freed_page_count, 10); /* the end of the one, and what the other had alone */
    CHECK_EQ(done.held_page_count, 4);
    CHECK_EQ(cached_pages(&f), 4);
    CHECK_EQ(reclaimable_pages(&f), 0);
    CHECK_EQ(probe(&f, text(ids, 8)), 0);
    CHECK_EQ(info_of(&f, held.node).end_position, 8);
    size_t count = 0;
    CHECK_OK(rkv_cache_read_namespaces(f.cache, NULL, sizeof(rkv_namespace), NULL, 0, &count));
    CHECK_EQ(count, 0);
    CHECK_EQ(evict(&f, 64), 0);
    /* what follows it is refused, and stays the caller's */
    rkv_tokens tokens = text(ids, 16);
    allocate(&f, 4, again);
    memcpy(pages + 4, again, 4 * sizeof *again);
    rkv_cache_insert_args args = insert_args(&tokens, pages, 8);
    rkv_cache_insert_result result;
    memset(&result, 0, sizeof result);
    result.struct_size = sizeof result;
    args.from_node = held.node;
    args.from_token_index = 8;
    args.from_page_index = 4;
    CHECK_STATUS(rkv_cache_insert(f.cache, &args, NULL, &result), RKV_STATUS_INVALID_STATE);
    CHECK(message_names("from_node"));
    CHECK_OK(rkv_page_table_free_pages(f.table, again, 4));
    /* the same tokens come again, beside the old ones */
    CHECK_EQ(serve(&f, text(ids, 16)), 0);
    CHECK_EQ(cached_pages(&f), 12);
    rkv_cache_match_result fresh = lock_match(&f, text(ids, 8), again);
    CHECK_EQ(fresh.page_count, 4);
    for (size_t i = 0; i < 4; i++) {
        CHECK(again[i] != pages[i]);
    }
    CHECK_OK(rkv_cache_unlock(f.cache, fresh.lock));
    check_sane(&f);
    CHECK_OK(rkv_cache_unlock(f.cache, held.lock));
    CHECK_EQ(cached_pages(&f), 8);
    CHECK(is_stale(&f, held.node));
    CHECK_EQ(probe(&f, text(ids, 16)), 16);
    end_fixture(&f);
}

/* A sequence that began before goes on, and publishes to nobody: with a match, and without. */
static void k11_what_began_before_publishes_to_nobody(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[16], cold[16], row[ROOM];
    count_up(ids, 16, 1);
    count_up(cold, 16, 100);
    serve(&f, text(ids, 8));
    rkv_sequence_info warm = begin(&f, text(ids, 16));
    CHECK_EQ(warm.cached_position_count, 8);
    rkv_sequence_info blank = begin(&f, text(cold, 16));
    rkv_cache_clear_result done = clear_all(&f);
    CHECK_EQ(done.freed_page_count, 0);
    CHECK_EQ(done.held_page_count, 4);
    /* others publish the same tokens, and are not mixed with them */
    CHECK_EQ(serve(&f, text(ids, 12)), 0);
    CHECK_EQ(serve(&f, text(cold, 12)), 0);
    CHECK_EQ(publish(&f, warm.sequence, 16).claimed_page_count, 4);
    CHECK_EQ(publish(&f, blank.sequence, 16).claimed_page_count, 8);
    CHECK_EQ(probe(&f, text(ids, 16)), 12);
    CHECK_EQ(probe(&f, text(cold, 16)), 12);
    check_shared(&f, warm.slot, 8);
    CHECK_EQ(row_of(&f, warm.slot, row, ROOM), 8);
    CHECK_EQ(row_of(&f, blank.slot, row, ROOM), 8);
    append(&f, warm.sequence, 7);
    append(&f, warm.sequence, 8);
    publish(&f, warm.sequence, 18);
    CHECK_EQ(probe(&f, text(ids, 16)), 12);
    check_sane(&f);
    CHECK_EQ(cached_pages(&f), 12 + 17);
    release(&f, warm.sequence);
    CHECK_EQ(cached_pages(&f), 12 + 8);
    release(&f, blank.sequence);
    CHECK_EQ(cached_pages(&f), 12);
    CHECK_EQ(reclaimable_pages(&f), 12);
    CHECK_EQ(free_pages(&f), 52);
    end_fixture(&f);
}

/* A part of a page that was cleared is not published as something new. */
static void k11_a_copy_of_what_was_cleared_is_not_published(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[16];
    count_up(ids, 16, 1);
    serve(&f, text(ids, 4));
    ids[3] = 99; /* another token ends the page: three positions match */
    rkv_sequence_info state = begin(&f, text(ids, 12));
    CHECK_EQ(state.copy_count, fixture_index == RKV_INDEX_RADIX ? 1 : 0);
    rkv_cache_clear_result done = clear_all(&f);
    CHECK_EQ(done.held_page_count, state.copy_count);
    if (state.copy_count > 0) {
        confirm_copies(&f, state.sequence);
    }
    CHECK_EQ(cached_pages(&f), 0);
    publish(&f, state.sequence, 12);
    CHECK_EQ(probe(&f, text(ids, 12)), 0);
    release(&f, state.sequence);
    CHECK_EQ(free_pages(&f), 64);
    end_fixture(&f);
}

/* Children of what began before: forked and continued ones, before and after they publish. */
static void k11_children_of_what_began_before(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[16], more[4] = {50, 51, 52, 53};
    count_up(ids, 16, 1);
    for (int published = 0; published < 2; published++) {
        rkv_sequence_info parent = begin(&f, text(ids, 8));
        rkv_sequence_fork_child children[2];
        memset(children, 0, sizeof children);
        if (published) {
            publish(&f, parent.sequence, 8);
        }
        clear_all(&f);
        fork_into(&f, parent.sequence, 2, children);
        rkv_tokens suffix = text(more, 4);
        rkv_sequence_continue_args args = continue_args(parent.sequence, &suffix);
        args.flags = RKV_CONTINUE_RUNNING;
        rkv_sequence_info child = continue_as(&f, &args);
        for (size_t i = 0; i < 2; i++) {
            append(&f, children[i].sequence, 70);
            publish(&f, children[i].sequence, 8);
        }
        publish(&f, child.sequence, 12);
        publish(&f, parent.sequence, 8);
        CHECK_EQ(probe(&f, text(ids, 8)), 0);
        check_sane(&f);
        /* and they are not retained: nobody could go on from them but by mistake */
        CHECK(!retain(&f, parent.sequence));
        CHECK(!retain(&f, child.sequence));
        release(&f, children[0].sequence);
        release(&f, children[1].sequence);
        CHECK_EQ(free_pages(&f), 64);
        check_sane(&f);
    }
    end_fixture(&f);
}

/* Retained sequences go: nothing goes on from them. */
static void k11_retained_sequences_are_dropped(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[16], more[2] = {50, 51};
    count_up(ids, 16, 1);
    rkv_sequence_id first = serve_and_retain(&f, text(ids, 9));
    rkv_sequence_id second = serve_and_retain(&f, text(ids, 5));
    rkv_namespace lora = new_namespace();
    lora.flags = RKV_NAMESPACE_LORA;
    rkv_sequence_info kept = begin_in(&f, &lora, text(ids, 8));
    publish(&f, kept.sequence, 8);
    CHECK(retain(&f, kept.sequence));
    rkv_cache_clear_result done = clear(&f, RKV_CLEAR_NAMESPACE, NULL);
    CHECK_EQ(done.namespace_count, 1);
    CHECK_EQ(done.dropped_sequence_count, 2);
    CHECK_EQ(done.freed_page_count, 4);
    CHECK_EQ(done.held_page_count, 0);
    CHECK_EQ(cache_stats(&f).retained_sequence_count, 1);
    rkv_sequence_info state = new_state();
    CHECK_STATUS(try_continue(&f, first, text(more, 2), &state), RKV_STATUS_STALE_SEQUENCE);
    CHECK_STATUS(try_continue(&f, second, text(more, 2), &state), RKV_STATUS_STALE_SEQUENCE);
    rkv_tokens suffix = text(more, 2);
    rkv_sequence_continue_args args = continue_args(kept.sequence, &suffix);
    args.space = &lora;
    state = continue_as(&f, &args);
    CHECK_EQ(state.cached_position_count, 8);
    release(&f, state.sequence);
    CHECK_EQ(free_pages(&f), 60);
    end_fixture(&f);
}

/* Which namespaces: one, those of an adapter, of a tenant, of an epoch; the others stay. */
static void k11_what_is_cleared(void) {
    static const uint32_t scopes[] = {RKV_CLEAR_NAMESPACE, RKV_CLEAR_LORA, RKV_CLEAR_IMAGE,
                                      RKV_CLEAR_SALT, RKV_CLEAR_EPOCH,
                                      RKV_CLEAR_LORA | RKV_CLEAR_EPOCH, RKV_CLEAR_EVERYTHING};
    enum { SPACES = 6 };
    static const bool gone[][SPACES] = {
        {false, false, false, true, false, false}, /* exactly the fourth */
        {false, true, false, true, false, false},  /* LoRA 0: the second and the fourth */
        {true, true, true, true, false, true},     /* no image: all but the fifth */
        {true, true, true, true, true, false},     /* no salt: all but the sixth */
        {false, false, true, true, false, false},  /* epoch 1: the third and the fourth */
        {false, false, false, true, false, false}, /* both */
        {true, true, true, true, true, true},
    };
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_namespace spaces[SPACES];
    for (size_t i = 0; i < SPACES; i++) {
        spaces[i] = new_namespace();
    }
    spaces[1].flags = RKV_NAMESPACE_LORA;
    spaces[2].epoch = 1;
    spaces[3].flags = RKV_NAMESPACE_LORA;
    spaces[3].epoch = 1;
    spaces[4].flags = RKV_NAMESPACE_IMAGE;
    spaces[4].image_digest[0] = 1;
    spaces[5].salt[0] = 1;
    for (size_t scope = 0; scope < sizeof scopes / sizeof *scopes; scope++) {
        fixture f = new_fixture(2, 64);
        uint64_t count = 0;
        for (size_t i = 0; i < SPACES; i++) {
            insert_in(&f, &spaces[i], text(ids, 4));
            count += gone[scope][i];
        }
        rkv_namespace *space = scopes[scope] == RKV_CLEAR_EVERYTHING ? NULL : &spaces[3];
        rkv_cache_clear_result done = clear(&f, scopes[scope], space);
        CHECK_EQ(done.namespace_count, count);
        CHECK_EQ(done.freed_page_count, 2 * count);
        for (size_t i = 0; i < SPACES; i++) {
            CHECK_EQ(probe_in(&f, &spaces[i], text(ids, 4)), gone[scope][i] ? 0 : 4);
        }
        end_fixture(&f);
    }
}

/* More namespaces than are cleared in one go, and more pages than are freed in one. */
static void k11_a_great_deal_goes(void) {
    fixture f = new_fixture(1, 8192);
    enum { LONG = 3000 };
    static uint32_t ids[LONG];
    count_up(ids, LONG, 1);
    for (uint32_t i = 0; i < 700; i++) {
        rkv_namespace space = new_namespace();
        space.salt[0] = (uint8_t)i;
        space.salt[1] = (uint8_t)(i >> 8);
        space.epoch = i % 2;
        insert_in(&f, &space, text(ids, 3));
    }
    serve(&f, text(ids, LONG));
    rkv_sequence_info state = begin(&f, text(ids, LONG));
    rkv_namespace old = new_namespace();
    rkv_cache_clear_result done = clear(&f, RKV_CLEAR_EPOCH, &old);
    CHECK_EQ(done.namespace_count, 350);
    CHECK_EQ(cache_stats(&f).namespace_count, 350);
    CHECK_EQ(done.held_page_count, LONG);
    CHECK_EQ(done.freed_page_count, 349 * 3);
    release(&f, state.sequence);
    CHECK_EQ(cached_pages(&f), 350 * 3);
    CHECK_EQ(clear_all(&f).freed_page_count, 350 * 3);
    CHECK_EQ(free_pages(&f), 8192);
    end_fixture(&f);
}

/* Many clears of others don't touch a sequence that began before all of them and has a node; one
 * that has none is taken for cleared at some time, and never the other way. */
static void k11_clears_of_others(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[16], cold[16];
    count_up(ids, 16, 1);
    count_up(cold, 16, 100);
    rkv_sequence_info state = begin(&f, text(ids, 16));
    rkv_sequence_info few = begin(&f, text(cold, 16));
    publish(&f, state.sequence, 8);
    for (uint64_t i = 1; i <= 100; i++) {
        rkv_namespace other = new_namespace();
        other.epoch = i;
        CHECK_EQ(clear(&f, RKV_CLEAR_EPOCH, &other).namespace_count, 0);
        if (i == 5) {
            publish(&f, few.sequence, 16);
        }
    }
    publish(&f, state.sequence, 16);
    CHECK_EQ(probe(&f, text(ids, 16)), 16);
    CHECK_EQ(probe(&f, text(cold, 16)), 16);
    release(&f, state.sequence);
    release(&f, few.sequence);
    CHECK_EQ(cached_pages(&f), 16);
    end_fixture(&f);
}

/* Images of what was cleared are forgotten with their pages. */
static void k11_images_go_too(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[3] = {1, 0, 2};
    rkv_token_item item = image(1, 7, 14);
    serve(&f, with_items(ids, 3, &item, 1));
    CHECK_EQ(cache_stats(&f).image_count, 1);
    rkv_sequence_info state = begin(&f, with_items(ids, 3, &item, 1));
    clear_all(&f);
    CHECK_EQ(cache_stats(&f).image_count, 1);
    if (state.copy_count > 0) {
        confirm_copies(&f, state.sequence);
    }
    publish(&f, state.sequence, 16);
    release(&f, state.sequence);
    CHECK_EQ(cache_stats(&f).image_count, 0);
    CHECK_EQ(free_pages(&f), 64);
    end_fixture(&f);
}

static void m01_clear(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    serve(&f, text(ids, 8));
    rkv_namespace space = new_namespace();
    rkv_cache_clear_args args = clear_args(RKV_CLEAR_EVERYTHING, NULL);
    rkv_cache_clear_result result = new_result();
    BAD(&f, rkv_cache_clear(NULL, &args, &result), "cache");
    BAD(&f, rkv_cache_clear(f.cache, NULL, &result), "args");
    BAD(&f, rkv_cache_clear(f.cache, &args, NULL), "out_result");
    args.struct_size = 0;
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "args");
    args = clear_args(0, NULL);
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "args.flags");
    args.flags = 32;
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "args.flags");
    args.flags = RKV_CLEAR_EVERYTHING | RKV_CLEAR_LORA;
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "args.flags");
    args = clear_args(RKV_CLEAR_EVERYTHING, &space);
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "args.space");
    args = clear_args(RKV_CLEAR_NAMESPACE, &space);
    space.flags = 4;
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "space.flags");
    space = new_namespace();
    space.lora_id = 3;
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "space.lora_id");
    space = new_namespace();
    space.struct_size = 1;
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "space");
    args = clear_args(RKV_CLEAR_EVERYTHING, NULL);
    result.struct_size = 1;
    BAD(&f, rkv_cache_clear(f.cache, &args, &result), "out_result");
    CHECK_EQ(probe(&f, text(ids, 8)), 8);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(k11_unused_pages_are_free_at_once);
    RUN_BOTH(k11_a_lock_keeps_what_it_protects);
    RUN_BOTH(k11_what_began_before_publishes_to_nobody);
    RUN_BOTH(k11_a_copy_of_what_was_cleared_is_not_published);
    RUN_BOTH(k11_children_of_what_began_before);
    RUN_BOTH(k11_retained_sequences_are_dropped);
    RUN_BOTH(k11_what_is_cleared);
    RUN_BOTH(k11_a_great_deal_goes);
    RUN_BOTH(k11_clears_of_others);
    RUN_BOTH(k11_images_go_too);
    RUN_BOTH(m01_clear);
    return check_result();
}
