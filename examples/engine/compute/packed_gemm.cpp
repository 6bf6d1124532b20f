#include "compute/packed_gemm.hpp"

#include "compute/packed_gemm_kernel.hpp"

namespace engine {

static_assert(packed_width == width, "the kernel computes the columns that weights are packed in");

#if defined(__x86_64__)
PackedGemms packed_gemms_avx2();
#endif

PackedGemms packed_gemms() {
#if defined(__x86_64__)
    static const bool has_avx2 =
        __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    if (has_avx2) return packed_gemms_avx2();
#endif
    return {packed_gemm_here<float>, packed_gemm_here<Bfloat>};
}

}  // namespace engine
