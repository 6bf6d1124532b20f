//! The cache of a Rust engine: lookups, inserts, locks.
use super::sequence::Sequence;
use super::{call, end, watched};
use crate::error::Error;
use crate::ids::{LockId, NodeId, SequenceId};
use crate::index::{Namespace, NodeInfo};
use crate::memory::{Arc, try_filled, try_to_vec};
use crate::sequence::{Continuation, Room};
use crate::store::{CacheStats, Cleared, InsertRequest, InsertResult, Scope, Shared};
use crate::token::TokenList;

/// A cache on a page table. Dropped last of all that came from it.
#[derive(Debug)]
pub(super) struct Attached(pub(super) Arc<Shared>);

impl Drop for Attached {
    fn drop(&mut self) {
        // What is below it goes after a panic, too. Then there is nobody to tell.
        let _ = watched(&self.0, |shared| {
            shared.detach_cache();
            Ok(())
        });
    }
}

/// A prefix cache. A clone is the same cache; it goes with the last clone, sequence, match and lock
/// that came from it, and its pages are free then.
#[derive(Debug, Clone)]
pub struct Cache {
    attached: Arc<Attached>,
}

/// A lock on a prefix, undone when this is dropped.
#[derive(Debug)]
pub struct Lock {
    cache: Cache,
    id: LockId,
}

impl Lock {
    /// Its id.
    pub fn id(&self) -> LockId {
        self.id
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        end(self.cache.shared(), |shared| shared.turn().unlock(self.id));
    }
}

/// The page after the whole ones of a match, of which the first positions match too. They are to be
/// copied: nobody writes to a page of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialPage {
    /// The page.
    pub page: u32,
    /// How many of its positions.
    pub positions: usize,
}

/// The longest cached prefix of a token list. Its pages stay for as long as this lives.
#[derive(Debug)]
pub struct Match {
    /// Whole pages, in order.
    pub pages: Vec<u32>,
    /// The page after those.
    pub partial: Option<PartialPage>,
    /// Tokens; the rest begins at this index.
    pub tokens: usize,
    /// Positions of those.
    pub positions: usize,
    /// Positions that are known, of which groups beside the first may be unable to reuse some.
    pub known: usize,
    /// With a STATE group: where to end a chunk and save the states, so that the next request gets
    /// that far. The smaller one first; 0 for none.
    pub checkpoint_at: [usize; 2],
    /// The group that cost the most of the known positions; 0 for none.
    pub limiting_group: usize,
    /// The node that ends where the whole pages end.
    pub node: Option<NodeId>,
    /// What protects all that. None when nothing matched.
    pub lock: Option<Lock>,
}

/// What an insert did.
#[derive(Debug)]
pub struct Inserted {
    /// The cache's pages of the prefix: at a place where another page than the caller's was
    /// published first, that one.
    pub pages: Vec<u32>,
    /// The node that ends there.
    pub node: Option<NodeId>,
    /// Pages that went to the cache.
    pub claimed: usize,
    /// Pages that stay the caller's, for another one is published.
    pub duplicates: usize,
    /// What protects them. None when there is no whole page.
    pub lock: Option<Lock>,
}

impl Inserted {
    pub(super) fn of(cache: &Cache, done: &InsertResult, node: u64, pages: Vec<u32>) -> Self {
        Self {
            pages,
            node: some(node),
            claimed: done.claimed,
            duplicates: done.duplicates,
            lock: done.lock.map(|id| cache.own(id)),
        }
    }
}

impl Cache {
    pub(super) fn of(attached: Attached) -> Result<Self, Error> {
        Ok(Self { attached: Arc::new(attached)? })
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.attached.0
    }

    fn own(&self, id: LockId) -> Lock {
        Lock { cache: self.clone(), id }
    }

    /// Tokens and positions of a list that are cached. Changes nothing, and takes no lock for
    /// tokens without images.
    pub fn probe(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
    ) -> Result<(usize, usize), Error> {
        call(self.shared(), |shared| shared.probe(namespace, tokens))
    }

    /// Finds and locks the longest cached prefix.
    pub fn find(&self, namespace: &Namespace, tokens: TokenList<'_>) -> Result<Match, Error> {
        let ((matched, depths, node, lock, mut pages), known) = call(self.shared(), |shared| {
            shared.turn().lookup(namespace, tokens, |state, found, first| {
                let mut pages = try_filled(0, found.pages())?;
                let (matched, lock) = state.take_match(found, true)?;
                let into = |start: usize, part: &[u32]| copy_to(&mut pages, start, part);
                state.visit_path(matched.node, first, into)?;
                Ok::<_, Error>((matched, found.depths(), state.node_id(matched.node)?, lock, pages))
            })
        })?;
        copy_to(&mut pages, 0, &known);
        let partial = matched.partial;
        Ok(Match {
            pages,
            partial: partial.map(|part| PartialPage { page: part.page, positions: part.positions }),
            tokens: matched.tokens,
            positions: matched.positions,
            known: matched.positions.max(depths.known as usize),
            checkpoint_at: depths.checkpoint_at.map(|at| at as usize),
            limiting_group: depths.costliest as usize,
            node: some(node),
            lock: lock.map(|id| self.own(id)),
        })
    }

    /// Publishes the whole pages of a prefix, and locks them. `pages` are those of the prefix from
    /// its beginning; what the cache has no page for yet must be private, and becomes the cache's.
    pub fn insert(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        pages: &[u32],
    ) -> Result<Inserted, Error> {
        let (inserted, node, pages) = call(self.shared(), |shared| {
            let request = InsertRequest {
                groups: &[],
                namespace,
                tokens,
                pages,
                from: None,
                from_token: 0,
                from_page: 0,
                lock: true,
                moved: None,
            };
            let mut published = try_to_vec(pages)?;
            let (told, known) = shared.turn().insert(request, |state, inserted, first| {
                let into = |start: usize, part: &[u32]| copy_to(&mut published, start, part);
                state.visit_path(inserted.node, first, into)?;
                Ok::<_, Error>((inserted, state.node_id(inserted.node)?))
            })?;
            let (inserted, node) = told?;
            copy_to(&mut published, 0, &known);
            published.truncate(inserted.pages);
            Ok((inserted, node, published))
        })?;
        Ok(Inserted::of(self, &inserted, node, pages))
    }

    /// Protects a node and all above it.
    pub fn lock(&self, node: NodeId) -> Result<Lock, Error> {
        let id = call(self.shared(), |shared| shared.turn().lock(node))?;
        Ok(self.own(id))
    }

    /// What can be seen of a node.
    pub fn node_info(&self, node: NodeId) -> Result<NodeInfo, Error> {
        call(self.shared(), |shared| shared.read().node_info(node))
    }

    /// Whether the cache has a page.
    pub fn contains_page(&self, page: u32) -> Result<bool, Error> {
        call(self.shared(), |shared| Ok(shared.read().contains_page(page)))
    }

    /// Evicts up to `count` pages of pool 0, least recently used first, and tells which. Fewer: the
    /// rest is locked. With several groups in external pools [`Cache::evict_from_pool`] alone tells
    /// of all that go.
    pub fn evict(&self, count: usize) -> Result<Vec<u32>, Error> {
        call(self.shared(), |shared| {
            shared.check_told_by_pool()?;
            let (cached, group_count) = {
                let state = shared.read();
                (state.page_table_stats().cached, state.group_count())
            };
            let count = count.min(cached);
            // The last one may take those of other groups along.
            let mut evicted = try_filled(0, count + group_count - 1)?;
            let done = shared.evict(count, |at, page| evicted[at] = page)?;
            evicted.truncate(done);
            Ok(evicted)
        })
    }

    /// Begins a sequence: finds and locks what is cached of a prompt, maps it into a row, and takes
    /// private pages for the rest, evicting when the pool is short.
    pub fn begin(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: impl Into<Room>,
    ) -> Result<Sequence, Error> {
        // The caller's code: what that panics of is no panic of ours.
        let room = room.into();
        let begun = call(self.shared(), |shared| shared.begin(namespace, tokens, room))?;
        Ok(Sequence::of(self.clone(), begun))
    }

    /// Begins a sequence that goes on from another one.
    pub fn continue_from(&self, how: &Continuation<'_>) -> Result<Sequence, Error> {
        let begun = call(self.shared(), |shared| shared.continue_from(how))?;
        Ok(Sequence::of(self.clone(), begun))
    }

    /// Drops a retained sequence.
    pub fn drop_retained(&self, sequence: SequenceId) -> Result<(), Error> {
        call(self.shared(), |shared| shared.turn().drop_retained(sequence))
    }

    /// Clears namespaces, while requests run: nothing that they have is found any more. What nobody
    /// holds is free, the rest when who holds it lets go. `Scope::default()` clears all.
    pub fn clear(&self, scope: Scope) -> Result<Cleared, Error> {
        call(self.shared(), |shared| shared.clear(scope))
    }

    /// Totals.
    pub fn stats(&self) -> Result<CacheStats, Error> {
        call(self.shared(), |shared| shared.read().cache_stats())
    }

    /// Checks every invariant of the index and of the images.
    pub fn check(&self) -> Result<(), Error> {
        call(self.shared(), |shared| shared.read().check())
    }
}

pub(super) fn copy_to(pages: &mut [u32], start: usize, part: &[u32]) {
    pages[start..start + part.len()].copy_from_slice(part);
}

fn some(node: u64) -> Option<NodeId> {
    Some(NodeId(node)).filter(|_| node != 0)
}
