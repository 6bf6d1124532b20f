// Matrix product whose results do not depend on the company a row is in.
#ifndef ENGINE_COMPUTE_PACKED_GEMM_HPP
#define ENGINE_COMPUTE_PACKED_GEMM_HPP

#include <cstddef>

namespace engine {

/// Outputs that are computed side by side: a packed weight has columns of this width.
constexpr std::size_t packed_width = 16;

/// Writes y[m][n] = sum over k of x[m][k] * w[n][k] for the columns of a packed weight.
/// `packed` is [column][depth][packed_width]; x is dense, y has rows of y_stride floats. Of the
/// last column only `last_width` outputs are written.
///
/// Each output is one chain of additions in the order of k, whatever `rows` is: a row's result has
/// the same bits alone and in a batch.
using PackedGemm = void (*)(const float* x, std::size_t rows, std::size_t depth,
                            const float* packed, std::size_t columns, std::size_t last_width,
                            float* y, std::size_t y_stride);

/// The kernel for this processor. Always the same one within a process.
PackedGemm packed_gemm();

}  // namespace engine

#endif  // ENGINE_COMPUTE_PACKED_GEMM_HPP
