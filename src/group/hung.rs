//! The cached pages of the groups beside the spine: where each hangs, who uses it, which goes next.
//!
//! A page that a row, a lock or an open copy names has users, and stays. One without is in one of
//! two queues of its pool: *inner* pages, which no end of what is cached needs any more, go before
//! those of the *tail*. All memory is taken in the beginning: no change can fail.
//!
//! Of a FULL group a prefix needs every page: there whoever uses a page uses the one before it, too
//! (`chain.rs`).
use super::Groups;
use super::queue::Queue;
use crate::error::Error;
use crate::memory::{OutOfMemory, TryGrow, try_filled, try_touched_zeros};

/// Which pages go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// Those that no end of what is cached needs.
    #[default]
    Inner,
    /// The others.
    Tail,
}

/// A page of a group beside the spine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HungPage {
    /// The group.
    pub group: usize,
    /// The page, in the group's pool.
    pub page: u32,
}

/// What is known of a page, by its number in its pool.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry {
    /// When it was used last, or let go.
    pub(super) time: u64,
    /// The page that it hangs on.
    pub(super) spine: u32,
    /// Rows, locks and copies that name it, and pages in use behind it in a chain.
    pub(super) users: u32,
    /// Of those, retained sequences, and pages behind it that one keeps.
    pub(super) retained: u32,
    /// In a queue the page that goes before this one; in use the page before it in a chain.
    pub(super) older: u32,
    pub(super) newer: u32,
    /// Its group; 0 for a page that hangs nowhere.
    pub(super) group: u8,
    pub(super) class: Class,
    pub(super) is_queued: bool,
}

/// Pages that hang on a page of the spine, by its number.
#[derive(Debug)]
struct Group {
    pool: usize,
    pages: Vec<u32>,
    /// Those of them that are not 0.
    count: usize,
}

/// The pages of a pool that hang somewhere.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// By their numbers; empty when only the spine draws from the pool.
    pub(super) entries: Vec<Entry>,
    inner: Queue,
    tail: Queue,
    pub(super) hung: usize,
    /// Pages that retained sequences keep.
    pub(super) retained: usize,
}

impl Pool {
    fn queue(&mut self, page: u32) -> (&mut Queue, &mut [Entry]) {
        let queue = match self.entries[page as usize].class {
            Class::Inner => &mut self.inner,
            Class::Tail => &mut self.tail,
        };
        (queue, &mut self.entries)
    }

    pub(super) fn enqueue(&mut self, page: u32, now: u64) {
        self.entries[page as usize].time = now;
        let (queue, entries) = self.queue(page);
        queue.push(entries, page);
    }

    fn touch(&mut self, page: u32, class: Class, now: u64) {
        if self.entries[page as usize].is_queued {
            self.dequeue(page);
            self.entries[page as usize].class = class;
            self.enqueue(page, now);
        } else {
            self.entries[page as usize].class = class;
        }
    }

    fn dequeue(&mut self, page: u32) {
        if self.entries[page as usize].is_queued {
            let (queue, entries) = self.queue(page);
            queue.remove(entries, page);
        }
    }

    pub(super) fn queues(&self) -> [(Class, &Queue); 2] {
        [(Class::Inner, &self.inner), (Class::Tail, &self.tail)]
    }
}

/// The pages of all groups beside the spine.
#[derive(Debug)]
pub struct Hung {
    /// By group; that of the spine has none.
    groups: Vec<Group>,
    pub(super) pools: Vec<Pool>,
}

impl Hung {
    /// None yet. `pool_pages` has how many pages each pool has, page 0 included.
    pub fn new(groups: &Groups, pool_pages: &[usize]) -> Result<Self, Error> {
        let no_room = |_: OutOfMemory| Error::memory("the pages of groups");
        let (mut made, mut pools) = (Vec::new(), Vec::new());
        pools.try_reserve_exact(pool_pages.len()).map_err(|error| no_room(error.into()))?;
        pools.resize_with(pool_pages.len(), Pool::default);
        made.try_push(Group { pool: 0, pages: Vec::new(), count: 0 }).map_err(no_room)?;
        for (_, config) in groups.hung() {
            let pool = config.pool as usize;
            let pages = try_touched_zeros(pool_pages[0]).map_err(no_room)?;
            made.try_push(Group { pool, pages, count: 0 }).map_err(no_room)?;
            if pools[pool].entries.is_empty() {
                pools[pool].entries =
                    try_filled(Entry::default(), pool_pages[pool]).map_err(no_room)?;
            }
        }
        Ok(Self { groups: made, pools })
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        let pages: usize = self.groups.iter().map(|group| group.pages.capacity()).sum();
        let entries: usize = self.pools.iter().map(|pool| pool.entries.capacity()).sum();
        pages * size_of::<u32>()
            + entries * size_of::<Entry>()
            + self.groups.capacity() * size_of::<Group>()
            + self.pools.capacity() * size_of::<Pool>()
    }

    /// Groups, the spine's included.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// How many pages of a group hang somewhere.
    pub fn count_of_group(&self, group: usize) -> usize {
        self.groups[group].count
    }

    /// The pool of a group.
    pub fn pool_of(&self, group: usize) -> usize {
        self.groups[group].pool
    }

    /// The page of a group that hangs on one of the spine; 0 for a hole.
    #[inline]
    pub fn page(&self, group: usize, spine: u32) -> u32 {
        self.groups[group].pages[spine as usize]
    }

    pub(super) fn entry(&mut self, HungPage { group, page }: HungPage) -> &mut Entry {
        let entry = &mut self.pools[self.groups[group].pool].entries[page as usize];
        assert_eq!(entry.group as usize, group, "page {page} hangs somewhere else");
        entry
    }

    pub(super) fn pool(&mut self, group: usize) -> &mut Pool {
        &mut self.pools[self.groups[group].pool]
    }

    /// Hangs a page where there was none. Nobody uses it yet.
    pub fn hang(&mut self, hung: HungPage, spine: u32, class: Class, now: u64) {
        let HungPage { group, page } = hung;
        let place = &mut self.groups[group].pages[spine as usize];
        assert_eq!(std::mem::replace(place, page), 0, "a page hangs on page {spine} already");
        let pool = self.pool(group);
        let entry = &mut pool.entries[page as usize];
        assert_eq!(entry.group, 0, "page {page} hangs on page {} already", entry.spine);
        *entry = Entry { spine, group: group as u8, class, ..Entry::default() };
        pool.hung += 1;
        pool.enqueue(page, now);
        self.groups[group].count += 1;
    }

    /// Takes down a page that nobody uses, and says where it hung.
    pub fn take_down(&mut self, hung: HungPage) -> u32 {
        let entry = *self.entry(hung);
        assert_eq!(entry.users, 0, "page {} is in use", hung.page);
        let pool = self.pool(hung.group);
        pool.dequeue(hung.page);
        pool.hung -= 1;
        pool.entries[hung.page as usize] = Entry::default();
        let group = &mut self.groups[hung.group];
        group.pages[entry.spine as usize] = 0;
        group.count -= 1;
        entry.spine
    }

    /// Whether somebody uses a page.
    pub fn is_used(&self, HungPage { group, page }: HungPage) -> bool {
        self.pools[self.groups[group].pool].entries[page as usize].users > 0
    }

    /// Says that somebody uses a page until `end_use`.
    pub fn begin_use(&mut self, hung: HungPage) {
        let entry = self.entry(hung);
        entry.users += 1;
        if entry.users == 1 {
            self.pool(hung.group).dequeue(hung.page);
        }
    }

    /// Pages of a pool that retained sequences keep, each counted once.
    pub fn retained(&self, pool: usize) -> usize {
        self.pools[pool].retained
    }

    /// Says that a page was used, and of what class it is now. Its turn comes last of those.
    pub fn touch(&mut self, hung: HungPage, class: Class, now: u64) {
        self.entry(hung);
        self.pool(hung.group).touch(hung.page, class, now);
    }

    /// Says that a page goes behind all others of its pool.
    pub fn renew(&mut self, hung: HungPage, now: u64) {
        let class = self.entry(hung).class;
        self.pool(hung.group).touch(hung.page, class, now);
    }

    /// Says of what class the pages of a group are that hang on some of the spine, the first of
    /// which is at a place: of the tail those before a place, and from another one on. Which are
    /// already stay where they are.
    pub fn classify(
        &mut self,
        (group, spine): (usize, &[u32]),
        first: usize,
        (before, from): (usize, usize),
        now: u64,
    ) {
        let Group { pool, pages, .. } = &self.groups[group];
        let pool = &mut self.pools[*pool];
        for (at, &spine) in spine.iter().enumerate().rev() {
            let (place, page) = (first + at, pages[spine as usize]);
            let is_tail = place < before || place >= from;
            let class = if is_tail { Class::Tail } else { Class::Inner };
            if page != 0 && pool.entries[page as usize].class != class {
                pool.touch(page, class, now);
            }
        }
    }

    /// Of what class a page is.
    pub fn class(&self, HungPage { group, page }: HungPage) -> Class {
        self.pools[self.groups[group].pool].entries[page as usize].class
    }

    /// The page of a pool whose turn it is, and when it was used.
    pub fn next(&self, pool: usize) -> Option<(HungPage, Class, u64)> {
        let pool = &self.pools[pool];
        let (class, page) =
            pool.queues().into_iter().find_map(|(class, queue)| Some((class, queue.oldest()?)))?;
        let entry = &pool.entries[page as usize];
        Some((HungPage { group: entry.group as usize, page }, class, entry.time))
    }

    /// Pages of a pool that nobody uses, in the order in which they go.
    pub fn cold(&self, pool: usize) -> impl Iterator<Item = u32> + '_ {
        let pool = &self.pools[pool];
        pool.inner.iter(&pool.entries).chain(pool.tail.iter(&pool.entries))
    }

    /// Pages of a pool that nobody uses.
    pub fn reclaimable(&self, pool: usize) -> usize {
        self.pools[pool].inner.len() + self.pools[pool].tail.len()
    }

    /// How many name a page.
    pub fn users(&self, HungPage { group, page }: HungPage) -> u32 {
        self.pools[self.groups[group].pool].entries[page as usize].users
    }

    pub(super) fn groups_pages(&self, group: usize) -> impl Iterator<Item = u32> + '_ {
        self.groups[group].pages.iter().copied()
    }

    /// The group of a page of a pool, and where it hangs.
    pub fn place(&self, pool: usize, page: u32) -> Option<(usize, u32)> {
        let entry = self.pools[pool].entries.get(page as usize)?;
        (entry.group != 0).then_some((entry.group as usize, entry.spine))
    }

    /// How many pages of a pool hang somewhere.
    pub fn count(&self, pool: usize) -> usize {
        self.pools[pool].hung
    }

    /// All pages of a pool that hang somewhere, and where.
    pub fn of_pool(&self, pool: usize) -> impl Iterator<Item = (HungPage, u32)> + '_ {
        self.pools[pool].entries.iter().enumerate().filter(|(_, entry)| entry.group != 0).map(
            |(page, entry)| {
                (HungPage { group: entry.group as usize, page: page as u32 }, entry.spine)
            },
        )
    }
}
