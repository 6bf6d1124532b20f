//! Single elements in memory.
use crate::attention::{Dtype, e4m3_from_f32, e4m3_to_f32};
use half::{bf16, f16};

/// Reads element `at` behind `address`.
///
/// # Safety
/// It is readable.
pub(super) unsafe fn load(address: *const u8, dtype: Dtype, at: usize) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let address = address.add(at * dtype.bytes());
        match dtype {
            Dtype::F32 => address.cast::<f32>().read_unaligned(),
            Dtype::F16 => address.cast::<f16>().read_unaligned().to_f32(),
            Dtype::Bf16 => address.cast::<bf16>().read_unaligned().to_f32(),
            Dtype::Fp8E4m3 => e4m3_to_f32(address.read()),
        }
    }
}

/// Writes element `at` behind `address`.
///
/// # Safety
/// It is writable.
pub(super) unsafe fn store(address: *mut u8, dtype: Dtype, at: usize, value: f32) {
    // SAFETY: the caller's contract.
    unsafe {
        let address = address.add(at * dtype.bytes());
        match dtype {
            Dtype::F32 => address.cast::<f32>().write_unaligned(value),
            Dtype::F16 => address.cast::<f16>().write_unaligned(f16::from_f32(value)),
            Dtype::Bf16 => address.cast::<bf16>().write_unaligned(bf16::from_f32(value)),
            Dtype::Fp8E4m3 => address.write(e4m3_from_f32(value)),
        }
    }
}
