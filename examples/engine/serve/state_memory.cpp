#include "serve/state_memory.hpp"

#include <algorithm>
#include <new>

namespace engine {

StateMemory::StateMemory(std::size_t page_count, std::size_t layer_count,
                         std::size_t numbers_per_layer)
    : layer_count_(layer_count), numbers_per_layer_(numbers_per_layer) {
    std::size_t per_page = 0;
    if (__builtin_mul_overflow(layer_count, numbers_per_layer * sizeof(float), &per_page))
        throw std::bad_alloc();
    numbers_.reset(static_cast<float*>(std::calloc(page_count, per_page)));
    if (!numbers_) throw std::bad_alloc();
}

void StateMemory::copy(std::uint32_t source, std::uint32_t target) noexcept {
    std::copy_n(at(source, 0), layer_count_ * numbers_per_layer_, at(target, 0));
}

void StateMemory::clear(std::uint32_t page) noexcept {
    std::fill_n(at(page, 0), layer_count_ * numbers_per_layer_, 0.0F);
}

}  // namespace engine
