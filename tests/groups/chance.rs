//! What decides the choices of a run: a seed, or the bytes that a fuzzer made.
use fastrand::Rng;
use std::ops::{Bound, RangeBounds};

pub enum Chance {
    Seed(Rng),
    /// Read from front to back; behind their end everything is zero.
    #[allow(dead_code)] // of the fuzz targets
    Bytes(std::vec::IntoIter<u8>),
}

impl Chance {
    pub fn of_seed(seed: u64) -> Self {
        Self::Seed(Rng::with_seed(seed))
    }

    /// Whether all bytes are read.
    #[allow(dead_code)] // of the fuzz targets
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Bytes(rest) if rest.len() == 0)
    }

    /// A number of a range that begins at or after 0 and is not empty.
    pub fn usize(&mut self, range: impl RangeBounds<usize>) -> usize {
        let rest = match self {
            Self::Seed(rng) => return rng.usize(range),
            Self::Bytes(rest) => rest,
        };
        let first = match range.start_bound() {
            Bound::Included(&first) => first,
            Bound::Excluded(&before) => before + 1,
            Bound::Unbounded => 0,
        };
        let last = match range.end_bound() {
            Bound::Included(&last) => last,
            Bound::Excluded(&behind) => behind - 1,
            Bound::Unbounded => usize::MAX,
        };
        // As few bytes as the range needs: a changed byte then changes one choice.
        let span = last - first;
        let bytes = (usize::BITS - span.leading_zeros()).div_ceil(8);
        let drawn =
            (0..bytes).fold(0, |drawn, _| drawn << 8 | usize::from(rest.next().unwrap_or(0)));
        first + if span == usize::MAX { drawn } else { drawn % (span + 1) }
    }

    pub fn u32(&mut self, range: std::ops::RangeTo<u32>) -> u32 {
        match self {
            Self::Seed(rng) => rng.u32(range),
            Self::Bytes(_) => self.usize(..range.end as usize) as u32,
        }
    }

    pub fn bool(&mut self) -> bool {
        match self {
            Self::Seed(rng) => rng.bool(),
            Self::Bytes(_) => self.usize(..2) == 1,
        }
    }
}
