//! A page table with its cache, the books beside it, and what holds between any two calls.
use super::books::{Books, Page, Wrong, require};
use super::config::RunConfig;
use super::log::Log;
use super::sequence::{Kept, Sequence};
use crate::model::abi::{Library, Status};
use fastrand::Rng;
use radixkv::capi::rkv_page_copy;
use std::collections::{BTreeMap, VecDeque};

/// Why a call was refused, rightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Pages,
    Slots,
    Memory,
    /// The parent is gone.
    Gone,
    /// The parent is still running.
    Pending,
}

/// What a call comes to, unless something is wrong.
pub type Done<T> = Result<Result<T, Refused>, Wrong>;

/// A slip of the engine or of the books, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The KV of a cached page changes.
    SpoiledPage,
    /// The library does not hear of a release.
    SkippedRelease,
    /// A copy is confirmed and was not carried out.
    SkippedCopy,
    /// The row of a sequence is another one's.
    OtherRow,
    /// A new token is written into a page that is shared.
    WritesShared,
    /// A chunk is published before it is computed.
    PublishesTooEarly,
    /// A lock is forgotten.
    SkippedUnlock,
    /// An evicted page is not crossed off.
    LostEviction,
    /// A retained sequence is not crossed off.
    LostDrop,
    /// The library does not hear of a clear.
    SkippedClear,
}

/// Counts since the cache was created.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub lookups: usize,
    pub lookup_positions: usize,
    pub hit_positions: usize,
    pub partial_hit_positions: usize,
    pub inserted: usize,
    pub duplicates: usize,
    pub inherits: usize,
    pub inherited_positions: usize,
    pub displaced: usize,
}

pub struct World {
    pub config: RunConfig,
    pub library: Library,
    pub books: Books,
    pub rng: Rng,
    /// By slot.
    pub sequences: Vec<Option<Sequence>>,
    /// Rows of the foreign user, by slot.
    pub rows: Vec<Option<Vec<u32>>>,
    /// In the order of finishing.
    pub kept: VecDeque<Kept>,
    /// Retained sequences that keep a page.
    pub keepers: Vec<u32>,
    pub kept_pages: usize,
    /// The ids of some sequences that ended.
    pub ended: VecDeque<u64>,
    pub counters: Counters,
    pub operations: u64,
    pub log: Log,
    /// How often rare cases came.
    pub marks: BTreeMap<&'static str, u64>,
    /// As the library said after the last call.
    pub reclaimable: usize,
    pub fault: Fault,
}

/// Operations before a planted slip.
const SLIP_AFTER: u64 = 500;

impl World {
    pub fn new(config: RunConfig, rng: Rng, fault: Fault) -> Result<Self, Wrong> {
        let (pages, slots) = (config.pool.page_count, config.pool.slot_count);
        let library =
            Library::new(&config.pool).map_err(|status| format!("creation: {status:?}"))?;
        Ok(World {
            library,
            books: Books::new(config.pool.page_size, pages),
            rng,
            sequences: (0..slots).map(|_| None).collect(),
            rows: vec![None; slots],
            kept: VecDeque::new(),
            keepers: vec![0; pages],
            kept_pages: 0,
            ended: VecDeque::new(),
            counters: Counters::default(),
            operations: 0,
            log: Log::default(),
            marks: BTreeMap::new(),
            reclaimable: 0,
            fault,
            config,
        })
    }

    pub fn mark(&mut self, what: &'static str) {
        *self.marks.entry(what).or_default() += 1;
    }

    /// Whether the planted slip happens here; it happens once.
    pub fn slips(&mut self, fault: Fault) -> bool {
        let slips = self.fault == fault && self.operations >= SLIP_AFTER;
        if slips {
            self.fault = Fault::None;
        }
        slips
    }

    /// Calls the library, now and then while the host has no memory.
    pub fn call<T>(
        &mut self,
        call: impl FnOnce(&Library) -> Result<T, Status>,
    ) -> Result<T, Status> {
        if self.config.allocation_failures && self.rng.u8(0..8) == 0 {
            crate::FAIL_AFTER.set(Some(self.rng.u64(0..12)));
        }
        let answer = call(&self.library);
        self.log.answer(answer.as_ref().err().copied());
        answer
    }

    /// Takes a refusal for what it is when it is one that can't be foreseen.
    pub fn unforeseen<T>(&mut self, call: &str, status: Status) -> Done<T> {
        require!(
            status == Status::OutOfMemory && self.config.allocation_failures,
            "{call}: {status:?}: {}",
            Library::last_message()
        );
        self.mark("out of memory");
        self.settle()?;
        Ok(Err(Refused::Memory))
    }

    pub fn page_size(&self) -> usize {
        self.config.pool.page_size
    }

    pub fn pages_for(&self, positions: usize) -> usize {
        positions.div_ceil(self.page_size())
    }

    pub fn row_limit(&self) -> usize {
        match self.config.pool.row_page_limit {
            0 => self.config.pool.page_count - 1,
            limit => limit,
        }
    }

    pub fn free_slots(&self) -> usize {
        let used = |slot: &usize| self.sequences[*slot].is_some() || self.rows[*slot].is_some();
        self.sequences.len() - (0..self.sequences.len()).filter(used).count()
    }

    /// What an allocation could have.
    pub fn room(&self) -> usize {
        self.books.counts.free + self.reclaimable
    }

    /// The numbers behind a refusal for want of pages. `path` are cached pages that the call would
    /// have protected.
    pub fn check_shortage(&mut self, needed: usize, path: &[u32]) -> Result<(), Wrong> {
        let said = Library::last_shortage().map_err(|status| format!("shortage: {status:?}"))?;
        let counts = self.books.counts;
        let most = self.reclaimable;
        let least = most - self.books.unprotected(path).min(most);
        let exact = self.books.wide_locks == 0;
        let given = said.reclaimable_page_count as usize;
        require!(
            given <= most && given >= least && (!exact || given == least),
            "shortage: {given} pages are reclaimable, not {least} to {most}"
        );
        let numbers = [said.needed_page_count, said.free_page_count, said.private_page_count];
        let ours = [needed, counts.free, counts.private].map(|number| number as u64);
        require!(numbers == ours, "shortage: needed, free, private {numbers:?}, not {ours:?}");
        let kept = self.kept_pages as u64;
        require!(said.retained_page_count == kept, "shortage: {kept} pages are retained");
        let locked = (counts.cached - given) as u64;
        require!(said.locked_page_count == locked, "shortage: {locked} pages are locked");
        require!(needed > counts.free + given, "refused although {needed} pages can be had");
        self.mark("refused for want of pages");
        Ok(())
    }

    /// The page copy that a sequence waits for; zeros when there is none.
    pub fn copy_of(&self, sequence: u64) -> Result<rkv_page_copy, Wrong> {
        let copy = self.library.copy_of(sequence);
        copy.map_err(|status| format!("rkv_sequence_read_copies: {status:?}"))
    }

    /// After each call: the counts are those of the books.
    pub fn settle(&mut self) -> Result<(), Wrong> {
        self.operations += 1;
        self.log.done(self.operations);
        self.drop_cleared()?;
        let stats = self.library.table_stats().map_err(|status| format!("stats: {status:?}"))?;
        let counts = self.books.counts;
        let seen = [stats.free_page_count, stats.cached_page_count, stats.private_page_count];
        let ours = [counts.free, counts.cached, counts.private].map(|count| count as u64);
        require!(seen == ours, "free, cached, private pages are {seen:?}, in the books {ours:?}");
        let slots = self.free_slots();
        require!(stats.free_slot_count == slots as u64, "{} slots free", stats.free_slot_count);
        let most = counts.cached - counts.protected;
        self.reclaimable = stats.reclaimable_page_count as usize;
        require!(
            self.reclaimable == most || (self.books.wide_locks > 0 && self.reclaimable < most),
            "{} pages are reclaimable, in the books {most}",
            self.reclaimable
        );
        if self.operations.is_multiple_of(self.config.audit_interval) {
            self.audit()?;
        }
        Ok(())
    }

    /// Everything that can be counted or proven.
    pub fn audit(&mut self) -> Result<(), Wrong> {
        self.library.audit().map_err(|_| Library::last_message())?;
        self.library.check().map_err(|_| Library::last_message())?;
        let stats = self.library.stats().map_err(|status| format!("stats: {status:?}"))?;
        let ours = &self.counters;
        let live = self.sequences.iter().flatten().count();
        let pairs = [
            ("cached", stats.cached_page_count, self.books.counts.cached),
            ("sequences", stats.sequence_count, live),
            ("retained", stats.retained_sequence_count, self.kept.len()),
            ("retained pages", stats.retained_page_count, self.kept_pages),
            ("lookups", stats.lookup_count, ours.lookups),
            ("looked up positions", stats.lookup_position_count, ours.lookup_positions),
            ("hit positions", stats.hit_position_count, ours.hit_positions),
            ("copied positions", stats.partial_hit_position_count, ours.partial_hit_positions),
            ("inserted", stats.inserted_page_count, ours.inserted),
            ("duplicates", stats.duplicate_page_count, ours.duplicates),
            ("evicted", stats.evicted_page_count, self.books.counts.evicted),
            ("inherits", stats.inherit_count, ours.inherits),
            ("inherited positions", stats.inherited_position_count, ours.inherited_positions),
            ("displaced", stats.displaced_sequence_count, ours.displaced),
        ];
        for (name, seen, ours) in pairs {
            require!(seen == ours as u64, "{name}: {seen}, in the books {ours}");
        }
        let ids: Vec<u64> = self.kept.iter().map(|kept| kept.sequence.id).collect();
        let seen = self.library.retained(ids.len());
        require!(seen.as_ref() == Ok(&ids), "retained are {seen:x?}, in the books {ids:x?}");
        if let Some(id) = self.ended.front().copied() {
            let answer = self.library.query(id).map(|state| state.slot);
            require!(answer == Err(Status::StaleSequence), "{id:#x} ended, and is {answer:?}");
        }
        let slot = self.rng.usize(0..self.sequences.len());
        match &self.sequences[slot] {
            Some(_) => self.compare_sequence(slot as u32),
            None => Ok(()),
        }
    }

    /// Remembers an id that must never mean anything again.
    pub fn remember_ended(&mut self, id: u64) {
        self.ended.push_back(id);
        if self.ended.len() > 32 {
            self.ended.pop_front();
        }
    }

    /// The cache goes, with all that lives in it, and another one comes.
    pub fn recreate_cache(&mut self) -> Result<(), Wrong> {
        self.log.say("recreate the cache", 0, 0);
        let created = self.library.recreate_cache();
        created.map_err(|status| format!("rkv_cache_create: {status:?}"))?;
        for slot in 0..self.sequences.len() {
            let Some(sequence) = self.sequences[slot].take() else { continue };
            self.keeps_its_kv(&sequence)?;
            for page in sequence.row {
                if self.books.state(page) == Page::Row(slot as u32) {
                    self.books.set(page, Page::Free);
                }
            }
            self.remember_ended(sequence.id);
        }
        for slot in 0..self.rows.len() {
            let Some(mut row) = self.rows[slot].take() else { continue };
            let cached = row.iter().position(|&page| self.books.state(page) == Page::Cached);
            for page in row.split_off(cached.unwrap_or(row.len())) {
                if self.books.state(page) == Page::Row(slot as u32) {
                    self.books.set(page, Page::Free);
                }
            }
            self.rows[slot] = Some(row);
        }
        self.kept.clear();
        self.keepers.fill(0);
        self.kept_pages = 0;
        self.books.drop_cache();
        self.counters = Counters::default();
        self.mark("the cache is destroyed and created again");
        self.settle()
    }
}
