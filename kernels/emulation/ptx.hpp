// What kernels that tests/cuda/ptx translated from PTX are written in: instructions that
// device.cuh has no word for, each as the PTX ISA defines it.
#pragma once
#include "kernels/hopper.cuh"

#include <algorithm>

namespace rkv::ptx {

template <class T>
T load_bytes(const void *from) {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

// Of global memory: `kCount` of T at once.
template <class T, int kCount>
struct Several {
    T x[kCount];
};
template <class T, int kCount>
Several<T, kCount> load_global(uint64_t from) {
    emulation::machine().touch_global(reinterpret_cast<const void *>(from), sizeof(T) * kCount,
                                      sizeof(T) * kCount);
    return load_bytes<Several<T, kCount>>(reinterpret_cast<const void *>(from));
}
template <class T, int kCount>
void store_global(uint64_t to, const Several<T, kCount> &values) {
    emulation::machine().touch_global(reinterpret_cast<const void *>(to), sizeof values,
                                      sizeof values);
    memcpy(reinterpret_cast<void *>(to), &values, sizeof values);
}
template <class T, int kCount>
Several<T, kCount> load_shared(uint32_t from) {
    constexpr int kBytes = sizeof(T) * kCount;
    return load_bytes<Several<T, kCount>>(
        emulation::machine().shared().read(from, kBytes, thread_index()));
}
template <class T, int kCount>
void store_shared(uint32_t to, const Several<T, kCount> &values) {
    emulation::machine().shared().write(to, &values, sizeof values, thread_index());
}

// The upper half of a product, of numbers with a sign or without.
inline uint32_t multiply_high(uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}
inline int32_t multiply_high(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<int64_t>(a) * b >> 32);
}

// Shifts by as many bits as there are, or more, are defined.
template <class T>
T shift_left(T value, uint32_t bits) {
    return bits >= 8 * sizeof(T) ? 0 : static_cast<T>(value << bits);
}
template <class T>
T shift_right(T value, uint32_t bits) {
    const uint32_t most = 8 * sizeof(T) - 1;
    if (bits > most) {
        return value < 0 ? static_cast<T>(-1) : 0;
    }
    return static_cast<T>(value >> bits);
}

// `length` bits of `value` at `position` of `into`.
template <class T>
T insert_bits(T value, T into, uint32_t position, uint32_t length) {
    const T ones = length >= 8 * sizeof(T) ? ~T{0} : (T{1} << length) - 1;
    return (into & ~(ones << position)) | ((value & ones) << position);
}

inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t which = selector >> (4 * i) & 15;
        uint32_t byte = bytes >> (8 * (which & 7)) & 0xff;
        if ((which & 8) != 0) {
            byte = (byte & 0x80) != 0 ? 0xff : 0; // its sign, eight times
        }
        result |= byte << (8 * i);
    }
    return result;
}

// Each half by itself, rounded once.
inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    return Bf16::pack(static_cast<float>(static_cast<double>(Bf16::low(a)) * Bf16::low(b) +
                                         Bf16::low(c)),
                      static_cast<float>(static_cast<double>(Bf16::high(a)) * Bf16::high(b) +
                                         Bf16::high(c)));
}

// The nearest e4m3 number, ties to even, none beyond 448: a multiple of the last place that the
// format has there.
inline uint16_t narrow_e4m3(float x) {
    if (x != x) {
        return 0x7f;
    }
    const float size = std::min(std::fabs(x), 448.0f);
    const int exponent = size < 0x1p-6f ? -6 : std::ilogb(size);
    const int places = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
    const int sign = std::signbit(x) ? 0x80 : 0;
    return static_cast<uint16_t>(sign | (8 * (exponent + 6) + places));
}

inline bool is_ordered(float a, float b) { return a == a && b == b; }

} // namespace rkv::ptx
