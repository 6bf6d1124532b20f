//! Long lists that a call has done with. They go back to the system when nobody waits for the lock:
//! it takes that as long as to give them, some 60 us for 512 KiB.

/// Lists that wait at most: those of one call. More go at once.
const LISTS: usize = 4;
/// Entries of a list that is long.
const LONG: usize = 8192;

#[derive(Debug, Default)]
pub(crate) struct Discarded {
    lists: [Vec<u32>; LISTS],
    count: usize,
}

impl Discarded {
    /// Takes a list that is not needed any more.
    pub fn put(&mut self, list: Vec<u32>) {
        if list.capacity() > LONG && self.count < LISTS {
            self.lists[self.count] = list;
            self.count += 1;
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Those that wait, to be dropped.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}
