/* J06: every reader of a list follows one rule. (NULL, 0) asks for the count; too little room is
 * refused with the needed count, and nothing is written; with more room than that, no more is
 * written than there is. */
#include "fixture.h"

enum { ROOM = 4096, FILL = 0xAB };

/* The buffer of a reader, and the names that the calls below use: `into`, `room`, `count`. */
static unsigned char buffer[ROOM];

static bool untouched_from(size_t byte) {
    for (size_t i = byte; i < ROOM; i++) {
        if (buffer[i] != FILL) {
            return false;
        }
    }
    return true;
}

/* `call` reads elements of `type`, of which there are `expected`. */
#define READS(type, expected, call)                                                               \
    do {                                                                                          \
        const size_t all_ = (expected);                                                           \
        type *into = NULL;                                                                        \
        size_t room = 0, count = 77;                                                              \
        CHECK_OK(call);                                                                           \
        CHECK_EQ(count, all_);                                                                    \
        into = (type *)(void *)buffer;                                                            \
        for (room = 0; room < all_ + 3; room++) {                                                 \
            memset(buffer, FILL, ROOM);                                                           \
            count = 77;                                                                           \
            CHECK_STATUS(call, room < all_ ? RKV_STATUS_BUFFER_TOO_SMALL : RKV_STATUS_OK);        \
            CHECK_EQ(count, all_);                                                                \
            const size_t written_ = room < all_ ? 0 : all_ * sizeof(type);                        \
            CHECK(untouched_from(written_));                                                      \
            CHECK(written_ == 0 || !untouched_from(written_ - sizeof(type)));                     \
        }                                                                                         \
    } while (0)

static void j06_lists_of_tokens(void) {
    uint32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    rkv_token_item items[2] = {image(1, 'a', 3), image(4, 'b', 2)};
    rkv_tokens tokens = with_items(ids, 8, items, 2);
    READS(rkv_region, 2, rkv_tokens_regions(&tokens, into, room, &count));
    rkv_tokens plain = text(ids, 8);
    READS(rkv_region, 0, rkv_tokens_regions(&plain, into, room, &count));
    rkv_tokens_page_digests_args args = {.struct_size = sizeof args, .page_size = 2,
                                         .tokens = &plain};
    READS(rkv_page_digest, 4, rkv_tokens_page_digests(&args, into, room, &count));
}

static void j06_rows(void) {
    fixture f = new_fixture(2, 16);
    uint32_t slot = 0;
    CHECK_OK(rkv_page_table_allocate_slot(f.table, &slot));
    READS(uint32_t, 0, rkv_page_table_read_row(f.table, slot, 0, into, room, &count));
    CHECK_OK(rkv_page_table_reserve(f.table, slot, 10));
    READS(uint32_t, 5, rkv_page_table_read_row(f.table, slot, 0, into, room, &count));
    READS(uint32_t, 2, rkv_page_table_read_row(f.table, slot, 3, into, room, &count));
    int32_t indptr[2], last[1];
    rkv_page_table_batch_row row = {slot, 9};
    rkv_page_table_batch_arrays arrays = {.struct_size = sizeof arrays, .indptr = indptr,
                                          .last_page_len = last};
    READS(int32_t, 5,
          (arrays.indices = into, arrays.indices_capacity = room,
           rkv_page_table_read_batch(f.table, &row, 1, sizeof row, &arrays, &count)));
    end_fixture(&f);
}

static void j06_what_a_cache_has(void) {
    fixture f = new_fixture(2, 32);
    uint32_t ids[8] = {1, 2, 3, 4, 5, 6, 7, 8}, others[8] = {1, 2, 9, 9, 9, 9, 9, 9};
    READS(rkv_namespace, 0,
          rkv_cache_read_namespaces(f.cache, into, sizeof *into, NULL, room, &count));
    rkv_node_id leaf = insert(&f, text(ids, 8)).node;
    insert(&f, text(others, 8));
    rkv_node_id top = info_of(&f, leaf).parent;
    bool is_radix = fixture_index == RKV_INDEX_RADIX;
    READS(uint32_t, is_radix ? 3 : 1, rkv_node_read_pages(f.cache, leaf, into, room, &count));
    if (is_radix) {
        READS(rkv_node_id, 2, rkv_node_read_children(f.cache, top, into, room, &count));
    }
    READS(rkv_node_id, 0, rkv_node_read_children(f.cache, leaf, into, room, &count));
    READS(rkv_namespace, 1,
          rkv_cache_read_namespaces(f.cache, into, sizeof *into, NULL, room, &count));
    READS(rkv_sequence_id, 0, rkv_cache_read_retained(f.cache, into, room, &count));
    rkv_sequence_id waits = begin(&f, text(ids, 8)).sequence;
    READS(rkv_page_copy, 1,
          rkv_sequence_read_copies(f.cache, waits, into, sizeof *into, room, &count));
    release(&f, waits);
    serve_and_retain(&f, text(ids, 6));
    serve_and_retain(&f, text(ids, 7));
    READS(rkv_sequence_id, 2, rkv_cache_read_retained(f.cache, into, room, &count));
    size_t bytes = 0;
    CHECK_OK(rkv_cache_dump(f.cache, RKV_DUMP_DOT, NULL, 0, &bytes));
    if (CHECK(bytes < ROOM - 3)) {
        READS(char, bytes, rkv_cache_dump(f.cache, RKV_DUMP_DOT, into, room, &count));
    }
    end_fixture(&f);
}

int main(void) {
    RUN(j06_lists_of_tokens);
    RUN(j06_rows);
    RUN_BOTH(j06_what_a_cache_has);
    return check_result();
}
