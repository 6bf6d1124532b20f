// The kernel of packed_gemm.hpp, in vectors that the compiler maps to what the processor has. Each
// file that includes this compiles it for another instruction set. Everything here is local to the
// including file: an inline function shared between them would run with instructions that the
// processor may not have.
#ifndef ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP
#define ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP

#include <cstddef>

namespace {

#if defined(__AVX__)
constexpr std::size_t lanes = 8;
#else
constexpr std::size_t lanes = 4;
#endif
constexpr std::size_t width = 16;
constexpr std::size_t parts = width / lanes;

// The alignment of a float: rows of x and y may begin anywhere.
typedef float Vector
    __attribute__((vector_size(lanes * sizeof(float)), aligned(sizeof(float)), may_alias));

/// `Rows` rows by one column. Twelve accumulators of AVX hide the latency of the additions, and
/// with two weights and one x they fit in its sixteen registers.
template <std::size_t Rows>
void tile(const float* __restrict x, std::size_t depth, const float* __restrict column,
          float* __restrict y, std::size_t y_stride, std::size_t written) {
    Vector sums[Rows][parts] = {};
    for (std::size_t k = 0; k < depth; ++k) {
        const Vector* weights = reinterpret_cast<const Vector*>(column + k * width);
        for (std::size_t row = 0; row < Rows; ++row)
            for (std::size_t part = 0; part < parts; ++part)
                sums[row][part] += weights[part] * x[row * depth + k];
    }
    for (std::size_t row = 0; row < Rows; ++row) {
        float* to = y + row * y_stride;
        if (written == width)
            for (std::size_t part = 0; part < parts; ++part)
                reinterpret_cast<Vector*>(to)[part] = sums[row][part];
        else
            for (std::size_t i = 0; i < written; ++i) to[i] = sums[row][i / lanes][i % lanes];
    }
}

constexpr std::size_t tile_rows = 6;
// Rows of x that stay in the second-level cache while all columns pass by.
constexpr std::size_t block_rows = 20 * tile_rows;

void rows_by_column(const float* x, std::size_t rows, std::size_t depth, const float* column,
                    float* y, std::size_t y_stride, std::size_t written) {
    for (; rows >= tile_rows; rows -= tile_rows) {
        tile<tile_rows>(x, depth, column, y, y_stride, written);
        x += tile_rows * depth;
        y += tile_rows * y_stride;
    }
    switch (rows) {
        case 5: return tile<5>(x, depth, column, y, y_stride, written);
        case 4: return tile<4>(x, depth, column, y, y_stride, written);
        case 3: return tile<3>(x, depth, column, y, y_stride, written);
        case 2: return tile<2>(x, depth, column, y, y_stride, written);
        case 1: return tile<1>(x, depth, column, y, y_stride, written);
        default: return;
    }
}

void packed_gemm_here(const float* x, std::size_t rows, std::size_t depth, const float* packed,
                      std::size_t columns, std::size_t last_width, float* y,
                      std::size_t y_stride) {
    for (std::size_t first = 0; first < rows; first += block_rows) {
        const std::size_t count = rows - first < block_rows ? rows - first : block_rows;
        for (std::size_t column = 0; column < columns; ++column)
            rows_by_column(x + first * depth, count, depth, packed + column * depth * width,
                           y + first * y_stride + column * width, y_stride,
                           column + 1 == columns ? last_width : width);
    }
}

}  // namespace

#endif  // ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP
