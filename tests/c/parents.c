/* Which parents a sequence can go on from: running ones, displaced ones, those of another
 * namespace; and where it may take over from them. */
#include "fixture.h"

/* The caller chooses: what a running parent has published so far, or "pending". */
static void c05_a_running_parent(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[14], suffix[2] = {80, 81};
    count_up(ids, 14, 1);
    rkv_sequence_info parent = begin(&f, text(ids, 14)), child = new_state();
    publish(&f, parent.sequence, 9);
    rkv_tokens more = text(suffix, 2);
    rkv_sequence_continue_args args = continue_args(parent.sequence, &more);
    snapshot before = take(&f);
    child.sequence = 77;
    CHECK_STATUS(rkv_sequence_continue(f.cache, &args, &child), RKV_STATUS_PENDING);
    CHECK(message_names("parent") && child.sequence == 77);
    /* all its tokens are no way around that */
    rkv_tokens all = text(ids, 14);
    args.all_tokens = &all;
    CHECK_STATUS(rkv_sequence_continue(f.cache, &args, &child), RKV_STATUS_PENDING);
    CHECK(same(&f, &before));
    args.flags = RKV_CONTINUE_RUNNING;
    child = continue_as(&f, &args);
    CHECK(child.position_count == 16 && child.cached_position_count == 9);
    CHECK(child.inherited_position_count == 9 && child.shared_page_count == 2);
    CHECK(copy_of(&f, child.sequence).position_count == 1 && child.page_count == 4);
    confirm_copies(&f, child.sequence);
    /* each computes the rest for itself; the second to publish is remapped, as ever (K16) */
    CHECK_EQ(publish(&f, parent.sequence, 14).claimed_page_count, 1);
    rkv_sequence_publish_result result = publish(&f, child.sequence, 16);
    CHECK(result.claimed_page_count == 1 && result.remapped_page_count == 1);
    CHECK_EQ(result.first_remapped_index, 2);
    release(&f, parent.sequence);
    release(&f, child.sequence);
    CHECK_EQ(private_pages(&f), 0);
    end_fixture(&f);
}

/* A parent that began a moment ago has computed nothing but what it found; what it is to copy is
   not there yet. */
static void c05_a_parent_that_has_yet_to_copy(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[14], suffix[2] = {80, 81};
    count_up(ids, 14, 1);
    ids[13] = 99;
    serve(&f, text(ids, 14));
    rkv_sequence_info other = begin(&f, text(ids, 14));
    append(&f, other.sequence, 15);
    append(&f, other.sequence, 16);
    publish(&f, other.sequence, 16);
    release(&f, other.sequence);
    ids[13] = 14;
    rkv_sequence_info young = begin(&f, text(ids, 14));
    CHECK(young.cached_position_count == 13 && copy_of(&f, young.sequence).position_count == 1);
    rkv_tokens more = text(suffix, 2);
    rkv_sequence_continue_args args = continue_args(young.sequence, &more);
    args.flags = RKV_CONTINUE_RUNNING;
    rkv_sequence_info early = continue_as(&f, &args);
    CHECK(early.cached_position_count == 12 && early.copy_count == 0);
    release(&f, early.sequence);
    confirm_copies(&f, young.sequence);
    early = continue_as(&f, &args);
    CHECK(early.cached_position_count == 13 && copy_of(&f, early.sequence).position_count == 1);
    release(&f, early.sequence);
    release(&f, young.sequence);
    CHECK_EQ(private_pages(&f), 0);
    end_fixture(&f);
}

/* Without its parent a child begins by an ordinary lookup, if it is given all tokens. */
static void c06_a_displaced_parent(void) {
    fixture f = new_fixture(4, 32);
    uint32_t ids[12], suffix[2] = {80, 81};
    count_up(ids, 10, 1);
    memcpy(ids + 10, suffix, sizeof suffix);
    rkv_sequence_id parent = serve_and_retain(&f, text(ids, 10));
    rkv_tokens more = text(suffix, 2), all = text(ids, 12);
    rkv_sequence_continue_args args = continue_args(parent, &more);
    args.all_tokens = &all;
    /* not needed as long as the parent is there */
    rkv_sequence_info child = continue_as(&f, &args);
    CHECK(child.cached_position_count == 10 && child.inherited_position_count == 10);
    CHECK_EQ(cache_stats(&f).lookup_count, 1);
    release(&f, child.sequence);
    CHECK_OK(rkv_sequence_drop(f.cache, parent));
    child = continue_as(&f, &args);
    CHECK(child.position_count == 12 && child.cached_position_count == 8);
    CHECK_EQ(child.inherited_position_count, 0);
    CHECK_EQ(cache_stats(&f).lookup_count, 2);
    CHECK_EQ(cache_stats(&f).inherit_count, 1);
    release(&f, child.sequence);
    args.all_tokens = NULL;
    snapshot before = take(&f);
    child = new_state();
    CHECK_STATUS(rkv_sequence_continue(f.cache, &args, &child), RKV_STATUS_STALE_SEQUENCE);
    CHECK(same(&f, &before) && child.sequence == 0);
    rkv_sequence_fork_child forked;
    CHECK_STATUS(try_fork(&f, parent, 1, &forked), RKV_STATUS_STALE_SEQUENCE);
    CHECK(same(&f, &before));
    end_fixture(&f);
}

/* A parent's pages are never another namespace's; an id that leaked is no way to a tenant's KV. */
static void c07_another_namespace_is_refused(void) {
    static const char *const fields[] = {"lora_id", "lora_id", "salt", "epoch", "image_digest"};
    rkv_namespace mine = new_namespace(), others[5];
    mine.flags = RKV_NAMESPACE_LORA | RKV_NAMESPACE_IMAGE;
    mine.lora_id = 7;
    mine.epoch = 3;
    memset(mine.salt, 1, sizeof mine.salt);
    memset(mine.image_digest, 2, sizeof mine.image_digest);
    for (size_t i = 0; i < 5; i++) {
        others[i] = mine;
    }
    others[0].lora_id = 8;
    others[1].lora_id = 0;
    others[1].flags = RKV_NAMESPACE_IMAGE;
    others[2].salt[31] = 2;
    others[3].epoch = 4;
    others[4].image_digest[15] = 3;
    fixture f = new_fixture(4, 32);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_sequence_info parent = begin_in(&f, &mine, text(ids, 8)), child = new_state();
    publish(&f, parent.sequence, 8);
    CHECK(retain(&f, parent.sequence));
    rkv_tokens more = text(ids, 1), all = text(ids, 8);
    rkv_sequence_continue_args args = continue_args(parent.sequence, &more);
    args.all_tokens = &all;
    snapshot before = take(&f);
    for (size_t i = 0; i < 5; i++) {
        args.space = &others[i];
        CHECK_STATUS(rkv_sequence_continue(f.cache, &args, &child), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names(fields[i]) && message_names("space"));
    }
    args.space = NULL;
    CHECK_STATUS(rkv_sequence_continue(f.cache, &args, &child), RKV_STATUS_INVALID_ARGUMENT);
    CHECK(same(&f, &before));
    args.space = &mine;
    child = continue_as(&f, &args);
    CHECK_EQ(child.inherited_position_count, 8);
    append(&f, child.sequence, 9);
    publish(&f, child.sequence, 10);
    CHECK_EQ(probe(&f, text(ids, 8)), 0);
    CHECK_EQ(probe_in(&f, &mine, text(ids, 8)), 8);
    release(&f, child.sequence);
    end_fixture(&f);
}

/* Inherited positions are hits of their own kind, whatever is done with the child. */
static void c09_inherited_positions_are_counted(void) {
    fixture f = new_fixture(4, 64);
    uint32_t ids[10];
    count_up(ids, 10, 1);
    rkv_sequence_id parent = serve_and_retain(&f, text(ids, 10));
    rkv_cache_stats before = cache_stats(&f);
    rkv_sequence_info child = continue_from(&f, parent, text(ids, 3));
    release(&f, child.sequence);
    child = continue_from(&f, parent, text(ids, 0));
    confirm_copies(&f, child.sequence);
    rkv_sequence_fork_child children[3];
    fork_into(&f, child.sequence, 3, children);
    rkv_cache_stats after = cache_stats(&f);
    CHECK_EQ(after.inherit_count, before.inherit_count + 5);
    CHECK_EQ(after.inherited_position_count, before.inherited_position_count + 10 + 9 + 3 * 9);
    CHECK_EQ(after.lookup_count, before.lookup_count);
    CHECK_EQ(after.lookup_position_count, before.lookup_position_count);
    CHECK_EQ(after.hit_position_count, before.hit_position_count);
    CHECK_EQ(after.partial_hit_position_count, before.partial_hit_position_count);
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ(query(&f, children[i].sequence).inherited_position_count, 9);
        release(&f, children[i].sequence);
    }
    /* an ordinary begin inherits nothing; a refused child counts nothing */
    rkv_sequence_info state = begin(&f, text(ids, 10));
    CHECK_EQ(state.inherited_position_count, 0);
    before = cache_stats(&f);
    static uint32_t many[400];
    CHECK(try_continue(&f, parent, text(many, 400), &state) != RKV_STATUS_OK);
    CHECK_EQ(cache_stats(&f).inherit_count, before.inherit_count);
    end_fixture(&f);
}

/* A use of the parent's pages: what nobody used for longer goes before them. */
static void c09_inheriting_refreshes_recency(void) {
    for (int used = 0; used < 2; used++) {
        fixture f = new_fixture(4, 16);
        uint32_t ids[4] = {1, 2, 3, 4}, other[4] = {50, 51, 52, 53};
        rkv_sequence_id parent = serve_and_retain(&f, text(ids, 4));
        serve(&f, text(other, 4));
        if (used) {
            release(&f, continue_from(&f, parent, text(ids, 1)).sequence);
        }
        CHECK_OK(rkv_sequence_drop(f.cache, parent));
        CHECK_EQ(evict(&f, 1), 1);
        CHECK_EQ(probe(&f, text(ids, 4)), used ? 4 : 0);
        CHECK_EQ(probe(&f, text(other, 4)), used ? 0 : 4);
        end_fixture(&f);
    }
}

/* What is taken over never ends inside an image, whatever was said to be computed (K15). */
static void c04_no_cut_inside_an_image(void) {
    const uint32_t sizes[] = {1, 3, 4, 16};
    for (size_t s = 0; s < 4; s++) {
        fixture f = new_fixture(sizes[s], 256);
        /* ends of tokens: 1, 2, 15, 16, 21 */
        const uint32_t ids[5] = {1, 2, 0, 3, 0};
        rkv_token_item items[2] = {image(2, 1, 13), image(4, 2, 5)};
        for (uint64_t computed = 0; computed <= 21; computed++) {
            rkv_sequence_info parent = begin(&f, with_items(ids, 5, items, 2));
            if (parent.copy_count > 0) {
                confirm_copies(&f, parent.sequence);
            }
            publish(&f, parent.sequence, computed);
            uint64_t known = parent.cached_position_count;
            known = computed > known ? computed : known;
            CHECK(retain(&f, parent.sequence));
            uint64_t want = known < 2 ? known : known < 15 ? 2 : known < 16 ? 15 : 16;
            rkv_sequence_info child = continue_from(&f, parent.sequence, text(ids, 0));
            CHECK_EQ(child.cached_position_count, want);
            CHECK_EQ(child.cached_token_count, want < 15 ? want : want - 12);
            release(&f, child.sequence);
            /* with more to compute, the last image may be taken over whole */
            child = continue_from(&f, parent.sequence, text(ids, 1));
            CHECK_EQ(child.cached_position_count, known == 21 ? 21 : want);
            release(&f, child.sequence);
            CHECK_OK(rkv_sequence_drop(f.cache, parent.sequence));
            evict(&f, 1000);
        }
        end_fixture(&f);
    }
}

/* A cache that shares whole pages only copies nothing here either. */
static void c04_whole_pages_only(void) {
    fixture f = new_fixture_with(4, 32, 8, RKV_CACHE_WHOLE_PAGES);
    uint32_t ids[10];
    count_up(ids, 10, 1);
    rkv_sequence_id parent = serve_and_retain(&f, text(ids, 10));
    CHECK(private_pages(&f) == 0 && cache_stats(&f).retained_page_count == 2);
    rkv_sequence_info child = continue_from(&f, parent, text(ids, 2));
    CHECK(child.cached_position_count == 8 && child.copy_count == 0);
    CHECK(child.shared_page_count == 2 && child.page_count == 3);
    publish(&f, child.sequence, 12);
    rkv_sequence_fork_child forked;
    fork_into(&f, child.sequence, 1, &forked);
    CHECK_EQ(forked.copy_count, 0);
    CHECK_EQ(query(&f, forked.sequence).cached_position_count, 12);
    release(&f, forked.sequence);
    release(&f, child.sequence);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(c05_a_running_parent);
    RUN(c05_a_parent_that_has_yet_to_copy); /* the block-hash index copies nothing at begin */
    RUN_BOTH(c06_a_displaced_parent);
    RUN_BOTH(c07_another_namespace_is_refused);
    RUN_BOTH(c09_inherited_positions_are_counted);
    RUN_BOTH(c09_inheriting_refreshes_recency);
    RUN_BOTH(c04_no_cut_inside_an_image);
    RUN_BOTH(c04_whole_pages_only);
    return check_result();
}
