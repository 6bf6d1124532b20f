//! Rows of a sequence with several groups while a tier fills their pages: as long as the fetch
//! needs them; what it found on the device, which becomes the sequence's a portion at a time; and
//! states that came, which are the cache's then.
//!
//! What an end needs is used by the call, all of it, before the first page of the sequence changes:
//! from then on nothing can be missing, and nothing can fail.
use super::group_holds::{Hold, Use};
use super::group_rows::{ByPool, GroupCopy};
use super::{HeldPath, State, Turn};
use crate::error::Error;
use crate::group::{GROUP_LIMIT, GroupConfig, GroupKind, Hung, HungPage};
use crate::ids::SequenceId;
use crate::index::Node;
use crate::paging::RowOwner;
use std::ops::Range;

/// Where a sequence goes on, once a tier has filled its pages.
pub(crate) struct Landing<'a> {
    /// Whole pages that it reuses then.
    pub(crate) pages: usize,
    /// The first place that it did not reuse before.
    pub(crate) first: usize,
    /// The first of which the page of group 0 was brought: those before are the cache's.
    pub(crate) own_from: usize,
    /// Whether the page of a group at a place was brought.
    pub(crate) brought: &'a dyn Fn(usize, usize) -> bool,
}

/// What a call uses of a FULL group.
struct Chained {
    /// The place behind the last page of the chain, which a gap ends; None without one.
    next: Option<usize>,
    /// Where that page stands in the hold.
    at: Option<usize>,
}

impl State {
    /// What hangs on the pages of group 0; none with one group.
    pub(crate) fn hung(&self) -> Option<&Hung> {
        Some(&self.cache.as_ref()?.groups.as_deref()?.hung)
    }

    /// Gives up what a sequence has at some places of the groups with windows that an end behind so
    /// many pages does not need there: what is the cache's is in use no more.
    fn drop_passed_pages(&mut self, slot: u32, places: Range<usize>, pages: usize) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let now = cache.index.now();
        let hung = &mut cache.groups.as_mut().expect("there are several groups").hung;
        let rows = &mut self.sequences[slot as usize].groups;
        for (group, config) in groups.hung().filter(|(_, config)| config.kind.slides()) {
            let needs = config.kind.needs(pages * page_size, page_size);
            let needs = needs.expect("sliding groups end anywhere");
            let pool = self.table.pool_at_mut(config.pool as usize);
            let row = &mut rows.rows[group];
            let (start, end) = (places.start.min(row.len()), places.end.min(row.len()));
            for (page, place) in row[start..end.max(start)].iter_mut().zip(start..) {
                if *page == 0 || needs.contain(place) {
                    continue;
                }
                let page = std::mem::take(page);
                rows.changes += 1;
                match pool.is_cached(page) {
                    true => hung.end_use(HungPage { group, page }, None, now),
                    false => pool.put_back(page),
                }
            }
        }
    }

    /// Pages that a sequence lacks at places of which it has none, or few, to go on from behind so
    /// many pages, by pool.
    fn missing_for_fetch(&self, slot: u32, places: Range<usize>, pages: usize) -> ByPool {
        let (mut missing, page_size) = (ByPool::default(), self.table.page_size());
        let lacks = |has: usize| places.end.saturating_sub(has.max(places.start));
        missing[0] = lacks(self.table.row(slot).map_or(0, <[u32]>::len));
        let sequence = &self.sequences[slot as usize];
        for (group, config) in self.table.groups().hung() {
            let row = sequence.groups.row(group);
            missing[config.pool as usize] += match config.kind {
                GroupKind::State => 0,
                GroupKind::Full => lacks(row.len()),
                kind => {
                    let is_missing = |place: &usize| row.get(*place).is_none_or(|&page| page == 0);
                    needed_places(kind, pages, page_size, &places).filter(is_missing).count()
                }
            };
        }
        missing
    }

    /// Gives a sequence those pages, which are free. Room was made.
    fn grow_group_rows(&mut self, slot: u32, places: Range<usize>, pages: usize) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let more = places.end.saturating_sub(self.table.row(slot).map_or(0, <[u32]>::len));
        self.table.extend_private(slot, more);
        let sequence = &mut self.sequences[slot as usize];
        for (group, config) in groups.hung().filter(|(_, of)| of.kind != GroupKind::State) {
            let pool = self.table.pool_at_mut(config.pool as usize);
            let row = &mut sequence.groups.rows[group];
            if config.kind == GroupKind::Full {
                let more = places.end.saturating_sub(row.len());
                pool.take_for_row(RowOwner::Sequence, more, row);
                continue;
            }
            row.resize(row.len().max(places.end), 0);
            for place in needed_places(config.kind, pages, page_size, &places) {
                if row[place] == 0 {
                    row[place] = pool.take_one(RowOwner::Sequence);
                    // Who copies the row has copied a hole.
                    sequence.groups.changes += 1;
                }
            }
        }
    }

    /// Lets a hold use what the cache has of a group at some places of a path, where nothing was
    /// brought. False when some of it is not there.
    fn use_theirs(
        &mut self,
        hold: u32,
        (path, landing): (&HeldPath, &Landing<'_>),
        (group, places): (usize, Range<usize>),
        mut chained: Option<&mut Chained>,
    ) -> Result<bool, Error> {
        self.reserve_uses(hold, places.len())?;
        let cache = self.parts()?.0;
        let groups = cache.groups.as_deref_mut().expect("there are several groups");
        let (hung, hold) = (&mut groups.hung, &mut groups.holds[hold]);
        for place in places {
            if (landing.brought)(group, place) {
                continue;
            }
            let spine = path.page(place).filter(|_| place < landing.own_from);
            let page = HungPage { group, page: spine.map_or(0, |spine| hung.page(group, spine)) };
            if page.page == 0 {
                return Ok(false);
            }
            hung.begin_use(page);
            let Some(chained) = chained.as_deref_mut().filter(|it| it.next == Some(place)) else {
                hold.add(page, place);
                continue;
            };
            chained.next = Some(place + 1);
            match chained.at {
                Some(at) => {
                    let last = std::mem::replace(&mut hold.uses[at], Use { page, place });
                    hung.follow(page, Some(last.page.page));
                }
                None => {
                    chained.at = Some(hold.uses.len());
                    hold.add(page, place);
                }
            }
        }
        Ok(true)
    }

    /// Makes room for so many uses more in a hold.
    fn reserve_uses(&mut self, hold: u32, count: usize) -> Result<(), Error> {
        let cache = self.parts()?.0;
        let groups = cache.groups.as_deref_mut().expect("there are several groups");
        let hold = &mut groups.holds[hold];
        let before = hold.bytes();
        let room = hold.uses.try_reserve(count);
        groups.hold_bytes += hold.bytes() - before;
        room.map_err(|_| Error::memory("what a call uses of groups"))
    }

    /// Lets a hold use the page of a FULL group at a place, if all before it are in use with it.
    fn use_chained(&mut self, hold: u32, path: &HeldPath, (group, place): (usize, usize)) -> bool {
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let groups = cache.groups.as_deref_mut().expect("there are several groups");
        let spine = path.page(place).expect("the path goes so far");
        let page = HungPage { group, page: groups.hung.page(group, spine) };
        let is_chained = page.page != 0 && groups.hung.before(page).is_some();
        if is_chained {
            groups.hung.begin_use(page);
            groups.holds[hold].add(page, place);
        }
        is_chained
    }

    /// Begins to use what a sequence has of a FULL group, whose next pages follow.
    fn begin_chained(&mut self, hold: u32, slot: u32, (group, first): (usize, usize)) -> Chained {
        let rows = &self.sequences[slot as usize].groups;
        let last = rows.cached(group, &self.table).last().copied();
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let groups = cache.groups.as_deref_mut().expect("there are several groups");
        let (Some(page), Some(place)) = (last, first.checked_sub(1)) else {
            return Chained { next: Some(first).filter(|&first| first == 0), at: None };
        };
        let (page, hold) = (HungPage { group, page }, &mut groups.holds[hold]);
        groups.hung.begin_use(page);
        hold.add(page, place);
        Chained { next: Some(first), at: Some(hold.uses.len() - 1) }
    }

    /// Lets a sequence, which has computed nothing, begin to go on from farther on: what the cache
    /// has up to there is locked, states are copied from there, and nothing else is. `upper` is the
    /// node that ends where the cache's pages do. Room was made.
    fn begin_landing(
        &mut self,
        slot: u32,
        landing: &Landing<'_>,
        (upper, hold): (Option<Node>, u32),
    ) {
        let (page_size, groups) = (self.table.page_size(), *self.table.groups());
        // In this order: what hangs on a page is let go of before the page, which may go at once.
        self.end_group_copies(slot);
        self.end_copy(slot);
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let of_groups = cache.groups.as_deref_mut().expect("there are several groups");
        let uses = &mut of_groups.holds[hold].uses;
        let sequence = &mut self.sequences[slot as usize];
        let rows = &mut sequence.groups;
        let mut saved = groups.end_with_pages();
        for (group, _) in groups.hung().filter(|(_, config)| config.kind == GroupKind::State) {
            // They were the first that were looked for.
            let used = uses.iter().take(GROUP_LIMIT).position(|used| used.page.group == group);
            saved &= used.is_some();
            if let Some(at) = used {
                let (source, target) = (uses.remove(at).page.page, rows.rows[group][0]);
                let positions = page_size;
                rows.copies.push(GroupCopy { group, source, target, positions, saves: None });
            }
        }
        let at = (landing.pages * page_size) as u32;
        rows.saved = if saved { landing.pages as u32 } else { rows.saved };
        let [first, second] =
            rows.depths.checkpoint_at.map(|place| if place > at { place } else { 0 });
        rows.depths.checkpoint_at = if first == 0 { [second, 0] } else { [first, second] };
        if let Some(node) = upper {
            cache.index.lock(node);
            if let Some(above) = sequence.lock {
                cache.index.unlock(above);
            }
            sequence.tail.drop_first((landing.own_from - sequence.base_pages) * page_size);
            (sequence.lock, sequence.base) = (Some(node), Some(node));
            sequence.base_pages = landing.own_from;
        }
        self.set_cached(slot, landing.pages * page_size);
    }

    /// Makes pages of a path the sequence's, with what hangs there: its own that were not brought
    /// go back, those that were hang there where there are none.
    fn land_places(&mut self, slot: u32, places: Range<usize>, (path, pages): (&HeldPath, usize)) {
        self.drop_passed_pages(slot, places.clone(), pages);
        for place in places.clone() {
            let page = path.page(place).expect("the path goes so far");
            self.table.remap(slot, place, page);
        }
        self.sequences[slot as usize].shared = places.end;
        self.hang_places(slot, places);
    }

    /// States that came to a sequence, which are after so many pages of it, become the cache's,
    /// where it has none there; the sequence is to copy them then, as if they had been found.
    /// Where no page can be had for that it keeps its own.
    pub(crate) fn share_fetched_states(&mut self, slot: u32, pages: usize) {
        let (groups, page_size) = (*self.table.groups(), self.table.page_size());
        let Some(place) = pages.checked_sub(1) else { return };
        let sequence = &self.sequences[slot as usize];
        if sequence.shared < pages || self.is_cleared(sequence) {
            return;
        }
        let Some(base) = sequence.base else { return };
        let spine = self.table.row(slot).expect("the slot is in use")[place];
        let mut came = [false; GROUP_LIMIT];
        for (group, config) in groups.hung().filter(|(_, of)| of.kind == GroupKind::State) {
            let pool = config.pool as usize;
            let copies = self.sequences[slot as usize].groups.copies();
            let is_copied = copies.iter().any(|copy| copy.group == group);
            let is_there = self.hung_page(group, spine) != 0;
            if is_copied || is_there || self.check_pool_room(pool, 1, 0).is_err() {
                continue;
            }
            self.free_up_pool(pool, 1);
            let rows = &mut self.sequences[slot as usize].groups;
            let pool = self.table.pool_at_mut(pool);
            let target = pool.take_one(RowOwner::Sequence);
            let source = std::mem::replace(&mut rows.rows[group][0], target);
            rows.changes += 1;
            rows.copies.push(GroupCopy {
                group,
                source,
                target,
                positions: page_size,
                saves: None,
            });
            pool.claim(&[source]);
            let cache = self.cache.as_mut().expect("a sequence has a cache");
            let mut hanging = cache.begin_hanging().expect("there are several groups");
            let page = HungPage { group, page: source };
            hanging.hang(page, spine);
            hanging.hung.begin_use(page);
            came[group] = true;
        }
        if came.contains(&true) {
            let cache = self.cache.as_mut().expect("a sequence has a cache");
            let node = cache.index.node_at_page(base, place);
            cache.classify(node, place, pages);
            self.note_saved(slot, place, came);
        }
    }
}

/// The places of a range that an end behind so many pages needs of a group that slides.
fn needed_places(
    kind: GroupKind,
    pages: usize,
    page_size: usize,
    places: &Range<usize>,
) -> impl Iterator<Item = usize> + use<> {
    let needs = kind.needs(pages * page_size, page_size);
    let needs = needs.expect("sliding groups end anywhere");
    let (from, to) = (places.start, places.end);
    let within = move |of: Range<usize>| of.start.max(from)..of.end.min(to);
    within(needs.sinks).chain(within(needs.last))
}

impl Turn<'_> {
    /// Gives up, in portions, what a sequence has at places of groups with windows that an end
    /// behind so many pages does not need.
    pub(crate) fn drop_passed(
        &mut self,
        id: SequenceId,
        places: Range<usize>,
        pages: usize,
    ) -> Result<(), Error> {
        let Range { mut start, end } = places;
        while start < end {
            let to = end.min(start + self.shared.slice);
            self.state().drop_passed_pages(id.slot(), start..to, pages);
            start = to;
            if start < end {
                self.let_waiting_in();
                self.sequence(id)?;
            }
        }
        Ok(())
    }

    /// Makes the rows of a sequence that is loading, which have pages at the first `row` places,
    /// long enough to go on from behind so many whole pages, in portions. Of what is behind those,
    /// groups get pages where they are needed then, and holes elsewhere.
    pub(crate) fn lengthen_for_fetch(
        &mut self,
        id: SequenceId,
        row: usize,
        pages: usize,
    ) -> Result<(), Error> {
        let (slot, mut from) = (id.slot(), row);
        while from < pages {
            if !self.sequence(id)?.is_loading {
                return Err(Error::state("the sequence's fetch has ended"));
            }
            // Others who made rows longer may have taken the room.
            let more = pages.saturating_sub(self.table.row(slot)?.len());
            self.state().make_room_in_row(slot, more)?;
            self.state().reserve_group_rows(slot, pages)?;
            // All of it can be had, or nothing is evicted for it.
            let missing = self.state().missing_for_fetch(slot, from..pages, pages);
            self.check_all_rooms(&missing)?;
            let to = pages.min(from + self.shared.slice);
            let missing = self.state().missing_for_fetch(slot, from..to, pages);
            if self.make_pools_free(&missing)? {
                continue;
            }
            self.state().grow_group_rows(slot, from..to, pages);
            from = to;
            if from < pages {
                self.let_waiting_in();
            }
        }
        Ok(())
    }

    /// Uses what the cache has of what an end needs, and what was not brought, in portions. False
    /// when some of it is not there.
    fn use_landing(
        &mut self,
        (id, hold): (SequenceId, u32),
        path: &HeldPath,
        landing: &Landing<'_>,
    ) -> Result<bool, Error> {
        let groups = *self.table.groups();
        // States first, so that they are found at the beginning of what is used.
        let is_state = |config: &GroupConfig| config.kind == GroupKind::State;
        let states = groups.hung().filter(|(_, config)| is_state(config));
        for (group, config) in states.chain(groups.hung().filter(|(_, config)| !is_state(config))) {
            let page_size = self.table.page_size();
            let needs = config.kind.needs(landing.pages * page_size, page_size);
            let needs = needs.expect("it was seen that every group can go on from there");
            let is_full = config.kind == GroupKind::Full;
            let (mut first, mut chained) = (landing.first, None);
            if is_full && first < landing.own_from {
                self.state().reserve_uses(hold, 2)?;
                match self.state().use_chained(hold, path, (group, landing.own_from - 1)) {
                    true => first = landing.own_from,
                    false => {
                        chained = Some(self.state().begin_chained(hold, id.slot(), (group, first)));
                    }
                }
            }
            for places in [needs.sinks, needs.last] {
                let mut start = places.start.max(first);
                while start < places.end {
                    let to = places.end.min(start + self.shared.slice);
                    let what = (group, start..to);
                    if !self.state().use_theirs(hold, (path, landing), what, chained.as_mut())? {
                        return Ok(false);
                    }
                    start = to;
                    self.let_in()?;
                    self.sequence(id)?;
                }
            }
        }
        Ok(true)
    }

    /// Makes a sequence go on from behind what came to its pages, in all groups: what it reuses of
    /// the cache's is its own when this returns, and the rest is to be published. False when
    /// something that the cache had is not there any more; then nothing has changed.
    pub(crate) fn land_path(
        &mut self,
        id: SequenceId,
        path: &HeldPath,
        landing: &Landing<'_>,
    ) -> Result<bool, Error> {
        if path.end() < landing.own_from {
            return Ok(false);
        }
        let cache = self.parts()?.0;
        let groups = cache.groups.as_deref_mut().expect("there are several groups");
        groups.holds.try_reserve(1).map_err(|_| Error::memory("what a call uses of groups"))?;
        let hold = cache.insert_hold(Hold { node: Node(0), uses: Vec::new(), keeps: false });
        let done = self.land_with(id, hold, (path, landing));
        self.end_hold_in_portions(hold, path.gone());
        done
    }

    fn land_with(
        &mut self,
        id: SequenceId,
        hold: u32,
        (path, landing): (&HeldPath, &Landing<'_>),
    ) -> Result<bool, Error> {
        let (slot, own_from) = (id.slot(), landing.own_from);
        if !self.use_landing((id, hold), path, landing)? {
            return Ok(false);
        }
        self.state().reserve_group_rows(slot, 0)?;
        let mut upper = None;
        if own_from > landing.first {
            let cache = self.parts()?.0;
            let at = path.foothold().expect("what has pages is held");
            let node = cache.footholds[at].node;
            upper = Some(cache.index.end_node_at(node, own_from)?);
        }
        // Nothing can fail from here on.
        self.state().begin_landing(slot, landing, (upper, hold));
        self.drop_passed(id, 0..landing.first, landing.pages)?;
        let portion = self.publish_portion()?;
        let mut from = landing.first;
        while from < own_from {
            let to = own_from.min(from + portion);
            self.state().land_places(slot, from..to, (path, landing.pages));
            from = to;
            self.let_in()?;
            self.sequence(id)?;
        }
        if let Some(base) = self.sequence(id)?.base.filter(|_| own_from > landing.first) {
            // What came to windows is what the end needs of them: nothing else is of another class.
            let (groups, page_size) = (*self.table.groups(), self.table.page_size());
            let sliding = groups.hung().filter(|(_, config)| config.kind.slides());
            let span = sliding.map(|(_, config)| config.kind.span(page_size)).max().unwrap_or(0);
            let from = landing.first.max(own_from.saturating_sub(span));
            self.parts()?.0.classify(base, from, own_from);
        }
        Ok(true)
    }
}
