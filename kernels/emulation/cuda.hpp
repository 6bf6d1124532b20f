// CUDA C++ for the emulator: what a plain kernel, one that was not written in the words of
// device.cuh, is compiled with in place of nvcc's own. Include this, then the kernels, then list
// them by RKV_LIST_KERNEL.
//
// Shared variables are static, for one block runs at a time. What is touched without a barrier is
// not found by itself here, but by wrong results, when one warp runs ahead of the others.
#pragma once
#include "../device.cuh"
#include <cmath>

namespace rkv::emulation {

struct Index3 {
    unsigned x, y, z;
};
inline Index3 thread_of_block() { return {static_cast<unsigned>(machine().thread()), 0, 0}; }
inline Index3 block_of_grid() {
    return {machine().block(0), machine().block(1), machine().block(2)};
}

} // namespace rkv::emulation

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(threads)
#define threadIdx (::rkv::emulation::thread_of_block())
#define blockIdx (::rkv::emulation::block_of_grid())

inline void __syncthreads() { ::rkv::sync_block(); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
    return ::rkv::shuffle_xor(value, mask);
}
inline float __uint_as_float(unsigned bits) { return ::rkv::bits_to_float(bits); }
inline unsigned __float_as_uint(float value) { return ::rkv::float_to_bits(value); }
