//! Functions of vectors. The polynomials are least-maximum fits, coefficients rounded to f32.
use super::Simd;
use std::f32::consts::{LN_2, LOG2_E};

/// 1.5 * 2^23, whose last place is 1, plus the bias of an exponent: adding it rounds a number to an
/// integer and leaves the biased integer in the low bits.
const ROUND: f32 = 12_582_912.0 + 127.0;
/// (2^f - 1) / f for |f| <= 1/2; relative error of 2^f: 2.0e-9.
const EXP2: [f32; 6] =
    [LN_2, 0.240_226_48, 0.055_503_324, 0.009_618_437, 0.001_339_887_5, 0.000_153_533_6];

/// 2^x for x <= 127; 0 below -127, exactly 1 at 0.
#[inline(always)]
pub(in crate::cpu) fn exp2<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    // -127 becomes the factor 0. NaN stays: max returns its second argument then.
    let x = simd.max(simd.splat(-127.0), x);
    let biased = simd.add(x, simd.splat(ROUND));
    let fraction = simd.sub(x, simd.sub(biased, simd.splat(ROUND)));
    let mut power = simd.splat(EXP2[5]);
    let mut at = 5;
    while at > 0 {
        at -= 1;
        power = simd.fma(power, fraction, simd.splat(EXP2[at]));
    }
    power = simd.fma(power, fraction, simd.splat(1.0));
    simd.mul(power, simd.low_bits_as_exponent(biased))
}

/// The same for one number, with the same bits.
#[inline(always)]
pub(in crate::cpu) fn exp2_one<S: Simd>(simd: S, x: f32) -> f32 {
    simd.largest(exp2(simd, simd.splat(x)))
}

/// tanh(x) / x - 1 over x^2 for |x| < 0.625; relative error of tanh: 4e-9.
const TANH: [f32; 5] = [-0.333_332_84, 0.133_314_9, -0.053_743_497, 0.020_650_579, -0.005_717_037];

/// The hyperbolic tangent.
#[inline(always)]
pub(in crate::cpu) fn tanh<S: Simd>(simd: S, x: S::Vector) -> S::Vector {
    let size = simd.abs(x);
    let one = simd.splat(1.0);
    let power = exp2(simd, simd.mul(size, simd.splat(-2.0 * LOG2_E)));
    let large = simd.div(simd.sub(one, power), simd.add(one, power));
    let square = simd.mul(size, size);
    let mut small = simd.splat(TANH[4]);
    let mut at = 4;
    while at > 0 {
        at -= 1;
        small = simd.fma(small, square, simd.splat(TANH[at]));
    }
    small = simd.fma(simd.mul(small, square), size, size);
    simd.copy_sign(simd.if_less(size, simd.splat(0.625), small, large), x)
}
