/**
 * @file library.hpp
 * @brief The loaded library: version, features, log, memory for indexes.
 */

#ifndef RADIXKV_LIBRARY_HPP
#define RADIXKV_LIBRARY_HPP

#include "callback.hpp"
#include "error.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace rkv {

/// rkv_abi_version(): throws RKV_STATUS_UNSUPPORTED when the loaded library is older than this.
inline void require_version() {
    if (rkv_abi_version() >= RKV_ABI_VERSION) return;
    throw Error(RKV_STATUS_UNSUPPORTED,
                std::string("radixkv ") + rkv_version_string() + " is older than its header");
}

/// rkv_version_string().
[[nodiscard]] inline const char* version() noexcept { return rkv_version_string(); }

/// rkv_features().
[[nodiscard]] inline std::uint64_t features() noexcept { return rkv_features(); }

/// rkv_status_name().
[[nodiscard]] inline const char* status_name(rkv_status status) noexcept {
    return rkv_status_name(static_cast<std::int32_t>(status));
}

/// rkv_set_log_callback() with anything callable as f(level, message). `f` is not copied: it must
/// live until another call replaces it. One that throws ends the process, with a message.
template <class F> void set_log_callback(std::uint32_t max_level, F& f) noexcept {
    rkv_set_log_callback(
        max_level,
        [](std::uint32_t level, const char* message, void* user_data) noexcept {
            detail::must_not_throw("the log callback",
                                   [&] { (*reinterpret_cast<F*>(user_data))(level, message); });
        },
        // It may be a function, or const.
        const_cast<void*>(reinterpret_cast<const volatile void*>(std::addressof(f))));
}
template <class F> void set_log_callback(std::uint32_t, const F&&) = delete;

/// rkv_set_log_callback() with no callback: silence.
inline void clear_log_callback() noexcept { rkv_set_log_callback(RKV_LOG_OFF, nullptr, nullptr); }

/// rkv_reserve_index_memory(): memory for the indexes of all caches, once, before they are made.
inline void reserve_index_memory(std::uint64_t byte_count,
                                 std::uint32_t huge_pages = RKV_HUGE_PAGES_TRY) {
    check(rkv_reserve_index_memory(byte_count, huge_pages));
}

/// rkv_read_index_memory_stats().
[[nodiscard]] inline rkv_index_memory_stats index_memory_stats() {
    auto stats = sized<rkv_index_memory_stats>();
    check(rkv_read_index_memory_stats(&stats));
    return stats;
}

}  // namespace rkv

#endif  // RADIXKV_LIBRARY_HPP
