//! Discretisation of coordinates and sizes into 1024 bins.
use crate::error::Error;
use crate::error::text;

/// Bins of a coordinate, a width or a height.
pub(crate) const BIN_COUNT: u32 = 1024;

const LAST: f64 = (BIN_COUNT - 1) as f64;
/// Sizes span 2^-10 to 1.
const OCTAVES: f64 = 10.0;

/// Nearest of 1024 values evenly spaced over [0, 1].
pub fn coord_bin(value: f64) -> Result<u32, Error> {
    if !(0.0..=1.0).contains(&value) {
        return Err(Error::argument(text!("value {value} is not in [0, 1]")));
    }
    Ok((value * LAST).round() as u32)
}

/// The value of a coordinate bin.
pub fn coord_value(bin: u32) -> Result<f64, Error> {
    check_bin(bin, "bin").map(|()| bin as f64 / LAST)
}

/// Nearest, by ratio, of 1024 values exponentially spaced over [2^-10, 1].
pub fn size_bin(value: f64) -> Result<u32, Error> {
    if !((-OCTAVES).exp2()..=1.0).contains(&value) {
        return Err(Error::argument(text!("value {value} is not in [2^-10, 1]")));
    }
    Ok(((value.log2() / OCTAVES + 1.0) * LAST).round() as u32)
}

/// The value of a width or height bin.
pub fn size_value(bin: u32) -> Result<f64, Error> {
    check_bin(bin, "bin").map(|()| (OCTAVES * (bin as f64 / LAST - 1.0)).exp2())
}

/// The bin with the largest logit, the first of equal ones.
pub fn most_likely(logits: &[f32]) -> Result<u32, Error> {
    if logits.len() != BIN_COUNT as usize {
        let count = logits.len();
        return Err(Error::argument(text!("logit_count {count} is not {BIN_COUNT}")));
    }
    if let Some(at) = logits.iter().position(|logit| logit.is_nan()) {
        return Err(Error::argument(text!("logits[{at}] is NaN")));
    }
    let best =
        (0..logits.len()).reduce(|best, at| if logits[at] > logits[best] { at } else { best });
    Ok(best.expect("there are bins") as u32)
}

pub(super) fn check_bin(bin: u32, name: &str) -> Result<(), Error> {
    if bin >= BIN_COUNT {
        return Err(Error::argument(text!("{name} {bin} is not below {BIN_COUNT}")));
    }
    Ok(())
}
