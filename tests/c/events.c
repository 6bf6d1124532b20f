/* E01, E03, E04: the encoder of events through the header. What the bytes say is tested in Rust,
 * tests/events; here is what calls say of them, and what they refuse. */
#include "misuse.h"

enum { ROOM = 1 << 16 };

static uint8_t room[ROOM];

static fixture with_journal(uint64_t journal_bytes) {
    fixture f = {NULL, NULL, 4};
    rkv_cache_config config;
    f.table = new_table(4, 33, 8);
    CHECK_OK(rkv_cache_config_init(&config, sizeof config));
    config.index = fixture_index;
    config.journal_bytes = journal_bytes;
    if (!CHECK_OK(rkv_cache_create(f.table, &config, &f.cache))) {
        exit(1);
    }
    return f;
}

static rkv_event_encoder *new_encoder(const fixture *f) {
    rkv_event_encoder *encoder = NULL;
    if (!CHECK_OK(rkv_event_encoder_create(f->cache, NULL, &encoder))) {
        exit(1);
    }
    return encoder;
}

static rkv_event_batch new_batch(void) {
    rkv_event_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.struct_size = sizeof batch;
    return batch;
}

static rkv_event_batch encode(rkv_event_encoder *encoder) {
    rkv_event_batch batch = new_batch();
    CHECK_OK(rkv_event_encoder_encode(encoder, 1.0, room, ROOM, &batch));
    return batch;
}

static bool says(const rkv_event_batch *batch, const char *text) {
    size_t length = strlen(text);
    for (size_t at = 0; at + length <= batch->byte_count; at++) {
        if (memcmp(room + at, text, length) == 0) {
            return true;
        }
    }
    return false;
}

static void request(const fixture *f, const rkv_namespace *space, uint32_t first) {
    uint32_t ids[12];
    count_up(ids, 12, first);
    rkv_sequence_info state = begin_in(f, space, text(ids, 12));
    if (state.copy_count > 0) {
        CHECK_OK(rkv_sequence_confirm_copies(f->cache, state.sequence));
    }
    publish(f, state.sequence, state.position_count);
    release(f, state.sequence);
}

static void e01_batches_say_what_came_and_went(void) {
    fixture f = with_journal(1 << 16);
    request(&f, NULL, 1);
    rkv_event_encoder *encoder = new_encoder(&f);
    rkv_event_batch batch = encode(encoder);
    CHECK(says(&batch, "AllBlocksCleared") && says(&batch, "BlockStored"));
    CHECK(!says(&batch, "extra_keys"));
    CHECK_EQ(batch.event_count, 2);
    CHECK_EQ(batch.stored_block_count, 3);
    CHECK_EQ(batch.flags, 0);
    batch = encode(encoder);
    CHECK_EQ(batch.byte_count, 0);
    CHECK_EQ(batch.event_count, 0);
    uint64_t before = batch.last_number;

    request(&f, NULL, 100);
    size_t evicted = 0;
    CHECK_OK(rkv_cache_evict(f.cache, 2, NULL, 0, &evicted));
    batch = encode(encoder);
    CHECK(says(&batch, "BlockRemoved") && says(&batch, "caller"));
    CHECK_EQ(batch.stored_block_count, 3);
    CHECK_EQ(batch.removed_block_count, evicted);
    CHECK(batch.last_number > before);
    CHECK_EQ(batch.lost_record_count, 0);

    /* Order of destruction doesn't matter; events go on. */
    rkv_cache_destroy(f.cache);
    batch = encode(encoder);
    CHECK(says(&batch, "AllBlocksCleared") && !says(&batch, "BlockRemoved"));
    CHECK_EQ(batch.removed_block_count, 6 - evicted);
    rkv_page_table_destroy(f.table);
    CHECK_EQ(encode(encoder).byte_count, 0);
    rkv_event_encoder_destroy(encoder);
    rkv_event_encoder_destroy(NULL);
}

static void e03_small_buffers_lose_nothing(void) {
    fixture f = with_journal(1 << 16);
    request(&f, NULL, 1);
    rkv_event_encoder *encoder = new_encoder(&f);
    rkv_event_batch batch = new_batch();
    CHECK_OK(rkv_event_encoder_encode(encoder, 1.0, NULL, 0, &batch));
    CHECK(batch.byte_count > 0 && batch.byte_count < 64);
    CHECK_EQ(batch.flags, RKV_EVENTS_MORE);
    CHECK_EQ(batch.event_count, 0);
    uint64_t needed = batch.byte_count, stored = 0, events = 0;
    batch = new_batch();
    CHECK_STATUS(rkv_event_encoder_encode(encoder, 1.0, room, (size_t)needed - 1, &batch),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(message_names("buffer"));
    CHECK_EQ(batch.byte_count, needed);
    do {
        batch = new_batch();
        rkv_status done = rkv_event_encoder_encode(encoder, 1.0, room, (size_t)needed, &batch);
        if (done == RKV_STATUS_BUFFER_TOO_SMALL) {
            CHECK(batch.byte_count > needed);
            needed = batch.byte_count;
        } else {
            CHECK_STATUS(done, RKV_STATUS_OK);
            CHECK(batch.byte_count <= needed);
        }
        stored += batch.stored_block_count;
        events += batch.event_count;
    } while (batch.flags & RKV_EVENTS_MORE);
    CHECK_EQ(stored, 3);
    CHECK_EQ(events, 2);

    /* A late subscriber: what was told is taken back, and then told again. */
    CHECK_OK(rkv_event_encoder_repeat(encoder));
    batch = encode(encoder);
    CHECK(says(&batch, "AllBlocksCleared"));
    CHECK_EQ(batch.removed_block_count, 3);
    CHECK_EQ(batch.stored_block_count, 3);
    CHECK_EQ(batch.flags, 0);
    rkv_event_encoder_destroy(encoder);
    end_fixture(&f);
}

static void e03_lost_records_are_told_and_all_begins_again(void) {
    fixture f = with_journal(2048);
    rkv_event_encoder *encoder = new_encoder(&f);
    (void)encode(encoder);
    for (uint32_t at = 0; at < 60; at++) {
        request(&f, NULL, 1000 * at);
    }
    /* Calls that have no room leave it to the batch that begins again to say so. */
    rkv_event_batch batch = new_batch();
    CHECK_STATUS(rkv_event_encoder_encode(encoder, 1.0, room, 20, &batch),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    uint64_t lost = batch.lost_record_count;
    CHECK(lost > 0);
    batch = new_batch();
    CHECK_OK(rkv_event_encoder_encode(encoder, 1.0, NULL, 0, &batch));
    CHECK_EQ(batch.lost_record_count, lost);
    batch = encode(encoder);
    CHECK_EQ(batch.lost_record_count, lost);
    CHECK(says(&batch, "AllBlocksCleared"));
    CHECK_EQ(batch.stored_block_count, cached_pages(&f));
    CHECK_EQ(encode(encoder).lost_record_count, 0);
    rkv_event_encoder_destroy(encoder);
    end_fixture(&f);
}

static void e04_namespaces_have_names(void) {
    fixture f = with_journal(1 << 16);
    rkv_event_encoder *encoder = NULL;
    rkv_event_encoder_config config;
    memset(&config, 0, sizeof config);
    config.struct_size = sizeof config;
    config.flags = RKV_EVENTS_WIDE_HASHES | RKV_EVENTS_DATA_PARALLEL;
    config.data_parallel_rank = 3;
    config.medium = "STORAGE";
    CHECK_OK(rkv_event_encoder_create(f.cache, &config, &encoder));
    rkv_namespace space = new_namespace();
    space.flags = RKV_NAMESPACE_LORA;
    space.lora_id = 7;
    space.salt[0] = 1;
    CHECK_OK(rkv_event_encoder_name_namespace(encoder, &space, "sql-adapter", "tenant-a"));
    request(&f, &space, 1);
    rkv_event_batch batch = encode(encoder);
    CHECK(says(&batch, "sql-adapter") && says(&batch, "tenant-a") && says(&batch, "STORAGE"));
    CHECK_EQ(room[batch.byte_count - 1], 3);
    CHECK_OK(rkv_event_encoder_name_namespace(encoder, &space, NULL, ""));
    CHECK_OK(rkv_event_encoder_repeat(encoder));
    batch = encode(encoder);
    CHECK(!says(&batch, "sql-adapter") && !says(&batch, "tenant-a"));
    /* Of a rank, by name. */
    CHECK(says(&batch, "BlockRemoved") && !says(&batch, "AllBlocksCleared"));
    CHECK_EQ(batch.removed_block_count, 3);
    CHECK_EQ(batch.stored_block_count, 3);
    rkv_event_encoder_destroy(encoder);
    end_fixture(&f);
}

static void m01_encoders_that_are_refused(void) {
    fixture f = with_journal(1 << 16), none = new_fixture(4, 8);
    rkv_event_encoder *encoder = NULL;
    REFUSED(&none, rkv_event_encoder_create(none.cache, NULL, &encoder),
            RKV_STATUS_INVALID_STATE, "journal");
    BAD(&f, rkv_event_encoder_create(NULL, NULL, &encoder), "cache");
    BAD(&f, rkv_event_encoder_create(f.cache, NULL, NULL), "out_encoder");
    rkv_event_encoder_config good, bad;
    memset(&good, 0, sizeof good);
    good.struct_size = sizeof good;
    BAD_INPUT_SIZES(&f, rkv_event_encoder_config, good, config,
                    rkv_event_encoder_create(f.cache, config, &encoder), "config");
#define BAD_FIELD(field, value, word)                                                             \
    bad = good;                                                                                   \
    bad.field = value;                                                                            \
    BAD(&f, rkv_event_encoder_create(f.cache, &bad, &encoder), word)
    BAD_FIELD(flags, 4, "config.flags");
    BAD_FIELD(data_parallel_rank, 1, "config.data_parallel_rank");
    BAD_FIELD(placeholder_token_id, RKV_TEXT_ID_LIMIT, "config.placeholder_token_id");
    BAD_FIELD(medium, "", "config.medium");
    BAD_FIELD(medium, "\xff", "config.medium");
#undef BAD_FIELD
    CHECK(encoder == NULL);
    end_fixture(&none);
    end_fixture(&f);
}

static void m01_calls_that_are_refused(void) {
    fixture f = with_journal(1 << 16);
    rkv_event_encoder *encoder = new_encoder(&f);
    rkv_event_batch batch = new_batch();
    static char longest[RKV_EVENTS_NAME_LIMIT + 2];
    memset(longest, 'x', RKV_EVENTS_NAME_LIMIT + 1);
    const double never = 1e308 * 10;
    BAD(&f, rkv_event_encoder_encode(NULL, 1.0, room, ROOM, &batch), "encoder");
    BAD(&f, rkv_event_encoder_encode(encoder, never, room, ROOM, &batch), "timestamp");
    BAD(&f, rkv_event_encoder_encode(encoder, 1.0, NULL, 1, &batch), "buffer");
    BAD(&f, rkv_event_encoder_encode(encoder, 1.0, room, ROOM, NULL), "out_batch");
    OUTPUT_SIZES(&f, rkv_event_batch, out, rkv_event_encoder_encode(encoder, 1.0, room, ROOM, out),
                 "out_batch");
    BAD(&f, rkv_event_encoder_name_namespace(NULL, NULL, NULL, NULL), "encoder");
    BAD(&f, rkv_event_encoder_name_namespace(encoder, NULL, "sql", NULL), "lora_name");
    BAD(&f, rkv_event_encoder_name_namespace(encoder, NULL, NULL, longest), "cache_salt");
    BAD(&f, rkv_event_encoder_name_namespace(encoder, NULL, NULL, "\xc3"), "cache_salt");
    BAD(&f, rkv_event_encoder_repeat(NULL), "encoder");
    rkv_event_encoder_destroy(encoder);
    end_fixture(&f);
}

int main(void) {
    RUN_BOTH(e01_batches_say_what_came_and_went);
    RUN(e03_small_buffers_lose_nothing);
    RUN(e03_lost_records_are_told_and_all_begins_again);
    RUN(e04_namespaces_have_names);
    RUN(m01_encoders_that_are_refused);
    RUN(m01_calls_that_are_refused);
    return check_result();
}
