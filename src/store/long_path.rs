//! Long paths: what is done for each node of one goes in portions, between which others get in.
//!
//! Meanwhile a lock is on the node where the last portion ended, a *foothold*: as if somebody had
//! looked up so much, and locked it. A descent takes footholds deeper and deeper down; a lock that
//! ends goes up portion by portion.
use super::group_ahead::GroupsAhead;
use super::group_windows::Ahead;
use super::locks::LET_GO;
use super::{PrefixCache, Turn};
use crate::error::Error;
use crate::ids::{LockId, NodeId};
use crate::index::{Node, Portion};
use crate::memory::TryGrow;

/// Nodes of a portion, as a part of the pages of a slice: 64 of them take 30 microseconds when none
/// is in a cache of the processor.
const NODES: usize = 4;
/// Page numbers that are copied at once, in portions of a read: 10 microseconds.
const ROW: usize = 4;

/// Nodes of a path that are passed before others are let in.
pub(super) fn path_portion(slice: usize) -> usize {
    slice.div_ceil(NODES)
}

/// What a call holds that lets others in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Foothold {
    /// A node, by a lock.
    pub(super) node: Node,
    /// This one or one above it is counted as kept by a retained sequence.
    pub(super) kept: Option<Node>,
}

impl From<Node> for Foothold {
    fn from(node: Node) -> Self {
        Self { node, kept: None }
    }
}

impl PrefixCache {
    /// Locks a node while others are let in. Nothing, without memory.
    pub(super) fn hold(&mut self, node: Node) -> Option<u32> {
        self.footholds.try_reserve(1).ok()?;
        self.index.lock(node);
        Some(self.footholds.insert(node.into()))
    }

    /// Keeps and locks a node, and no more the one above it that a foothold is on.
    fn keep_down(&mut self, at: Option<u32>, node: Node) -> Option<u32> {
        self.footholds.try_reserve(1).ok()?;
        self.index.lock(node);
        self.index.retain(node);
        if let Some(at) = at {
            let above = self.footholds.remove(at).node;
            self.index.retain_no_more(above);
            self.index.unlock(above);
        }
        Some(self.footholds.insert(Foothold { node, kept: Some(node) }))
    }
}

impl Turn<'_> {
    #[inline]
    pub(super) fn path_portion(&self) -> usize {
        path_portion(self.shared.slice)
    }

    /// Lets waiting threads in, after what the index wants was made; refused when the cache went
    /// meanwhile, and all that was held in it.
    pub(super) fn let_in(&mut self) -> Result<(), Error> {
        let gone = self.caches_gone;
        self.make_wanted_table();
        self.let_waiting_in();
        if self.caches_gone == gone { Ok(()) } else { Err(super::no_cache()) }
    }

    /// The same while a call holds this.
    fn let_in_holding(&mut self, foothold: Foothold) -> Result<(), Error> {
        let footholds = &mut self.parts()?.0.footholds;
        // Without memory they wait.
        if footholds.try_reserve(1).is_err() {
            return Ok(());
        }
        let at = footholds.insert(foothold);
        self.let_in()?;
        self.parts()?.0.footholds.remove(at);
        Ok(())
    }

    /// Undoes a lock, and drops what was cleared and nobody else holds; much of both in portions.
    #[inline(always)] // most often there is nothing more to do
    pub(crate) fn let_go(&mut self, node: Node) {
        let nodes = self.path_portion();
        let cache = self.state.cache.as_mut().expect("a node is locked");
        let rest = cache.index.unlock_some(node, nodes);
        if rest.is_some() || cache.index.has_cleared() {
            self.let_go_on(rest);
        }
        self.drop_let_go();
    }

    #[cold]
    fn let_go_on(&mut self, mut next: Option<Node>) {
        let nodes = self.path_portion();
        loop {
            let cache = self.state.cache.as_mut().expect("a node is locked");
            if cache.index.has_cleared() {
                self.drop_cleared(Portion::of(LET_GO));
            }
            let Some(rest) = next else { return };
            if self.let_in_holding(rest.into()).is_err() {
                return;
            }
            next = self.state.cache.as_mut().and_then(|cache| cache.index.unlock_some(rest, nodes));
        }
    }

    /// Undoes a lock of a caller.
    #[inline(always)]
    pub fn unlock(&mut self, lock: LockId) -> Result<(), Error> {
        let cache = self.parts()?.0;
        let on = cache.take_lock(lock)?;
        if cache.groups.is_some() {
            return self.unlock_groups(on);
        }
        self.let_go(Node(on));
        Ok(())
    }

    /// Ends what a lock protects in groups, and undoes it then.
    #[inline(never)]
    fn unlock_groups(&mut self, on: u32) -> Result<(), Error> {
        let slice = self.shared.slice;
        while self.parts()?.0.end_some_uses(on, slice) {
            let node = self.parts()?.0.hold_node(on);
            if self.let_in_holding(node.into()).is_err() {
                return Ok(());
            }
        }
        let hold = self.parts()?.0.take_hold(on);
        self.let_go(hold.node);
        self.drop_hold(hold);
        Ok(())
    }

    /// Protects a node.
    #[inline(always)]
    pub fn lock(&mut self, id: NodeId) -> Result<LockId, Error> {
        let nodes = self.path_portion();
        let cache = self.parts()?.0;
        let node = cache.index.resolve(id)?;
        let locked = match &cache.groups {
            None => cache.lock_short(node, nodes)?,
            Some(_) if cache.index.end_page(node) > nodes => None,
            Some(_) => Some(cache.lock(node)?),
        };
        match locked {
            Some(lock) => Ok(lock),
            None => self.lock_long(id),
        }
    }

    #[cold]
    fn lock_long(&mut self, id: NodeId) -> Result<LockId, Error> {
        let gone = self.caches_gone;
        let ahead = self.groups_to(id)?;
        let locked = self.cache().and_then(|cache| cache.index.resolve(id));
        let locked = locked.and_then(|node| self.lock_deep((id, node), ahead));
        if let Some(ahead) = ahead {
            self.end_groups_ahead(ahead, gone);
        }
        locked
    }

    fn lock_deep(
        &mut self,
        (id, node): (NodeId, Node),
        ahead: Option<GroupsAhead>,
    ) -> Result<LockId, Error> {
        let held = self.hold_ahead(node)?;
        let cache = self.parts()?.0;
        let ahead = ahead.map_or_else(Ahead::default, |ahead| ahead.ahead(cache));
        let locked = cache.index.resolve(id).and_then(|node| cache.lock_ahead(node, ahead));
        if let Some(at) = held {
            let node = self.parts()?.0.footholds.remove(at).node;
            self.let_go(node);
        }
        locked
    }

    /// Whether more nodes than a portion has are above one.
    #[inline]
    pub(super) fn is_deep(&self, node: Node) -> bool {
        let (nodes, cache) = (self.path_portion(), self.state.cache.as_ref());
        cache.expect("it has the node").index.is_deep(node, nodes)
    }

    /// Holds the path to a node that nobody else may have locked, all but the last portion.
    fn hold_ahead(&mut self, node: Node) -> Result<Option<u32>, Error> {
        let (nodes, mut portions, mut next) = (self.path_portion(), Vec::new(), Ok(node));
        // Up to the root, unless others take the path away.
        while let Ok(last) = next
            && let Some(above) = self.cache()?.index.ancestor(last, nodes)
            && portions.try_push(self.cache()?.index.id(above)).is_ok()
        {
            self.let_in()?;
            next = self.cache()?.index.resolve(portions[portions.len() - 1]);
        }
        let mut held = None;
        while let Some(id) = portions.pop() {
            let cache = self.parts()?.0;
            // What was merged with the node below has no id any more.
            let Ok(node) = cache.index.resolve(id) else { continue };
            let Some(at) = cache.hold(node) else { break };
            if let Some(above) = held.replace(at) {
                let above = cache.footholds.remove(above).node;
                cache.index.unlock(above);
            }
            self.let_in()?;
        }
        Ok(held)
    }

    /// Marks the path to a locked node as used.
    pub(crate) fn touch(&mut self, node: Node) -> Result<(), Error> {
        let is_deep = self.is_deep(node);
        let cache = self.parts()?.0;
        let Some(at) = is_deep.then(|| cache.hold(node)).flatten() else {
            cache.index.touch(node, None);
            return Ok(());
        };
        cache.index.touch(node, Some(node));
        let now = self.now();
        self.ascend_from((at, node), now)
    }

    /// Whether writing a row of so many pages takes longer than others should wait for.
    pub(crate) fn is_long_row(&self, pages: usize) -> bool {
        pages > ROW * self.shared.read_portion()
    }

    /// The node at which a portion of pages that are read up from one ends, unless that is all.
    fn read_up(&self, from: Node) -> Result<Option<Node>, Error> {
        let (nodes, most, index) =
            (self.path_portion(), self.shared.read_portion(), &self.cache()?.index);
        let last = index.end_page(from).saturating_sub(most);
        let mut next = Some(from);
        for _ in 0..nodes {
            next = next.and_then(|node| index.ancestor(node, 1));
            if next.is_none_or(|node| index.end_page(node) <= last) {
                break;
            }
        }
        Ok(next)
    }

    /// The pages on the path to a locked node, if that is long.
    pub(crate) fn read_ahead(&mut self, node: Node) -> Result<Vec<u32>, Error> {
        let count = self.cache()?.index.end_page(node);
        let is_long = self.is_long_row(count) || self.is_deep(node);
        let cache = self.parts()?.0;
        let mut pages = Vec::new();
        let room = pages.try_reserve_exact(count);
        let Some(at) = (is_long && room.is_ok()).then(|| cache.hold(node)).flatten() else {
            return Ok(Vec::new());
        };
        // New memory takes the system longer than to copy to it.
        let gone = self.caches_gone;
        pages = self.unlocked(|| {
            pages.resize(count, 0);
            pages
        });
        if gone != self.caches_gone {
            return Err(super::no_cache());
        }
        let mut next = Some(node);
        while let Some(last) = next {
            next = self.read_up(last)?;
            let index = &self.cache()?.index;
            let first = next.map_or(0, |above| index.end_page(above));
            index.visit_path_from(last, first, &mut |start, part| {
                let from = first.max(start);
                pages[from..start + part.len()].copy_from_slice(&part[from - start..]);
            });
            self.let_in()?;
        }
        self.parts()?.0.footholds.remove(at);
        self.let_go(node);
        if gone == self.caches_gone { Ok(pages) } else { Err(super::no_cache()) }
    }

    /// Counts a retained sequence on the path to a node that it has locked, all but the last
    /// portion. `end_keeping` ends the foothold that keeps it, before others are let in.
    pub(crate) fn keep_ahead(&mut self, node: Node) -> Result<Option<u32>, Error> {
        if !self.is_deep(node) {
            return Ok(None);
        }
        let nodes = self.path_portion();
        let Some(base) = self.parts()?.0.hold(node) else { return Ok(None) };
        let (mut portions, mut kept) = (Vec::new(), None);
        let mut last = node;
        while let Some(above) = self.cache()?.index.ancestor(last, nodes) {
            if portions.try_push(above).is_err() {
                portions.clear();
                break;
            }
            last = above;
            self.let_in()?;
        }
        while let Some(next) = portions.pop() {
            let Some(at) = self.parts()?.0.keep_down(kept, next) else { break };
            kept = Some(at);
            self.let_in()?;
        }
        self.parts()?.0.footholds.remove(base);
        // At once, so that what is kept is this cache's still.
        self.state.let_go(node);
        Ok(kept)
    }

    /// Ends what `keep_ahead` holds.
    pub(crate) fn end_keeping(&mut self, at: u32) {
        let Some(cache) = &mut self.state.cache else { return };
        let Foothold { node, kept } = cache.footholds.remove(at);
        self.let_kept_go(node, kept);
    }

    /// Counts a retained sequence no more, and undoes the lock that it had; both in portions.
    pub(crate) fn let_kept_go(&mut self, node: Node, kept: Option<Node>) {
        let nodes = self.path_portion();
        let mut next = kept;
        while let Some(at) = next {
            let cache = self.state.cache.as_mut().expect("a node is kept");
            next = cache.index.retain_no_more_some(at, nodes);
            if next.is_some() && self.let_in_holding(Foothold { node, kept: next }).is_err() {
                return;
            }
        }
        self.let_go(node);
    }
}
