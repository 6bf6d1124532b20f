// The running softmax of a row, as matrix instructions spread it: four neighbouring lanes hold it.
#pragma once
#include "numbers.cuh"

namespace rkv {

// Positions [begin, end); empty when begin >= end.
struct Range {
    int begin, end;
};

struct RowState {
    float largest = -kInfinity; // logit so far, before `scale`; after finish_sum in base 2
    float sum = 0.0f;           // of the weights, of this lane's keys; after finish_sum of all
};

RKV_DEVICE Query read_query(const Query *from) {
    const Vector16 v = load_global(reinterpret_cast<const Vector16 *>(from));
    return {static_cast<int>(v.x[0]), static_cast<int>(v.x[1]), static_cast<int>(v.x[2]),
            static_cast<int>(v.x[3])};
}

RKV_DEVICE Item item_of(const Vector16 &a, const Vector16 &b) {
    return {static_cast<int>(a.x[0]), static_cast<int>(a.x[1]), static_cast<int>(a.x[2]),
            static_cast<int>(a.x[3]), static_cast<int>(b.x[0]), static_cast<int>(b.x[1]),
            static_cast<int>(b.x[2]), static_cast<int>(b.x[3])};
}

RKV_DEVICE Item read_item(const Item *from) {
    const Vector16 *words = reinterpret_cast<const Vector16 *>(from);
    const Vector16 a = load_global(words), b = load_global(words + 1);
    return item_of(a, b);
}

// How far, in base 2, logits may outgrow the maximum that weights are against: weights stay below
// 2^8 then, and what was summed before seldom needs to be multiplied (FlashAttention-4 does so).
constexpr float kSlack = 8.0f;

// Turns the logits of row `half` of a tile into weights against a maximum, and returns the factor
// for everything that was summed before: 1 unless the maximum had to grow.
template <int kColumns>
RKV_DEVICE float weigh(RowState &row, float (&s)[kColumns][4], int half, float scale) {
    // Two chains, for one would wait for itself.
    float most[2] = {row.largest, -kInfinity};
    RKV_UNROLL
    for (int n = 0; n < kColumns; n++) {
        const float more = larger_number(s[n][2 * half], s[n][2 * half + 1]);
        most[n & 1] = larger_number(most[n & 1], more);
    }
    float largest = larger_number(most[0], most[1]);
    largest = larger_number(largest, shuffle_xor(largest, 1));
    largest = larger_number(largest, shuffle_xor(largest, 2));
    const bool grows = (largest - row.largest) * scale > kSlack;
    largest = grows ? largest : row.largest;
    // A row that saw nothing yet has -infinity, which must not meet itself in a subtraction.
    const float base = largest == -kInfinity ? 0.0f : largest * scale;
    const float rescale = grows ? exp2_fast(row.largest * scale - base) : 1.0f;
    float sum = row.sum * rescale;
    RKV_UNROLL
    for (int n = 0; n < kColumns; n++) {
        RKV_UNROLL
        for (int e = 0; e < 2; e++) {
            float &x = s[n][2 * half + e];
            x = exp2_fast(x * scale - base);
            sum += x;
        }
    }
    row.largest = largest;
    row.sum = sum;
    return rescale;
}

// Multiplies what was summed of a thread's two rows, where any lane of the warp has to.
template <int kColumns>
RKV_DEVICE void rescale_sums(float (&o)[kColumns][4], const float (&rescale)[2]) {
    RKV_UNROLL
    for (int half = 0; half < 2; half++) {
        if (fault(Fault::kNoRescale) || !any_lane(rescale[half] != 1.0f)) {
            continue;
        }
        RKV_UNROLL
        for (int n = 0; n < kColumns; n++) {
            o[n][2 * half] *= rescale[half];
            o[n][2 * half + 1] *= rescale[half];
        }
    }
}

// Sums over the lanes of the row, and brings the maximum to base 2.
RKV_DEVICE void finish_sum(RowState &row, float scale) {
    row.sum += shuffle_xor(row.sum, 1);
    row.sum += shuffle_xor(row.sum, 2);
    row.largest *= scale;
}

// A sink takes part in the denominator and has no value. Returns the factor for the sum of values,
// which is 1 unless the sink is larger than every logit.
RKV_DEVICE float add_sink(RowState &row, float sink) {
    const float logit = sink * kLog2E;
    const float largest = larger(row.largest, logit);
    if (largest == -kInfinity) {
        return 1.0f;
    }
    const float rescale = exp2_fast(row.largest - largest);
    row.sum = row.sum * rescale + exp2_fast(logit - largest);
    row.largest = largest;
    return rescale;
}

RKV_DEVICE float natural_lse(const RowState &row) {
    return row.sum > 0.0f || row.sum != row.sum
               ? (row.largest + log2_fast(row.sum)) * kLn2
               : -kInfinity;
}

RKV_DEVICE float inverse_sum(const RowState &row) {
    return row.sum == 0.0f ? 0.0f : 1.0f / row.sum;
}

} // namespace rkv
