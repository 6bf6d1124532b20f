//! How far a result may be from the exact one.
//!
//! Numbers go in as they are stored, so the error has two sources. Rounding the result to its
//! format: a relative error of half a unit in the last place. Computing in f32: a logit, a sum of
//! products, errs by a few units of 2^-24 of the sum of the products' sizes; an error of e in the
//! logits moves the result, a mean of values, by at most 2e times the largest value.
use super::numbers::rounding;
use radixkv::attention::Dtype;

/// Units of 2^-24 by which a sum of products in f32 may err here, relative to the sum of their
/// sizes.
const UNITS: f64 = 16.0;

/// What limits the error of one query head.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Largest sum |q k| * scale over the keys.
    pub logit: f64,
    /// Largest value.
    pub value: f64,
}

impl Sizes {
    pub fn logit_error(&self) -> f64 {
        UNITS * 0.5f64.powi(24) * (1.0 + self.logit)
    }
}

pub fn check_out(
    found: &[f32],
    exact: &[f64],
    sizes: Sizes,
    dtype: Dtype,
    what: &dyn Fn() -> String,
) {
    for (at, (&found, &exact)) in found.iter().zip(exact).enumerate() {
        let tolerance = rounding(dtype) * exact.abs() * 1.01 + sizes.logit_error() * sizes.value;
        // Written so that NaN fails.
        let near = (f64::from(found) - exact).abs() <= tolerance;
        assert!(near, "{}, element {at}: {found} not {exact}, {tolerance:e} allowed", what());
    }
}

pub fn check_lse(found: f32, exact: f64, sizes: Sizes, what: &dyn Fn() -> String) {
    let tolerance = sizes.logit_error() + rounding(Dtype::F32) * exact.abs();
    let near = (f64::from(found) - exact).abs() <= tolerance;
    assert!(near || f64::from(found) == exact, "{}: lse {found} not {exact}", what());
}
