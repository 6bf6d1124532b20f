// Number formats and arithmetic that no instruction does.
#pragma once
#include "device.cuh"

namespace rkv {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kSmallestNormal = 1.17549435e-38f; // 2^-126

// fp8 as it lies in memory: OCP E4M3.
struct E4M3 {};

template <class T>
constexpr int kBytes = 2;
template <>
constexpr int kBytes<E4M3> = 1;

// n / d for n < 2^31: with magic = ceil(2^(31 + shift) / d) and 2^shift >= d the product's error
// stays below 1 / d.
RKV_DEVICE int divide(int n, const Divisor &d) {
    return static_cast<int>(multiply_high(static_cast<uint32_t>(n) << 1, d.magic) >> d.shift);
}

RKV_DEVICE float larger(float a, float b) { return a > b ? a : b; }
// In one instruction; of a NaN and a number, the number.
RKV_DEVICE float larger_number(float a, float b) { return fmaxf(a, b); }
RKV_DEVICE int smaller(int a, int b) { return a < b ? a : b; }
RKV_DEVICE int larger(int a, int b) { return a > b ? a : b; }

// Whether entry `index` is one of `count`. `value` is a number of the entry that is at least 1
// where it is: asking for it keeps the compiler from loading the entry only after the count, which
// would cost the latency of memory twice.
RKV_DEVICE bool is_there(int index, int count, int value) {
    const bool is_counted = index < count || fault(Fault::kCountIgnored);
    return static_cast<int>(is_counted) & static_cast<int>(value > 0);
}

// tanh by way of exp: tanh.approx errs by 2^-11, which a soft cap of 50 would turn into a logit
// that is off by 0.02. For large x the exponential overflows to infinity and the result is 1. It
// errs by some 1e-7, however small x is.
RKV_DEVICE float tanh_exact(float x) {
    const float e = exp2_fast(x * (2.0f * kLog2E));
    return 1.0f - 2.0f * reciprocal_fast(e + 1.0f);
}

// The same with an error relative to the result, for what multiplies it by much. The polynomial is
// the CPU's (src/cpu/simd/math.rs), for |x| < 0.625.
RKV_DEVICE float tanh_relative(float x) {
    const float square = x * x;
    float rest = fmaf(-0.005717037f, square, 0.020650579f);
    rest = fmaf(rest, square, -0.053743497f);
    rest = fmaf(rest, square, 0.1333149f);
    rest = fmaf(rest, square, -0.33333284f);
    return square < 0.390625f ? fmaf(rest * square, x, x) : tanh_exact(x);
}

// Two e4m3 numbers, in the upper bytes of the halves of a word, as two 16-bit numbers: exponent and
// mantissa are moved to where the wider format has them, and the difference of the biases is
// multiplied away, which is exact for subnormal numbers too. The pattern of NaN becomes 480. What
// the lower bytes are does not matter.
template <class T>
RKV_DEVICE uint32_t widen_e4m3(uint32_t pair);
template <>
RKV_DEVICE uint32_t widen_e4m3<Bf16>(uint32_t pair) {
    // bias 127 - 7: times 2^120
    return Bf16::multiply(((pair & 0x7f007f00u) >> 4) | (pair & 0x80008000u), 0x7b807b80u);
}
template <>
RKV_DEVICE uint32_t widen_e4m3<F16>(uint32_t pair) {
    // bias 15 - 7: times 2^8
    return F16::multiply(((pair & 0x7f007f00u) >> 1) | (pair & 0x80008000u), 0x5c005c00u);
}

// Eight of sixteen e4m3 numbers: the first or the second half.
template <class T>
RKV_DEVICE Vector16 widen_eight(const Vector16 &narrow, int half) {
    const uint32_t a = narrow.x[2 * half], b = narrow.x[2 * half + 1];
    return {{widen_e4m3<T>(permute_bytes<0x1404>(a, 0)), widen_e4m3<T>(permute_bytes<0x3424>(a, 0)),
             widen_e4m3<T>(permute_bytes<0x1404>(b, 0)),
             widen_e4m3<T>(permute_bytes<0x3424>(b, 0))}};
}

// The nearest e4m3 number, ties to even; what is too large, infinity included, becomes 448. Of a
// number without a sign.
RKV_DEVICE uint32_t narrow_to_e4m3(float size) {
    const uint32_t bits = float_to_bits(size);
    if (bits > 0x7f800000u) {
        return 0x7fu;
    }
    if (size >= 448.0f) {
        return 0x7eu;
    }
    if (size < 0.015625f) {
        // 2^14 has 2^-9 as its last place, so the sum rounds as a subnormal does.
        return (float_to_bits(size + 16384.0f) - float_to_bits(16384.0f)) & 0xffu;
    }
    return ((bits + 0x7ffffu + ((bits >> 20) & 1u)) >> 20) - (120u << 3);
}

// What many numbers are divided by. A quotient is a product with two numbers whose sum is
// 1 / scale but for less than 2^-44 of it. The first one is below 1 / scale, so that both have one
// sign and infinity stays what it is. Rounded to f32 the product is on the same side of each middle
// of two e4m3 numbers as the quotient is, or on it if that is: a 16-bit number over such a middle
// is further from where f32 would round otherwise. For scales from 2^-100 to 2^100.
struct Scale {
    float first, rest;

    explicit RKV_DEVICE Scale(float scale) {
        first = bits_to_float(float_to_bits(1.0f / scale) - 1);
        rest = fmaf(-scale, first, 1.0f) * first;
    }

    RKV_DEVICE float divide(float size) const { return fmaf(size, first, size * rest); }
};

// Two 16-bit numbers, divided, as e4m3.
template <class Q>
RKV_DEVICE uint32_t narrow_pair(uint32_t pair, const Scale &scale) {
    const uint32_t sizes = pair & 0x7fff7fffu;
    const float low = scale.divide(Q::low(sizes)), high = scale.divide(Q::high(sizes));
    const uint32_t narrow = kNarrowsE4M3 ? narrow_sizes(low, high)
                                         : narrow_to_e4m3(low) | narrow_to_e4m3(high) << 8;
    return narrow | (permute_bytes<0x4431>(pair, 0) & 0x8080u);
}

} // namespace rkv
