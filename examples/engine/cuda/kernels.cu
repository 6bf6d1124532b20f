// What a transformer computes between its products, on the GPU. Memory is what these kernels wait
// for, so two numbers are read and written at once, and sums are f32.
#include "cuda/arguments.hpp"

using namespace engine::cuda;

namespace {

constexpr unsigned warp_threads = 32;
constexpr unsigned all_lanes = 0xffffffffU;

/// Two bf16 side by side: as they lie in memory, and as what they are.
using Pair = std::uint32_t;
struct Two {
    float low, high;
};

__device__ float number(Bf16 bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

/// To the nearest, of two the even one. A NaN stays one.
__device__ Bf16 rounded(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;
    return static_cast<Bf16>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

__device__ Two numbers(Pair pair) {
    return {number(static_cast<Bf16>(pair)), number(static_cast<Bf16>(pair >> 16))};
}

__device__ Pair rounded(Two two) {
    return static_cast<Pair>(rounded(two.low)) | static_cast<Pair>(rounded(two.high)) << 16;
}

/// A row as pairs.
__device__ Pair* pairs(Bf16* x, std::size_t row, unsigned width) {
    return reinterpret_cast<Pair*>(x + row * width);
}
__device__ const Pair* pairs(const Bf16* x, std::size_t row, unsigned width) {
    return reinterpret_cast<const Pair*>(x + row * width);
}

/// The sum over a warp, on each of its lanes. Always added in the same order.
__device__ float warp_sum(float value) {
    for (unsigned distance = warp_threads / 2; distance > 0; distance /= 2)
        value += __shfl_xor_sync(all_lanes, value, static_cast<int>(distance));
    return value;
}

/// The sum over a block. To be called once: nobody waits before `sums` is written again.
__device__ float block_sum(float value) {
    __shared__ float sums[block_threads / warp_threads];
    value = warp_sum(value);
    if (threadIdx.x % warp_threads == 0) sums[threadIdx.x / warp_threads] = value;
    __syncthreads();
    float total = 0;
    for (const float sum : sums) total += sum;
    return total;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(block_threads) engine_embed(EmbedArguments a) {
    const Pair* from = pairs(a.table, a.ids[blockIdx.x], a.width);
    Pair* to = pairs(a.out, blockIdx.x, a.width);
    for (unsigned i = threadIdx.x; i < a.width / 2; i += block_threads) to[i] = from[i];
}

extern "C" __global__ void __launch_bounds__(block_threads) engine_norm(NormArguments a) {
    const std::size_t row = a.rows != nullptr ? a.rows[blockIdx.x] : blockIdx.x;
    Pair* x = pairs(a.x, row, a.width);
    const Pair* delta = a.delta != nullptr ? pairs(a.delta, row, a.width) : nullptr;
    float squares = 0;
    for (unsigned i = threadIdx.x; i < a.width / 2; i += block_threads) {
        Two two = numbers(x[i]);
        if (delta != nullptr) {
            const Two more = numbers(delta[i]);
            x[i] = rounded(Two{two.low + more.low, two.high + more.high});
            two = numbers(x[i]);
        }
        squares += two.low * two.low + two.high * two.high;
    }
    const float mean = block_sum(squares) / static_cast<float>(a.width);
    const float scale = 1.0F / sqrtf(mean + a.epsilon);
    Pair* out = pairs(a.out, blockIdx.x, a.width);
    // Each thread reads what it wrote itself.
    for (unsigned i = threadIdx.x; i < a.width / 2; i += block_threads) {
        const Two two = numbers(x[i]);
        out[i] = rounded(Two{two.low * scale * a.weight[2 * i],
                             two.high * scale * a.weight[2 * i + 1]});
    }
}

extern "C" __global__ void __launch_bounds__(block_threads) engine_add_bias(BiasArguments a) {
    const unsigned i = blockIdx.y * block_threads + threadIdx.x;
    if (i >= a.width / 2) return;
    Pair* x = pairs(a.x, blockIdx.x, a.width);
    const Two two = numbers(x[i]);
    x[i] = rounded(Two{two.low + a.bias[2 * i], two.high + a.bias[2 * i + 1]});
}

extern "C" __global__ void __launch_bounds__(block_threads) engine_turn_heads(TurnArguments a) {
    const unsigned head = blockIdx.y * (block_threads / warp_threads) + threadIdx.x / warp_threads;
    if (head >= a.heads) return;  // a whole warp
    const unsigned half = a.head_dim / 2;
    const unsigned lane = threadIdx.x % warp_threads;
    Bf16* x = a.qkv + static_cast<std::size_t>(blockIdx.x) * a.stride + head * a.head_dim;
    const float* norm = head < a.query_heads ? a.q_norm : a.k_norm;
    float scale = 1;
    if (norm != nullptr) {
        float squares = 0;
        for (unsigned i = lane; i < a.head_dim; i += warp_threads)
            squares += number(x[i]) * number(x[i]);
        const float mean = warp_sum(squares) / static_cast<float>(a.head_dim);
        scale = 1.0F / sqrtf(mean + a.epsilon);
    }
    const float* cosines = a.rope + static_cast<std::size_t>(a.positions[blockIdx.x]) * a.head_dim;
    const float* sines = cosines + half;
    // The two coordinates that turn together lie half a head apart.
    for (unsigned i = lane; i < half; i += warp_threads) {
        float first = number(x[i]), second = number(x[half + i]);
        if (norm != nullptr) {
            first *= scale * norm[i];
            second *= scale * norm[half + i];
        }
        x[i] = rounded(first * cosines[i] - second * sines[i]);
        x[half + i] = rounded(second * cosines[i] + first * sines[i]);
    }
}

extern "C" __global__ void __launch_bounds__(block_threads) engine_silu_multiply(SiluArguments a) {
    const unsigned i = blockIdx.y * block_threads + threadIdx.x;
    if (i >= a.width / 2) return;
    const Pair* row = pairs(a.gate_up, blockIdx.x, 2 * a.width);
    const Two gate = numbers(row[i]), up = numbers(row[a.width / 2 + i]);
    pairs(a.out, blockIdx.x, a.width)[i] =
        rounded(Two{gate.low / (1.0F + expf(-gate.low)) * up.low,
                    gate.high / (1.0F + expf(-gate.high)) * up.high});
}
