//! What a fetch with several groups of layers brings: how far all of them can go on at once with
//! what the device and the tiers have, and which pages that takes.
use super::super::remote::Question;
use super::loads::{LoadPage, Origin};
use super::map::Name;
use crate::group::{GROUP_LIMIT, GroupKind, Groups};
use crate::memory::{OutOfMemory, TryGrow};
use crate::token::PageDigest;
use std::collections::VecDeque;
use std::ops::Range;

/// Pages that the remote store was believed to have and that did not come, before it is believed
/// nothing more.
const REFUSALS: u32 = 8;

/// The groups that have something, a bit for each.
pub(super) type GroupSet = u8;

/// A place of a prompt beyond what its sequence reuses, and what there is of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub digest: PageDigest,
    pub device: GroupSet,
    pub host: GroupSet,
    pub disk: GroupSet,
    pub remote: GroupSet,
    /// In pages of the sequence's own.
    pub done: GroupSet,
}

impl Place {
    /// One of which the device has something.
    pub fn new(digest: PageDigest, device: GroupSet) -> Self {
        Self { digest, device, host: 0, disk: 0, remote: 0, done: 0 }
    }

    /// What needs no copy to be there.
    pub fn is_there(&self) -> GroupSet {
        self.device | self.done
    }

    /// What can be had.
    pub fn anywhere(&self) -> GroupSet {
        self.is_there() | self.host | self.disk | self.remote
    }

    /// The same without waiting.
    pub fn at_once(&self) -> GroupSet {
        self.is_there() | self.host
    }
}

/// How far a plan was looked through for an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// The farthest end: whole pages.
    pub pages: usize,
    /// Places that were looked at.
    next: usize,
    /// Of each group, the end of the last gap, and where the first one begins.
    gap_end: [usize; GROUP_LIMIT],
    gap_start: [usize; GROUP_LIMIT],
}

/// How far a plan was looked through for what is missing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// Ranges of needed places that are done.
    range: usize,
    /// Of the next one, the places.
    places: usize,
}

/// The set of a single group.
pub(super) fn only(group: usize) -> GroupSet {
    1 << group
}

/// How a fetch of several groups goes on.
#[derive(Debug)]
pub(super) struct GroupPlan {
    pub groups: Groups,
    pub page_size: usize,
    /// The first page that the sequence doesn't reuse.
    pub first: usize,
    /// From there on.
    pub places: Vec<Place>,
    /// Of those the first of which the device has the page of group 0.
    leading: usize,
    /// Where the sequence is to go on: whole pages.
    pub target: usize,
    /// Where that was in the beginning.
    pub aim: usize,
    /// No farther than this any more.
    pub most: usize,
    /// Places that the rows of the sequence had when it began.
    pub row: usize,
    /// Times that something of the device's was gone in the end.
    pub surprises: u32,
    /// What can be had is to be looked at again.
    pub is_stale: bool,
    /// The same, when what is under way has come: the remote store has answered.
    pub has_news: bool,
    /// Nothing more is brought.
    pub is_expired: bool,
    /// Somebody looks for an end, or lists what it takes, and lets others in meanwhile.
    pub is_planning: bool,
    /// Of each STATE group the place whose state came, when one did.
    states: [Option<usize>; GROUP_LIMIT],
    /// What the remote store was asked for last: groups, and places counted from the first.
    asked: Vec<(u8, u32)>,
    /// It was asked for the pages of group 0.
    has_asked_spine: bool,
    /// Pages that it was believed to have.
    refusals: u32,
    /// Pages that came, by where they came from.
    pub came: [u64; 3],
}

impl GroupPlan {
    /// Nothing is known yet.
    pub fn new(groups: Groups, page_size: usize, (first, most): (usize, usize)) -> Self {
        Self {
            groups,
            page_size,
            first,
            places: Vec::new(),
            leading: 0,
            target: first,
            aim: first,
            most,
            row: first,
            surprises: 0,
            is_stale: false,
            has_news: false,
            is_expired: false,
            is_planning: false,
            states: [None; GROUP_LIMIT],
            asked: Vec::new(),
            has_asked_spine: false,
            refusals: 0,
            came: [0; 3],
        }
    }

    /// Adds the next place.
    pub fn push(&mut self, place: Place) -> Result<(), OutOfMemory> {
        self.places.try_push(place)?;
        self.note_leading(self.places.len() - 1);
        Ok(())
    }

    /// Counts a place, of those behind the last that was counted, among the leading ones.
    pub fn note_leading(&mut self, at: usize) {
        let is_next = at == self.leading && self.places[at].device & only(0) != 0;
        self.leading += usize::from(is_next);
    }

    /// What the device has is looked at anew.
    pub fn forget_leading(&mut self) {
        self.leading = 0;
    }

    /// Whether there is something of a place that only the remote store can have.
    pub fn lacks(&self, place: &Place) -> bool {
        let all = (1u32 << self.groups.list().len()) - 1;
        u32::from(place.anywhere()) != all
    }

    /// The same of any place.
    pub fn lacks_any(&self) -> bool {
        self.places.iter().any(|place| self.lacks(place))
    }

    /// The digest before a place, if that is one of the plan's too.
    pub fn digest_before(&self, place: usize) -> Option<PageDigest> {
        let before = (place - self.first).checked_sub(1)?;
        self.places.get(before).map(|place| place.digest)
    }

    /// What the remote store is to be asked next: for the pages of group 0 that nobody here has,
    /// and up to where it has those, for those of the other groups.
    pub fn question(&mut self) -> Result<Option<(Question, Vec<Name>)>, OutOfMemory> {
        self.asked.clear();
        let mut names = Vec::new();
        if !std::mem::replace(&mut self.has_asked_spine, true) {
            self.ask_for(0, &mut names)?;
            if !names.is_empty() {
                return Ok(Some((Question::Leading, names)));
            }
        }
        for group in 1..self.groups.list().len() {
            self.ask_for(group, &mut names)?;
        }
        Ok((!names.is_empty()).then_some((Question::Each, names)))
    }

    /// Adds the pages of a group to a question that nobody here has.
    fn ask_for(&mut self, group: usize, names: &mut Vec<Name>) -> Result<(), OutOfMemory> {
        let is_missing = |(_, place): &(usize, &Place)| place.anywhere() & only(group) == 0;
        for (at, place) in self.places.iter().enumerate().filter(is_missing) {
            self.asked.try_push((group as u8, at as u32))?;
            names.try_push(Name { digest: place.digest, group: group as u8 })?;
        }
        Ok(())
    }

    /// The remote store has so many of the pages of group 0 that it was asked for.
    pub fn found_leading(&mut self, found: usize) {
        for &(_, at) in self.asked.iter().take(found) {
            self.places[at as usize].remote |= only(0);
        }
        // Nobody gets beyond a page that is nowhere. Others may have brought some since it was
        // asked, and the target may be behind those.
        let is_nowhere = |at: u32| self.places[at as usize].anywhere() & only(0) == 0;
        let mut rest = self.asked.iter().skip(found).map(|&(_, at)| at);
        if let Some(at) = rest.find(|&at| is_nowhere(at)) {
            self.places.truncate(at as usize);
        }
    }

    /// The remote store has these of the pages that it was asked for.
    pub fn found_each(&mut self, there: &[bool]) {
        for (&(group, at), _) in self.asked.iter().zip(there).filter(|&(_, &there)| there) {
            self.places[at as usize].remote |= only(usize::from(group));
        }
        self.has_news = true;
    }

    /// Whether the remote store has a page.
    pub fn has_remote(&self, group: usize, place: usize) -> bool {
        let place = place.checked_sub(self.first).and_then(|at| self.places.get(at));
        place.is_some_and(|place| place.remote & only(group) != 0)
    }

    /// The remote store did not bring a page that it has.
    pub fn refuse(&mut self, group: usize, place: usize) {
        self.places[place - self.first].remote &= !only(group);
        self.refusals += 1;
        if self.refusals == REFUSALS {
            self.refuse_all();
        }
    }

    /// What the remote store has can't be had.
    pub fn refuse_all(&mut self) {
        self.places.iter_mut().for_each(|place| place.remote = 0);
    }

    /// Begins to look for the farthest place behind which every group can go on.
    pub fn begin_reach(&self) -> Reach {
        Reach {
            pages: self.first,
            next: 0,
            gap_end: [0; GROUP_LIMIT],
            gap_start: [usize::MAX; GROUP_LIMIT],
        }
    }

    /// Looks at so many places more, given what there is of each page. `fits` says where a prompt
    /// can end. Whether there may be an end farther on.
    pub fn go_on(
        &self,
        reach: &mut Reach,
        count: usize,
        has: impl Fn(&Place) -> GroupSet,
        fits: impl Fn(usize) -> bool,
    ) -> bool {
        let all = self.places.len().min(self.most.saturating_sub(self.first));
        let to = all.min(reach.next.saturating_add(count));
        while reach.next < to {
            let (place, there) = (self.first + reach.next, has(&self.places[reach.next]));
            if there & only(0) == 0 {
                return false;
            }
            reach.next += 1;
            let (mut is_good, end) = (true, place + 1);
            for (group, config) in self.groups.hung() {
                if there & only(group) == 0 {
                    reach.gap_end[group] = end;
                    reach.gap_start[group] = reach.gap_start[group].min(place);
                }
                let needs = config.kind.needs(end * self.page_size, self.page_size);
                let needs = needs.expect("any group can end with a page");
                // What comes before the first is needed for what is reused already.
                is_good &= reach.gap_end[group] <= needs.last.start.max(self.first)
                    && (needs.sinks.end <= reach.gap_start[group] || needs.sinks.end <= self.first);
            }
            if is_good && fits(end) {
                reach.pages = end;
            }
        }
        to < all
    }

    /// All the way: the farthest such place; `first` when there is none.
    pub fn reach(&self, has: impl Fn(&Place) -> GroupSet, fits: impl Fn(usize) -> bool) -> usize {
        let mut reach = self.begin_reach();
        self.go_on(&mut reach, usize::MAX, has, fits);
        reach.pages
    }

    /// The first page of group 0 up to the target that the device doesn't have.
    pub fn own_from(&self) -> usize {
        (self.first + self.leading).min(self.target)
    }

    /// The places that the target needs and that are not reused already, by group: those of group 0
    /// first, from the first on that the device doesn't have.
    fn needed(&self) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let spine = (0, self.own_from()..self.target);
        let hung = self.groups.hung().flat_map(|(group, config)| {
            let needs = config.kind.needs(self.target * self.page_size, self.page_size);
            let needs = needs.expect("any group can end with a page");
            [needs.sinks, needs.last].map(|of| (group, of.start.max(self.first)..of.end))
        });
        std::iter::once(spine).chain(hung).filter(|(_, places)| !places.is_empty())
    }

    /// How many those are.
    pub fn needed_count(&self) -> usize {
        self.needed().map(|(_, places)| places.len()).sum()
    }

    /// Looks at so many of those places more, and calls `take` with the group, the place and the
    /// digest of each page that is not there. Whether there are more.
    pub fn visit_missing(
        &self,
        cursor: &mut Cursor,
        mut count: usize,
        mut take: impl FnMut(usize, usize, PageDigest),
    ) -> bool {
        while let Some((group, places)) = self.needed().nth(cursor.range) {
            let from = places.start + cursor.places;
            let to = places.end.min(from.saturating_add(count));
            for place in from..to {
                let what = &self.places[place - self.first];
                let there = if group == 0 { what.done } else { what.is_there() };
                if there & only(group) == 0 {
                    take(group, place, what.digest);
                }
            }
            count -= to - from;
            cursor.places += to - from;
            if to < places.end {
                return true;
            }
            *cursor = Cursor { range: cursor.range + 1, places: 0 };
        }
        false
    }

    /// All of them, to be brought to host memory.
    pub fn pages(&self) -> Result<VecDeque<LoadPage>, OutOfMemory> {
        let (mut count, mut pages) = (0, VecDeque::new());
        self.visit_missing(&mut Cursor::default(), usize::MAX, |_, _, _| count += 1);
        pages.try_reserve_exact(count)?;
        self.visit_missing(&mut Cursor::default(), usize::MAX, |group, place, digest| {
            pages.push_back(LoadPage::new(group, (place, 0), digest));
        });
        Ok(pages)
    }

    /// A page came.
    pub fn note(&mut self, group: usize, place: usize, from: Origin) {
        if self.is_done(group, place) {
            return;
        }
        self.came[from as usize] += 1;
        self.places[place - self.first].done |= only(group);
        if self.groups.list()[group].kind == GroupKind::State {
            self.states[group] = Some(place);
        }
    }

    /// Whether a page came.
    pub fn is_done(&self, group: usize, place: usize) -> bool {
        self.places[place - self.first].done & only(group) != 0
    }

    /// Sets another target. A state that came for the one before is of no use.
    pub fn aim_at(&mut self, target: usize) {
        if target == self.target {
            return;
        }
        for (group, place) in self.states.iter_mut().enumerate() {
            if let Some(place) = place.take() {
                self.places[place - self.first].done &= !only(group);
            }
        }
        let (groups, page_size) = (self.groups, self.page_size);
        for (group, config) in groups.hung().filter(|(_, config)| config.kind.slides()) {
            let needs = |pages: usize| {
                let needs = config.kind.needs(pages * page_size, page_size);
                needs.expect("sliding groups end anywhere")
            };
            // Rows that were made longer have pages where they are needed alone: all that came
            // there came for the target before.
            let (before, after) = (needs(self.target), needs(target));
            for place in before.places().filter(|&place| place >= self.row.max(self.first)) {
                if !after.contain(place) {
                    self.places[place - self.first].done &= !only(group);
                }
            }
        }
        self.target = target;
    }
}
