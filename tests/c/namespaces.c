/* Namespaces: what makes two different, and when one exists. */
#include "fixture.h"

/* One namespace for each way to differ; no two of them are the same. */
enum { SPACE_COUNT = 14 };

static void all_namespaces(rkv_namespace *spaces) {
    for (size_t i = 0; i < SPACE_COUNT; i++) {
        spaces[i] = new_namespace();
    }
    spaces[1].flags = RKV_NAMESPACE_LORA; /* LoRA 0 is a real id */
    spaces[2].flags = RKV_NAMESPACE_LORA;
    spaces[2].lora_id = 1;
    spaces[3].flags = RKV_NAMESPACE_LORA;
    spaces[3].lora_id = UINT64_C(1) << 32;
    spaces[4].flags = RKV_NAMESPACE_LORA;
    spaces[4].lora_id = UINT64_MAX;
    spaces[5].flags = RKV_NAMESPACE_IMAGE; /* and so is a digest of zeros */
    spaces[6].flags = RKV_NAMESPACE_IMAGE;
    spaces[6].image_digest[0] = 1;
    spaces[7].flags = RKV_NAMESPACE_IMAGE;
    spaces[7].image_digest[15] = 1;
    spaces[8].flags = RKV_NAMESPACE_LORA | RKV_NAMESPACE_IMAGE;
    spaces[9].epoch = 1;
    spaces[10].epoch = UINT64_C(1) << 32;
    spaces[11].salt[0] = 1;
    spaces[12].salt[31] = 1;
    spaces[13].flags = RKV_NAMESPACE_LORA;
    spaces[13].epoch = 1;
}

static void k11_namespaces_share_nothing(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_namespace spaces[SPACE_COUNT];
    all_namespaces(spaces);
    for (size_t i = 0; i < SPACE_COUNT; i++) {
        for (size_t j = 0; j < SPACE_COUNT; j++) {
            CHECK_EQ(probe_in(&f, &spaces[j], text(ids, 4)), j < i ? 4 : 0);
        }
        CHECK_EQ(insert_in(&f, &spaces[i], text(ids, 4)).claimed_page_count, 2);
        CHECK_EQ(cache_stats(&f).namespace_count, i + 1);
    }
    /* the default one is the one with nothing set */
    CHECK_EQ(probe_in(&f, NULL, text(ids, 4)), 4);
    CHECK_EQ(insert_in(&f, NULL, text(ids, 4)).claimed_page_count, 0);
    CHECK_EQ(cached_pages(&f), 2 * SPACE_COUNT);
    /* sequences respect them too */
    rkv_namespace another = new_namespace();
    another.epoch = 77;
    rkv_sequence_info state = begin_in(&f, &another, text(ids, 4));
    CHECK_EQ(state.cached_position_count, 0);
    release(&f, state.sequence);
    state = begin_in(&f, &spaces[13], text(ids, 4));
    CHECK_EQ(state.cached_position_count, 3);
    release(&f, state.sequence);
    end_fixture(&f);
}

static void k11_matching_creates_none(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_namespace space = new_namespace();
    for (uint32_t i = 0; i < 100; i++) {
        space.epoch = i;
        rkv_cache_match_result match = match_in(&f, &space, text(ids, 4), RKV_MATCH_LOCK);
        CHECK(match.token_count == 0 && match.node == 0 && match.lock == 0);
        CHECK_EQ(probe_in(&f, &space, text(ids, 4)), 0);
    }
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    /* a sequence that publishes nothing creates none either, nor does less than a page */
    rkv_sequence_info state = begin_in(&f, &space, text(ids, 4));
    publish(&f, state.sequence, 1);
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    release(&f, state.sequence);
    insert_in(&f, &space, text(ids, 1));
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    end_fixture(&f);
}

static void k11_the_last_page_removes_it(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_namespace a = new_namespace(), b = new_namespace();
    a.epoch = 1;
    b.epoch = 2;
    insert_in(&f, &a, text(ids, 4));
    insert_in(&f, &b, text(ids, 4));
    CHECK_EQ(cache_stats(&f).namespace_count, 2);
    CHECK_EQ(evict(&f, 1), 1);
    CHECK_EQ(cache_stats(&f).namespace_count, 2);
    CHECK_EQ(evict(&f, 1), 1);
    CHECK_EQ(cache_stats(&f).namespace_count, 1);
    CHECK_EQ(probe_in(&f, &b, text(ids, 4)), 4);
    CHECK_EQ(evict(&f, 2), 2);
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    /* inserting recreates it */
    CHECK_EQ(insert_in(&f, &a, text(ids, 4)).claimed_page_count, 2);
    CHECK_EQ(cache_stats(&f).namespace_count, 1);
    end_fixture(&f);
}

/* A locked root outlives its pages, and goes with its lock. */
static void k11_a_locked_root_stays(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_namespace space = new_namespace();
    space.epoch = 1;
    rkv_node_id root = root_of(&f, insert_in(&f, &space, text(ids, 4)).node);
    rkv_lock_id root_lock = lock_node(&f, root);
    CHECK_EQ(reclaimable_pages(&f), 2); /* its lock protects no page below it */
    CHECK_EQ(evict(&f, 2), 2);
    CHECK_EQ(cache_stats(&f).namespace_count, 1);
    rkv_node_info info = info_of(&f, root);
    CHECK(info.lock_count == 1 && info.child_count == 0 && info.page_count == 0);
    check_sane(&f);
    insert_in(&f, &space, text(ids, 4));
    CHECK_EQ(cache_stats(&f).namespace_count, 1);
    CHECK_EQ(evict(&f, 2), 2);
    CHECK_OK(rkv_cache_unlock(f.cache, root_lock));
    CHECK_EQ(cache_stats(&f).namespace_count, 0);
    CHECK(is_stale(&f, root));
    end_fixture(&f);
}

/* Images are known for as long as somebody's tokens hold them, and are never created by a match. */
static void k11_images_come_and_go_with_their_tokens(void) {
    fixture f = new_fixture(1, 64);
    const uint32_t ids[3] = {1, 0, 2};
    rkv_token_item picture = image(1, 1, 4), other = image(1, 2, 4);
    match_of(&f, with_items(ids, 3, &picture, 1));
    CHECK_EQ(cache_stats(&f).image_count, 0);
    insert(&f, with_items(ids, 3, &picture, 1));
    CHECK_EQ(cache_stats(&f).image_count, 1);
    rkv_sequence_info state = begin(&f, with_items(ids, 3, &other, 1));
    CHECK_EQ(cache_stats(&f).image_count, 2);
    release(&f, state.sequence);
    CHECK_EQ(cache_stats(&f).image_count, 1);
    CHECK_EQ(evict(&f, 6), 6);
    CHECK_EQ(cache_stats(&f).image_count, 0);
    end_fixture(&f);
}

/* The listing holds each namespace once, in structs that other calls take, with its root. */
static void k11_namespaces_are_listed(void) {
    fixture f = new_fixture(2, 64);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_namespace spaces[SPACE_COUNT], found[SPACE_COUNT + 1];
    rkv_node_id roots[SPACE_COUNT + 1];
    size_t count = 77;
    CHECK_OK(rkv_cache_read_namespaces(f.cache, NULL, 0, NULL, 0, &count));
    CHECK_EQ(count, 0);
    all_namespaces(spaces);
    for (size_t i = 0; i < SPACE_COUNT; i++) {
        insert_in(&f, &spaces[i], text(ids, 4));
    }
    CHECK_OK(rkv_cache_read_namespaces(f.cache, NULL, 0, NULL, 0, &count));
    CHECK_EQ(count, SPACE_COUNT);
    CHECK_OK(rkv_cache_read_namespaces(f.cache, found, sizeof *found, roots, SPACE_COUNT + 1,
                                       &count));
    CHECK_EQ(count, SPACE_COUNT);
    for (size_t i = 0; i < SPACE_COUNT; i++) {
        size_t same = 0;
        for (size_t j = 0; j < SPACE_COUNT; j++) {
            same += memcmp(&found[i], &spaces[j], sizeof *found) == 0;
        }
        CHECK_EQ(same, 1);
        CHECK_EQ(probe_in(&f, &found[i], text(ids, 4)), 4);
        rkv_node_info info = {.struct_size = sizeof info};
        CHECK_OK(rkv_node_read_info(f.cache, roots[i], &info));
        CHECK(info.parent == 0 && info.child_count >= 1);
    }
    /* J06: too little room is refused, and nothing is written */
    memset(found, 0xAB, sizeof found);
    CHECK_STATUS(rkv_cache_read_namespaces(f.cache, found, sizeof *found, NULL, SPACE_COUNT - 1,
                                           &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK_EQ(count, SPACE_COUNT);
    CHECK_EQ(found[0].flags, 0xABABABAB);
    /* elements of another size: a namespace that is not known to be so large, and one larger */
    struct {
        rkv_namespace known;
        uint64_t later;
    } larger[SPACE_COUNT];
    memset(larger, 0xAB, sizeof larger);
    CHECK_OK(rkv_cache_read_namespaces(f.cache, &larger[0].known, sizeof *larger, NULL,
                                       SPACE_COUNT, &count));
    for (size_t i = 0; i < SPACE_COUNT; i++) {
        CHECK(larger[i].known.struct_size == sizeof *larger && larger[i].later == 0);
        CHECK_EQ(probe_in(&f, &larger[i].known, text(ids, 4)), 4);
    }
    CHECK_STATUS(rkv_cache_read_namespaces(f.cache, found, sizeof *found - 8, NULL, SPACE_COUNT,
                                           &count),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("element_size"));
    evict(&f, 2 * SPACE_COUNT);
    CHECK_OK(rkv_cache_read_namespaces(f.cache, found, sizeof *found, roots, 1, &count));
    CHECK_EQ(count, 0);
    end_fixture(&f);
}

static void k11_contradictory_namespaces(void) {
    fixture f = new_fixture(2, 16);
    uint32_t ids[4] = {1, 2, 3, 4};
    rkv_tokens tokens = text(ids, 4);
    size_t positions = 77;
    rkv_namespace space = new_namespace();
    space.lora_id = 1;
    CHECK_STATUS(rkv_cache_probe(f.cache, &space, &tokens, NULL, &positions),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("lora_id"));
    space = new_namespace();
    space.image_digest[3] = 1;
    CHECK_STATUS(rkv_cache_probe(f.cache, &space, &tokens, NULL, &positions),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("image_digest"));
    space = new_namespace();
    space.flags = 4;
    CHECK_STATUS(rkv_cache_probe(f.cache, &space, &tokens, NULL, &positions),
                 RKV_STATUS_INVALID_ARGUMENT);
    CHECK(message_names("flags"));
    CHECK_EQ(positions, 77);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(k11_namespaces_share_nothing);
    RUN_BOTH(k11_matching_creates_none);
    RUN_BOTH(k11_the_last_page_removes_it);
    RUN_BOTH(k11_a_locked_root_stays);
    RUN_BOTH(k11_images_come_and_go_with_their_tokens);
    RUN_BOTH(k11_namespaces_are_listed);
    RUN_BOTH(k11_contradictory_namespaces);
    return check_result();
}
