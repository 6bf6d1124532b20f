#include "cuda/cublas.hpp"

#include <string>

namespace engine::cuda {

namespace {

// As cublas_v2.h and library_types.h have them.
constexpr int operation_none = 0, operation_transpose = 1;
constexpr int type_f32 = 0, type_bf16 = 14;
constexpr int compute_f32 = 68, default_algorithm = -1;

void check(int status, const char* what) {
    if (status == 0) return;
    throw Error(std::string(what) + ": status " + std::to_string(status));
}

}  // namespace

Cublas::Cublas(const Stream& stream) {
    const SharedLibrary library({"libcublas.so.13", "libcublas.so.12", "libcublas.so"}, "cuBLAS");
    library.find("cublasCreate_v2", create_);
    library.find("cublasDestroy_v2", destroy_);
    library.find("cublasSetStream_v2", set_stream_);
    library.find("cublasGemmEx", gemm_);
    check(create_(&handle_), "cublasCreate");
    try {
        check(set_stream_(handle_, stream.handle()), "cublasSetStream");
    } catch (...) {
        (void)destroy_(handle_);
        throw;
    }
}

Cublas::~Cublas() { (void)destroy_(handle_); }

void Cublas::multiply(const Bf16* x, std::size_t rows, const Bf16* weight, std::size_t outputs,
                      std::size_t inputs, Bf16* y) const {
    gemm(x, rows, weight, outputs, inputs, y, type_bf16);
}

void Cublas::multiply(const Bf16* x, std::size_t rows, const Bf16* weight, std::size_t outputs,
                      std::size_t inputs, float* y) const {
    gemm(x, rows, weight, outputs, inputs, y, type_f32);
}

/// cuBLAS counts down columns. To it our rows are columns: it sees x^T, W^T and y^T, and
/// y^T = W x^T.
void Cublas::gemm(const Bf16* x, std::size_t rows, const Bf16* weight, std::size_t outputs,
                  std::size_t inputs, void* y, int out_type) const {
    const float one = 1, zero = 0;
    const int m = static_cast<int>(outputs), n = static_cast<int>(rows);
    const int k = static_cast<int>(inputs);
    check(gemm_(handle_, operation_transpose, operation_none, m, n, k, &one, weight, type_bf16, k,
                x, type_bf16, k, &zero, y, out_type, m, compute_f32, default_algorithm),
          "cublasGemmEx");
}

}  // namespace engine::cuda
