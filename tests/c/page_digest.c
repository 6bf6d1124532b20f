/* Page digests: what makes two different, going on from a page, and a few numbers that stay. */
#include "misuse.h"

enum { PAGES = 64 };

static rkv_tokens_page_digests_args digest_args(const rkv_tokens *tokens, uint32_t page_size) {
    rkv_tokens_page_digests_args args;
    memset(&args, 0, sizeof args);
    args.struct_size = sizeof args;
    args.page_size = page_size;
    args.tokens = tokens;
    return args;
}

/* All digests of a list; returns how many. */
static size_t digests_in(const rkv_namespace *space, rkv_tokens tokens, uint32_t page_size,
                         rkv_page_digest *digests) {
    size_t count = 0;
    rkv_tokens_page_digests_args args = digest_args(&tokens, page_size);
    args.space = space;
    CHECK_OK(rkv_tokens_page_digests(&args, digests, PAGES, &count));
    return count;
}

static bool equal(rkv_page_digest left, rkv_page_digest right) {
    return memcmp(&left, &right, sizeof left) == 0;
}

static void check_hex(rkv_page_digest digest, const char *hex) {
    char text[65];
    for (size_t i = 0; i < 32; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest.bytes[i]);
    }
    check_report(strcmp(text, hex) == 0, __FILE__, __LINE__, hex);
}

/* Numbers that others compute too: they never change. From tests/page_digest/vectors.txt. */
static void h01_known_digests(void) {
    rkv_page_digest digests[PAGES];
    uint32_t ids[32];
    count_up(ids, 32, 0);
    CHECK_EQ(digests_in(NULL, text(ids, 32), 16, digests), 2);
    check_hex(digests[0], "b5db49f5facdd1d304c7cd8c3c8b4676f99d4ed132e1e4f2ed15c8988a839536");
    check_hex(digests[1], "fb887860163482c04bad5dc2a380eed82af02dcc366060432282f3672d9c9444");
    rkv_namespace space = new_namespace();
    space.flags = RKV_NAMESPACE_LORA;
    count_up(ids, 4, 1);
    CHECK_EQ(digests_in(&space, text(ids, 4), 4, digests), 1);
    check_hex(digests[0], "2291541cd5a84903a1dec3f2670410e91a98b11495a764cd789b1dba4acb6ce1");
}

/* Digests of one page each, all of which must be different; returns the new number. */
static size_t add_different(rkv_page_digest *known, size_t count, rkv_page_digest digest) {
    for (size_t i = 0; i < count; i++) {
        CHECK(!equal(known[i], digest));
    }
    known[count] = digest;
    return count + 1;
}

static void h01_any_difference_makes_another_digest(void) {
    const uint32_t sizes[] = {1, 4, 16, 17};
    for (size_t s = 0; s < 4; s++) {
        rkv_page_digest digests[PAGES], again[PAGES], known[256];
        uint32_t ids[34];
        size_t count = 0, size = sizes[s];
        count_up(ids, 34, 1);
        CHECK_EQ(digests_in(NULL, text(ids, 2 * size), sizes[s], digests), 2);
        CHECK_EQ(digests_in(NULL, text(ids, 2 * size), sizes[s], again), 2);
        CHECK(equal(digests[0], again[0]) && equal(digests[1], again[1]));
        count = add_different(known, count, digests[0]);
        count = add_different(known, count, digests[1]);
        /* one bit of one token: its page and the one after it are others */
        for (size_t at = 0; at < 2 * size; at++) {
            ids[at] ^= UINT32_C(1) << (at % 31);
            CHECK_EQ(digests_in(NULL, text(ids, 2 * size), sizes[s], again), 2);
            CHECK(equal(digests[0], again[0]) == (at >= size));
            if (at < size) {
                count = add_different(known, count, again[0]);
            }
            count = add_different(known, count, again[1]);
            ids[at] ^= UINT32_C(1) << (at % 31);
        }
        /* the second page's tokens at the first page */
        CHECK_EQ(digests_in(NULL, text(ids + size, size), sizes[s], again), 1);
        count = add_different(known, count, again[0]);
        /* and the first page's after itself */
        memcpy(ids + size, ids, size * sizeof *ids);
        CHECK_EQ(digests_in(NULL, text(ids, 2 * size), sizes[s], again), 2);
        CHECK(equal(digests[0], again[0]));
        count = add_different(known, count, again[1]);
        CHECK(count > 2 * size);
    }
}

/* Pages of other sizes are other pages, also where one ends where the other does. */
static void h01_the_page_size_counts(void) {
    rkv_page_digest digests[PAGES], known[PAGES];
    uint32_t ids[32];
    size_t count = 0;
    count_up(ids, 32, 1);
    for (uint32_t size = 1; size <= 32; size *= 2) {
        CHECK_EQ(digests_in(NULL, text(ids, 32), size, digests), 32 / size);
        count = add_different(known, count, digests[32 / size - 1]);
    }
    CHECK_EQ(digests_in(NULL, text(ids, 31), 32, digests), 0);
}

static void h01_namespaces_count(void) {
    rkv_namespace spaces[10];
    rkv_page_digest digests[PAGES], known[10];
    const uint32_t ids[2] = {1, 2};
    size_t count = 0;
    for (size_t i = 0; i < 10; i++) {
        spaces[i] = new_namespace();
    }
    spaces[1].flags = RKV_NAMESPACE_LORA;
    spaces[2].flags = RKV_NAMESPACE_LORA;
    spaces[2].lora_id = 1;
    spaces[3].flags = RKV_NAMESPACE_IMAGE;
    spaces[4].flags = RKV_NAMESPACE_IMAGE;
    spaces[4].image_digest[15] = 1;
    spaces[5].salt[0] = 1;
    spaces[6].salt[31] = 1;
    spaces[7].epoch = 1;
    spaces[8].epoch = 256;
    spaces[9].flags = RKV_NAMESPACE_LORA;
    spaces[9].epoch = 1;
    for (size_t i = 0; i < 10; i++) {
        CHECK_EQ(digests_in(&spaces[i], text(ids, 2), 2, digests), 1);
        count = add_different(known, count, digests[0]);
    }
    /* the default one is the one with nothing set */
    CHECK_EQ(digests_in(NULL, text(ids, 2), 2, digests), 1);
    CHECK(equal(digests[0], known[0]));
}

static rkv_token_item token_item(uint32_t kind, uint32_t bin, uint32_t height_bin) {
    rkv_token_item item = image(0, 0, 0);
    item.kind = kind;
    item.bin = bin;
    item.height_bin = height_bin;
    return item;
}

/* Tokens of different kinds never make the same page, and of an image both the content and which
 * part of it lies in the page count. */
static void h01_kinds_and_parts_of_images_count(void) {
    rkv_page_digest digests[PAGES], known[32];
    const uint32_t ids[1] = {0};
    size_t count = 0;
    CHECK_EQ(digests_in(NULL, text(ids, 1), 1, digests), 1);
    count = add_different(known, count, digests[0]);
    rkv_token_item items[7] = {
        token_item(RKV_TOKEN_COORD, 0, 0), token_item(RKV_TOKEN_COORD, 5, 0),
        token_item(RKV_TOKEN_SIZE, 0, 0),  token_item(RKV_TOKEN_SIZE, 5, 0),
        token_item(RKV_TOKEN_SIZE, 0, 5),  image(0, 0, 1),
        image(0, 5, 1),
    };
    for (size_t i = 0; i < 7; i++) {
        CHECK_EQ(digests_in(NULL, with_items(ids, 1, &items[i], 1), 1, digests), 1);
        count = add_different(known, count, digests[0]);
    }
    /* twelve positions of one image, three pages: no two of them look alike */
    rkv_token_item twelve = image(0, 7, 12);
    CHECK_EQ(digests_in(NULL, with_items(ids, 1, &twelve, 1), 4, digests), 3);
    for (size_t i = 0; i < 3; i++) {
        count = add_different(known, count, digests[i]);
    }
    /* the first four positions of a longer one, and of two short ones */
    rkv_token_item longer = image(0, 7, 13), two[2] = {image(0, 7, 6), image(1, 7, 6)};
    const uint32_t both[2] = {0, 0};
    CHECK_EQ(digests_in(NULL, with_items(ids, 1, &longer, 1), 4, digests), 3);
    count = add_different(known, count, digests[0]);
    CHECK_EQ(digests_in(NULL, with_items(both, 2, two, 2), 4, digests), 3);
    count = add_different(known, count, digests[0]);
    /* what the id at an item's index is doesn't */
    const uint32_t other[1] = {UINT32_MAX};
    CHECK_EQ(digests_in(NULL, with_items(other, 1, &twelve, 1), 4, digests), 3);
    CHECK(equal(digests[0], known[8]) && equal(digests[2], known[10]));
}

static void h01_resumes_at_any_page(void) {
    rkv_page_digest digests[PAGES], rest[PAGES];
    uint32_t ids[20];
    rkv_token_item picture = image(3, 1, 30);
    count_up(ids, 20, 1);
    rkv_tokens lists[2] = {text(ids, 20), with_items(ids, 20, &picture, 1)};
    for (size_t l = 0; l < 2; l++) {
        size_t count = digests_in(NULL, lists[l], 4, digests);
        CHECK_EQ(count, l == 0 ? 5 : 12);
        for (size_t first = 1; first <= count; first++) {
            rkv_tokens_page_digests_args args = digest_args(&lists[l], 4);
            rkv_namespace unread = new_namespace();
            size_t left = 0;
            unread.flags = UINT32_MAX;
            args.space = &unread;
            args.parent = &digests[first - 1];
            args.first_page = first;
            CHECK_OK(rkv_tokens_page_digests(&args, NULL, 0, &left));
            CHECK_EQ(left, count - first);
            CHECK_OK(rkv_tokens_page_digests(&args, rest, PAGES, &left));
            CHECK_EQ(left, count - first);
            CHECK(memcmp(rest, digests + first, left * sizeof *rest) == 0);
        }
    }
    /* the tokens after a page alone: what an engine has that appends */
    digests_in(NULL, text(ids, 20), 4, digests);
    rkv_tokens suffix = text(ids + 8, 12);
    rkv_tokens_page_digests_args args = digest_args(&suffix, 4);
    size_t count = 0;
    args.parent = &digests[1];
    CHECK_OK(rkv_tokens_page_digests(&args, rest, PAGES, &count));
    CHECK_EQ(count, 3);
    CHECK(memcmp(rest, digests + 2, 3 * sizeof *rest) == 0);
    /* the parent may lie where the digests go */
    args.parent = rest;
    rest[0] = digests[1];
    CHECK_OK(rkv_tokens_page_digests(&args, rest, 3, &count));
    CHECK(memcmp(rest, digests + 2, 3 * sizeof *rest) == 0);
}

/* An image of four thousand million positions: the pages are counted, and none is made. */
static void h01_counts_without_making(void) {
    const uint32_t ids[2] = {0, 1};
    rkv_token_item huge = image(0, 1, UINT32_MAX);
    rkv_tokens tokens = with_items(ids, 2, &huge, 1);
    rkv_tokens_page_digests_args args = digest_args(&tokens, 16);
    rkv_page_digest digests[PAGES], last;
    size_t count = 0;
    CHECK_OK(rkv_tokens_page_digests(&args, NULL, 0, &count));
    CHECK_EQ(count, UINT64_C(1) << 28);
    mark(digests, sizeof digests);
    CHECK_STATUS(rkv_tokens_page_digests(&args, digests, PAGES, &count),
                 RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK_EQ(count, UINT64_C(1) << 28);
    UNTOUCHED(digests);
    /* the last page of it, skipping all before */
    memset(&last, 0, sizeof last);
    args.parent = &last;
    args.first_page = (UINT64_C(1) << 28) - 1;
    CHECK_OK(rkv_tokens_page_digests(&args, digests, 1, &count));
    CHECK_EQ(count, 1);
}

static void m01_page_digests(void) {
    fixture f = new_fixture(2, 8);
    uint32_t ids[8];
    count_up(ids, 8, 1);
    rkv_tokens tokens = text(ids, 8), bad;
    rkv_tokens_page_digests_args good = digest_args(&tokens, 4), args;
    rkv_page_digest digests[2];
    size_t count;
    mark(digests, sizeof digests);
    mark(&count, sizeof count);
    BAD(&f, rkv_tokens_page_digests(NULL, digests, 2, &count), "args");
    BAD_INPUT_SIZES(&f, rkv_tokens_page_digests_args, good, p,
                    rkv_tokens_page_digests(p, digests, 2, &count), "args");
    BAD(&f, rkv_tokens_page_digests(&good, NULL, 2, &count), "digests");
    BAD(&f, rkv_tokens_page_digests(&good, digests, 2, NULL), "out_count");
    BAD(&f, rkv_tokens_page_digests(&good, digests, SIZE_MAX, &count), "digests");
    args = good;
    args.page_size = 0;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "page_size");
    args.page_size = RKV_PAGE_SIZE_MAX + 1;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "page_size");
    args.page_size = UINT32_MAX;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "page_size");
    args = good;
    args.tokens = NULL;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "tokens");
    args = good;
    args.first_page = 1;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "parent");
    rkv_page_digest parent = {{0}};
    args.parent = &parent;
    args.first_page = 3;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "first_page");
    args.first_page = UINT64_MAX;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "first_page");
    rkv_namespace space = new_namespace();
    space.flags = 4;
    args = good;
    args.space = &space;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "space");
    /* an id that is none, wherever in the pages it stands */
    ids[7] = RKV_TEXT_ID_LIMIT;
    BAD(&f, rkv_tokens_page_digests(&good, digests, 2, &count), "ids[7]");
    rkv_token_item picture = image(2, 1, 0);
    bad = with_items(ids, 8, &picture, 1);
    args = good;
    args.tokens = &bad;
    BAD(&f, rkv_tokens_page_digests(&args, digests, 2, &count), "position_count");
    UNTOUCHED(digests);
    UNTOUCHED(count);
    ids[7] = 8;
    CHECK_STATUS(rkv_tokens_page_digests(&good, digests, 1, &count), RKV_STATUS_BUFFER_TOO_SMALL);
    UNTOUCHED(digests);
    CHECK_EQ(count, 2);
    GOOD_BIGGER_INPUT(rkv_tokens_page_digests_args, good, p,
                      rkv_tokens_page_digests(p, digests, 2, &count));
    /* no tokens, no pages */
    bad = text(NULL, 0);
    args = digest_args(&bad, 4);
    CHECK_OK(rkv_tokens_page_digests(&args, NULL, 0, &count));
    CHECK_EQ(count, 0);
    end_fixture(&f);
}

int main(void) {
    RUN(h01_known_digests);
    RUN(h01_any_difference_makes_another_digest);
    RUN(h01_the_page_size_counts);
    RUN(h01_namespaces_count);
    RUN(h01_kinds_and_parts_of_images_count);
    RUN(h01_resumes_at_any_page);
    RUN(h01_counts_without_making);
    RUN(m01_page_digests);
    return check_result();
}
