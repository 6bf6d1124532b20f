// An emulated libcublas.so: the one product that the engine asks for, on the host, when its turn
// comes on the emulated stream. A row's result does not depend on the other rows.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

extern "C" int cuLaunchHostFunc(void* stream, void (*function)(void*), void* argument);
extern "C" int rkv_emulator_holds(const void* at, std::size_t bytes);

namespace {

constexpr int invalid_value = 7, execution_failed = 13;
constexpr int type_f32 = 0, type_bf16 = 14, compute_f32 = 68;

int handle_count = 0;
int succeeding = -1;  // calls until one fails; negative: none does

/// y = x W^T in rows.
struct Product {
    const std::uint16_t* x;
    const std::uint16_t* weight;
    void* y;
    std::size_t rows, outputs, inputs;
    bool is_f32;
};

struct Handle {
    void* stream = nullptr;
    /// All of them: one that went into a graph is computed again whenever that is launched.
    std::deque<Product> products;
};

float widened(std::uint16_t bits) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value = 0;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

std::uint16_t rounded(float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
    return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

void compute(void* argument) {
    const auto* product = static_cast<const Product*>(argument);
    const std::size_t inputs = product->inputs;
    std::vector<float> weight(product->outputs * inputs), x(inputs);
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = widened(product->weight[i]);
    for (std::size_t row = 0; row < product->rows; ++row) {
        for (std::size_t k = 0; k < inputs; ++k) x[k] = widened(product->x[row * inputs + k]);
        for (std::size_t output = 0; output < product->outputs; ++output) {
            float sum = 0;
            for (std::size_t k = 0; k < inputs; ++k) sum += x[k] * weight[output * inputs + k];
            const std::size_t at = row * product->outputs + output;
            if (product->is_f32)
                static_cast<float*>(product->y)[at] = sum;
            else
                static_cast<std::uint16_t*>(product->y)[at] = rounded(sum);
        }
    }
}

}  // namespace

extern "C" {

int cublasCreate_v2(void** handle) {
    *handle = new Handle;
    ++handle_count;
    return 0;
}
int cublasDestroy_v2(void* handle) {
    delete static_cast<Handle*>(handle);
    --handle_count;
    return 0;
}
int cublasSetStream_v2(void* handle, void* stream) {
    static_cast<Handle*>(handle)->stream = stream;
    return 0;
}
int cublasGemmEx(void* handle, int left_operation, int right_operation, int m, int n, int k,
                 const void* alpha, const void* left, int left_type, int left_stride,
                 const void* right, int right_type, int right_stride, const void* beta, void* out,
                 int out_type, int out_stride, int compute_type, int) {
    if (succeeding >= 0 && succeeding-- == 0) return execution_failed;
    const auto outputs = static_cast<std::size_t>(m), rows = static_cast<std::size_t>(n);
    const auto inputs = static_cast<std::size_t>(k);
    const std::size_t out_bytes = out_type == type_f32 ? 4 : 2;
    const bool is_known =
        left_operation == 1 && right_operation == 0 && left_type == type_bf16 &&
        right_type == type_bf16 && (out_type == type_f32 || out_type == type_bf16) &&
        compute_type == compute_f32 && left_stride == k && right_stride == k && out_stride == m &&
        *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0;
    if (!is_known || m < 1 || n < 1 || k < 1 || !rkv_emulator_holds(left, outputs * inputs * 2) ||
        !rkv_emulator_holds(right, rows * inputs * 2) ||
        !rkv_emulator_holds(out, rows * outputs * out_bytes))
        return invalid_value;
    Handle& mine = *static_cast<Handle*>(handle);
    mine.products.push_back({static_cast<const std::uint16_t*>(right),
                             static_cast<const std::uint16_t*>(left), out, rows, outputs, inputs,
                             out_type == type_f32});
    return cuLaunchHostFunc(mine.stream, compute, &mine.products.back()) == 0 ? 0
                                                                              : execution_failed;
}

// What tests ask for.
int emulated_cublas_handles() { return handle_count; }
/// The call after so many that succeed fails; negative: none does.
void emulated_cublas_fail(int after) { succeeding = after; }

}  // extern "C"
