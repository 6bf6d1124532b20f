//! How far a prefix can be reused by every group at once.
//!
//! The search goes from the deep end up. A page that a group needs and that is not there rules out
//! every prefix that ends behind it and needs it; so what is left to try ends before that page.
//! Each group looks at each page once, from the end up, and stops when it has all that it needs: a
//! hit costs as many pages as are needed, a long miss those that lie behind the result, up to a
//! limit.
use super::{GROUP_LIMIT, GroupKind, Groups, Hung, Needs};

/// Pages that are missing one after another, behind which a lookup looks no farther: nobody waits
/// longer for it than that takes.
const FAR: usize = 1 << 14;

/// The pages of group 0 along a prefix.
pub trait Spine {
    /// The page at a place. Asked for places that fall, but for a few at the beginning.
    fn page(&mut self, place: usize) -> u32;
}

/// What all groups have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// Positions that every group can reuse.
    pub positions: usize,
    /// Positions that each group cost, in the order in which they were asked: together, all that
    /// are known less those.
    pub lost: [usize; GROUP_LIMIT],
}

impl Reached {
    /// The group that cost the most; 0 when none cost any.
    pub fn costliest(&self) -> usize {
        let most = self.lost.iter().copied().max().unwrap_or(0);
        if most == 0 { 0 } else { self.lost.iter().position(|&lost| lost == most).unwrap_or(0) }
    }
}

/// The longest prefix, of at most `known` positions, that every group can reuse. `fit` lowers a
/// number of positions to one at which a prefix may end. `spine` makes a view of the path for each
/// group. FULL groups were seen to have the first `seen` pages.
pub fn reach<S: Spine>(
    groups: &Groups,
    hung: &Hung,
    (known, page_size, seen): (usize, usize, usize),
    fit: impl Fn(usize) -> usize,
    spine: impl Fn() -> S,
) -> Reached {
    let mut reached = Reached { positions: known, lost: [0; GROUP_LIMIT] };
    // Of each group: its view, and the place from which on it has all pages up to the end; of a
    // FULL one, how many it has from the beginning on.
    let mut views: [Option<(S, usize)>; GROUP_LIMIT] = std::array::from_fn(|_| None);
    let mut unbroken = [None; GROUP_LIMIT];
    loop {
        let before = reached.positions;
        for (group, config) in groups.hung() {
            while reached.positions > 0 {
                let pages = reached.positions.div_ceil(page_size);
                let hole = if config.kind == GroupKind::Full {
                    let count = || hung.unbroken(group, &mut spine(), (pages, seen));
                    Some(*unbroken[group].get_or_insert_with(count)).filter(|&there| there < pages)
                } else {
                    let (view, verified) =
                        views[group].get_or_insert_with(|| (spine(), known.div_ceil(page_size)));
                    let needs = config.kind.needs(reached.positions, page_size);
                    last_hole(hung, (group, needs), (view, &spine), verified).map(|hole| {
                        let hole = hole.unwrap_or(reached.positions / page_size);
                        if config.kind.needs_last() {
                            first_of_holes(hung, (group, hole), view, verified)
                        } else {
                            hole
                        }
                    })
                };
                let Some(hole) = hole else { break };
                let positions = fit((hole * page_size).min(reached.positions));
                assert!(positions < reached.positions, "a hole shortens what is reached");
                reached.lost[group] += reached.positions - positions;
                reached.positions = positions;
            }
        }
        if reached.positions == before {
            return reached;
        }
    }
}

/// The last place that a group needs and has no page at. Some(None): no prefix can end there,
/// whatever there is.
fn last_hole<S: Spine>(
    hung: &Hung,
    (group, needs): (usize, Option<Needs>),
    (view, spine): (&mut S, impl Fn() -> S),
    verified: &mut usize,
) -> Option<Option<usize>> {
    let Some(needs) = needs else { return Some(None) };
    let mut last = (needs.last.start..needs.last.end.min(*verified)).rev();
    let hole = last.find(|&place| hung.page(group, view.page(place)) == 0);
    *verified = hole.unwrap_or((*verified).min(needs.last.start));
    // Sinks are few, and at the other end of the path.
    let hole = hole.or_else(|| {
        let mut first = spine();
        needs.sinks.rev().find(|&place| hung.page(group, first.page(place)) == 0)
    });
    hole.map(Some)
}

/// The first of the holes that come one after another before one: nor can a prefix end behind
/// those.
fn first_of_holes(
    hung: &Hung,
    (group, hole): (usize, usize),
    view: &mut impl Spine,
    verified: &mut usize,
) -> usize {
    let mut before = (hole.saturating_sub(FAR)..hole).rev();
    let there = before.find(|&place| hung.page(group, view.page(place)) != 0);
    let first = there.map_or(0, |place| place + 1);
    *verified = (*verified).min(first);
    first
}
