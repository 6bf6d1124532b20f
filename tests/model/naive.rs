//! The executable specification: what every verb of the header does, written to be obvious.
//!
//! Where the library is free to choose (page numbers, slots, which of several pages to copy from) a
//! verb takes the choice as an argument, checks that it was allowed, and follows it.
use super::inherit::Kept;
use super::ops::Config;
use super::prompt::{Tokens, images};
use super::published::{Label, PublishedPages};
use super::spaces::{Lives, Space};
use radixkv::capi::rkv_status as Status;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

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
    /// A page that a copy is still to read is free when its owner goes.
    ForgetsLoan,
    /// A sequence of before a clear publishes to all.
    ForgetsClear,
    /// What was cleared counts as evicted.
    EvictsCleared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Reserved,
    Free,
    /// Private to the caller that allocated it, in no row.
    Loose,
    /// Private to a row.
    InRow(u32),
    /// Private to a retained sequence.
    Kept,
    /// Nobody's, and kept for the copies that read it.
    Lent,
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
    pub ns: Space,
    /// Clears before it began, or its first ancestor did.
    pub began: usize,
    pub tokens: Tokens,
    pub slot: u32,
    pub prompt_positions: usize,
    /// Positions whose KV is written, as far as it was said.
    pub computed: usize,
    pub cached_positions: usize,
    pub cached_tokens: usize,
    /// It goes on from another one.
    pub inherited: bool,
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
    pub retained: usize,
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
    /// Dropped after they were cleared.
    pub cleared: usize,
    pub inherits: usize,
    pub inherited_positions: usize,
    pub displaced: usize,
}

/// How often the model came to cases that are rare and easy to get wrong.
pub type Marks = BTreeMap<&'static str, u64>;

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
    /// By order of finishing.
    pub retained: Vec<Kept>,
    pub counters: Counters,
    pub lives: Lives,
    pub marks: RefCell<Marks>,
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
            cache: PublishedPages::new(config.page_size, config.block_hash, 0),
            sequences: Vec::new(),
            retained: Vec::new(),
            counters: Counters::default(),
            lives: Lives::default(),
            marks: RefCell::default(),
        }
    }

    /// Says that a rare case came.
    pub fn mark(&self, case: &'static str) {
        *self.marks.borrow_mut().entry(case).or_default() += 1;
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
        use Page::{InRow, Kept, Lent, Loose};
        self.pages_in(|page| matches!(page, Loose | InRow(_) | Kept | Lent)).len()
    }

    pub fn row_limit(&self) -> usize {
        match self.config.row_page_limit {
            0 => self.config.page_count - 1,
            limit => limit,
        }
    }

    pub fn retained_limit(&self) -> usize {
        match self.config.retained_sequences {
            0 => 1024,
            limit => limit,
        }
    }

    pub fn retained_page_limit(&self) -> usize {
        match self.config.retained_pages {
            0 => (self.config.page_count - 1) / 2,
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
        self.retained.iter().for_each(|kept| known.extend(kept.sequence.tokens.images()));
        known.len()
    }

    pub fn live_sequences(&self) -> impl Iterator<Item = (usize, &Sequence)> {
        let all = self.sequences.iter().enumerate();
        all.filter_map(|(index, sequence)| Some((index, sequence.as_ref()?)))
    }

    /// The namespace of a live or retained sequence.
    pub fn namespace(&self, index: usize) -> Option<u8> {
        let kept = self.kept(index).map(|kept| kept.sequence.ns.name);
        kept.or(self.sequence(index).ok().map(|sequence| sequence.ns.name))
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
        self.mark("refused for want of pages");
        let locked = self.cache.pages.len() - reclaimable;
        let private = self.private();
        let retained = self.kept_pages();
        if retained > 0 {
            self.mark("refused while pages are retained");
        }
        Err(Refusal::Pages(Shortage { needed, free, reclaimable, locked, private, retained }))
    }

    /// Evicts the next page.
    fn evict_one(&mut self) -> Option<u32> {
        let victim = self.cache.victim(self.fault == Fault::EvictsNewest)?;
        let nodes = self.cache.node_count();
        let page = self.cache.remove(victim);
        if self.cache.node_count() + 1 < nodes {
            self.mark("an eviction merges nodes");
        }
        if self.cache.node_count() == nodes {
            self.mark("an eviction trims a node");
        }
        self.pages[page as usize] = Page::Free;
        self.counters.evicted += 1;
        Some(page)
    }

    /// Hands out the pages that the library chose, after evicting as many as the pool lacks.
    pub fn take(&mut self, chosen: &[u32], state: Page) -> Result<(), Wrong> {
        while self.free() < chosen.len() {
            self.mark("an allocation evicts");
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
}
