/**
 * @file sequence.hpp
 * @brief Sequences: begin, append, publish, fork, release, retain.
 */

#ifndef RADIXKV_SEQUENCE_HPP
#define RADIXKV_SEQUENCE_HPP

#include "owned.hpp"
#include "token.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace rkv {

/// Owns a sequence: rkv_sequence_release() at the end. Made by Cache::begin(),
/// Cache::continue_from() and forks.
class Sequence {
public:
    /// Owns nothing.
    Sequence() noexcept = default;

    [[nodiscard]] rkv_sequence_id get() const noexcept { return owned_.id(); }
    [[nodiscard]] explicit operator bool() const noexcept { return get() != 0; }
    /// Gives the sequence up, without rkv_sequence_release().
    [[nodiscard]] rkv_sequence_id release() noexcept { return owned_.release(); }
    /// rkv_sequence_release() now. An empty one does nothing.
    void reset() { owned_.reset(); }

    /// rkv_sequence_read_info().
    [[nodiscard]] rkv_sequence_info info() const {
        auto state = sized<rkv_sequence_info>();
        check(rkv_sequence_read_info(cache(), get(), &state));
        return state;
    }
    /// rkv_sequence_read_copies().
    [[nodiscard]] std::vector<rkv_page_copy> copies() const {
        return detail::read<rkv_page_copy>(
            [&](rkv_page_copy* copies, std::size_t capacity, std::size_t* count) {
                return rkv_sequence_read_copies(cache(), get(), copies,
                                                sizeof(rkv_page_copy), capacity, count);
            });
    }
    /// rkv_sequence_confirm_copies().
    void confirm_copies() { check(rkv_sequence_confirm_copies(cache(), get())); }
    /// copies(), each given to `copy`, then confirm_copies(), if there were any. Returns how many.
    /// When `copy` throws, they stay open.
    template <class Copy>
    std::size_t carry_out_copies(Copy&& copy) {
        const std::vector<rkv_page_copy> open = copies();
        for (const rkv_page_copy& one : open) copy(one);
        if (!open.empty()) confirm_copies();
        return open.size();
    }
    /// rkv_sequence_allocate().
    void allocate(std::uint64_t position_count) {
        check(rkv_sequence_allocate(cache(), get(), position_count));
    }
    /// rkv_sequence_append().
    void append(TokenView tokens) {
        check(rkv_sequence_append(cache(), get(), tokens.get()));
    }
    /// The same of a list in braces, which may be empty.
    void append(std::initializer_list<std::uint32_t> ids) { append(TokenView(ids)); }
    /// rkv_sequence_append() of one text token, e.g. the one just decoded.
    void append(std::uint32_t id) { append(TokenView(span<const std::uint32_t>(&id, 1))); }
    /// rkv_sequence_truncate().
    void truncate(std::uint64_t position_count) {
        check(rkv_sequence_truncate(cache(), get(), position_count));
    }
    /// rkv_sequence_fetch(); UINT64_MAX is no deadline, flags 0 or RKV_FETCH_LOOK_ONLY.
    rkv_sequence_fetch_result fetch(std::uint64_t deadline_ms = UINT64_MAX,
                                    std::uint32_t flags = 0) {
        auto fetch = sized<rkv_sequence_fetch_result>();
        check(rkv_sequence_fetch(cache(), get(), deadline_ms, flags, &fetch));
        return fetch;
    }
    /// rkv_sequence_agree(); returns the positions that it reuses.
    std::uint64_t agree(std::uint64_t position_count) {
        std::uint64_t positions = 0;
        check(rkv_sequence_agree(cache(), get(), position_count, &positions));
        return positions;
    }
    /// rkv_sequence_publish().
    rkv_sequence_publish_result publish(std::uint64_t computed_position_count) {
        auto result = sized<rkv_sequence_publish_result>();
        check(rkv_sequence_publish(cache(), get(), computed_position_count, &result));
        return result;
    }
    /// rkv_sequence_read_published(): the groups beside the first.
    [[nodiscard]] std::vector<rkv_published_group> published() const {
        return detail::read<rkv_published_group>(
            [&](rkv_published_group* groups, std::size_t capacity, std::size_t* count) {
                return rkv_sequence_read_published(cache(), get(), groups,
                                                   sizeof(rkv_published_group), capacity, count);
            });
    }
    /// rkv_sequence_read_group_row(): the whole row of a group.
    [[nodiscard]] std::vector<std::uint32_t> group_row(std::uint32_t group) const {
        return detail::read<std::uint32_t>(
            [&](std::uint32_t* pages, std::size_t capacity, std::size_t* count) {
                return rkv_sequence_read_group_row(cache(), get(), group, 0, pages,
                                                   capacity, count);
            });
    }
    /// rkv_sequence_checkpoint(): how many copies() there are to carry out and confirm; none when
    /// the states are saved already.
    std::size_t checkpoint() {
        std::size_t copy_count = 0;
        check(rkv_sequence_checkpoint(cache(), get(), &copy_count));
        return copy_count;
    }
    /// rkv_sequence_donate(): the sequence ends, and the object is empty. How many checkpoints it
    /// left.
    std::size_t donate() {
        std::size_t checkpoint_count = 0;
        check(rkv_sequence_donate(cache(), get(), &checkpoint_count));
        (void)owned_.release();
        return checkpoint_count;
    }
    /// rkv_sequence_slide().
    void slide(std::uint64_t computed_position_count) {
        check(rkv_sequence_slide(cache(), get(), computed_position_count));
    }
    /// rkv_sequence_fork(). copies() of each child tells what to copy.
    [[nodiscard]] std::vector<Sequence> fork(std::size_t child_count,
                                             std::uint64_t reserve_position_count = 0) {
        (void)cache();
        return fork_of(owned_.handle(), get(), child_count, reserve_position_count);
    }
    /// rkv_sequence_retain(): the sequence ends, and the object is empty. False when it was
    /// released instead: it is too large, its namespace was cleared since it began, or pages that a
    /// fetch brought were not published for want of memory: publish() before tries that again. Its
    /// id, from get() before, is what children go on from.
    bool retain() {
        bool retained = false;
        check(rkv_sequence_retain(cache(), get(), &retained));
        (void)owned_.release();
        return retained;
    }

private:
    friend class Cache;
    /// Its cache. The library would name that, which an empty object has none of.
    [[nodiscard]] rkv_cache* cache() const {
        if (owned_.cache() == nullptr)
            throw Error(RKV_STATUS_INVALID_ARGUMENT, "sequence is empty");
        return owned_.cache();
    }
    Sequence(std::shared_ptr<detail::CacheHandle> handle, rkv_sequence_id sequence) noexcept
        : owned_(std::move(handle), sequence) {}
    static std::vector<Sequence> fork_of(const std::shared_ptr<detail::CacheHandle>& handle,
                                         rkv_sequence_id parent, std::size_t child_count,
                                         std::uint64_t reserve_position_count) {
        auto args = sized<rkv_sequence_fork_args>();
        args.parent = parent;
        args.child_count = child_count;
        args.reserve_position_count = reserve_position_count;
        std::vector<rkv_sequence_fork_child> children(child_count);
        std::vector<Sequence> sequences;
        sequences.reserve(child_count);
        check(rkv_sequence_fork(handle ? handle->cache : nullptr, &args, children.data(),
                                sizeof(rkv_sequence_fork_child)));
        for (const rkv_sequence_fork_child& child : children)
            sequences.push_back(Sequence(handle, child.sequence));
        return sequences;
    }

    detail::Owned<rkv_sequence_id, rkv_sequence_release> owned_;
};

}  // namespace rkv

#endif  // RADIXKV_SEQUENCE_HPP
