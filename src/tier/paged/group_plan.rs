//! What a fetch with several groups of layers brings: how far all of them can go on at once with
//! what the device and the tiers have, and which pages that takes.
use crate::group::{GROUP_LIMIT, GroupKind, Groups};
use crate::token::PageDigest;

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
    /// Times that something of the device's was gone in the end.
    pub surprises: u32,
    /// Pages that came, by where they came from.
    pub came: [u64; 3],
}

impl GroupPlan {
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
        self.target = target;
    }
}
