//! OCP 8-bit floating point, format E4M3: a sign, 4 bits of exponent (bias 7), 3 of mantissa.
//!
//! There are no infinities: the largest number is 448, and the pattern after it is NaN.

/// The largest number.
const E4M3_MAX: f32 = 448.0;

const NAN: u8 = 0x7f;
/// 2^-6, the smallest normal number.
const SMALLEST_NORMAL: f32 = 1.0 / 64.0;

/// The number that a byte stands for.
pub fn e4m3_to_f32(byte: u8) -> f32 {
    let sign = u32::from(byte & 0x80) << 24;
    let magnitude = byte & NAN;
    let bits = match magnitude {
        NAN => f32::NAN.to_bits(),
        // Subnormal: multiples of 2^-9.
        0..8 => (f32::from(magnitude) / 512.0).to_bits(),
        _ => (u32::from(magnitude) << 20) + (120 << 23),
    };
    f32::from_bits(bits | sign)
}

/// The nearest number, ties to even; what is too large, infinities included, becomes ±448.
pub fn e4m3_from_f32(value: f32) -> u8 {
    let sign = (value.to_bits() >> 24) as u8 & 0x80;
    let magnitude = value.abs();
    let byte = if magnitude.is_nan() {
        NAN
    } else if magnitude >= E4M3_MAX {
        NAN - 1
    } else if magnitude < SMALLEST_NORMAL {
        // 2^14 has 2^-9 as its last place, so the sum rounds as a subnormal does; 8 is 2^-6.
        ((magnitude + 16384.0).to_bits() - 16384f32.to_bits()) as u8
    } else {
        let bits = magnitude.to_bits();
        let even = (bits >> 20) & 1;
        (((bits + 0x7_ffff + even) >> 20) - (120 << 3)) as u8
    };
    byte | sign
}
