//! Bytes of many owners in one block: a block for each would be found, and given back, by itself.
use super::{Arc, OutOfMemory};
use std::fmt;
use std::ops::{Deref, Range};

/// Some bytes of a block, which lives as long as any of them have an owner.
#[derive(Clone, Default)]
pub struct SharedBytes {
    /// None of no bytes.
    block: Option<Arc<Vec<u8>>>,
    range: Range<usize>,
}

impl SharedBytes {
    /// All of a block.
    pub fn new(block: Vec<u8>) -> Result<Self, OutOfMemory> {
        let range = 0..block.len();
        Ok(Self { block: Some(Arc::new(block)?), range })
    }

    /// Some of them, of which the block keeps all.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let within = &self[range.clone()];
        if within.is_empty() {
            return Self::default();
        }
        let start = self.range.start;
        Self { block: self.block.clone(), range: start + range.start..start + range.end }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| &block[self.range.clone()])
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lives_as_long_as_any_of_its_bytes() {
        let all = SharedBytes::new((0..=9).collect()).unwrap();
        let some = all.slice(3..7);
        assert_eq!((*some).to_vec(), [3, 4, 5, 6]);
        drop(all);
        let fewer = some.slice(1..3);
        drop(some);
        assert_eq!(*fewer, [4, 5]);
        assert_eq!(fewer, SharedBytes::new(vec![4, 5]).unwrap());
        assert!(fewer.slice(2..2).is_empty() && SharedBytes::default().is_empty());
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn no_more_than_there_is() {
        SharedBytes::new(vec![1, 2, 3]).unwrap().slice(1..2).slice(0..2);
    }
}
