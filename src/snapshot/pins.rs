//! The ids of pins: each names one pin, and after its release nothing, ever.
use super::NONE;
use crate::error::Error;
use crate::error::text;
use crate::ids::{PIN_LIMIT, PinId};

/// What a pin is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pinned {
    /// Where the entry ends, as long as it is one.
    pub(super) node: u32,
    /// Its serial, which names it also when it is none any more.
    pub(super) serial: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Of the pin that is in the slot, or of the last one.
    number: u32,
    /// NONE for the node in a free slot.
    on: Pinned,
}

const NOTHING: Pinned = Pinned { node: NONE, serial: 0 };

/// Pins that are out.
#[derive(Debug)]
pub(super) struct Pins {
    tag: u8,
    slots: Vec<Slot>,
    free: Vec<u32>,
    out: usize,
}

impl Pins {
    pub(super) fn new(tag: u8) -> Self {
        Self { tag, slots: Vec::new(), free: Vec::new(), out: 0 }
    }

    /// Pins that are out.
    pub(super) fn out(&self) -> usize {
        self.out
    }

    /// Whether there is room for one more.
    pub(super) fn check_room(&self) -> Result<(), Error> {
        if self.free.is_empty() && self.slots.len() >= PIN_LIMIT as usize {
            return Err(Error::state(text!("{PIN_LIMIT} pins are out")));
        }
        Ok(())
    }

    /// A pin. There must be room.
    pub(super) fn take(&mut self, on: Pinned) -> PinId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { number: 0, on: NOTHING });
            self.slots.len() as u32 - 1
        });
        let at = &mut self.slots[slot as usize];
        *at = Slot { number: at.number + 1, on };
        self.out += 1;
        PinId::new(self.tag, at.number, slot)
    }

    /// Ends a pin; what it was on.
    pub(super) fn release(&mut self, pin: PinId) -> Result<Pinned, Error> {
        let stale = || Error::StalePin(pin.0);
        let at = self.slots.get_mut(pin.slot() as usize).ok_or_else(stale)?;
        if at.on == NOTHING || PinId::new(self.tag, at.number, pin.slot()) != pin {
            return Err(stale());
        }
        // A slot whose numbers are used up stays out of use.
        if at.number < u32::MAX {
            self.free.push(pin.slot());
        }
        self.out -= 1;
        Ok(std::mem::replace(&mut at.on, NOTHING))
    }

    /// What every pin that is out is on.
    pub(super) fn iter(&self) -> impl Iterator<Item = Pinned> + '_ {
        self.slots.iter().map(|slot| slot.on).filter(|&on| on != NOTHING)
    }

    /// Gives every node its new number. What is no entry any more keeps one that means nothing.
    pub(super) fn renumber(&mut self, new: &[u32]) {
        for slot in self.slots.iter_mut().filter(|slot| slot.on != NOTHING) {
            slot.on.node = new.get(slot.on.node as usize).copied().unwrap_or(NONE);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(node: u32) -> Pinned {
        Pinned { node, serial: 1 + node as u64 }
    }

    /// S05: a slot that is used again has another id; ids of other caches name nothing.
    #[test]
    fn ids_are_not_reused() {
        let (mut pins, mut other) = (Pins::new(1), Pins::new(2));
        let first = pins.take(on(7));
        assert_eq!(pins.release(first), Ok(on(7)));
        let second = pins.take(on(8));
        assert_eq!(second.slot(), first.slot());
        for stale in [first, other.take(on(9)), PinId(0), PinId(second.0 ^ 1 << 23)] {
            assert_eq!(pins.release(stale), Err(Error::StalePin(stale.0)));
        }
        assert_eq!((pins.out(), pins.release(second)), (1, Ok(on(8))));
    }

    /// A slot is retired when its numbers are used up.
    #[test]
    fn numbers_do_not_come_round() {
        let mut pins = Pins::new(1);
        pins.slots.push(Slot { number: u32::MAX - 1, on: NOTHING });
        pins.free.push(0);
        let last = pins.take(on(3));
        assert_eq!(pins.release(last), Ok(on(3)));
        assert_eq!(pins.take(on(4)).slot(), 1);
        assert_eq!(pins.release(last), Err(Error::StalePin(last.0)));
    }
}
