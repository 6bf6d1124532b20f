//! Which state was saved before which, along a prefix: so that nobody walks it to find those of
//! which there are too many.
//!
//! A link stands at the page of group 0 on which a state hangs, and says the place of the one
//! before. It stays good when that one goes: its page of group 0 stays for as long as this one
//! does, and has a link of its own to go on with.
use super::{GroupKind, Groups};
use crate::memory::{OutOfMemory, TryGrow, try_touched_zeros};

/// States that a path keeps at most, if there is a limit.
pub(crate) const CHECKPOINT_LIMIT_MAX: u32 = 512;

/// The states of a path, each with a link to the one before it.
#[derive(Debug, Default)]
pub struct SavedStates {
    limit: usize,
    /// By group and page of group 0: one more than the place of the state before; 0 for none.
    /// Empty of groups that are no STATE group.
    before: Vec<Vec<u32>>,
}

impl SavedStates {
    /// None is saved yet, on so many pages of group 0. Without a limit nobody asks, and nothing is
    /// written down.
    pub fn new(groups: &Groups, limit: usize, spine_pages: usize) -> Result<Self, OutOfMemory> {
        let mut before = Vec::new();
        for group in groups.list().iter().filter(|_| limit > 0) {
            let is_state = group.kind == GroupKind::State;
            before.try_push(try_touched_zeros(if is_state { spine_pages } else { 0 })?)?;
        }
        Ok(Self { limit, before })
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        let links: usize = self.before.iter().map(Vec::capacity).sum();
        links * size_of::<u32>() + self.before.capacity() * size_of::<Vec<u32>>()
    }

    /// States that a path keeps at most, but for those where others leave it; 0 for any number.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The place of the state before the one that hangs, or hung, on a page of group 0.
    pub fn before(&self, group: usize, spine: u32) -> Option<usize> {
        (self.before[group][spine as usize] as usize).checked_sub(1)
    }

    /// Says that.
    pub fn follow(&mut self, group: usize, spine: u32, before: Option<usize>) {
        if self.limit > 0 {
            self.before[group][spine as usize] = before.map_or(0, |place| place as u32 + 1);
        }
    }
}
