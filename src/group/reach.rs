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
    /// So many positions, before any group is asked.
    pub fn all(positions: usize) -> Self {
        Self { positions, lost: [0; GROUP_LIMIT] }
    }

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

/// The longest prefix that every group can reuse, of at most the positions that were reached
/// before. `fit` lowers a number of positions to one at which a prefix may end. `spine` makes a
/// view of the path for each group. Pages that were seen to be there are not looked at.
pub fn reach<S: Spine>(
    groups: &Groups,
    hung: &Hung,
    (before, page_size, seen): (Reached, usize, Seen),
    fit: impl Fn(usize) -> usize,
    spine: impl Fn() -> S,
) -> Reached {
    let mut search = Search::new(before, page_size, seen);
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
    /// The group that it stopped in, and what was reached before the first was asked.
    stopped: Option<(usize, usize)>,
    /// Where it stopped there among pages that are missing one after another.
    gap: Option<Gap>,
    page_size: usize,
    seen: Seen,
}

/// Pages of a group that are missing one after another.
#[derive(Debug, Clone, Copy)]
struct Gap {
    /// From here on they are missing, as far as was looked.
    from: usize,
    /// Looked no farther than this.
    stop: usize,
}

impl Search {
    /// Of a prefix of at most the positions that were reached before.
    pub fn new(before: Reached, page_size: usize, seen: Seen) -> Self {
        Self {
            reached: before,
            verified: [before.positions.div_ceil(page_size); GROUP_LIMIT],
            unbroken: [None; GROUP_LIMIT],
            stopped: None,
            gap: None,
            page_size,
            seen,
        }
    }

    /// What is left to try; at the end what every group can reuse.
    pub fn reached(&self) -> Reached {
        self.reached
    }

    /// Looks at so many more pages. Whether that is all.
    pub fn go_on<S: Spine>(
        &mut self,
        groups: &Groups,
        hung: &Hung,
        (fit, spine): (impl Fn(usize) -> usize, impl Fn() -> S),
        most: usize,
    ) -> bool {
        let mut left = most;
        let mut views: [Option<S>; GROUP_LIMIT] = std::array::from_fn(|_| None);
        let (mut first, mut before) = self.stopped.take().unwrap_or((0, self.reached.positions));
        loop {
            for (group, config) in groups.hung().skip_while(|&(group, _)| group < first) {
                while self.reached.positions > 0 {
                    let view = (&mut views[group], &spine);
                    let hole = match config.kind {
                        GroupKind::Full => Ok(self.end_of_chain(hung, group, &spine)),
                        kind => self.hole(hung, (group, kind), view, &mut left),
                    };
                    let Ok(hole) = hole else {
                        self.stopped = Some((group, before));
                        return false;
                    };
                    let Some(hole) = hole else { break };
                    let Reached { positions, lost } = &mut self.reached;
                    let shorter = fit((hole * self.page_size).min(*positions));
                    assert!(shorter < *positions, "a hole shortens what is reached");
                    lost[group] += *positions - shorter;
                    *positions = shorter;
                }
            }
            if self.reached.positions == before {
                return true;
            }
            (first, before) = (0, self.reached.positions);
        }
    }

    /// The first page that a FULL group lacks of what is reached.
    fn end_of_chain<S: Spine>(
        &mut self,
        hung: &Hung,
        group: usize,
        spine: &impl Fn() -> S,
    ) -> Option<usize> {
        let pages = self.reached.positions.div_ceil(self.page_size);
        let count = || self.seen.unbroken(hung, group, (pages, spine));
        let there = *self.unbroken[group].get_or_insert_with(count);
        Some(there).filter(|&there| there < pages)
    }

    /// The place that another group lacks, and at or before which a prefix ends therefore.
    fn hole<S: Spine>(
        &mut self,
        hung: &Hung,
        (group, kind): (usize, GroupKind),
        (view, spine): (&mut Option<S>, &impl Fn() -> S),
        left: &mut usize,
    ) -> Result<Option<usize>, Stopped> {
        let (positions, verified) = (self.reached.positions, &mut self.verified[group]);
        let view = view.get_or_insert_with(spine);
        let mut gap = match self.gap.take() {
            Some(gap) => gap,
            None => {
                let needs = kind.needs(positions, self.page_size);
                let known = (self.seen.of(kind, self.page_size), &mut *verified);
                let hole = last_hole(hung, (group, needs), (view, spine), known, left)?;
                let Some(hole) = hole else { return Ok(None) };
                let from = hole.unwrap_or(positions / self.page_size);
                if !kind.needs_last() {
                    return Ok(Some(from));
                }
                Gap { from, stop: from.saturating_sub(FAR) }
            }
        };
        let first = gap.widen(hung, (group, view), left);
        *verified = (*verified).min(gap.from);
        if first.is_none() {
            self.gap = Some(gap);
        }
        first.map(Some).ok_or(Stopped)
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

impl Gap {
    /// Looks at so many more pages for where it begins: nor can a prefix end behind a hole that
    /// comes before one. None when there are more to look at.
    fn widen(
        &mut self,
        hung: &Hung,
        (group, view): (usize, &mut impl Spine),
        left: &mut usize,
    ) -> Option<usize> {
        let end = self.stop.max(self.from.saturating_sub(*left));
        let mut before = (end..self.from).rev();
        let there = before.find(|&place| hung.page(group, view.page(place)) != 0);
        let from = there.map_or(end, |place| place + 1);
        *left = left.saturating_sub(self.from - end);
        self.from = from;
        match there {
            Some(_) => Some(from),
            // Nobody looks farther.
            None => (end == self.stop).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{Class, HungPage};

    /// A prefix whose page at each place has the next number.
    struct InOrder;

    impl Spine for InOrder {
        fn page(&mut self, place: usize) -> u32 {
            place as u32 + 1
        }
    }

    const PAGES: usize = 48;

    /// A number below another one.
    fn below(state: &mut u64, end: usize) -> usize {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*state >> 33) as usize % end
    }

    /// Pages of groups with holes of random lengths.
    fn with_holes(groups: &Groups, state: &mut u64) -> Hung {
        let mut hung = Hung::new(groups, &vec![PAGES + 1; groups.list().len()]).unwrap();
        for (group, _) in groups.hung() {
            let mut place = 0;
            while place < PAGES {
                let (holes, pages) = (below(state, 20), 1 + below(state, 20));
                for place in (place + holes..place + holes + pages).take_while(|&at| at < PAGES) {
                    let page = HungPage { group, page: place as u32 + 1 };
                    hung.hang(page, place as u32 + 1, Class::Tail, 0);
                }
                place += holes + pages;
            }
        }
        hung
    }

    /// G02: a search that stops after a few pages goes on as if it had not, and looks at no more
    /// than it may.
    #[test]
    fn g02_a_search_in_portions_finds_what_one_at_once_does() {
        let kinds = [
            GroupKind::Full,
            GroupKind::Window { window: 1, sinks: 0 },
            GroupKind::Window { window: 9, sinks: 3 },
            GroupKind::Chunk { chunk: 6 },
            GroupKind::State,
        ];
        let (mut state, mut found) = (7, 0);
        for round in 0..2000 {
            let mut list = vec![GroupKind::Full.in_pool(0)];
            for pool in 1..=1 + below(&mut state, 3) {
                list.push(kinds[below(&mut state, kinds.len())].in_pool(pool as u32));
            }
            let groups = Groups::new(&list).unwrap();
            let (hung, page_size) = (with_holes(&groups, &mut state), 1 + round % 3);
            let known = Reached::all(below(&mut state, PAGES) * page_size);
            let fit = |positions: usize| positions - positions % page_size;
            let whole = reach(&groups, &hung, (known, page_size, Seen::default()), fit, || InOrder);
            assert_eq!(whole.positions + whole.lost.iter().sum::<usize>(), known.positions);
            found += usize::from(whole.positions > 0);
            for most in [1, 2, 7, 30] {
                let mut search = Search::new(known, page_size, Seen::default());
                let mut turns = 1;
                while !search.go_on(&groups, &hung, (fit, || InOrder), most) {
                    turns += 1;
                    assert!(turns < 4 * PAGES * list.len(), "{list:?}: it does not end");
                }
                assert_eq!(search.reached(), whole, "{list:?}, {most} at once");
                // What was found is looked at once more, and nothing lost.
                let again =
                    reach(&groups, &hung, (whole, page_size, Seen::default()), fit, || InOrder);
                assert_eq!(again, whole);
            }
        }
        assert!(found > 200, "{found} searches found something");
    }
}
