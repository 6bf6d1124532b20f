//! A limit on the states that a path keeps: when one is saved, those far before it go.
//!
//! Each turn of a chat saves a state at its end, and the next turn goes on from the last one. Those
//! before are of use to prompts that leave the path there: where some did, a state stays.
use super::group_cache::{GroupCache, Path};
use super::group_insert::ComingPages;
use super::{PrefixCache, State};
use crate::group::{Class, GROUP_LIMIT, GroupKind, HungPage, Spine};
use crate::index::Node;
use crate::journal::Reason;
use crate::paging::PageTable;

/// Links that are followed beyond the limit.
const MORE_LINKS: usize = 64;
/// Nodes that are passed on the way up.
const NODES: usize = 256;
/// Pages before those of an insert among which the state before them is looked for, in no more
/// nodes than that: some ten microseconds.
const PAGES: usize = 4096;

/// The STATE groups in which a state was saved, and the place of the deepest one.
pub(super) type SavedAt = [Option<usize>; GROUP_LIMIT];

impl PrefixCache {
    /// Links the states of the prefix that ends at a node, of which the pages from a place on were
    /// inserted, with those that come. Nothing without a limit.
    pub(super) fn link_inserted(
        &mut self,
        coming: &ComingPages,
        end: Node,
        (from, to): (usize, usize),
    ) -> SavedAt {
        let mut saved_at = SavedAt::default();
        let index = self.index.as_ref();
        let Some(GroupCache { groups, hung, saved, .. }) = self.groups.as_deref_mut() else {
            return saved_at;
        };
        if saved.limit() == 0 {
            return saved_at;
        }
        let states = groups.hung().filter(|(_, config)| config.kind == GroupKind::State);
        for (group, _) in states.filter(|(group, _)| coming.has(*group)) {
            let mut path = Path::new(index, Some(end), None);
            let mut deeper: Option<(u32, usize)> = None;
            for place in (from..to).rev() {
                let spine = path.page(place);
                if hung.page(group, spine) != 0 {
                    match deeper {
                        Some((deeper, _)) => saved.follow(group, deeper, Some(place)),
                        None => saved_at[group] = Some(place),
                    }
                    deeper = Some((spine, place));
                }
            }
            // Of those that were there before the first one knows what lies before it.
            if let Some((first, _)) = deeper.filter(|(_, place)| coming.comes(group, *place)) {
                let mut above = (from.saturating_sub(PAGES)..from).rev();
                let mut nodes = NODES;
                let is_there = |&place: &usize| {
                    path.node_within(place, &mut nodes).is_some()
                        && hung.page(group, path.page(place)) != 0
                };
                saved.follow(group, first, above.find(is_there));
            }
        }
        saved_at
    }

    /// Drops the states before the deepest one at a place of the path to a node that are more than
    /// the limit: not those where several prompts go on, nor those that are in use. In an external
    /// pool they are the next that an eviction takes.
    /// Those that come with the same insert stay: who gave them would take them for duplicates.
    pub(super) fn drop_surplus(
        &mut self,
        table: &mut PageTable,
        end: Node,
        (saved_at, coming): (SavedAt, &ComingPages),
    ) {
        for (group, last) in saved_at.into_iter().enumerate() {
            let Some(last) = last else { continue };
            if let Some(place) = self.drop_surplus_of(table, end, (group, last), coming) {
                // What this one needed of a window is needed no more.
                let node = self.index.node_at_page(end, place);
                self.classify(node, place, place + 1);
            }
        }
        if let Some(journal) = &mut self.journal {
            journal.end_removal();
        }
    }

    /// The same in one group; the place of one that went.
    fn drop_surplus_of(
        &mut self,
        table: &mut PageTable,
        end: Node,
        (group, last): (usize, usize),
        coming: &ComingPages,
    ) -> Option<usize> {
        let is_external = table.pool.is_external();
        let now = self.index.now();
        let Self { index, groups, journal, counters, .. } = self;
        let (index, GroupCache { hung, saved, .. }) = (index.as_ref(), groups.as_deref_mut()?);
        let pool = hung.pool_of(group);
        let (mut path, mut nodes) = (Path::new(index, Some(end), None), NODES);
        path.node_within(last, &mut nodes)?;
        let mut spine = path.page(last);
        let (mut kept, mut went) = (1, None);
        for _ in 0..saved.limit() + MORE_LINKS {
            let Some(place) = saved.before(group, spine) else { break };
            let Some(node) = path.node_within(place, &mut nodes) else { break };
            let before = path.page(place);
            let state = HungPage { group, page: hung.page(group, before) };
            let is_there = state.page != 0;
            let forks = place + 1 == index.end_page(node) && index.child_count(node) > 1;
            let stays = || forks || hung.is_used(state) || coming.comes(group, place);
            if is_there && (kept < saved.limit() || stays()) {
                kept += usize::from(!forks);
                spine = before;
                continue;
            }
            if is_there && is_external {
                if hung.class(state) != Class::Inner {
                    hung.touch(state, Class::Inner, now);
                }
                spine = before;
                continue;
            }
            if is_there {
                hung.take_down(state);
                table.pool_at_mut(pool).put_back_all(&[state.page]);
                if let Some(journal) = journal {
                    journal.take_down(state, pool, before, Reason::Limit);
                }
                counters.dropped_checkpoints += 1;
                went = Some(place);
            }
            // Nobody comes by here again.
            let next = saved.before(group, before);
            saved.follow(group, spine, next);
        }
        went
    }
}

impl State {
    /// A sequence saved its states after a place, of these groups, or found them saved.
    pub(crate) fn note_saved(&mut self, slot: u32, place: usize, came: [bool; GROUP_LIMIT]) {
        let sequence = &mut self.sequences[slot as usize];
        let before = std::mem::replace(&mut sequence.groups.saved, place as u32 + 1);
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        let groups = cache.groups.as_deref_mut().expect("there are several groups");
        let GroupCache { groups, hung, saved, .. } = groups;
        let Some(base) = sequence.base.filter(|_| saved.limit() > 0) else { return };
        let row = self.table.row(slot).expect("the slot is in use");
        let mut saved_at = SavedAt::default();
        for (group, _) in groups.hung().filter(|(_, config)| config.kind == GroupKind::State) {
            // One that is there knows what lies before it. Of one that could not be saved the link
            // is that of another path, which had the page before: who comes by here follows it.
            if !came[group] && hung.page(group, row[place]) != 0 {
                continue;
            }
            let before = match (before as usize).checked_sub(1) {
                // It was here before, and what was saved then has gone.
                Some(last) if last == place => {
                    let mut above = (place.saturating_sub(PAGES)..place).rev();
                    above.find(|&at| hung.page(group, row[at]) != 0)
                }
                last => last.filter(|&last| last < place),
            };
            saved.follow(group, row[place], before);
            saved_at[group] = Some(place).filter(|_| came[group]);
        }
        cache.drop_surplus(&mut self.table, base, (saved_at, &ComingPages::default()));
    }
}
