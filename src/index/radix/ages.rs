//! When the parts of a segment were used last.
//!
//! Usually all at once, and then the node's own time says it. Where nodes were merged, or a
//! sequence made its node longer, the front was used earlier than the end. Eviction must still see
//! that: once the end is gone, the front takes its turn by its own time.

/// Pages of a segment up to `end` were used last at `time`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age {
    pub(super) end: u32,
    pub(super) time: u64,
}

/// The parts of a segment before its last one, from the front; each was used before the next.
/// Boxed, since few nodes have any.
#[derive(Debug, Default)]
#[allow(clippy::box_collection)]
pub(super) struct Ages(Option<Box<Vec<Age>>>);

impl Ages {
    pub(super) fn parts(&self) -> &[Age] {
        self.0.as_ref().map_or(&[], |parts| parts)
    }

    fn from_parts(parts: Vec<Age>) -> Self {
        Self((!parts.is_empty()).then(|| Box::new(parts)))
    }

    /// The whole segment was used at once.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// What follows the first `end` pages, which end with a part of `time`, is used later.
    pub(super) fn push(&mut self, end: usize, time: u64) {
        self.0.get_or_insert_default().push(Age { end: end as u32, time });
    }

    /// Forgets the last part: the one after it is gone.
    pub(super) fn pop(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.pop();
        }
        if self.parts().is_empty() {
            self.clear();
        }
    }

    /// Cuts off the first `count` pages: their parts, and the time of the last of them, if that is
    /// not the segment's own.
    pub(super) fn split_front(&mut self, count: usize) -> (Self, Option<u64>) {
        let count = count as u32;
        let Some(parts) = self.0.take() else {
            return (Self(None), None);
        };
        let front: Vec<_> = parts.iter().copied().filter(|part| part.end < count).collect();
        let last = parts.iter().find(|part| part.end >= count).map(|part| part.time);
        let rest = parts.iter().filter(|part| part.end > count);
        let rest = rest.map(|part| Age { end: part.end - count, ..*part }).collect();
        *self = Self::from_parts(rest);
        (Self::from_parts(front), last)
    }

    /// Puts a segment of `len` pages in front, whose last part is of `time`; this one's first part
    /// is of `own`, no earlier.
    pub(super) fn prepend(&mut self, front: Self, len: usize, time: u64, own: u64) {
        let mut parts = front.parts().to_vec();
        if time < own {
            parts.push(Age { end: len as u32, time });
        }
        let moved = |part: &Age| Age { end: part.end + len as u32, ..*part };
        parts.extend(self.parts().iter().map(moved));
        *self = Self::from_parts(parts);
    }
}
