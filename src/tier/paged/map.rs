//! Which pages host memory and the disk have, by what they hold: a record each.
//!
//! A record knows the one before it in its prefix, and counts those after it, in all and in each
//! tier: a tier gives up records that have nothing after them there, the least recently used first.
//! So what it has of a prefix has no gaps, unless bytes were lost.
//!
//! A page may come before the one that it goes on from, which then has a record of no place until
//! it comes too, or until nothing after it is left. All sizes are known from the beginning, so that
//! no call ever stops to move what there is.
//!
//! Pages of groups beside the first have none before them, nor after: a window needs the last ones
//! most. They go by when they were used. In host memory each pool has slots of its own, and so its
//! own order in which pages go.
use super::leaves::Leaves;
use super::spaces::Spaces;
use crate::group::GROUP_LIMIT;
use crate::index::Namespace;
use crate::memory::{OutOfMemory, Slab, seed, try_zeros};
use crate::token::PageDigest;

/// No record, or no slot.
pub(super) const NONE: u32 = u32::MAX;

/// What a record is found by: a page's digest, and the group whose KV it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub digest: PageDigest,
    pub group: u8,
}

/// Where pages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Host = 0,
    Disk = 1,
}

/// A page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    digest: PageDigest,
    /// The number of what the disk has; 0 for nothing.
    disk: u64,
    used: u64,
    /// The number of its namespace.
    space: u32,
    parent: u32,
    /// Records right after it, in all and by level.
    children: u32,
    children_at: [u32; 2],
    /// The slot of host memory.
    host: u32,
    /// Of what the disk has: a part of it.
    checksum: u32,
    group: u8,
    /// The record before it is known, or there is none.
    is_linked: bool,
    /// The disk has all of it.
    is_committed: bool,
}

impl Record {
    /// The slot of host memory that has it.
    pub fn host(&self) -> Option<u32> {
        Some(self.host).filter(|&slot| slot != NONE)
    }

    /// The number of what the disk has of it, or is about to.
    pub fn disk(&self) -> Option<u64> {
        Some(self.disk).filter(|&number| number != 0)
    }

    /// The same when it can be read.
    pub fn committed(&self) -> Option<u64> {
        self.disk().filter(|_| self.is_committed)
    }

    pub fn name(&self) -> Name {
        Name { digest: self.digest, group: self.group }
    }

    /// Whether what the disk has can have this checksum.
    pub fn can_be(&self, checksum: u64) -> bool {
        self.checksum == checksum as u32
    }

    /// When it was used last.
    pub fn used(&self) -> u64 {
        self.used
    }

    pub fn space(&self) -> u32 {
        self.space
    }

    fn is_at(&self, level: Level) -> bool {
        match level {
            Level::Host => self.host != NONE,
            Level::Disk => self.disk != 0,
        }
    }

    fn is_leaf(&self, level: Level) -> bool {
        self.is_at(level) && self.children_at[level as usize] == 0
    }
}

/// Why there can be no record more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRecord {
    Full,
    OutOfMemory,
}

impl From<OutOfMemory> for NoRecord {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

#[derive(Debug)]
pub(super) struct Map {
    records: Slab<Record>,
    /// Of the records, and of the pages of the device.
    pub spaces: Spaces,
    /// Numbers of records plus one, where their digests lead to; 0 for none.
    table: Vec<u32>,
    limit: usize,
    seed: u64,
    clock: u64,
    /// The pool of each group.
    pools: [u8; GROUP_LIMIT],
    /// Of host memory, by pool.
    host_leaves: [Leaves; GROUP_LIMIT],
    disk_leaves: Leaves,
    /// By level and pool.
    counts: [[usize; GROUP_LIMIT]; 2],
}

const LEVELS: [Level; 2] = [Level::Host, Level::Disk];

impl Map {
    /// Pages that are somewhere, fewer than this.
    pub(super) const PAGE_LIMIT: usize = 1 << 29;

    /// For so many pages that are somewhere, of groups that draw from these pools.
    pub fn new(pages: usize, pools: [u8; GROUP_LIMIT]) -> Result<Self, NoRecord> {
        // Each may have one before it that is nowhere.
        let limit = if pages < Self::PAGE_LIMIT { 2 * pages } else { return Err(NoRecord::Full) };
        let places = (limit + limit / 8).max(8);
        Ok(Self {
            records: Slab::default(),
            spaces: Spaces::default(),
            table: try_zeros(places)?,
            limit,
            seed: seed(),
            clock: 0,
            pools,
            host_leaves: Default::default(),
            disk_leaves: Leaves::default(),
            counts: Default::default(),
        })
    }

    /// Records, of no place included.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// All numbers are below this.
    pub fn end(&self) -> u32 {
        self.records.capacity() as u32
    }

    /// Pages at a level.
    pub fn count(&self, level: Level) -> usize {
        self.counts[level as usize].iter().sum()
    }

    /// Of those, the ones of a pool.
    pub fn count_of(&self, level: Level, pool: usize) -> usize {
        self.counts[level as usize][pool]
    }

    /// The pool of a group.
    pub fn pool_of(&self, group: u8) -> usize {
        usize::from(self.pools[usize::from(group)])
    }

    /// Where a group's pages that may go stand.
    fn leaves(&mut self, level: Level, group: u8) -> &mut Leaves {
        match level {
            Level::Host => &mut self.host_leaves[usize::from(self.pools[usize::from(group)])],
            Level::Disk => &mut self.disk_leaves,
        }
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        let leaves: usize = self.host_leaves.iter().map(Leaves::bytes).sum();
        let leaves = leaves + self.disk_leaves.bytes();
        let records = self.records.bytes() + self.table.capacity() * size_of::<u32>();
        records + self.spaces.bytes() + leaves
    }

    pub fn get(&self, at: u32) -> Option<&Record> {
        self.records.get(at)
    }

    /// The record of the page before one; none at the beginning of a prefix.
    pub fn parent(&self, at: u32) -> Option<u32> {
        Some(self.records[at].parent).filter(|&parent| parent != NONE)
    }

    /// Its digest.
    pub fn parent_digest(&self, at: u32) -> Option<PageDigest> {
        self.parent(at).map(|parent| self.records[parent].digest)
    }

    fn first_place(&self, name: Name) -> usize {
        // Digests are as good as chance, but whoever writes prompts can choose among many.
        let [a, b] = [0, 8].map(|from| {
            u64::from_le_bytes(name.digest.0[from..from + 8].try_into().expect("eight bytes"))
        });
        let mixed = u128::from(a ^ self.seed) * u128::from(b ^ self.seed.rotate_left(32) | 1);
        let mixed = (mixed >> 64) as u64 ^ mixed as u64 ^ u64::from(name.group);
        ((u128::from(mixed) * self.table.len() as u128) >> 64) as usize
    }

    fn next_place(&self, place: usize) -> usize {
        if place + 1 == self.table.len() { 0 } else { place + 1 }
    }

    /// The place of a name in the table, or the free one where it would be.
    fn place(&self, name: Name) -> (usize, Option<u32>) {
        let mut place = self.first_place(name);
        loop {
            let Some(at) = self.table[place].checked_sub(1) else { return (place, None) };
            if self.records[at].name() == name {
                return (place, Some(at));
            }
            place = self.next_place(place);
        }
    }

    /// The record of a page.
    pub fn find(&self, name: Name) -> Option<u32> {
        self.place(name).1
    }

    /// The record of a page, made if there is none: of no place yet. Whoever made it gives it one,
    /// or gives it to `prune`.
    pub fn make(
        &mut self,
        name: Name,
        parent: Option<PageDigest>,
        namespace: &Namespace,
    ) -> Result<u32, NoRecord> {
        self.records.try_reserve(2)?;
        let space = self.spaces.enter(namespace)?;
        let made = self.make_linked(name, parent, space);
        self.spaces.leave(space);
        made
    }

    fn make_linked(
        &mut self,
        name: Name,
        parent: Option<PageDigest>,
        space: u32,
    ) -> Result<u32, NoRecord> {
        let at = self.make_unlinked(name, space)?;
        if self.records[at].is_linked {
            return Ok(at);
        }
        if let Some(digest) = parent {
            let above = match self.make_unlinked(Name { digest, ..name }, space) {
                Ok(above) => above,
                Err(error) => {
                    self.prune(at);
                    return Err(error);
                }
            };
            self.records[at].parent = above;
            self.records[above].children += 1;
            debug_assert!(LEVELS.iter().all(|&level| !self.records[at].is_at(level)));
        }
        self.records[at].is_linked = true;
        Ok(at)
    }

    fn make_unlinked(&mut self, name: Name, space: u32) -> Result<u32, NoRecord> {
        let (place, found) = self.place(name);
        if let Some(at) = found {
            return Ok(at);
        }
        if self.records.len() == self.limit {
            return Err(NoRecord::Full);
        }
        let Name { digest, group } = name;
        let at = self.records.insert(Record {
            digest,
            group,
            space,
            disk: 0,
            used: self.clock,
            parent: NONE,
            children: 0,
            children_at: [0; 2],
            host: NONE,
            checksum: 0,
            is_linked: false,
            is_committed: false,
        });
        self.table[place] = at + 1;
        self.spaces.hold(space);
        Ok(at)
    }

    /// A page came to host memory.
    pub fn set_host(&mut self, at: u32, slot: u32) -> Result<(), OutOfMemory> {
        assert!(slot != NONE && self.records[at].host == NONE, "a page is in one slot");
        self.enter(at, Level::Host, |record| record.host = slot)
    }

    /// A page is about to come to the disk.
    pub fn set_disk(&mut self, at: u32, (number, checksum): (u64, u64)) -> Result<(), OutOfMemory> {
        assert!(number != 0 && self.records[at].disk == 0, "a page is on the disk once");
        self.enter(at, Level::Disk, |record| {
            (record.disk, record.is_committed) = (number, false);
            record.checksum = checksum as u32;
        })
    }

    /// The disk has all of a page.
    pub fn set_committed(&mut self, at: u32) {
        self.records[at].is_committed = true;
    }

    fn enter(
        &mut self,
        at: u32,
        level: Level,
        set: impl FnOnce(&mut Record),
    ) -> Result<(), OutOfMemory> {
        assert!(self.records[at].is_linked, "what stands before a page is known");
        // One to spare, for a page that goes before those after it.
        let group = self.records[at].group;
        self.leaves(level, group).try_reserve(2)?;
        set(&mut self.records[at]);
        self.counts[level as usize][self.pool_of(group)] += 1;
        let used = self.records[at].used;
        if self.records[at].is_leaf(level) {
            self.leaves(level, group).add(used, at);
        }
        let parent = self.records[at].parent;
        if parent != NONE {
            if self.records[parent].is_leaf(level) {
                let used = self.records[parent].used;
                self.leaves(level, group).remove(used, parent);
            }
            self.records[parent].children_at[level as usize] += 1;
        }
        Ok(())
    }

    /// A page left host memory; its record goes if that was the last place.
    pub fn leave_host(&mut self, at: u32) {
        assert!(self.records[at].host != NONE, "it is there");
        self.leave(at, Level::Host, |record| record.host = NONE);
    }

    /// A page left the disk; its record goes if that was the last place.
    pub fn leave_disk(&mut self, at: u32) {
        assert!(self.records[at].disk != 0, "it is there");
        self.leave(at, Level::Disk, |record| (record.disk, record.is_committed) = (0, false));
    }

    fn leave(&mut self, at: u32, level: Level, unset: impl FnOnce(&mut Record)) {
        let (group, used) = (self.records[at].group, self.records[at].used);
        if self.records[at].is_leaf(level) {
            self.leaves(level, group).remove(used, at);
        }
        unset(&mut self.records[at]);
        self.counts[level as usize][self.pool_of(group)] -= 1;
        let parent = self.records[at].parent;
        if parent != NONE {
            self.records[parent].children_at[level as usize] -= 1;
            if self.records[parent].is_leaf(level) {
                let used = self.records[parent].used;
                self.leaves(level, group).add(used, parent);
            }
        }
        self.prune(at);
    }

    /// Drops a record that is of no place and has nothing after it. One with something after it
    /// stays, but holds none before it any more.
    pub fn prune(&mut self, mut at: u32) {
        loop {
            let record = &mut self.records[at];
            if LEVELS.iter().any(|&level| record.is_at(level)) {
                return;
            }
            let parent = std::mem::replace(&mut record.parent, NONE);
            record.is_linked = false;
            if record.children == 0 {
                self.forget(at);
            }
            if parent == NONE {
                return;
            }
            self.records[parent].children -= 1;
            at = parent;
        }
    }

    /// Takes a record out of the table, and moves those up that were put behind it.
    fn forget(&mut self, at: u32) {
        let (mut hole, found) = self.place(self.records[at].name());
        assert_eq!(found, Some(at), "a record is where its name leads to");
        let mut next = self.next_place(hole);
        while let Some(other) = self.table[next].checked_sub(1) {
            let first = self.first_place(self.records[other].name());
            let behind = |from: usize| (next + self.table.len() - from) % self.table.len();
            // It can be reached from its first place without what lies behind the hole.
            if behind(first) >= behind(hole) {
                self.table[hole] = self.table[next];
                hole = next;
            }
            next = self.next_place(next);
        }
        self.table[hole] = 0;
        let record = self.records.remove(at);
        self.spaces.leave(record.space);
    }

    /// What is touched from now on was used later than all before.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A page is used now.
    pub fn touch(&mut self, at: u32) {
        let (clock, Record { used, group, .. }) = (self.clock, self.records[at]);
        for level in LEVELS {
            if self.records[at].is_leaf(level) {
                self.leaves(level, group).move_to(used, at, clock);
            }
        }
        self.records[at].used = clock;
    }

    /// The pages of a pool in host memory that may go next, first the one that was used longest
    /// ago.
    pub fn next_in_host(&self, pool: usize) -> impl Iterator<Item = u32> + '_ {
        self.host_leaves[pool].iter()
    }

    /// The same of the disk, for all pools.
    pub fn next_on_disk(&self) -> impl Iterator<Item = u32> + '_ {
        self.disk_leaves.iter()
    }

    /// Checks every count and every place.
    pub fn check(&self) {
        let numbers = || (0..self.end()).filter(|&at| self.records.get(at).is_some());
        assert_eq!(self.table.iter().filter(|&&at| at > 0).count(), self.len());
        for at in numbers() {
            let record = &self.records[at];
            assert_eq!(self.find(record.name()), Some(at));
            let of = |other: &u32| self.records[*other].parent == at;
            assert_eq!(numbers().filter(of).count(), record.children as usize);
            assert!(record.children > 0 || LEVELS.iter().any(|&level| record.is_at(level)));
            for level in LEVELS {
                let there = |other: &u32| of(other) && self.records[*other].is_at(level);
                let found = numbers().filter(there).count();
                assert_eq!(found, record.children_at[level as usize] as usize);
                let listed = match level {
                    Level::Host => {
                        self.host_leaves[self.pool_of(record.group)].has(record.used, at)
                    }
                    Level::Disk => self.disk_leaves.has(record.used, at),
                };
                assert_eq!(listed, record.is_leaf(level), "record {at} at {level:?}");
            }
        }
        for level in LEVELS {
            let there = numbers().filter(|&at| self.records[at].is_at(level)).count();
            assert_eq!(there, self.count(level));
            let leaves = numbers().filter(|&at| self.records[at].is_leaf(level)).count();
            let listed = match level {
                Level::Host => self.host_leaves.iter().map(Leaves::len).sum(),
                Level::Disk => self.disk_leaves.len(),
            };
            assert_eq!(leaves, listed);
        }
    }
}
