#include "compute/linear.hpp"

#include "compute/packed_gemm.hpp"

#include <algorithm>
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

std::vector<float> pack(const std::vector<float>& weight, std::size_t outputs,
                        std::size_t inputs) {
    std::vector<float> packed(columns_for(outputs) * packed_width * inputs, 0.0F);
    for (std::size_t n = 0; n < outputs; ++n) {
        float* column = packed.data() + n / packed_width * packed_width * inputs;
        for (std::size_t k = 0; k < inputs; ++k)
            column[k * packed_width + n % packed_width] = weight[n * inputs + k];
    }
    return packed;
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
    if (gemm == Gemm::packed) weight_ = pack(weight_, outputs, inputs);
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
    packed_gemm()(x, rows, inputs_, weight_.data() + first * inputs_, columns, last_width,
                  y + first, outputs_);
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
