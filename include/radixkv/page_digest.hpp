/**
 * @file page_digest.hpp
 * @brief Digests of pages: names that routers, stores and other engines compute too.
 */

#ifndef RADIXKV_PAGE_DIGEST_HPP
#define RADIXKV_PAGE_DIGEST_HPP

#include "namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rkv {

/// Names a page's content together with everything before it: an rkv_page_digest that compares.
using PageDigest = std::array<std::uint8_t, 32>;

/// Implementation: not for use outside of this header.
namespace detail {

static_assert(sizeof(PageDigest) == sizeof(rkv_page_digest), "the library writes in place");

inline rkv_page_digest* raw(PageDigest* digests) noexcept {
    // Both are 32 bytes and nothing else.
    return reinterpret_cast<rkv_page_digest*>(digests);
}

inline std::vector<PageDigest> page_digests(const rkv_tokens_page_digests_args& args) {
    return read<PageDigest>([&](PageDigest* out, std::size_t capacity, std::size_t* count) {
        return rkv_tokens_page_digests(&args, raw(out), capacity, count);
    });
}

inline std::size_t page_digests(const rkv_tokens_page_digests_args& args, span<PageDigest> out) {
    std::size_t count = 0;
    PageDigest unused{};
    check(rkv_tokens_page_digests(&args, raw(present(out, unused)), out.size(), &count));
    return count;
}

inline rkv_tokens_page_digests_args digest_args(const TokenView& tokens, std::uint32_t page_size) {
    auto args = sized<rkv_tokens_page_digests_args>();
    args.page_size = page_size;
    args.tokens = tokens.get();
    return args;
}

inline rkv_tokens_page_digests_args digest_args(const TokenView& tokens, std::uint32_t page_size,
                                        const Namespace& ns) {
    auto args = digest_args(tokens, page_size);
    args.space = ns.get();
    return args;
}

inline rkv_tokens_page_digests_args digest_args(const TokenView& tokens, std::uint32_t page_size,
                                        const PageDigest& parent, std::uint64_t first_page) {
    auto args = digest_args(tokens, page_size);
    args.parent = reinterpret_cast<const rkv_page_digest*>(&parent);
    args.first_page = first_page;
    return args;
}

}  // namespace detail

/// rkv_tokens_page_digests() from the first page on.
[[nodiscard]] inline std::vector<PageDigest> page_digests(TokenView tokens,
                                                          std::uint32_t page_size,
                                                          const Namespace& ns = Namespace()) {
    return detail::page_digests(detail::digest_args(tokens, page_size, ns));
}

/// The same into a buffer; returns the number of digests.
inline std::size_t page_digests(TokenView tokens, std::uint32_t page_size,
                                span<PageDigest> out, const Namespace& ns = Namespace()) {
    return detail::page_digests(detail::digest_args(tokens, page_size, ns), out);
}

/// rkv_tokens_page_digests() after the page of digest `parent`, which stands before `first_page`;
/// 0: the tokens themselves go on where that page ends.
[[nodiscard]] inline std::vector<PageDigest> page_digests_after(const PageDigest& parent,
                                                                TokenView tokens,
                                                                std::uint32_t page_size,
                                                                std::uint64_t first_page = 0) {
    return detail::page_digests(detail::digest_args(tokens, page_size, parent, first_page));
}

/// The same into a buffer, in which `parent` may lie; returns the number of digests.
inline std::size_t page_digests_after(const PageDigest& parent, TokenView tokens,
                                      std::uint32_t page_size, span<PageDigest> out,
                                      std::uint64_t first_page = 0) {
    return detail::page_digests(detail::digest_args(tokens, page_size, parent, first_page), out);
}

}  // namespace rkv

#endif  // RADIXKV_PAGE_DIGEST_HPP
