//! Locks that go along with a prefix that grows: an insert moves one to the new end, in the same
//! step, and `slide_lock` lets go of what windows have passed. What comes and what goes is touched,
//! the rest of what the lock protects is not.
use super::group_cache::{GroupCache, Path};
use super::group_holds::{Use, order};
use super::{Descent, PrefixCache, Turn};
use crate::error::Error;
use crate::group::{GroupKind, HungPage, Spine};
use crate::ids::LockId;
use crate::index::Node;
use crate::memory::OutOfMemory;
use std::ops::Range;

impl PrefixCache {
    /// Refuses a lock that is not on the node from which an insert goes on.
    pub(super) fn check_moved(&self, lock: LockId, from: Node) -> Result<(), Error> {
        if self.locked_node(lock).ok_or_else(|| Error::StaleLock(lock.0))? == from {
            return Ok(());
        }
        Err(Error::argument("args.lock is on another node than args.from_node"))
    }

    /// Makes room for what a lock protects of so many places more.
    pub(super) fn reserve_moved(&mut self, lock: LockId, places: usize) -> Result<(), Error> {
        let Some(on) = self.locks.get(lock) else { return Ok(()) };
        let Some(groups) = self.groups.as_deref_mut() else { return Ok(()) };
        let no_room = |_| Error::memory("what a lock protects");
        let each = groups.groups.hung().map(|(_, config)| match config.kind {
            GroupKind::Full => 1,
            _ => places,
        });
        let count = each.sum();
        groups.room.try_reserve(count).map_err(|error| no_room(OutOfMemory::from(error)))?;
        let hold = &mut groups.holds[on];
        let before = hold.bytes();
        hold.uses.try_reserve(count).map_err(|error| no_room(OutOfMemory::from(error)))?;
        groups.hold_bytes += hold.bytes() - before;
        Ok(())
    }

    /// Moves the index' lock from the node that an insert went on from to the one at the end of
    /// what it brought, and the caller's with it.
    pub(super) fn follow_lock(&mut self, lock: LockId, (from, end): (Node, Node), moved: bool) {
        if !moved && from != end {
            self.index.lock(end);
            self.index.unlock(from);
        }
        match self.locks.get(lock) {
            Some(on) if self.groups.is_some() => {
                let groups = self.groups.as_deref_mut().expect("there are several groups");
                groups.holds[on].node = end;
            }
            _ => _ = self.locks.move_to(lock, end.0),
        }
    }

    /// Moves a lock from where a call left it to a node below; nothing of the groups goes along.
    /// Whether it was there: somebody else may have moved it on or ended it since, and there may be
    /// no way from where it is to that node.
    pub(super) fn move_lock_down(&mut self, lock: LockId, (left, node): (Node, Node)) -> bool {
        let is_there = self.locked_node(lock) == Some(left);
        if is_there {
            self.follow_lock(lock, (left, node), false);
        }
        is_there
    }

    /// Lets a lock protect what groups that are not FULL have at some places of the prefix that it
    /// is on, of which the first pages may be known, beside what it does.
    pub(super) fn hold_places(&mut self, lock: LockId, places: Range<usize>, known: &[u32]) {
        let (Some(on), now) = (self.locks.get(lock), self.index.now()) else { return };
        let index = self.index.as_ref();
        let Some(groups) = self.groups.as_deref_mut() else { return };
        let GroupCache { groups, hung, holds, room, hold_bytes, .. } = groups;
        let node = holds[on].node;
        let of = |kinds: fn(GroupKind) -> bool| {
            groups.hung().filter(move |(_, config)| kinds(config.kind))
        };
        for (group, _) in of(GroupKind::slides).chain(of(|kind| kind == GroupKind::State)) {
            let first = room.len();
            let mut path = Path::new(index, Some(node), None).with_known(known);
            for place in places.clone().rev() {
                let page = HungPage { group, page: hung.page(group, path.page(place)) };
                // Without memory it is not protected: only where another thread took the room.
                if page.page != 0 && room.try_reserve(1).is_ok() {
                    hung.begin_use(page);
                    room.push(Use { page, place });
                }
            }
            room[first..].reverse();
        }
        let hold = &mut holds[on];
        let before = hold.bytes();
        if hold.uses.try_reserve(room.len()).is_ok() {
            hold.merge(groups, room);
        }
        *hold_bytes += hold.bytes() - before;
        room.drain(..).for_each(|used| hung.end_use(used.page, None, now));
    }

    /// Lets a lock protect all that FULL groups have of the prefix that it is on.
    pub(super) fn hold_chains(&mut self, lock: LockId) {
        let (Some(on), now) = (self.locks.get(lock), self.index.now()) else { return };
        let index = self.index.as_ref();
        let Some(groups) = self.groups.as_deref_mut() else { return };
        let full = groups.full();
        let GroupCache { groups, hung, holds, .. } = groups;
        let node = holds[on].node;
        let path = || Path::new(index, Some(node), None);
        for group in full {
            // All before what it uses is there. Where the next one is missing nothing has changed,
            // however much lies behind: no insert looks at all of a prefix with a hole.
            let (count, used) = (index.end_page(node), holds[on].end_of(group));
            if used >= count || hung.page(group, path().page(used)) == 0 {
                continue;
            }
            let there = hung.unbroken(group, &mut path(), (count, used));
            let place = there - 1;
            let page = hung.begin_chain(group, &mut path(), place);
            if let Some(before) = holds[on].put_last(groups, page, place) {
                hung.end_use(before, None, now);
            }
        }
    }

    /// Lets go of at most so many pages that a lock protects, and that no token from a position on
    /// attends to. Whether there may be more.
    fn slide_some(&mut self, lock: LockId, position: usize, most: usize) -> Result<bool, Error> {
        let on = self.locks.get(lock).ok_or_else(|| Error::StaleLock(lock.0))?;
        let (page_size, now) = (self.page_size(), self.index.now());
        let Some(groups) = self.groups.as_deref_mut() else { return Ok(false) };
        let GroupCache { groups, hung, holds, .. } = groups;
        let (uses, mut left) = (&mut holds[on].uses, most);
        for (group, config) in groups.hung() {
            let passed = match config.kind {
                GroupKind::Full => continue,
                // The state after the position before is what goes on.
                GroupKind::State => 0..position.saturating_sub(1) / page_size,
                kind => {
                    let needs = kind.needs(position, page_size);
                    let needs = needs.expect("sliding groups end anywhere");
                    needs.sinks.end..needs.last.start
                }
            };
            let before = |place: usize| {
                let key = order(groups, &Use { page: HungPage { group, page: 0 }, place });
                uses.partition_point(|used| order(groups, used) < key)
            };
            let first = before(passed.start);
            let end = before(passed.end).max(first).min(first + left);
            left -= end - first;
            for used in uses.drain(first..end) {
                hung.end_use(used.page, None, now);
            }
        }
        Ok(left == 0)
    }
}

impl Turn<'_> {
    /// Lets go of what a lock protects in groups that slide, and of states, as far as no token from
    /// a position on attends to it; much of it in portions.
    pub fn slide_lock(&mut self, lock: LockId, position: usize) -> Result<(), Error> {
        let most = self.shared.slice;
        while self.parts()?.0.slide_some(lock, position, most)? {
            self.let_in()?;
        }
        Ok(())
    }

    /// Lets the lock of a long insert, which moved along to a node, protect what came, in portions,
    /// as long as it is there: elsewhere those pages may be none of its prefix.
    pub(super) fn hold_moved(
        &mut self,
        (lock, node): (LockId, Node),
        places: Range<usize>,
        descent: &mut Descent,
    ) -> Result<(), Error> {
        let (Range { mut start, end }, slice) = (places, self.shared.slice);
        while start < end {
            let to = end.min(start + slice);
            let cache = self.parts()?.0;
            if cache.locked_node(lock) != Some(node) {
                return Ok(());
            }
            cache.hold_places(lock, start..to, descent.pages());
            start = to;
            self.let_in()?;
        }
        self.groups_of(descent)?;
        let cache = self.parts()?.0;
        if cache.locked_node(lock) == Some(node) {
            cache.hold_chains(lock);
        }
        Ok(())
    }
}
