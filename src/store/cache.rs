//! The index over the pages of a table: what a cache is, and what goes out of it.
use super::group_cache::GroupCache;
use super::long_path::Foothold;
use super::lookup::Sharing;
use super::{Shared, State};
use crate::error::{Error, Shortage};
use crate::group::{GROUP_LIMIT, HungPage};
use crate::handles::{Handles, Numbers};
use crate::index::{IndexKind, Limits, Namespace, Node, NodeIds, Portion, PrefixIndex};
use crate::journal::{Entered, Journal, Reason};
use crate::memory::{Slab, settle_allocator, try_box};
use crate::paging::PageTable;
use crate::token::{Images, Keys};

/// The part of the runs of pages that are evicted at once where each may have an image, which goes
/// with it.
const WITH_IMAGES: usize = 4;
/// The same where each is entered into a journal.
const WITH_JOURNAL: usize = 2;

/// How to build a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheConfig {
    /// Which index finds prefixes.
    pub index: IndexKind,
    /// Share whole pages only.
    pub whole_pages: bool,
    /// Finished sequences that are retained at most; 0 for the default.
    pub retained_sequences: u32,
    /// Pages that those may keep together; 0 for the default, half of all.
    pub retained_pages: u32,
    /// Bytes of the ring of the journal; 0 for no journal.
    pub journal_bytes: u64,
    /// States of a STATE group that a path keeps at most; 0 for any number.
    pub checkpoint_limit: u32,
    /// Where counters end; for tests.
    #[doc(hidden)]
    pub limits: Limits,
}

/// What a cache counted since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lookups.
    pub lookups: u64,
    /// Positions asked for.
    pub lookup_positions: u64,
    /// Positions found.
    pub hit_positions: u64,
    /// Positions found that are to be copied.
    pub partial_hit_positions: u64,
    /// Pages claimed.
    pub inserted_pages: u64,
    /// Pages found published by somebody else.
    pub duplicate_pages: u64,
    /// Pages evicted.
    pub evicted_pages: u64,
    /// Pages dropped after they were cleared, other than by an eviction.
    pub cleared_pages: u64,
    /// States dropped because a path had more than it keeps.
    pub dropped_checkpoints: u64,
    /// Sequences that went on from another one.
    pub inherits: u64,
    /// Positions that they inherited.
    pub inherited_positions: u64,
    /// Retained sequences that gave way.
    pub displaced: u64,
}

/// An index over a page table's pages.
#[derive(Debug)]
pub struct PrefixCache {
    /// Which page holds which keys.
    pub index: Box<dyn PrefixIndex>,
    /// The images that the index or a sequence knows.
    pub images: Images,
    /// What was counted.
    pub counters: Counters,
    /// Which pages came and left, if somebody wants to know.
    pub journal: Option<Box<Journal>>,
    /// Locks of callers, each on a node.
    pub(crate) locks: Handles,
    /// What calls hold that let others in.
    pub(super) footholds: Slab<Foothold>,
    /// The images among that.
    pub(super) held_images: Slab<Vec<u32>>,
    pub(crate) sharing: Sharing,
    /// The groups beside the spine, when there are any.
    pub(super) groups: Option<Box<GroupCache>>,
}

impl PrefixCache {
    /// An empty cache whose nodes get these ids.
    pub fn new(
        page_size: usize,
        ids: impl Into<NodeIds>,
        config: CacheConfig,
    ) -> Result<Self, Error> {
        let ids = NodeIds { limits: config.limits, ..ids.into() };
        let index = config.index.open(page_size, ids)?;
        let digests_pages = index.digests_pages();
        Ok(Self {
            index,
            images: Images::default(),
            counters: Counters::default(),
            journal: None,
            locks: Handles::new("locks", Numbers::shared(), config.limits.locks)?,
            footholds: Slab::default(),
            held_images: Slab::default(),
            groups: None,
            sharing: Sharing { page_size, whole_pages: config.whole_pages, digests_pages },
        })
    }

    /// Positions of a page.
    pub fn page_size(&self) -> usize {
        self.sharing.page_size
    }

    /// Keys as the index reads them.
    pub(crate) fn keys<'a>(&'a self, keys: &'a [u32]) -> Keys<'a> {
        Keys { keys, images: &self.images }
    }

    /// Evicts pages into pool 0; `report` gets runs of a group, of which the last page goes first.
    pub fn evict(
        &mut self,
        table: &mut PageTable,
        most: Portion,
        reason: Reason,
        report: &mut dyn FnMut(usize, &[u32]),
    ) -> usize {
        match self.groups {
            None => self.evict_spine(table, most, reason, report),
            Some(_) => self.evict_from_pool(table, (0, most), reason, report),
        }
    }

    /// Evicts pages of group 0, and what hangs on them.
    pub(super) fn evict_spine(
        &mut self,
        table: &mut PageTable,
        most: Portion,
        reason: Reason,
        report: &mut dyn FnMut(usize, &[u32]),
    ) -> usize {
        let part = match (self.images.is_empty(), &self.journal) {
            (false, _) => WITH_IMAGES,
            (true, Some(_)) => WITH_JOURNAL,
            (true, None) => 1,
        };
        let most = Portion { runs: most.runs.div_ceil(part), ..most };
        let evict = |index: &mut dyn PrefixIndex, report: &mut dyn FnMut(&[u32], &[u32])| {
            index.evict(most, report)
        };
        let evicted = self.drop_pages(table, reason, report, evict);
        self.counters.evicted_pages += evicted as u64;
        if let Some(groups) = &mut self.groups {
            groups.counters[0].evicted += evicted as u64;
        }
        evicted
    }

    /// Drops pages that nobody can find or holds.
    pub fn drop_cleared(&mut self, table: &mut PageTable, most: Portion) -> usize {
        let evict = |index: &mut dyn PrefixIndex, report: &mut dyn FnMut(&[u32], &[u32])| {
            index.evict_cleared(most, report)
        };
        let dropped = self.drop_pages(table, Reason::Invalidated, &mut |_, _| {}, evict);
        self.counters.cleared_pages += dropped as u64;
        dropped
    }

    /// Lets nobody find a namespace any more, of which this is the root.
    pub fn detach_root(&mut self, namespace: &Namespace, root: Node) {
        self.index.detach_root(root);
        if let Some(journal) = &mut self.journal {
            journal.clear(namespace);
        }
    }

    /// What an eviction drops goes into the pool, and into the journal.
    fn drop_pages(
        &mut self,
        table: &mut PageTable,
        reason: Reason,
        report: &mut dyn FnMut(usize, &[u32]),
        evict: impl FnOnce(&mut dyn PrefixIndex, &mut dyn FnMut(&[u32], &[u32])) -> usize,
    ) -> usize {
        let Self { images, journal, groups, .. } = self;
        let evicted = evict(self.index.as_mut(), &mut |pages, keys| {
            if let Some(groups) = groups {
                let mut evicted = [0; GROUP_LIMIT];
                let mut report = |page: HungPage, pool: usize, spine: u32| {
                    evicted[page.group] += u64::from(reason != Reason::Invalidated);
                    if let Some(journal) = journal {
                        journal.take_down(page, pool, spine, reason);
                    }
                    report(page.group, &[page.page]);
                };
                groups.put_back_hung(table, pages, &mut report);
                for (counters, evicted) in groups.counters.iter_mut().zip(evicted) {
                    counters.evicted += evicted;
                }
            }
            if !images.is_empty() {
                images.release(keys);
            }
            table.pool.put_back_all(pages);
            if let Some(journal) = journal {
                journal.remove(pages, reason);
            }
            report(0, pages);
        });
        if let Some(journal) = journal {
            journal.end_removal();
        }
        evicted
    }

    /// Locks of callers.
    pub fn lock_count(&self) -> usize {
        self.locks.out()
    }

    /// Heap memory beside the index.
    pub fn bytes(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, |groups| groups.bytes());
        let locks = self.locks.bytes() + self.footholds.bytes() + self.held_images.bytes();
        let images = self.images_of_calls().map(size_of_val).sum::<usize>();
        self.images.bytes() + images + self.journal_bytes() + locks + groups
    }

    /// Begins a journal of so many bytes, if any, with the record of a number.
    pub fn open_journal(
        &mut self,
        bytes: u64,
        pool_pages: &[usize],
        first: u64,
    ) -> Result<(), Error> {
        if bytes > 0 {
            let pools = (pool_pages, self.groups.is_some());
            let journal = Journal::new(bytes, self.sharing.page_size, pools, first)?;
            self.journal = Some(try_box(journal)?);
        }
        Ok(())
    }

    /// Heap memory of the journal.
    pub fn journal_bytes(&self) -> usize {
        let bytes = |journal: &Journal| journal.bytes() + size_of::<Journal>();
        self.journal.as_deref().map_or(0, bytes)
    }

    /// Makes room for what the journal writes down when pages come in.
    #[inline]
    pub fn reserve_journal(&mut self) -> Result<(), Error> {
        match &mut self.journal {
            Some(journal) => {
                journal.try_reserve().map_err(|_| Error::memory("a namespace of the journal"))
            }
            None => Ok(()),
        }
    }

    /// Writes down that pages came in, of which the first is the one at `first` of the prefix that
    /// ends at a node, or before its end. Room was made.
    #[inline]
    pub fn note_stored(&mut self, end: Node, first: usize, pages: &[u32], keys: &[u32]) {
        if self.journal.is_some() && !pages.is_empty() {
            self.write_stored(end, first, pages, keys);
        }
    }

    #[cold]
    fn write_stored(&mut self, end: Node, first: usize, pages: &[u32], keys: &[u32]) {
        let (index, images) = (self.index.as_ref(), &self.images);
        if index.is_detached(end) {
            return;
        }
        let (namespace, parent) = match first.checked_sub(1) {
            None => (index.namespace(end), 0),
            Some(before) => (Namespace::default(), page_at(index, end, before)),
        };
        let keys = Keys { keys, images };
        if let Some(journal) = &mut self.journal {
            journal.store(Entered { namespace: &namespace, parent, pages, keys });
        }
    }

    /// Why `needed` pages can't be had while `protected` more pages are locked.
    pub fn shortage(
        &self,
        table: &PageTable,
        needed: usize,
        protected: usize,
        retained: usize,
    ) -> Shortage {
        let copied = table.pool.copied().1;
        let reclaimable = self.reclaimable_of(0).saturating_sub(copied + protected);
        Shortage {
            pool: 0,
            needed,
            free: table.pool.free(),
            reclaimable,
            locked: table.pool.cached() - reclaimable,
            private: table.pool.private(),
            retained,
        }
    }
}

/// The page at a place of the prefix that ends at a node, or after it.
pub(crate) fn page_at(index: &dyn PrefixIndex, node: Node, page: usize) -> u32 {
    let node = index.node_at_page(node, page);
    let first = index.end_page(node) - index.pages(node).len();
    index.pages(node)[page - first]
}

impl State {
    /// Evicts pages into the pool.
    pub fn evict(
        &mut self,
        most: Portion,
        reason: Reason,
        report: &mut dyn FnMut(usize, &[u32]),
    ) -> usize {
        let cache = self.cache.as_mut();
        let evicted = cache.map_or(0, |cache| cache.evict(&mut self.table, most, reason, report));
        self.housekeeping.evicted(evicted);
        evicted
    }
}

impl Shared {
    /// Evicts pages of pool 0; `report` gets their place in the order and the page.
    pub fn evict(&self, count: usize, mut report: impl FnMut(usize, u32)) -> Result<usize, Error> {
        let mut turn = self.turn();
        let in_pool = (self.group_count() > 1).then(|| turn.table.groups().in_pool(0));
        let mut done = 0;
        while done < count {
            if done > 0 {
                // What was evicted was small blocks; a list that moves now is a large one.
                turn.unlocked(settle_allocator);
                turn.let_others_in();
            }
            let (mut at, most) = (done, self.portion(count - done));
            let evicted = turn.evict(most, Reason::Caller, &mut |group, pages| {
                if in_pool.is_some_and(|in_pool| !in_pool[group]) {
                    return;
                }
                for &page in pages.iter().rev() {
                    report(at, page);
                    at += 1;
                }
            });
            if evicted == 0 {
                break;
            }
            done += evicted;
        }
        Ok(done)
    }
}
