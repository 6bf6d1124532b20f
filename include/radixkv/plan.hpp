/**
 * @file plan.hpp
 * @brief Plans: what the next step computes, as arrays.
 */

#ifndef RADIXKV_PLAN_HPP
#define RADIXKV_PLAN_HPP

#include "page_table.hpp"
#include "sequence.hpp"
#include "span.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

namespace rkv {

namespace detail {

/// What is left to fill in is whose row it is.
inline rkv_plan_row plan_row(std::uint64_t start, std::uint64_t count,
                             span<const rkv_region> regions,
                             span<const std::uint64_t> tree_masks, std::uint32_t mask) {
    if (tree_masks.size() != 0 && tree_masks.size() != count)
        throw Error(RKV_STATUS_INVALID_ARGUMENT, "tree_masks: one for each new position");
    if (regions.size() > std::numeric_limits<std::uint32_t>::max())
        throw Error(RKV_STATUS_INVALID_ARGUMENT, "regions: more than 2^32");
    rkv_plan_row row{};
    row.region_count = static_cast<std::uint32_t>(regions.size());
    row.regions = regions.size() != 0 ? regions.data() : nullptr;
    row.start = start;
    row.count = count;
    row.tree_masks = tree_masks.size() != 0 ? tree_masks.data() : nullptr;
    row.mask = mask;
    return row;
}

}  // namespace detail

/// New positions of a sequence, for Plan::set(), until which `regions` and `tree_masks` must live;
/// `mask` is an RKV_MASK_.
[[nodiscard]] inline rkv_plan_row plan_row(const Sequence& sequence, std::uint64_t start,
                                           std::uint64_t count,
                                           span<const rkv_region> regions = {},
                                           span<const std::uint64_t> tree_masks = {},
                                           std::uint32_t mask = RKV_MASK_CAUSAL) {
    if (!sequence) throw Error(RKV_STATUS_INVALID_ARGUMENT, "sequence is empty");
    rkv_plan_row row = detail::plan_row(start, count, regions, tree_masks, mask);
    row.sequence = sequence.get();
    return row;
}

/// The same of a row of the page table that is no sequence's.
[[nodiscard]] inline rkv_plan_row plan_row_of_slot(std::uint32_t slot, std::uint64_t start,
                                                   std::uint64_t count,
                                                   span<const rkv_region> regions = {},
                                                   span<const std::uint64_t> tree_masks = {},
                                                   std::uint32_t mask = RKV_MASK_CAUSAL) {
    rkv_plan_row row = detail::plan_row(start, count, regions, tree_masks, mask);
    row.slot = slot;
    return row;
}

/// The arrays of rkv_plan_view(). They belong to the plan: good until it is set again, reserved or
/// destroyed.
struct PlanArrays {
    std::uint64_t position_count = 0;
    span<const std::int32_t> query_indptr;
    span<const std::int32_t> indptr;
    span<const std::int32_t> indices;
    span<const std::int32_t> last_page_len;
    span<const std::int64_t> slot_mapping;
    /// Of each copy that was open when the plan was set: who waits for it, and what it is.
    span<const rkv_sequence_id> copy_sequence;
    span<const std::int32_t> copy_group;
    span<const std::int32_t> copy_source_page;
    span<const std::int32_t> copy_target_page;
    span<const std::int32_t> copy_position_count;
};

/// The arrays of rkv_plan_view_group(). They belong to the plan: good until it is set again,
/// reserved or destroyed.
struct PlanGroupArrays {
    span<const std::int32_t> indptr;
    span<const std::int32_t> indices;
    span<const std::int32_t> last_page_len;
    /// Empty in a STATE group.
    span<const std::int64_t> slot_mapping;
    /// Empty: 0 for all rows.
    span<const std::int64_t> first_position;
    /// Empty: 0 for all rows, or not apart.
    span<const std::int32_t> sink_page_count;
};

/// Owns an rkv_plan: what a step computes, set anew for each one. Any Runner over the same page
/// table computes it.
class Plan {
public:
    /// Owns nothing.
    Plan() noexcept = default;
    /// Takes over a handle that C code created.
    explicit Plan(rkv_plan* owned) noexcept : handle_(owned) {}
    /// rkv_plan_create().
    explicit Plan(PageTable& table) {
        rkv_plan* plan = nullptr;
        check(rkv_plan_create(table.get(), &plan));
        handle_.reset(plan);
    }

    [[nodiscard]] rkv_plan* get() const noexcept { return handle_.get(); }
    [[nodiscard]] explicit operator bool() const noexcept { return get() != nullptr; }
    /// Gives the handle up, without rkv_plan_destroy().
    [[nodiscard]] rkv_plan* release() noexcept { return handle_.release(); }
    /// rkv_plan_destroy() now.
    void reset() noexcept { handle_.reset(); }

    /// rkv_plan_set(). The rows and their regions are not needed afterwards.
    void set(span<const rkv_plan_row> rows) {
        check(rkv_plan_set(get(), rows.data(), rows.size(), sizeof(rkv_plan_row)));
    }
    /// rkv_plan_reserve(). Begin with sized<rkv_plan_capacity>().
    void reserve(const rkv_plan_capacity& capacity) { check(rkv_plan_reserve(get(), &capacity)); }
    /// rkv_plan_check(): throws when the plan may not be computed any more.
    void require_current() const { check(rkv_plan_check(get())); }
    /// rkv_plan_view().
    [[nodiscard]] PlanArrays arrays() const {
        auto raw = sized<rkv_plan_arrays>();
        check(rkv_plan_view(get(), &raw));
        const std::size_t rows = raw.row_count;
        PlanArrays out;
        out.position_count = raw.position_count;
        out.query_indptr = {raw.query_indptr, rows + 1};
        out.indptr = {raw.indptr, rows + 1};
        out.indices = {raw.indices, static_cast<std::size_t>(raw.indptr[rows])};
        out.last_page_len = {raw.last_page_len, rows};
        out.slot_mapping = {raw.slot_mapping, static_cast<std::size_t>(raw.position_count)};
        const auto copies = static_cast<std::size_t>(raw.copy_count);
        out.copy_sequence = {raw.copy_sequence, copies};
        out.copy_group = {raw.copy_group, copies};
        out.copy_source_page = {raw.copy_source_page, copies};
        out.copy_target_page = {raw.copy_target_page, copies};
        out.copy_position_count = {raw.copy_position_count, copies};
        return out;
    }
    /// rkv_plan_view_group(): the pages of the rows in one group.
    [[nodiscard]] PlanGroupArrays group_arrays(std::uint32_t group, std::uint32_t flags = 0) const {
        auto raw = sized<rkv_plan_group_arrays>();
        check(rkv_plan_view_group(get(), group, flags, &raw));
        const std::size_t rows = raw.row_count;
        PlanGroupArrays out;
        out.indptr = {raw.indptr, rows + 1};
        out.indices = {raw.indices, static_cast<std::size_t>(raw.indptr[rows])};
        out.last_page_len = {raw.last_page_len, rows};
        if (raw.slot_mapping != nullptr)
            out.slot_mapping = {raw.slot_mapping, static_cast<std::size_t>(position_count())};
        if (raw.first_position != nullptr) out.first_position = {raw.first_position, rows};
        if (raw.sink_page_count != nullptr) out.sink_page_count = {raw.sink_page_count, rows};
        return out;
    }
    /// New positions of all rows: rkv_plan_view().
    [[nodiscard]] std::uint64_t position_count() const {
        auto raw = sized<rkv_plan_arrays>();
        check(rkv_plan_view(get(), &raw));
        return raw.position_count;
    }

private:
    struct Destroy {
        void operator()(rkv_plan* plan) const noexcept { rkv_plan_destroy(plan); }
    };

    std::unique_ptr<rkv_plan, Destroy> handle_;
};

}  // namespace rkv

#endif  // RADIXKV_PLAN_HPP
