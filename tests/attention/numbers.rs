//! Numbers in every format.
use half::{bf16, f16};
use radixkv::attention::{Dtype, e4m3_from_f32, e4m3_to_f32};

/// The bytes of a number.
pub fn encode(value: f32, dtype: Dtype, into: &mut Vec<u8>) {
    match dtype {
        Dtype::F32 => into.extend(value.to_ne_bytes()),
        Dtype::F16 => into.extend(f16::from_f32(value).to_ne_bytes()),
        Dtype::Bf16 => into.extend(bf16::from_f32(value).to_ne_bytes()),
        Dtype::Fp8E4m3 => into.push(e4m3_from_f32(value)),
    }
}

/// The number that bytes stand for.
pub fn decode(bytes: &[u8], dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()),
        Dtype::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f32(),
        Dtype::Bf16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f32(),
        Dtype::Fp8E4m3 => e4m3_to_f32(bytes[0]),
    }
}

/// The number that is left of one in a format.
pub fn round(value: f32, dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => value,
        Dtype::F16 => f16::from_f32(value).to_f32(),
        Dtype::Bf16 => bf16::from_f32(value).to_f32(),
        Dtype::Fp8E4m3 => e4m3_to_f32(e4m3_from_f32(value)),
    }
}

/// Largest relative error of rounding to a format, for normal numbers.
pub fn rounding(dtype: Dtype) -> f64 {
    let mantissa_bits = match dtype {
        Dtype::F32 => 23,
        Dtype::F16 => 10,
        Dtype::Bf16 => 7,
        Dtype::Fp8E4m3 => 3,
    };
    0.5f64.powi(mantissa_bits + 1)
}

/// Roughly normal numbers.
pub fn normal(random: &mut fastrand::Rng) -> f32 {
    let sum: f32 = (0..6).map(|_| random.f32()).sum();
    (sum - 3.0) * std::f32::consts::SQRT_2
}
