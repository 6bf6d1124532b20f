//! How far a prefix can be reused by every group at once.
//!
//! The search goes from the deep end up. A page that a group needs and that is not there rules out
//! every prefix that ends behind it and needs it; so what is left to try ends before that page.
//! Each group looks at each page once, from the end up, and stops when it has all that it needs: a
//! hit costs as many pages as are needed, a long miss those that lie behind the result, up to a
//! limit.
use super::{GROUP_LIMIT, GroupKind, Groups, Hung, Needs};
use std::ops::Range;

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

/// What was seen of a path before, and is there still.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Of each FULL group so many of the first pages, behind which one was missing; u32::MAX where
    /// nobody has looked.
    pub chains: [u32; GROUP_LIMIT],
    /// Of those that slide what a prefix of so many positions needs; 0 for nothing.
    pub windows: usize,
    /// Of that the pages before this place alone.
    pub end: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Self { chains: [u32::MAX; GROUP_LIMIT], windows: 0, end: 0 }
    }
}

impl Seen {
    /// How many pages a FULL group has at the beginning of a path, of `count` at most, with none
    /// missing.
    fn unbroken<S: Spine>(
        &self,
        hung: &Hung,
        group: usize,
        (count, spine): (usize, impl Fn() -> S),
    ) -> usize {
        let seen = match self.chains[group] {
            u32::MAX => 0,
            seen => (seen as usize).min(count),
        };
        if self.chains[group] != u32::MAX
            && seen < count
            && hung.page(group, spine().page(seen)) == 0
        {
            return seen;
        }
        hung.unbroken(group, &mut spine(), (count, seen))
    }

    /// The places that were seen of a group that slides.
    pub fn of(self, kind: GroupKind, page_size: usize) -> Needs {
        let has_some = self.windows > 0 && kind.slides();
        let needs = has_some.then(|| kind.needs(self.windows, page_size)).flatten();
        let Needs { sinks, last } = needs.unwrap_or(Needs { sinks: 0..0, last: 0..0 });
        // Nothing is nowhere: a search goes from what was seen to what lies before that.
        let cut = |Range { start, end }: Range<usize>| match end.min(self.end) {
            end if start < end => start..end,
            _ => 0..0,
        };
        Needs { sinks: cut(sinks), last: cut(last) }
    }
}

/// The longest prefix, of at most `known` positions, that every group can reuse. `fit` lowers a
/// number of positions to one at which a prefix may end. `spine` makes a view of the path for each
/// group. Pages that were seen to be there are not looked at.
pub fn reach<S: Spine>(
    groups: &Groups,
    hung: &Hung,
    (known, page_size, seen): (usize, usize, Seen),
    fit: impl Fn(usize) -> usize,
    spine: impl Fn() -> S,
) -> Reached {
    let mut search = Search::new(known, page_size, seen);
    search.go_on(groups, hung, (fit, spine), usize::MAX);
    search.reached
}

/// A search for that prefix, which may go in portions.
#[derive(Debug)]
pub struct Search {
    /// What is left to try, and what each group has cost.
    reached: Reached,
    /// Of each group the place from which on it has all pages up to the end.
    verified: [usize; GROUP_LIMIT],
    /// Of a FULL one, how many it has from the beginning on.
    unbroken: [Option<usize>; GROUP_LIMIT],
    page_size: usize,
    seen: Seen,
}

impl Search {
    /// Of a prefix of at most so many positions.
    pub fn new(known: usize, page_size: usize, seen: Seen) -> Self {
        Self {
            reached: Reached { positions: known, lost: [0; GROUP_LIMIT] },
            verified: [known.div_ceil(page_size); GROUP_LIMIT],
            unbroken: [None; GROUP_LIMIT],
            page_size,
            seen,
        }
    }

    /// Positions that are left to try; at the end those that every group can reuse.
    pub fn positions(&self) -> usize {
        self.reached.positions
    }

    /// Looks at so many more pages. Whether that is all.
    pub fn go_on<S: Spine>(
        &mut self,
        groups: &Groups,
        hung: &Hung,
        (fit, spine): (impl Fn(usize) -> usize, impl Fn() -> S),
        most: usize,
    ) -> bool {
        let Self { reached, verified, unbroken, page_size, seen } = self;
        let (page_size, mut left) = (*page_size, most);
        let mut views: [Option<S>; GROUP_LIMIT] = std::array::from_fn(|_| None);
        loop {
            let before = reached.positions;
            for (group, config) in groups.hung() {
                while reached.positions > 0 {
                    let pages = reached.positions.div_ceil(page_size);
                    let hole = if config.kind == GroupKind::Full {
                        let count = || seen.unbroken(hung, group, (pages, &spine));
                        let there = *unbroken[group].get_or_insert_with(count);
                        Some(there).filter(|&there| there < pages)
                    } else {
                        let view = views[group].get_or_insert_with(&spine);
                        let needs = config.kind.needs(reached.positions, page_size);
                        let known = (seen.of(config.kind, page_size), &mut verified[group]);
                        let hole =
                            last_hole(hung, (group, needs), (view, &spine), known, &mut left);
                        let Ok(hole) = hole else { return false };
                        hole.map(|hole| {
                            let hole = hole.unwrap_or(reached.positions / page_size);
                            if config.kind.needs_last() {
                                first_of_holes(hung, (group, hole), view, &mut verified[group])
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
                return true;
            }
        }
    }
}

/// There is more to look at.
struct Stopped;

/// The last place that a group needs and has no page at. Some(None): no prefix can end there,
/// whatever there is.
fn last_hole<S: Spine>(
    hung: &Hung,
    (group, needs): (usize, Option<Needs>),
    (view, spine): (&mut S, impl Fn() -> S),
    (seen, verified): (Needs, &mut usize),
    left: &mut usize,
) -> Result<Option<Option<usize>>, Stopped> {
    let Some(needs) = needs else { return Ok(Some(None)) };
    let (first, mut end) = (needs.last.start, needs.last.end.min(*verified));
    while end > first {
        if seen.last.contains(&(end - 1)) {
            end = seen.last.start;
            continue;
        }
        // Up to what was seen, or to the first one.
        let stop = if seen.last.end <= end { first.max(seen.last.end) } else { first };
        let from = stop.max(end.saturating_sub(*left));
        let hole = (from..end).rev().find(|&place| hung.page(group, view.page(place)) == 0);
        *left -= end - hole.unwrap_or(from);
        if let Some(hole) = hole {
            *verified = hole;
            return Ok(Some(Some(hole)));
        }
        end = from;
        if from > stop {
            *verified = end;
            return Err(Stopped);
        }
    }
    *verified = (*verified).min(first);
    // Sinks are few, and at the other end of the path.
    let mut first = spine();
    let hole = needs.sinks.rev().filter(|place| !seen.sinks.contains(place));
    Ok(hole.into_iter().find(|&place| hung.page(group, first.page(place)) == 0).map(Some))
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
