//! The end of a sequence in the groups beside the spine: what it used of the cache there is in use
//! no more, what was its own goes back to the pools; of long rows in portions. So are the rows that
//! are left when a cache is destroyed.
use super::early::EarlyByPool;
use super::group_rows::{GroupRows, end_source};
use super::long_path::Foothold;
use super::{PrefixCache, State, Turn};
use crate::group::{GroupKind, HungPage};
use crate::index::Node;
use crate::paging::PageTable;

/// Places without a page that are passed at once, for each page of a slice.
const HOLES: usize = 32;

impl State {
    /// Lets go of all that a sequence has in the groups beside the spine; `at_rest` when it waits
    /// for no pages.
    pub(super) fn end_groups(&mut self, rows: &GroupRows, slot: u32, at_rest: bool) {
        let Some(cache) = &mut self.cache else { return };
        let now = cache.index.now();
        let Some(groups) = cache.groups.as_deref_mut() else { return };
        for source in rows.sources() {
            end_source(&mut self.table, &mut groups.hung, (source, slot), now);
        }
        let mut let_go = |table: &mut PageTable, page: HungPage| {
            let pool = table.pool_at_mut(groups.hung.pool_of(page.group));
            match pool.is_cached(page.page) {
                true => groups.hung.end_use(page, None, now),
                false => pool.put_back(page.page),
            }
        };
        for page in rows.sparse(&self.table, at_rest) {
            let_go(&mut self.table, page);
        }
        for group in rows.full_groups(&self.table) {
            // The last page of the cache's stands for all before it.
            let first = rows.cached(group, &self.table).len().saturating_sub(1);
            for &page in rows.rows[group][first..].iter().rev() {
                let_go(&mut self.table, HungPage { group, page });
            }
        }
    }
}

impl GroupRows {
    /// Puts back what a sequence, whose cache has left, has of the pools: so many pages at most.
    pub(super) fn put_some_back(&mut self, table: &mut PageTable, slot: u32, left: &mut usize) {
        let groups = *table.groups();
        let pool_of = |group: usize| groups.list()[group].pool as usize;
        for copy in self.copies.drain(..) {
            let pool = table.pool_at_mut(pool_of(copy.group));
            match copy.saves {
                None => _ = pool.end_loan(copy.source, slot),
                Some(_) => pool.put_back(copy.target),
            }
        }
        for (group, row) in self.rows.iter_mut().enumerate() {
            let pool = table.pool_at_mut(pool_of(group));
            let some = row.len().saturating_sub(*left);
            *left -= row.len() - some;
            for page in row.drain(some..).filter(|&page| page != 0) {
                if !pool.is_cached(page) {
                    pool.put_back(page);
                }
            }
        }
    }

    /// Whether that was all.
    pub(super) fn is_put_back(&self) -> bool {
        self.rows.iter().all(Vec::is_empty)
    }
}

/// The rows of a sequence that ended.
#[derive(Debug)]
pub(crate) struct RowsAside {
    /// What the cache has of them.
    cached: u32,
    /// What was the sequence's own.
    own: EarlyByPool,
}

impl PrefixCache {
    /// Ends so many uses of rows that leave, from their ends up. Whether some are left.
    fn end_some_rows(&mut self, table: &mut PageTable, at: u32, count: usize) -> bool {
        let now = self.index.now();
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let GroupRows { rows, kept, .. } = &mut groups.leaving[at];
        let (kept, hung) = (*kept, &mut groups.hung);
        let mut left = HOLES.saturating_mul(count);
        for (group, row) in rows.iter_mut().enumerate() {
            let is_full = table.groups().list()[group].kind == GroupKind::Full;
            let pool = table.pool_at_mut(hung.pool_of(group));
            while let Some(page) = row.pop() {
                let page = HungPage { group, page };
                left = left.saturating_sub(if page.page == 0 { 1 } else { HOLES });
                if page.page != 0 && !pool.is_cached(page.page) {
                    pool.put_back(page.page);
                } else if page.page != 0 {
                    // The one before it in a chain is the next of the row.
                    let before = match kept {
                        true => hung.end_one_keep(page, now),
                        false => hung.end_one_use(page, None, now),
                    };
                    if is_full && before.is_none() {
                        row.clear();
                    }
                }
                if left == 0 {
                    return true;
                }
            }
        }
        false
    }
}

impl Turn<'_> {
    /// Takes the rows of a sequence that ends out of it, when they are long, to be given up in
    /// portions. Without memory for that they stay.
    pub(crate) fn set_rows_aside(&mut self, slot: u32) -> Option<RowsAside> {
        let (slice, state) = (self.shared.slice, self.state());
        let place = &state.sequences[slot as usize];
        let (shared, bytes) = (place.shared, place.groups.bytes());
        let places: usize = place.groups.rows.iter().map(Vec::len).sum();
        let cache = state.cache.as_mut()?;
        let has_room = places > slice
            && cache.groups.as_deref_mut()?.leaving.try_reserve(1).is_ok()
            && cache.footholds.try_reserve(1).is_ok();
        if !has_room {
            return None;
        }
        let mut rows = std::mem::take(&mut state.sequences[slot as usize].groups);
        let Some(own) = state.set_own_aside(&mut rows, shared) else {
            state.sequences[slot as usize].groups = rows;
            return None;
        };
        state.sequence_bytes -= bytes;
        let cache = state.cache.as_mut().expect("as above");
        let now = cache.index.now();
        let groups = cache.groups.as_deref_mut().expect("as above");
        for source in rows.sources() {
            end_source(&mut state.table, &mut groups.hung, (source, slot), now);
        }
        rows.copies.retain(|copy| copy.saves.is_some());
        for save in rows.copies.drain(..) {
            state.table.pool_at_mut(groups.hung.pool_of(save.group)).put_back(save.target);
        }
        Some(RowsAside { cached: groups.leaving.insert(rows), own })
    }

    /// Gives those rows up, and then the lock that their sequence had on a node.
    pub(crate) fn end_rows_aside(&mut self, rows: RowsAside, node: Option<Node>) {
        let RowsAside { cached, own } = rows;
        if let Some(rows) = self.end_cached_rows(cached, node.map(Foothold::from)) {
            if let Some(node) = node {
                self.let_go(node);
            }
            // To give memory back takes the system longer than others should wait for.
            self.unlocked(|| drop(rows));
        }
        self.give_all_back(own);
    }

    /// Gives up what the cache has of rows that leave, while their node is held, and returns the
    /// empty rows. None when the cache went meanwhile.
    pub(super) fn end_cached_rows(&mut self, at: u32, node: Option<Foothold>) -> Option<GroupRows> {
        let (slice, gone) = (self.shared.slice, self.caches_gone);
        let mut held = None;
        loop {
            let (cache, table) = self.parts().ok()?;
            if !cache.end_some_rows(table, at, slice) {
                let groups = cache.groups.as_deref_mut().expect("there are several groups");
                let rows = groups.leaving.remove(at);
                if let Some(held) = held {
                    cache.footholds.remove(held);
                }
                return Some(rows);
            }
            if let (None, Some(node)) = (held, node) {
                // There is room.
                held = Some(cache.footholds.insert(node));
            }
            self.let_waiting_in();
            if gone != self.caches_gone {
                return None;
            }
        }
    }
}
