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

RKV_DEVICE Item read_item(const Item *from) {
    const Vector16 *words = reinterpret_cast<const Vector16 *>(from);
    const Vector16 a = load_global(words), b = load_global(words + 1);
    return {static_cast<int>(a.x[0]), static_cast<int>(a.x[1]), static_cast<int>(a.x[2]),
            static_cast<int>(a.x[3]), static_cast<int>(b.x[0]), static_cast<int>(b.x[1]),
            static_cast<int>(b.x[2]), static_cast<int>(b.x[3])};
}

// Turns the logits of row `half` of a tile into weights against the new maximum, and returns the
// factor for everything that was summed before.
template <int kColumns>
RKV_DEVICE float weigh(RowState &row, float (&s)[kColumns][4], int half, float scale) {
    float largest = row.largest;
    RKV_UNROLL
    for (int n = 0; n < kColumns; n++) {
        largest = larger(larger(largest, s[n][2 * half]), s[n][2 * half + 1]);
    }
    largest = larger(largest, shuffle_xor(largest, 1));
    largest = larger(largest, shuffle_xor(largest, 2));
    // A row that saw nothing yet has -infinity, which must not meet itself in a subtraction.
    const float base = largest == -kInfinity ? 0.0f : largest * scale;
    const float rescale = exp2_fast(row.largest * scale - base);
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
