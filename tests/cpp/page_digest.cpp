// Page digests, and the index that finds pages by them.
#include "check.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string>

namespace {

std::vector<std::uint32_t> count_up(std::uint32_t first, std::size_t count) {
    std::vector<std::uint32_t> ids(count);
    for (std::size_t i = 0; i < count; ++i) ids[i] = first + static_cast<std::uint32_t>(i);
    return ids;
}

// The first digest of tests/page_digest/vectors.txt; H01.
void digests_are_known() {
    const std::vector<rkv::PageDigest> digests = rkv::page_digests(count_up(0, 33), 16);
    CHECK_EQ(digests.size(), 2u);
    const std::array<std::uint8_t, 4> start{{0xb5, 0xdb, 0x49, 0xf5}};
    CHECK(std::equal(start.begin(), start.end(), digests[0].begin()));
    CHECK(rkv::page_digests(count_up(0, 15), 16).empty());
}

// H01
void digests_differ_and_go_on() {
    const auto ids = count_up(1, 12);
    const auto digests = rkv::page_digests(ids, 4);
    std::set<rkv::PageDigest> seen(digests.begin(), digests.end());
    CHECK_EQ(seen.size(), 3u);
    for (const auto& other : {rkv::page_digests(ids, 3), rkv::page_digests(ids, 2),
                              rkv::page_digests(ids, 4, rkv::Namespace().lora(0)),
                              rkv::page_digests(ids, 4, rkv::Namespace().epoch(7))}) {
        for (const rkv::PageDigest& digest : other) CHECK(seen.insert(digest).second);
    }
    rkv::Tokens media{1, 2};
    media.image(rkv::image_digest("cat", 3), 13).text(3);
    const auto pages = rkv::page_digests(media, 4);
    CHECK_EQ(pages.size(), 4u);
    for (std::size_t first = 1; first <= pages.size(); ++first) {
        const auto rest = rkv::page_digests_after(pages[first - 1], media, 4, first);
        CHECK(std::equal(rest.begin(), rest.end(), pages.begin() + static_cast<long>(first),
                         pages.end()));
    }
    const std::vector<std::uint32_t> suffix(ids.begin() + 4, ids.end());
    const auto rest = rkv::page_digests_after(digests[0], suffix, 4);
    CHECK(rest == (std::vector<rkv::PageDigest>{digests[1], digests[2]}));
}

void digests_into_a_buffer() {
    const auto ids = count_up(1, 12);
    const auto digests = rkv::page_digests(ids, 4);
    std::array<rkv::PageDigest, 3> room{};
    CHECK_EQ(rkv::page_digests(ids, 4, room), 3u);
    CHECK(std::equal(room.begin(), room.end(), digests.begin(), digests.end()));
    CHECK_EQ(rkv::page_digests_after(room[0], ids, 4, room, 1), 2u);
    CHECK(room[0] == digests[1] && room[1] == digests[2]);
    std::array<rkv::PageDigest, 2> small{};
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL, rkv::page_digests(ids, 4, small));
    CHECK(small[0] == rkv::PageDigest{});
    CHECK_EQ(rkv::page_digests(count_up(1, 3), 4, rkv::span<rkv::PageDigest>()), 0u);
}

// M01
void refuses() {
    const auto ids = count_up(1, 12);
    const rkv::PageDigest parent{};
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::page_digests(ids, 0));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::page_digests(ids, RKV_PAGE_SIZE_MAX + 1));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::page_digests({RKV_TEXT_ID_LIMIT}, 1));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::page_digests_after(parent, ids, 4, 4));
}

// H01, H02, H07: the cache knows its pages by the digests that page_digests() makes.
void the_index_has_them() {
    auto table_config = rkv::PageTable::config();
    table_config.page_size = 4;
    table_config.page_count = 16;
    table_config.slot_count = 2;
    rkv::PageTable table(table_config);
    auto config = rkv::Cache::config();
    config.index = RKV_INDEX_BLOCK_HASH;
    rkv::Cache cache(table, config);
    const auto ids = count_up(1, 12);
    rkv::Sequence sequence = cache.begin(ids);
    (void)sequence.publish(12);
    const std::string dump = cache.dump(RKV_DUMP_JSON);
    for (const rkv::PageDigest& digest : rkv::page_digests(ids, 4)) {
        std::string hex;
        for (const std::uint8_t byte : digest) {
            const char* const digits = "0123456789abcdef";
            hex += digits[byte / 16];
            hex += digits[byte % 16];
        }
        CHECK(dump.find(hex) != std::string::npos);
    }
    CHECK_EQ(cache.stats().node_count, 3u);
    CHECK_EQ(cache.stats().prefix_count, 1u);
    CHECK_EQ(cache.probe(ids).token_count, 12u);
    sequence.reset();
    cache.check_invariants();
}

}  // namespace

int main() {
    digests_are_known();
    digests_differ_and_go_on();
    digests_into_a_buffer();
    refuses();
    the_index_has_them();
}
