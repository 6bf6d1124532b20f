//! What locks protect in the groups beside the spine: the pages that their prefix needs.
use super::PrefixCache;
use super::group_cache::{GroupCache, Path};
use super::group_windows::Ahead;
use crate::error::Error;
use crate::group::{GroupConfig, GroupKind, Groups, HungPage, Seen, Spine};
use crate::ids::LockId;
use crate::index::{Node, Partial};
use crate::memory::OutOfMemory;

/// A page that a lock uses; of a FULL group the last one, with all before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    /// The page.
    pub(super) page: HungPage,
    /// Its place in the prefix.
    pub(super) place: usize,
}

/// In which order a lock has its uses: first come those of groups that slide, which may be many,
/// and are taken over from a call as they are.
pub(super) fn order(groups: &Groups, used: &Use) -> (bool, usize, usize) {
    let HungPage { group, .. } = used.page;
    (!groups.list()[group].kind.slides(), group, used.place)
}

/// What a lock protects.
#[derive(Debug)]
pub(super) struct Hold {
    /// On which the index has the lock.
    pub(super) node: Node,
    pub(super) uses: Vec<Use>,
    /// Those pages are kept as by a retained sequence, too.
    pub(super) keeps: bool,
}

impl Hold {
    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        self.uses.capacity() * size_of::<Use>()
    }

    /// The page of a FULL group that it uses.
    pub(super) fn last_of(&self, group: usize) -> Option<HungPage> {
        self.uses.iter().map(|used| used.page).find(|page| page.group == group)
    }

    /// The place behind the page that it uses of a FULL group; 0 without one.
    pub(super) fn end_of(&self, group: usize) -> usize {
        let used = self.uses.iter().find(|used| used.page.group == group);
        used.map_or(0, |used| used.place + 1)
    }

    /// Says that it uses a page, for which there is room.
    pub(super) fn add(&mut self, page: HungPage, place: usize) {
        debug_assert!(self.uses.capacity() > self.uses.len(), "room was made");
        self.uses.push(Use { page, place });
    }

    /// Says that it uses this page of a FULL group instead. There is room for it.
    pub(super) fn set_last(&mut self, page: HungPage, place: usize) {
        match self.uses.iter_mut().find(|used| used.page.group == page.group) {
            Some(used) => *used = Use { page, place },
            None => self.uses.push(Use { page, place }),
        }
    }

    /// The same in order. Returns the page that it used.
    pub(super) fn put_last(
        &mut self,
        groups: &Groups,
        page: HungPage,
        place: usize,
    ) -> Option<HungPage> {
        let first = order(groups, &Use { page, place: 0 });
        let at = self.uses.partition_point(|used| order(groups, used) < first);
        match self.uses.get_mut(at).filter(|used| used.page.group == page.group) {
            Some(used) => Some(std::mem::replace(used, Use { page, place }).page),
            None => {
                debug_assert!(self.uses.capacity() > self.uses.len(), "room was made");
                self.uses.insert(at, Use { page, place });
                None
            }
        }
    }

    /// Takes over more uses. Both are in order, and there is room.
    pub(super) fn merge(&mut self, groups: &Groups, more: &mut Vec<Use>) {
        let order = |used: &Use| order(groups, used);
        let mut left = self.uses.len();
        self.uses.extend_from_slice(more);
        let mut to = self.uses.len();
        while let Some(used) = more.pop() {
            while left > 0 && order(&self.uses[left - 1]) > order(&used) {
                (left, to) = (left - 1, to - 1);
                self.uses[to] = self.uses[left];
            }
            to -= 1;
            self.uses[to] = used;
        }
    }
}

impl GroupCache {
    /// The pages of all groups but FULL ones that a prefix needs, as far as they are there, without
    /// those that were seen; those of each group from its end up, first of groups that slide.
    pub(super) fn needed<'a>(
        &self,
        (positions, page_size): (usize, usize),
        seen: Seen,
        path: impl Fn() -> Path<'a>,
        mut visit: impl FnMut(Use),
    ) {
        let of = |kinds: fn(GroupKind) -> bool| {
            self.groups.hung().filter(move |(_, config)| kinds(config.kind))
        };
        for (group, config) in of(GroupKind::slides).chain(of(|kind| kind == GroupKind::State)) {
            let Some(needs) = config.kind.needs(positions, page_size) else { continue };
            let unseen = needs.without(&seen.of(config.kind, page_size));
            for places in unseen.into_iter().rev().filter(|places| !places.is_empty()) {
                let mut path = path();
                for place in places.rev() {
                    let page = self.hung.page(group, path.page(place));
                    if page != 0 {
                        visit(Use { page: HungPage { group, page }, place });
                    }
                }
            }
        }
    }

    /// The FULL groups beside the spine.
    pub(super) fn full(&self) -> impl Iterator<Item = usize> + use<> {
        full(self.groups)
    }

    /// How many pages a lock on a prefix names at most: of a FULL group the last one.
    fn needed_count(&self, positions: usize, page_size: usize) -> usize {
        let count = |(_, config): (usize, GroupConfig)| match config.kind {
            GroupKind::Full => 1,
            kind => kind.needs(positions, page_size).map_or(0, |it| it.places().count()),
        };
        self.groups.hung().map(count).sum()
    }
}

/// The FULL groups beside the spine.
pub(super) fn full(groups: Groups) -> impl Iterator<Item = usize> {
    (1..groups.list().len()).filter(move |&group| groups.list()[group].kind == GroupKind::Full)
}

impl PrefixCache {
    /// Makes room for what one lock more protects, on a prefix of so many positions.
    #[inline(never)]
    pub(super) fn reserve_hold(&mut self, positions: usize, ahead: Ahead) -> Result<(), Error> {
        let page_size = self.page_size();
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let no_room = |_: OutOfMemory| Error::memory("what a lock protects");
        let has_room = ahead.is_for(positions);
        let count = if has_room { 0 } else { groups.needed_count(positions, page_size) };
        groups.room.try_reserve_exact(count).map_err(|error| no_room(error.into()))?;
        groups.holds.try_reserve(1).map_err(no_room)
    }

    /// Says that a lock uses the pages of groups that a prefix needs, as far as they are there.
    /// Returns what the lock is to be on.
    #[inline(never)]
    pub(super) fn begin_hold(
        &mut self,
        node: Node,
        end: Option<Node>,
        partial: Option<Partial>,
        (positions, ahead): (usize, Ahead),
    ) -> u32 {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let room = std::mem::take(&mut groups.room);
        let uses = self.begin_uses(room, (end, partial), (positions, ahead));
        self.insert_hold(Hold { node, uses, keeps: false })
    }

    /// Begins to use those pages; there is room for them. What a call uses ahead is taken over.
    fn begin_uses(
        &mut self,
        room: Vec<Use>,
        (end, partial): (Option<Node>, Option<Partial>),
        (positions, ahead): (usize, Ahead),
    ) -> Vec<Use> {
        let bounds = (positions, self.page_size());
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let taken = groups.take_windows(ahead, positions);
        let seen = if taken.is_some() { ahead.seen } else { Seen::default() };
        let mut uses = taken.unwrap_or(room);
        let first = uses.len();
        let path = || Path::of_match(self.index.as_ref(), end, partial, positions / bounds.1);
        groups.needed(bounds, seen, path, |used| uses.push(used));
        // They come from the end up, by group.
        let more = &mut uses[first..];
        more.chunk_by_mut(|a, b| a.page.group == b.page.group).for_each(<[Use]>::reverse);
        more.iter().for_each(|used| groups.hung.begin_use(used.page));
        let in_order = if first > 0 { first } else { uses.len() };
        for group in groups.full() {
            let pages = positions.div_ceil(bounds.1);
            let there = groups.hung.unbroken(group, &mut path(), (pages, 0));
            if let Some(place) = there.checked_sub(1) {
                let page = groups.hung.begin_chain(group, &mut path(), place);
                uses.push(Use { page, place });
            }
        }
        // What comes to those in order is little.
        for at in in_order..uses.len() {
            let key = order(&groups.groups, &uses[at]);
            let to = uses[..at].partition_point(|used| order(&groups.groups, used) < key);
            uses[to..=at].rotate_right(1);
        }
        uses
    }

    /// Notes a hold, for which room was made.
    pub(super) fn insert_hold(&mut self, hold: Hold) -> u32 {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        groups.hold_bytes += hold.bytes();
        groups.holds.insert(hold)
    }

    /// The same of a node's prefix.
    #[inline(never)]
    pub(super) fn begin_hold_to(&mut self, node: Node, ahead: Ahead) -> u32 {
        let positions = self.index.end_page(node) * self.page_size();
        self.begin_hold(node, Some(node), None, (positions, ahead))
    }

    /// Takes it out, with the uses that are left.
    pub(super) fn take_hold(&mut self, at: u32) -> Hold {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let hold = groups.holds.remove(at);
        groups.hold_bytes -= hold.bytes();
        hold
    }

    /// The node that the index has locked for a hold.
    pub(super) fn hold_node(&self, at: u32) -> Node {
        self.groups.as_deref().expect("there are several groups").holds[at].node
    }

    /// Ends so many of the uses of a hold, the last ones first, with those of chains. Whether some
    /// are left.
    pub(super) fn end_some_uses(&mut self, at: u32, count: usize) -> bool {
        let now = self.index.now();
        let GroupCache { holds, hung, .. } =
            self.groups.as_deref_mut().expect("there are several groups");
        let Hold { uses, keeps, .. } = &mut holds[at];
        for _ in 0..count {
            let Some(used) = uses.pop() else { break };
            let before = match keeps {
                true => hung.end_one_keep(used.page, now),
                false => hung.end_one_use(used.page, None, now),
            };
            if let Some(page) = before {
                uses.push(Use { page, place: used.place - 1 });
            }
        }
        !uses.is_empty()
    }

    /// Makes room for the lock of a call that lets others in, and for what it protects in the end
    /// of a prefix of so many pages at most.
    pub(super) fn reserve_late_hold(&mut self, pages: usize) -> Result<Vec<Use>, Error> {
        self.locks.try_reserve()?;
        let page_size = self.page_size();
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let no_room = |_: OutOfMemory| Error::memory("what a lock protects");
        let most = groups.groups.hung().map(|(_, config)| match config.kind {
            GroupKind::Full => 1,
            kind => kind.most(page_size).min(pages),
        });
        let (count, mut room) = (most.sum(), Vec::new());
        room.try_reserve_exact(count).map_err(|error| no_room(error.into()))?;
        groups.holds.try_reserve(1).map_err(no_room)?;
        Ok(room)
    }

    /// Locks a node, and nothing of the groups yet: `fill_hold` does. Room was made.
    pub(super) fn lock_late(&mut self, node: Node) -> LockId {
        self.index.lock(node);
        let on = self.insert_hold(Hold { node, uses: Vec::new(), keeps: false });
        self.locks.take(on)
    }

    /// Lets such a lock protect what the prefix of its node needs, if it is there still.
    pub(super) fn fill_hold(&mut self, (lock, node): (LockId, Node), room: Vec<Use>, ahead: Ahead) {
        let Some(on) = self.locks.get(lock).filter(|&on| self.hold_node(on) == node) else {
            return;
        };
        let positions = self.index.end_page(node) * self.page_size();
        let uses = self.begin_uses(room, (Some(node), None), (positions, ahead));
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        groups.hold_bytes += uses.capacity() * size_of::<Use>();
        groups.holds[on].uses = uses;
    }
}
