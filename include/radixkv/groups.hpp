/**
 * @file groups.hpp
 * @brief Groups of layers: how they are named at creation, and what lookups say by group.
 */

#ifndef RADIXKV_GROUPS_HPP
#define RADIXKV_GROUPS_HPP

#include "span.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rkv {

/// Full attention: a prefix needs all pages.
[[nodiscard]] constexpr rkv_group_config full_group(std::uint32_t pool = 0) noexcept {
    return {RKV_GROUP_FULL, pool, 0, 0, 0, 0};
}
/// A sliding window: a prefix needs the pages of the last window - 1 positions, and of the first
/// `sinks`.
[[nodiscard]] constexpr rkv_group_config window_group(std::uint32_t pool, std::uint32_t window,
                                                      std::uint32_t sinks = 0) noexcept {
    return {RKV_GROUP_WINDOW, pool, window, sinks, 0, 0};
}
/// Chunked attention: a prefix needs the pages from the beginning of the next position's chunk.
[[nodiscard]] constexpr rkv_group_config chunk_group(std::uint32_t pool,
                                                     std::uint32_t chunk) noexcept {
    return {RKV_GROUP_CHUNK, pool, 0, 0, chunk, 0};
}
/// Recurrent layers: a prefix needs the state at its end. `draft_state_count` states more are for
/// tokens that may be taken back.
[[nodiscard]] constexpr rkv_group_config
state_group(std::uint32_t pool, std::uint32_t draft_state_count = 0) noexcept {
    return {RKV_GROUP_STATE, pool, 0, 0, 0, draft_state_count};
}
/// A pool of pages, the reserved one included.
[[nodiscard]] constexpr rkv_pool_config pool_of(std::uint32_t page_count) noexcept {
    return {page_count, 0};
}

/// The pages of one group, for Cache::insert_groups().
struct GroupRow {
    /// 1 and up.
    std::uint32_t group = 0;
    /// A page for each whole page of the tokens, from the prefix' beginning; 0 where there is none.
    span<const std::uint32_t> pages;
    /// If not empty, it receives an entry per page: the cache's, 0 where it has none. It must not
    /// be empty with an external pool.
    span<std::uint32_t> published;
};

/// What Cache::probe_groups() found.
struct GroupProbe {
    rkv_group_depths depths = sized<rkv_group_depths>();
    /// What each group cost.
    std::vector<rkv_group_cost> costs;
};

/// What Cache::evict_pool_reported() took.
struct EvictedPages {
    /// Every page, of all pools, in order.
    std::vector<rkv_evicted_page> pages;
    /// Those that the pool got.
    std::size_t freed_page_count = 0;
};

}  // namespace rkv

#endif  // RADIXKV_GROUPS_HPP
