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

/// For one column in floats; of the thread, so that steps don't allocate.
float* column_room(std::size_t depth) {
    thread_local std::vector<float> room;
    if (room.size() < depth * packed_width) room.resize(depth * packed_width);
    return room.data();
}

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
        throw std::runtime_error("this build has no BLAS: CMake found none");
    if (gemm == Gemm::blas) return;
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
        if (gemm_ == Gemm::packed)
            apply_packed(x, rows, y, first, last);
        else
            apply_blas(x, rows, y, first, last);
        if (!bias_.empty()) add_bias(rows, y, first, last);
    });
}

void Linear::apply_packed(const float* x, std::size_t rows, float* y, std::size_t first,
                          std::size_t end) const {
    const std::size_t columns = columns_for(end - first);
    const std::size_t last_width = end - first - (columns - 1) * packed_width;
    const auto multiply = [&](auto gemm, const auto& weight) {
        gemm(x, rows, inputs_, weight.data() + first * inputs_, columns, last_width, y + first,
             outputs_, column_room(inputs_));
    };
    if (halves_.empty())
        multiply(packed_gemms().floats, weight_);
    else
        multiply(packed_gemms().bfloats, halves_);
}

void Linear::apply_blas([[maybe_unused]] const float* x, [[maybe_unused]] std::size_t rows,
                        [[maybe_unused]] float* y, [[maybe_unused]] std::size_t first,
                        [[maybe_unused]] std::size_t end) const {
#if defined(ENGINE_HAVE_CBLAS)
    const auto size = [](std::size_t n) { return static_cast<int>(n); };
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(rows), size(end - first),
                size(inputs_), 1.0F, x, size(inputs_), weight_.data() + first * inputs_,
                size(inputs_), 0.0F, y + first, size(outputs_));
#endif
}

void Linear::add_bias(std::size_t rows, float* y, std::size_t first, std::size_t end) const {
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t n = first; n < end; ++n) y[row * outputs_ + n] += bias_[n];
}

}  // namespace engine
