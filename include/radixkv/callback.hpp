/**
 * @file callback.hpp
 * @brief What callbacks of the engine may not do.
 */

#ifndef RADIXKV_CALLBACK_HPP
#define RADIXKV_CALLBACK_HPP

#include "error.hpp"

#include <cstdio>
#include <cstdlib>
#include <exception>

namespace rkv::detail {

/// Runs a callback that the library called. An exception cannot pass through the library: one that
/// leaves the callback ends the process, and standard error says what was thrown where.
template <class F> void must_not_throw(const char* name, F&& callback) noexcept {
    try {
        callback();
        return;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "radixkv: %s threw: %s\n", name, error.what());
    } catch (...) {
        std::fprintf(stderr, "radixkv: %s threw what is no std::exception\n", name);
    }
    std::abort();
}

}  // namespace rkv::detail

#endif  // RADIXKV_CALLBACK_HPP
