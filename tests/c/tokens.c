/* Token kinds, bins, digests, and token lists of prompts with images. */
#include <float.h>
#include <math.h>

#include "fixture.h"
#include "radixkv_spatial.h"

static rkv_token_item item(uint64_t token_index, uint32_t kind, uint32_t bin,
                           uint32_t height_bin) {
    rkv_token_item made;
    memset(&made, 0, sizeof made);
    made.token_index = token_index;
    made.kind = kind;
    made.bin = bin;
    made.height_bin = height_bin;
    return made;
}

/* Lists of one token each, no two of which may ever be equal. */
static void k01_kinds_never_compare_equal(void) {
    enum { COUNT = 14 };
    fixture f = new_fixture(1, 64);
    uint32_t ids[COUNT] = {0};
    rkv_token_item items[COUNT];
    rkv_tokens all[COUNT];
    items[0] = item(0, RKV_TOKEN_COORD, 0, 0);
    items[1] = item(0, RKV_TOKEN_COORD, 5, 0);
    items[2] = item(0, RKV_TOKEN_SIZE, 0, 0);
    items[3] = item(0, RKV_TOKEN_SIZE, 5, 0);
    items[4] = item(0, RKV_TOKEN_SIZE, 0, 5);
    items[5] = item(0, RKV_TOKEN_SIZE, 5, 5);
    items[6] = image(0, 0, 1);
    items[7] = image(0, 5, 1);
    /* one bit of the digest away from the image before */
    items[8] = image(0, 5, 1);
    items[8].digest[15] ^= 0x80;
    items[9] = image(0, 5, 2);
    for (size_t i = 0; i < 10; i++) {
        all[i] = with_items(&ids[i], 1, &items[i], 1);
    }
    const uint32_t texts[4] = {0, 5, 1023, RKV_TEXT_ID_LIMIT - 1};
    for (size_t i = 0; i < 4; i++) {
        ids[10 + i] = texts[i];
        all[10 + i] = text(&ids[10 + i], 1);
    }
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_EQ(probe(&f, all[i]), 0);
        size_t positions = 0;
        CHECK_OK(rkv_tokens_position_count(&all[i], &positions));
        CHECK_EQ(insert(&f, all[i]).claimed_page_count, positions);
        CHECK_EQ(probe(&f, all[i]), positions);
    }
    check_sane(&f);
    end_fixture(&f);
}

/* The id at the index of an item takes no part, and nor do other bytes of the caller's memory. */
static void k01_id_under_an_item_is_not_read(void) {
    fixture f = new_fixture(1, 16);
    const uint32_t first[3] = {1, 77, 2}, second[3] = {1, UINT32_MAX, 2};
    rkv_token_item coord = item(1, RKV_TOKEN_COORD, 9, 0);
    insert(&f, with_items(first, 3, &coord, 1));
    CHECK_EQ(probe(&f, with_items(second, 3, &coord, 1)), 3);
    end_fixture(&f);
}

/* An image is one token: half of its positions are no match. */
static void k01_images_are_equal_whole_or_not(void) {
    fixture f = new_fixture(1, 64);
    const uint32_t ids[3] = {1, 0, 2};
    rkv_token_item eight = image(1, 7, 8), four = image(1, 7, 4), other = image(1, 8, 8);
    insert(&f, with_items(ids, 3, &eight, 1));
    CHECK_EQ(probe(&f, with_items(ids, 3, &eight, 1)), 10);
    CHECK_EQ(probe(&f, with_items(ids, 3, &four, 1)), 1);
    CHECK_EQ(probe(&f, with_items(ids, 3, &other, 1)), 1);
    end_fixture(&f);
}

static void k02_coord_bins(void) {
    uint32_t bin = 7;
    double value = 7;
    CHECK_OK(rkv_coord_bin(0.0, &bin));
    CHECK_EQ(bin, 0);
    CHECK_OK(rkv_coord_bin(1.0, &bin));
    CHECK_EQ(bin, 1023);
    /* the nearest bin on both sides of the middle between two */
    CHECK_OK(rkv_coord_bin(100.49 / 1023.0, &bin));
    CHECK_EQ(bin, 100);
    CHECK_OK(rkv_coord_bin(100.51 / 1023.0, &bin));
    CHECK_EQ(bin, 101);
    for (uint32_t i = 0; i < RKV_BIN_COUNT; i++) {
        CHECK_OK(rkv_coord_value(i, &value));
        CHECK(fabs(value - i / 1023.0) < 1e-15);
        CHECK_OK(rkv_coord_bin(value, &bin));
        CHECK_EQ(bin, i);
    }
}

static void k02_size_bins(void) {
    uint32_t bin = 7;
    double value = 7, before = 0;
    CHECK_OK(rkv_size_bin(1.0 / 1024.0, &bin));
    CHECK_EQ(bin, 0);
    CHECK_OK(rkv_size_bin(1.0, &bin));
    CHECK_EQ(bin, 1023);
    CHECK_OK(rkv_size_bin(exp2(10.0 * 100.49 / 1023.0 - 10.0), &bin));
    CHECK_EQ(bin, 100);
    CHECK_OK(rkv_size_bin(exp2(10.0 * 100.51 / 1023.0 - 10.0), &bin));
    CHECK_EQ(bin, 101);
    for (uint32_t i = 0; i < RKV_BIN_COUNT; i++) {
        CHECK_OK(rkv_size_value(i, &value));
        CHECK(fabs(value - exp2(10.0 * i / 1023.0 - 10.0)) < 1e-14);
        CHECK(value > before);
        before = value;
        CHECK_OK(rkv_size_bin(value, &bin));
        CHECK_EQ(bin, i);
    }
}

static void k02_values_without_a_bin(void) {
    const double neither[] = {NAN, INFINITY, -INFINITY, -0.5, 1.5, DBL_MAX, -DBL_MAX};
    uint32_t bin = 77;
    double value = 77;
    for (size_t i = 0; i < sizeof neither / sizeof neither[0]; i++) {
        CHECK_STATUS(rkv_coord_bin(neither[i], &bin), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("value"));
        CHECK_STATUS(rkv_size_bin(neither[i], &bin), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("value"));
    }
    CHECK_STATUS(rkv_coord_bin(nextafter(1.0, 2.0), &bin), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_coord_bin(nextafter(0.0, -1.0), &bin), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_size_bin(0.0, &bin), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_size_bin(nextafter(1.0 / 1024, 0.0), &bin), RKV_STATUS_INVALID_ARGUMENT);
    CHECK_STATUS(rkv_size_bin(nextafter(1.0, 2.0), &bin), RKV_STATUS_INVALID_ARGUMENT);
    const uint32_t bins[] = {RKV_BIN_COUNT, UINT32_MAX};
    for (size_t i = 0; i < 2; i++) {
        CHECK_STATUS(rkv_coord_value(bins[i], &value), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("bin"));
        CHECK_STATUS(rkv_size_value(bins[i], &value), RKV_STATUS_INVALID_ARGUMENT);
        CHECK(message_names("bin"));
    }
    CHECK(bin == 77 && fabs(value - 77) < DBL_EPSILON);
}

static void k03_digest_is_the_start_of_sha256(void) {
    static const uint8_t of_nothing[16] = {0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14,
                                           0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24};
    static const uint8_t of_abc[16] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
                                       0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23};
    uint8_t digest[17];
    memset(digest, 0xA5, sizeof digest);
    CHECK_OK(rkv_image_digest("abc", 3, digest));
    CHECK(memcmp(digest, of_abc, 16) == 0);
    CHECK_EQ(digest[16], 0xA5);
    CHECK_OK(rkv_image_digest(NULL, 0, digest));
    CHECK(memcmp(digest, of_nothing, 16) == 0);
}

/* Builds a list and checks where the images and every prompt id went. */
static void check_build(size_t prompt_count, const rkv_token_item *places, size_t image_count) {
    uint32_t prompt_ids[8], ids[16];
    rkv_token_item items[8];
    rkv_region regions[8];
    size_t count = 0, region_count = 0, positions = 0, next_id = 0, next_item = 0;
    uint64_t position = 0;
    count_up(prompt_ids, prompt_count, 100);
    rkv_tokens prompt = with_items(prompt_ids, prompt_count, places, image_count);
    memset(ids, 0xA5, sizeof ids);
    CHECK_OK(rkv_tokens_build(&prompt, ids, 16, items, &count));
    CHECK_EQ(count, prompt_count + image_count);
    rkv_tokens built = with_items(ids, count, items, image_count);
    CHECK_OK(rkv_tokens_regions(&built, regions, 8, &region_count));
    CHECK_EQ(region_count, image_count);
    for (size_t i = 0; i < count; i++) {
        if (next_item < image_count && items[next_item].token_index == i) {
            const rkv_token_item *from = &places[next_item], *made = &items[next_item];
            CHECK_EQ(from->token_index, next_id); /* it stands before the id of that index */
            CHECK_EQ(made->kind, RKV_TOKEN_IMAGE);
            CHECK_EQ(made->position_count, from->position_count);
            CHECK(memcmp(made->digest, from->digest, 16) == 0);
            CHECK_EQ(ids[i], 0);
            CHECK_EQ(regions[next_item].start, position);
            CHECK_EQ(regions[next_item].end, position + from->position_count);
            position += from->position_count;
            next_item++;
        } else {
            CHECK_EQ(ids[i], 100 + next_id);
            next_id++;
            position++;
        }
    }
    CHECK_EQ(next_item, image_count);
    CHECK_EQ(next_id, prompt_count);
    CHECK_EQ(ids[count], 0xA5A5A5A5u);
    CHECK_OK(rkv_tokens_position_count(&built, &positions));
    CHECK_EQ(positions, position);
}

static void k04_build_and_regions(void) {
    rkv_token_item two[2] = {image(1, 1, 729), image(3, 2, 5)};
    rkv_token_item adjacent[2] = {image(2, 1, 4), image(2, 2, 6)};
    rkv_token_item at_the_end[2] = {image(0, 1, 3), image(4, 2, 2)};
    rkv_token_item duplicates[3] = {image(0, 9, 3), image(0, 9, 3), image(4, 9, 3)};
    check_build(4, NULL, 0);
    check_build(4, two, 1);
    check_build(4, two, 2);
    check_build(4, adjacent, 2);
    check_build(4, at_the_end, 2);
    check_build(4, duplicates, 3);
    check_build(0, two, 0);
    rkv_token_item alone = image(0, 1, 10);
    check_build(0, &alone, 1);
}

/* Coordinates and sizes are no regions. */
static void k04_only_images_are_regions(void) {
    const uint32_t ids[4] = {1, 0, 0, 0};
    rkv_token_item items[3];
    items[0] = item(1, RKV_TOKEN_COORD, 3, 0);
    items[1] = image(2, 1, 6);
    items[2] = item(3, RKV_TOKEN_SIZE, 4, 5);
    rkv_tokens tokens = with_items(ids, 4, items, 3);
    rkv_region region = {99, 99};
    size_t count = 99;
    CHECK_OK(rkv_tokens_regions(&tokens, &region, 1, &count));
    CHECK_EQ(count, 1);
    CHECK(region.start == 2 && region.end == 8);
    /* the two-call way */
    count = 99;
    CHECK_OK(rkv_tokens_regions(&tokens, NULL, 0, &count));
    CHECK_EQ(count, 1);
}

static void k04_too_little_room(void) {
    const uint32_t prompt_ids[2] = {1, 2};
    rkv_token_item places[2] = {image(1, 1, 3), image(1, 2, 3)}, items[2];
    uint32_t ids[4] = {9, 9, 9, 9};
    rkv_region region = {9, 9};
    size_t count = 0;
    rkv_tokens prompt = with_items(prompt_ids, 2, places, 2);
    memset(items, 0xA5, sizeof items);
    CHECK_STATUS(rkv_tokens_build(&prompt, ids, 3, items, &count), RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK_EQ(count, 4);
    CHECK(ids[0] == 9 && ids[2] == 9 && items[0].kind == 0xA5A5A5A5u);
    CHECK_OK(rkv_tokens_build(&prompt, ids, 4, items, &count));
    rkv_tokens built = with_items(ids, 4, items, 2);
    count = 0;
    CHECK_STATUS(rkv_tokens_regions(&built, &region, 1, &count), RKV_STATUS_BUFFER_TOO_SMALL);
    CHECK(count == 2 && region.start == 9);
}

int main(void) {
    RUN_BOTH(k01_kinds_never_compare_equal);
    RUN_BOTH(k01_id_under_an_item_is_not_read);
    RUN_BOTH(k01_images_are_equal_whole_or_not);
    RUN(k02_coord_bins);
    RUN(k02_size_bins);
    RUN(k02_values_without_a_bin);
    RUN(k03_digest_is_the_start_of_sha256);
    RUN(k04_build_and_regions);
    RUN(k04_only_images_are_regions);
    RUN(k04_too_little_room);
    return check_result();
}
