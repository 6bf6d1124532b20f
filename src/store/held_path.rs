//! What the cache has of a prompt beyond what its sequence reuses: looked up in portions, and held,
//! so that nothing of it goes while a call looks at it or makes it the sequence's.
use super::Turn;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::index::Node;

/// A path that a call holds.
#[derive(Debug, Default)]
pub struct HeldPath {
    /// The foothold at its end.
    foothold: Option<u32>,
    /// The place of the first page in the prompt.
    first: usize,
    /// The pages, of group 0.
    pages: Vec<u32>,
    /// Caches that were gone before the one in which the foothold is.
    gone: u64,
}

impl HeldPath {
    /// The pages from the first on that the sequence does not reuse.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// The page at a place of the prompt, if the cache has that.
    pub(super) fn page(&self, place: usize) -> Option<u32> {
        self.pages.get(place.checked_sub(self.first)?).copied()
    }

    /// The place behind its last page.
    pub fn end(&self) -> usize {
        self.first + self.pages.len()
    }

    /// Caches that were gone before its own.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }

    /// The foothold at its end.
    pub(super) fn foothold(&self) -> Option<u32> {
        self.foothold
    }
}

impl Turn<'_> {
    /// Holds what the cache has of a sequence's prompt from the first page on that it doesn't
    /// reuse, up to a place. Nothing of a sequence that is to copy a part of a page: that page is
    /// fetched whole. `let_path_go` ends it.
    pub fn hold_beyond(&mut self, id: SequenceId, end: usize) -> Result<HeldPath, Error> {
        let first = self.sequence(id)?.shared;
        // All that may come at once, since what grows is copied.
        let room = self.room_for_pages(end.saturating_sub(first));
        let pages = room.map_err(|_| Error::memory("the pages of a path"))?;
        let mut path = HeldPath { first, pages, gone: self.caches_gone, ..HeldPath::default() };
        loop {
            match self.step_beyond(id, end, &mut path) {
                Ok(true) => {}
                Ok(false) => return Ok(path),
                Err(error) => {
                    self.let_path_go(path);
                    return Err(error);
                }
            }
            // Who has it knows when the cache has gone with all that was held.
            self.let_in()?;
        }
    }

    /// Goes a stretch further. Whether it may go on.
    fn step_beyond(
        &mut self,
        id: SequenceId,
        end: usize,
        path: &mut HeldPath,
    ) -> Result<bool, Error> {
        let (stretch, page_size) = (self.stretch(), self.table.page_size());
        let sequence = self.sequence(id)?;
        if sequence.shared != path.first {
            return Err(Error::state("the sequence went on meanwhile"));
        }
        let is_known = sequence.base_pages == path.first && sequence.copy.is_none();
        if !is_known || self.is_cleared(sequence) || end <= path.first {
            return Ok(false);
        }
        let (cache, done) = (self.cache()?, path.pages.len());
        let held = path.foothold.map(|at| cache.footholds[at].node);
        let from = held.or(sequence.base).or_else(|| cache.index.find_root(&sequence.namespace));
        let Some(from) = from else { return Ok(false) };
        let tail = sequence.tail();
        let most = ((end - path.first) * page_size).min(tail.len());
        let keys = cache.keys(&tail[done * page_size..most]);
        let (walk, goes_on) = cache.index.walk_some(from, keys, stretch);
        let count = walk.pages.saturating_sub(path.first);
        if count <= done {
            return Ok(false);
        }
        self.hold_to(walk.node, path)?;
        let places = path.first + done..walk.pages;
        self.cache()?.index.add_pages(walk.node, places, &mut path.pages);
        Ok(goes_on)
    }

    /// Moves the foothold of a path down to a node.
    fn hold_to(&mut self, node: Node, path: &mut HeldPath) -> Result<(), Error> {
        let cache = self.parts()?.0;
        match path.foothold {
            None => {
                let at = cache.hold(node);
                path.foothold = Some(at.ok_or_else(|| Error::memory("what a call holds"))?);
            }
            Some(at) => {
                cache.index.lock(node);
                let above = std::mem::replace(&mut cache.footholds[at], node.into()).node;
                cache.index.unlock(above);
            }
        }
        Ok(())
    }

    /// Lets a path go.
    pub fn let_path_go(&mut self, path: HeldPath) {
        let HeldPath { foothold, pages, gone, .. } = path;
        self.housekeeping.discard(pages);
        let Some(at) = foothold.filter(|_| gone == self.caches_gone) else { return };
        if let Ok((cache, _)) = self.parts() {
            let node = cache.footholds.remove(at).node;
            self.let_go(node);
        }
    }
}
