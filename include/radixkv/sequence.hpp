/**
 * @file sequence.hpp
 * @brief Sequences: begin, append, publish, release.
 */

#ifndef RADIXKV_SEQUENCE_HPP
#define RADIXKV_SEQUENCE_HPP

#include "owned.hpp"
#include "token.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace rkv {

/// Owns a sequence: rkv_sequence_release() at the end. Made by Cache::begin().
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

    /// rkv_sequence_query().
    [[nodiscard]] rkv_sequence_state state() const {
        auto state = sized<rkv_sequence_state>();
        check(rkv_sequence_query(owned_.cache(), get(), &state));
        return state;
    }
    /// rkv_sequence_confirm_copy().
    void confirm_copy() { check(rkv_sequence_confirm_copy(owned_.cache(), get())); }
    /// rkv_sequence_append().
    void append(TokenView tokens) {
        check(rkv_sequence_append(owned_.cache(), get(), tokens.get()));
    }
    /// rkv_sequence_append() of one text token, e.g. the one just decoded.
    void append(std::uint32_t id) { append(TokenView(span<const std::uint32_t>(&id, 1))); }
    /// rkv_sequence_truncate().
    void truncate(std::uint64_t position_count) {
        check(rkv_sequence_truncate(owned_.cache(), get(), position_count));
    }
    /// rkv_sequence_publish().
    rkv_publish_result publish(std::uint64_t computed_position_count) {
        auto result = sized<rkv_publish_result>();
        check(rkv_sequence_publish(owned_.cache(), get(), computed_position_count, &result));
        return result;
    }

private:
    friend class Cache;
    Sequence(std::shared_ptr<detail::CacheHandle> handle, rkv_sequence_id sequence) noexcept
        : owned_(std::move(handle), sequence) {}

    detail::Owned<rkv_sequence_id, rkv_sequence_release> owned_;
};

}  // namespace rkv

#endif  // RADIXKV_SEQUENCE_HPP
