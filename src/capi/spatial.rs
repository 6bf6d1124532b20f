//! Coordinates and sizes, as models that point at things speak of them: how values become bins, and
//! bins values. A header of its own.
use crate::capi::ffi::{guard, out, put, rkv_status, slice};
use crate::capi::token::{RKV_TOKEN_COORD, RKV_TOKEN_SIZE};
use crate::error::Error;
use crate::error::text;
use crate::token::bins;

/// Bins of a coordinate, a width or a height.
pub const RKV_BIN_COUNT: u32 = 1024;

/// Bin of a coordinate: 1024 bins, evenly spaced over [0, 1], ends included.
///
/// @param value in [0, 1]
/// @param out_bin receives the nearest bin
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT for NaN, infinities and values outside
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_coord_bin(value: f64, out_bin: *mut u32) -> rkv_status {
    // SAFETY: the caller's contract on out_bin.
    guard(|| unsafe { put(bins::coord_bin(value)?, out_bin, "out_bin") })
}

/// Value of a coordinate bin. rkv_coord_bin() of it is the bin again.
///
/// @param bin below RKV_BIN_COUNT
/// @param out_value receives bin / 1023
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_coord_value(bin: u32, out_value: *mut f64) -> rkv_status {
    // SAFETY: the caller's contract on out_value.
    guard(|| unsafe { put(bins::coord_value(bin)?, out_value, "out_value") })
}

/// Bin of a width or a height: 1024 bins, exponentially spaced over [2^-10, 1], ends included.
///
/// @param value in [2^-10, 1]
/// @param out_bin receives the bin that is nearest on the logarithmic scale
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT for NaN, infinities and values outside
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_size_bin(value: f64, out_bin: *mut u32) -> rkv_status {
    // SAFETY: the caller's contract on out_bin.
    guard(|| unsafe { put(bins::size_bin(value)?, out_bin, "out_bin") })
}

/// Value of a width or height bin. rkv_size_bin() of it is the bin again.
///
/// @param bin below RKV_BIN_COUNT
/// @param out_value receives 2^(10 * bin / 1023 - 10)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread, any time
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_size_value(bin: u32, out_value: *mut f64) -> rkv_status {
    // SAFETY: the caller's contract on out_value.
    guard(|| unsafe { put(bins::size_value(bin)?, out_value, "out_value") })
}

/// The most likely bin of a coordinate or a size, from a model's logits, and its value.
///
/// @param kind RKV_TOKEN_COORD, or RKV_TOKEN_SIZE for a width or a height
/// @param logits logit_count logits, one for each bin; of equal ones the first counts
/// @param logit_count RKV_BIN_COUNT
/// @param out_bin receives the bin
/// @param out_value receives rkv_coord_value() or rkv_size_value() of it; NULL when not wanted
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT, also for a logit that is NaN
/// @par Cost
/// O(logit_count); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_spatial_decode(
    kind: u32,
    logits: *const f32,
    logit_count: usize,
    out_bin: *mut u32,
    out_value: *mut f64,
) -> rkv_status {
    // SAFETY: the caller's contract on logits, out_bin and out_value.
    guard(|| unsafe {
        let value_of = match kind {
            RKV_TOKEN_COORD => bins::coord_value,
            RKV_TOKEN_SIZE => bins::size_value,
            other => {
                return Err(Error::argument(text!("kind {other} has no bins to decode")).into());
            }
        };
        let bin = bins::most_likely(slice(logits, logit_count, "logits")?)?;
        let value = value_of(bin)?;
        if !out_value.is_null() {
            out(out_value, "out_value")?;
        }
        put(bin, out_bin, "out_bin")?;
        if !out_value.is_null() {
            put(value, out_value, "out_value")?;
        }
        Ok(())
    })
}
