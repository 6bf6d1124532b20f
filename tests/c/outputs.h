/* Outputs where none can be: whatever is refused for one has changed nothing and written nothing.
 * A file that includes this has a `hash_of` of its world: one number of all that can be seen. */
#ifndef RKV_TESTS_OUTPUTS_H
#define RKV_TESTS_OUTPUTS_H

#include "misuse.h"

static inline uint64_t hashed(uint64_t hash, const void *bytes, size_t count) {
    const uint8_t *at = bytes;
    for (; count >= sizeof hash; at += sizeof hash, count -= sizeof hash) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
    }
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Where the outputs of a call go that are good: none may be written. A struct there has a size. */
static uint64_t spare[64];
static uint32_t spare_size;
/* And the output that is not. */
static uint64_t room[64];

static inline void prepare(void) {
    mark(spare, sizeof spare);
    mark(room, sizeof room);
    if (spare_size != 0) {
        memcpy(spare, &spare_size, sizeof spare_size);
    }
}

#define UNCHANGED(w, call, word)                                                                  \
    do {                                                                                          \
        uint64_t before_ = hash_of(w);                                                            \
        forget_message();                                                                         \
        CHECK_STATUS(call, RKV_STATUS_INVALID_ARGUMENT);                                          \
        check_report(message_names(word), __FILE__, __LINE__, #call " names " word);              \
        check_report(hash_of(w) == before_, __FILE__, __LINE__, #call " changes nothing");        \
        check_report(!unmarked(spare, 4, sizeof spare), __FILE__, __LINE__,                       \
                     #call " writes no other output");                                            \
        check_report(!unmarked(room, 8, sizeof room), __FILE__, __LINE__,                         \
                     #call " writes nothing");                                                    \
    } while (0)

#define ALIGNMENT(type) offsetof(struct { char first_; type second_; }, second_)

/* `call` with its output, called `name`, at every address that is not aligned. */
#define MISALIGNED(w, type, name, call, word)                                                     \
    for (size_t off_ = 1; off_ < ALIGNMENT(type); off_++) {                                       \
        type *name = (type *)(void *)((char *)&room[4] + off_);                                   \
        prepare();                                                                                \
        UNCHANGED(w, call, word);                                                                 \
    }

/* The same, and with NULL, which not every output may be. */
#define MISPLACED(w, type, name, call, word)                                                      \
    do {                                                                                          \
        {                                                                                         \
            type *name = NULL;                                                                    \
            prepare();                                                                            \
            UNCHANGED(w, call, word);                                                             \
        }                                                                                         \
        MISALIGNED(w, type, name, call, word)                                                     \
    } while (0)

/* The same for a struct, and with sizes that it never had; `first` is that of the first release. */
#define MISSIZED(w, type, first, name, call, word)                                                \
    do {                                                                                          \
        const uint32_t sizes_[] = {0, 1, 4, (uint32_t)(first) - 1, 4097, UINT32_MAX};             \
        for (size_t at_ = 0; at_ < sizeof sizes_ / sizeof sizes_[0]; at_++) {                     \
            type *name = (type *)(void *)room;                                                    \
            prepare();                                                                            \
            memcpy(room, &sizes_[at_], 4);                                                        \
            UNCHANGED(w, call, word);                                                             \
        }                                                                                         \
    } while (0)

#define BAD_STRUCT_FROM(w, type, first, name, call, word)                                         \
    MISPLACED(w, type, name, call, word);                                                         \
    MISSIZED(w, type, first, name, call, word)
#define BAD_STRUCT(w, type, name, call, word)                                                     \
    BAD_STRUCT_FROM(w, type, sizeof(type), name, call, word)

#define OTHER ((void *)spare)

#endif
