//! Slots of host memory, and who gives one up.
use super::map::Level;
use super::table::Table;
use super::work::PageTiers;
use crate::memory::Slot;

/// Pages that are looked at for one that can go.
const LOOKS: usize = 256;

/// What a slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// A page of the device.
    Store,
    /// A page that somebody waits for.
    Fetch,
    /// A page that somebody may ask for. What was used since then does not go for it.
    Prefetch { since: u64 },
}

/// What a look at the pages of host memory has found.
#[derive(Default)]
struct Look {
    /// A page that can go, as nothing is lost with it.
    written: Option<u32>,
    /// One that the disk has not written.
    unwritten: Option<u32>,
    /// None that can go, and the next look finds others.
    has_moved: bool,
}

impl PageTiers {
    /// A slot for a page of a pool; another page of that goes for it if need be: one with nothing
    /// after it, the least recently used first, but none that is being read or written.
    /// What the disk is about to have room for goes only for a fetch, and for that last.
    pub(super) fn take_slot(&self, table: &mut Table, pool: usize, need: Need) -> Option<Slot> {
        let slots = &self.pools[pool].slots;
        if let Some(slot) = slots.take() {
            return Some(slot);
        }
        // What the disk can't take is lost.
        let can_lose = need == Need::Fetch || table.retries.is_empty();
        let mut found = self.look(table, pool, need);
        if can_lose && found.has_moved && found.unwritten.is_some() {
            // Before that, what comes behind is looked at, once.
            found = self.look(table, pool, need);
        }
        let victim = found.written.or(found.unwritten.filter(|_| can_lose))?;
        table.lose_host(victim);
        table.counters.evicted[Level::Host as usize] += 1;
        slots.take()
    }

    /// Looks at the pages that were used longest ago for one that can go.
    fn look(&self, table: &mut Table, pool: usize, need: Need) -> Look {
        let is_free = |table: &Table, record: u32| {
            let page = table.map.get(record).and_then(|record| table.host_page(record));
            page.is_some_and(|page| page.slot.is_alone())
        };
        let since = match need {
            Need::Prefetch { since } => since,
            Need::Store | Need::Fetch => u64::MAX,
        };
        let (mut busy, mut busy_count, mut looks) = ([0; LOOKS], 0, 0);
        let mut found = Look::default();
        for record in table.map.next_in_host(pool).take(LOOKS) {
            if table.map.get(record).is_some_and(|record| record.used() >= since) {
                break;
            }
            looks += 1;
            if !is_free(table, record) {
                (busy[busy_count], busy_count) = (record, busy_count + 1);
                continue;
            }
            let on_disk = table.map.get(record).is_some_and(|record| record.committed().is_some());
            if on_disk || self.disk.is_none() {
                return Look { written: Some(record), ..found };
            }
            found.unwritten = found.unwritten.or(Some(record));
        }
        // What a slow disk or remote store holds counts as used now, and the next look finds what
        // comes behind. What is not written stays in front.
        found.has_moved = looks == LOOKS && busy_count > 0;
        if found.has_moved {
            busy[..busy_count].iter().for_each(|&record| table.map.touch(record));
        }
        found
    }
}
