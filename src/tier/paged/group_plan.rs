//! What a fetch with several groups of layers brings: how far all of them can go on at once with
//! what the device and the tiers have, and which pages that takes.
use super::super::remote::Question;
use super::map::Name;
use crate::group::{GROUP_LIMIT, GroupKind, Groups};
use crate::memory::{OutOfMemory, TryGrow};
use crate::token::PageDigest;

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
            target: first,
            aim: first,
            most,
            row: first,
            surprises: 0,
            is_stale: false,
            has_news: false,
            is_expired: false,
            asked: Vec::new(),
            has_asked_spine: false,
            refusals: 0,
            came: [0; 3],
        }
    }

    /// Whether there is something that only the remote store can have.
    pub fn lacks_any(&self) -> bool {
        let all = (1u32 << self.groups.list().len()) - 1;
        self.places.iter().any(|place| u32::from(place.anywhere()) != all)
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
        if let Some(&(_, at)) = self.asked.get(found) {
            // Nobody gets beyond a page that is nowhere.
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

    /// The farthest place behind which every group can go on, given what there is of each page;
    /// `first` when there is none. `fits` says where a prompt can end.
    pub fn reach(&self, has: impl Fn(&Place) -> GroupSet, fits: impl Fn(usize) -> bool) -> usize {
        let mut reached = self.first;
        // Of each group, the end of the last gap, and where the first one begins.
        let mut gap_end = [0; GROUP_LIMIT];
        let mut gap_start = [usize::MAX; GROUP_LIMIT];
        for (place, what) in (self.first..self.most).zip(&self.places) {
            let (there, end) = (has(what), place + 1);
            if there & only(0) == 0 {
                break;
            }
            let mut is_good = true;
            for (group, config) in self.groups.hung() {
                if there & only(group) == 0 {
                    gap_end[group] = end;
                    gap_start[group] = gap_start[group].min(place);
                }
                let needs = config.kind.needs(end * self.page_size, self.page_size);
                let needs = needs.expect("any group can end with a page");
                // What comes before the first is needed for what is reused already.
                is_good &= gap_end[group] <= needs.last.start.max(self.first)
                    && (needs.sinks.end <= gap_start[group] || needs.sinks.end <= self.first);
            }
            if is_good && fits(end) {
                reached = end;
            }
        }
        reached
    }

    /// The first page of group 0 up to the target that the device doesn't have.
    pub fn own_from(&self) -> usize {
        let on_device = |place: &&Place| place.device & only(0) != 0;
        let count = self.places.iter().take_while(on_device).count();
        (self.first + count).min(self.target)
    }

    /// Calls `take` with the group and the place of each page that the target needs and that is not
    /// there: those of group 0 first.
    pub fn visit_missing(&self, mut take: impl FnMut(usize, usize, PageDigest)) {
        for place in self.own_from()..self.target {
            let what = &self.places[place - self.first];
            if what.done & only(0) == 0 {
                take(0, place, what.digest);
            }
        }
        for (group, config) in self.groups.hung() {
            let needs = config.kind.needs(self.target * self.page_size, self.page_size);
            let needs = needs.expect("any group can end with a page");
            for place in needs.places().filter(|&place| place >= self.first) {
                let what = &self.places[place - self.first];
                if what.is_there() & only(group) == 0 {
                    take(group, place, what.digest);
                }
            }
        }
    }

    /// A page came.
    pub fn set_done(&mut self, group: usize, place: usize) {
        self.places[place - self.first].done |= only(group);
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
        for (group, config) in self.groups.hung() {
            if config.kind == GroupKind::State {
                self.places.iter_mut().for_each(|place| place.done &= !only(group));
            }
        }
        for (group, config) in self.groups.hung().filter(|(_, config)| config.kind.slides()) {
            let needs = config.kind.needs(target * self.page_size, self.page_size);
            let needs = needs.expect("sliding groups end anywhere");
            let behind = self.row.max(self.first) - self.first;
            // Rows that were made longer have pages where they are needed alone.
            for (place, at) in self.places.iter_mut().zip(self.first..).skip(behind) {
                if !needs.contain(at) {
                    place.done &= !only(group);
                }
            }
        }
        self.target = target;
    }
}
