//! Locks of callers: each has an id of its own, and protects what it was taken on, whatever
//! becomes of the nodes.
use super::PrefixCache;
use crate::error::{Error, text};
use crate::ids::{LockId, NodeId};
use crate::index::Node;
use crate::memory::{OutOfMemory, TryGrow};

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

    /// Undoes a lock.
    pub fn unlock(&mut self, lock: LockId) -> Result<(), Error> {
        let node = self.locks.release(lock).ok_or(Error::StaleLock(lock.0))?;
        self.index.unlock(Node(node));
        Ok(())
    }

    /// Checks that the nodes have the locks that are out, and those of sequences, given by node.
    pub fn check_locks(&self, sequences: impl Iterator<Item = Node>) -> Result<(), Error> {
        let mut nodes = Vec::new();
        nodes.try_reserve(self.locks.out()).map_err(OutOfMemory::from)?;
        for node in self.locks.iter().chain(sequences.map(|node| node.0)) {
            nodes.try_push(node)?;
        }
        nodes.sort_unstable();
        for same in nodes.chunk_by(|left, right| left == right) {
            let (node, taken) = (same[0], same.len());
            let locks = self.index.own_locks(Node(node));
            if locks as usize != taken {
                return Err(Error::Corrupt(text!(
                    "lock_ids: node {node} has {locks} locks, and {taken} were taken"
                )));
            }
        }
        let mut locks = self.index.detached().locks;
        self.index.visit_roots(None, &mut |_, root| {
            locks += self.index.info(root).locks as usize;
            true
        });
        if locks != nodes.len() {
            let taken = nodes.len();
            return Err(Error::Corrupt(text!("lock_ids: {locks} locks, and {taken} were taken")));
        }
        Ok(())
    }
}
