//! Waiting until the disk and the remote store have what came before.
use super::super::remote::Remote;
use super::table::Table;
use super::work::PageTiers;
use std::time::{Duration, Instant};

/// How long a step of it waits for the disk, at most.
const STEP: Duration = Duration::from_millis(10);
/// How long for a thread of the tiers.
const NAP: Duration = Duration::from_millis(1);

/// What came before a flush.
struct Before {
    /// Copies to host memory, since the tiers were attached.
    arrivals: u64,
    clear: u64,
    /// Once those are taken in: what the disk had no room for has smaller numbers than this.
    retries: Option<u64>,
    /// Once the disk has those: what the disk writes has smaller numbers than this, and so many
    /// pages were offered to the remote store.
    ends: Option<(u64, u64)>,
    /// Once the remote store has been given those: how many values it was given.
    values: Option<u64>,
}

impl Before {
    /// Whether all of it is with the disk, or was refused.
    fn is_written(&mut self, table: &Table) -> bool {
        let is_taken = table.stores.taken >= self.arrivals && table.clear >= self.clear;
        if !is_taken {
            return false;
        }
        // Where the disk is full, what comes meanwhile has always some that waits.
        let end = *self.retries.get_or_insert(table.next_retry);
        if table.retries.front().is_some_and(|&(number, _)| number < end) {
            return false;
        }
        let (end, _) = *self.ends.get_or_insert((table.next_disk, table.offered));
        table.writes.first().is_none_or(|(&number, _)| number >= end)
    }

    /// Whether the remote store has all of it that is not refused, once all of it is taken in.
    fn is_offered(&mut self, table: &Table, remote: &Remote) -> bool {
        let Some((_, offered)) = self.ends else { return false };
        if table.offered - (table.offers.len() as u64) < offered {
            return false;
        }
        remote.are_written(*self.values.get_or_insert_with(|| remote.given()))
    }
}

impl PageTiers {
    /// Waits until what host memory has is committed to the disk, and what was cleared is gone, or
    /// the time is over; what comes meanwhile is not waited for. False, too, when the disk has no
    /// room for something, or refuses to remove what was cleared.
    pub fn flush(&self, timeout: Duration) -> bool {
        let end = Instant::now() + timeout.min(Duration::from_secs(1 << 20));
        let clear = self.shared.read().latest_clear();
        let arrivals = self.table().stores.arrivals;
        let mut before = Before { arrivals, clear, retries: None, ends: None, values: None };
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let is_done = {
                let table = self.table();
                // A store that is left alone now takes nothing.
                let remote = self.remote.as_ref().map(|lowest| &lowest.remote);
                let remote = remote.filter(|remote| !remote.is_paused());
                before.is_written(&table)
                    && remote.is_none_or(|remote| before.is_offered(&table, remote))
            };
            if is_done {
                return self.is_removed(left);
            }
            if left.is_zero() || self.is_closed() || self.shared.is_poisoned() {
                return false;
            }
            self.signal.notify();
            let is_still = self.disk.as_ref().is_none_or(|disk| disk.flush(left.min(STEP)));
            if is_still {
                std::thread::sleep(left.min(NAP));
            }
        }
    }

    /// The same. False, too, when the disk refused something since the last time that this was
    /// asked, as a page that came before may be among it, or has given up on writing.
    pub fn flush_all(&self, timeout: Duration) -> bool {
        let told = self.table().failures_told;
        let is_flushed = self.flush(timeout);
        let refuses = self.disk.as_ref().is_some_and(|disk| disk.stats().is_read_only);
        let table = &mut *self.table();
        table.failures_told = table.counters.disk_failed;
        is_flushed && !refuses && table.counters.disk_failed == told
    }

    /// Waits until what the disk is to remove is gone, so that no crash brings it back.
    pub(super) fn is_removed(&self, timeout: Duration) -> bool {
        let Some(disk) = &self.disk else { return true };
        let clear = self.table().clear;
        let is_flushed = disk.flush(timeout);
        let refuses = disk.stats().is_read_only;
        let table = &mut *self.table();
        if is_flushed && !refuses && table.clear == clear {
            table.must_remove = false;
            table.removed = Some(clear);
        }
        is_flushed && !(refuses && table.must_remove)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::GROUP_LIMIT;
    use crate::tier::paged::map::Name;
    use crate::token::PageDigest;

    /// What the thread of the tiers has in its hands is neither among what arrived nor among what
    /// is written.
    #[test]
    fn all_that_came_before_is_waited_for_and_nothing_later() {
        let mut table = Table::new(&[4], 4, (&[4], [0; GROUP_LIMIT])).unwrap();
        table.stores.arrivals = 1;
        let mut before = Before { arrivals: 1, clear: 0, retries: None, ends: None, values: None };
        assert!(!before.is_written(&table), "it is in the thread's hands");
        let name = Name { digest: PageDigest([1; 32]), group: 0 };
        table.writes.try_reserve(3).unwrap();
        table.stores.taken = 1;
        table.retries.push_back((0, name));
        table.next_retry = 1;
        assert!(!before.is_written(&table), "there was no room for it");
        // Another one came later, and finds no room either.
        table.retries.push_back((1, name));
        table.next_retry = 2;
        table.retries.pop_front();
        table.writes.insert(1, name);
        table.next_disk = 2;
        assert!(!before.is_written(&table), "the disk writes it");
        table.writes.insert(2, name);
        table.next_disk = 3;
        table.stores.arrivals = 9;
        assert!(!before.is_written(&table));
        table.writes.remove(&1);
        assert!(before.is_written(&table), "others came later");
    }
}
