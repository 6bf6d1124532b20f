//! Namespaces that were cleared: what the tiers have of them goes, and is not found before it has.
use super::map::Level;
use super::table::Table;
use super::work::{PageTiers, TableGuard};
use crate::error::Error;
use crate::memory::try_zeros;
use crate::tier::LowerStore;

/// Records that are looked at before others are let in.
const RECORDS: u32 = 128;

impl PageTiers {
    /// Drops what was cleared since this was called last. Whether anything was.
    pub(super) fn take_clears(&self) -> Result<bool, Error> {
        let state = self.shared.read();
        let latest = state.latest_clear();
        drop(state);
        let spaces = {
            let table = self.table();
            if table.clear == latest {
                return Ok(false);
            }
            (table.clear, table.map.spaces.end())
        };
        let (since, end) = spaces;
        // Only this thread gives numbers to namespaces: they mean the same all the while.
        let mut is_cleared = try_zeros::<bool>(end as usize)?;
        for number in 0..end {
            let name = self.table().map.spaces.get(number).copied();
            if let Some(name) = name {
                is_cleared[number as usize] = self.shared.read().cleared_since(since)(&name);
            }
        }
        self.drop_cleared(latest, |_, space| is_cleared.get(space as usize) == Some(&true));
        Ok(true)
    }

    /// The same for the last time, and so without memory too: then each record is asked about.
    pub(super) fn take_last_clears(&self) {
        if self.take_clears().is_ok() {
            return;
        }
        // One after the other: who has the store's lock never waits for the table's.
        let latest = self.shared.read().latest_clear();
        let since = self.table().clear;
        self.drop_cleared(latest, |table, space| {
            let name = table.map.spaces.name(space);
            self.shared.read().cleared_since(since)(name)
        });
    }

    /// Drops the records of namespaces that were cleared, up to a clear.
    fn drop_cleared(&self, latest: u64, is_gone: impl Fn(&Table, u32) -> bool) {
        let (mut table, mut has_removed) = (self.table(), false);
        let end = table.map.end();
        for from in (0..end).step_by(RECORDS as usize) {
            for at in from..end.min(from + RECORDS) {
                let Some(record) = table.map.get(at) else { continue };
                let (space, host, disk) = (record.space(), record.host(), record.disk());
                if (host, disk) == (None, None) || !is_gone(&table, space) {
                    continue;
                }
                table.counters.cleared += 1;
                if host.is_some() {
                    table.drop_host(at);
                }
                if let Some(number) = disk {
                    has_removed = true;
                    table.must_remove = true;
                    self.remove_disk(&mut table, at, number);
                }
            }
            TableGuard::bump(&mut table);
        }
        // A flush that came in between may have seen less of it.
        table.must_remove |= has_removed;
        table.clear = latest;
        drop(table);
        if let Some(disk) = &self.disk {
            disk.commit_removals();
            // Without memory the end of the tiers waits for the disk.
            let mark = disk.mark();
            let table = &mut *self.table();
            match mark {
                Ok(None) => Self::set_removed(table, disk.as_ref()),
                mark => table.removals = mark.ok().flatten(),
            }
        }
    }

    /// Notes that what was cleared is gone when the disk has come to it: when the tiers end it may
    /// have much else to do.
    pub(super) fn note_cleared(&self) {
        let removals = self.table().removals;
        let (Some(mark), Some(disk)) = (removals, &self.disk) else { return };
        if disk.has_ended(mark) {
            let table = &mut *self.table();
            table.removals = None;
            Self::set_removed(table, disk.as_ref());
        }
    }

    /// What a disk refused to remove, or had no memory for, is there.
    fn set_removed(table: &mut Table, disk: &dyn LowerStore) {
        let stats = disk.stats();
        if !stats.is_read_only && !stats.has_unremoved {
            (table.must_remove, table.removed) = (false, Some(table.clear));
        }
    }

    /// Gives up what is least needed in host memory until the pages of all pools take so many bytes
    /// at most: of pools that have more than their part of those.
    pub(super) fn shrink_host(&self, bytes: u64) {
        let all: u128 = self.pools.iter().map(|pool| u128::from(pool.host_bytes())).sum();
        for (at, pool) in self.pools.iter().enumerate() {
            let part = u128::from(bytes) * u128::from(pool.host_bytes()) / all.max(1);
            let pages = usize::try_from(part / pool.page_bytes as u128).unwrap_or(usize::MAX);
            let mut table = self.table();
            while table.map.count_of(Level::Host, at) > pages {
                if self.used_host_bytes(&table) <= bytes {
                    return;
                }
                let Some(record) = table.map.next_in_host(at).next() else { break };
                table.lose_host(record);
                table.counters.evicted[Level::Host as usize] += 1;
                TableGuard::bump(&mut table);
            }
        }
    }

    /// Bytes of host memory that pages take.
    fn used_host_bytes(&self, table: &Table) -> u64 {
        let pools = self.pools.iter().enumerate();
        pools.map(|(at, pool)| (table.map.count_of(Level::Host, at) * pool.page_bytes) as u64).sum()
    }

    /// The same on the disk, for all pools.
    pub(super) fn shrink_disk(&self, bytes: u64) {
        let mut table = self.table();
        while self.disk_bytes(&table) > bytes {
            let Some(at) = table.map.next_on_disk().next() else { return };
            let number = table.map.get(at).and_then(|record| record.disk());
            self.remove_disk(&mut table, at, number.expect("it is on the disk"));
            table.counters.evicted[Level::Disk as usize] += 1;
            TableGuard::bump(&mut table);
        }
    }
}
