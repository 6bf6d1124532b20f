/* M01: every way to call the functions on children and retained sequences wrongly. */
#include "misuse.h"

static void m01_continue(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_namespace space = new_namespace();
    rkv_sequence_info state;
    mark(&state, sizeof state);
    state.struct_size = sizeof state;
    rkv_sequence_continue_args good = continue_args(c.sequence, &c.tokens), args;
    good.flags = RKV_CONTINUE_RUNNING;
    good.space = &space;
    BAD(f, rkv_sequence_continue(NULL, &good, &state), "cache");
    BAD(f, rkv_sequence_continue(f->cache, NULL, &state), "args");
    BAD_INPUT_SIZES(f, rkv_sequence_continue_args, good, p,
                    rkv_sequence_continue(f->cache, p, &state),
                    "args");
    OUTPUT_SIZES_FROM(f, rkv_sequence_info,
                      offsetof(rkv_sequence_info, known_position_count), p,
                      rkv_sequence_continue(f->cache, &good, p), "out_state");
    args = good;
    args.flags = 2 | RKV_CONTINUE_RUNNING;
    BAD(f, rkv_sequence_continue(f->cache, &args, &state), "flags");
    args = good;
    uint32_t ids[2] = {1, RKV_TEXT_ID_LIMIT};
    rkv_tokens unknown = text(ids, 2);
    args.tokens = &unknown;
    BAD(f, rkv_sequence_continue(f->cache, &args, &state), "ids");
    rkv_token_item late = image(5, 1, 2);
    unknown = with_items(ids, 1, &late, 1);
    BAD(f, rkv_sequence_continue(f->cache, &args, &state), "token_index");
    BAD_INPUT_SIZES(f, rkv_tokens, c.tokens, p,
                    (args.tokens = p, rkv_sequence_continue(f->cache, &args, &state)), "tokens");
    args = good;
    BAD_INPUT_SIZES(f, rkv_tokens, c.tokens, p,
                    (args.all_tokens = p, rkv_sequence_continue(f->cache, &args, &state)),
                    "tokens");
    args = good;
    BAD_INPUT_SIZES(f, rkv_namespace, space, p,
                    (args.space = p, rkv_sequence_continue(f->cache, &args, &state)),
                    "space");
    /* longer than any row, by the tokens, by an image, or by the reserve */
    rkv_token_item huge = image(0, 1, UINT32_MAX);
    unknown = with_items(ids, 1, &huge, 1);
    args = good;
    args.tokens = &unknown;
    BAD(f, rkv_sequence_continue(f->cache, &args, &state), "tokens");
    const uint64_t absurd[] = {UINT64_MAX, UINT64_MAX - 8, UINT64_C(1) << 62, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        args = good;
        args.reserve_position_count = absurd[i];
        BAD(f, rkv_sequence_continue(f->cache, &args, &state), "reserve_position_count");
    }
    const rkv_sequence_id strange[] = {0, c.released, c.foreign_sequence, c.sequence + 1000,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        args = good;
        args.parent = strange[i];
        REFUSED(f, rkv_sequence_continue(f->cache, &args, &state), RKV_STATUS_STALE_SEQUENCE,
                "sequence");
        /* all tokens stand in for a parent, but must be good themselves */
        rkv_tokens none = text(ids, 0);
        args.all_tokens = &none;
        BAD(f, rkv_sequence_continue(f->cache, &args, &state), "tokens");
    }
    UNTOUCHED_STRUCT(state);
    GOOD_BIGGER_INPUT(rkv_sequence_continue_args, good, p,
                      rkv_sequence_continue(f->cache, p, &state));
    GOOD_BIGGER_OUTPUT(rkv_sequence_info, p, rkv_sequence_continue(f->cache, &good, p));
    /* no tokens of its own, in three ways */
    rkv_tokens none = text(NULL, 0);
    args = good;
    args.tokens = NULL;
    CHECK_OK(rkv_sequence_continue(f->cache, &args, &state));
    CHECK_EQ(state.position_count, 8);
    args.tokens = &none;
    CHECK_OK(rkv_sequence_continue(f->cache, &args, &state));
    CHECK_EQ(state.position_count, 8);
    close_caches(&c);
}

static void m01_fork(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_sequence_fork_child children[2];
    mark(children, sizeof children);
    rkv_sequence_fork_args good, args;
    memset(&good, 0, sizeof good);
    good.struct_size = sizeof good;
    good.parent = c.sequence;
    good.child_count = 2;
    BAD(f, rkv_sequence_fork(NULL, &good, children, sizeof *children), "cache");
    BAD(f, rkv_sequence_fork(f->cache, NULL, children, sizeof *children), "args");
    BAD(f, rkv_sequence_fork(f->cache, &good, NULL, sizeof(rkv_sequence_fork_child)),
        "out_children");
    BAD_INPUT_SIZES(f, rkv_sequence_fork_args, good, p,
                    rkv_sequence_fork(f->cache, p, children, sizeof *children),
                    "args");
    args = good;
    args.flags = 1;
    BAD(f, rkv_sequence_fork(f->cache, &args, children, sizeof *children), "flags");
    args = good;
    args.child_count = 0;
    BAD(f, rkv_sequence_fork(f->cache, &args, children, sizeof *children), "child_count");
    args.child_count = SIZE_MAX;
    BAD(f, rkv_sequence_fork(f->cache, &args, children, sizeof *children), "out_children");
    args.child_count = SIZE_MAX / sizeof children[0] / 2;
    REFUSED(f, rkv_sequence_fork(f->cache, &args, children, sizeof *children),
            RKV_STATUS_OUT_OF_SLOTS, "slots");
    const uint64_t absurd[] = {UINT64_MAX, UINT64_MAX - 8, UINT64_C(1) << 62, UINT32_MAX};
    for (size_t i = 0; i < 4; i++) {
        args = good;
        args.reserve_position_count = absurd[i];
        BAD(f, rkv_sequence_fork(f->cache, &args, children, sizeof *children),
            "reserve_position_count");
    }
    const rkv_sequence_id strange[] = {0, c.released, c.foreign_sequence, c.sequence + 1000,
                                       UINT64_MAX};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        args = good;
        args.parent = strange[i];
        REFUSED(f, rkv_sequence_fork(f->cache, &args, children, sizeof *children),
                RKV_STATUS_STALE_SEQUENCE,
                "sequence");
    }
    UNTOUCHED(children);
    GOOD_BIGGER_INPUT(rkv_sequence_fork_args, good, p,
                      rkv_sequence_fork(f->cache, p, children, sizeof *children));
    CHECK(children[0].sequence != children[1].sequence && children[0].slot != children[1].slot);
    close_caches(&c);
}

static void m01_retain(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    uint8_t untouched[sizeof(bool)];
    bool *retained = (bool *)(void *)untouched;
    mark(untouched, sizeof untouched);
    BAD(f, rkv_sequence_retain(NULL, c.sequence, retained), "cache");
    BAD(f, rkv_sequence_retain(f->cache, c.sequence, NULL), "out_retained");
    const rkv_sequence_id strange[] = {0, c.released, c.foreign_sequence, c.sequence + 1000,
                                       UINT64_MAX};
    const rkv_status stale = RKV_STATUS_STALE_SEQUENCE;
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        REFUSED(f, rkv_sequence_retain(f->cache, strange[i], retained), stale, "sequence");
        REFUSED(f, rkv_sequence_drop(f->cache, strange[i]), stale, "sequence");
    }
    UNTOUCHED(untouched);
    BAD(f, rkv_sequence_drop(NULL, c.sequence), "cache");
    REFUSED(f, rkv_sequence_drop(f->cache, c.sequence), stale, "live: rkv_sequence_release()");
    rkv_tokens good = text(c.ids, 2), nowhere = text(NULL, 2), none = text(c.ids, 0);
    rkv_sequence_info begun = new_state();
    rkv_sequence_continue_args both = {.struct_size = sizeof both, .parent = c.released};
    both.tokens = &good;
    both.all_tokens = &nowhere;
    BAD(f, rkv_sequence_continue(f->cache, &both, &begun), "args.all_tokens");
    both.all_tokens = &none;
    BAD(f, rkv_sequence_continue(f->cache, &both, &begun), "args.all_tokens");
    size_t count;
    mark(&count, sizeof count);
    BAD(f, rkv_cache_drop_retained(NULL, 1, &count), "cache");
    BAD(f, rkv_cache_drop_retained(f->cache, 1, NULL), "out_page_count");
    BAD(f, rkv_cache_drop_retained_pool(NULL, 0, 1, &count), "cache");
    BAD(f, rkv_cache_drop_retained_pool(f->cache, 1, 1, &count), "pool");
    BAD(f, rkv_cache_drop_retained_pool(f->cache, 0, 1, NULL), "out_page_count");
    UNTOUCHED(count);
    CHECK(retain(f, c.sequence));
    /* a retained sequence is no live one, nor is it gone */
    const char *kept = "is retained: rkv_sequence_drop()";
    rkv_sequence_info state = new_state();
    rkv_sequence_publish_result result;
    result.struct_size = sizeof result;
    REFUSED(f, rkv_sequence_retain(f->cache, c.sequence, retained), stale, kept);
    REFUSED(f, rkv_sequence_read_info(f->cache, c.sequence, &state), stale, kept);
    REFUSED(f, rkv_sequence_allocate(f->cache, c.sequence, 8), stale, kept);
    REFUSED(f, rkv_sequence_append(f->cache, c.sequence, &c.tokens), stale, kept);
    REFUSED(f, rkv_sequence_truncate(f->cache, c.sequence, 8), stale, kept);
    REFUSED(f, rkv_sequence_publish(f->cache, c.sequence, 8, &result), stale, kept);
    REFUSED(f, rkv_sequence_confirm_copies(f->cache, c.sequence), stale, kept);
    REFUSED(f, rkv_sequence_release(f->cache, c.sequence), stale, kept);
    UNTOUCHED(untouched);
    close_caches(&c);
}

static void m01_retained(void) {
    caches c;
    open_caches(&c);
    fixture *f = &c.f;
    rkv_sequence_id ids[2];
    size_t count;
    mark(ids, sizeof ids);
    mark(&count, sizeof count);
    rkv_namespace spaces[2];
    BAD(f, rkv_cache_read_namespaces(NULL, spaces, sizeof *spaces, NULL, 2, &count), "cache");
    BAD(f, rkv_cache_read_namespaces(f->cache, spaces, sizeof *spaces, NULL, 2, NULL), "out_count");
    BAD(f, rkv_cache_read_namespaces(f->cache, NULL, sizeof *spaces, NULL, 2, &count), "spaces");
    BAD(f, rkv_cache_read_namespaces(f->cache, spaces, 0, NULL, 2, &count), "element_size");
    BAD(f, rkv_cache_read_namespaces(f->cache, spaces, sizeof *spaces, NULL, SIZE_MAX, &count),
        "spaces");
    BAD(f, rkv_cache_read_retained(NULL, ids, 2, &count), "cache");
    BAD(f, rkv_cache_read_retained(f->cache, ids, 2, NULL), "out_count");
    BAD(f, rkv_cache_read_retained(f->cache, NULL, 2, &count), "sequences");
    BAD(f, rkv_cache_read_retained(f->cache, ids, SIZE_MAX, &count), "sequences");
    UNTOUCHED(count);
    CHECK_OK(rkv_cache_read_retained(f->cache, ids, 2, &count));
    CHECK_EQ(count, 0);
    rkv_sequence_id first = serve_and_retain(f, text(c.ids, 8));
    rkv_sequence_id second = serve_and_retain(f, text(c.ids, 7));
    REFUSED(f, rkv_cache_read_retained(f->cache, ids, 1, &count), RKV_STATUS_BUFFER_TOO_SMALL,
            "sequences");
    CHECK_EQ(count, 2);
    UNTOUCHED(ids);
    CHECK_OK(rkv_cache_read_retained(f->cache, NULL, 0, &count));
    CHECK_EQ(count, 2);
    CHECK_OK(rkv_cache_read_retained(f->cache, ids, 2, &count));
    CHECK(ids[0] == first && ids[1] == second);
    close_caches(&c);
}

int main(void) {
    RUN(m01_continue);
    RUN(m01_fork);
    RUN(m01_retain);
    RUN(m01_retained);
    return check_result();
}
