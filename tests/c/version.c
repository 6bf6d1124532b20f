/* Versions, status names, the last message, the log, and the layout that the ABI promises. */
#include <limits.h>

#include "fixture.h"
#include "radixkv_spatial.h"

static void m01_no_message_before_the_first_failure(void) {
    char buffer[8] = "unset";
    CHECK_EQ(rkv_last_error_message(NULL, 0), 1);
    CHECK_EQ(rkv_last_error_message(buffer, sizeof buffer), 1);
    CHECK_EQ(buffer[0], 0);
    rkv_shortage shortage;
    shortage.struct_size = sizeof shortage;
    CHECK_STATUS(rkv_last_shortage(&shortage), RKV_STATUS_INVALID_STATE);
}

static void version_is_the_headers(void) {
    char expected[64];
    snprintf(expected, sizeof expected, "%d.%d.%d", RKV_VERSION_MAJOR, RKV_VERSION_MINOR,
             RKV_VERSION_PATCH);
    CHECK(strcmp(rkv_version_string(), expected) == 0);
    CHECK_EQ(rkv_abi_version(), RKV_ABI_VERSION);
    CHECK((rkv_features() & RKV_FEATURE_RADIX_INDEX) != 0);
    CHECK((rkv_features() & RKV_FEATURE_BLOCK_HASH_INDEX) != 0);
}

static void m01_every_status_has_a_name(void) {
    CHECK(strcmp(rkv_status_name(RKV_STATUS_OK), "RKV_STATUS_OK") == 0);
    const struct {
        rkv_status status;
        int number;
        const char *name;
    } all[] = {
        {RKV_STATUS_INVALID_ARGUMENT, 1, "RKV_STATUS_INVALID_ARGUMENT"},
        {RKV_STATUS_STALE_NODE, 2, "RKV_STATUS_STALE_NODE"},
        {RKV_STATUS_STALE_SEQUENCE, 3, "RKV_STATUS_STALE_SEQUENCE"},
        {RKV_STATUS_STALE_LOCK, 4, "RKV_STATUS_STALE_LOCK"},
        {RKV_STATUS_BUFFER_TOO_SMALL, 5, "RKV_STATUS_BUFFER_TOO_SMALL"},
        {RKV_STATUS_INVALID_STATE, 6, "RKV_STATUS_INVALID_STATE"},
        {RKV_STATUS_UNSUPPORTED, 7, "RKV_STATUS_UNSUPPORTED"},
        {RKV_STATUS_STALE_PIN, 8, "RKV_STATUS_STALE_PIN"},
        {RKV_STATUS_STALE_TICKET, 9, "RKV_STATUS_STALE_TICKET"},
        {RKV_STATUS_OUT_OF_PAGES, 100, "RKV_STATUS_OUT_OF_PAGES"},
        {RKV_STATUS_OUT_OF_SLOTS, 101, "RKV_STATUS_OUT_OF_SLOTS"},
        {RKV_STATUS_OUT_OF_MEMORY, 102, "RKV_STATUS_OUT_OF_MEMORY"},
        {RKV_STATUS_BUSY, 103, "RKV_STATUS_BUSY"},
        {RKV_STATUS_PENDING, 104, "RKV_STATUS_PENDING"},
        {RKV_STATUS_DEVICE, 105, "RKV_STATUS_DEVICE"},
        {RKV_STATUS_STORAGE, 106, "RKV_STATUS_STORAGE"},
        {RKV_STATUS_INTERNAL, 900, "RKV_STATUS_INTERNAL"},
        {RKV_STATUS_POISONED, 901, "RKV_STATUS_POISONED"},
        {RKV_STATUS_CORRUPT, 902, "RKV_STATUS_CORRUPT"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        CHECK_EQ(all[i].status, all[i].number);
        CHECK(strcmp(rkv_status_name(all[i].number), all[i].name) == 0);
    }
    const int32_t unknown[] = {-1, 10, 99, 107, 12345, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        CHECK(strcmp(rkv_status_name(unknown[i]), "RKV_STATUS_UNKNOWN") == 0);
    }
}

static void m01_message_is_cut_to_fit_and_stays(void) {
    CHECK_STATUS(rkv_coord_bin(0.5, NULL), RKV_STATUS_INVALID_ARGUMENT);
    char whole[256], tiny[4], one[1] = {'x'};
    size_t need = rkv_last_error_message(whole, sizeof whole);
    CHECK(need > sizeof tiny && need == strlen(whole) + 1);
    CHECK(strstr(whole, "out_bin") != NULL);
    CHECK_EQ(rkv_last_error_message(NULL, 0), need);
    CHECK_EQ(rkv_last_error_message(tiny, sizeof tiny), need);
    CHECK(strlen(tiny) == 3 && strncmp(tiny, whole, 3) == 0);
    CHECK_EQ(rkv_last_error_message(one, sizeof one), need);
    CHECK_EQ(one[0], 0);
    /* a capacity of zero writes nothing */
    tiny[0] = 'x';
    CHECK_EQ(rkv_last_error_message(tiny, 0), need);
    CHECK_EQ(tiny[0], 'x');
    /* a success does not clear it */
    uint32_t bin = 0;
    CHECK_OK(rkv_coord_bin(0.0, &bin));
    CHECK(message_names("out_bin"));
}

static void count_message(uint32_t level, const char *message, void *user_data) {
    (void)level;
    (void)message;
    ++*(int *)user_data;
}

static void log_is_silent_for_the_callers_mistakes(void) {
    int messages = 0;
    rkv_set_log_callback(RKV_LOG_ERROR, count_message, &messages);
    CHECK_STATUS(rkv_coord_bin(-1.0, NULL), RKV_STATUS_INVALID_ARGUMENT);
    rkv_set_log_callback(RKV_LOG_OFF, count_message, &messages);
    rkv_set_log_callback(RKV_LOG_OFF, NULL, NULL);
    CHECK_EQ(messages, 0);
}

/* A change of one of these numbers breaks every program that was compiled before. */
static void layout_is_the_abi(void) {
    CHECK_EQ(sizeof(rkv_status), 4);
    CHECK_EQ(sizeof(rkv_node_id), 8);
    CHECK_EQ(sizeof(rkv_sequence_id), 8);
    CHECK_EQ(sizeof(rkv_lock_id), 8);
    CHECK_EQ(sizeof(rkv_shortage), 56);
    CHECK_EQ(sizeof(rkv_token_item), 40);
    CHECK_EQ(offsetof(rkv_token_item, digest), 24);
    CHECK_EQ(sizeof(rkv_region), 16);
    CHECK_EQ(sizeof(rkv_group_config), 24);
    CHECK_EQ(sizeof(rkv_published_group), 16);
    CHECK_EQ(sizeof(rkv_pool_config), 8);
    CHECK_EQ(sizeof(rkv_pool_stats), 64);
    CHECK_EQ(offsetof(rkv_page_table_config, groups), 24);
    CHECK_EQ(sizeof(rkv_page_table_stats), 80);
    CHECK_EQ(sizeof(rkv_page_table_batch_row), 8);
    CHECK_EQ(sizeof(rkv_cache_config), 40);
    CHECK_EQ(sizeof(rkv_journal_record), 160);
    CHECK_EQ(sizeof(rkv_journal_item), 48);
    CHECK_EQ(sizeof(rkv_event_batch), 56);
    CHECK_EQ(sizeof(rkv_snapshot_cache_match_result), 72);
    CHECK_EQ(offsetof(rkv_snapshot_cache_match_result, common_token_count), 48);
    CHECK_EQ(sizeof(rkv_snapshot_cache_insert_args), 88);
    CHECK_EQ(sizeof(rkv_snapshot_part), 16);
    CHECK_EQ(sizeof(rkv_sequence_fetch_result), 32);
    CHECK_EQ(sizeof(rkv_cache_prefetch_result), 48);
    CHECK_EQ(sizeof(rkv_fetch_end), 40);
    CHECK_EQ(sizeof(rkv_cache_poll_result), 24);
    CHECK_EQ(sizeof(rkv_tier_totals), 64);
    CHECK_EQ(sizeof(rkv_tier_stats), 520);
    CHECK_EQ(sizeof(rkv_remote_totals), 176);
    CHECK_EQ(sizeof(rkv_remote_item), 56);
    CHECK_EQ(sizeof(rkv_remote_store), 48);
    CHECK_EQ(sizeof(rkv_snapshot_tier_config), 96);
    CHECK_EQ(sizeof(rkv_snapshot_tier_stats), 416);
    CHECK_EQ(sizeof(rkv_namespace), 72);
    CHECK_EQ(offsetof(rkv_namespace, salt), 40);
    CHECK_EQ(sizeof(rkv_cache_match_result), 96);
    CHECK_EQ(offsetof(rkv_cache_match_result, known_position_count), 64);
    CHECK_EQ(offsetof(rkv_cache_match_result, page_count), 48);
    CHECK_EQ(sizeof(rkv_cache_insert_result), 64);
    CHECK_EQ(offsetof(rkv_cache_insert_result, page_count), 56);
    CHECK_EQ(offsetof(rkv_cache_insert_result, claimed_group_page_count), 40);
    CHECK_EQ(sizeof(rkv_index_memory_stats), 32);
    CHECK_EQ(sizeof(rkv_group_cost), 16);
    CHECK_EQ(sizeof(rkv_group_depths), 40);
    CHECK_EQ(sizeof(rkv_locked_page), 8);
    CHECK_EQ(sizeof(rkv_evicted_page), 8);
    CHECK_EQ(sizeof(rkv_node_info), 64);
    CHECK_EQ(offsetof(rkv_cache_stats, prefix_count), 120);
    CHECK_EQ(sizeof(rkv_page_digest), 32);
    CHECK_EQ(sizeof(rkv_cache_stats), 184);
    CHECK_EQ(sizeof(rkv_sequence_info), 112);
    CHECK_EQ(offsetof(rkv_sequence_info, copy_count), 64);
    CHECK_EQ(sizeof(rkv_sequence_publish_result), 48);
    CHECK_EQ(sizeof(rkv_sequence_fork_child), 16);
    CHECK_EQ(offsetof(rkv_sequence_fork_child, copy_count), 12);
    if (sizeof(void *) == 8) {
        CHECK_EQ(sizeof(rkv_tokens), 40);
        CHECK_EQ(sizeof(rkv_page_table_batch_arrays), 40);
        CHECK_EQ(sizeof(rkv_page_table_config), 72);
        CHECK_EQ(sizeof(rkv_cache_insert_args), 96);
        CHECK_EQ(offsetof(rkv_cache_insert_args, groups), 64);
        CHECK_EQ(sizeof(rkv_group_row), 32);
        CHECK_EQ(sizeof(rkv_event_encoder_config), 24);
        CHECK_EQ(sizeof(rkv_tier_config), 136);
        CHECK_EQ(sizeof(rkv_tier_pool_config), 24);
        CHECK_EQ(sizeof(rkv_copy_job), 48);
        CHECK_EQ(sizeof(rkv_sequence_begin_args), 40);
        CHECK_EQ(sizeof(rkv_tokens_page_digests_args), 40);
    }
}

int main(void) {
    RUN(m01_no_message_before_the_first_failure);
    RUN(version_is_the_headers);
    RUN(m01_every_status_has_a_name);
    RUN(m01_message_is_cut_to_fit_and_stays);
    RUN(log_is_silent_for_the_callers_mistakes);
    RUN(layout_is_the_abi);
    return check_result();
}
