/* M01: every way to call the functions on sequences wrongly. */
#include "misuse.h"

static void m01_begin(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_namespace space = new_namespace();
    rkv_sequence_info state;
    mark(&state, sizeof state);
    state.struct_size = sizeof state;
    rkv_sequence_begin_args good = sequence_args(&c.tokens), args;
    good.space = &space;
    BAD(f, rkv_sequence_begin(NULL, &good, &state), "cache");
    BAD(f, rkv_sequence_begin(f->cache, NULL, &state), "args");
    BAD_INPUT_SIZES(f, rkv_sequence_begin_args, good, p, rkv_sequence_begin(f->cache, p, &state),
                    "args");
    OUTPUT_SIZES_FROM(f, rkv_sequence_info,
                      offsetof(rkv_sequence_info, known_position_count), p,
                      rkv_sequence_begin(f->cache, &good, p), "out_state");
    args = good;
    args.flags = 1;
    BAD(f, rkv_sequence_begin(f->cache, &args, &state), "flags");
    args = good;
    args.tokens = NULL;
    BAD(f, rkv_sequence_begin(f->cache, &args, &state), "tokens");
    rkv_tokens none = text(c.ids, 0);
    args.tokens = &none;
    BAD(f, rkv_sequence_begin(f->cache, &args, &state), "tokens");
    uint32_t ids[2] = {1, RKV_TEXT_ID_LIMIT};
    rkv_tokens unknown = text(ids, 2);
    args.tokens = &unknown;
    BAD(f, rkv_sequence_begin(f->cache, &args, &state), "ids");
    BAD_INPUT_SIZES(f, rkv_tokens, c.tokens, p,
                    (args.tokens = p, rkv_sequence_begin(f->cache, &args, &state)), "tokens");
    args = good;
    BAD_INPUT_SIZES(f, rkv_namespace, space, p,
                    (args.space = p, rkv_sequence_begin(f->cache, &args, &state)),
                    "space");
    const uint64_t absurd[] = {UINT64_MAX, UINT64_MAX - 8, UINT64_C(1) << 62, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        args = good;
        args.reserve_position_count = absurd[i];
        BAD(f, rkv_sequence_begin(f->cache, &args, &state), "reserve_position_count");
    }
    UNTOUCHED_STRUCT(state);
    GOOD_BIGGER_INPUT(rkv_sequence_begin_args, good, p, rkv_sequence_begin(f->cache, p, &state));
    GOOD_BIGGER_OUTPUT(rkv_sequence_info, p, rkv_sequence_begin(f->cache, &good, p));
    close_caches(&c);
}

static void m01_sequences(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_sequence_info state;
    rkv_sequence_publish_result result;
    mark(&state, sizeof state);
    mark(&result, sizeof result);
    state.struct_size = sizeof state;
    result.struct_size = sizeof result;
    const rkv_sequence_id strange[] = {0, c.released, c.foreign_sequence, c.sequence + 1000,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        rkv_sequence_id id = strange[i];
        const rkv_status stale = RKV_STATUS_STALE_SEQUENCE;
        REFUSED(f, rkv_sequence_read_info(f->cache, id, &state), stale, "sequence");
        REFUSED(f, rkv_sequence_read_copies(f->cache, id, NULL, 0, 0, &(size_t){0}), stale,
                "sequence");
        REFUSED(f, rkv_sequence_confirm_copies(f->cache, id), stale, "sequence");
        REFUSED(f, rkv_sequence_allocate(f->cache, id, 8), stale, "sequence");
        REFUSED(f, rkv_sequence_append(f->cache, id, &c.tokens), stale, "sequence");
        REFUSED(f, rkv_sequence_truncate(f->cache, id, 8), stale, "sequence");
        REFUSED(f, rkv_sequence_publish(f->cache, id, 8, &result), stale, "sequence");
        REFUSED(f, rkv_sequence_release(f->cache, id), stale, "sequence");
    }
    rkv_sequence_id id = c.sequence;
    BAD(f, rkv_sequence_read_info(NULL, id, &state), "cache");
    rkv_page_copy copy;
    size_t copies;
    BAD(f, rkv_sequence_read_copies(NULL, id, &copy, sizeof copy, 1, &copies), "cache");
    BAD(f, rkv_sequence_read_copies(f->cache, id, NULL, sizeof copy, 1, &copies), "copies");
    BAD(f, rkv_sequence_read_copies(f->cache, id, &copy, 1, 1, &copies), "element_size");
    BAD(f, rkv_sequence_read_copies(f->cache, id, &copy, sizeof copy, 1, NULL), "out_count");
    OUTPUT_SIZES_FROM(f, rkv_sequence_info,
                      offsetof(rkv_sequence_info, known_position_count), p,
                      rkv_sequence_read_info(f->cache, id, p), "out_state");
    BAD(f, rkv_sequence_confirm_copies(NULL, id), "cache");
    REFUSED(f, rkv_sequence_confirm_copies(f->cache, id), RKV_STATUS_INVALID_STATE, "copy");
    BAD(f, rkv_sequence_allocate(NULL, id, 8), "cache");
    BAD(f, rkv_sequence_allocate(f->cache, id, 9), "position_count");
    BAD(f, rkv_sequence_allocate(f->cache, id, UINT64_MAX), "position_count");
    BAD(f, rkv_sequence_append(NULL, id, &c.tokens), "cache");
    BAD(f, rkv_sequence_append(f->cache, id, NULL), "tokens");
    BAD_INPUT_SIZES(f, rkv_tokens, c.tokens, p, rkv_sequence_append(f->cache, id, p), "tokens");
    uint32_t unknown_id = RKV_TEXT_ID_LIMIT;
    rkv_tokens tokens = text(&unknown_id, 1);
    BAD(f, rkv_sequence_append(f->cache, id, &tokens), "ids");
    tokens = text(c.ids, SIZE_MAX);
    BAD(f, rkv_sequence_append(f->cache, id, &tokens), "ids");
    BAD(f, rkv_sequence_truncate(NULL, id, 8), "cache");
    BAD(f, rkv_sequence_truncate(f->cache, id, 9), "position_count");
    BAD(f, rkv_sequence_truncate(f->cache, id, UINT64_MAX), "position_count");
    BAD(f, rkv_sequence_truncate(f->cache, id, 3), "position_count"); /* less than the prompt */
    BAD(f, rkv_sequence_publish(NULL, id, 8, &result), "cache");
    SMALL_OUTPUTS_FROM(f, rkv_sequence_publish_result, offsetof(rkv_sequence_publish_result, node),
                       p, rkv_sequence_publish(f->cache, id, 8, p), "out_result");
    BAD(f, rkv_sequence_publish(f->cache, id, 9, NULL), "computed_position_count");
    BAD(f, rkv_sequence_publish(f->cache, id, 9, &result), "computed_position_count");
    BAD(f, rkv_sequence_publish(f->cache, id, UINT64_MAX, &result), "computed_position_count");
    BAD(f, rkv_sequence_release(NULL, id), "cache");
    UNTOUCHED_STRUCT(state);
    UNTOUCHED_STRUCT(result);
    CHECK_EQ(query(f, id).position_count, 8);
    GOOD_BIGGER_OUTPUT(rkv_sequence_info, p, rkv_sequence_read_info(f->cache, id, p));
    GOOD_BIGGER_OUTPUT(rkv_sequence_publish_result, p, rkv_sequence_publish(f->cache, id, 8, p));
    close_caches(&c);
}

/* An unlock too many of the caller's does not take the protection off a live sequence. */
static void m01_stray_unlocks(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    publish(f, c.sequence, 8);
    rkv_node_id node = query(f, c.sequence).node;
    REFUSED(f, rkv_cache_unlock(f->cache, node), RKV_STATUS_STALE_LOCK, "lock");
    rkv_lock_id lock = lock_node(f, node);
    CHECK_OK(rkv_cache_unlock(f->cache, lock));
    REFUSED(f, rkv_cache_unlock(f->cache, lock), RKV_STATUS_STALE_LOCK, "lock");
    CHECK_EQ(evict(f, 100), 0);
    check_sane(f);
    release(f, c.sequence);
    close_caches(&c);
}

int main(void) {
    RUN_BOTH(m01_begin);
    RUN_BOTH(m01_sequences);
    RUN_BOTH(m01_stray_unlocks);
    return check_result();
}
