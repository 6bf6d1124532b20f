// A layer's matrix: y = x W^T + b.
#ifndef ENGINE_COMPUTE_LINEAR_HPP
#define ENGINE_COMPUTE_LINEAR_HPP

#include "compute/packed_gemm.hpp"
#include "compute/thread_pool.hpp"

#include <cstddef>
#include <vector>

namespace engine {

/// Who multiplies.
enum class Gemm {
    /// packed_gemm.hpp: a row's result has the same bits whatever else is in the batch. Without it,
    /// equal prompts may part ways at a near tie, because a BLAS adds in another order for another
    /// batch size.
    packed,
    /// The BLAS that CMake found, for products of many rows; of few rows it is no faster, and the
    /// other one reads weights of half the size.
    blas,
};

/// Whether this build has a BLAS.
[[nodiscard]] bool has_blas() noexcept;

/// Tells the BLAS to compute on the calling thread, where it can be told. The pool splits the work.
void keep_blas_on_one_thread() noexcept;

class Linear {
public:
    Linear() = default;
    /// `weight` is [outputs][inputs], as checkpoints store it; `bias` has `outputs` numbers or
    /// none.
    Linear(std::vector<float> weight, std::size_t outputs, std::size_t inputs,
           std::vector<float> bias, Gemm gemm);

    [[nodiscard]] std::size_t outputs() const noexcept { return outputs_; }
    [[nodiscard]] std::size_t inputs() const noexcept { return inputs_; }

    /// x is [rows][inputs], y is [rows][outputs].
    void apply(const float* x, std::size_t rows, float* y, ThreadPool& pool) const;

private:
    /// Packed.
    std::vector<float> weight_;
    /// Instead of weight_, where that loses nothing.
    std::vector<Bfloat> halves_;
    std::vector<float> bias_;
    std::size_t outputs_ = 0;
    std::size_t inputs_ = 0;
    Gemm gemm_ = Gemm::packed;

    void apply_packed(const float* x, std::size_t rows, float* y, std::size_t first,
                      std::size_t end) const;
    /// False when these rows are too few.
    bool apply_blas(const float* x, std::size_t rows, float* y, std::size_t first,
                    std::size_t end) const;
    void add_bias(std::size_t rows, float* y, std::size_t first, std::size_t end) const;
};

}  // namespace engine

#endif  // ENGINE_COMPUTE_LINEAR_HPP
