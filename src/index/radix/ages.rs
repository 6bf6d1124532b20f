//! When the parts of a segment were used last.
//!
//! Usually all at once, and then the node's own time says it. Where nodes were merged, or a
//! sequence made its node longer, the front was used earlier than the end. Eviction must still see
//! that: once the end is gone, the front takes its turn by its own time.
use crate::grace::Array;
use crate::memory::OutOfMemory;

/// Pages of a segment up to `end` were used last at a time. The time is in two halves, so that this
/// takes 12 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age {
    pub(super) end: u32,
    time: [u32; 2],
}

impl Age {
    fn new(end: usize, time: u64) -> Self {
        Self { end: end as u32, time: [time as u32, (time >> 32) as u32] }
    }

    pub(super) fn time(self) -> u64 {
        u64::from(self.time[1]) << 32 | u64::from(self.time[0])
    }
}

/// The parts of a segment before its last one, from the front; each was used before the next.
/// No reader sees them: it is an array since that takes one word in the node.
#[derive(Debug, Default)]
pub(super) struct Ages(Option<Array<Age>>);

impl Ages {
    pub(super) fn parts(&self) -> &[Age] {
        self.0.as_deref().unwrap_or(&[])
    }

    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, Array::bytes)
    }

    /// The whole segment was used at once. Returns how much memory that freed.
    #[inline]
    pub(super) fn clear(&mut self) -> usize {
        self.0.take().map_or(0, |parts| parts.bytes())
    }

    fn with_room(parts: &[Age], room: usize) -> Result<Self, OutOfMemory> {
        if room == 0 {
            return Ok(Self(None));
        }
        let mut made = Array::with_capacity(room)?;
        made.extend_from_slice(parts);
        Ok(Self(Some(made)))
    }

    /// Makes room for a part more.
    pub(super) fn try_reserve(&mut self) -> Result<(), OutOfMemory> {
        let (len, capacity) = (self.parts().len(), self.0.as_ref().map_or(0, Array::capacity));
        if len == capacity {
            *self = Self::with_room(self.parts(), (len + len / 4 + 1).max(4))?;
        }
        Ok(())
    }

    /// What follows the first `end` pages, which end with a part of `time`, is used later. Room was
    /// made for it.
    pub(super) fn push(&mut self, end: usize, time: u64) {
        let parts = self.0.as_mut().expect("room was made for the part");
        parts.push(Age::new(end, time));
    }

    /// Keeps the first parts.
    fn truncate(&mut self, count: usize) {
        match &mut self.0 {
            Some(parts) if count > 0 => parts.truncate(count),
            _ => self.0 = None,
        }
    }

    /// Forgets the last part: the one after it is gone.
    pub(super) fn pop(&mut self) {
        self.truncate(self.parts().len().saturating_sub(1));
    }

    /// The parts that the first `count` pages have before their last one.
    pub(super) fn front(&self, count: usize) -> Result<Self, OutOfMemory> {
        let front = self.parts().partition_point(|part| (part.end as usize) < count);
        Self::with_room(&self.parts()[..front], front)
    }

    /// Cuts off the first `count` pages. Returns the time of the last of them, if that is not the
    /// segment's own.
    pub(super) fn drop_front(&mut self, count: usize) -> Option<u64> {
        let find = |wanted: &dyn Fn(usize) -> bool| {
            self.parts().partition_point(|part| !wanted(part.end as usize))
        };
        let (last, rest) = (find(&|end| end >= count), find(&|end| end > count));
        let time = self.parts().get(last).map(|part| part.time());
        let left = self.parts().len() - rest;
        if let Some(parts) = &mut self.0 {
            let (_, parts) = parts.hidden_mut();
            parts.copy_within(rest.., 0);
            parts[..left].iter_mut().for_each(|part| part.end -= count as u32);
        }
        self.truncate(left);
        time
    }

    /// The parts of a segment of `len` pages, whose last part is of `time`, and of one behind it,
    /// whose first part is of `own`, no earlier.
    pub(super) fn joined(
        front: &Self,
        (len, time): (usize, u64),
        behind: &Self,
        own: u64,
    ) -> Result<Self, OutOfMemory> {
        let (front, behind) = (front.parts(), behind.parts());
        let count = front.len() + (time < own) as usize + behind.len();
        let mut joined = Self::with_room(front, count)?;
        if time < own {
            joined.push(len, time);
        }
        behind.iter().for_each(|part| joined.push(part.end as usize + len, part.time()));
        Ok(joined)
    }
}
