//! Where a piece of a record lies among the parts of a source or a target.
use crate::memory::{OutOfMemory, TryGrow};
use std::ops::Range;

/// Where each part ends, counted from the start of the record.
#[derive(Debug)]
pub(super) struct Parts(Vec<u64>);

/// What a piece and a part have in common.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    pub part: usize,
    pub in_part: Range<usize>,
    pub in_piece: Range<usize>,
}

impl Parts {
    pub fn new(lengths: impl ExactSizeIterator<Item = usize>) -> Result<Self, OutOfMemory> {
        let mut ends = Vec::new();
        let mut end = 0;
        ends.try_extend(lengths.map(|length| {
            end += length as u64;
            end
        }))?;
        Ok(Self(ends))
    }

    pub fn bytes(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }

    /// Those of a piece.
    pub fn overlaps(&self, at: u64, bytes: usize) -> impl Iterator<Item = Overlap> {
        let end = at + bytes as u64;
        let first = self.0.partition_point(|&part_end| part_end <= at);
        let last = self.0.partition_point(|&part_end| part_end < end);
        let range = first..(last + 1).min(self.0.len());
        range.filter_map(move |part| {
            let start = if part == 0 { 0 } else { self.0[part - 1] };
            let (from, to) = (at.max(start), end.min(self.0[part]));
            (from < to).then(|| Overlap {
                part,
                in_part: (from - start) as usize..(to - start) as usize,
                in_piece: (from - at) as usize..(to - at) as usize,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Parts;

    #[test]
    fn a_piece_is_made_of_the_parts_it_overlaps() {
        let lengths = [3, 0, 0, 5, 1, 0, 7, 0];
        let parts = Parts::new(lengths.into_iter()).unwrap();
        assert_eq!(parts.bytes(), 16);
        let whole: Vec<(usize, usize)> = lengths
            .iter()
            .enumerate()
            .flat_map(|(part, &length)| (0..length).map(move |at| (part, at)))
            .collect();
        for at in 0..16 {
            for bytes in 1..=16 - at {
                let mut seen = Vec::new();
                for overlap in parts.overlaps(at as u64, bytes) {
                    assert_eq!(overlap.in_piece.start, seen.len());
                    seen.extend(overlap.in_part.map(|at| (overlap.part, at)));
                    assert_eq!(overlap.in_piece.end, seen.len());
                }
                assert_eq!(seen, whole[at..at + bytes]);
            }
        }
    }
}
