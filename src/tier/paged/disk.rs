//! Between host memory and the disk.
use super::super::{DiskStore, Event, FoundRecords, Key, LoadError, Refused, Source, Target};
use super::config::{HostMemory, TierPool};
use super::host::Need;
use super::loads::{Landing, Origin};
use super::map::{Level, Map, Name, NoRecord};
use super::note::{NOTE_BYTES, Note};
use super::sizes::PageSizes;
use super::table::Table;
use super::work::{PageTiers, TableGuard, checksum};
use crate::error::{Error, text};
use crate::memory::{OutOfMemory, Slot, try_box, try_zeros};
use crate::store::Shared;
use std::any::Any;

/// Of the pages that the disk has room for, the part that is kept free.
const AHEAD_PART: u64 = 16;
/// Pages that are tried again before others are let in.
const RETRIED: usize = 16;

/// No page on the disk has such a number, or a higher one.
const NUMBERS: u64 = 1 << 63;

pub(super) fn key(number: u64) -> Key {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn number(key: &Key) -> u64 {
    u64::from_be_bytes(key[..8].try_into().expect("eight bytes"))
}

/// Bytes of the disk that pages may take: the rest is kept free, in pages of the smallest pool.
fn usable(capacity: u64, least: u64) -> u64 {
    capacity - capacity / AHEAD_PART / least * least
}

/// A slot that is written, and kept for as long.
pub(super) struct Written {
    pub slot: Slot,
    pub checksum: u64,
}

impl Source for Written {
    fn parts(&self) -> usize {
        1
    }

    fn part(&self, _: usize) -> &[u8] {
        self.slot.get()
    }

    fn are_intact(&self, bytes: &[u8]) -> bool {
        checksum(bytes) == self.checksum
    }
}

/// A slot that is read into.
struct Reading {
    slot: Slot,
    name: Name,
    number: u64,
}

impl Target for Reading {
    fn parts(&self) -> usize {
        1
    }

    fn part(&mut self, _: usize) -> &mut [u8] {
        self.slot.get_mut().expect("nobody else has it")
    }

    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8])) {
        to(self.part(0));
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl PageTiers {
    /// Refuses a disk with no room for a page of each pool, or with room for more pages than there
    /// are numbers for, beside those of host memory. Before it is opened, which may make it, or
    /// trim it.
    pub fn check_disk(pools: &[TierPool], bytes: u64) -> Result<(), Error> {
        let cost = |pool: &TierPool| DiskStore::cost_of(pool.page_bytes as u64, NOTE_BYTES);
        let slots = |pool: &TierPool| match &pool.host {
            HostMemory::Given(slots) => slots.count() as u64,
            HostMemory::Own(bytes) => bytes / pool.page_bytes.max(1) as u64,
        };
        let least = pools.iter().map(cost).min().unwrap_or(1).max(1);
        if usable(bytes, least) < pools.iter().map(cost).max().unwrap_or(1) {
            return Err(Error::argument(text!("config.disk_bytes {bytes} is room for no page")));
        }
        let in_host = pools.iter().map(slots).fold(0, u64::saturating_add);
        if (bytes / least).saturating_add(in_host) < Map::PAGE_LIMIT as u64 {
            return Ok(());
        }
        Err(Error::argument(text!("config.disk_bytes {bytes} is room for 2^29 pages or more")))
    }

    /// What a directory's pages must be like.
    pub fn page_sizes(shared: &Shared, pools: &[TierPool]) -> PageSizes {
        PageSizes::new(&shared.read().groups(), |pool| pools[pool].page_bytes)
    }

    /// Bytes of the disk that a page of a pool takes.
    pub(super) fn disk_cost(&self, pool: usize) -> u64 {
        let (disk, bytes) = (self.disk.as_ref(), self.pools[pool].page_bytes as u64);
        disk.map_or(1, |disk| disk.cost(bytes, NOTE_BYTES)).max(1)
    }

    /// The same of the smallest page.
    pub(super) fn least_disk_cost(&self) -> u64 {
        (0..self.pools.len()).map(|pool| self.disk_cost(pool)).min().unwrap_or(1)
    }

    /// Bytes of the disk that its pages take.
    pub(super) fn disk_bytes(&self, table: &Table) -> u64 {
        let of = |pool| table.map.count_of(Level::Disk, pool) as u64 * self.disk_cost(pool);
        (0..self.pools.len()).map(of).sum()
    }

    /// Makes records of what the disk has already. Refused before anything of it is changed when it
    /// is another layout's.
    pub(super) fn find_again(
        &self,
        table: &mut Table,
        records: &FoundRecords,
    ) -> Result<(), Error> {
        let Some(disk) = &self.disk else { return Ok(()) };
        // Whatever opened the disk may have looked already, but that is not known here.
        let sizes = PageSizes::new(&self.groups, |pool| self.pools[pool].page_bytes);
        for record in records {
            sizes.check(record).map_err(|other| {
                Error::Storage(text!("the directory has {other}: it is not this cache's"))
            })?;
        }
        for record in records {
            let found = number(&record.key);
            // The numbers after those that are given are needed.
            let is_ours = (1..NUMBERS / 2).contains(&found) && record.key == key(found);
            if is_ours {
                table.next_disk = table.next_disk.max(found + 1);
            }
            let note = Note::decode(&record.note).filter(|_| is_ours);
            let is_added = match note {
                Some(note) => self.add_found(table, &note, found)?,
                None => false,
            };
            if !is_added {
                disk.remove(record.key);
                table.counters.unusable += 1;
            }
        }
        if self.groups.are_several() {
            self.use_what_hangs(&mut table.map)?;
        }
        Ok(())
    }

    /// Of pages that were found, those of the first group are used when one behind them is, and so
    /// is what hangs on them in other groups: with the number of its own last use, which the file
    /// has, it would go before all that needs it.
    fn use_what_hangs(&self, map: &mut Map) -> Result<(), OutOfMemory> {
        let (mut uses, mut order) = (Vec::new(), Vec::new());
        uses.try_reserve_exact(map.len())?;
        order.try_reserve_exact(map.len())?;
        let mut is_listed = try_zeros::<bool>(map.end() as usize)?;
        let records = (0..map.end()).filter_map(|at| Some((map.get(at)?, at)));
        uses.extend(records.filter(|(of, _)| of.name().group == 0).map(|(of, at)| (of.used(), at)));
        uses.sort_unstable();
        // From the last use on, all that it needs; of each prefix the beginning first.
        for &(_, last) in uses.iter().rev() {
            let (mut next, begin) = (Some(last), order.len());
            // That also ends where a damaged file has pages that go on from each other.
            while let Some(at) = next.filter(|&at| !is_listed[at as usize]) {
                is_listed[at as usize] = true;
                order.push(at);
                next = map.parent(at);
            }
            order[begin..].reverse();
        }
        for at in order.into_iter().rev() {
            map.tick();
            let name = map.get(at).expect("it is listed").name();
            for group in 1..self.groups.list().len() {
                if let Some(hung) = map.find(Name { group: group as u8, ..name }) {
                    map.touch(hung);
                }
            }
            map.touch(at);
        }
        Ok(())
    }

    /// Whether there is room for it. Without memory nothing is removed: it is found another time.
    fn add_found(&self, table: &mut Table, note: &Note, number: u64) -> Result<bool, OutOfMemory> {
        table.map.tick();
        let at = match table.map.make(note.name, note.parent, &note.namespace) {
            Ok(at) => at,
            Err(NoRecord::Full) => return Ok(false),
            Err(NoRecord::OutOfMemory) => return Err(OutOfMemory),
        };
        // The one that was used later is the better one.
        if let Some(other) = table.map.get(at).and_then(|record| record.disk()) {
            self.remove_disk(table, at, other);
            return self.add_found(table, note, number);
        }
        table.map.touch(at);
        if let Err(error) = table.map.set_disk(at, (number, note.checksum)) {
            table.map.prune(at);
            return Err(error);
        }
        table.map.set_committed(at);
        Ok(true)
    }

    /// Takes a page off the disk.
    pub(super) fn remove_disk(&self, table: &mut Table, record: u32, number: u64) {
        table.writes.remove(&number);
        table.map.leave_disk(record);
        if let Some(disk) = &self.disk {
            disk.remove(key(number));
        }
    }

    /// Starts to write a page of host memory, unless the disk has it or can't take it now.
    pub(super) fn write(&self, table: &mut Table, name: Name) {
        let Err(refused) = self.try_write(table, name) else { return };
        match refused {
            Refused::Full | Refused::Fragmented => table.counters.disk_full += 1,
            Refused::Busy => table.counters.disk_busy += 1,
            _ => return table.counters.disk_failed += 1,
        }
        // All that host memory has may wait.
        let most: usize = self.pools.iter().map(|pool| pool.slots.count()).sum();
        if table.retries.len() < most && table.retries.try_reserve(1).is_ok() {
            table.retries.push_back((table.next_retry, name));
            table.next_retry += 1;
        } else {
            // It is not tried again: whoever flushes is told.
            table.counters.disk_failed += 1;
        }
    }

    /// A page is used now, also for whoever finds it on the disk after a restart.
    pub(super) fn touch(&self, table: &mut Table, at: u32) {
        table.map.touch(at);
        let number = table.map.get(at).and_then(|record| record.committed());
        if let (Some(disk), Some(number)) = (&self.disk, number) {
            disk.touch(key(number));
        }
    }

    /// Takes the page off the disk that is the first to go, but for one. False when there is none.
    fn evict_from_disk(&self, table: &mut Table, but: u32) -> bool {
        let victim = table.map.next_on_disk().find(|&victim| victim != but);
        let Some(victim) = victim else { return false };
        let gone = table.map.get(victim).and_then(|record| record.disk());
        self.remove_disk(table, victim, gone.expect("it is on the disk"));
        table.counters.evicted[Level::Disk as usize] += 1;
        true
    }

    fn try_write(&self, table: &mut Table, name: Name) -> Result<(), Refused> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let Some(at) = table.map.find(name) else { return Ok(()) };
        let Some(record) = table.map.get(at).filter(|record| record.disk().is_none()) else {
            return Ok(());
        };
        let Some(page) = table.host_page(record) else { return Ok(()) };
        let no_memory = |_| Refused::OutOfMemory;
        let (slot, space, checksum) = (page.slot.clone(), record.space(), page.checksum);
        let parent = table.map.parent_digest(at);
        let namespace = *table.map.spaces.name(space);
        let note = Note { namespace, name, parent, checksum }.encode().map_err(no_memory)?;
        let source = try_box(Written { slot, checksum }).map_err(no_memory)?;
        table.writes.try_reserve(1).map_err(no_memory)?;
        // The disk's bound: others go, and some ahead, for their room is there only when that is
        // committed.
        let most = usable(disk.stats().capacity, self.least_disk_cost());
        let cost = self.disk_cost(table.map.pool_of(name.group));
        if cost > most {
            return Err(Refused::Length);
        }
        while self.disk_bytes(table) + cost > most {
            if !self.evict_from_disk(table, at) {
                return Err(Refused::Full);
            }
        }
        let number = table.next_disk;
        table.map.set_disk(at, (number, checksum)).map_err(no_memory)?;
        table.next_disk += 1;
        if let Err(refused) = disk.put(key(number), note, source) {
            table.map.leave_disk(at);
            // Some more go, until the rest of the room lies together; but what was removed and is
            // not committed may be enough.
            if refused == Refused::Fragmented && disk.stats().bytes <= self.disk_bytes(table) {
                let _ = (0..RETRIED).all(|_| self.evict_from_disk(table, at));
            }
            return Err(refused);
        }
        table.writes.insert(number, name);
        Ok(())
    }

    /// Tries again what the disk had no room for, when there may be some.
    pub(super) fn retry_writes(&self, table: &mut TableGuard<'_>) {
        let Some(disk) = &self.disk else { return };
        let stats = disk.stats();
        let has_changed = stats.commits != table.tried_at || table.writes.is_empty();
        if table.retries.is_empty() || !has_changed {
            return;
        }
        table.tried_at = stats.commits;
        for at in 0..table.retries.len() {
            if at % RETRIED == RETRIED - 1 {
                TableGuard::bump(table);
            }
            let Some((number, name)) = table.retries.pop_front() else { return };
            match self.try_write(table, name) {
                Ok(()) => {}
                Err(Refused::Full | Refused::Fragmented | Refused::Busy) => {
                    // In their order: whoever flushes waits for the first ones.
                    table.retries.push_front((number, name));
                    return;
                }
                Err(_) => table.counters.disk_failed += 1,
            }
        }
    }

    /// Starts to read a page. False when it can't be had now: then it is not on the disk any more,
    /// or there is no slot.
    pub(super) fn read(&self, table: &mut Table, at: u32, name: Name, need: Need) -> Option<bool> {
        let disk = self.disk.as_ref()?;
        let number = table.map.get(at)?.committed()?;
        let slot = self.take_slot(table, table.map.pool_of(name.group), need)?;
        let target = try_box(Reading { slot, name, number }).ok()?;
        match disk.get(key(number), target) {
            Ok(_) => {
                disk.touch(key(number));
                Some(true)
            }
            Err((Refused::OutOfMemory, _)) => None,
            Err(_) => {
                // The store lost it, and said so to nobody.
                self.remove_disk(table, at, number);
                table.counters.disk_failed += 1;
                Some(false)
            }
        }
    }

    /// Takes in what the disk has done. Whether it had done anything.
    pub(super) fn take_disk_events(&self, events: &mut Vec<Event>) -> bool {
        let Some(disk) = self.disk.as_ref().filter(|disk| disk.has_events()) else { return false };
        disk.poll(events);
        for event in events.drain(..) {
            match event {
                Event::Committed { key } => {
                    let table = &mut *self.table();
                    if let Some((at, _)) = written(table, number(&key)) {
                        table.map.set_committed(at);
                    }
                }
                Event::Dropped { key, .. } => {
                    let table = &mut *self.table();
                    if let Some((at, number)) = written(table, number(&key)) {
                        table.counters.disk_failed += 1;
                        self.remove_disk(table, at, number);
                    }
                }
                Event::Loaded { target, result, .. } => {
                    if let Ok(read) = target.into_any().downcast::<Reading>() {
                        self.take_read(*read, result);
                    }
                }
            }
        }
        true
    }

    /// A read has ended: the page is in host memory again, or it is not to be had.
    fn take_read(&self, read: Reading, result: Result<(), LoadError>) {
        let Reading { slot, name, number } = read;
        // Outside the lock: it takes a while.
        let sum = result.is_ok().then(|| checksum(slot.get()));
        let table = &mut *self.table();
        let at = table.map.find(name).filter(|&at| {
            let record = table.map.get(at);
            record.and_then(|record| record.disk()) == Some(number)
        });
        let landing = match (at, sum) {
            // It was cleared meanwhile.
            (None, _) => Landing::Gone,
            (Some(at), bad) if !bad.is_some_and(|sum| is_as_written(table, at, sum)) => {
                // The store has counted what it found damaged itself.
                let is_failed = matches!(result, Err(why) if why != LoadError::Damaged);
                table.counters.disk_failed += u64::from(is_failed);
                table.counters.damaged[Level::Disk as usize] += u64::from(bad.is_some());
                self.remove_disk(table, at, number);
                Landing::Gone
            }
            (Some(at), sum) => {
                let sum = sum.expect("it was seen to be good");
                let kept = slot.clone();
                table.put_host(at, slot, sum);
                Landing::Here(kept)
            }
        };
        table.loads.land_read(name, Origin::Disk, landing);
    }
}

fn is_as_written(table: &Table, at: u32, sum: u64) -> bool {
    table.map.get(at).is_some_and(|record| record.can_be(sum))
}

/// The record of a page that was being written.
fn written(table: &mut Table, number: u64) -> Option<(u32, u64)> {
    let name = table.writes.remove(&number)?;
    let at = table.map.find(name)?;
    let record = table.map.get(at)?;
    (record.disk() == Some(number)).then_some((at, number))
}
