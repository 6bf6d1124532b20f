//! Values that are to be removed. What the store does not remove, though it answers, is asked for
//! again after a while, and given up in the end: a key that nobody may remove there is none to ask
//! for for ever, and nothing else waits for it.
use super::super::Key;
use super::queue::{BATCH, Queue, Write};
use crate::memory::OrderedMap;
use std::time::{Duration, Instant};

/// Removals that wait at most.
const REMOVALS: usize = 1 << 16;
/// After so many refusals a removal is given up.
const REFUSALS: u32 = 8;
/// How long the first one waits; each later one twice as long.
const FIRST: Duration = Duration::from_millis(50);

/// A value that is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Removal {
    pub key: Key,
    /// Somebody was told that it goes. What is damaged would be better gone.
    pub is_promised: bool,
    /// How often the store did not remove it, though it answered.
    refusals: u32,
    /// It was asked for before.
    pub is_again: bool,
}

impl Removal {
    /// One that was not asked for yet.
    pub fn new(key: Key, is_promised: bool) -> Self {
        Self { key, is_promised, refusals: 0, is_again: false }
    }

    /// The same, which is to be asked for again.
    pub fn again(self) -> Self {
        Self { is_again: true, ..self }
    }
}

/// Those that were refused, by when they are asked for again.
#[derive(Debug, Default)]
pub(super) struct Refused(OrderedMap<(Instant, Key), (u32, bool)>);

impl Refused {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// It is asked for again later. False when it is given up.
    pub fn add(&mut self, removal: Removal, now: Instant) -> bool {
        let refusals = removal.refusals + 1;
        let at = now + FIRST * (1 << removal.refusals);
        refusals < REFUSALS
            && self.0.try_insert((at, removal.key), (refusals, removal.is_promised)).is_ok()
    }

    /// The next that is to be asked for again now.
    pub fn take_due(&mut self, now: Instant) -> Option<Removal> {
        let (&(at, key), &(refusals, is_promised)) = self.0.first()?;
        if at > now {
            return None;
        }
        self.0.remove(&(at, key));
        Some(Removal { key, is_promised, refusals, is_again: true })
    }
}

impl Queue {
    /// Queues a removal behind the others, if there is room. It is not forgotten while the store is
    /// left alone: what was removed must not be found when that is back.
    pub fn add_removal(&mut self, key: Key, is_promised: bool) {
        let waiting = self.removals + self.refused.len();
        let removal = Removal::new(key, is_promised);
        if waiting >= REMOVALS || self.add_write(Write::Remove(removal)).is_err() {
            self.give_up(removal);
        }
    }

    /// Nobody asks for it any more: who was promised that it goes is told.
    pub fn give_up(&mut self, removal: Removal) {
        self.stats.failed += 1;
        self.has_unremoved |= removal.is_promised;
    }

    /// Puts removals back that the store did not answer, before what came after them.
    pub fn remove_again(&mut self, removals: &[Removal]) {
        for &removal in removals.iter().rev() {
            if self.writes.try_reserve(1).is_err() {
                self.give_up(removal);
                continue;
            }
            self.removals += 1;
            self.writes.push_front(Write::Remove(removal.again()));
        }
    }

    /// The store answers, but has not removed this one.
    pub fn refuse_removal(&mut self, removal: Removal, now: Instant) {
        if !self.refused.add(removal, now) {
            self.give_up(removal);
        }
    }

    /// What was refused a while ago is queued behind the others. What came meanwhile may be the
    /// same value, written anew: it goes, too, and whoever wants it writes it again.
    pub fn remove_refused(&mut self, now: Instant) {
        for _ in 0..BATCH {
            let has_room = self.writes.try_reserve(1).is_ok();
            let Some(removal) = has_room.then(|| self.refused.take_due(now)).flatten() else {
                return;
            };
            self.removals += 1;
            self.writes.push_back(Write::Remove(removal));
        }
    }

    /// Removals wait, perhaps for the end of a pause.
    pub fn has_removals(&self) -> bool {
        self.removals + self.refused.len() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T13: ever later, and not for ever.
    #[test]
    fn t13_what_is_refused_is_asked_for_ever_less_often_and_then_given_up() {
        let start = Instant::now();
        let mut refused = Refused::default();
        let (mut removal, mut now, mut waits) = (Removal::new([1; 32], true), start, Vec::new());
        while refused.add(removal, now) {
            assert_eq!((refused.len(), refused.take_due(now)), (1, None));
            let last = now;
            removal = loop {
                now += Duration::from_millis(1);
                if let Some(removal) = refused.take_due(now) {
                    break removal;
                }
            };
            assert_eq!((refused.len(), removal.is_again, removal.key), (0, true, [1; 32]));
            waits.push((now - last).as_millis());
        }
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 3200]);
        assert_eq!(refused.len(), 0);
        // First the one whose time comes first.
        assert!(refused.add(removal_of(2, 3), start) && refused.add(removal_of(3, 0), start));
        let later = start + Duration::from_secs(1);
        let keys = [(); 2].map(|()| refused.take_due(later).map(|removal| removal.key[0]));
        assert_eq!((keys, refused.take_due(later)), ([Some(3), Some(2)], None));
    }

    fn removal_of(key: u8, refusals: u32) -> Removal {
        Removal { key: [key; 32], is_promised: true, refusals, is_again: true }
    }
}
