// The words that the kernels are written in. Under nvcc each is a PTX instruction or two; under
// another compiler it is a call of the emulator, so that the kernels' logic runs without a GPU.
#pragma once
#include "arguments.cuh"

namespace rkv {

struct alignas(16) Vector16 {
    uint32_t x[4];
};

// Faults that tests put into the emulated kernels, to show that they are found. Never on a GPU.
enum class Fault : int {
    kNone,
    kNoBarrierBeforeUse,
    kNoBarrierAfterUse,
    kNoWaitForTile,
    kWaitOneTooFew,
    kNoBarrierAfterQuery,
    kMaskOffByOne,
    kWindowOffByOne,
    kTailNotZeroed,
    kNoRescale,
    kNoBarrierBeforeCombine,
    kSinkTwice,
    kWrongPageOffset,
    kRowsBeyondTile,
    // Of attn_sm90 alone.
    kStuckParity,
    kNoWaitForLogits,
    kNoWaitForValues,
    kNoProxyFence,
    kEarlyRelease,
    kNoWaitForRoom,
    kWrongSwizzle,
    kBytesTooFew,
    // Of every kernel that reads how much of a step there is.
    kCountIgnored,
    kTreeIgnored,
    kContextWritten,
    kHeadScaleIgnored,
    // Of attn_mma with value warps.
    kNoBarrierBeforeLogits,
    // Of the kernels that merge.
    kNoBarrierInMerge,
    // Of every kernel that is launched before another one has ended.
    kNoWaitForLaunch,
    // Of attn_sm90, whose blocks take several items.
    kToldTooEarly,
    kCounterStays,
    // Of attn_sm90 where one group makes the weights of another.
    kHandedTooEarly,
    kTakenTooEarly,
    kCount,
};

} // namespace rkv

#if defined(__CUDACC__)

#define RKV_DEVICE __device__ __forceinline__
#define RKV_KERNEL(name, Arguments, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) \
        name(const __grid_constant__ Arguments arguments)
#define RKV_LIST_KERNEL(name, Arguments, threads, shared)
#define RKV_LIST_HOPPER_KERNEL(name, Arguments, threads, shared)
#define RKV_UNROLL _Pragma("unroll")
#define RKV_NO_UNROLL _Pragma("unroll 1")

namespace rkv {

constexpr float kInfinity = __builtin_huge_valf();

RKV_DEVICE constexpr bool fault(Fault) { return false; }

RKV_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
RKV_DEVICE int block_x() { return static_cast<int>(blockIdx.x); }
RKV_DEVICE int block_y() { return static_cast<int>(blockIdx.y); }
RKV_DEVICE int block_z() { return static_cast<int>(blockIdx.z); }

// What every kernel begins with that may be launched before the one before it has ended, or be
// followed by one that is: lets the next one's blocks come when there is room, and waits until all
// is done and written that was launched before. No global memory is touched earlier.
RKV_DEVICE void begin_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

RKV_DEVICE void sync_block() { __syncthreads(); }
RKV_DEVICE void sync_warp() { __syncwarp(); }

// The same value, of which the compiler does not know that it is: what is computed with it again
// needs no registers meanwhile.
RKV_DEVICE int anew(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

template <class T>
RKV_DEVICE T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

RKV_DEVICE int shuffle_from(int value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
RKV_DEVICE bool any_lane(bool value) { return __any_sync(0xffffffffu, value); }

extern __shared__ __align__(128) uint8_t shared_memory[];

RKV_DEVICE uint32_t shared_base() { // addresses in shared memory are 32-bit
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared_memory));
}

template <class T>
RKV_DEVICE T load_global(const T *from) {
    return __ldg(from);
}
RKV_DEVICE uint64_t load_global(const uint64_t *from) {
    return __ldg(reinterpret_cast<const unsigned long long *>(from));
}
RKV_DEVICE Vector16 load_global(const Vector16 *from) {
    Vector16 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3])
                 : "l"(from)
                 : "memory");
    return v;
}
// What this launch itself may overwrite: not through the read-only cache.
template <class T>
RKV_DEVICE T load_mutable(const T *from) {
    return *static_cast<const volatile T *>(from);
}
// Numbers that all blocks of a launch share: adds 1, and returns what it was before. The second
// goes on with 0 after `last`; who reads what it left sees all that those did before who counted.
RKV_DEVICE uint32_t take_number(uint32_t *counter) {
    uint32_t before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(counter)
                 : "memory");
    return before;
}
RKV_DEVICE uint32_t count_round(uint32_t *counter, uint32_t last) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counter), "r"(last)
                 : "memory");
    return before;
}
template <class T>
RKV_DEVICE void store_global(T *to, T value) {
    *to = value;
}
RKV_DEVICE void store_global(Vector16 *to, const Vector16 &v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x[0]), "r"(v.x[1]),
                 "r"(v.x[2]), "r"(v.x[3])
                 : "memory");
}
RKV_DEVICE void store_global2(uint32_t *to, uint32_t x, uint32_t y) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(x), "r"(y) : "memory");
}

RKV_DEVICE float load_shared_f32(uint32_t from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
    return v;
}
RKV_DEVICE void load_shared2(uint32_t from, uint32_t &x, uint32_t &y) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x), "=r"(y) : "r"(from) : "memory");
}
RKV_DEVICE Vector16 load_shared16(uint32_t from) {
    Vector16 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3])
                 : "r"(from)
                 : "memory");
    return v;
}
RKV_DEVICE void store_shared16(uint32_t to, const Vector16 &v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x[0]), "r"(v.x[1]),
                 "r"(v.x[2]), "r"(v.x[3])
                 : "memory");
}
RKV_DEVICE void store_shared_f32(uint32_t to, float v) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}
RKV_DEVICE int load_shared_i32(uint32_t from) { return __float_as_int(load_shared_f32(from)); }
RKV_DEVICE void store_shared_i32(uint32_t to, int v) { store_shared_f32(to, __int_as_float(v)); }

// 16 bytes from global to shared memory without a register; zeros instead unless `wanted`.
RKV_DEVICE void copy_async16(uint32_t to, const void *from, bool wanted) {
    const int bytes = wanted ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}
RKV_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
RKV_DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

RKV_DEVICE void load_matrix4(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
RKV_DEVICE void load_matrix4_transposed(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

RKV_DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
RKV_DEVICE float log2_fast(float x) { return __log2f(x); }
RKV_DEVICE float reciprocal_fast(float x) { return __fdividef(1.0f, x); }
// Two numbers without a sign as e4m3, the first one below, where an instruction does it: as
// narrow_to_e4m3() does.
#if __CUDA_ARCH__ >= 890
constexpr bool kNarrowsE4M3 = true;
RKV_DEVICE uint32_t narrow_sizes(float low, float high) {
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
}
#else
constexpr bool kNarrowsE4M3 = false;
RKV_DEVICE uint32_t narrow_sizes(float, float) { return 0; }
#endif
RKV_DEVICE uint32_t multiply_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }
RKV_DEVICE float bits_to_float(uint32_t bits) { return __uint_as_float(bits); }
RKV_DEVICE uint32_t float_to_bits(float value) { return __float_as_uint(value); }
template <uint32_t kSelector>
RKV_DEVICE uint32_t permute_bytes(uint32_t a, uint32_t b) {
    return __byte_perm(a, b, kSelector);
}

// bf16: the upper half of binary32.
struct Bf16 {
    static RKV_DEVICE uint32_t pack(float low, float high) {
        uint32_t r;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
    static RKV_DEVICE uint32_t multiply(uint32_t a, uint32_t b) {
        uint32_t r;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
        return r;
    }
    static RKV_DEVICE float low(uint32_t pair) { return __uint_as_float(pair << 16); }
    static RKV_DEVICE float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
    static RKV_DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

// IEEE 754 binary16.
struct F16 {
    static RKV_DEVICE uint32_t pack(float low, float high) {
        uint32_t r;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
        return r;
    }
    static RKV_DEVICE uint32_t multiply(uint32_t a, uint32_t b) {
        uint32_t r;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
        return r;
    }
    static RKV_DEVICE float low(uint32_t pair) {
        float v;
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(v) : "r"(pair));
        return v;
    }
    static RKV_DEVICE float high(uint32_t pair) { return low(pair >> 16); }
    static RKV_DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

} // namespace rkv

#else
#include "emulation/device.hpp"
#endif
