#include "compute/packed_gemm.hpp"

#include "compute/packed_gemm_kernel.hpp"

namespace engine {

static_assert(packed_width == width, "the kernel computes the columns that weights are packed in");

#if defined(__x86_64__)
PackedGemms packed_gemms_avx2();
PackedGemms packed_gemms_avx512();
#endif

PackedGemms packed_gemms() { return usable_packed_gemms().front(); }

const std::vector<PackedGemms>& usable_packed_gemms() {
    static const std::vector<PackedGemms> usable = [] {
        std::vector<PackedGemms> found;
#if defined(__x86_64__)
        const bool has_fma = __builtin_cpu_supports("fma") != 0;
        if (has_fma && __builtin_cpu_supports("avx512f") != 0)
            found.push_back(packed_gemms_avx512());
        if (has_fma && __builtin_cpu_supports("avx2") != 0) found.push_back(packed_gemms_avx2());
#endif
        found.push_back({packed_gemm_here<float>, packed_gemm_here<Bfloat>});
        return found;
    }();
    return usable;
}

}  // namespace engine
