//! The rows of a sequence in the groups beside the spine: which pages it has there, which of those
//! are the cache's, and what is still to be copied.
//!
//! A row has a place for each page of the sequence, with holes where its window has passed; that of
//! a STATE group has one place, for the state that the next step changes. What the cache has of a
//! row is in use; the rest is private.
use super::group_cache::{Before, Depths};
use super::group_holds::full;
use super::{State, Turn};
use crate::error::Error;
use crate::group::{GROUP_LIMIT, GroupKind, Hung, HungPage};
use crate::memory::{OutOfMemory, TryGrow};
use crate::paging::{PageCopy, PageTable, RowOwner};
use std::ops::Range;

/// What is to be copied in a group beside the spine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCopy {
    /// The group.
    pub group: usize,
    /// From.
    pub source: u32,
    /// To.
    pub target: u32,
    /// How many positions, from the page's beginning; of a state, all that it is.
    pub positions: usize,
    /// The place after which the target is to hang as a checkpoint, when it is one.
    pub(super) saves: Option<usize>,
}

impl From<&GroupCopy> for PageCopy {
    fn from(copy: &GroupCopy) -> Self {
        Self { source: copy.source, target: copy.target, positions: copy.positions }
    }
}

/// The rows of a sequence.
#[derive(Debug, Default)]
pub(crate) struct GroupRows {
    /// By group; that of the spine is empty. None with one group.
    pub(super) rows: Vec<Vec<u32>>,
    pub(super) copies: Vec<GroupCopy>,
    /// How far the prompt was known, and where states should be saved.
    pub(crate) depths: Depths,
    /// How often pages of a row gave way, to a hole or to others.
    pub(super) changes: u64,
    /// How often a row became shorter.
    pub(super) cuts: u64,
    /// One more than the last place after which it knows its states to be saved; 0 for none.
    pub(super) saved: u32,
    /// Where it knows that a prefix ended, whose pages are of the tail.
    pub(super) ended: u32,
    /// Of one that leaves: a retained sequence had them, and what is left is kept so.
    pub(super) kept: bool,
    /// How many positions the state is after, as far as it was said, until they are published.
    pub(crate) accepted: usize,
    /// The same where windows slid that far.
    pub(crate) slid: usize,
    /// What the last publishing did.
    pub(crate) published: PublishedGroups,
}

/// Pages of which publishing made the cache's, or took the cache's instead, by group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PublishedGroups {
    /// Pages that went to the cache.
    pub claimed: [u32; GROUP_LIMIT],
    /// Pages whose place another one took.
    pub remapped: [u32; GROUP_LIMIT],
}

/// A number for each pool.
pub(crate) type ByPool = [usize; GROUP_LIMIT];

impl GroupRows {
    /// Heap memory.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        if self.rows.is_empty() { 0 } else { self.rows_bytes() }
    }

    #[inline(never)]
    fn rows_bytes(&self) -> usize {
        let pages: usize = self.rows.iter().map(Vec::capacity).sum();
        pages * size_of::<u32>()
            + self.rows.capacity() * size_of::<Vec<u32>>()
            + self.copies.capacity() * size_of::<GroupCopy>()
    }

    /// Whether there is only the spine.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The row of a group beside the spine.
    pub(crate) fn row(&self, group: usize) -> &Vec<u32> {
        &self.rows[group]
    }

    /// Unchanged for as long as those of its pages stay where they are that the spine has places
    /// for; more may come.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The same for all of its pages: it never falls.
    pub(crate) fn version(&self) -> u64 {
        self.changes.wrapping_add(self.cuts)
    }

    /// Copies that save a state.
    pub(crate) fn saves(&self) -> impl Iterator<Item = &GroupCopy> {
        self.copies.iter().filter(|copy| copy.saves.is_some())
    }

    /// What is to be copied.
    pub(crate) fn copies(&self) -> &[GroupCopy] {
        &self.copies
    }

    /// All pages with their groups; those of open checkpoints too.
    pub(super) fn pages(&self) -> impl Iterator<Item = HungPage> + '_ {
        let rows = self.rows.iter().enumerate();
        let mapped = rows.flat_map(|(group, row)| row.iter().map(move |&page| (group, page)));
        let mapped = mapped.filter(|(_, page)| *page != 0);
        mapped.map(|(group, page)| HungPage { group, page }).chain(self.saved())
    }

    /// The pages of open checkpoints.
    fn saved(&self) -> impl Iterator<Item = HungPage> + '_ {
        self.saves().map(|save| HungPage { group: save.group, page: save.target })
    }

    /// Those of groups that are not FULL: of each row from its end up, and those that it begins
    /// with. Of a sequence `at_rest`, which waits for no pages, those lie behind the last hole, and
    /// no others are looked at.
    pub(super) fn sparse<'a>(
        &'a self,
        table: &PageTable,
        at_rest: bool,
    ) -> impl Iterator<Item = HungPage> + use<'a> {
        let (groups, page_size) = (*table.groups(), table.page_size());
        let config = move |group: usize| groups.list()[group];
        let sparse = 1..self.rows.len();
        let sparse = sparse.filter(move |&group| config(group).kind != GroupKind::Full);
        let rows = sparse.flat_map(move |group| {
            let row = &self.rows[group];
            let (sinks, rest) = row.split_at(config(group).kind.sinks(page_size).min(row.len()));
            let rest = rest.iter().rev().take_while(move |&&page| page != 0 || !at_rest);
            let pages = rest.chain(sinks).filter(|&&page| page != 0);
            pages.map(move |&page| HungPage { group, page })
        });
        rows.chain(self.saved())
    }

    /// The pages that it uses if they are the cache's: of a FULL group the last that is, with which
    /// it uses all before.
    pub(super) fn uses<'a>(
        &'a self,
        table: &'a PageTable,
        at_rest: bool,
    ) -> impl Iterator<Item = HungPage> + 'a {
        self.sparse(table, at_rest).chain(self.ends(table))
    }

    /// Of each FULL group the last page that is the cache's.
    pub(super) fn ends<'a>(&'a self, table: &'a PageTable) -> impl Iterator<Item = HungPage> + 'a {
        self.full_groups(table).filter_map(|group| {
            let page = *self.cached(group, table).last()?;
            Some(HungPage { group, page })
        })
    }

    /// The pages that are not the cache's.
    pub(super) fn private<'a>(
        &'a self,
        table: &'a PageTable,
        at_rest: bool,
    ) -> impl Iterator<Item = HungPage> + 'a {
        let pool = move |group: usize| table.groups().list()[group].pool as usize;
        let is_private =
            move |page: &HungPage| !table.pool_at(pool(page.group)).is_cached(page.page);
        let behind = self.full_groups(table).flat_map(move |group| {
            let row = &self.rows[group][self.cached(group, table).len()..];
            row.iter().map(move |&page| HungPage { group, page })
        });
        self.sparse(table, at_rest).filter(is_private).chain(behind)
    }

    /// Of a sequence at rest that shares so many pages, the place in each row from which on pages
    /// are not the cache's.
    pub(super) fn private_from(&self, table: &PageTable, shared: usize) -> [usize; GROUP_LIMIT] {
        let mut places = [0; GROUP_LIMIT];
        for (group, row) in self.rows.iter().enumerate().skip(1) {
            places[group] = match table.groups().list()[group].kind {
                GroupKind::Full => self.cached(group, table).len(),
                GroupKind::State => 0,
                _ => shared.min(row.len()),
            };
        }
        places
    }

    /// The pages in each row from a place on, and those of open checkpoints.
    pub(super) fn behind(
        &self,
        places: [usize; GROUP_LIMIT],
    ) -> impl Iterator<Item = HungPage> + '_ {
        let rows = self.rows.iter().enumerate();
        let pages = rows.flat_map(move |(group, row)| {
            let pages = row[places[group]..].iter().filter(|&&page| page != 0);
            pages.map(move |&page| HungPage { group, page })
        });
        pages.chain(self.saved())
    }

    /// The FULL groups of which there are rows: without memory for all there may be some.
    pub(super) fn full_groups(&self, table: &PageTable) -> impl Iterator<Item = usize> + use<> {
        let count = self.rows.len();
        full(*table.groups()).take_while(move |&group| group < count)
    }

    /// What the cache has of the row of a FULL group.
    pub(super) fn cached(&self, group: usize, table: &PageTable) -> &[u32] {
        let (row, pool) = (&self.rows[group], table.groups().list()[group].pool);
        let pool = table.pool_at(pool as usize);
        &row[..row.partition_point(|&page| pool.is_cached(page))]
    }

    /// Pages that copies read: of the cache, or of a parent.
    pub(super) fn sources(&self) -> impl Iterator<Item = HungPage> + '_ {
        let reading = self.copies.iter().filter(|copy| copy.saves.is_none());
        reading.map(|copy| HungPage { group: copy.group, page: copy.source })
    }
}

impl Turn<'_> {
    /// Makes room for rows of so many places of the next sequence, while others have the lock where
    /// that is much.
    pub(crate) fn make_room_in_next_group_rows(&mut self, places: usize) -> Result<(), Error> {
        let groups = *self.table.groups();
        for (group, config) in groups.hung() {
            let count = config.row_pages(places);
            if self.next_group_room(group) < count {
                let longer = self.room_for_pages(count).map_err(|_| no_room())?;
                let left = self.state().give_group_room(group, longer);
                self.housekeeping.discard(left);
            }
        }
        Ok(())
    }
}

/// There is no memory for rows.
fn no_room() -> Error {
    Error::memory("the rows of groups")
}

impl State {
    /// The places of the next sequence's row for which there is room; usize::MAX where there will
    /// be none.
    fn next_group_room(&self, group: usize) -> usize {
        let slot = self.table.next_slot().ok();
        let place = slot.and_then(|slot| self.sequences.get(slot as usize));
        place.map_or(usize::MAX, |place| place.groups.rows.get(group).map_or(0, Vec::capacity))
    }

    /// Gives a list to that row, if its own is shorter; returns the one that is left.
    fn give_group_room(&mut self, group: usize, list: Vec<u32>) -> Vec<u32> {
        if self.next_group_room(group) >= list.capacity() {
            return list;
        }
        let slot = self.table.next_slot().expect("it has a row");
        if self.reserve_group_rows(slot, 0).is_err() {
            // Whoever needs the row says so.
            return list;
        }
        let row = &mut self.sequences[slot as usize].groups.rows[group];
        self.sequence_bytes += list.capacity() * size_of::<u32>();
        self.sequence_bytes -= row.capacity() * size_of::<u32>();
        std::mem::replace(row, list)
    }

    /// Makes room for rows of so many places, and for what is copied.
    pub(crate) fn reserve_group_rows(&mut self, slot: u32, places: usize) -> Result<(), Error> {
        let groups = *self.table.groups();
        let sequence = &mut self.sequences[slot as usize];
        let before = sequence.bytes();
        let reserve = |rows: &mut GroupRows| -> Result<(), OutOfMemory> {
            while rows.rows.len() < groups.list().len() {
                rows.rows.try_push(Vec::new())?;
            }
            // A copy out of the cache and one into it, for each group.
            let more = (2 * groups.list().len()).saturating_sub(rows.copies.len());
            rows.copies.try_reserve(more)?;
            for (group, config) in groups.hung() {
                let row = &mut rows.rows[group];
                row.try_reserve(config.row_pages(places).saturating_sub(row.len()))?;
            }
            Ok(())
        };
        let done = reserve(&mut sequence.groups);
        self.sequence_bytes += sequence.bytes() - before;
        done.map_err(|_| no_room())
    }

    /// Pages that the rows of a sequence lack for so many places, by pool.
    pub(crate) fn missing_in_groups(&self, slot: u32, places: usize) -> ByPool {
        let (rows, mut missing) = (&self.sequences[slot as usize].groups.rows, ByPool::default());
        for (group, config) in self.table.groups().hung() {
            let has = rows.get(group).map_or(0, Vec::len);
            missing[config.pool as usize] += config.row_pages(places).saturating_sub(has);
        }
        missing
    }

    /// Of so many places, those that each row has of which there is one for each place.
    pub(crate) fn shortest_group_row(&self, slot: u32, places: usize) -> usize {
        let rows = &self.sequences[slot as usize].groups.rows;
        let hung = self.table.groups().hung();
        let growing = hung.filter(|(_, group)| group.kind != GroupKind::State);
        growing.map(|(group, _)| rows[group].len()).min().unwrap_or(places)
    }

    /// Adds free pages to the rows of a sequence, for which room was made, up to so many places.
    pub(crate) fn extend_group_rows(&mut self, slot: u32, places: usize) {
        let groups = *self.table.groups();
        let rows = &mut self.sequences[slot as usize].groups.rows;
        for (group, config) in groups.hung() {
            let row = &mut rows[group];
            let more = config.row_pages(places).saturating_sub(row.len());
            self.table.pool_at_mut(config.pool as usize).take_for_row(
                RowOwner::Sequence,
                more,
                row,
            );
        }
    }

    /// Puts back the last pages of the rows, which are private, until they have so many places.
    pub(crate) fn shorten_group_rows(&mut self, slot: u32, places: usize) {
        let before = self.sequences[slot as usize].groups.cuts;
        self.cut_group_rows(slot, places);
        let rows = &mut self.sequences[slot as usize].groups;
        rows.changes += rows.cuts - before;
    }

    /// The same behind the places of the spine: no plan can name those pages.
    pub(crate) fn cut_group_rows(&mut self, slot: u32, places: usize) {
        let groups = *self.table.groups();
        let GroupRows { rows, cuts, .. } = &mut self.sequences[slot as usize].groups;
        for (group, config) in groups.hung().filter(|(_, group)| group.kind != GroupKind::State) {
            let places = places.min(rows[group].len());
            *cuts += (places < rows[group].len()) as u64;
            for page in rows[group].drain(places..).rev().filter(|&page| page != 0) {
                self.table.pool_at_mut(config.pool as usize).put_back(page);
            }
        }
    }

    /// What was to be copied is there: its sources are not in use any more, and what was saved can
    /// be found.
    pub(crate) fn end_group_copies(&mut self, slot: u32) {
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let now = cache.index.now();
        let Some(mut hanging) = cache.begin_hanging() else { return };
        let (mut first, mut place_saved) = (None, None);
        let mut came = [false; GROUP_LIMIT];
        while let Some(copy) = self.sequences[slot as usize].groups.copies.pop() {
            let source = HungPage { group: copy.group, page: copy.source };
            let Some(place) = copy.saves else {
                end_source(&mut self.table, hanging.hung, (source, slot), now);
                continue;
            };
            place_saved = Some(place);
            let spine = self.table.row(slot).expect("the slot is in use")[place];
            let pool = self.table.pool_at_mut(hanging.hung.pool_of(copy.group));
            if hanging.hung.page(copy.group, spine) != 0 {
                // Somebody else saved the same meanwhile.
                pool.put_back(copy.target);
                continue;
            }
            pool.claim(&[copy.target]);
            hanging.hang(HungPage { group: copy.group, page: copy.target }, spine);
            came[copy.group] = true;
            first = Some(place);
        }
        drop(hanging);
        let base = self.sequences[slot as usize].base;
        if let (Some(place), Some(base)) = (first, base) {
            let cache = self.cache.as_mut().expect("a sequence has a cache");
            let node = cache.index.node_at_page(base, place);
            cache.classify(node, place, place + 1);
        }
        if let Some(place) = place_saved {
            self.note_saved(slot, place, came);
        }
    }

    /// Hangs the pages of a range of places that came to the cache, where there are none yet; where
    /// there are, those take the place of ours.
    pub(crate) fn publish_groups(&mut self, slot: u32, from: usize, to: usize) {
        self.hang_places(slot, from..to);
        let base = self.sequences[slot as usize].base.expect("it was published");
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let ended = &mut self.sequences[slot as usize].groups.ended;
        let before = if *ended as usize == from { Before::Ended } else { Before::Unknown };
        *ended = to as u32;
        cache.classify_below((base, cache.index.end_page(base)), from..to, before);
    }

    /// The same but for saying of what class they are.
    pub(super) fn hang_places(&mut self, slot: u32, places: Range<usize>) {
        self.lock_for_borrowers(slot, places.clone());
        let Range { start: from, end: to } = places;
        let groups = *self.table.groups();
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let mut hanging = cache.begin_hanging().expect("there are several groups");
        let sequence = &mut self.sequences[slot as usize];
        for (group, config) in groups.hung().filter(|(_, group)| group.kind != GroupKind::State) {
            let is_full = config.kind == GroupKind::Full;
            let row = &mut sequence.groups.rows[group];
            let mut before = from.checked_sub(1).and_then(|place| row.get(place).copied());
            for place in from..to {
                let Some(ours) = row.get_mut(place) else { break };
                let spine = self.table.row(slot).expect("the slot is in use")[place];
                let pool = self.table.pool_at_mut(config.pool as usize);
                if *ours == 0 || pool.is_cached(*ours) {
                    continue;
                }
                match hanging.hung.page(group, spine) {
                    0 => {
                        let page = HungPage { group, page: *ours };
                        pool.claim(&[*ours]);
                        hanging.hang(page, spine);
                        sequence.groups.published.claimed[group] += 1;
                        // Children that are to copy it use it now, where they borrowed it.
                        while let Some(child) = pool.first_borrower(*ours) {
                            pool.end_loan(*ours, child);
                            hanging.hung.begin_use(page);
                        }
                    }
                    theirs => {
                        pool.put_back(*ours);
                        *ours = theirs;
                        sequence.groups.changes += 1;
                        sequence.groups.published.remapped[group] += 1;
                    }
                }
                hanging.hung.begin_use(HungPage { group, page: *ours });
                if is_full {
                    hanging.hung.follow(HungPage { group, page: *ours }, before);
                    before = Some(*ours);
                }
            }
        }
    }

    /// The private pages that live sequences have in the groups of a pool, and those that leave.
    pub(super) fn private_in_groups(&self, pool: usize) -> impl Iterator<Item = u32> + '_ {
        let leaving = self.cache.iter().filter_map(|cache| cache.groups.as_deref());
        let leaving = leaving.flat_map(|groups| groups.leaving.iter());
        let rows = self.sequences.iter().map(|sequence| &sequence.groups).chain(leaving);
        private_in_groups(rows, &self.table, pool)
    }
}

/// A copy has read its page, or never will: what was borrowed goes back, of the cache's it is one
/// use less.
pub(super) fn end_source(
    table: &mut PageTable,
    hung: &mut Hung,
    (page, slot): (HungPage, u32),
    now: u64,
) {
    let pool = table.pool_at_mut(hung.pool_of(page.group));
    if !pool.end_loan(page.page, slot) {
        hung.end_use(page, None, now);
    }
}

/// The private pages that rows of sequences have in the groups of a pool.
pub(super) fn private_in_groups<'a>(
    rows: impl IntoIterator<Item = &'a GroupRows> + 'a,
    table: &'a PageTable,
    pool: usize,
) -> impl Iterator<Item = u32> + 'a {
    let pages = rows.into_iter().flat_map(|rows| rows.private(table, false));
    let of_pool = move |page: &HungPage| table.groups().list()[page.group].pool as usize == pool;
    pages.filter(of_pool).map(|page| page.page)
}
