//! What can be seen of pages, nodes and namespaces, beside calls that change them.
use super::{Counters, Shared, State};
use crate::error::Error;
use crate::ids::NodeId;
use crate::index::{Namespace, Node, NodeInfo};
use crate::memory::{OutOfMemory, TryGrow, try_collect};

/// Pages by state, and slots.
#[derive(Debug, Clone, Copy)]
pub struct PageTableStats {
    /// Positions of a page.
    pub page_size: usize,
    /// Pages that can be handed out.
    pub total: usize,
    /// Pages in the pool.
    pub free: usize,
    /// Pages of the cache.
    pub cached: usize,
    /// Pages of rows, retained sequences, open copies and callers.
    pub private: usize,
    /// Pages of an external pool that are not cached.
    pub outside: usize,
    /// Cached pages that eviction could free.
    pub reclaimable: usize,
    /// Rows.
    pub slots: usize,
    /// Rows not in use.
    pub free_slots: usize,
    /// Host memory.
    pub memory_bytes: usize,
}

/// Totals of a cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheStats {
    /// Pages of the cache.
    pub cached_pages: usize,
    /// Pages that eviction could free.
    pub reclaimable_pages: usize,
    /// Nodes.
    pub nodes: usize,
    /// Nodes without children.
    pub prefixes: usize,
    /// Namespaces.
    pub namespaces: usize,
    /// Sequences.
    pub sequences: usize,
    /// Retained sequences.
    pub retained_sequences: usize,
    /// Pages that those keep.
    pub retained_pages: usize,
    /// Images.
    pub images: usize,
    /// Host memory of the index.
    pub index_bytes: usize,
    /// Locks of callers.
    pub locks: usize,
    /// What was counted.
    pub counters: Counters,
}

impl State {
    /// Pages by state, and slots.
    pub fn page_table_stats(&self) -> PageTableStats {
        let (table, pool) = (&self.table, &self.table.pool);
        PageTableStats {
            page_size: table.page_size(),
            total: pool.total(),
            free: pool.free(),
            cached: pool.cached(),
            private: pool.private(),
            outside: pool.outside(),
            reclaimable: self.reclaimable(),
            slots: table.slots(),
            free_slots: table.free_slots(),
            memory_bytes: table.bytes() + self.bytes(),
        }
    }

    /// Totals.
    pub fn cache_stats(&self) -> Result<CacheStats, Error> {
        let cache = self.cache()?;
        let stats = cache.index.stats();
        Ok(CacheStats {
            cached_pages: stats.cached_pages,
            reclaimable_pages: stats.reclaimable_pages.saturating_sub(self.table.pool.copied().1),
            nodes: stats.nodes,
            prefixes: stats.leaves,
            namespaces: stats.namespaces,
            sequences: self.live,
            retained_sequences: self.retained.len(),
            retained_pages: self.retained.pages(Some(cache)),
            images: cache.images.len(),
            index_bytes: stats.bytes + cache.bytes(),
            locks: cache.lock_count(),
            counters: cache.counters,
        })
    }

    /// The id of a node; 0 for none.
    pub fn node_id(&self, node: Option<Node>) -> Result<u64, Error> {
        let cache = self.cache()?;
        Ok(node.map_or(0, |node| cache.index.id(node).0))
    }

    /// Whether the cache has a page.
    pub fn contains_page(&self, page: u32) -> bool {
        self.table.pool.is_cached(page)
    }

    /// What can be seen of a node.
    pub fn node_info(&self, id: NodeId) -> Result<NodeInfo, Error> {
        let index = &self.cache()?.index;
        Ok(index.info(index.resolve(id)?))
    }

    /// Pages of a node's own segment.
    pub fn node_pages(&self, id: NodeId) -> Result<&[u32], Error> {
        let index = &self.cache()?.index;
        Ok(index.pages(index.resolve(id)?))
    }

    /// Children of a node.
    pub fn node_children(&self, id: NodeId) -> Result<Vec<NodeId>, Error> {
        let index = &self.cache()?.index;
        let children = index.children(index.resolve(id)?)?;
        Ok(try_collect(children.into_iter().map(|node| index.id(node)))?)
    }

    /// Adds the next few namespaces after the last one in a list, with their roots; false when
    /// there were no more.
    fn list_namespaces(
        &self,
        count: usize,
        listed: &mut Vec<(Namespace, NodeId)>,
    ) -> Result<bool, Error> {
        let index = &self.cache()?.index;
        let (mut left, mut room) = (count, Ok(()));
        let last = listed.last().map(|(name, _)| *name);
        index.visit_roots(last.as_ref(), &mut |name, root| {
            left -= 1;
            room = listed.try_push((*name, index.id(root)));
            left > 0 && room.is_ok()
        });
        let full = |OutOfMemory| Error::memory("the list of namespaces");
        room.map(|()| left == 0).map_err(full)
    }
}

impl Shared {
    /// The namespaces that the cache has pages of, or is asked to keep, with their roots. Those
    /// that come or go during the call may be in the list or not.
    pub fn namespaces(&self) -> Result<Vec<(Namespace, NodeId)>, Error> {
        let mut listed = Vec::new();
        while self.read().list_namespaces(self.slice, &mut listed)? {
            self.without_lock();
        }
        Ok(listed)
    }
}
