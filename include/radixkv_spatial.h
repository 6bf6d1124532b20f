/**
 * @file radixkv_spatial.h
 * @brief Coordinates and sizes as bins, for models that point at things.
 *
 * A token of radixkv.h may be a coordinate or a size (RKV_TOKEN_COORD, RKV_TOKEN_SIZE), which it
 * names by its bin. Here is how values become bins, bins values, and logits a bin. An engine for
 * other models needs none of it. The conventions are those of radixkv.h.
 *
 * Generated from src/capi/spatial.rs by cbindgen: edit there, then run `make header`.
 */

#ifndef RADIXKV_SPATIAL_H
#define RADIXKV_SPATIAL_H



#include "radixkv.h"

/**
 * Bins of a coordinate, a width or a height.
 */
#define RKV_BIN_COUNT 1024

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Bin of a coordinate: 1024 bins, evenly spaced over [0, 1], ends included.
 *
 * @param value in [0, 1]
 * @param out_bin receives the nearest bin
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT for NaN, infinities and values outside
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API RKV_MUST_CHECK rkv_status rkv_coord_bin(double value, uint32_t *out_bin);

/**
 * Value of a coordinate bin. rkv_coord_bin() of it is the bin again.
 *
 * @param bin below RKV_BIN_COUNT
 * @param out_value receives bin / 1023
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API RKV_MUST_CHECK rkv_status rkv_coord_value(uint32_t bin, double *out_value);

/**
 * Bin of a width or a height: 1024 bins, exponentially spaced over [2^-10, 1], ends included.
 *
 * @param value in [2^-10, 1]
 * @param out_bin receives the bin that is nearest on the logarithmic scale
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT for NaN, infinities and values outside
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API RKV_MUST_CHECK rkv_status rkv_size_bin(double value, uint32_t *out_bin);

/**
 * Value of a width or height bin. rkv_size_bin() of it is the bin again.
 *
 * @param bin below RKV_BIN_COUNT
 * @param out_value receives 2^(10 * bin / 1023 - 10)
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
 * @par Cost
 * O(1); no lock
 * @par Thread safety
 * any thread, any time
 */
RKV_API RKV_MUST_CHECK rkv_status rkv_size_value(uint32_t bin, double *out_value);

/**
 * The most likely bin of a coordinate or a size, from a model's logits, and its value.
 *
 * @param kind RKV_TOKEN_COORD, or RKV_TOKEN_SIZE for a width or a height
 * @param logits logit_count logits, one for each bin; of equal ones the first counts
 * @param logit_count RKV_BIN_COUNT
 * @param out_bin receives the bin
 * @param out_value receives rkv_coord_value() or rkv_size_value() of it; NULL when not wanted
 * @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, also for a logit that is NaN
 * @par Cost
 * O(logit_count); no lock
 * @par Thread safety
 * any thread
 */
RKV_API
RKV_MUST_CHECK
rkv_status rkv_spatial_decode(uint32_t kind,
                              const float *logits,
                              size_t logit_count,
                              uint32_t *out_bin,
                              double *out_value);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RADIXKV_SPATIAL_H */
