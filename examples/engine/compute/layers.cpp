#include "compute/layers.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

namespace engine {

namespace {

// Numbers that are worth handing to another thread.
constexpr std::size_t task_numbers = 16384;

std::size_t rows_per_task(std::size_t width) { return task_numbers / width + 1; }

/// 1 / sqrt(mean(x^2) + epsilon). Eight sums side by side let the compiler use vectors; their
/// number is fixed, so the order of additions is too.
float inverse_rms(const float* x, std::size_t width, float epsilon) {
    constexpr std::size_t lanes = 8;
    float sums[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= width; i += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += x[i + lane] * x[i + lane];
    float sum = 0;
    for (const float part : sums) sum += part;
    for (; i < width; ++i) sum += x[i] * x[i];
    return 1.0F / std::sqrt(sum / static_cast<float>(width) + epsilon);
}

// Compiled for several instruction sets, of which a process uses the best that the processor has:
// always the same one.
#if defined(__x86_64__) && defined(__gnu_linux__)
#define ENGINE_FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ENGINE_FOR_EACH_PROCESSOR
#endif

/// e^x to two units in the last place, in operations that compilers turn into vectors; the C
/// library's would take a seventh of a prompt's time. Beyond the limits the result stays there.
float exponential(float x) {
    x = x < -87.0F ? -87.0F : x;
    x = x > 88.0F ? 88.0F : x;
    // Adding and taking off 1.5 * 2^23 rounds to a whole number.
    constexpr float rounder = 12582912.0F;
    const float whole = (x * 1.44269504F + rounder) - rounder;
    // ln 2 in two parts: the first has few enough bits that the product is exact.
    const float rest = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
    float series = 1.0F / 720;
    series = series * rest + 1.0F / 120;
    series = series * rest + 1.0F / 24;
    series = series * rest + 1.0F / 6;
    series = series * rest + 0.5F;
    series = (series * rest * rest + rest) + 1.0F;
    const std::int32_t exponent = (static_cast<std::int32_t>(whole) + 127) * (1 << 23);
    float power;
    std::memcpy(&power, &exponent, sizeof power);
    return series * power;
}

ENGINE_FOR_EACH_PROCESSOR
void silu_multiply_row(const float* gate, const float* up, std::size_t width, float* out) {
    for (std::size_t i = 0; i < width; ++i)
        out[i] = gate[i] / (1.0F + exponential(-gate[i])) * up[i];
}

/// gelu(x) = x / 2 * (1 + tanh(u)) with u near x is x * sigmoid(2 u).
ENGINE_FOR_EACH_PROCESSOR
void gelu_multiply_row(const float* gate, const float* up, std::size_t width, float* out) {
    constexpr float twice_root = 1.5957691216F;  // 2 sqrt(2 / pi)
    for (std::size_t i = 0; i < width; ++i) {
        const float x = gate[i];
        const float u = twice_root * (x + 0.044715F * x * x * x);
        out[i] = x / (1.0F + exponential(-u)) * up[i];
    }
}

ENGINE_FOR_EACH_PROCESSOR
void sigmoid_multiply_row(float* x, const float* gate, std::size_t width) {
    for (std::size_t i = 0; i < width; ++i) x[i] /= 1.0F + exponential(-gate[i]);
}

}  // namespace

void rms_norm(const float* x, std::size_t rows, const std::vector<float>& weight, float epsilon,
              float* y, ThreadPool& pool) {
    const std::size_t width = weight.size();
    pool.ranges(rows, rows_per_task(width), [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row) {
            const float* from = x + row * width;
            float* to = y + row * width;
            const float scale = inverse_rms(from, width, epsilon);
            for (std::size_t i = 0; i < width; ++i) to[i] = from[i] * scale * weight[i];
        }
    });
}

void rms_norm_head(float* head, const std::vector<float>& weight, float epsilon) {
    const float scale = inverse_rms(head, weight.size(), epsilon);
    for (std::size_t i = 0; i < weight.size(); ++i) head[i] = head[i] * scale * weight[i];
}

void add(float* x, const float* y, std::size_t count, ThreadPool& pool) {
    pool.ranges(count, task_numbers, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) x[i] += y[i];
    });
}

void silu_multiply(const float* gate_up, std::size_t rows, std::size_t width, float* out,
                   ThreadPool& pool) {
    pool.ranges(rows, rows_per_task(width), [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row) {
            const float* gate = gate_up + row * 2 * width;
            silu_multiply_row(gate, gate + width, width, out + row * width);
        }
    });
}

void gelu_multiply(const float* gate_up, std::size_t rows, std::size_t width, float* out,
                   ThreadPool& pool) {
    pool.ranges(rows, rows_per_task(width), [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row) {
            const float* gate = gate_up + row * 2 * width;
            gelu_multiply_row(gate, gate + width, width, out + row * width);
        }
    });
}

void sigmoid_multiply(float* x, const float* gate, std::size_t stride, std::size_t rows,
                      std::size_t width, ThreadPool& pool) {
    pool.ranges(rows, rows_per_task(width), [&](std::size_t begin, std::size_t end) {
        for (std::size_t row = begin; row < end; ++row)
            sigmoid_multiply_row(x + row * width, gate + row * stride, width);
    });
}

ENGINE_FOR_EACH_PROCESSOR
void silu(const float* x, std::size_t count, float* out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = x[i] / (1.0F + exponential(-x[i]));
}

}  // namespace engine
