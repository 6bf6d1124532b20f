// Matrix product whose results do not depend on the company a row is in.
#ifndef ENGINE_COMPUTE_PACKED_GEMM_HPP
#define ENGINE_COMPUTE_PACKED_GEMM_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

/// Outputs that are computed side by side: a packed weight has columns of this width.
constexpr std::size_t packed_width = 16;

/// Columns that a product has room for, of depth * packed_width floats each.
constexpr std::size_t packed_room = 2;

/// The upper half of a float. Memory is what a step of few rows waits for, and halves of floats are
/// half as much.
using Bfloat = std::uint16_t;

/// Writes y[m][n] = sum over k of x[m][k] * w[n][k] for the columns of a packed weight.
/// `packed` is [column][depth][packed_width]; x is dense, y has rows of y_stride floats. Of the
/// last column only `last_width` outputs are written. `room` is for packed_room columns.
///
/// Each output is one chain of additions of floats in the order of k, whatever `rows` is: a row's
/// result has the same bits alone and in a batch.
template <class Weight>
using PackedGemm = void (*)(const float* x, std::size_t rows, std::size_t depth,
                            const Weight* packed, std::size_t columns, std::size_t last_width,
                            float* y, std::size_t y_stride, float* room);

struct PackedGemms {
    PackedGemm<float> floats;
    PackedGemm<Bfloat> bfloats;
};

/// The kernels for this processor. Always the same ones within a process.
PackedGemms packed_gemms();

/// All kernels that this processor can run, the fastest first.
const std::vector<PackedGemms>& usable_packed_gemms();

}  // namespace engine

#endif  // ENGINE_COMPUTE_PACKED_GEMM_HPP
