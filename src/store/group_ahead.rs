//! Long prefixes of FULL groups: what hangs along a path is looked at, and used, in portions,
//! before the step that takes what was found. So are long windows at its end (`group_windows.rs`).
//!
//! Whoever uses a page of a FULL group uses all before it (`group/chain.rs`). So a call takes more
//! and more of the path that it holds, and the step that takes the whole for a sequence or a lock
//! adds one use to the last page; what the call itself uses goes after that, in portions too.
use super::group_cache::GroupCache;
use super::group_holds::{Hold, Use, full};
use super::group_windows::{Ahead, Searched};
use super::{Descent, LongQuery, PrefixCache, State, Turn};
use crate::error::Error;
use crate::group::{GROUP_LIMIT, GroupKind, HungPage, Seen};
use crate::ids::NodeId;
use crate::index::{Node, Walk};
use crate::memory::{OutOfMemory, try_touched_room};

/// Pages of FULL groups that are taken at once, for each page of a slice: 512, which take some 8
/// microseconds, and three times that when they are in no cache.
const PAGES: usize = 2;

/// What a call has ahead of its step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupsAhead {
    /// The end of the path, which is held.
    foothold: u32,
    /// How many pages lie on the way there, if it ends with whole ones and they are all of text.
    text: Option<usize>,
    /// The uses along it.
    hold: Option<u32>,
    /// Those at its end, of groups that slide.
    windows: Option<u32>,
    /// What was seen.
    seen: Seen,
    /// What was found then.
    searched: Option<Searched>,
}

/// The holds of a call that begins a sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowHolds {
    /// In FULL groups.
    pub(super) chains: u32,
    /// In those that slide.
    pub(super) windows: u32,
}

impl GroupsAhead {
    /// Nothing is used yet.
    fn at(foothold: u32) -> Self {
        let seen = Seen::default();
        Self { foothold, text: None, hold: None, windows: None, seen, searched: None }
    }

    /// These are held.
    pub(super) fn new(foothold: u32, hold: u32) -> Self {
        Self { hold: Some(hold), ..Self::at(foothold) }
    }

    /// This is held beside that.
    pub(super) fn add_windows(&mut self, hold: u32) {
        self.windows = Some(hold);
    }

    /// The hold that has the uses.
    pub(super) fn hold(&self) -> Option<u32> {
        self.hold
    }

    /// The holds for rows.
    pub(crate) fn row_holds(&self) -> Option<RowHolds> {
        let (chains, windows) = self.hold.zip(self.windows)?;
        Some(RowHolds { chains, windows })
    }

    /// The hold of windows, of which nothing is known any more.
    pub(super) fn forget_windows(&mut self) -> Option<u32> {
        (self.seen.windows, self.seen.end, self.searched) = (0, 0, None);
        self.windows
    }

    /// Where the path ends, and with how many pages, if a walk may go on there.
    pub(super) fn text_end(&self, cache: &PrefixCache) -> Option<(Node, usize)> {
        let (node, pages) = (cache.footholds[self.foothold].node, self.text?);
        let is_there = !cache.index.is_detached(node) && cache.index.end_page(node) == pages;
        is_there.then_some((node, pages))
    }

    /// What is known, unless the path was cleared meanwhile.
    pub(super) fn ahead(&self, cache: &PrefixCache) -> Ahead {
        if cache.index.is_detached(cache.footholds[self.foothold].node) {
            return Ahead::default();
        }
        Ahead { seen: self.seen, windows: self.windows }
    }

    /// What was found, unless the path was cleared meanwhile.
    pub(super) fn searched(&self, cache: &PrefixCache) -> Option<&Searched> {
        let is_there = !cache.index.is_detached(cache.footholds[self.foothold].node);
        self.searched.as_ref().filter(|_| is_there)
    }
}

/// What a call does with the pages of groups before its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chains {
    /// It uses them, for whoever takes what is found.
    Use,
    /// The same for a sequence, whose rows in all groups are written afterwards.
    Map,
    /// It looks whether they are there.
    Look,
}

/// The pages of the spine on a path, in two parts, and the one after the whole ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpinePages<'a> {
    known: &'a [u32],
    rest: &'a [u32],
    after: Option<u32>,
}

impl<'a> SpinePages<'a> {
    fn new(known: &'a [u32], rest: &'a [u32]) -> Self {
        Self { known, rest, after: None }
    }

    /// How many whole ones there are.
    pub(super) fn whole(&self) -> usize {
        self.known.len() + self.rest.len()
    }

    pub(super) fn at(&self, place: usize) -> u32 {
        let behind = |place: usize| self.rest.get(place).copied().or(self.after);
        match self.known.get(place) {
            Some(&page) => page,
            None => behind(place - self.known.len()).expect("the path goes so far"),
        }
    }
}

impl PrefixCache {
    /// Holds the path to a node, along which rows are used. Nothing, without memory.
    pub(super) fn hold_for_rows(&mut self, node: Node) -> Option<GroupsAhead> {
        self.hold(node).map(GroupsAhead::at)
    }

    /// Whether groups may need more pages for so many positions than others should wait for.
    pub(super) fn has_long_needs(&self, positions: usize, slice: usize) -> bool {
        let full = |groups: &GroupCache| groups.full().next().is_some();
        self.has_long_rows(positions, slice)
            && (self.groups.as_deref().is_some_and(full) || self.has_long_windows(slice))
    }

    /// The same of states, where an end with one may be far up.
    fn has_far_states(&self, positions: usize, slice: usize) -> bool {
        let has_states = |groups: &GroupCache| groups.groups.end_with_pages();
        self.has_long_rows(positions, slice) && self.groups.as_deref().is_some_and(has_states)
    }

    /// The same of rows that are to be written, with their holes.
    fn has_long_rows(&self, positions: usize, slice: usize) -> bool {
        self.groups.is_some() && positions / self.page_size() > PAGES.saturating_mul(slice)
    }

    /// Lets a hold, which uses the pages of a FULL group before some places, use those at the
    /// places too, up to the first that is missing. Returns how many there are.
    fn extend_chain(
        &mut self,
        hold: Option<u32>,
        (group, spine): (usize, SpinePages<'_>),
        (from, to): (usize, usize),
    ) -> usize {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let (hung, holds) = (&mut groups.hung, &mut groups.holds);
        let mut before = match hold {
            Some(at) => holds[at].last_of(group).map(|page| page.page),
            None => None,
        };
        let mut count = 0;
        for place in from..to {
            let page = HungPage { group, page: hung.page(group, spine.at(place)) };
            if page.page == 0 {
                break;
            }
            if hold.is_some() {
                hung.begin_use(page);
                hung.follow(page, before);
                before = Some(page.page);
            }
            count += 1;
        }
        if let (Some(at), Some(page)) = (hold, before)
            && let Some(place) = (from + count).checked_sub(1)
        {
            holds[at].set_last(HungPage { group, page }, place);
        }
        count
    }
}

impl Turn<'_> {
    /// Looks at what groups have of the path of a query, and uses it, if that is long. Where the
    /// descent ends what it holds, that ends too.
    pub(super) fn go_ahead_in_groups(
        &mut self,
        query: &LongQuery<'_>,
        descent: &mut Descent,
        chains: Chains,
    ) -> Result<(), Error> {
        let (keys, slice) = (query.keys().keys, self.shared.slice);
        let is_long = |cache: &PrefixCache, positions| match chains {
            Chains::Map => cache.has_long_rows(positions, slice),
            Chains::Use | Chains::Look => {
                cache.has_long_needs(positions, slice) || cache.has_far_states(positions, slice)
            }
        };
        let cache = self.parts()?.0;
        if !is_long(cache, keys.len()) {
            return Ok(());
        }
        let Some(root) = cache.index.find_root(query.namespace()) else { return Ok(()) };
        let walk = descent.walk(cache, (root, keys), query.digests());
        if !is_long(cache, walk.pages * cache.page_size()) {
            return Ok(());
        }
        // Without memory it all happens in the step.
        let Some(foothold) = cache.hold(walk.node) else { return Ok(()) };
        let text = Some(walk.pages).filter(|_| !walk.media);
        let mut ahead = GroupsAhead { text, ..GroupsAhead::at(foothold) };
        descent.groups = Some(ahead);
        let found = self.parts()?.0.find_walked(query, walk);
        let rest = self.known_beyond(descent, Some(walk))?;
        let (pages, uses) = (keys.len() / self.table.page_size() + 1, chains != Chains::Look);
        if uses {
            let opened = self.open_holds(&mut ahead, pages, chains == Chains::Map);
            descent.groups = Some(ahead);
            opened?;
        }
        let known = &descent.pages()[..descent.pages().len().min(walk.pages)];
        let mut spine = SpinePages::new(known, &rest);
        ahead.seen.chains = self.take_chains(ahead.hold, spine, walk.pages)?;
        spine.after = walk.partial.map(|partial| partial.page);
        let asked = (found, chains == Chains::Map);
        if let Some((seen, searched)) =
            self.search_ahead(query, spine, asked, (ahead.seen, ahead.windows))?
        {
            ahead.searched = Some(searched);
            // What only was looked at may go before the step, which then looks at little.
            if !uses || ahead.windows.is_some() {
                ahead.seen = seen;
            }
        }
        descent.groups = Some(ahead);
        descent.forget_walk();
        Ok(())
    }

    /// Uses the pages of FULL groups on a path, or looks at them, in portions; returns how many
    /// each has from the beginning on, of as many as those before it.
    fn take_chains(
        &mut self,
        hold: Option<u32>,
        spine: SpinePages<'_>,
        mut count: usize,
    ) -> Result<[u32; GROUP_LIMIT], Error> {
        let (portion, mut seen) = (PAGES * self.shared.slice, Seen::default().chains);
        for group in full(*self.table.groups()) {
            let mut place = 0;
            while place < count {
                let cache = self.parts()?.0;
                if let Some(last) = cache.chained(group, spine.at(count - 1)) {
                    cache.use_last(hold, last, count - 1);
                    break;
                }
                let to = count.min(place + portion);
                let there = cache.extend_chain(hold, (group, spine), (place, to));
                place += there;
                if place < to {
                    count = place;
                }
                self.let_in()?;
            }
            seen[group] = count as u32;
        }
        Ok(seen)
    }

    /// Makes room for what is used of a path of so many pages: of windows too, if some are long, or
    /// rows are to be written.
    pub(super) fn open_holds(
        &mut self,
        ahead: &mut GroupsAhead,
        pages: usize,
        maps: bool,
    ) -> Result<(), Error> {
        let slice = self.shared.slice;
        let cache = self.parts()?.0;
        ahead.hold = Some(cache.open_chains()?);
        if maps || cache.has_long_windows(slice) {
            let count = cache.most_uses(pages);
            // The system may take long to give that much.
            let uses = self.unlocked_in_cache(|| try_touched_room(count))?.map_err(no_room)?;
            ahead.windows = Some(self.parts()?.0.open_hold(uses).map_err(no_room)?);
        }
        Ok(())
    }

    /// Ends what a call used of groups, in portions, and lets go of the end of their path.
    pub(crate) fn end_groups_ahead(&mut self, ahead: GroupsAhead, gone: u64) {
        let GroupsAhead { foothold, hold, windows, .. } = ahead;
        for at in [windows, hold].into_iter().flatten() {
            self.end_hold_in_portions(at, gone);
        }
        if gone == self.caches_gone
            && let Ok((cache, _)) = self.parts()
        {
            let node = cache.footholds.remove(foothold).node;
            self.let_go(node);
        }
    }

    /// Uses what groups have on the path to a node, whose lock is to follow.
    pub(super) fn groups_to(&mut self, id: NodeId) -> Result<Option<GroupsAhead>, Error> {
        let slice = self.shared.slice;
        let cache = self.parts()?.0;
        let node = cache.index.resolve(id)?;
        let count = cache.index.end_page(node);
        if !cache.has_long_needs(count * cache.page_size(), slice) {
            return Ok(None);
        }
        let Some(foothold) = cache.hold(node) else { return Ok(None) };
        let gone = self.caches_gone;
        let mut ahead = GroupsAhead::at(foothold);
        let done = self.use_groups_to(node, count, &mut ahead);
        if let Err(error) = done {
            self.end_groups_ahead(ahead, gone);
            return Err(error);
        }
        Ok(Some(ahead))
    }

    fn use_groups_to(
        &mut self,
        node: Node,
        count: usize,
        ahead: &mut GroupsAhead,
    ) -> Result<(), Error> {
        let mut spine = self.read_ahead(node)?;
        if spine.is_empty() {
            spine = crate::memory::try_zeros(count)?;
            self.cache()?.index.visit_path(node, &mut |start, pages| {
                spine[start..start + pages.len()].copy_from_slice(pages);
            });
        }
        self.open_holds(ahead, count, false)?;
        let spine = SpinePages::new(&spine, &[]);
        self.take_chains(ahead.hold, spine, count)?;
        if let Some(at) = ahead.windows {
            ahead.seen = self.windows_to(at, spine)?;
        }
        Ok(())
    }

    /// The same on the path that a descent holds, to its end.
    pub(super) fn groups_of(&mut self, descent: &mut Descent) -> Result<(), Error> {
        let (count, slice) = (descent.end(), self.shared.slice);
        let cache = self.parts()?.0;
        if !cache.has_long_needs(count * cache.page_size(), slice) {
            return Ok(());
        }
        let Some(node) = descent.held() else { return Ok(()) };
        let Some(foothold) = cache.hold(node) else { return Ok(()) };
        let mut ahead = GroupsAhead::at(foothold);
        descent.groups = Some(ahead);
        let opened = self.open_holds(&mut ahead, count, false);
        descent.groups = Some(ahead);
        if let Err(error) = opened {
            // Nothing may fail now that pages are published: without memory it happens in one step.
            return if descent.gone() == self.caches_gone { Ok(()) } else { Err(error) };
        }
        let spine = SpinePages::new(descent.pages(), &[]);
        self.take_chains(ahead.hold, spine, count)?;
        if let Some(at) = ahead.windows {
            ahead.seen = self.windows_to(at, spine)?;
            descent.groups = Some(ahead);
        }
        Ok(())
    }
}

impl State {
    /// Writes pages to the rows of groups of a new sequence, whose row in group 0 has `count` pages
    /// of the cache: so many more of one row. A call uses them, in a hold; from now on the sequence
    /// does. Whether a row lacks some still.
    pub(crate) fn fill_group_rows(
        &mut self,
        slot: u32,
        (count, holds): (usize, Option<RowHolds>),
        portion: usize,
    ) -> bool {
        let configs = *self.table.groups();
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let now = cache.index.now();
        let groups = cache.groups.as_deref_mut().expect("there are several groups");
        let spine = self.table.row(slot).expect("the slot is in use");
        let rows = &mut self.sequences[slot as usize].groups.rows;
        for (group, config) in configs.hung().filter(|(_, of)| of.kind != GroupKind::State) {
            let (row, hung) = (&mut rows[group], &mut groups.hung);
            let (from, end) = (row.len(), count.min(row.len() + portion));
            if from == end || config.kind.slides() && holds.is_none() {
                continue;
            }
            if config.kind == GroupKind::Full {
                let before = row.last().copied();
                row.extend(spine[from..end].iter().map(|&spine| hung.page(group, spine)));
                hung.begin_use(HungPage { group, page: row[end - 1] });
                if let Some(page) = before {
                    hung.end_use(HungPage { group, page }, None, now);
                }
                return true;
            }
            row.resize(end, 0);
            return true;
        }
        let Some(RowHolds { windows, .. }) = holds else { return false };
        let uses = &mut groups.holds[windows].uses;
        let left = uses.len().saturating_sub(portion);
        for Use { page, place } in uses.drain(left..) {
            rows[page.group][place] = page.page;
        }
        left > 0
    }
}

/// There is no memory for a hold.
fn no_room(_: OutOfMemory) -> Error {
    Error::memory("what a call uses of groups")
}

impl PrefixCache {
    /// How many positions of a query can be reused in group 0, whose keys lead there.
    fn find_walked(&self, query: &LongQuery<'_>, walk: Walk) -> usize {
        let found = self.find_spine(query.namespace(), query.keys(), |index, root, keys| {
            if keys.keys.len() == query.keys().keys.len() { walk } else { index.walk(root, keys) }
        });
        found.positions()
    }

    /// Makes room for the uses of a call in FULL groups, and for those that the step adds there.
    fn open_chains(&mut self) -> Result<u32, Error> {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let mut uses = Vec::new();
        let count = 2 * groups.full().count();
        uses.try_reserve_exact(count).map_err(|error| no_room(error.into()))?;
        self.open_hold(uses).map_err(no_room)
    }

    /// Makes a hold that is to use so much.
    pub(super) fn open_hold(&mut self, uses: Vec<Use>) -> Result<u32, OutOfMemory> {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        groups.holds.try_reserve(1)?;
        Ok(self.insert_hold(Hold { node: Node(0), uses, keeps: false }))
    }

    /// The page of a group on one of the spine, if all before it are in use with it.
    fn chained(&self, group: usize, spine: u32) -> Option<HungPage> {
        let hung = &self.groups.as_deref().expect("there are several groups").hung;
        let page = HungPage { group, page: hung.page(group, spine) };
        (page.page != 0 && hung.before(page).is_some()).then_some(page)
    }

    /// Lets a hold use such a page instead of the one before it that it uses.
    fn use_last(&mut self, hold: Option<u32>, last: HungPage, place: usize) {
        let Some(at) = hold else { return };
        let now = self.index.now();
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let before = groups.holds[at].last_of(last.group);
        groups.hung.begin_use(last);
        groups.holds[at].set_last(last, place);
        if let Some(before) = before {
            groups.hung.end_use(before, None, now);
        }
    }
}
