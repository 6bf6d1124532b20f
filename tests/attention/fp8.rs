//! The format fp8 e4m3 against its definition.
use fastrand::Rng;
use radixkv::attention::{e4m3_from_f32, e4m3_to_f32};

/// What a byte means, by the words of the format.
fn meaning(byte: u8) -> f64 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
    match (exponent, byte & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * mantissa / 8.0 * 2f64.powi(-6),
        _ => sign * (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    }
}

pub fn every_byte() {
    for byte in 0..=255u8 {
        let (found, exact) = (e4m3_to_f32(byte), meaning(byte));
        assert!(f64::from(found) == exact || found.is_nan() && exact.is_nan(), "{byte:#x}");
        assert_eq!(found.is_sign_negative(), byte & 0x80 != 0, "{byte:#x}");
        assert_eq!(e4m3_from_f32(found), byte, "there and back");
    }
}

/// The nearest byte; of two, the even one; at most 448.
fn nearest(value: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = f64::from(value.abs()).min(448.0);
    let distance = |byte: u8| (meaning(byte) - size).abs();
    let closer = |a: u8, b: u8| {
        distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))).then(a.cmp(&b))
    };
    sign | (0..=0x7e).min_by(|&a, &b| closer(a, b)).unwrap()
}

pub fn rounding_and_saturation() {
    let mut values = vec![0.0, -0.0, 448.0, 464.0, 465.0, 1e30, f32::MAX, f32::INFINITY, 1e-40];
    // Each number, each middle between two, and what is next to both.
    for byte in 0..0x7eu8 {
        let (low, high) = (e4m3_to_f32(byte), e4m3_to_f32(byte + 1));
        for value in [low, (low + high) / 2.0] {
            values.extend([value, value.next_up(), value.next_down()]);
        }
    }
    let mut random = Rng::with_seed(8);
    values.extend((0..20_000).map(|_| f32::from_bits(random.u32(0..0x7f80_0000))));
    values.extend((0..20_000).map(|_| random.f32() * 500.0));
    for value in values.into_iter().flat_map(|value| [value, -value]) {
        assert_eq!(e4m3_from_f32(value), nearest(value), "{value:e}");
    }
    assert_eq!(e4m3_from_f32(f32::NAN), 0x7f);
    assert_eq!(e4m3_from_f32(-f32::NAN), 0xff);
    assert_eq!(e4m3_from_f32(f32::from_bits(0x7f80_0001)), 0x7f);
}
