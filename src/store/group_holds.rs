//! What locks protect in the groups beside the spine: the pages that their prefix needs.
use super::PrefixCache;
use super::group_cache::{GroupCache, Path};
use crate::error::Error;
use crate::group::{HungPage, Spine};
use crate::ids::LockId;
use crate::index::{Node, Partial};
use crate::memory::OutOfMemory;

/// A page that a lock uses.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// The page.
    pub page: HungPage,
    /// Its place in the prefix.
    pub place: usize,
}

/// What a lock protects.
#[derive(Debug)]
pub(super) struct Hold {
    /// On which the index has the lock.
    pub(super) node: Node,
    pub(super) uses: Vec<Use>,
}

impl Hold {
    /// Heap memory.
    fn bytes(&self) -> usize {
        self.uses.capacity() * size_of::<Use>()
    }
}

impl GroupCache {
    /// The pages of all groups that a prefix needs, as far as they are there; those of each group
    /// from its end up.
    pub(super) fn needed<'a>(
        &self,
        (positions, page_size): (usize, usize),
        path: impl Fn() -> Path<'a>,
        mut visit: impl FnMut(Use),
    ) {
        for (group, config) in self.groups.hung() {
            let Some(needs) = config.kind.needs(positions, page_size) else { continue };
            for places in [needs.last, needs.sinks] {
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

    /// How many those are at most.
    fn needed_count(&self, positions: usize, page_size: usize) -> usize {
        let needs = self.groups.hung().map(|(_, config)| config.kind.needs(positions, page_size));
        needs.flatten().map(|needs| needs.sinks.len() + needs.last.len()).sum()
    }
}

impl PrefixCache {
    /// Makes room for what one lock more protects, on a prefix of so many positions.
    #[inline(never)]
    pub(super) fn reserve_hold(&mut self, positions: usize) -> Result<(), Error> {
        let page_size = self.page_size();
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let no_room = |_: OutOfMemory| Error::memory("what a lock protects");
        let count = groups.needed_count(positions, page_size);
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
        positions: usize,
    ) -> u32 {
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let room = std::mem::take(&mut groups.room);
        let uses = self.begin_uses(room, (end, partial), positions);
        self.insert_hold(Hold { node, uses })
    }

    /// Begins to use those pages; there is room for them.
    fn begin_uses(
        &mut self,
        mut uses: Vec<Use>,
        (end, partial): (Option<Node>, Option<Partial>),
        positions: usize,
    ) -> Vec<Use> {
        let bounds = (positions, self.page_size());
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let path = || Path::of_match(self.index.as_ref(), end, partial, positions / bounds.1);
        groups.needed(bounds, path, |used| uses.push(used));
        uses.sort_unstable_by_key(|used| (used.page.group, used.place));
        uses.iter().for_each(|used| groups.hung.begin_use(used.page));
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
    pub(super) fn begin_hold_to(&mut self, node: Node) -> u32 {
        let positions = self.index.end_page(node) * self.page_size();
        self.begin_hold(node, Some(node), None, positions)
    }

    /// Ends it; returns the node that the index has locked.
    #[inline(never)]
    pub(super) fn end_hold(&mut self, at: u32) -> Node {
        let now = self.index.now();
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let Hold { node, uses } = groups.holds.remove(at);
        groups.hold_bytes -= uses.capacity() * size_of::<Use>();
        uses.iter().for_each(|used| groups.hung.end_use(used.page, None, now));
        node
    }

    /// Ends so many of the uses of a hold, the last ones first. Whether some are left.
    pub(super) fn end_some_uses(&mut self, at: u32, count: usize) -> bool {
        let now = self.index.now();
        let GroupCache { holds, hung, .. } =
            self.groups.as_deref_mut().expect("there are several groups");
        let uses = &mut holds[at].uses;
        let left = uses.len().saturating_sub(count);
        uses.drain(left..).rev().for_each(|used| hung.end_use(used.page, None, now));
        left > 0
    }

    /// Makes room for the lock of a call that lets others in, and for what it protects in the end
    /// of a prefix of so many pages at most.
    pub(super) fn reserve_late_hold(&mut self, pages: usize) -> Result<Vec<Use>, Error> {
        self.locks.try_reserve()?;
        let page_size = self.page_size();
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let no_room = |_: OutOfMemory| Error::memory("what a lock protects");
        let most = groups.groups.hung().map(|(_, config)| config.kind.most(page_size).min(pages));
        let (count, mut room) = (most.sum(), Vec::new());
        room.try_reserve_exact(count).map_err(|error| no_room(error.into()))?;
        groups.holds.try_reserve(1).map_err(no_room)?;
        Ok(room)
    }

    /// Locks a node, and nothing of the groups yet: `fill_hold` does. Room was made.
    pub(super) fn lock_late(&mut self, node: Node) -> LockId {
        self.index.lock(node);
        let on = self.insert_hold(Hold { node, uses: Vec::new() });
        self.locks.take(on)
    }

    /// Lets such a lock protect what the prefix of its node needs, if it still is one.
    pub(super) fn fill_hold(&mut self, lock: LockId, room: Vec<Use>) {
        let Some(on) = self.locks.get(lock) else { return };
        let groups = self.groups.as_deref().expect("there are several groups");
        let node = groups.holds[on].node;
        let positions = self.index.end_page(node) * self.page_size();
        let uses = self.begin_uses(room, (Some(node), None), positions);
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        groups.hold_bytes += uses.capacity() * size_of::<Use>();
        groups.holds[on].uses = uses;
    }

    /// Moves the lock of a hold to a node below.
    pub(super) fn move_hold_down(&mut self, lock: LockId, node: Node) {
        let Some(on) = self.locks.get(lock) else { return };
        let groups = self.groups.as_deref_mut().expect("there are several groups");
        let above = std::mem::replace(&mut groups.holds[on].node, node);
        self.index.lock(node);
        self.index.unlock(above);
    }
}
