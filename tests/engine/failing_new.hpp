// An operator new that fails when a test says so. It replaces that of the whole program: one of its
// files includes this.
#ifndef RADIXKV_TESTS_ENGINE_FAILING_NEW_HPP
#define RADIXKV_TESTS_ENGINE_FAILING_NEW_HPP

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace test {

constexpr std::size_t never = static_cast<std::size_t>(-1);
/// The allocation that takes it to zero fails, once.
inline std::atomic<std::size_t> allocations_left{never};
/// Allocations of this thread are not counted.
inline thread_local bool is_spared = false;

/// Whether the allocation has failed that was to; from now on none does.
inline bool has_failed() { return allocations_left.exchange(never) == 0; }

}  // namespace test

[[gnu::noinline]] void* operator new(std::size_t size) {
    const std::size_t left = test::allocations_left;
    if (left != test::never && left > 0 && !test::is_spared && --test::allocations_left == 0)
        throw std::bad_alloc();
    if (void* made = std::malloc(size > 0 ? size : 1)) return made;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* made) noexcept { std::free(made); }
[[gnu::noinline]] void operator delete(void* made, std::size_t) noexcept { std::free(made); }

#endif  // RADIXKV_TESTS_ENGINE_FAILING_NEW_HPP
