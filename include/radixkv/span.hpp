/**
 * @file span.hpp
 * @brief Buffers: a span of its own, and how a vector is filled from a C call.
 */

#ifndef RADIXKV_SPAN_HPP
#define RADIXKV_SPAN_HPP

#include "error.hpp"

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace rkv {

/// Elements that somebody else owns: a pointer and a size.
template <class T> class span {
public:
    constexpr span() noexcept = default;
    constexpr span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}
    /// From a vector, an array, a std::span: whatever std::data() and std::size() take.
    template <class C, class E = std::remove_pointer_t<decltype(std::data(std::declval<C&>()))>,
              class = std::enable_if_t<std::is_convertible_v<E (*)[], T (*)[]>>>
    constexpr span(C&& c) noexcept : span(std::data(c), std::size(c)) {}
    /// From { 1, 2, 3 } in the argument list of a call; it lives as long as the call.
    constexpr span(std::initializer_list<std::remove_const_t<T>> list) noexcept
        : span(list.begin(), list.size()) {}

    [[nodiscard]] constexpr T* data() const noexcept { return data_; }
    [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
    [[nodiscard]] constexpr T* begin() const noexcept { return data_; }
    [[nodiscard]] constexpr T* end() const noexcept { return data_ + size_; }
    [[nodiscard]] constexpr T& operator[](std::size_t i) const noexcept { return data_[i]; }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// Implementation: not for use outside of this header.
namespace detail {

/// A vector from call(buffer, capacity, &count). Asks for the count first; asks again when another
/// thread made it grow in between.
template <class T, class Call> std::vector<T> read(Call call) {
    std::vector<T> out;
    for (;;) {
        std::size_t count = 0;
        const rkv_status status = call(out.data(), out.size(), &count);
        if (status != RKV_STATUS_BUFFER_TOO_SMALL) check(status);
        const bool complete = status == RKV_STATUS_OK && count <= out.size();
        out.resize(count);
        if (complete) return out;
    }
}

/// The buffer to pass for a span that must not read as "not wanted" when it is empty.
template <class T> T* present(span<T> buffer, T& stand_in) noexcept {
    return buffer.data() != nullptr ? buffer.data() : &stand_in;
}

}  // namespace detail

}  // namespace rkv

#endif  // RADIXKV_SPAN_HPP
