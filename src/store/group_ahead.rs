//! Long prefixes of FULL groups: what hangs along a path is looked at, and used, in portions,
//! before the step that takes what was found.
//!
//! Whoever uses a page of a FULL group uses all before it (`group/chain.rs`). So a call takes more
//! and more of the path that it holds, and the step that takes the whole for a sequence or a lock
//! adds one use to the last page; what the call itself uses goes after that, in portions too.
use super::group_cache::GroupCache;
use super::group_holds::{Hold, Use, full};
use super::{Descent, LongQuery, PrefixCache, State, Turn};
use crate::error::Error;
use crate::group::{GroupKind, HungPage};
use crate::ids::NodeId;
use crate::index::Node;
use crate::memory::OutOfMemory;

/// Pages of FULL groups that are taken at once, for each page of a slice: 1024, which take some 15
/// microseconds, and three times that when they are in no cache.
const PAGES: usize = 2;

/// What a call has ahead of its step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupsAhead {
    /// The end of the path, which is held.
    foothold: u32,
    /// The uses along it.
    hold: Option<u32>,
}

impl GroupsAhead {
    /// These are held.
    pub(super) fn new(foothold: u32, hold: u32) -> Self {
        Self { foothold, hold: Some(hold) }
    }

    /// The hold that has the uses.
    pub(super) fn hold(&self) -> Option<u32> {
        self.hold
    }
}

/// What a call does with the pages of FULL groups before its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chains {
    /// It uses them, for whoever takes what is found.
    Use,
    /// The same for a sequence, whose rows in all groups are written afterwards.
    Map,
    /// It looks whether they are there.
    Look,
}

/// The pages of the spine on a path, in two parts.
#[derive(Debug, Clone, Copy)]
struct SpinePages<'a> {
    known: &'a [u32],
    rest: &'a [u32],
}

impl SpinePages<'_> {
    fn page(&self, place: usize) -> u32 {
        match self.known.get(place) {
            Some(&page) => page,
            None => self.rest[place - self.known.len()],
        }
    }
}

impl PrefixCache {
    /// Whether FULL groups may have more pages of so many positions than others should wait for.
    pub(super) fn has_long_chains(&self, positions: usize, slice: usize) -> bool {
        let full = |groups: &GroupCache| groups.full().next().is_some();
        self.has_long_rows(positions, slice) && self.groups.as_deref().is_some_and(full)
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
            let page = HungPage { group, page: hung.page(group, spine.page(place)) };
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
    /// Looks at what FULL groups have of the path of a query, and uses it, if that is long. Where
    /// the descent ends what it holds, that ends too.
    pub(super) fn go_ahead_in_groups(
        &mut self,
        query: &LongQuery<'_>,
        descent: &mut Descent,
        chains: Chains,
    ) -> Result<(), Error> {
        let (keys, slice) = (query.keys().keys, self.shared.slice);
        let is_long = |cache: &PrefixCache, positions| match chains {
            Chains::Map => cache.has_long_rows(positions, slice),
            Chains::Use | Chains::Look => cache.has_long_chains(positions, slice),
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
        descent.groups = Some(GroupsAhead { foothold, hold: None });
        let rest = self.known_beyond(descent, Some(walk))?;
        let hold = match chains {
            Chains::Use => Some(self.parts()?.0.open_chains(0)?),
            Chains::Map => {
                let cache = self.parts()?.0;
                Some(cache.open_chains(keys.len() / cache.page_size())?)
            }
            Chains::Look => None,
        };
        descent.groups = Some(GroupsAhead { foothold, hold });
        let count = self.take_chains(hold, (descent.pages(), &rest), walk.pages)?;
        let stays = chains == Chains::Look && !self.cache()?.index.is_detached(walk.node);
        descent.look_ahead(if stays { count } else { 0 });
        Ok(())
    }

    /// Uses the pages of FULL groups on a path, whose pages are given in two parts, or looks at
    /// them, in portions; returns how many all groups have from the beginning on.
    fn take_chains(
        &mut self,
        hold: Option<u32>,
        (known, rest): (&[u32], &[u32]),
        mut count: usize,
    ) -> Result<usize, Error> {
        let (spine, portion) = (SpinePages { known, rest }, PAGES * self.shared.slice);
        for group in full(*self.table.groups()) {
            let mut place = 0;
            while place < count {
                let cache = self.parts()?.0;
                if let Some(last) = cache.chained(group, spine.page(count - 1)) {
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
        }
        Ok(count)
    }

    /// Ends what a call used of FULL groups, in portions, and lets go of the end of their path.
    pub(crate) fn end_groups_ahead(&mut self, ahead: GroupsAhead, gone: u64) {
        let GroupsAhead { foothold, hold } = ahead;
        if let Some(at) = hold {
            self.end_hold_in_portions(at, gone);
        }
        if gone == self.caches_gone
            && let Ok((cache, _)) = self.parts()
        {
            let node = cache.footholds.remove(foothold).node;
            self.let_go(node);
        }
    }

    /// Uses what FULL groups have on the path to a node, whose lock is to follow.
    pub(super) fn chains_to(&mut self, id: NodeId) -> Result<Option<GroupsAhead>, Error> {
        let slice = self.shared.slice;
        let cache = self.parts()?.0;
        let node = cache.index.resolve(id)?;
        let count = cache.index.end_page(node);
        if !cache.has_long_chains(count * cache.page_size(), slice) {
            return Ok(None);
        }
        let Some(foothold) = cache.hold(node) else { return Ok(None) };
        let gone = self.caches_gone;
        let mut ahead = GroupsAhead { foothold, hold: None };
        let done = self.use_chains_to(node, count, &mut ahead);
        if let Err(error) = done {
            self.end_groups_ahead(ahead, gone);
            return Err(error);
        }
        Ok(Some(ahead))
    }

    fn use_chains_to(
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
        ahead.hold = Some(self.parts()?.0.open_chains(0)?);
        self.take_chains(ahead.hold, (&spine, &[]), count).map(|_| ())
    }

    /// The same on the path that a descent holds, to its end.
    pub(super) fn chains_of(&mut self, descent: &mut Descent) -> Result<(), Error> {
        let (count, slice) = (descent.end(), self.shared.slice);
        let cache = self.parts()?.0;
        if !cache.has_long_chains(count * cache.page_size(), slice) {
            return Ok(());
        }
        let Some(node) = descent.held() else { return Ok(()) };
        let Some(foothold) = cache.hold(node) else { return Ok(()) };
        descent.groups = Some(GroupsAhead { foothold, hold: None });
        // Nothing may fail now that pages are published: without memory it happens in one step.
        let Ok(hold) = self.parts()?.0.open_chains(0) else { return Ok(()) };
        let hold = Some(hold);
        descent.groups = Some(GroupsAhead { foothold, hold });
        self.take_chains(hold, (descent.pages(), &[]), count).map(|_| ())
    }
}

impl State {
    /// Writes pages to the rows of groups of a new sequence, whose row in group 0 has `count` pages
    /// of the cache: so many more of one row. A call uses them, in a hold; from now on the sequence
    /// does. Whether a row lacks some still.
    pub(crate) fn fill_group_rows(
        &mut self,
        slot: u32,
        (count, ahead): (usize, Option<u32>),
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
            if from == end || config.kind.slides() && ahead.is_none() {
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
            if let (true, Some(at)) = (end == count, ahead) {
                groups.holds[at].uses.retain(|&Use { page, place }| {
                    let is_other = page.group != group;
                    if !is_other {
                        row[place] = page.page;
                    }
                    is_other
                });
            }
            return true;
        }
        false
    }
}

impl PrefixCache {
    /// Makes room for the uses of a call in FULL groups, and for those that the step adds: there,
    /// and in the groups that slide, of so many pages at most.
    fn open_chains(&mut self, pages: usize) -> Result<u32, Error> {
        let no_room = |_: OutOfMemory| Error::memory("what a call uses of groups");
        let page_size = self.page_size();
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let mut uses = Vec::new();
        let sliding = groups.groups.hung().filter(|(_, config)| config.kind.slides());
        let windows = sliding.map(|(_, config)| config.kind.most(page_size).min(pages));
        let count = 2 * groups.full().count() + windows.sum::<usize>();
        uses.try_reserve_exact(count).map_err(|error| no_room(error.into()))?;
        groups.holds.try_reserve(1).map_err(no_room)?;
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
