//! The executable specification: what every verb of the header does, written to be obvious.
//!
//! Where the library is free to choose (page numbers, slots, which of several pages to copy from) a
//! verb takes the choice as an argument, checks that it was allowed, and follows it.
use super::ops::Config;
use super::prompt::{Tokens, images};
use super::published::{Label, PublishedPages};
use radixkv::capi::rkv_status as Status;
use std::collections::BTreeSet;

/// A bug planted in the model, to show that the harness finds bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// A match is one position too long when it can be.
    LongerMatch,
    /// The youngest page goes first.
    EvictsNewest,
    /// A match refreshes only the last page of its path.
    ForgetsPath,
    /// A release keeps the lock.
    LeaksLock,
    /// A reserve takes one page too few.
    ShortReserve,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Reserved,
    Free,
    /// Private to the caller that allocated it, in no row.
    Loose,
    /// Private to a row.
    InRow(u32),
    Cached,
}

#[derive(Clone, Debug, Default)]
pub struct Row {
    pub pages: Vec<u32>,
    /// A sequence owns the slot.
    pub owned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub source: u32,
    pub positions: usize,
}

#[derive(Clone, Debug)]
pub struct Sequence {
    pub ns: u8,
    pub tokens: Tokens,
    pub slot: u32,
    pub prompt_positions: usize,
    pub cached_positions: usize,
    pub cached_tokens: usize,
    /// Leading pages of the row that are the cache's.
    pub shared: usize,
    /// Pages that were found or published: the last of them ends the node whose lock it keeps,
    /// once the copy is confirmed. More than `shared` when a found page is computed again.
    pub base: usize,
    pub copy: Option<Copy>,
    pub node: Option<Label>,
}

/// Why an allocation is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    pub needed: usize,
    pub free: usize,
    pub reclaimable: usize,
    pub locked: usize,
    pub private: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Status(Status),
    Pages(Shortage),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Refusal::Status(status)
    }
}

/// Counts since creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub lookups: usize,
    pub lookup_positions: usize,
    pub hit_positions: usize,
    pub partial_hit_positions: usize,
    pub inserted: usize,
    pub duplicates: usize,
    pub evicted: usize,
}

/// Where a prompt's reuse ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub tokens: usize,
    pub whole_pages: usize,
    pub partial: usize,
}

pub struct Naive {
    pub config: Config,
    pub fault: Fault,
    pub pages: Vec<Page>,
    /// By slot; none for a free slot.
    pub rows: Vec<Option<Row>>,
    pub cache: PublishedPages,
    /// By order of beginning; none after the release.
    pub sequences: Vec<Option<Sequence>>,
    pub counters: Counters,
}

/// The library chose something that it must not choose, or gave a wrong answer.
pub type Wrong = String;

macro_rules! require {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use require;

impl Naive {
    pub fn new(config: Config, fault: Fault) -> Self {
        let mut pages = vec![Page::Free; config.page_count];
        pages[0] = Page::Reserved;
        Naive {
            config,
            fault,
            pages,
            rows: vec![None; config.slot_count],
            cache: PublishedPages::new(config.page_size, 0),
            sequences: Vec::new(),
            counters: Counters::default(),
        }
    }

    // Counts.

    pub fn pages_in(&self, wanted: impl Fn(Page) -> bool) -> Vec<u32> {
        let numbers = 0..self.pages.len() as u32;
        numbers.filter(|&page| wanted(self.pages[page as usize])).collect()
    }

    pub fn free(&self) -> usize {
        self.pages_in(|page| page == Page::Free).len()
    }

    pub fn private(&self) -> usize {
        self.pages_in(|page| matches!(page, Page::Loose | Page::InRow(_))).len()
    }

    pub fn row_limit(&self) -> usize {
        match self.config.row_page_limit {
            0 => self.config.page_count - 1,
            limit => limit,
        }
    }

    pub fn pages_for(&self, positions: usize) -> usize {
        positions.div_ceil(self.config.page_size)
    }

    /// Different images in published pages and in sequences.
    pub fn image_count(&self) -> usize {
        let mut known = BTreeSet::new();
        self.cache.pages.iter().for_each(|page| known.extend(images(&page.prefix)));
        self.live_sequences().for_each(|(_, sequence)| known.extend(sequence.tokens.images()));
        known.len()
    }

    pub fn live_sequences(&self) -> impl Iterator<Item = (usize, &Sequence)> {
        let all = self.sequences.iter().enumerate();
        all.filter_map(|(index, sequence)| Some((index, sequence.as_ref()?)))
    }

    pub fn sequence(&self, index: usize) -> Result<&Sequence, Status> {
        self.sequences.get(index).and_then(Option::as_ref).ok_or(Status::StaleSequence)
    }

    // Allocation.

    /// Refuses what eviction could not satisfy, when `protected` more pages must stay.
    pub fn check_room(&self, needed: usize, protected: usize) -> Result<(), Refusal> {
        let (free, reclaimable) = (self.free(), self.cache.reclaimable() - protected);
        if needed <= free + reclaimable {
            return Ok(());
        }
        let locked = self.cache.pages.len() - reclaimable;
        let private = self.private();
        Err(Refusal::Pages(Shortage { needed, free, reclaimable, locked, private }))
    }

    /// Evicts the next page.
    fn evict_one(&mut self) -> Option<u32> {
        let victim = self.cache.victim(self.fault == Fault::EvictsNewest)?;
        let page = self.cache.remove(victim);
        self.pages[page as usize] = Page::Free;
        self.counters.evicted += 1;
        Some(page)
    }

    /// Hands out the pages that the library chose, after evicting as many as the pool lacks.
    fn take(&mut self, chosen: &[u32], state: Page) -> Result<(), Wrong> {
        while self.free() < chosen.len() {
            require!(self.evict_one().is_some(), "pages {chosen:?} were allocated out of nothing");
        }
        for &page in chosen {
            let now = self.pages.get(page as usize);
            require!(now == Some(&Page::Free), "page {page} was allocated while it is {now:?}");
            self.pages[page as usize] = state;
        }
        Ok(())
    }

    pub fn evict(&mut self, count: usize) -> Vec<u32> {
        std::iter::from_fn(|| self.evict_one()).take(count).collect()
    }

    // The page table.

    pub fn can_allocate_slot(&self) -> Result<(), Refusal> {
        if self.rows.iter().all(Option::is_some) {
            return Err(Status::OutOfSlots.into());
        }
        Ok(())
    }

    pub fn allocate_slot(&mut self, chosen: u32, owned: bool) -> Result<(), Wrong> {
        let row = self.rows.get_mut(chosen as usize);
        require!(matches!(row, Some(None)), "slot {chosen} was handed out while in use");
        self.rows[chosen as usize] = Some(Row { pages: Vec::new(), owned });
        Ok(())
    }

    pub fn row(&self, slot: u32) -> Result<&Row, Status> {
        self.rows.get(slot as usize).and_then(Option::as_ref).ok_or(Status::InvalidArgument)
    }

    /// A row that the caller may change.
    pub fn own_row(&self, slot: u32) -> Result<&Row, Status> {
        match self.row(slot)? {
            row if row.owned => Err(Status::InvalidState),
            row => Ok(row),
        }
    }

    pub fn erase(&mut self, slot: u32) -> Result<(), Refusal> {
        self.own_row(slot)?;
        self.drop_row(slot);
        Ok(())
    }

    pub fn drop_row(&mut self, slot: u32) {
        for page in self.rows[slot as usize].take().expect("the slot is in use").pages {
            if self.pages[page as usize] == Page::InRow(slot) {
                self.pages[page as usize] = Page::Free;
            }
        }
    }

    pub fn can_allocate(&self, count: usize) -> Result<(), Refusal> {
        self.check_room(count, 0)
    }

    pub fn allocate(&mut self, chosen: &[u32]) -> Result<(), Wrong> {
        self.take(chosen, Page::Loose)
    }

    pub fn free_pages(&mut self, pages: &[u32]) -> Result<(), Refusal> {
        let different = pages.iter().collect::<BTreeSet<_>>().len() == pages.len();
        let loose = |&page: &u32| self.pages.get(page as usize) == Some(&Page::Loose);
        if !different || !pages.iter().all(loose) {
            return Err(Status::InvalidArgument.into());
        }
        pages.iter().for_each(|&page| self.pages[page as usize] = Page::Free);
        Ok(())
    }

    pub fn map(&mut self, slot: u32, first: usize, pages: &[u32]) -> Result<(), Refusal> {
        let row = self.own_row(slot)?;
        let state = |&page: &u32| self.pages.get(page as usize).copied();
        let private = pages.iter().filter(|page| state(page) == Some(Page::Loose));
        let private: Vec<u32> = private.copied().collect();
        let different = private.iter().collect::<BTreeSet<_>>().len() == private.len();
        let may = |page| matches!(state(page), Some(Page::Loose | Page::Cached));
        let fits = row.pages.len() + pages.len() <= self.row_limit();
        if first != row.pages.len() || !fits || !different || !pages.iter().all(may) {
            return Err(Status::InvalidArgument.into());
        }
        private.iter().for_each(|&page| self.pages[page as usize] = Page::InRow(slot));
        self.rows[slot as usize].as_mut().expect("the slot is in use").pages.extend(pages);
        Ok(())
    }

    /// Pages that a row lacks for a number of positions.
    pub fn lacking(&self, length: usize, positions: usize) -> Result<usize, Refusal> {
        let wanted = self.pages_for(positions);
        if wanted > self.row_limit() {
            return Err(Status::InvalidArgument.into());
        }
        Ok(wanted.saturating_sub(length))
    }

    pub fn can_reserve(&self, slot: Option<u32>, positions: usize) -> Result<bool, Refusal> {
        let length = match slot {
            Some(slot) => self.row(slot)?.pages.len(),
            None if self.can_allocate_slot().is_err() => return Ok(false),
            None => 0,
        };
        let lacking = self.lacking(length, positions);
        Ok(lacking.is_ok_and(|lacking| self.check_room(lacking, 0).is_ok()))
    }

    pub fn reserve_plan(&self, slot: u32, positions: usize) -> Result<usize, Refusal> {
        let lacking = self.lacking(self.own_row(slot)?.pages.len(), positions)?;
        self.check_room(lacking, 0)?;
        if self.fault == Fault::ShortReserve {
            return Ok(lacking.saturating_sub(1));
        }
        Ok(lacking)
    }

    /// Adds new pages to a row.
    pub fn grow(&mut self, slot: u32, chosen: &[u32]) -> Result<(), Wrong> {
        self.take(chosen, Page::InRow(slot))?;
        self.rows[slot as usize].as_mut().expect("the slot is in use").pages.extend(chosen);
        Ok(())
    }

    // The cache.

    /// What of a prompt's longest cached prefix may be reused, when `limit` positions at most may.
    pub fn cut(&self, tokens: &Tokens, raw: usize, limit: usize, whole_pages: bool) -> Cut {
        let page_size = self.config.page_size;
        let limit = raw.min(limit);
        let at = if whole_pages {
            let pages = (0..=limit / page_size).rev().map(|pages| pages * page_size);
            pages.into_iter().find(|&at| tokens.is_boundary(at)).expect("0 is a boundary")
        } else {
            tokens.boundary_within(limit)
        };
        let (whole_pages, partial) = (at / page_size, at % page_size);
        Cut { tokens: tokens.count_within(at), whole_pages, partial }
    }

    pub fn match_cut(&self, ns: u8, tokens: &Tokens) -> Cut {
        let longest = self.cache.longest(ns, &tokens.keys);
        let mut raw = longest.path.len() * self.config.page_size + longest.partial;
        if self.fault == Fault::LongerMatch && longest.partial > 0 && raw < tokens.positions() {
            raw += 1;
        }
        self.cut(tokens, raw, tokens.positions(), self.config.whole_pages)
    }

    /// The pages of the first whole pages of a prompt.
    pub fn whole_pages(&self, ns: u8, tokens: &Tokens, count: usize) -> Vec<u32> {
        let path = self.cache.longest(ns, &tokens.keys).path;
        path[..count].iter().map(|&page| self.cache.pages[page].page).collect()
    }

    /// A lookup reached the end of these whole pages: their node ends there, the path is refreshed.
    pub fn refresh(&mut self, ns: u8, tokens: &Tokens, whole_pages: usize) -> Option<Label> {
        let path = self.cache.longest(ns, &tokens.keys).path;
        let now = self.cache.now();
        let end = *path[..whole_pages].last()?;
        let forgotten = if self.fault == Fault::ForgetsPath { whole_pages - 1 } else { 0 };
        for &page in &path[forgotten..whole_pages] {
            self.cache.pages[page].used = now;
        }
        for &page in &path[..whole_pages] {
            self.cache.pages[page].hits += 1;
        }
        Some(self.cache.split_after(end))
    }

    pub fn count_lookup(&mut self, asked: usize, cut: Cut) {
        self.counters.lookups += 1;
        self.counters.lookup_positions += asked;
        self.counters.hit_positions += cut.whole_pages * self.config.page_size + cut.partial;
        self.counters.partial_hit_positions += cut.partial;
    }

    /// The node that owns the page that the library wants to copy from, if it may.
    pub fn copy_node(&self, ns: u8, tokens: &Tokens, cut: Cut, source: u32) -> Result<Label, Wrong> {
        let whole = cut.whole_pages * self.config.page_size;
        let sources = self.cache.copy_sources(ns, &tokens.keys, whole, cut.partial);
        require!(sources.contains(&source), "page {source} is copied, not one of {sources:?}");
        let page = self.cache.by_page(source).expect("it is published");
        Ok(self.cache.label(self.cache.node_end(page)))
    }

    /// Carries out a match. Returns its node and the node of the partial page.
    pub fn lookup(
        &mut self,
        ns: u8,
        tokens: &Tokens,
        lock: bool,
        partial_page: u32,
    ) -> Result<(Option<Label>, Option<Label>), Wrong> {
        let cut = self.match_cut(ns, tokens);
        self.count_lookup(tokens.positions(), cut);
        let node = self.refresh(ns, tokens, cut.whole_pages);
        let partial = match cut.partial {
            0 => None,
            _ => Some(self.copy_node(ns, tokens, cut, partial_page)?),
        };
        if let Some(node) = partial.or(node).filter(|_| lock) {
            self.cache.mark_mut(node).expect("it is live").locks += 1;
        }
        Ok((node, partial))
    }

    /// How each whole page of an insert fares.
    pub fn insert_plan(
        &self,
        ns: u8,
        tokens: &Tokens,
        pages: &[u32],
        from_page: usize,
    ) -> Result<InsertPlan, Refusal> {
        let page_size = self.config.page_size;
        let whole = tokens.positions() / page_size;
        if pages.len() < whole || whole < from_page {
            return Err(Status::InvalidArgument.into());
        }
        let mut plan = InsertPlan { published: pages.to_vec(), claimed: vec![], duplicates: 0 };
        for index in from_page..whole {
            let given = pages[index];
            match self.cache.find(ns, &tokens.keys[..(index + 1) * page_size]) {
                Some(there) => {
                    let there = self.cache.pages[there].page;
                    plan.duplicates += usize::from(there != given);
                    plan.published[index] = there;
                }
                None => plan.claimed.push(given),
            }
        }
        let claimable = |&page: &u32| match self.pages.get(page as usize) {
            Some(Page::Loose) => true,
            Some(Page::InRow(slot)) => !self.rows[*slot as usize].as_ref().unwrap().owned,
            _ => false,
        };
        let different = plan.claimed.iter().collect::<BTreeSet<_>>().len() == plan.claimed.len();
        if !different || !plan.claimed.iter().all(claimable) {
            return Err(Status::InvalidArgument.into());
        }
        Ok(plan)
    }

    pub fn insert(&mut self, ns: u8, tokens: &Tokens, plan: &InsertPlan) -> Option<Label> {
        let whole = tokens.positions() / self.config.page_size;
        self.counters.duplicates += plan.duplicates;
        self.counters.inserted += plan.claimed.len();
        self.publish_after(ns, tokens, whole, &plan.claimed)
    }

    /// Adds pages to those that are published already, `whole` in all. Returns the node there.
    pub fn publish_after(
        &mut self,
        ns: u8,
        tokens: &Tokens,
        whole: usize,
        claimed: &[u32],
    ) -> Option<Label> {
        let there = whole - claimed.len();
        let path = self.cache.longest(ns, &tokens.keys).path;
        if let Some(&last) = path[..there].last() {
            self.cache.split_after(last);
        }
        self.cache.add(ns, &tokens.keys, there, claimed);
        claimed.iter().for_each(|&page| self.pages[page as usize] = Page::Cached);
        self.node_after(ns, tokens, whole)
    }

    /// The node that ends after the first whole pages of a prompt.
    pub fn node_after(&self, ns: u8, tokens: &Tokens, whole: usize) -> Option<Label> {
        let end = self.cache.find(ns, &tokens.keys[..whole * self.config.page_size])?;
        Some(self.cache.label(end))
    }

    pub fn lock(&mut self, node: Label) -> Result<(), Refusal> {
        self.cache.mark_mut(node).ok_or(Status::StaleNode)?.locks += 1;
        Ok(())
    }

    pub fn unlock(&mut self, node: Label) -> Result<(), Refusal> {
        if !self.cache.is_live(node) {
            return Err(Status::StaleNode.into());
        }
        if !self.cache.unlock(node) {
            return Err(Status::NotLocked.into());
        }
        Ok(())
    }

    /// The cache goes, and another one comes.
    pub fn recreate_cache(&mut self) {
        for index in 0..self.sequences.len() {
            if let Some(sequence) = self.sequences[index].take() {
                self.drop_row(sequence.slot);
            }
        }
        for slot in 0..self.rows.len() as u32 {
            let Some(row) = self.rows[slot as usize].as_mut() else { continue };
            let is_cached = |&page: &u32| self.pages[page as usize] == Page::Cached;
            let kept = row.pages.iter().position(is_cached).unwrap_or(row.pages.len());
            for page in row.pages.split_off(kept) {
                if self.pages[page as usize] == Page::InRow(slot) {
                    self.pages[page as usize] = Page::Free;
                }
            }
        }
        for page in self.pages_in(|page| page == Page::Cached) {
            self.pages[page as usize] = Page::Free;
        }
        self.cache = PublishedPages::new(self.config.page_size, self.cache.next_label());
        self.counters = Counters::default();
    }
}

/// What an insert comes to.
#[derive(Clone, Debug)]
pub struct InsertPlan {
    /// The cache's page at each index, and the caller's where there is none.
    pub published: Vec<u32>,
    /// Always the last whole pages.
    pub claimed: Vec<u32>,
    pub duplicates: usize,
}
