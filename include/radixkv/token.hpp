/**
 * @file token.hpp
 * @brief Token lists, image digests.
 */

#ifndef RADIXKV_TOKEN_HPP
#define RADIXKV_TOKEN_HPP

#include "span.hpp"
#include "spatial.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

namespace rkv {

/// Content digest of an image.
using Digest = std::array<std::uint8_t, 16>;

/// rkv_image_digest().
[[nodiscard]] inline Digest image_digest(const void* bytes, std::size_t byte_count) {
    Digest digest{};
    check(rkv_image_digest(bytes, byte_count, digest.data()));
    return digest;
}

/// Tokens that somebody else owns and keeps while the view is used: an rkv_tokens. Text ids alone
/// convert to it by themselves. A list in braces lives as long as the call that it stands in.
class TokenView {
public:
    TokenView(span<const std::uint32_t> ids, span<const rkv_token_item> items) noexcept {
        raw_.ids = ids.data();
        raw_.count = ids.size();
        raw_.items = items.size() != 0 ? items.data() : nullptr;
        raw_.item_size = sizeof(rkv_token_item);
        raw_.item_count = items.size();
    }
    template <class C,
              class = std::enable_if_t<std::is_convertible_v<C, span<const std::uint32_t>>>>
    TokenView(const C& ids) noexcept : TokenView(span<const std::uint32_t>(ids), {}) {}
    TokenView(std::initializer_list<std::uint32_t> ids) noexcept
        : TokenView(span<const std::uint32_t>(ids), {}) {}
    TokenView(const rkv_tokens& raw) noexcept : raw_(raw) {}

    [[nodiscard]] const rkv_tokens* get() const noexcept { return &raw_; }

    /// rkv_tokens_position_count().
    [[nodiscard]] std::size_t position_count() const {
        std::size_t count = 0;
        check(rkv_tokens_position_count(&raw_, &count));
        return count;
    }
    /// rkv_tokens_regions().
    [[nodiscard]] std::vector<rkv_region> regions() const {
        std::vector<rkv_region> out(raw_.item_count);  // no more regions than items
        out.resize(regions(out));
        return out;
    }
    /// rkv_tokens_regions() into a buffer; returns the number of regions.
    std::size_t regions(span<rkv_region> out) const {
        std::size_t count = 0;
        rkv_region unused{};
        check(rkv_tokens_regions(&raw_, detail::present(out, unused), out.size(), &count));
        return count;
    }

private:
    rkv_tokens raw_ = sized<rkv_tokens>();
};

/// A token list under construction: owns the ids and the items.
class Tokens {
public:
    Tokens() = default;
    Tokens(std::initializer_list<std::uint32_t> ids) : ids_(ids) {}

    Tokens& text(std::uint32_t id) {
        ids_.push_back(id);
        return *this;
    }
    Tokens& text(span<const std::uint32_t> ids) {
        ids_.insert(ids_.end(), ids.begin(), ids.end());
        return *this;
    }
    /// The same of a list in braces, which may be empty.
    Tokens& text(std::initializer_list<std::uint32_t> ids) {
        return text(span<const std::uint32_t>(ids));
    }
    /// A coordinate in [0, 1]: rkv_coord_bin().
    Tokens& coord(double value) { return coord_at_bin(coord_bin(value)); }
    Tokens& coord_at_bin(std::uint32_t bin) { return add(RKV_TOKEN_COORD, bin, 0); }
    /// A width and a height in [2^-10, 1]: rkv_size_bin() of each.
    Tokens& size(double width, double height) {
        return size_at_bins(size_bin(width), size_bin(height));
    }
    Tokens& size_at_bins(std::uint32_t width_bin, std::uint32_t height_bin) {
        return add(RKV_TOKEN_SIZE, width_bin, height_bin);
    }
    /// An image that takes position_count KV positions.
    Tokens& image(const Digest& digest, std::uint32_t position_count) {
        rkv_token_item item{};
        item.kind = RKV_TOKEN_IMAGE;
        item.position_count = position_count;
        std::copy(digest.begin(), digest.end(), item.digest);
        return add(item);
    }
    /// rkv_tokens_build(): the ids of a prompt with items in between.
    [[nodiscard]] static Tokens build(TokenView prompt) {
        const rkv_tokens& given = *prompt.get();
        // The library writes items as large as those that it reads, and there is room for ours.
        if (given.item_count != 0 && given.item_size != sizeof(rkv_token_item))
            throw Error(RKV_STATUS_INVALID_ARGUMENT, "prompt.item_size is not this header's");
        Tokens out;
        out.items_.resize(given.item_count);
        out.ids_.resize(given.count + given.item_count);
        std::size_t count = 0;
        check(rkv_tokens_build(&given, out.ids_.data(), out.ids_.size(), out.items_.data(),
                               &count));
        return out;
    }

    /// Number of tokens.
    [[nodiscard]] std::size_t count() const noexcept { return ids_.size(); }
    [[nodiscard]] const std::vector<std::uint32_t>& ids() const noexcept { return ids_; }
    [[nodiscard]] const std::vector<rkv_token_item>& items() const noexcept { return items_; }
    [[nodiscard]] TokenView view() const noexcept { return TokenView(ids_, items_); }
    operator TokenView() const noexcept { return view(); }
    void clear() noexcept {
        ids_.clear();
        items_.clear();
    }

private:
    Tokens& add(std::uint32_t kind, std::uint32_t bin, std::uint32_t height_bin) {
        rkv_token_item item{};
        item.kind = kind;
        item.bin = bin;
        item.height_bin = height_bin;
        return add(item);
    }
    Tokens& add(rkv_token_item item) {
        item.token_index = ids_.size();
        items_.push_back(item);
        try {
            ids_.push_back(0);
        } catch (...) {
            items_.pop_back();
            throw;
        }
        return *this;
    }

    std::vector<std::uint32_t> ids_;
    std::vector<rkv_token_item> items_;
};

}  // namespace rkv

#endif  // RADIXKV_TOKEN_HPP
