// The words of device.cuh for the emulator.
#pragma once
#include "machine.hpp"
#include <cmath>

#define RKV_DEVICE inline
#define RKV_KERNEL(name, Arguments, threads, blocks) \
    static void name(const Arguments &arguments)
#define RKV_LIST_KERNEL(name, Arguments, threads, shared) \
    RKV_LIST_ANY_KERNEL(name, Arguments, threads, shared, false)
#define RKV_LIST_HOPPER_KERNEL(name, Arguments, threads, shared) \
    RKV_LIST_ANY_KERNEL(name, Arguments, threads, shared, true)
#define RKV_LIST_ANY_KERNEL(name, Arguments, threads, shared, is_hopper) \
    static const emulation::KernelEntry name##_entry( \
        {#name, threads, shared, sizeof(Arguments), is_hopper, \
         [](const void *arguments) { name(*static_cast<const Arguments *>(arguments)); }});
#define RKV_UNROLL
#define RKV_NO_UNROLL

namespace rkv {

constexpr float kInfinity = __builtin_huge_valf();

inline bool fault(Fault which) {
    return emulation::machine().settings.fault == static_cast<int>(which);
}

inline int thread_index() { return emulation::machine().thread(); }
inline int block_x() { return static_cast<int>(emulation::machine().block(0)); }
inline int block_y() { return static_cast<int>(emulation::machine().block(1)); }
inline int block_z() { return static_cast<int>(emulation::machine().block(2)); }
inline void sync_block() { emulation::machine().barrier(); }
inline int anew(int value) { return value; }
inline void sync_warp() {
    emulation::machine().warp("sync_warp", nullptr,
                              [](void **) { emulation::machine().order_warp(); });
}

template <class T>
T shuffle_xor(T value, int mask) {
    struct Lane {
        T value, result;
        int mask;
    } lane{value, value, mask};
    emulation::machine().warp("shuffle_xor", &lane, [](void **lanes) {
        for (int i = 0; i < 32; i++) {
            Lane *mine = static_cast<Lane *>(lanes[i]);
            mine->result = static_cast<Lane *>(lanes[i ^ mine->mask])->value;
        }
    });
    return lane.result;
}

inline int shuffle_from(int value, int lane) {
    struct Lane {
        int value, result, from;
    } mine{value, value, lane};
    emulation::machine().warp("shuffle_from", &mine, [](void **lanes) {
        for (int i = 0; i < 32; i++) {
            Lane *lane = static_cast<Lane *>(lanes[i]);
            lane->result = static_cast<Lane *>(lanes[lane->from])->value;
        }
    });
    return mine.result;
}
inline bool any_lane(bool value) {
    struct Lane {
        bool value, result;
    } lane{value, false};
    emulation::machine().warp("any_lane", &lane, [](void **lanes) {
        bool any = false;
        for (int i = 0; i < 32; i++) {
            any |= static_cast<Lane *>(lanes[i])->value;
        }
        for (int i = 0; i < 32; i++) {
            static_cast<Lane *>(lanes[i])->result = any;
        }
    });
    return lane.result;
}

inline void begin_launch() {
    if (!fault(Fault::kNoWaitForLaunch)) {
        emulation::machine().wait_for_launch();
    }
}

inline uint32_t shared_base() { return 0; }

template <class T>
T load_global(const T *from) {
    emulation::machine().touch_global(from, sizeof(T), sizeof(T));
    return *from;
}
template <class T>
T load_mutable(const T *from) {
    return load_global(from);
}
inline uint32_t take_number(uint32_t *counter) {
    emulation::machine().touch_global(counter, 4, 4);
    return (*counter)++;
}
inline uint32_t count_round(uint32_t *counter, uint32_t last) {
    emulation::machine().touch_global(counter, 4, 4);
    const uint32_t before = *counter;
    *counter = before >= last ? 0 : before + 1;
    return before;
}
template <class T>
void store_global(T *to, T value) {
    emulation::machine().touch_global(to, sizeof(T), sizeof(T));
    *to = value;
}
inline void store_global2(uint32_t *to, uint32_t x, uint32_t y) {
    emulation::machine().touch_global(to, 8, 8);
    to[0] = x;
    to[1] = y;
}

inline float load_shared_f32(uint32_t from) {
    float v;
    memcpy(&v, emulation::machine().shared().read(from, 4, thread_index()), 4);
    return v;
}
inline void load_shared2(uint32_t from, uint32_t &x, uint32_t &y) {
    const uint8_t *at = emulation::machine().shared().read(from, 8, thread_index());
    memcpy(&x, at, 4);
    memcpy(&y, at + 4, 4);
}
inline Vector16 load_shared16(uint32_t from) {
    Vector16 v;
    memcpy(&v, emulation::machine().shared().read(from, 16, thread_index()), 16);
    return v;
}
inline void store_shared16(uint32_t to, const Vector16 &v) {
    emulation::machine().shared().write(to, &v, 16, thread_index());
}
inline void store_shared_f32(uint32_t to, float v) {
    emulation::machine().shared().write(to, &v, 4, thread_index());
}
inline int load_shared_i32(uint32_t from) {
    const float v = load_shared_f32(from);
    int i;
    memcpy(&i, &v, 4);
    return i;
}
inline void store_shared_i32(uint32_t to, int v) {
    emulation::machine().shared().write(to, &v, 4, thread_index());
}

inline void copy_async16(uint32_t to, const void *from, bool wanted) {
    emulation::machine().copy(to, wanted ? from : nullptr);
}
inline void copy_async_commit() { emulation::machine().copy_commit(); }
template <int kPending>
void copy_async_wait() {
    emulation::machine().copy_wait(kPending);
}

template <bool kTransposed>
void load_matrix(uint32_t (&r)[4], uint32_t from) {
    struct Lane {
        uint32_t from;
        uint32_t *r;
        int thread;
    } lane{from, r, thread_index()};
    emulation::machine().warp(kTransposed ? "ldmatrix.trans" : "ldmatrix", &lane, [](void **lanes) {
        uint16_t matrix[4][8][8];
        for (int i = 0; i < 32; i++) {
            const Lane *row = static_cast<const Lane *>(lanes[i]);
            const uint8_t *at = emulation::machine().shared().read(row->from, 16, row->thread);
            memcpy(matrix[i / 8][i % 8], at, 16);
        }
        for (int i = 0; i < 32; i++) {
            uint32_t *to = static_cast<Lane *>(lanes[i])->r;
            for (int m = 0; m < 4; m++) {
                const int row = i / 4, column = i % 4 * 2;
                const uint32_t low =
                    kTransposed ? matrix[m][column][row] : matrix[m][row][column];
                const uint32_t high =
                    kTransposed ? matrix[m][column + 1][row] : matrix[m][row][column + 1];
                to[m] = low | high << 16;
            }
        }
    });
}
inline void load_matrix4(uint32_t (&r)[4], uint32_t from) { load_matrix<false>(r, from); }
inline void load_matrix4_transposed(uint32_t (&r)[4], uint32_t from) {
    load_matrix<true>(r, from);
}

inline float exp2_fast(float x) { return exp2f(x); }
inline float log2_fast(float x) { return log2f(x); }
inline float reciprocal_fast(float x) { return 1.0f / x; }
constexpr bool kNarrowsE4M3 = false;
inline uint32_t narrow_sizes(float, float) { return 0; }
inline uint32_t multiply_high(uint32_t a, uint32_t b) {
    return static_cast<uint32_t>(static_cast<uint64_t>(a) * b >> 32);
}
inline float bits_to_float(uint32_t bits) {
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
inline uint32_t float_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}
template <uint32_t kSelector>
uint32_t permute_bytes(uint32_t a, uint32_t b) {
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t which = kSelector >> (4 * i) & 7;
        result |= static_cast<uint32_t>(bytes >> (8 * which) & 0xff) << (8 * i);
    }
    return result;
}

// What the matrix instruction does: 16 x 16 times 16 x 8, sums in f32.
template <class Number>
void multiply_add_matrices(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    struct Lane {
        float *c;
        const uint32_t *a;
        uint32_t b[2];
    } lane{c, a, {b0, b1}};
    emulation::machine().warp("mma", &lane, [](void **lanes) {
        float left[16][16], right[8][16];
        for (int i = 0; i < 32; i++) {
            const Lane *from = static_cast<const Lane *>(lanes[i]);
            const int group = i / 4, pair = i % 4 * 2;
            for (int r = 0; r < 4; r++) {
                const int row = group + r % 2 * 8, column = pair + r / 2 * 8;
                left[row][column] = Number::low(from->a[r]);
                left[row][column + 1] = Number::high(from->a[r]);
            }
            for (int r = 0; r < 2; r++) {
                right[group][pair + r * 8] = Number::low(from->b[r]);
                right[group][pair + r * 8 + 1] = Number::high(from->b[r]);
            }
        }
        for (int i = 0; i < 32; i++) {
            float *sums = static_cast<Lane *>(lanes[i])->c;
            for (int e = 0; e < 4; e++) {
                const int row = i / 4 + e / 2 * 8, column = i % 4 * 2 + e % 2;
                float sum = sums[e];
                for (int k = 0; k < 16; k++) {
                    sum += left[row][k] * right[column][k];
                }
                sums[e] = sum;
            }
        }
    });
}

struct Bf16 {
    static uint32_t round(float value) {
        const uint32_t bits = float_to_bits(value);
        if ((bits & 0x7fffffffu) > 0x7f800000u) {
            return 0x7fff;
        }
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
    static uint32_t pack(float low, float high) { return round(low) | round(high) << 16; }
    static float low(uint32_t pair) { return bits_to_float(pair << 16); }
    static float high(uint32_t pair) { return bits_to_float(pair & 0xffff0000u); }
    static uint32_t multiply(uint32_t a, uint32_t b) {
        return pack(low(a) * low(b), high(a) * high(b));
    }
    static void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        multiply_add_matrices<Bf16>(c, a, b0, b1);
    }
};

struct F16 {
    static float widen(uint32_t half) {
        const uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
        float size;
        if (exponent == 0x1f) {
            size = mantissa != 0 ? NAN : kInfinity;
        } else if (exponent == 0) {
            size = ldexpf(static_cast<float>(mantissa), -24);
        } else {
            size = ldexpf(static_cast<float>(mantissa + 1024), static_cast<int>(exponent) - 25);
        }
        return (half & 0x8000) != 0 ? -size : size;
    }
    static uint32_t round(float value) {
        const uint32_t sign = float_to_bits(value) >> 16 & 0x8000;
        const float size = fabsf(value);
        if (size != size) {
            return 0x7fff;
        }
        if (size >= 65520.0f) {
            return sign | 0x7c00;
        }
        int exponent = 0;
        frexpf(size, &exponent);
        // The last place: 2^-24 for subnormal numbers, eleven bits otherwise.
        const int place = exponent - 11 < -24 ? -24 : exponent - 11;
        const float units = nearbyintf(ldexpf(size, -place));
        const float rounded = ldexpf(units, place);
        if (rounded == 0.0f) {
            return sign;
        }
        if (place == -24 && units < 1024.0f) {
            return sign | static_cast<uint32_t>(units);
        }
        frexpf(rounded, &exponent);
        const auto mantissa = static_cast<uint32_t>(ldexpf(rounded, 11 - exponent)) - 1024;
        return sign | static_cast<uint32_t>(exponent + 14) << 10 | mantissa;
    }
    static uint32_t pack(float low, float high) { return round(low) | round(high) << 16; }
    static float low(uint32_t pair) { return widen(pair & 0xffff); }
    static float high(uint32_t pair) { return widen(pair >> 16); }
    static uint32_t multiply(uint32_t a, uint32_t b) {
        return pack(low(a) * low(b), high(a) * high(b));
    }
    static void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        multiply_add_matrices<F16>(c, a, b0, b1);
    }
};

} // namespace rkv
