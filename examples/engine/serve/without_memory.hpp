// Calls that the engine can do without.
#ifndef ENGINE_SERVE_WITHOUT_MEMORY_HPP
#define ENGINE_SERVE_WITHOUT_MEMORY_HPP

#include <radixkv.hpp>

#include <new>
#include <optional>

namespace engine {

/// What f() returns; nothing where there was no memory for it. A call of the library that is
/// refused has changed nothing, so nobody's request need end for it.
template <class F> auto unless_out_of_memory(F f) -> std::optional<decltype(f())> {
    try {
        return f();
    } catch (const rkv::Error& error) {
        if (error.status() != RKV_STATUS_OUT_OF_MEMORY) throw;
    } catch (const std::bad_alloc&) {
    }
    return std::nullopt;
}

}  // namespace engine

#endif  // ENGINE_SERVE_WITHOUT_MEMORY_HPP
