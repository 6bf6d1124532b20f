//! Which pages of a group a lock protects: many are read in portions, between which whoever waits
//! to change something gets in.
use super::group_holds::Use;
use super::{Shared, State};
use crate::error::{Error, text};
use crate::group::{GroupKind, HungPage};
use crate::ids::LockId;
use crate::memory::{try_collect, try_zeros};

/// The pages of a group that a lock protects, in the order of their places.
#[derive(Debug, Default)]
pub struct LockedPages {
    pages: Vec<u32>,
    /// Their places in the prefix; of a FULL group none is left out, and this is empty.
    places: Vec<u32>,
}

impl LockedPages {
    /// Each page with its place.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
        let place = |at: usize| self.places.get(at).copied().unwrap_or(at as u32);
        self.pages.iter().enumerate().map(move |(at, &page)| (place(at), page))
    }
}

/// Those that were read: of a FULL group from the last one up.
#[derive(Debug, Default)]
struct Reading {
    read: LockedPages,
    /// The next one of a chain.
    next: Option<HungPage>,
    /// Pages at the beginning that are still to be read.
    left: usize,
}

impl State {
    /// The pages of a group beside the spine that a lock protects, in the order of their places.
    pub fn locked_pages(&self, lock: LockId, group: usize) -> Result<LockedPages, Error> {
        let mut reading = self.read_locked(lock, group)?;
        self.read_on_locked(lock, &mut reading, usize::MAX)?;
        Ok(reading.read)
    }

    /// Begins to read them: all of a group that is not FULL.
    fn read_locked(&self, lock: LockId, group: usize) -> Result<Reading, Error> {
        if group == 0 || group >= self.group_count() {
            let count = self.group_count();
            return Err(Error::argument(text!(
                "group {group} is none beside the first of the {count} there are"
            )));
        }
        let uses = self.cache()?.used_by_lock(lock, group)?;
        let is_full = self.table.groups().list()[group].kind == GroupKind::Full;
        let mut reading = Reading::default();
        match uses.last() {
            Some(&Use { page, place }) if is_full => {
                reading.read.pages = try_zeros(place + 1)?;
                (reading.next, reading.left) = (Some(page), place + 1);
            }
            _ => {
                reading.read.pages = try_collect(uses.iter().map(|used| used.page.page))?;
                reading.read.places = try_collect(uses.iter().map(|used| used.place as u32))?;
            }
        }
        Ok(reading)
    }

    /// Reads so many pages more of a chain, which is the same as long as the lock is there.
    fn read_on_locked(
        &self,
        lock: LockId,
        reading: &mut Reading,
        count: usize,
    ) -> Result<(), Error> {
        let cache = self.cache()?;
        cache.used_by_lock(lock, 1)?;
        let Some(groups) = &cache.groups else { return Ok(()) };
        for _ in 0..reading.left.min(count) {
            let HungPage { page, .. } = reading.next.expect("a chain goes up to the first page");
            reading.left -= 1;
            reading.read.pages[reading.left] = page;
            reading.next = reading.next.and_then(|page| groups.hung.before(page));
        }
        Ok(())
    }
}

impl Shared {
    /// The pages of a group beside the spine that a lock protects, in the order of their places.
    pub fn locked_pages(&self, lock: LockId, group: usize) -> Result<LockedPages, Error> {
        let mut state = self.read();
        let mut reading = state.read_locked(lock, group)?;
        loop {
            state.read_on_locked(lock, &mut reading, self.locked_portion())?;
            if reading.left == 0 {
                return Ok(reading.read);
            }
            state = self.read_on(state);
        }
    }
}
