//! What was taken out of links and waits for its last readers.
use super::Present;
use crate::sync::{limit, yield_now};
use std::ptr::NonNull;

/// When to look who reads: after so many retired arrays, or bytes.
const COUNT_LIMIT: usize = limit(16, 1);
const BYTES_LIMIT: usize = 1 << 14;
/// Arrays freed at a time, and bytes beyond which it is fewer, since to free an array of links
/// takes as long as it has links: nobody who writes is to be held up by what others left.
const FREED_AT_ONCE: usize = 8;
const BYTES_AT_ONCE: usize = 1 << 12;

/// A reference that a link had.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) memory: NonNull<()>,
    /// Gives the reference back; to be called once, when nobody reads the memory through it.
    pub(super) release: unsafe fn(NonNull<()>),
    pub(super) bytes: usize,
}

// SAFETY: only arrays of what is Send and Sync are retired.
unsafe impl Send for Retired {}
// SAFETY: a shared Retired is of no use.
unsafe impl Sync for Retired {}

impl Retired {
    fn free(self) {
        // SAFETY: every reader who could have found the memory has left, and this is the only
        // call, since it takes the Retired.
        unsafe { (self.release)(self.memory) }
    }
}

/// What was taken out of links by one owner.
#[derive(Debug, Default)]
pub struct Garbage {
    /// Retired since the last look.
    new: Vec<Retired>,
    new_bytes: usize,
    /// Retired before the last look, at which `present` were there.
    waiting: Vec<Retired>,
    present: Present,
    /// Nobody reads these any more.
    free: Vec<Retired>,
    bytes: usize,
    /// How many are new at the next look.
    next_look: usize,
}

impl Garbage {
    /// Bytes that wait, and those of the lists.
    pub fn bytes(&self) -> usize {
        let room = self.new.capacity() + self.waiting.capacity() + self.free.capacity();
        self.bytes + room * size_of::<Retired>()
    }

    /// Needs no memory that there may not be: without room in the list it waits for the readers.
    pub(super) fn retire(&mut self, retired: Retired) {
        if self.new.try_reserve(1).is_err() {
            self.flush();
            // There is room now, unless there never was any.
            if self.new.capacity() == 0 {
                let mut last = Present::default();
                last.look();
                wait_until(|| last.have_left());
                return retired.free();
            }
        }
        let enough = BYTES_AT_ONCE.max(retired.bytes);
        self.new_bytes += retired.bytes;
        self.bytes += retired.bytes;
        self.new.push(retired);
        if self.new.len() >= self.next_look.max(COUNT_LIMIT) || self.new_bytes >= BYTES_LIMIT {
            self.look();
        }
        let mut freed = 0;
        for _ in 0..FREED_AT_ONCE {
            if freed >= enough {
                return;
            }
            let Some(retired) = self.free.pop() else {
                return;
            };
            freed += retired.bytes;
            self.bytes -= retired.bytes;
            retired.free();
        }
    }

    /// Moves on what nobody can read.
    fn look(&mut self) {
        self.new_bytes = 0;
        self.next_look = self.new.len() + COUNT_LIMIT;
        if !self.present.have_left() || !self.free_waiting() {
            return;
        }
        std::mem::swap(&mut self.waiting, &mut self.new);
        self.next_look = 0;
        self.present.look();
        if self.present.is_empty() {
            self.free_waiting();
        }
    }

    /// Moves what waits to what is free; false when there is no room for that.
    fn free_waiting(&mut self) -> bool {
        if self.free.is_empty() {
            std::mem::swap(&mut self.free, &mut self.waiting);
            return true;
        }
        let room = self.free.try_reserve(self.waiting.len()).is_ok();
        if room {
            self.free.append(&mut self.waiting);
        }
        room
    }

    /// Frees everything. Waits for the readers that are there; they are gone in a microsecond,
    /// unless they are suspended.
    fn flush(&mut self) {
        // Who came before this look is the only one who could have found anything of it.
        self.present.look();
        wait_until(|| self.present.have_left());
        for list in [&mut self.new, &mut self.waiting, &mut self.free] {
            list.drain(..).for_each(Retired::free);
        }
        (self.new_bytes, self.bytes, self.next_look) = (0, 0, 0);
    }
}

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        yield_now();
    }
}

impl Drop for Garbage {
    fn drop(&mut self) {
        // Without any there is nobody to wait for.
        if [&self.new, &self.waiting, &self.free].iter().any(|list| !list.is_empty()) {
            self.flush();
        }
    }
}
