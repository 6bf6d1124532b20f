/**
 * @file error.hpp
 * @brief Statuses as exceptions.
 */

#ifndef RADIXKV_ERROR_HPP
#define RADIXKV_ERROR_HPP

#include "../radixkv.h"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace rkv {

/// A failed call: its status, and in what() the library's message.
class Error : public std::runtime_error {
public:
    Error(rkv_status status, const std::string& message)
        : std::runtime_error(message), status_(status) {}

    [[nodiscard]] rkv_status status() const noexcept { return status_; }

private:
    rkv_status status_;
};

/// RKV_STATUS_OUT_OF_PAGES, with the numbers of rkv_last_shortage().
class OutOfPages : public Error {
public:
    OutOfPages(const std::string& message, const rkv_shortage& shortage)
        : Error(RKV_STATUS_OUT_OF_PAGES, message), shortage_(shortage) {}

    [[nodiscard]] const rkv_shortage& shortage() const noexcept { return shortage_; }

private:
    rkv_shortage shortage_;
};

/// A C struct that starts with struct_size, everything else zero.
template <class T> [[nodiscard]] T sized() noexcept {
    T value{};
    value.struct_size = static_cast<std::uint32_t>(sizeof(T));
    return value;
}

/// rkv_last_error_message(): the last error message of this thread.
[[nodiscard]] inline std::string last_error_message() {
    std::string text(rkv_last_error_message(nullptr, 0), '\0');
    text.resize(rkv_last_error_message(text.data(), text.size()) - 1);
    return text;
}

/// Throws what a status other than RKV_STATUS_OK means. Call it on the thread that got the status.
inline void check(rkv_status status) {
    if (status == RKV_STATUS_OK) return;
    rkv_shortage shortage = sized<rkv_shortage>();
    if (status == RKV_STATUS_OUT_OF_PAGES && rkv_last_shortage(&shortage) == RKV_STATUS_OK)
        throw OutOfPages(last_error_message(), shortage);
    throw Error(status, last_error_message());
}

}  // namespace rkv

#endif  // RADIXKV_ERROR_HPP
