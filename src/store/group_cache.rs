//! The groups beside the spine: how much of a match they can reuse, which of their pages are in
//! use, and of what class those are that come in.
use super::PrefixCache;
use super::group_holds::{Hold, Use};
use super::group_rows::GroupRows;
use super::group_stats::GroupCounters;
use super::group_windows::Known;
use super::lookup::Found;
use crate::error::{Error, text};
use crate::group::{
    Class, GROUP_LIMIT, GroupKind, Groups, Hung, HungPage, Reached, SavedStates, Seen, Spine, reach,
};
use crate::index::{Namespace, Node, Partial, PrefixIndex, Walk};
use crate::memory::{Slab, TryGrow, try_touched_zeros};
use crate::paging::PageTable;
use crate::token::{Keys, Query};
use std::ops::Range;

/// Pages of a group of which a call says of what class they are now, or looks whether states are
/// there, and nodes that it passes. Of a window that has more, those farther back stay what they
/// are, and go by their age.
const CLASSED: usize = 1 << 12;

/// Whether the pages that a prefix needed before those that a call is about are of the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// They may be of either class.
    Unknown,
    /// A prefix ended there: they are, and what is still needed of them stays so.
    Ended,
}

/// How far the tokens are known, beside how far they can be reused.
///
/// Every lookup has one; so it is small.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Positions that are known, whatever groups lack.
    pub known: u32,
    /// Where states should be saved, so that the next request gets there: where the tokens are
    /// known, and before the last token. The smaller one first; 0 for none.
    pub checkpoint_at: [u32; 2],
    /// The group that cost the most of what is known; 0 for none.
    pub costliest: u32,
}

/// The groups of a cache, when there are several.
#[derive(Debug)]
pub(crate) struct GroupCache {
    pub(super) groups: Groups,
    pub(super) hung: Hung,
    pub(super) saved: SavedStates,
    pub(super) holds: Slab<Hold>,
    /// Rows of sequences that ended, of which calls give the pages back in portions.
    pub(super) leaving: Slab<GroupRows>,
    /// By group.
    pub(super) counters: [GroupCounters; GROUP_LIMIT],
    /// A sequence that goes on from another one copies what that computed of a page.
    inherits_parts: bool,
    /// Heap memory of those.
    pub(super) hold_bytes: usize,
    /// Room for what the next lock protects, made beforehand.
    pub(super) room: Vec<Use>,
}

impl GroupCache {
    /// Nothing is cached yet.
    fn new(
        groups: &Groups,
        pool_pages: &[usize],
        (checkpoint_limit, inherits_parts): (u32, bool),
    ) -> Result<Self, Error> {
        let hung = Hung::new(groups, pool_pages)?;
        let saved = SavedStates::new(groups, checkpoint_limit as usize, pool_pages[0])
            .map_err(|_| Error::memory("the links of states"))?;
        Ok(Self {
            inherits_parts,
            groups: *groups,
            hung,
            saved,
            holds: Slab::default(),
            leaving: Slab::default(),
            counters: Default::default(),
            hold_bytes: 0,
            room: Vec::new(),
        })
    }

    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.hung.bytes()
            + self.saved.bytes()
            + self.holds.bytes()
            + self.leaving.bytes()
            + self.leaving.iter().map(GroupRows::bytes).sum::<usize>()
            + self.hold_bytes
            + self.room.capacity() * size_of::<Use>()
    }

    /// Checks what hangs where, and that each page has the users that can be found: locks, and
    /// sequences, live ones and retained ones.
    pub(super) fn check<'a>(
        &self,
        table: &PageTable,
        live: impl Iterator<Item = &'a GroupRows>,
        retained: impl Iterator<Item = &'a GroupRows>,
    ) -> Result<(), Error> {
        self.hung.check()?;
        let wrong = |what: &str| Err(Error::Corrupt(text!("groups: {what}")));
        let (mut users, mut keepers) = (PageCounts::new(table)?, PageCounts::new(table)?);
        for hold in self.holds.iter() {
            hold.uses.iter().for_each(|used| users.add(self, table, used.page));
            let kept = hold.uses.iter().filter(|_| hold.keeps);
            kept.for_each(|used| keepers.add(self, table, used.page));
        }
        let mut count = |rows: &GroupRows| {
            rows.uses(table, false)
                .chain(rows.sources())
                .for_each(|page| users.add(self, table, page));
        };
        live.for_each(&mut count);
        self.leaving.iter().filter(|rows| !rows.kept).for_each(&mut count);
        let mut keep = |rows: &GroupRows| {
            rows.uses(table, false).for_each(|page| users.add(self, table, page));
            rows.uses(table, false).for_each(|page| keepers.add(self, table, page));
        };
        retained.for_each(&mut keep);
        self.leaving.iter().filter(|rows| rows.kept).for_each(keep);
        let hung = || (0..table.pool_count()).flat_map(|pool| self.hung.of_pool(pool));
        for (page, _) in hung() {
            let Some(before) = self.hung.before(page) else { continue };
            users.add(self, table, before);
            if self.hung.keepers(page) > 0 {
                keepers.add(self, table, before);
            }
        }
        for (page, spine) in hung() {
            if !table.pool.is_cached(spine) {
                return wrong("a page hangs on one that is not cached");
            }
            if self.hung.users(page) != users.of(self, page) {
                return wrong("a page has other users than there are");
            }
            if self.hung.keepers(page) != keepers.of(self, page) {
                return wrong("other retained sequences keep a page than there are");
            }
        }
        Ok(())
    }
}

/// A count for each page, by pool.
struct PageCounts(Vec<Vec<u32>>);

impl PageCounts {
    fn new(table: &PageTable) -> Result<Self, Error> {
        let mut counts = Vec::new();
        for pool in 0..table.pool_count() {
            counts.try_push(try_touched_zeros::<u32>(table.pool_at(pool).total() + 1)?)?;
        }
        Ok(Self(counts))
    }

    /// Counts a page, if it is the cache's.
    fn add(&mut self, groups: &GroupCache, table: &PageTable, page: HungPage) {
        let pool = groups.hung.pool_of(page.group);
        self.0[pool][page.page as usize] += u32::from(table.pool_at(pool).is_cached(page.page));
    }

    fn of(&self, groups: &GroupCache, page: HungPage) -> u32 {
        self.0[groups.hung.pool_of(page.group)][page.page as usize]
    }
}

/// The pages of the spine on the way to a node, from its end up.
pub(super) struct Path<'a> {
    index: &'a dyn PrefixIndex,
    /// The node at which the view is; None for a prefix of less than a page.
    at: Option<Node>,
    first: usize,
    pages: &'a [u32],
    /// The page after the last whole one, at its place.
    after: Option<(usize, u32)>,
    /// The first pages, where a descent knows them: no node is passed for those.
    known: &'a [u32],
}

impl<'a> Path<'a> {
    pub(super) fn new(
        index: &'a dyn PrefixIndex,
        node: Option<Node>,
        after: Option<(usize, u32)>,
    ) -> Self {
        let pages = node.map_or(&[][..], |node| index.pages(node));
        let first = node.map_or(0, |node| index.end_page(node) - pages.len());
        Self { index, at: node, first, pages, after, known: &[] }
    }

    /// To where a match ends.
    pub(super) fn of_match(
        index: &'a dyn PrefixIndex,
        node: Option<Node>,
        partial: Option<Partial>,
        pages: usize,
    ) -> Self {
        Self::new(index, node, partial.map(|partial| (pages, partial.page)))
    }

    pub(super) fn of_walk(index: &'a dyn PrefixIndex, walk: &Walk) -> Self {
        let node = Some(walk.node).filter(|_| walk.pages > 0);
        Self::new(index, node, walk.partial.map(|partial| (walk.pages, partial.page)))
    }

    /// The same where the first pages are known.
    pub(super) fn with_known(self, known: &'a [u32]) -> Self {
        Self { known, ..self }
    }

    /// The node that has the page at a place, as far as the view has come.
    fn node(&mut self, place: usize) -> Node {
        let at = self.at.expect("a whole page has a node");
        if place >= self.first {
            return at;
        }
        let above = self.index.node_at_page(at, place);
        *self = Self::new(self.index, Some(above), None).with_known(self.known);
        above
    }

    /// Whether the view's node ends with the page at this place, which it has.
    fn ends_with(&self, place: usize) -> bool {
        place + 1 == self.first + self.pages.len()
    }

    /// The same unless it lies more nodes up than are left to pass.
    pub(super) fn node_within(&mut self, place: usize, nodes: &mut usize) -> Option<Node> {
        while place < self.first {
            *nodes = nodes.checked_sub(1)?;
            self.node(self.first - 1);
        }
        self.at
    }
}

impl Spine for Path<'_> {
    fn page(&mut self, place: usize) -> u32 {
        match self.after {
            Some((at, page)) if at == place => page,
            _ if place < self.known.len() => self.known[place],
            _ => {
                self.node(place);
                self.pages[place - self.first]
            }
        }
    }
}

impl PrefixCache {
    /// Gives the cache the groups of its page table.
    pub fn open_groups(
        &mut self,
        groups: &Groups,
        pool_pages: &[usize],
        checkpoint_limit: u32,
    ) -> Result<(), Error> {
        if checkpoint_limit > 0 && !groups.end_with_pages() {
            return Err(Error::unsupported(
                "config.checkpoint_limit: the page table has no STATE group",
            ));
        }
        if groups.list().len() == 1 {
            return Ok(());
        }
        if !self.index.can_have_groups() {
            return Err(Error::unsupported(
                "config.index: the page table has several groups, which only RKV_INDEX_RADIX has",
            ));
        }
        // A state is that of a whole page's end, and so nothing can end elsewhere.
        let inherits_parts = !self.sharing.whole_pages;
        self.sharing.whole_pages |= groups.end_with_pages();
        let made = GroupCache::new(groups, pool_pages, (checkpoint_limit, inherits_parts))?;
        self.groups = Some(crate::memory::try_box(made)?);
        Ok(())
    }

    /// Whether a sequence that goes on from another one copies what that computed of a page.
    pub fn inherits_parts(&self) -> bool {
        self.groups.as_ref().map_or(!self.sharing.whole_pages, |groups| groups.inherits_parts)
    }

    pub(super) fn reach_of_groups(
        &self,
        groups: &GroupCache,
        (found, known): (&Found, &[u32]),
        (before, query): (Reached, Query<'_>),
    ) -> Reached {
        let fit = |positions| self.reusable(query.boundary(positions), query);
        let path = || {
            let walk = found.walk.as_ref().expect("something was found");
            Path::of_walk(self.index.as_ref(), walk).with_known(known)
        };
        let bounds = (before, self.page_size(), found.ahead.seen);
        reach(&groups.groups, &groups.hung, bounds, fit, path)
    }

    /// Shortens what was found to what every group can reuse, and says what each costs.
    pub(super) fn limit_to_groups(
        &self,
        groups: &GroupCache,
        (mut found, known): (Found, Known<'_>),
        query: Query<'_>,
    ) -> (Found, Reached) {
        let Known { pages, searched, .. } = known;
        // What was published since the search is not looked at.
        let searched = searched.filter(|searched| searched.known <= found.positions());
        if let Some(searched) = searched {
            found = found.cut(searched.known, query);
        }
        let known = found.positions();
        let before = searched.map_or(Reached::all(known), |searched| searched.reached);
        let reached = match searched.and_then(|searched| searched.begin) {
            // Where a sequence begins is looked at once more.
            Some(_) => before,
            None => self.reach_of_groups(groups, (&found, pages), (before, query)),
        };
        let costliest = reached.costliest() as u32;
        let depths = self.depths(groups, (known, reached.positions), query);
        (found.cut(reached.positions, query).at(Depths { costliest, ..depths }), reached)
    }

    /// Where states should be saved of a prompt of which so much is known and so much is reused.
    pub(super) fn depths(
        &self,
        groups: &GroupCache,
        (known, reused): (usize, usize),
        query: Query<'_>,
    ) -> Depths {
        let mut checkpoint_at = [0; 2];
        if groups.groups.end_with_pages() {
            let boundary = |positions| query.page_boundary(positions, self.page_size());
            let places = [boundary(known), boundary(query.positions.saturating_sub(1))];
            let [first, second] = places.map(|at| if at > reused { at } else { 0 });
            checkpoint_at = match first.min(second) {
                0 => [first.max(second), 0],
                _ if first == second => [first, 0],
                first_of_both => [first_of_both, first.max(second)],
            };
        }
        // As many keys would take more memory than there is.
        let short = |positions: usize| u32::try_from(positions).unwrap_or(u32::MAX);
        let checkpoint_at = checkpoint_at.map(short);
        Depths { known: short(known), checkpoint_at, costliest: 0 }
    }

    /// The same of a sequence that goes on from another one; nothing with one group.
    pub(crate) fn depths_of_child(&self, reused: usize, query: Query<'_>) -> Depths {
        let groups = self.groups.as_deref();
        groups.map_or(Depths::default(), |groups| self.depths(groups, (reused, reused), query))
    }

    /// How far a query can be reused by every group, of which the first pages may be known.
    #[inline(never)]
    pub(super) fn find_for_groups(
        &self,
        namespace: &Namespace,
        (query, known): (Query<'_>, Known<'_>),
        walk_keys: impl Fn(&dyn PrefixIndex, Node, Keys<'_>) -> Walk,
    ) -> Found {
        let groups = self.groups.as_deref().expect("there are several groups");
        // By a closure of its own, so that the way of one group has the other one to itself: it is
        // compiled into the call then.
        let walk = |index: &dyn PrefixIndex, root, keys: Keys<'_>| walk_keys(index, root, keys);
        let mut found = self.find_spine(namespace, query, walk);
        found.ahead = known.ahead;
        self.limit_to_groups(groups, (found, known), query).0
    }

    /// Marks what a match needs of the groups as used now, but what a call marked ahead.
    #[inline(never)]
    pub(super) fn touch_groups(
        &mut self,
        node: Option<Node>,
        partial: Option<Partial>,
        (positions, seen): (usize, Seen),
    ) {
        let (page_size, now) = (self.page_size(), self.index.now());
        let Some(groups) = self.groups.as_deref_mut() else { return };
        let index = self.index.as_ref();
        let GroupCache { groups, hung, .. } = groups;
        for (group, config) in groups.hung() {
            let needs = config.kind.needs(positions, page_size);
            let needs = needs.expect("a match ends where every group can");
            let unseen = needs.without(&seen.of(config.kind, page_size));
            for places in unseen.into_iter().rev().filter(|places| !places.is_empty()) {
                let mut path = Path::of_match(index, node, partial, positions / page_size);
                for place in places.rev() {
                    let page = HungPage { group, page: hung.page(group, path.page(place)) };
                    if hung.before(page).is_some() {
                        break; // All before it are in use with it, and as young.
                    }
                    hung.touch(page, Class::Tail, now);
                }
            }
        }
    }

    /// Says of what class the pages of sliding groups are from a place on, now that a prefix ends
    /// at a node: those that it needs, or a fork or a checkpoint on the way, are of the tail.
    /// `to` is where those end that are looked at.
    pub(super) fn classify(&mut self, end: Node, from: usize, to: usize) {
        self.classify_below((end, self.index.end_page(end)), from..to, Before::Unknown);
    }

    /// The same of a prefix that ends with so many pages, from a node on the way up that all which
    /// is looked at is above.
    pub(super) fn classify_below(
        &mut self,
        (node, last): (Node, usize),
        places: Range<usize>,
        before: Before,
    ) {
        let (page_size, now) = (self.page_size(), self.index.now());
        let Some(groups) = self.groups.as_deref_mut() else { return };
        let (index, GroupCache { groups, hung, .. }) = (self.index.as_ref(), groups);
        let Range { start: from, end: to } = places;
        let states = || groups.hung().filter(|(_, config)| config.kind == GroupKind::State);
        let has_states = states().next().is_some();
        let is_saved =
            |hung: &Hung, spine: u32| states().any(|(group, _)| hung.page(group, spine) != 0);
        for (group, config) in groups.hung().filter(|(_, config)| config.kind.slides()) {
            let needs = |end: usize| {
                let needs = config.kind.needs(end * page_size, page_size);
                needs.expect("sliding groups end anywhere")
            };
            let (first, sinks) = (needs(from).last.start, needs(last).sinks.end);
            let mut settled = if before == Before::Ended { from } else { 0 };
            let mut path = Path::new(index, Some(node), None);
            // An end farther away needs nothing of what comes before `to`.
            let seen = last.min(to + config.kind.span(page_size));
            let mut left = CLASSED;
            let mut needed = if seen == last { needs(last).last.start } else { usize::MAX };
            // Of one node after the other, from the end up, as nothing forks inside one.
            let mut end = seen;
            while end > first && left > 0 {
                let node = path.node(end - 1);
                if path.ends_with(end - 1) && index.child_count(node) > 1 {
                    needed = needs(end).last.start;
                    if end == from {
                        // It forks there since now.
                        settled = 0;
                    }
                }
                let spine = |places: Range<usize>| {
                    &path.pages[places.start - path.first..places.end - path.first]
                };
                let mut start = path.first.max(first).max(end.saturating_sub(left));
                if has_states {
                    if is_saved(hung, spine(end - 1..end)[0]) {
                        needed = needs(end).last.start;
                    }
                    // To behind the next place with a state, where a prefix ends.
                    let above = spine(start..end - 1).iter();
                    let saved = above.rev().position(|&spine| is_saved(hung, spine));
                    start = saved.map_or(start, |passed| end - 1 - passed);
                    left = left.saturating_sub(end - start);
                }
                // What is needed before a place that was an end was needed there.
                let kept = needed.max(start)..settled.min(end);
                let end_below = end.min(to);
                let parts = match kept.is_empty() {
                    true => [start..end_below, end..end],
                    false => [start..kept.start, kept.end..end_below],
                };
                left = left.saturating_sub(1);
                for places in parts.into_iter().filter(|places| !places.is_empty()) {
                    left = left.saturating_sub(places.len());
                    hung.classify(
                        (group, spine(places.clone())),
                        places.start,
                        (sinks, needed),
                        now,
                    );
                }
                end = start;
            }
        }
    }
}
