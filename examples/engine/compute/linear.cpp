#include "compute/linear.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#if defined(ENGINE_HAVE_CBLAS)
#include <cblas.h>
#endif

namespace engine {

namespace {

// Multiplications that are worth handing to another thread: some ten microseconds of work.
constexpr std::size_t task_multiplications = std::size_t{1} << 19;

std::size_t columns_for(std::size_t outputs) {
    return (outputs + packed_width - 1) / packed_width;
}

std::uint32_t bits_of(float number) {
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits;
}

/// Whether the lower half of each number is 0, as it is when a checkpoint stores the upper one.
bool are_bfloats(const std::vector<float>& numbers) {
    return std::all_of(numbers.begin(), numbers.end(),
                       [](float number) { return (bits_of(number) & 0xffffU) == 0; });
}

template <class Weight, class Convert>
std::vector<Weight> pack(const std::vector<float>& weight, std::size_t outputs,
                         std::size_t inputs, Convert convert) {
    std::vector<Weight> packed(columns_for(outputs) * packed_width * inputs, Weight{0});
    for (std::size_t n = 0; n < outputs; ++n) {
        Weight* column = packed.data() + n / packed_width * packed_width * inputs;
        for (std::size_t k = 0; k < inputs; ++k)
            column[k * packed_width + n % packed_width] = convert(weight[n * inputs + k]);
    }
    return packed;
}

/// For some columns in floats; of the thread, so that steps don't allocate.
float* room_for(std::size_t columns, std::size_t depth) {
    thread_local std::vector<float> room;
    const std::size_t size = columns * depth * packed_width;
    if (room.size() < size) room.resize(size);
    return room.data();
}

#if defined(ENGINE_HAVE_CBLAS)
// From so many rows on, unpacking the weights for a BLAS is worth it.
constexpr std::size_t blas_rows = 32;
// Columns that are unpacked at once: with a depth of 1536 they take 1.5 MB.
constexpr std::size_t blas_columns = 16;

float widened(float number) { return number; }

float widened(Bfloat upper_half) {
    const std::uint32_t bits = std::uint32_t{upper_half} << 16;
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

/// Columns as a matrix: [depth][columns * packed_width].
template <class Weight>
void unpack(const Weight* packed, std::size_t columns, std::size_t depth, float* matrix) {
    for (std::size_t column = 0; column < columns; ++column)
        for (std::size_t k = 0; k < depth; ++k)
            for (std::size_t i = 0; i < packed_width; ++i)
                matrix[(k * columns + column) * packed_width + i] =
                    widened(packed[(column * depth + k) * packed_width + i]);
}
#endif

}  // namespace

bool has_blas() noexcept {
#if defined(ENGINE_HAVE_CBLAS)
    return true;
#else
    return false;
#endif
}

void keep_blas_on_one_thread() noexcept {
#if defined(ENGINE_HAVE_OPENBLAS_THREADS)
    openblas_set_num_threads(1);
#endif
}

Linear::Linear(std::vector<float> weight, std::size_t outputs, std::size_t inputs,
               std::vector<float> bias, Gemm gemm)
    : weight_(std::move(weight)),
      bias_(std::move(bias)),
      outputs_(outputs),
      inputs_(inputs),
      gemm_(gemm) {
    if (weight_.size() != outputs * inputs || (!bias_.empty() && bias_.size() != outputs))
        throw std::logic_error("a linear layer's weights don't have its size");
    if (gemm == Gemm::blas && !has_blas())
        throw std::runtime_error("--gemm blas: this build has no BLAS, CMake found none");
    if (are_bfloats(weight_)) {
        halves_ = pack<Bfloat>(weight_, outputs, inputs, [](float number) {
            return static_cast<Bfloat>(bits_of(number) >> 16);
        });
        weight_ = std::vector<float>();  // an empty list would keep the memory
    } else {
        weight_ = pack<float>(weight_, outputs, inputs, [](float number) { return number; });
    }
}

void Linear::apply(const float* x, std::size_t rows, float* y, ThreadPool& pool) const {
    if (rows == 0) return;
    const std::size_t work = rows * inputs_ * packed_width;
    const std::size_t grain = (task_multiplications + work - 1) / work;
    pool.ranges(columns_for(outputs_), grain, [&](std::size_t begin, std::size_t end) {
        const std::size_t first = begin * packed_width;
        const std::size_t last = std::min(end * packed_width, outputs_);
        if (gemm_ == Gemm::packed || !apply_blas(x, rows, y, first, last))
            apply_packed(x, rows, y, first, last);
        if (!bias_.empty()) add_bias(rows, y, first, last);
    });
}

void Linear::apply_packed(const float* x, std::size_t rows, float* y, std::size_t first,
                          std::size_t end) const {
    const std::size_t columns = columns_for(end - first);
    const std::size_t last_width = end - first - (columns - 1) * packed_width;
    const auto multiply = [&](auto gemm, const auto& weight) {
        gemm(x, rows, inputs_, weight.data() + first * inputs_, columns, last_width, y + first,
             outputs_, room_for(packed_room, inputs_));
    };
    if (halves_.empty())
        multiply(packed_gemms().floats, weight_);
    else
        multiply(packed_gemms().bfloats, halves_);
}

#if defined(ENGINE_HAVE_CBLAS)
bool Linear::apply_blas(const float* x, std::size_t rows, float* y, std::size_t first,
                        std::size_t end) const {
    if (rows < blas_rows) return false;
    const auto size = [](std::size_t n) { return static_cast<int>(n); };
    float* const matrix = room_for(blas_columns, inputs_);
    for (std::size_t n = first; n < end; n += blas_columns * packed_width) {
        const std::size_t count = std::min(blas_columns * packed_width, end - n);
        const std::size_t columns = columns_for(count);
        if (halves_.empty())
            unpack(weight_.data() + n * inputs_, columns, inputs_, matrix);
        else
            unpack(halves_.data() + n * inputs_, columns, inputs_, matrix);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size(rows), size(count),
                    size(inputs_), 1.0F, x, size(inputs_), matrix, size(columns * packed_width),
                    0.0F, y + n, size(outputs_));
    }
    return true;
}
#else
bool Linear::apply_blas(const float*, std::size_t, float*, std::size_t, std::size_t) const {
    return false;
}
#endif

void Linear::add_bias(std::size_t rows, float* y, std::size_t first, std::size_t end) const {
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t n = first; n < end; ++n) y[row * outputs_ + n] += bias_[n];
}

}  // namespace engine
