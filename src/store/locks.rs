//! Locks of callers: each has an id of its own, and protects what it was taken on, whatever
//! becomes of the nodes.
use super::{PrefixCache, State};
use crate::error::Error;
use crate::ids::{LockId, NodeId};
use crate::index::{Node, Portion};

/// Pages that are dropped at once when somebody lets go of the last lock on them.
const LET_GO: usize = 256;

impl PrefixCache {
    /// Makes room for one lock more.
    pub fn reserve_lock(&mut self) -> Result<(), Error> {
        self.locks.try_reserve()
    }

    /// Protects a node and all above it. Room was made.
    pub fn lock_node(&mut self, node: Node) -> LockId {
        self.index.lock(node);
        // A locked node keeps its number, also when it is split.
        self.locks.take(node.0)
    }

    /// The same for whoever knows the node by its id.
    pub fn lock(&mut self, id: NodeId) -> Result<LockId, Error> {
        let node = self.index.resolve(id)?;
        self.reserve_lock()?;
        Ok(self.lock_node(node))
    }

    /// Undoes a lock. Returns whether leaves that nobody can find or holds wait to be dropped.
    pub fn unlock(&mut self, lock: LockId) -> Result<bool, Error> {
        let node = self.locks.release(lock).ok_or(Error::StaleLock(lock.0))?;
        Ok(self.index.unlock(Node(node)))
    }
}

impl State {
    /// Undoes a lock. Of what was cleared some pages go at once when nobody holds them any more;
    /// `Turn::drop_let_go` drops the rest.
    pub(crate) fn let_go(&mut self, node: Node) {
        let cache = self.cache.as_mut().expect("a locked node has a cache");
        if cache.index.unlock(node) {
            self.drop_cleared(Portion::of(LET_GO));
        }
    }

    /// Protects a node.
    pub fn lock(&mut self, node: NodeId) -> Result<LockId, Error> {
        self.parts()?.0.lock(node)
    }

    /// Undoes a lock.
    pub fn unlock(&mut self, lock: LockId) -> Result<(), Error> {
        if self.parts()?.0.unlock(lock)? {
            self.drop_cleared(Portion::of(LET_GO));
        }
        Ok(())
    }
}
