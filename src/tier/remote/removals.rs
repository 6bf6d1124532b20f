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
    /// How many were given before it.
    pub number: u64,
    /// How often the store did not remove it, though it answered.
    refusals: u32,
    /// It was asked for before.
    pub is_again: bool,
}

impl Removal {
    /// One that was not asked for yet.
    pub fn new(key: Key, is_promised: bool) -> Self {
        Self { key, is_promised, number: 0, refusals: 0, is_again: false }
    }

    /// The same, which is to be asked for again.
    pub fn again(self) -> Self {
        Self { is_again: true, ..self }
    }
}

/// Those that were refused, by when they are asked for again and their numbers.
#[derive(Debug, Default)]
pub(super) struct Refused(OrderedMap<(Instant, u64), Removal>);

impl Refused {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// It is asked for again later. False when it is given up.
    pub fn add(&mut self, removal: Removal, now: Instant) -> bool {
        let at = now + FIRST * (1 << removal.refusals);
        let again = Removal { refusals: removal.refusals + 1, ..removal.again() };
        again.refusals < REFUSALS && self.0.try_insert((at, removal.number), again).is_ok()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Removal> {
        self.0.iter().map(|(_, removal)| removal)
    }

    /// The next that is to be asked for again now.
    pub fn take_due(&mut self, now: Instant) -> Option<Removal> {
        let (&(at, number), _) = self.0.first()?;
        if at > now {
            return None;
        }
        self.0.remove(&(at, number))
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

    /// A call has ended that was to remove some. What waits again is there a second time.
    pub fn end_removing(&mut self, removals: &[Removal]) {
        self.writing -= removals.len();
        for removal in removals {
            let at = self.removing.iter().position(|one| one.number == removal.number);
            self.removing.swap_remove(at.expect("it is being removed"));
        }
    }

    /// What waits to be removed, or is being: the store may still have it.
    fn to_go(&self) -> impl Iterator<Item = &Removal> {
        let waiting = self.writes.iter().filter_map(|write| match write {
            Write::Remove(removal) => Some(removal),
            _ => None,
        });
        // Without any there is nothing to look through.
        waiting.take(self.removals).chain(self.refused.iter()).chain(&self.removing)
    }

    /// Whether a value is such a one.
    pub fn is_to_go(&self, key: &Key) -> bool {
        self.to_go().any(|removal| removal.key == *key)
    }

    /// Whether none of those is that were given among the first so many.
    pub fn are_removed(&self, count: u64) -> bool {
        self.to_go().all(|removal| removal.number >= count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::Writes;
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

    /// T17: what is to go is known as that wherever it waits, also twice at the same time.
    #[test]
    fn t17_what_is_to_go_is_known_as_that_until_it_is_gone() {
        let (mut now, mut queue) = (Instant::now(), Queue::default());
        let seen = |queue: &Queue| (queue.is_to_go(&[1; 32]), queue.are_removed(1));
        (0..2).for_each(|_| queue.add_removal([1; 32], true));
        assert!(queue.are_removed(0) && !queue.is_to_go(&[2; 32]));
        for is_refused in [true, false] {
            assert_eq!(seen(&queue), (true, false), "they wait");
            let Writes::Removes(removals) = queue.take_writes(now, 1) else { panic!("two wait") };
            assert_eq!((removals.len(), seen(&queue)), (2, (true, false)), "a call goes on");
            if is_refused {
                removals.iter().for_each(|&removal| queue.refuse_removal(removal, now));
            }
            queue.end_removing(&removals);
            now += Duration::from_secs(1);
        }
        assert_eq!((seen(&queue), queue.waiting()), ((false, true), 0));
    }

    fn removal_of(key: u8, refusals: u32) -> Removal {
        Removal { refusals, ..Removal::new([key; 32], true).again() }
    }
}
