/**
 * @file page_table.hpp
 * @brief The page table: pages, rows, batches.
 */

#ifndef RADIXKV_PAGE_TABLE_HPP
#define RADIXKV_PAGE_TABLE_HPP

#include "groups.hpp"
#include "journal.hpp"
#include "span.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rkv {

/// The arrays of rkv_page_table_read_batch(). Kept from step to step, it stops allocating.
struct Batch {
    std::vector<std::int32_t> indptr;
    std::vector<std::int32_t> indices;
    std::vector<std::int32_t> last_page_len;
};

/// Owns an rkv_page_table.
class PageTable {
public:
    /// rkv_page_table_config_init(). Set page_count, it has no default; flags may be
    /// RKV_PAGE_TABLE_EXTERNAL_POOL.
    [[nodiscard]] static rkv_page_table_config config() {
        rkv_page_table_config config{};
        check(rkv_page_table_config_init(&config, sizeof config));
        return config;
    }

    /// rkv_page_table_create().
    explicit PageTable(const rkv_page_table_config& config) {
        rkv_page_table* table = nullptr;
        check(rkv_page_table_create(&config, &table));
        handle_.reset(table);
    }
    /// rkv_page_table_create() with several groups of layers, and pools for them: config.page_count
    /// stays 0. No list of pools means one, of config.page_count pages.
    PageTable(rkv_page_table_config config, span<const rkv_group_config> groups,
              span<const rkv_pool_config> pools = {})
        : PageTable(with_groups(config, groups, pools)) {}
    /// Takes over a handle that C code created.
    explicit PageTable(rkv_page_table* owned) noexcept : handle_(owned) {}

    [[nodiscard]] rkv_page_table* get() const noexcept { return handle_.get(); }
    /// Gives the handle up, without rkv_page_table_destroy().
    [[nodiscard]] rkv_page_table* release() noexcept { return handle_.release(); }
    /// rkv_page_table_destroy() now.
    void reset() noexcept { handle_.reset(); }

    /// rkv_page_table_read_stats().
    [[nodiscard]] rkv_page_table_stats stats() const {
        auto stats = sized<rkv_page_table_stats>();
        check(rkv_page_table_read_stats(get(), &stats));
        return stats;
    }
    /// rkv_page_table_allocate_slot(). Undo with free_slot().
    [[nodiscard]] std::uint32_t allocate_slot() {
        std::uint32_t slot = 0;
        check(rkv_page_table_allocate_slot(get(), &slot));
        return slot;
    }
    /// rkv_page_table_free_slot().
    void free_slot(std::uint32_t slot) { check(rkv_page_table_free_slot(get(), slot)); }

    /// rkv_page_table_allocate_pages(). Undo with free_pages(), or map() them.
    [[nodiscard]] std::vector<std::uint32_t> allocate_pages(std::size_t page_count) {
        std::vector<std::uint32_t> pages(page_count);
        allocate_pages(pages);
        return pages;
    }
    /// rkv_page_table_allocate_pages() into a buffer: as many as it has room for.
    void allocate_pages(span<std::uint32_t> pages) {
        check(rkv_page_table_allocate_pages(get(), pages.size(), pages.data()));
    }
    /// rkv_page_table_free_pages().
    void free_pages(span<const std::uint32_t> pages) {
        check(rkv_page_table_free_pages(get(), pages.data(), pages.size()));
    }
    /// rkv_page_table_read_pool_stats().
    [[nodiscard]] rkv_pool_stats pool_stats(std::uint32_t pool) const {
        auto stats = sized<rkv_pool_stats>();
        check(rkv_page_table_read_pool_stats(get(), pool, &stats));
        return stats;
    }
    /// rkv_page_table_allocate_pool_pages(). Undo with free_pool_pages().
    [[nodiscard]] std::vector<std::uint32_t> allocate_pool_pages(std::uint32_t pool,
                                                                 std::size_t page_count) {
        std::vector<std::uint32_t> pages(page_count);
        allocate_pool_pages(pool, pages);
        return pages;
    }
    /// rkv_page_table_allocate_pool_pages() into a buffer: as many as it has room for.
    void allocate_pool_pages(std::uint32_t pool, span<std::uint32_t> pages) {
        check(rkv_page_table_allocate_pool_pages(get(), pool, pages.size(), pages.data()));
    }
    /// rkv_page_table_free_pool_pages().
    void free_pool_pages(std::uint32_t pool, span<const std::uint32_t> pages) {
        check(rkv_page_table_free_pool_pages(get(), pool, pages.data(), pages.size()));
    }
    /// rkv_page_table_map().
    void map(std::uint32_t slot, std::size_t first_index, span<const std::uint32_t> pages) {
        check(rkv_page_table_map(get(), slot, first_index, pages.data(), pages.size()));
    }
    /// rkv_page_table_reserve().
    void reserve(std::uint32_t slot, std::size_t position_count) {
        check(rkv_page_table_reserve(get(), slot, position_count));
    }
    /// rkv_page_table_can_reserve().
    [[nodiscard]] bool can_reserve(std::uint32_t slot, std::size_t position_count) const {
        bool can = false;
        check(rkv_page_table_can_reserve(get(), slot, position_count, &can));
        return can;
    }
    /// rkv_page_table_can_reserve() with RKV_NO_SLOT: whether a new row could hold the positions.
    [[nodiscard]] bool can_reserve_new(std::size_t position_count) const {
        return can_reserve(static_cast<std::uint32_t>(RKV_NO_SLOT), position_count);
    }
    /// rkv_page_table_row_capacity().
    [[nodiscard]] std::size_t capacity(std::uint32_t slot) const {
        std::size_t position_count = 0;
        check(rkv_page_table_row_capacity(get(), slot, &position_count));
        return position_count;
    }
    /// rkv_page_table_read_row().
    [[nodiscard]] std::vector<std::uint32_t> row(std::uint32_t slot,
                                                 std::size_t first_index = 0) const {
        return detail::read<std::uint32_t>(
            [&](std::uint32_t* pages, std::size_t capacity, std::size_t* count) {
                return rkv_page_table_read_row(get(), slot, first_index, pages, capacity, count);
            });
    }
    /// rkv_page_table_read_row() into a buffer with room for the pages from first_index to the
    /// row's end; returns how many those are.
    std::size_t row(std::uint32_t slot, std::size_t first_index, span<std::uint32_t> pages) const {
        std::size_t count = 0;
        std::uint32_t unused = 0;
        check(rkv_page_table_read_row(get(), slot, first_index, detail::present(pages, unused),
                                      pages.size(), &count));
        return count;
    }
    /// rkv_page_table_read_slot_mapping().
    [[nodiscard]] std::vector<std::int64_t> slot_mapping(
        std::uint32_t slot, span<const std::uint64_t> positions) const {
        std::vector<std::int64_t> mapping(positions.size());
        slot_mapping(slot, positions, mapping);
        return mapping;
    }
    /// rkv_page_table_read_slot_mapping() into a buffer with room for every position.
    void slot_mapping(std::uint32_t slot, span<const std::uint64_t> positions,
                      span<std::int64_t> mapping) const {
        if (mapping.size() < positions.size())
            throw Error(RKV_STATUS_BUFFER_TOO_SMALL, "mapping is shorter than positions");
        check(rkv_page_table_read_slot_mapping(get(), slot, positions.data(), positions.size(),
                                          mapping.data()));
    }
    /// rkv_page_table_read_journal(), into buffers that grow when one record doesn't fit.
    rkv_cache_read_journal_result read_journal(std::uint64_t after_number,
                                               JournalBuffers& into) const {
        return into.read<rkv_cache_read_journal_result>([&](const auto& room, auto& out) {
            return rkv_page_table_read_journal(get(), after_number, &room, &out);
        });
    }
    /// rkv_page_table_read_batch().
    [[nodiscard]] Batch batch(span<const rkv_page_table_batch_row> rows) const {
        Batch out;
        batch(rows, out);
        return out;
    }
    /// rkv_page_table_read_batch() into vectors that grow when they must. When it throws, they hold
    /// nothing of use.
    void batch(span<const rkv_page_table_batch_row> rows, Batch& out) const {
        out.indptr.resize(rows.size() + 1);
        out.last_page_len.resize(rows.size());
        out.indices.resize(out.indices.capacity());
        for (;;) {
            auto arrays = sized<rkv_page_table_batch_arrays>();
            arrays.indptr = out.indptr.data();
            arrays.indices = out.indices.data();
            arrays.indices_capacity = out.indices.size();
            arrays.last_page_len = out.last_page_len.data();
            std::size_t count = 0;
            const rkv_status status =
                rkv_page_table_read_batch(get(), rows.data(), rows.size(),
                                          sizeof(rkv_page_table_batch_row), &arrays, &count);
            if (status != RKV_STATUS_BUFFER_TOO_SMALL) check(status);
            const bool complete = status == RKV_STATUS_OK && count <= out.indices.size();
            out.indices.resize(count);
            if (complete) return;
        }
    }
    /// rkv_page_table_read_batch() into the caller's arrays, e.g. pinned memory; returns the number
    /// of indices.
    std::size_t batch(span<const rkv_page_table_batch_row> rows,
                      const rkv_page_table_batch_arrays& arrays) const {
        std::size_t count = 0;
        check(rkv_page_table_read_batch(get(), rows.data(), rows.size(),
                                        sizeof(rkv_page_table_batch_row), &arrays, &count));
        return count;
    }
    /// rkv_page_table_check(): throws RKV_STATUS_CORRUPT.
    void check_invariants() const { check(rkv_page_table_check(get())); }

private:
    static rkv_page_table_config with_groups(rkv_page_table_config config,
                                             span<const rkv_group_config> groups,
                                             span<const rkv_pool_config> pools) noexcept {
        config.groups = groups.data();
        config.group_count = groups.size();
        config.group_size = sizeof(rkv_group_config);
        config.pools = pools.data();
        config.pool_count = pools.size();
        config.pool_size = sizeof(rkv_pool_config);
        return config;
    }

    struct Destroy {
        void operator()(rkv_page_table* table) const noexcept { rkv_page_table_destroy(table); }
    };
    std::unique_ptr<rkv_page_table, Destroy> handle_;
};

}  // namespace rkv

#endif  // RADIXKV_PAGE_TABLE_HPP
