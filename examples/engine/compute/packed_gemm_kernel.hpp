// The kernel of packed_gemm.hpp, in vectors that the compiler maps to what the processor has. Each
// file that includes this compiles it for another instruction set. Everything here is local to the
// including file: an inline function shared between them would run with instructions that the
// processor may not have.
#ifndef ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP
#define ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace {

// `tile_rows` rows by `tile_columns` columns: as many sums as hide the latency of an addition and,
// with weights and an x, fit in the registers.
#if defined(__AVX512F__)
constexpr std::size_t lanes = 16, tile_rows = 12, tile_columns = 2;
#elif defined(__AVX__)
constexpr std::size_t lanes = 8, tile_rows = 6, tile_columns = 1;
#else
constexpr std::size_t lanes = 4, tile_rows = 6, tile_columns = 1;
#endif
constexpr std::size_t width = 16;
constexpr std::size_t parts = width / lanes;
// Rows of x that stay in the second-level cache while all columns pass by.
constexpr std::size_t block_rows = 120;

/// Columns side by side for so many rows, when no more of them are there. One or two rows wait for
/// memory, which is quickest in one stream; more of them wait for sums, of which there are too few.
constexpr std::size_t columns_beside(std::size_t rows) {
    if (lanes < width || rows <= 2) return 1;
    return rows <= 6 ? 4 : tile_columns;
}

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

/// Where a product goes.
struct Output {
    float* y;
    std::size_t stride;
    /// Outputs of the last column.
    std::size_t last_width;
};

/// `Rows` rows by `Columns` columns, the last of which has `last_width` outputs.
template <std::size_t Rows, std::size_t Columns, class Weight>
void tile(const float* __restrict x, std::size_t depth, const Weight* __restrict column,
          const Output& out, std::size_t last_width) {
    constexpr std::size_t vectors = Columns * parts;
    Vector sums[Rows][vectors] = {};
    for (std::size_t k = 0; k < depth; ++k) {
        Vector weights[vectors];
        for (std::size_t i = 0; i < vectors; ++i)
            weights[i] = load(column + (i / parts * depth + k) * width + i % parts * lanes);
        for (std::size_t row = 0; row < Rows; ++row)
            for (std::size_t i = 0; i < vectors; ++i)
                sums[row][i] += weights[i] * x[row * depth + k];
    }
    const std::size_t written = (Columns - 1) * width + last_width;
    for (std::size_t row = 0; row < Rows; ++row) {
        float* const to = out.y + row * out.stride;
        for (std::size_t i = 0; i < vectors; ++i) {
            const std::size_t first = i * lanes;
            if (first + lanes <= written)
                *reinterpret_cast<Vector*>(to + first) = sums[row][i];
            else
                for (std::size_t n = first; n < written; ++n) to[n] = sums[row][i][n - first];
        }
    }
}

/// Calls f(column, number) for all columns, `Columns` of them or one at a time, and then with the
/// number of outputs of the last one of these.
template <std::size_t Columns, class F>
void for_columns(std::size_t columns, std::size_t last_width, F f) {
    std::size_t column = 0;
    for (; column + Columns <= columns; column += Columns)
        f(column, std::integral_constant<std::size_t, Columns>(),
          column + Columns == columns ? last_width : width);
    for (; column < columns; ++column)
        f(column, std::integral_constant<std::size_t, 1>(),
          column + 1 == columns ? last_width : width);
}

/// `rows` of them, which are Rows at most.
template <std::size_t Rows, std::size_t Columns, class Weight>
void last_rows(const float* x, std::size_t rows, std::size_t depth, const Weight* column,
               const Output& out, std::size_t last_width) {
    if (rows == Rows) return tile<Rows, Columns>(x, depth, column, out, last_width);
    if constexpr (Rows > 1)
        last_rows<Rows - 1, Columns>(x, rows, depth, column, out, last_width);
}

/// What many rows meet is widened once for all of them.
const float* widened(const std::uint16_t* from, std::size_t count, float* room) {
    for (std::size_t i = 0; i < count; i += lanes)
        *reinterpret_cast<Vector*>(room + i) = load(from + i);
    return room;
}

const float* widened(const float* from, std::size_t, float*) { return from; }

template <class Weight>
void many_rows(const float* x, std::size_t rows, std::size_t depth, const Weight* packed,
               std::size_t columns, const Output& out, float* room) {
    for_columns<tile_columns>(columns, out.last_width, [&](std::size_t column, auto number,
                                                           std::size_t last_width) {
        constexpr std::size_t beside = decltype(number)::value;
        const float* const weights =
            widened(packed + column * depth * width, beside * depth * width, room);
        Output to = out;
        to.y += column * width;
        std::size_t row = 0;
        for (; row + tile_rows <= rows; row += tile_rows, to.y += tile_rows * out.stride)
            tile<tile_rows, beside>(x + row * depth, depth, weights, to, last_width);
        if (row < rows)
            last_rows<tile_rows - 1, beside>(x + row * depth, rows - row, depth, weights, to,
                                             last_width);
    });
}

template <std::size_t Rows, class Weight>
void few_rows(const float* x, std::size_t rows, std::size_t depth, const Weight* packed,
              std::size_t columns, const Output& out) {
    if constexpr (Rows > 1) {
        if (rows < Rows) return few_rows<Rows - 1>(x, rows, depth, packed, columns, out);
    }
    for_columns<columns_beside(Rows)>(columns, out.last_width, [&](std::size_t column, auto number,
                                                                   std::size_t last_width) {
        Output to = out;
        to.y += column * width;
        tile<Rows, decltype(number)::value>(x, depth, packed + column * depth * width, to,
                                            last_width);
    });
}

template <class Weight>
void packed_gemm_here(const float* x, std::size_t rows, std::size_t depth, const Weight* packed,
                      std::size_t columns, std::size_t last_width, float* y,
                      std::size_t y_stride, float* room) {
    Output out{y, y_stride, last_width};
    for (std::size_t first = 0; first < rows; first += block_rows) {
        const std::size_t count = rows - first < block_rows ? rows - first : block_rows;
        const float* const from = x + first * depth;
        out.y = y + first * y_stride;
        if (count > tile_rows)
            many_rows(from, count, depth, packed, columns, out, room);
        else
            few_rows<tile_rows>(from, count, depth, packed, columns, out);
    }
}

}  // namespace

#endif  // ENGINE_COMPUTE_PACKED_GEMM_KERNEL_HPP
