//! The ids of pins: each names one pin, and after its release nothing, ever.
use super::NONE;
use super::numbers::{Block, Numbers};
use crate::error::{Error, text};
use crate::ids::{PIN_LIMIT, PinId};
use crate::memory::{TryGrow, try_filled};

/// Slots of a chunk. Chunks never move, so that no call stops to copy what others left.
const CHUNK: usize = 256;
/// Set in the number of a slot without a pin.
const FREE: u32 = 1 << 31;

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Of the pin that is in the slot, or of the next one.
    number: u32,
    /// The reader that has it; of a free slot, the next free one.
    at: u32,
}

/// Pins that are out.
#[derive(Debug)]
pub(super) struct Pins {
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

impl Pins {
    /// No pins, with numbers that no other cache has or had.
    pub(super) fn new(numbers: &'static Numbers, limit: u32) -> Result<Self, Error> {
        let block = numbers.take()?;
        let limit = limit.min(PIN_LIMIT);
        let used = block.first;
        Ok(Self { block, used, chunks: Vec::new(), slots: 0, limit, free: NONE, out: 0 })
    }

    /// Pins that are out.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// Makes room for one more.
    pub(super) fn try_reserve(&mut self) -> Result<(), Error> {
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
                "{} pins are out, and the numbers of {} more are used up",
                self.out,
                self.limit as usize - self.out
            )));
        }
        Ok(())
    }

    fn slot(&mut self, at: u32) -> Option<&mut Slot> {
        self.chunks.get_mut(at as usize / CHUNK)?.get_mut(at as usize % CHUNK)
    }

    /// A pin of a reader. There must be room.
    pub(super) fn take(&mut self, reader: u32) -> PinId {
        let at = self.free;
        let at = if at == NONE {
            self.slots += 1;
            self.slots - 1
        } else {
            at
        };
        let slot = self.slot(at).expect("room was made for the pin");
        let (number, next) = (slot.number & !FREE, slot.at);
        *slot = Slot { number, at: reader };
        self.free = if self.free == NONE { NONE } else { next };
        self.used = self.used.max(number + 1);
        self.out += 1;
        PinId::new(self.block.block, number, at)
    }

    /// Ends a pin; the reader that had it.
    pub(super) fn release(&mut self, pin: PinId) -> Result<u32, Error> {
        let (at, block) = (pin.slot(), self.block.block);
        let (free, limit) = (self.free, self.block.limit());
        let slot = self.slot(at).ok_or(Error::StalePin(pin.0))?;
        if slot.number & FREE != 0 || PinId::new(block, slot.number, at) != pin {
            return Err(Error::StalePin(pin.0));
        }
        let Slot { number, at: reader } = *slot;
        // A slot whose numbers are used up stays out of use.
        let is_worn = number + 1 >= limit;
        *slot = Slot { number: number + 1 | FREE, at: if is_worn { NONE } else { free } };
        self.free = if is_worn { free } else { at };
        self.out -= 1;
        Ok(reader)
    }

    /// The reader of every pin that is out.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        slots.filter(|slot| slot.number & FREE == 0).map(|slot| slot.at)
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Slot>()
            + self.chunks.capacity() * size_of::<Box<[Slot]>>()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.block.give_back(self.used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn take(pins: &mut Pins, reader: u32) -> Result<PinId, Error> {
        pins.try_reserve()?;
        Ok(pins.take(reader))
    }

    /// S05: a slot that is used again has another id; ids of other caches name nothing.
    #[test]
    fn ids_are_not_reused() {
        let mut pins = Pins::new(Numbers::shared(), PIN_LIMIT).unwrap();
        let mut other = Pins::new(Numbers::shared(), PIN_LIMIT).unwrap();
        let first = take(&mut pins, 7).unwrap();
        assert_eq!(pins.release(first), Ok(7));
        let second = take(&mut pins, 8).unwrap();
        assert_eq!(second.slot(), first.slot());
        let foreign = take(&mut other, 9).unwrap();
        for stale in [first, foreign, PinId(0), PinId(second.0 ^ 1 << 23)] {
            assert_eq!(pins.release(stale), Err(Error::StalePin(stale.0)));
        }
        assert_eq!((pins.out(), pins.release(second)), (1, Ok(8)));
    }

    /// M07: a slot is retired when its numbers are used up, and so is a cache with its last slot.
    /// What is left of a block is for the next cache, and no id comes twice.
    #[test]
    fn m07_numbers_do_not_come_round() {
        static BLOCKS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];
        static NUMBERS: Numbers = Numbers::new(&BLOCKS, 5);
        let mut seen = Vec::new();
        let mut pins = Pins::new(&NUMBERS, 3).unwrap();
        assert!(Pins::new(&NUMBERS, 3).is_err(), "the only block is in use");
        for _ in 0..2 {
            let out: Vec<PinId> = (0..3).map(|at| take(&mut pins, at).unwrap()).collect();
            assert!(matches!(take(&mut pins, 0), Err(Error::State(_))), "all slots are in use");
            out.iter().zip(0..3).for_each(|(pin, at)| assert_eq!(pins.release(*pin), Ok(at)));
            seen.extend(out);
        }
        drop(pins);
        let mut pins = Pins::new(&NUMBERS, 3).unwrap();
        for _ in 0..9 {
            assert!(seen.iter().all(|old| pins.release(*old).is_err()));
            let pin = take(&mut pins, 1).unwrap();
            assert!(!seen.contains(&pin));
            pins.release(pin).unwrap();
            seen.push(pin);
        }
        assert!(matches!(take(&mut pins, 0), Err(Error::State(_))), "all numbers are used up");
        assert_eq!((pins.out(), pins.iter().count()), (0, 0));
        drop(pins);
        assert!(Pins::new(&NUMBERS, 3).is_err(), "nothing is left of the only block");
    }
}
