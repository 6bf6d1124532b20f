//! Handles that callers hold: pins on snapshots, locks on nodes. The id of each names one of them,
//! and after its release nothing, ever.
#![forbid(unsafe_code)]

mod numbers;

pub use numbers::Numbers;

use crate::error::{Error, text};
use crate::ids::{HANDLE_LIMIT, HandleId};
use crate::memory::{TryGrow, try_filled};
use numbers::Block;

/// No slot.
const NONE: u32 = u32::MAX;

/// Slots of a chunk. Chunks never move, so that no call stops to copy what others left.
const CHUNK: usize = 256;
/// Set in the number of a slot without a handle.
const FREE: u32 = 1 << 31;

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Of the handle that is in the slot, or of the next one.
    number: u32,
    /// What it is on; of a free slot, the next free one.
    at: u32,
}

/// Handles that are out, each on something that has a number.
#[derive(Debug)]
pub struct Handles {
    /// What they are, for messages.
    kind: &'static str,
    block: Block,
    /// Numbers below this were used, as far as any were.
    used: u32,
    chunks: Vec<Box<[Slot]>>,
    /// Slots that were ever in use.
    slots: u32,
    /// Slots that there may be.
    limit: u32,
    free: u32,
    out: usize,
}

impl Handles {
    /// None yet, with numbers that no other cache has or had. At most `limit` are out at once; with
    /// a limit of 0 no block is taken from those who have some.
    pub fn new(kind: &'static str, numbers: &'static Numbers, limit: u32) -> Result<Self, Error> {
        let limit = limit.min(HANDLE_LIMIT);
        let block = if limit > 0 { numbers.take(kind)? } else { Numbers::no_block() };
        let used = block.first;
        Ok(Self { kind, block, used, chunks: Vec::new(), slots: 0, limit, free: NONE, out: 0 })
    }

    /// How many are out.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Makes room for one more.
    pub fn try_reserve(&mut self) -> Result<(), Error> {
        if self.free != NONE || (self.slots as usize) < self.chunks.len() * CHUNK {
            return self.check_limit();
        }
        self.check_limit()?;
        let fresh = Slot { number: self.block.first | FREE, at: NONE };
        self.chunks.try_reserve(1).map_err(crate::memory::OutOfMemory::from)?;
        Ok(self.chunks.try_push(try_filled(fresh, CHUNK)?.into_boxed_slice())?)
    }

    fn check_limit(&self) -> Result<(), Error> {
        if self.free == NONE && self.slots >= self.limit {
            return Err(Error::state(text!(
                "{} {} are out, and the numbers of {} more are used up",
                self.out,
                self.kind,
                self.limit as usize - self.out
            )));
        }
        Ok(())
    }

    fn slot(&mut self, at: u32) -> Option<&mut Slot> {
        self.chunks.get_mut(at as usize / CHUNK)?.get_mut(at as usize % CHUNK)
    }

    /// A handle on what has a number. There must be room.
    #[inline(always)]
    pub fn take(&mut self, on: u32) -> HandleId {
        let at = self.free;
        let at = if at == NONE {
            self.slots += 1;
            self.slots - 1
        } else {
            at
        };
        let slot = self.slot(at).expect("room was made for the handle");
        let (number, next) = (slot.number & !FREE, slot.at);
        *slot = Slot { number, at: on };
        self.free = if self.free == NONE { NONE } else { next };
        self.used = self.used.max(number + 1);
        self.out += 1;
        HandleId::new(self.block.block, number, at)
    }

    /// The number of what a handle is on. None when there is no such handle.
    pub fn get(&self, handle: HandleId) -> Option<u32> {
        let at = handle.slot();
        let slot = self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)?;
        let is_out = slot.number & FREE == 0;
        let is_named = is_out && HandleId::new(self.block.block, slot.number, at) == handle;
        is_named.then_some(slot.at)
    }

    /// Puts a handle on something else; the number of what it was on. None when there is no such
    /// handle.
    pub fn move_to(&mut self, handle: HandleId, on: u32) -> Option<u32> {
        self.get(handle)?;
        let slot = self.slot(handle.slot())?;
        Some(std::mem::replace(&mut slot.at, on))
    }

    /// Ends a handle; the number of what it was on. None when there is no such handle.
    pub fn release(&mut self, handle: HandleId) -> Option<u32> {
        let (at, block) = (handle.slot(), self.block.block);
        let (free, limit) = (self.free, self.block.limit());
        let slot = self.slot(at)?;
        if slot.number & FREE != 0 || HandleId::new(block, slot.number, at) != handle {
            return None;
        }
        let Slot { number, at: on } = *slot;
        // A slot whose numbers are used up stays out of use.
        let is_worn = number + 1 >= limit;
        *slot = Slot { number: (number + 1) | FREE, at: if is_worn { NONE } else { free } };
        self.free = if is_worn { free } else { at };
        self.out -= 1;
        Some(on)
    }

    /// What each handle that is out is on.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        slots.filter(|slot| slot.number & FREE == 0).map(|slot| slot.at)
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Slot>()
            + self.chunks.capacity() * size_of::<Box<[Slot]>>()
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.block.give_back(self.used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn take(handles: &mut Handles, on: u32) -> Result<HandleId, Error> {
        handles.try_reserve()?;
        Ok(handles.take(on))
    }

    /// S05: a slot that is used again has another id; ids of other caches name nothing.
    #[test]
    fn ids_are_not_reused() {
        let mut handles = Handles::new("pins", Numbers::shared(), HANDLE_LIMIT).unwrap();
        let mut other = Handles::new("pins", Numbers::shared(), HANDLE_LIMIT).unwrap();
        let first = take(&mut handles, 7).unwrap();
        assert_eq!(handles.release(first), Some(7));
        assert_eq!(handles.get(first), None, "its slot is free");
        let second = take(&mut handles, 8).unwrap();
        assert_eq!(second.slot(), first.slot());
        let foreign = take(&mut other, 9).unwrap();
        for stale in [first, foreign, HandleId(0), HandleId(second.0 ^ 1 << 23)] {
            assert_eq!((handles.get(stale), handles.release(stale)), (None, None));
        }
        assert_eq!(handles.get(second), Some(8));
        assert_eq!((handles.out(), handles.release(second)), (1, Some(8)));
    }

    /// M07: a slot is retired when its numbers are used up, and so is a cache with its last slot.
    /// What is left of a block is for the next cache, and no id comes twice.
    #[test]
    fn m07_numbers_do_not_come_round() {
        static BLOCKS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
        static NUMBERS: Numbers = Numbers::new(&BLOCKS, 5);
        let mut seen = Vec::new();
        let mut handles = Handles::new("pins", &NUMBERS, 3).unwrap();
        assert!(Handles::new("pins", &NUMBERS, 3).is_err(), "the only block is in use");
        for _ in 0..2 {
            let out: Vec<HandleId> = (0..3).map(|at| take(&mut handles, at).unwrap()).collect();
            assert!(matches!(take(&mut handles, 0), Err(Error::State(_))), "all slots are in use");
            out.iter()
                .zip(0..3)
                .for_each(|(handle, at)| assert_eq!(handles.release(*handle), Some(at)));
            seen.extend(out);
        }
        drop(handles);
        let mut handles = Handles::new("pins", &NUMBERS, 3).unwrap();
        for _ in 0..9 {
            assert!(seen.iter().all(|old| handles.release(*old).is_none()));
            let handle = take(&mut handles, 1).unwrap();
            assert!(!seen.contains(&handle));
            handles.release(handle).unwrap();
            seen.push(handle);
        }
        assert!(matches!(take(&mut handles, 0), Err(Error::State(_))), "all numbers are used up");
        assert_eq!((handles.out(), handles.iter().count()), (0, 0));
        drop(handles);
        assert!(Handles::new("pins", &NUMBERS, 3).is_err(), "nothing is left of the only block");
    }
}
