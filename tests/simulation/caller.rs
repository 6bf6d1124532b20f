//! The calls of a user that keeps books of its own: matches, locks, inserts, evictions, pages and
//! rows, each compared with ours.
use super::books::{Page, Wrong, require};
use super::tokens::Tokens;
use super::world::{Done, Fault, Refused, World};
use crate::model::abi::{InsertCall, Library, Status, done};

/// A lock that is held.
pub struct Lock {
    id: u64,
    pages: Vec<u32>,
    has_partial: bool,
}

/// A node that was seen, and may be gone.
#[derive(Clone)]
pub struct Seen {
    pub node: u64,
    pub tokens: Tokens,
    pub page_count: usize,
}

impl World {
    /// A match. Returns its node and its lock.
    pub fn lookup(
        &mut self,
        tokens: &Tokens,
        lock: bool,
    ) -> Result<(Option<Seen>, Option<Lock>), Wrong> {
        let page_size = self.page_size();
        let room = tokens.positions() / page_size;
        self.log.say("match", tokens.positions() as u64, lock.into());
        let (ns, list) = (tokens.ns, &tokens.list);
        let mut path = self.books.path(tokens);
        let found = self.found(tokens, path.len());
        path.truncate(found / page_size);
        let looked = self.call(|library| {
            let (status, seen, pages) = library.lookup(ns, list, lock, room);
            done(status, (seen, pages))
        });
        let (seen, mut pages) = match looked {
            Ok(found) => found,
            Err(status) => {
                self.unforeseen::<()>("rkv_cache_match", status)?.expect_err("it was refused");
                return Ok((None, None));
            }
        };
        let copied = found % page_size;
        let expected = [path.len(), copied, found, tokens.count_within(found)];
        let numbers =
            [seen.page_count, seen.partial_position_count, seen.position_count, seen.token_count];
        require!(
            numbers == expected.map(|number| number as u64),
            "rkv_cache_match finds {numbers:?}, in the books {expected:?}"
        );
        pages.truncate(path.len());
        require!(pages == path, "rkv_cache_match: {pages:?}, in the books {path:?}");
        if copied > 0 {
            let partial = seen.partial_page;
            require!(self.books.state(partial) == Page::Cached, "page {partial} is no cached one");
            pages.push(partial);
        }
        self.books.holds(&pages, tokens, found)?;
        // What is only named was not used.
        self.books.touch(if lock { &pages } else { &path });
        self.counters.lookups += 1;
        self.counters.lookup_positions += tokens.positions();
        self.counters.hit_positions += found;
        self.counters.partial_hit_positions += copied;
        let locked = (lock && found > 0).then(|| {
            self.books.protect(&pages);
            Lock { id: seen.lock, pages, has_partial: copied > 0 }
        });
        require!(lock && found > 0 || seen.lock == 0, "a lock that nobody asked for");
        self.settle()?;
        let tokens = || tokens.clone();
        let seen = (seen.node != 0).then(|| Seen {
            node: seen.node,
            tokens: tokens(),
            page_count: path.len(),
        });
        Ok((seen, locked))
    }

    pub fn probe(&mut self, tokens: &Tokens) -> Result<(), Wrong> {
        self.log.say("probe", tokens.positions() as u64, 0);
        let answer = self.library.probe(tokens.ns, &tokens.list);
        let found = self.found(tokens, self.books.path(tokens).len());
        let expected = (tokens.count_within(found), found);
        require!(answer == Ok(expected), "rkv_cache_probe: {answer:?}, in the books {expected:?}");
        self.settle()
    }

    /// Locks a node that was seen earlier, unless it is gone. What it stands for is cached then.
    pub fn lock(&mut self, seen: &Seen) -> Result<Option<Lock>, Wrong> {
        self.log.say("lock", seen.page_count as u64, 0);
        let answer = self.library.lock(seen.node);
        self.log.answer(answer.err());
        let mut lock = None;
        if let Ok(id) = answer {
            let mut pages = self.books.path(&seen.tokens);
            require!(pages.len() >= seen.page_count, "a node was locked that is not cached");
            pages.truncate(seen.page_count);
            self.books.protect(&pages);
            lock = Some(Lock { id, pages, has_partial: false });
        } else {
            require!(answer == Err(Status::StaleNode), "rkv_cache_lock: {answer:?}");
            self.mark("a node is gone");
        }
        self.settle()?;
        Ok(lock)
    }

    pub fn unlock(&mut self, lock: Lock) -> Result<(), Wrong> {
        self.log.say("unlock", lock.pages.len() as u64, 0);
        if !self.slips(Fault::SkippedUnlock) {
            let unlocked = self.call(|library| library.unlock(lock.id));
            unlocked.map_err(|_| format!("unlock: {}", Library::last_message()))?;
        }
        self.books.unprotect(&lock.pages);
        self.settle()
    }

    pub fn allocate(&mut self, count: usize) -> Done<Vec<u32>> {
        let room = self.room();
        self.log.say("allocate_pages", count as u64, 0);
        match self.call(|library| library.allocate_pages(count)) {
            Ok(pages) => {
                require!(count <= room, "{count} pages were found, and there were {room}");
                self.books.hand_out(&pages, Page::Loose)?;
                self.settle()?;
                Ok(Ok(pages))
            }
            Err(Status::OutOfPages) => {
                self.check_shortage(count, &[])?;
                self.settle()?;
                Ok(Err(Refused::Pages))
            }
            Err(status) => self.unforeseen("rkv_page_table_allocate_pages", status),
        }
    }

    pub fn free(&mut self, pages: &[u32]) -> Result<(), Wrong> {
        self.log.say("free_pages", pages.len() as u64, 0);
        let freed = self.call(|library| library.free_pages(pages));
        freed.map_err(|_| format!("free: {}", Library::last_message()))?;
        pages.iter().for_each(|&page| self.books.set(page, Page::Free));
        self.settle()
    }

    /// Computes a prefix into loose pages and publishes it, from a locked node on if there is one.
    /// Returns its node and the pages that are left over.
    pub fn insert(
        &mut self,
        tokens: &Tokens,
        from: Option<&Seen>,
        new: &[u32],
    ) -> Done<(Option<Seen>, Vec<u32>)> {
        let page_size = self.page_size();
        let first = from.map_or(0, |from| from.page_count);
        let pages: Vec<u32> = std::iter::repeat_n(0, first).chain(new.iter().copied()).collect();
        for (index, &page) in pages.iter().enumerate().skip(first) {
            let content = &tokens.digests()[index * page_size..][..page_size];
            self.books.content_mut(page).copy_from_slice(content);
        }
        let call = InsertCall {
            ns: tokens.ns,
            tokens: &tokens.list,
            pages: &pages,
            from_node: from.map_or(0, |from| from.node),
            from_token_index: from.map_or(0, |_| tokens.count_within(first * page_size)),
            from_page_index: first,
        };
        self.log.say("insert", tokens.positions() as u64, first as u64);
        let cleared = self.books.is_cleared(tokens);
        let (seen, published) = match self.call(|library| library.insert(&call)) {
            Ok(done) => done,
            Err(Status::InvalidState) if cleared => {
                self.mark("an insert after what was cleared");
                self.settle()?;
                return Ok(Err(Refused::Gone));
            }
            Err(status) => return self.unforeseen("rkv_cache_insert", status),
        };
        require!(!cleared, "rkv_cache_insert goes on from what was cleared");
        let (mut claimed, mut left) = (0, Vec::new());
        self.books.touch(&[]);
        for (index, &page) in pages.iter().enumerate() {
            let there = self.books.cached(tokens.key((index + 1) * page_size - 1));
            let wanted = there.unwrap_or(page);
            require!(published[index] == wanted, "page {wanted} is published at {index}");
            if index < first {
                continue;
            }
            if wanted == page {
                self.books.publish(page, tokens, index)?;
                claimed += 1;
            } else {
                left.push(page);
            }
        }
        let expected = (claimed as u64, left.len() as u64);
        let numbers = (seen.claimed_page_count, seen.duplicate_page_count);
        require!(numbers == expected, "rkv_cache_insert: {numbers:?}, in the books {expected:?}");
        self.counters.inserted += claimed;
        self.counters.duplicates += left.len();
        self.settle()?;
        let (node, tokens, page_count) = (seen.node, tokens.clone(), pages.len());
        Ok(Ok(((node != 0).then_some(Seen { node, tokens, page_count }), left)))
    }

    pub fn evict(&mut self, count: usize) -> Result<(), Wrong> {
        let most = count.min(self.reclaimable);
        self.log.say("evict", count as u64, 0);
        let evicted = self.call(|library| library.evict(count, Some(count)));
        let (number, mut pages) = evicted.map_err(|status| format!("evict: {status:?}"))?;
        require!(number == most, "{number} pages are evicted, and {most} could be");
        if !pages.is_empty() && self.slips(Fault::LostEviction) {
            pages.pop();
        }
        self.books.evicted(&pages)?;
        self.settle()
    }

    // Rows.

    pub fn allocate_slot(&mut self) -> Done<u32> {
        let can = self.free_slots() > 0;
        self.log.say("allocate_slot", 0, 0);
        let answer = self.call(Library::allocate_slot);
        let slot = match answer {
            Ok(slot) => slot,
            Err(Status::OutOfSlots) => {
                require!(!can, "there are free slots");
                self.settle()?;
                return Ok(Err(Refused::Slots));
            }
            Err(status) => return self.unforeseen("rkv_page_table_allocate_slot", status),
        };
        let at = slot as usize;
        let is_free = self.rows[at].is_none() && self.sequences[at].is_none();
        require!(is_free, "slot {slot} is handed out while in use");
        self.rows[at] = Some(Vec::new());
        self.settle()?;
        Ok(Ok(slot))
    }

    pub fn reserve(&mut self, slot: u32, positions: usize) -> Done<()> {
        let before = self.rows[slot as usize].as_ref().map_or(0, Vec::len);
        let lacking = self.pages_for(positions).saturating_sub(before);
        let can = lacking <= self.room();
        let answer = self.library.can_reserve(Some(slot), positions);
        require!(answer == Ok(can), "can_reserve is {answer:?} for {lacking} pages");
        self.log.say("reserve", slot.into(), positions as u64);
        match self.call(|library| library.reserve(slot, positions)) {
            Ok(()) => require!(can, "{lacking} pages were found for a row"),
            Err(Status::OutOfPages) => {
                self.check_shortage(lacking, &[])?;
                self.settle()?;
                return Ok(Err(Refused::Pages));
            }
            Err(status) => return self.unforeseen("rkv_page_table_reserve", status),
        }
        let new = self.library.row(slot, before).map_err(|status| format!("row: {status:?}"))?;
        require!(new.len() == lacking, "{} pages were added to a row, not {lacking}", new.len());
        self.books.hand_out(&new, Page::Row(slot))?;
        self.rows[slot as usize].get_or_insert_default().extend(new);
        self.settle()?;
        Ok(Ok(()))
    }

    /// Maps pages of a locked prefix, or loose ones.
    pub fn map(&mut self, slot: u32, pages: &[u32]) -> Result<(), Wrong> {
        let row = self.rows[slot as usize].get_or_insert_default();
        self.log.say("map", slot.into(), pages.len() as u64);
        let mapped = self.library.map(slot, row.len(), pages);
        mapped.map_err(|_| format!("map: {}", Library::last_message()))?;
        row.extend(pages);
        for &page in pages {
            if self.books.state(page) == Page::Loose {
                self.books.set(page, Page::Row(slot));
            }
        }
        self.settle()
    }

    pub fn erase(&mut self, slot: u32) -> Result<(), Wrong> {
        self.log.say("erase", slot.into(), 0);
        let erased = self.call(|library| library.erase(slot));
        erased.map_err(|_| format!("erase: {}", Library::last_message()))?;
        for page in self.rows[slot as usize].take().unwrap_or_default() {
            if self.books.state(page) == Page::Row(slot) {
                self.books.set(page, Page::Free);
            }
        }
        self.settle()
    }
}

impl Lock {
    /// The whole pages that it protects.
    pub fn whole_pages(&self) -> &[u32] {
        &self.pages[..self.pages.len() - usize::from(self.has_partial)]
    }
}
