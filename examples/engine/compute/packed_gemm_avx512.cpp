// Compiled for AVX-512 and FMA; its kernels run only where packed_gemm.cpp has seen both. The bits
// are those of AVX2: the same chains of additions, more of them at once.
#include "compute/packed_gemm.hpp"
#include "compute/packed_gemm_kernel.hpp"

namespace engine {

static_assert(tile_columns <= packed_room, "as many columns are widened at once");

PackedGemms packed_gemms_avx512();

PackedGemms packed_gemms_avx512() { return {packed_gemm_here<float>, packed_gemm_here<Bfloat>}; }

}  // namespace engine
