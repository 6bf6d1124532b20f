// Matrix products by cuBLAS, which is found at run time.
#ifndef ENGINE_CUDA_CUBLAS_HPP
#define ENGINE_CUDA_CUBLAS_HPP

#include "cuda/arguments.hpp"
#include "cuda/driver.hpp"

#include <cstddef>

namespace engine::cuda {

class Cublas {
public:
    /// On a stream that outlives it; the context is current. Throws Unavailable.
    explicit Cublas(const Stream& stream);
    ~Cublas();
    Cublas(const Cublas&) = delete;
    Cublas& operator=(const Cublas&) = delete;

    /// y = x W^T: x is [rows][inputs], weight [outputs][inputs], y [rows][outputs]. Sums are f32;
    /// how they are ordered depends on the shape, so a row's last bits depend on its company.
    void multiply(const Bf16* x, std::size_t rows, const Bf16* weight, std::size_t outputs,
                  std::size_t inputs, Bf16* y) const;
    void multiply(const Bf16* x, std::size_t rows, const Bf16* weight, std::size_t outputs,
                  std::size_t inputs, float* y) const;

private:
    int (*create_)(void** handle) = nullptr;
    int (*destroy_)(void* handle) = nullptr;
    int (*set_stream_)(void* handle, void* stream) = nullptr;
    int (*gemm_)(void* handle, int left_operation, int right_operation, int m, int n, int k,
                 const void* alpha, const void* left, int left_type, int left_stride,
                 const void* right, int right_type, int right_stride, const void* beta, void* out,
                 int out_type, int out_stride, int compute_type, int algorithm) = nullptr;
    void* handle_ = nullptr;

    void gemm(const Bf16* x, std::size_t rows, const Bf16* weight, std::size_t outputs,
              std::size_t inputs, void* y, int out_type) const;
};

}  // namespace engine::cuda

#endif  // ENGINE_CUDA_CUBLAS_HPP
