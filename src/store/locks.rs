//! Locks of callers: each has an id of its own, and protects what it was taken on, whatever
//! becomes of the nodes.
use super::group_holds::{Use, order};
use super::group_windows::Ahead;
use super::lookup::Matched;
use super::{PrefixCache, State};
use crate::error::Error;
use crate::group::HungPage;
use crate::ids::LockId;
use crate::index::{Node, Portion};

/// Pages that are dropped at once when somebody lets go of the last lock on them.
pub(super) const LET_GO: usize = 256;

impl PrefixCache {
    /// Makes room for one lock more, on a prefix of so many positions.
    pub(super) fn reserve_lock(&mut self, positions: usize, ahead: Ahead) -> Result<(), Error> {
        self.locks.try_reserve()?;
        if self.groups.is_some() { self.reserve_hold(positions, ahead) } else { Ok(()) }
    }

    /// Protects a node and all above it, and what a match that ends there needs of the groups. Room
    /// was made.
    #[inline]
    pub(super) fn lock_match(
        &mut self,
        node: Node,
        matched: &Matched,
        (positions, ahead): (usize, Ahead),
    ) -> LockId {
        self.index.lock(node);
        // A locked node keeps its number, also when it is split.
        let on = match self.groups {
            None => node.0,
            Some(_) => self.begin_hold(node, matched.node, matched.partial, (positions, ahead)),
        };
        self.locks.take(on)
    }

    /// The same of a node's prefix.
    #[inline(always)] // short, but for groups
    pub(super) fn lock_node(&mut self, node: Node, ahead: Ahead) -> LockId {
        self.index.lock(node);
        let on = if self.groups.is_some() { self.begin_hold_to(node, ahead) } else { node.0 };
        self.locks.take(on)
    }

    /// The same where no room was made and there are no groups, unless more nodes than so many are
    /// to be passed.
    #[inline(always)]
    pub(super) fn lock_short(&mut self, node: Node, nodes: usize) -> Result<Option<LockId>, Error> {
        self.locks.try_reserve()?;
        Ok(self.index.lock_short(node, nodes).then(|| self.locks.take(node.0)))
    }

    /// The same, however many those are.
    #[inline]
    pub fn lock(&mut self, node: Node) -> Result<LockId, Error> {
        self.lock_ahead(node, Ahead::default())
    }

    /// The same for a call that uses some of that already.
    #[inline(always)]
    pub(super) fn lock_ahead(&mut self, node: Node, ahead: Ahead) -> Result<LockId, Error> {
        self.locks.try_reserve()?;
        if self.groups.is_some() {
            self.reserve_hold(self.index.end_page(node) * self.page_size(), ahead)?;
        }
        Ok(self.lock_node(node, ahead))
    }

    /// The node that a lock is on, unless it ended.
    pub(super) fn locked_node(&self, lock: LockId) -> Option<Node> {
        let on = self.locks.get(lock)?;
        Some(if self.groups.is_some() { self.hold_node(on) } else { Node(on) })
    }

    /// Takes a lock out of the hands of its caller; returns what it is on, which is to be undone.
    pub fn take_lock(&mut self, lock: LockId) -> Result<u32, Error> {
        self.locks.release(lock).ok_or_else(|| Error::StaleLock(lock.0))
    }

    /// What a lock uses of a group beside the spine, in the order of the places: of a FULL group
    /// the last page.
    pub(super) fn used_by_lock(&self, lock: LockId, group: usize) -> Result<&[Use], Error> {
        let on = self.locks.get(lock).ok_or_else(|| Error::StaleLock(lock.0))?;
        let Some(groups) = &self.groups else { return Ok(&[]) };
        let (uses, of) = (&groups.holds[on].uses, &groups.groups);
        let page = HungPage { group, page: 0 };
        let key = order(of, &Use { page, place: 0 });
        let first = uses.partition_point(|used| order(of, used) < key);
        let count = uses[first..].partition_point(|used| used.page.group == group);
        Ok(&uses[first..first + count])
    }

    /// The nodes on which locks of callers are, and those of calls that let others in.
    pub fn locked_nodes(&self) -> impl Iterator<Item = u32> + '_ {
        let node = |on| self.groups.as_ref().map_or(on, |groups| groups.holds[on].node.0);
        self.locks.iter().map(node).chain(self.footholds.iter().map(|foothold| foothold.node.0))
    }
}

impl State {
    /// Undoes a lock. Of what was cleared some pages go at once when nobody holds them any more;
    /// `Turn::drop_let_go` drops the rest.
    pub(crate) fn let_go(&mut self, node: Node) {
        let cache = self.cache.as_mut().expect("a locked node has a cache");
        cache.index.unlock(node);
        if cache.index.has_cleared() {
            self.drop_cleared(Portion::of(LET_GO));
        }
    }
}
