//! Private pages of a sequence that are filled from a tier instead of being computed, and become
//! the cache's then.
use crate::error::Error;
use crate::ids::SequenceId;
use crate::memory::try_to_vec;
use crate::store::{Sequence, State};
use crate::token::{DigestChain, KeyPieces, Keys, OpenImage, PageDigest, PageHasher, Query};
use std::ops::Range;

/// Pages that were digested, and where the next ones begin.
#[derive(Debug, Clone, Copy, Default)]
pub struct Digested {
    /// How many.
    pub count: usize,
    /// The image that goes on after them.
    pub open: Option<OpenImage>,
}

/// What a sequence has after its pages came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landed {
    /// Pages that it shares more than before.
    pub pages: usize,
    /// Positions that need not be computed.
    pub positions: usize,
}

/// A sequence as queries are, without its keys.
pub(super) fn query(sequence: &Sequence) -> Query<'_> {
    let images = &sequence.image_spans;
    Query { keys: &[], positions: sequence.positions, images, unchecked: 0 }
}

impl State {
    /// The first page of a sequence that could come from a tier, and how many from there on: whole
    /// pages before its last token, of those that its row has, or of all.
    pub fn fetchable_pages(&self, id: SequenceId, in_row: bool) -> Result<(usize, usize), Error> {
        let (sequence, page_size) = (self.sequence(id)?, self.table.page_size());
        sequence.check_loaded()?;
        let first = sequence.shared;
        let start = first * page_size;
        // Most often all of a prompt is there but what is computed anyway.
        if sequence.prompt_positions <= start + page_size {
            return Ok((first, 0));
        }
        let query = query(sequence);
        // What is known of its keys begins there, and its hit can end there.
        let is_possible = sequence.base_pages == first && query.boundary(start) == start;
        let computed = match sequence.copy {
            Some(copy) => sequence.computed - copy.positions,
            None => sequence.computed,
        };
        let is_begun = !self.has_groups() || self.has_all_group_copies(sequence);
        let is_begun = is_begun && !sequence.has_unpublished_state();
        if !is_possible || computed != start || !is_begun || self.is_cleared(sequence) {
            return Ok((first, 0));
        }
        let last = query.boundary(sequence.prompt_positions - 1);
        let end = query.page_boundary(last, page_size) / page_size;
        let row = if in_row { self.table.row(id.slot())?.len() } else { end };
        Ok((first, end.min(row).saturating_sub(first)))
    }

    /// The last page of the cache in a sequence's row, and a record from which on it has held what
    /// it holds; None when it is not to be found any more.
    pub fn last_shared(&self, id: SequenceId) -> Result<Option<(u32, u64)>, Error> {
        let sequence = self.sequence(id)?;
        let row = self.table.row(id.slot())?;
        let Some(last) = sequence.shared.checked_sub(1) else { return Ok(None) };
        Ok(self.held_since(row[last]).map(|since| (row[last], since)))
    }

    /// The namespace of a sequence.
    pub fn namespace_of(&self, id: SequenceId) -> Result<crate::index::Namespace, Error> {
        Ok(self.sequence(id)?.namespace)
    }

    /// Digests of the pages of a sequence from one on, which is not before what it shares, as many
    /// as there is room for and whole pages are left.
    pub fn digest_pages(
        &self,
        id: SequenceId,
        first: usize,
        (parent, open): (PageDigest, Option<OpenImage>),
        into: &mut [PageDigest],
    ) -> Result<Digested, Error> {
        let (sequence, page_size) = (self.sequence(id)?, self.table.page_size());
        let from = first.checked_sub(sequence.base_pages).map(|pages| pages * page_size);
        let keys = from.and_then(|from| sequence.tail().get(from..)).unwrap_or_default();
        let keys = Keys { keys, images: &self.cache()?.images };
        let pieces = KeyPieces::new(keys, open);
        let mut chain = DigestChain::new(PageHasher::new(page_size), parent, pieces);
        let most = into.len();
        let mut room = into.iter_mut();
        let count = chain.next_pages(most, |digest| *room.next().expect("so many") = digest);
        Ok(Digested { count, open: chain.pieces.open() })
    }

    /// Begins to fill the next pages of a sequence, so many, which were seen to be fetchable, and
    /// gives up the copy that begin named. Returns them; none when its namespace was cleared
    /// meanwhile.
    pub fn open_fetch(
        &mut self,
        id: SequenceId,
        first: usize,
        count: usize,
    ) -> Result<Vec<u32>, Error> {
        let (at, most) = self.fetchable_pages(id, true)?;
        if self.is_cleared(self.sequence(id)?) {
            return Ok(Vec::new());
        }
        if at != first || most < count {
            return Err(Error::state("the sequence went on meanwhile"));
        }
        let pages = try_to_vec(&self.table.row(id.slot())?[first..first + count])?;
        if pages.iter().any(|&page| self.table.pool.is_copied(page)) {
            return Err(Error::state("the sequence's pages are being copied"));
        }
        let slot = id.slot();
        self.end_copy(slot);
        self.table.renew(slot);
        let page_size = self.table.page_size();
        self.set_cached(slot, first * page_size);
        self.sequences[slot as usize].is_loading = true;
        Ok(pages)
    }

    /// More pages of a sequence that is loading, which a tier fills.
    pub fn pages_to_fill(&self, id: SequenceId, places: Range<usize>) -> Result<Vec<u32>, Error> {
        let (sequence, row) = (self.sequence(id)?, self.table.row(id.slot())?);
        let pages = row.get(places).filter(|_| sequence.is_loading);
        let pages = pages.ok_or_else(|| Error::state("the sequence went on meanwhile"))?;
        let pool = &self.table.pool;
        if pages.iter().any(|&page| pool.is_copied(page) || pool.is_cached(page)) {
            return Err(Error::state("the sequence's pages are being copied"));
        }
        Ok(try_to_vec(pages)?)
    }

    /// So many positions need not be computed: a token boundary.
    pub(crate) fn set_cached(&mut self, slot: u32, positions: usize) {
        let sequence = &mut self.sequences[slot as usize];
        let tokens = query(sequence).tokens_before(positions);
        (sequence.computed, sequence.cached_positions) = (positions, positions);
        // Its state is what is copied there.
        (sequence.groups.accepted, sequence.groups.slid) = (0, 0);
        // What a fetch brings is not the parent's.
        sequence.inherited = sequence.inherited.map(|inherited| inherited.min(positions));
        sequence.cached_tokens = tokens;
    }

    /// Whether a sequence waits for its pages.
    pub fn is_loading(&self, id: SequenceId) -> bool {
        self.sequence(id).is_ok_and(|sequence| sequence.is_loading)
    }

    /// Publishes the next pages of a sequence, of which so many came, and as many more as others
    /// have published meanwhile, but no more than `most`. With `goes_on` it waits for more, and is
    /// still to be hashed from that page on.
    pub fn land(
        &mut self,
        id: SequenceId,
        (came, most): (usize, usize),
        goes_on: Option<usize>,
    ) -> Result<Landed, Error> {
        let (page_size, slot) = (self.table.page_size(), id.slot());
        let sequence = self.sequence(id)?;
        assert!(sequence.is_loading, "a fetch is open");
        let (shared, tail) = (sequence.shared, sequence.tail());
        let keys = &tail[..(most * page_size).min(tail.len())];
        let cache = self.cache()?;
        let known = match sequence.base {
            Some(base) => cache.index.walk(base, cache.keys(keys)).pages.saturating_sub(shared),
            None => {
                let root = cache.index.find_root(&sequence.namespace);
                let root = root.filter(|_| !self.is_cleared(sequence));
                root.map_or(0, |root| cache.index.walk(root, cache.keys(keys)).pages)
            }
        };
        let end = (shared + came.max(known).min(most)) * page_size;
        let end = query(sequence).page_boundary(end, page_size).max(shared * page_size);
        self.sequences[slot as usize].is_loading = false;
        // Of pages that others have its keys go, and what is to be hashed needs them.
        let ahead = goes_on.map_or(usize::MAX, |hashed| hashed.saturating_sub(end / page_size));
        // A fetch that could not be published is one that brought nothing.
        if self.publish_near(id, (end, ahead)).is_ok() {
            self.set_cached(slot, end);
        }
        let sequence = &mut self.sequences[slot as usize];
        sequence.is_loading = goes_on.is_some();
        Ok(Landed { pages: sequence.shared - shared, positions: sequence.cached_positions })
    }
}
