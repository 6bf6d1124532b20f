/* Refusals: the status, a message that names the argument, and nothing changed. */
#ifndef RKV_TESTS_MISUSE_H
#define RKV_TESTS_MISUSE_H

#include "fixture.h"
#include "radixkv_spatial.h"

/* Another failure's message, so that the one that is looked at next isn't an old one. */
static inline void forget_message(void) {
    double value;
    CHECK_STATUS(rkv_coord_value(RKV_BIN_COUNT, &value), RKV_STATUS_INVALID_ARGUMENT);
}

/* An output before the call, and whether it still looks so: a size field of 4 bytes excepted. */
static inline void mark(void *output, size_t bytes) { memset(output, 0xA5, bytes); }

static inline bool unmarked(const void *output, size_t from, size_t bytes) {
    for (size_t i = from; i < bytes; i++) {
        if (((const uint8_t *)output)[i] != 0xA5) {
            return true;
        }
    }
    return false;
}

#define UNTOUCHED(output) CHECK(!unmarked(&(output), 0, sizeof(output)))
#define UNTOUCHED_STRUCT(output) CHECK(!unmarked(&(output), 4, sizeof(output)))

#define REFUSED(f, call, want, word)                                                              \
    do {                                                                                          \
        snapshot before_ = take(f);                                                               \
        forget_message();                                                                         \
        CHECK_STATUS(call, want);                                                                 \
        check_report(message_names(word), __FILE__, __LINE__, #call " names " #word);             \
        check_report(same(f, &before_), __FILE__, __LINE__, #call " changes nothing");            \
    } while (0)

#define BAD(f, call, word) REFUSED(f, call, RKV_STATUS_INVALID_ARGUMENT, word)

/* Whether the message tells how large a struct is, and how large it was in the first release. */
static inline bool tells_sizes(size_t size, size_t first) {
    const char *text = "has %zu bytes here, and at least %zu in this series";
    char words[96];
    snprintf(words, sizeof words, text, size, first);
    return message_names(words);
}

/* A size that no struct of the type has. */
#define BAD_SIZE(f, type, first, call, word)                                                      \
    do {                                                                                          \
        BAD(f, call, word);                                                                       \
        check_report(tells_sizes(sizeof(type), first), __FILE__, __LINE__, #call " tells sizes"); \
    } while (0)

/* An input struct whose struct_size is wrong, or whose unknown tail isn't zero. `name` is what the
 * call takes. */
#define BAD_INPUT_SIZES(f, type, good, name, call, word)                                          \
    BAD_INPUT_SIZES_FROM(f, type, sizeof(type), good, name, call, word)

/* The same for a struct that had `first` bytes in the first release. */
#define BAD_INPUT_SIZES_FROM(f, type, first, good, name, call, word)                              \
    do {                                                                                          \
        struct {                                                                                  \
            type base;                                                                            \
            uint64_t future;                                                                      \
        } bigger_;                                                                                \
        type *name = &bigger_.base;                                                               \
        memset(&bigger_, 0, sizeof bigger_);                                                      \
        bigger_.base = (good);                                                                    \
        const uint32_t small_[] = {0, 1, 8, (uint32_t)(first) - 1};                               \
        for (size_t at_ = 0; at_ < 4; at_++) {                                                    \
            name->struct_size = small_[at_];                                                      \
            BAD_SIZE(f, type, first, call, word);                                                 \
        }                                                                                         \
        bigger_.future = UINT64_C(1) << 63;                                                       \
        name->struct_size = sizeof bigger_;                                                       \
        BAD(f, call, word);                                                                       \
        bigger_.future = 1;                                                                       \
        name->struct_size = 0xA5A5A5A5u;                                                          \
        BAD_SIZE(f, type, first, call, word);                                                     \
    } while (0)

/* The struct of a newer caller, who uses nothing new: accepted. */
#define GOOD_BIGGER_INPUT(type, good, name, call)                                                 \
    do {                                                                                          \
        struct {                                                                                  \
            type base;                                                                            \
            uint64_t future;                                                                      \
        } bigger_;                                                                                \
        type *name = &bigger_.base;                                                               \
        memset(&bigger_, 0, sizeof bigger_);                                                      \
        bigger_.base = (good);                                                                    \
        name->struct_size = sizeof bigger_;                                                       \
        CHECK_OK(call);                                                                           \
    } while (0)

/* An output struct: too small is refused and stays as it is, bigger is fine. */
#define OUTPUT_SIZES(f, type, name, call, word)                                                   \
    OUTPUT_SIZES_FROM(f, type, sizeof(type), name, call, word)

/* The same for a struct that had `first` bytes in the first release. */
#define OUTPUT_SIZES_FROM(f, type, first, name, call, word)                                       \
    do {                                                                                          \
        {                                                                                         \
            type *name = NULL;                                                                    \
            BAD(f, call, word);                                                                   \
        }                                                                                         \
        SMALL_OUTPUTS_FROM(f, type, first, name, call, word);                                     \
    } while (0)

/* The same for one that may be NULL. */
#define SMALL_OUTPUTS_FROM(f, type, first, name, call, word)                                      \
    do {                                                                                          \
        struct {                                                                                  \
            type base;                                                                            \
            uint64_t future;                                                                      \
        } bigger_;                                                                                \
        type *name = &bigger_.base;                                                               \
        mark(&bigger_, sizeof bigger_);                                                           \
        const uint32_t small_[] = {0, 1, 8, (uint32_t)(first) - 1};                               \
        for (size_t at_ = 0; at_ < 4; at_++) {                                                    \
            name->struct_size = small_[at_];                                                      \
            BAD_SIZE(f, type, first, call, word);                                                 \
            UNTOUCHED_STRUCT(bigger_);                                                            \
        }                                                                                         \
    } while (0)

#define GOOD_BIGGER_OUTPUT(type, name, call)                                                      \
    do {                                                                                          \
        struct {                                                                                  \
            type base;                                                                            \
            uint64_t future;                                                                      \
        } bigger_;                                                                                \
        type *name = &bigger_.base;                                                               \
        memset(&bigger_, 0, sizeof bigger_);                                                      \
        name->struct_size = sizeof bigger_;                                                       \
        CHECK_OK(call);                                                                           \
        CHECK_EQ(bigger_.future, 0);                                                              \
    } while (0)

/* A cache with one locked node, the same in a second cache, and one id of a node that is gone. */
typedef struct caches {
    fixture f, other;
    rkv_node_id node, stale, foreign;
    rkv_sequence_id sequence, released, foreign_sequence;
    uint32_t ids[8];
    rkv_tokens tokens;
    rkv_lock_id lock; /* on node */
} caches;

static inline void open_caches(caches *c) {
    memset(c, 0, sizeof *c);
    c->f = new_fixture(2, 24);
    c->other = new_fixture(2, 24);
    count_up(c->ids, 8, 50);
    c->stale = insert(&c->f, text(c->ids, 4)).node;
    CHECK_EQ(evict(&c->f, 2), 2);
    count_up(c->ids, 8, 1);
    c->tokens = text(c->ids, 8);
    c->node = insert(&c->f, text(c->ids, 4)).node;
    c->foreign = insert(&c->other, text(c->ids, 4)).node;
    c->lock = lock_node(&c->f, c->node);
    rkv_sequence_info state = begin(&c->f, text(c->ids, 6));
    c->released = state.sequence;
    release(&c->f, state.sequence);
    c->sequence = begin(&c->f, text(c->ids, 8)).sequence;
    for (int i = 0; i < 4; i++) {
        c->foreign_sequence = begin(&c->other, text(c->ids, 8)).sequence;
    }
}

static inline void close_caches(caches *c) {
    end_fixture(&c->f);
    end_fixture(&c->other);
}

#endif
