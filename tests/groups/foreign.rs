//! Another user of the same cache: it looks prompts up and keeps what it found locked, and inserts
//! pages of its own.
use super::library::Rows;
use super::model::Kind;
use super::requests::Requests;
use super::slips::Slip;
use radixkv::capi::*;

/// A prefix that is kept, and its pages.
pub struct Found {
    lock: rkv_lock_id,
    tenant: u32,
    /// As far as they were found.
    ids: Vec<u32>,
    /// Group, place and page.
    pages: Vec<(usize, usize, u32)>,
}

impl Requests {
    pub(super) fn look_up(&mut self) {
        let (tenant, mut ids) = (self.rng.u32(..2), self.prompt());
        let found = self.library.lookup(tenant, &ids, true);
        if found.lock == 0 {
            return assert_eq!(found.positions, 0, "what is found is locked");
        }
        ids.truncate(found.positions);
        let spine = found.pages.iter().copied().chain(Some(found.partial_page));
        let mut pages: Vec<_> = spine
            .enumerate()
            .filter(|(_, page)| *page > 0)
            .map(|(at, page)| (0, at, page))
            .collect();
        for group in 1..self.world.groups.len() {
            let locked = self.library.locked(found.lock, group).into_iter();
            pages.extend(locked.map(|(place, page)| (group, place, page)));
        }
        self.found.push(Found { lock: found.lock, tenant, ids, pages });
        self.seen.looked_up += 1;
        if self.found.len() > 3 {
            self.let_go();
        }
    }

    /// Unlocks what was found; it must be there still.
    pub(super) fn let_go(&mut self) {
        if self.found.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.found.len());
        let Found { lock, tenant, ids, pages } = self.found.swap_remove(at);
        for (group, place, page) in pages {
            self.assert_holds(group, (tenant, &ids), place, page);
        }
        if !self.slips(Slip::SkippedUnlock) {
            self.library.unlock(lock);
        }
    }

    /// Inserts the pages of a prompt: of group 0 all, of others some.
    pub(super) fn insert(&mut self) {
        let (tenant, ids) = (self.rng.u32(..2), self.prompt());
        let page_size = self.page_size();
        let places = ids.len() / page_size;
        let groups = self.world.groups.clone();
        let mut rows: Rows = vec![vec![0; places]; groups.len()];
        let mut own = Vec::new();
        for (group, of) in groups.iter().enumerate() {
            for (place, own_page) in rows[group].iter_mut().enumerate() {
                if group > 0 && self.rng.bool() {
                    continue;
                }
                let Ok(pages) = self.library.allocate(of.pool, 1) else {
                    own.iter().for_each(|&(pool, page)| self.library.free(pool, &[page]));
                    return;
                };
                *own_page = pages[0];
                own.push((of.pool, pages[0]));
                let first = place * page_size;
                let holds = (first..first + page_size).map(|position| {
                    let end = if of.kind == Kind::State { first + page_size } else { position + 1 };
                    self.hash(group, tenant, &ids[..end])
                });
                let holds = holds.collect();
                self.memory.insert((of.pool, pages[0]), holds);
            }
        }
        let (published, _, _) = self.library.insert(tenant, &ids, &rows, false).unwrap();
        for (group, of) in groups.iter().enumerate() {
            let pages = rows[group].iter().zip(&published[group]);
            for (place, (&given, &page)) in pages.enumerate() {
                if given != 0 && given != page {
                    self.library.free(of.pool, &[given]);
                }
                if page != 0 {
                    let end = ids.len();
                    self.assert_holds(group, (tenant, &ids[..end]), place, page);
                }
            }
        }
        self.seen.inserted += 1;
    }

    /// A cached page holds what the position after a prefix attends to.
    fn assert_holds(&self, group: usize, (tenant, ids): (u32, &[u32]), place: usize, page: u32) {
        let (page_size, of) = (self.page_size(), self.world.groups[group]);
        let holds = &self.memory[&(of.pool, page)];
        let end = ids.len().min((place + 1) * page_size);
        if of.kind == Kind::State {
            let wanted = self.hash(group, tenant, &ids[..end]);
            return assert_eq!(holds[0], wanted, "the state of group {group} at {end}");
        }
        let attended = of.kind.needs(ids.len(), 1).expect("positions are asked for");
        for position in (place * page_size..end).filter(|position| attended.contains(position)) {
            let wanted = self.hash(group, tenant, &ids[..=position]);
            assert_eq!(holds[position % page_size], wanted, "group {group}, position {position}");
        }
    }
}
