// Token lists: the builder, the view, bins, digests, rkv::span.
#include "check.hpp"

#include <array>
#include <limits>

#if __cplusplus >= 202002L
#include <span>
#endif

namespace {

const rkv::Digest cat = rkv::image_digest("cat", 3);
const rkv::Digest dog = rkv::image_digest("dog", 3);

// K02
void discretises() {
    for (std::uint32_t bin = 0; bin < RKV_BIN_COUNT; ++bin) {
        CHECK_EQ(rkv::coord_bin(rkv::coord_value(bin)), bin);
        CHECK_EQ(rkv::size_bin(rkv::size_value(bin)), bin);
    }
    CHECK_EQ(rkv::coord_value(1023), 1.0);
    CHECK_EQ(rkv::size_value(0), 1.0 / 1024);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::coord_bin(1.5));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::size_bin(0));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)rkv::coord_bin(std::numeric_limits<double>::quiet_NaN()));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::coord_value(RKV_BIN_COUNT));
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::size_value(RKV_BIN_COUNT));
}

// K03
void digests() {
    // SHA-256 of "abc" is ba7816bf 8f01cfea 414140de 5dae2223 ...
    const rkv::Digest expected{0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea,
                               0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23};
    CHECK(rkv::image_digest("abc", 3) == expected);
    CHECK(rkv::image_digest(nullptr, 0) != expected);
    CHECK(cat != dog);
}

// K01, K04
void builds_a_list() {
    rkv::Tokens tokens{7, 8};
    tokens.image(cat, 50).image(dog, 3).text(9).coord(0.5).size(0.25, 1.0);
    CHECK_EQ(tokens.count(), 7u);
    CHECK_EQ(tokens.items().size(), 4u);
    CHECK_EQ(tokens.items()[1].token_index, 3u);
    CHECK_EQ(tokens.items()[2].bin, rkv::coord_bin(0.5));
    CHECK_EQ(tokens.items()[3].bin, rkv::size_bin(0.25));
    CHECK_EQ(tokens.items()[3].height_bin, 1023u);
    CHECK_EQ(tokens.view().position_count(), 2u + 50 + 3 + 1 + 1 + 1);

    const std::vector<rkv_region> regions = tokens.view().regions();
    CHECK_EQ(regions.size(), 2u);
    CHECK_EQ(regions[0].start, 2u);
    CHECK_EQ(regions[0].end, 52u);
    CHECK_EQ(regions[1].start, 52u);
    CHECK_EQ(regions[1].end, 55u);
    std::array<rkv_region, 1> one{};
    CHECK_THROWS(RKV_STATUS_BUFFER_TOO_SMALL, tokens.view().regions(one));
    CHECK_EQ(one[0].end, 0u);

    // A coordinate that is out of range leaves the list as it was.
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, tokens.coord(-1));
    CHECK_EQ(tokens.count(), 7u);

    tokens.clear();
    CHECK_EQ(tokens.count(), 0u);
    CHECK_EQ(tokens.view().position_count(), 0u);
    CHECK(tokens.view().regions().empty());

    tokens.image(cat, 0);
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)tokens.view().position_count());
}

// K04: before, between, after, adjacent.
void builds_from_a_prompt() {
    const std::vector<std::uint32_t> prompt{1, 2};
    std::vector<rkv_token_item> items(3, rkv_token_item{});
    for (rkv_token_item& item : items) {
        item.kind = RKV_TOKEN_IMAGE;
        item.position_count = 5;
    }
    items[0].token_index = 0;
    items[1].token_index = 2;
    items[2].token_index = 2;
    const rkv::Tokens tokens = rkv::Tokens::build(rkv::TokenView(prompt, items));
    CHECK(tokens.ids() == (std::vector<std::uint32_t>{0, 1, 2, 0, 0}));
    CHECK_EQ(tokens.items()[0].token_index, 0u);
    CHECK_EQ(tokens.items()[1].token_index, 3u);
    CHECK_EQ(tokens.items()[2].token_index, 4u);
    CHECK_EQ(tokens.view().position_count(), 17u);

    items[1].token_index = 3;
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT,
                 (void)rkv::Tokens::build(rkv::TokenView(prompt, items)));
    CHECK_EQ(rkv::Tokens::build(prompt).count(), 2u);
}

// Items of another header have another size, which the library would write here, too.
void builds_of_its_own_items_alone() {
    struct Later {
        rkv_token_item item;
        std::uint64_t more;
    };
    std::array<Later, 3> items{};
    for (Later& later : items) {
        later.item.kind = RKV_TOKEN_IMAGE;
        later.item.position_count = 5;
    }
    const std::vector<std::uint32_t> prompt{1, 2};
    auto raw = rkv::sized<rkv_tokens>();
    raw.ids = prompt.data();
    raw.count = prompt.size();
    raw.items = &items[0].item;
    raw.item_size = sizeof(Later);
    raw.item_count = items.size();
    CHECK_THROWS(RKV_STATUS_INVALID_ARGUMENT, (void)rkv::Tokens::build(raw));
    raw.item_count = 0;  // nor is the size read then
    CHECK_EQ(rkv::Tokens::build(raw).count(), 2u);
}

std::size_t positions(rkv::TokenView tokens) { return tokens.position_count(); }
std::size_t length(rkv::span<const std::uint32_t> ids) { return ids.size(); }

// Whatever holds ids is a token list.
void converts() {
    const std::vector<std::uint32_t> vector{1, 2, 3};
    const std::array<std::uint32_t, 2> array{{4, 5}};
    std::uint32_t plain[] = {6, 7, 8, 9};
    CHECK_EQ(positions(vector), 3u);
    CHECK_EQ(positions(array), 2u);
    CHECK_EQ(positions(plain), 4u);
    CHECK_EQ(positions({1, 2, 3, 4, 5}), 5u);
    CHECK_EQ(positions(rkv::Tokens{1}.image(cat, 9)), 10u);
    CHECK_EQ(positions({}), 0u);
    CHECK_EQ(length({1, 2}), 2u);
    CHECK_EQ(length(rkv::span<std::uint32_t>(plain)), 4u);
    CHECK_EQ(rkv::span<std::uint32_t>(plain)[3], 9u);
#if __cplusplus >= 202002L
    CHECK_EQ(positions(std::span<const std::uint32_t>(vector)), 3u);
    CHECK_EQ(length(std::span<std::uint32_t>(plain)), 4u);
#endif
    rkv::TokenView view(vector);
    const rkv::TokenView again(*view.get());
    CHECK_EQ(again.position_count(), 3u);
    static_assert(!std::is_convertible_v<const std::vector<std::uint32_t>&,
                                         rkv::span<std::uint32_t>>);
    static_assert(!std::is_convertible_v<std::vector<std::uint64_t>&,
                                         rkv::span<const std::uint32_t>>);
}

}  // namespace

int main() {
    discretises();
    digests();
    builds_a_list();
    builds_from_a_prompt();
    builds_of_its_own_items_alone();
    converts();
}
