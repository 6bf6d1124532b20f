//! Pages on their way from the device to host memory.
use super::config::PagePolicy;
use super::host::Need;
use super::map::{Level, Name};
use super::pages::Page;
use super::poll::{CopyJob, Direction, Fetched, JOBS};
use super::table::{Job, Stored, Table};
use super::work::{PageTiers, TableGuard, checksum};
use crate::error::Error;
use crate::group::GROUP_LIMIT;
use crate::memory::Slot;
use crate::store::PoolPage;
use std::collections::VecDeque;
use std::time::Instant;

/// Uses that wait to be counted.
const USES: usize = 1 << 10;
/// Pages that are counted, or queued, before others are let in.
const COUNTED: usize = 64;
/// Pages that are about to be evicted: of all, the part, and at least so many.
const COLD_PART: usize = 8;
const COLD_LEAST: usize = 32;
/// Of those, how many are looked at, so that others don't wait.
const COLD_MOST: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Stores {
    /// Pages of the device that are to be stored, each once.
    pub queue: VecDeque<u32>,
    /// Copies that the engine carries out.
    pub open: usize,
    /// The same by pool.
    pub open_of: [usize; GROUP_LIMIT],
    /// When the engine asked for copies last, if it got none of what is to be stored.
    pub stuck: Option<Instant>,
    /// What was copied, and is to be checked and found.
    pub arrived: VecDeque<(Slot, Stored)>,
    /// How many ever arrived, and how many of those are found, or are not to be.
    pub arrivals: u64,
    pub taken: u64,
    /// The last pages of prefixes that somebody asked beyond.
    uses: VecDeque<u32>,
    /// Fetches that have ended.
    pub finished: VecDeque<Fetched>,
    /// Of those, how many the engine knows of, and did not want when it asked last.
    pub unwanted: usize,
}

impl Stores {
    /// Somebody asked for what follows a page.
    pub fn note_use(&mut self, page: Option<u32>) {
        if let Some(page) = page
            && self.uses.len() < USES
            && self.uses.try_reserve(1).is_ok()
        {
            self.uses.push_back(page);
        }
    }
}

impl Table {
    /// Counts the first pages of the queue that are to be stored, so many at most. What is between
    /// them and is known already goes: nobody waits for the state meanwhile.
    fn count_to_store(&mut self, room: usize) -> usize {
        let (mut due, mut count) = ([0; JOBS], 0);
        for _ in 0..self.stores.queue.len().min(4 * room) {
            if count == room {
                break;
            }
            let Some(page) = self.next_to_store() else { break };
            let Some(what) = self.pages.get(page) else { continue };
            let is_due = what.is_queued
                && self.pages.parent_digest(&what).is_some()
                && self.find(what.name()).is_none();
            if is_due {
                (due[count], count) = (page, count + 1);
            } else {
                self.pages.set_queued(page, false);
            }
        }
        // Each leaves when its turn comes: should the engine panic, those behind it wait on. There
        // is room, which they had before.
        for &page in due[..count].iter().rev() {
            self.pages.set_listed(page, true);
            self.stores.queue.push_front(page);
        }
        count
    }

    /// Takes the next page out of the queue.
    fn next_to_store(&mut self) -> Option<u32> {
        let page = self.stores.queue.pop_front()?;
        self.pages.set_listed(page, false);
        Some(page)
    }

    /// Puts a page into the queue, in which there is room.
    fn list_store(&mut self, page: u32) {
        if !self.pages.set_listed(page, true) {
            self.stores.queue.push_back(page);
        }
    }
}

impl PageTiers {
    /// Has a page stored, unless it is, or is about to be.
    pub(super) fn queue_store(&self, table: &mut Table, page: u32) {
        let is_new = |what: &Page| !what.is_queued && !what.was_stored;
        let Some(what) = table.pages.get(page).filter(is_new) else { return };
        let name = what.name();
        if table.find(name).is_some() {
            return;
        }
        if table.stores.queue.try_reserve(1).is_err() {
            table.counters.throttled += 1;
            return;
        }
        table.list_store(page);
        table.pages.set_queued(page, true);
    }

    /// Counts who asked for what follows pages; those that were asked for often are stored.
    pub(super) fn count_uses(&self) {
        let mut table = self.table();
        // While the contents are told, what pages hold is of several moments: one may come before
        // another one that comes before it.
        let is_exact = table.applied.is_some();
        let (PagePolicy::AfterUses(wanted), true) = (self.policy, is_exact) else {
            return table.stores.uses.clear();
        };
        let mut left = COUNTED;
        for _ in 0..table.stores.uses.len() {
            let Some(mut page) = table.stores.uses.pop_front() else { return };
            // What pages hold changes by this thread alone.
            while let Some(mut what) = table.pages.get(page) {
                what.uses = what.uses.saturating_add(1);
                // Its namespace stays the same.
                table.pages.set(page, what);
                if what.uses >= wanted {
                    self.queue_store(&mut table, page);
                    self.queue_hung(&mut table, page);
                }
                left -= 1;
                if left == 0 {
                    left = COUNTED;
                    TableGuard::bump(&mut table);
                }
                if what.before == 0 {
                    break;
                }
                page = what.before;
            }
        }
    }

    /// Has the pages stored that evictions will take next, when few are free.
    pub(super) fn queue_cold(&self) -> Result<(), Error> {
        if self.policy != PagePolicy::OnEviction {
            return Ok(());
        }
        let mut cold = Vec::new();
        cold.try_reserve_exact(2 * COLD_MOST).map_err(crate::memory::OutOfMemory::from)?;
        for pool in 0..self.pools.len() {
            {
                let state = self.shared.read();
                let stats = state.pool_stats(pool as u32)?;
                let wanted = (stats.total / COLD_PART).clamp(COLD_LEAST, COLD_MOST);
                if stats.free < wanted {
                    state.cold_pages(pool, wanted, &mut |page| cold.push(page));
                }
            }
            let mut table = self.table();
            for (at, page) in cold.drain(..).enumerate() {
                let page = table.pages.number(pool, page);
                self.queue_store(&mut table, page);
                // What hangs on a page goes with it.
                self.queue_hung(&mut table, page);
                if at % COUNTED == COUNTED - 1 {
                    TableGuard::bump(&mut table);
                }
            }
        }
        Ok(())
    }

    /// Has what hangs on a page of group 0 stored.
    fn queue_hung(&self, table: &mut Table, spine: u32) {
        if !self.groups.are_several() || table.pages.get(spine).is_none_or(|page| page.group > 0) {
            return;
        }
        for (group, config) in self.groups.hung() {
            let page = self.shared.read().hung_page(group, spine);
            if page != 0 {
                let page = table.pages.number(config.pool as usize, page);
                self.queue_store(table, page);
            }
        }
    }

    /// Gives copies to host memory, of pages that still hold what was found in them.
    pub(super) fn issue_stores(
        &self,
        table: &mut Table,
        room: usize,
        give: &mut dyn FnMut(CopyJob),
    ) -> Result<usize, Error> {
        let Some(applied) = table.applied else { return Ok(0) };
        table.jobs.try_reserve(room)?;
        let count = table.count_to_store(room);
        if count == 0 {
            return Ok(0);
        }
        let mut state = self.shared.turn();
        let clear = state.latest_clear();
        let (mut given, mut is_out) = (0, [false; GROUP_LIMIT]);
        for _ in 0..count {
            let Some(page) = table.next_to_store() else { break };
            let Some(what) = table.pages.get(page) else { continue };
            let name = what.name();
            let parent = table.pages.parent_digest(&what);
            let is_known = table.find(name).is_some();
            let Some(parent) = parent.filter(|_| !is_known && what.is_queued) else {
                table.pages.set_queued(page, false);
                continue;
            };
            let (pool, in_pool) = table.pages.place(page);
            let (group, at) = (usize::from(what.group), PoolPage { pool, page: in_pool });
            // Of a group beside the first, what its page of group 0 is says what it is.
            let spine = if group == 0 { page } else { what.before };
            if state.held_since(spine).is_some_and(|since| since > applied) {
                // The journal was not followed that far.
                table.list_store(page);
                continue;
            }
            // What is stored goes on after that, which is used now: others go to make room for it.
            if let Some(used) = parent.and_then(|digest| table.map.find(Name { digest, ..name })) {
                table.map.touch(used);
            }
            let is_full = is_out[pool] || table.stores.open_of[pool] >= self.most_stores(pool);
            let slot = if is_full { None } else { self.take_slot_for_store(table, pool) };
            let Some(slot) = slot else {
                // It has none for those behind either. Another pool may have some.
                is_out[pool] = true;
                table.list_store(page);
                continue;
            };
            let is_there = group == 0
                || state.hangs_on(group, at, spine)
                    && table.pages.get(spine).is_some_and(|spine| spine.digest == name.digest);
            if !is_there || !state.begin_store(at, spine, applied) {
                table.pages.set_queued(page, false);
                continue;
            }
            let id = self.shared.number_copy();
            let job = CopyJob {
                id,
                direction: Direction::Store,
                group,
                page: in_pool,
                host: slot.address(),
                bytes: self.pools[pool].page_bytes,
                sequence: None,
            };
            let namespace = *table.map.spaces.name(what.space);
            let what = Stored { name, parent, namespace, clear };
            table.jobs.insert(id, Job::Store { page: at, slot, what });
            table.stores.open += 1;
            table.stores.open_of[pool] += 1;
            given += 1;
            // Last: should the engine panic, it is known what was lent.
            state.call_out(|| give(job));
        }
        Ok(given)
    }

    /// A slot, but for the last ones that can be had, which fetches need.
    fn take_slot_for_store(&self, table: &mut Table, pool: usize) -> Option<Slot> {
        let slots = &self.pools[pool].slots;
        let kept = if table.loads.are_active() { slots.count() / 8 } else { 0 };
        // Reads, writes and copies that go on have the rest.
        let can_be_had = slots.free() + table.map.count_of(Level::Host, pool);
        let is_scarce = kept > 0 && can_be_had <= kept;
        if is_scarce { None } else { self.take_slot(table, pool, Need::Store) }
    }

    /// A copy to host memory is done, or failed.
    pub(super) fn end_store(
        &self,
        table: &mut Table,
        page: PoolPage,
        (slot, what): (Slot, Stored),
        is_good: bool,
    ) {
        table.stores.open -= 1;
        table.stores.open_of[page.pool] -= 1;
        let page = table.pages.number(page.pool, page.page);
        let is_it = |page: &Page| page.name() == what.name;
        // Without memory it did not arrive.
        let arrives = is_good && table.stores.arrived.try_reserve(1).is_ok();
        if table.pages.get(page).as_ref().is_some_and(is_it) {
            table.pages.set_queued(page, false);
            if arrives {
                table.pages.set_stored(page);
            }
        }
        if arrives {
            table.stores.arrived.push_back((slot, what));
            table.stores.arrivals += 1;
        } else {
            table.counters.failed_stores += 1;
            // The engine has copied it: whoever flushes is told that it is not there.
            table.counters.disk_failed += u64::from(is_good && self.disk.is_some());
        }
    }

    /// Makes records of what was copied to host memory, and has the disk write it. Whether there
    /// was anything.
    pub(super) fn take_arrivals(&self) -> bool {
        let mut any = false;
        loop {
            let next = self.table().stores.arrived.pop_front();
            let Some((slot, what)) = next else { return any };
            any = true;
            let sum = checksum(slot.get());
            let is_cleared = self.shared.read().cleared_since(what.clear)(&what.namespace);
            let table = &mut *self.table();
            // Others see that with what follows from it.
            table.stores.taken += 1;
            if is_cleared {
                table.counters.cleared += 1;
                continue;
            }
            table.map.tick();
            if table.add_host(&what, slot, sum) {
                table.counters.stored += 1;
                self.write(table, what.name);
                self.offer(table, &what);
            } else if table.find(what.name).is_none() {
                // Without memory to find it by it is lost: whoever flushes is told.
                table.counters.failed_stores += 1;
                table.counters.disk_failed += u64::from(self.disk.is_some());
            }
        }
    }

    /// A page left the device: it is the next that somebody may ask for, if it was stored.
    pub(super) fn note_removed(&self, table: &mut Table, page: u32, is_lost: bool) {
        let Some(what) = table.pages.get(page) else { return };
        table.forget_page(page);
        let name = what.name();
        match table.map.find(name) {
            Some(at) if table.find(name).is_some() => self.touch(table, at),
            _ => {
                let is_coming = table.stores.open > 0
                    && table.jobs.iter().any(
                        |(_, job)| matches!(job, Job::Store { what, .. } if what.name == name),
                    );
                let has_arrived =
                    table.stores.arrived.iter().any(|(_, arrived)| arrived.name == name);
                // Host memory may have given up what was stored: that is counted there.
                let is_lost = is_lost && !what.was_stored;
                table.counters.lost += u64::from(is_lost && !is_coming && !has_arrived);
            }
        }
    }

    /// Pages of host memory and of the disk.
    pub(super) fn counts(table: &Table) -> [usize; 2] {
        [Level::Host, Level::Disk].map(|level| table.map.count(level))
    }
}
