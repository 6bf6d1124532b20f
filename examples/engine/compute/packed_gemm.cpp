#include "compute/packed_gemm.hpp"

#include "compute/packed_gemm_kernel.hpp"

namespace engine {

static_assert(packed_width == width, "the kernel computes the columns that weights are packed in");

#if defined(__x86_64__)
void packed_gemm_avx2(const float* x, std::size_t rows, std::size_t depth, const float* packed,
                      std::size_t columns, std::size_t last_width, float* y,
                      std::size_t y_stride);
#endif

PackedGemm packed_gemm() {
#if defined(__x86_64__)
    static const bool has_avx2 =
        __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    if (has_avx2) return packed_gemm_avx2;
#endif
    return packed_gemm_here;
}

}  // namespace engine
