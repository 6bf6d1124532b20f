// The kernel of packed_gemm.hpp, in vectors that the compiler maps to what the processor has. Each
// file that includes this compiles it for another instruction set. Everything here is local to the
// including file: an inline function shared between them would run with instructions that the
// processor may not have.
#ifndef ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP
#define ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP

#include <cstddef>
#include <cstdint>

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
typedef std::uint16_t Halves
    __attribute__((vector_size(lanes * sizeof(std::uint16_t)), aligned(2), may_alias));
typedef std::uint32_t Words __attribute__((vector_size(lanes * sizeof(std::uint32_t))));

Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }

Vector load(const std::uint16_t* upper_halves) {
    const Halves halves = *reinterpret_cast<const Halves*>(upper_halves);
    return reinterpret_cast<Vector>(__builtin_convertvector(halves, Words) << 16);
}

/// `Rows` rows by one column. Twelve accumulators of AVX hide the latency of the additions, and
/// with two weights and one x they fit in its sixteen registers.
template <std::size_t Rows, class Weight>
void tile(const float* __restrict x, std::size_t depth, const Weight* __restrict column,
          float* __restrict y, std::size_t y_stride, std::size_t written) {
    Vector sums[Rows][parts] = {};
    for (std::size_t k = 0; k < depth; ++k) {
        Vector weights[parts];
        for (std::size_t part = 0; part < parts; ++part)
            weights[part] = load(column + k * width + part * lanes);
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

template <class Weight>
void rows_by_column(const float* x, std::size_t rows, std::size_t depth, const Weight* column,
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

/// What many rows meet is widened once for all of them.
const float* widened(const std::uint16_t* column, std::size_t depth, float* room) {
    for (std::size_t i = 0; i < depth * width; i += lanes)
        *reinterpret_cast<Vector*>(room + i) = load(column + i);
    return room;
}

const float* widened(const float* column, std::size_t, float*) { return column; }

template <class Weight>
void packed_gemm_here(const float* x, std::size_t rows, std::size_t depth, const Weight* packed,
                      std::size_t columns, std::size_t last_width, float* y,
                      std::size_t y_stride, float* room) {
    for (std::size_t first = 0; first < rows; first += block_rows) {
        const std::size_t count = rows - first < block_rows ? rows - first : block_rows;
        for (std::size_t column = 0; column < columns; ++column) {
            const float* from = x + first * depth;
            const Weight* weights = packed + column * depth * width;
            float* to = y + first * y_stride + column * width;
            const std::size_t written = column + 1 == columns ? last_width : width;
            if (count > tile_rows)
                rows_by_column(from, count, depth, widened(weights, depth, room), to, y_stride,
                               written);
            else
                rows_by_column(from, count, depth, weights, to, y_stride, written);
        }
    }
}

}  // namespace

#endif  // ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP
