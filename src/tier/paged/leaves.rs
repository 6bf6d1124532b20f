//! Records with nothing after them at a level, by when they were used.
use crate::memory::{OrderedMap, OutOfMemory};

#[derive(Debug, Default)]
pub(super) struct Leaves(OrderedMap<(u64, u32), ()>);

impl Leaves {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub fn try_reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.0.try_reserve(count)
    }

    /// Room was made, unless a page goes before those after it: then without memory nobody finds
    /// what stands before it to give it up, until something comes after that again.
    pub fn add(&mut self, used: u64, at: u32) {
        let _ = self.0.try_insert((used, at), ());
    }

    pub fn remove(&mut self, used: u64, at: u32) {
        self.0.remove(&(used, at));
    }

    pub fn move_to(&mut self, used: u64, at: u32, now: u64) {
        if self.0.remove(&(used, at)).is_some() {
            self.0.insert((now, at), ());
        }
    }

    pub fn has(&self, used: u64, at: u32) -> bool {
        self.0.get(&(used, at)).is_some()
    }

    /// First the one that was used longest ago.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|(&(_, at), ())| at)
    }
}
