/**
 * @file spatial.hpp
 * @brief Coordinates and sizes as bins, for models that point at things: radixkv_spatial.h.
 */

#ifndef RADIXKV_SPATIAL_HPP
#define RADIXKV_SPATIAL_HPP

#include "../radixkv_spatial.h"
#include "span.hpp"

#include <cstdint>

namespace rkv {

/// rkv_coord_bin().
[[nodiscard]] inline std::uint32_t coord_bin(double value) {
    std::uint32_t bin = 0;
    check(rkv_coord_bin(value, &bin));
    return bin;
}

/// rkv_coord_value().
[[nodiscard]] inline double coord_value(std::uint32_t bin) {
    double value = 0;
    check(rkv_coord_value(bin, &value));
    return value;
}

/// rkv_size_bin().
[[nodiscard]] inline std::uint32_t size_bin(double value) {
    std::uint32_t bin = 0;
    check(rkv_size_bin(value, &bin));
    return bin;
}

/// rkv_size_value().
[[nodiscard]] inline double size_value(std::uint32_t bin) {
    double value = 0;
    check(rkv_size_value(bin, &value));
    return value;
}

/// What spatial_decode() found.
struct SpatialValue {
    std::uint32_t bin = 0;
    double value = 0;
};

/// rkv_spatial_decode(); kind is RKV_TOKEN_COORD or RKV_TOKEN_SIZE.
[[nodiscard]] inline SpatialValue spatial_decode(std::uint32_t kind, span<const float> logits) {
    SpatialValue out;
    check(rkv_spatial_decode(kind, logits.data(), logits.size(), &out.bin, &out.value));
    return out;
}

}  // namespace rkv

#endif  // RADIXKV_SPATIAL_HPP
