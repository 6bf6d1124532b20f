// Compiled for AVX2 and FMA; called only where packed_gemm.cpp has seen both.
#include "compute/packed_gemm_kernel.hpp"

namespace engine {

void packed_gemm_avx2(const float* x, std::size_t rows, std::size_t depth, const float* packed,
                      std::size_t columns, std::size_t last_width, float* y,
                      std::size_t y_stride) {
    packed_gemm_here(x, rows, depth, packed, columns, last_width, y, y_stride);
}

}  // namespace engine
