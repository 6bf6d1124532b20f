// The memory of recurrent states: a page has the state of one sequence, or of one prefix, in all
// layers of the group. The library hands pages out and says what to copy where; what is in them is
// the engine's.
#ifndef ENGINE_SERVE_STATE_MEMORY_HPP
#define ENGINE_SERVE_STATE_MEMORY_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace engine {

class StateMemory {
public:
    /// Pages 0 to page_count - 1 of layer_count states. Memory that nobody has written to yet
    /// costs nothing. Throws std::bad_alloc.
    StateMemory(std::size_t page_count, std::size_t layer_count, std::size_t numbers_per_layer);

    /// The numbers of one layer.
    [[nodiscard]] float* at(std::uint32_t page, std::size_t layer) const noexcept {
        return numbers_.get() + (page * layer_count_ + layer) * numbers_per_layer_;
    }
    void copy(std::uint32_t source, std::uint32_t target) noexcept;
    /// The state before the first token.
    void clear(std::uint32_t page) noexcept;

private:
    struct Free {
        void operator()(float* numbers) const noexcept { std::free(numbers); }
    };

    std::unique_ptr<float, Free> numbers_;
    std::size_t layer_count_, numbers_per_layer_;
};

}  // namespace engine

#endif  // ENGINE_SERVE_STATE_MEMORY_HPP
