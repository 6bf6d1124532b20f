//! The ids of pins: each names one pin, and after its release nothing, ever.
use super::NONE;
use crate::error::Error;
use crate::ids::{PIN_LIMIT, PinId};

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Of the pin that is in the slot, or of the last one.
    number: u32,
    /// The record that is pinned; NONE in a free slot.
    record: u32,
}

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
            return Err(Error::state(format!("{PIN_LIMIT} pins are out")));
        }
        Ok(())
    }

    /// A pin on a record. There must be room.
    pub(super) fn take(&mut self, record: u32) -> PinId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { number: 0, record: NONE });
            self.slots.len() as u32 - 1
        });
        let at = &mut self.slots[slot as usize];
        *at = Slot { number: at.number + 1, record };
        self.out += 1;
        PinId::new(self.tag, at.number, slot)
    }

    /// Ends a pin; the record that it was on.
    pub(super) fn release(&mut self, pin: PinId) -> Result<u32, Error> {
        let stale = Error::StalePin(pin.0);
        let at = self.slots.get_mut(pin.slot() as usize).ok_or(stale.clone())?;
        if at.record == NONE || PinId::new(self.tag, at.number, pin.slot()) != pin {
            return Err(stale);
        }
        // A slot whose numbers are used up stays out of use.
        if at.number < u32::MAX {
            self.free.push(pin.slot());
        }
        self.out -= 1;
        Ok(std::mem::replace(&mut at.record, NONE))
    }

    /// The record of every pin that is out.
    pub(super) fn records(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().map(|slot| slot.record).filter(|&record| record != NONE)
    }

    /// Gives every pin's record its new number.
    pub(super) fn renumber(&mut self, new: &[u32]) {
        for slot in self.slots.iter_mut().filter(|slot| slot.record != NONE) {
            slot.record = new[slot.record as usize];
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S05: a slot that is used again has another id; ids of other caches name nothing.
    #[test]
    fn ids_are_not_reused() {
        let (mut pins, mut other) = (Pins::new(1), Pins::new(2));
        let first = pins.take(7);
        assert_eq!(pins.release(first), Ok(7));
        let second = pins.take(8);
        assert_eq!(second.slot(), first.slot());
        for stale in [first, other.take(9), PinId(0), PinId(second.0 ^ 1 << 23)] {
            assert_eq!(pins.release(stale), Err(Error::StalePin(stale.0)));
        }
        assert_eq!((pins.out(), pins.release(second)), (1, Ok(8)));
    }

    /// A slot is retired when its numbers are used up.
    #[test]
    fn numbers_do_not_come_round() {
        let mut pins = Pins::new(1);
        pins.slots.push(Slot { number: u32::MAX - 1, record: NONE });
        pins.free.push(0);
        let last = pins.take(3);
        assert_eq!(pins.release(last), Ok(3));
        assert_eq!(pins.take(4).slot(), 1);
        assert_eq!(pins.release(last), Err(Error::StalePin(last.0)));
    }
}
