// Compiled for AVX2 and FMA; its kernels run only where packed_gemm.cpp has seen both.
#include "compute/packed_gemm.hpp"
#include "compute/packed_gemm_kernel.hpp"

namespace engine {

PackedGemms packed_gemms_avx2();

PackedGemms packed_gemms_avx2() { return {packed_gemm_here<float>, packed_gemm_here<Bfloat>}; }

}  // namespace engine
