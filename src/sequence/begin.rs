//! The beginning of a sequence: match, lock, take a slot, map what is shared. One transaction.
use crate::error::Error;
use crate::ids::SequenceId;
use crate::index::{Namespace, Node};
use crate::memory::try_to_vec;
use crate::paging::PageCopy;
use crate::store::{
    Claim, Found, Sequence, SequenceInfo, Shared, State, Turn, WithPartial, no_cache, page_at,
};
use crate::token::{Query, TokenList, position_count, with_query};

/// Which positions of a new sequence get pages at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    /// Those of the tokens to come, so many; when all that are known get theirs.
    pub reserve: usize,
    /// Of the known ones the first, so many; 0 for all.
    pub first: usize,
}

impl From<usize> for Room {
    /// All that are known, and so many to come.
    fn from(reserve: usize) -> Self {
        Self { reserve, first: 0 }
    }
}

impl Room {
    /// Pages that the row of a sequence begins with, of the `row_pages` that it may come to. What
    /// is reused has a page: the one to copy into too.
    pub(super) fn row_pages(
        self,
        row_pages: usize,
        positions: usize,
        reused: usize,
        page_size: usize,
    ) -> usize {
        match self.first {
            first if first > 0 && first < positions => first.max(reused).div_ceil(page_size),
            _ => row_pages,
        }
    }
}

/// A sequence whose row still lacks private pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    pub(super) id: SequenceId,
    /// Pages that the row gets now.
    pub(super) row_pages: usize,
    pub(super) reuse: Reused,
}

/// What a sequence did not have to compute, for the statistics.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reused {
    /// Positions out of what a lookup found, and how many of them by copy.
    Found(Found, usize, usize),
    /// Positions of a parent.
    Inherited(usize),
}

/// What to reuse of what was found.
struct Reuse {
    found: Found,
    /// Positions to reuse: a token boundary that leaves a token to compute.
    positions: usize,
    /// Reclaimable pages that the lock will protect.
    protected: usize,
    /// The lock goes to the page after the whole pages.
    locks_partial: bool,
}

impl Begun {
    /// The row, to be filled.
    pub(super) fn row(&self) -> NewRow {
        NewRow { id: self.id, pages: self.row_pages }
    }
}

/// The pages that the row of an incomplete sequence lacks.
pub(super) struct NewRow {
    id: SequenceId,
    pages: usize,
}

impl Claim<()> for NewRow {
    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let slot = self.id.slot();
        // Nobody else knows it, so nobody else can have ended it.
        let sequence = &state.sequences[slot as usize];
        assert!(sequence.id == Some(self.id) && sequence.incomplete, "it is still being made");
        let missing = self.pages - state.table.row(slot)?.len();
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        state.extend_row(self.id.slot(), missing, early);
        Ok(())
    }
}

impl State {
    /// Does everything but taking private pages, after making sure that they can be had: those of
    /// all positions, also where only the first get theirs now.
    pub(super) fn start(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: Room,
    ) -> Result<Begun, Error> {
        if tokens.ids.is_empty() {
            return Err(Error::argument("args.tokens: a sequence needs at least one token"));
        }
        let positions = position_count(tokens)?;
        let most = self.table.pages_for(positions.saturating_add(room.reserve), "args.tokens")?;
        let slot = self.table.next_slot()?;
        let cache = self.cache.as_mut().ok_or_else(no_cache)?;
        let images = cache.images.hold_all(tokens.items)?;
        let started =
            with_query(tokens, &images, |query| self.start_query(namespace, query, slot, most));
        match started {
            Ok(reuse) => {
                self.sequences[slot as usize].images = images;
                let id = self.occupy(slot);
                let new = &self.sequences[slot as usize];
                let reused = new.cached_positions;
                self.map_path(slot, new.base, new.shared);
                let page_size = self.table.page_size();
                let row_pages = room.row_pages(most, positions, reused, page_size);
                Ok(Begun { id, row_pages, reuse })
            }
            Err(error) => {
                let cache = self.cache.as_mut().expect("it was there");
                cache.images.release(&images);
                Err(error)
            }
        }
    }

    /// Finds and locks what is reused, and puts the sequence into a slot that is still free.
    fn start_query(
        &mut self,
        namespace: &Namespace,
        query: Query<'_>,
        slot: u32,
        row_pages: usize,
    ) -> Result<Reused, Error> {
        let page_size = self.table.page_size();
        let found = self.cache()?.find_query(namespace, query);
        query.check_text(found.pages() * page_size)?;
        let reuse = self.choose_reuse(query, found, row_pages)?;

        let own_keys = &query.keys[reuse.found.pages() * page_size..];
        let no_room = |_| Error::memory("the tokens of a sequence");
        self.reserve_tail(slot, own_keys.len()).map_err(no_room)?;
        let image_spans = try_to_vec(query.images)?;
        self.table.reserve_row(slot, row_pages).map_err(|_| Error::memory("a row"))?;
        let cache = self.cache.as_mut().expect("it was there");
        let with = if reuse.locks_partial { WithPartial::Locked } else { WithPartial::No };
        let matched = cache.take(&reuse.found, with)?;

        // Nothing can fail from here on.
        let lock = if reuse.locks_partial { matched.deepest() } else { matched.node };
        if let Some(node) = lock {
            cache.index.lock(node);
        }
        let began = self.clears.latest();
        let shared = reuse.positions / page_size;
        let copied = reuse.positions % page_size;
        let source = match (copied, matched.partial, matched.node) {
            (0, ..) => None,
            (_, Some(partial), _) => Some(partial.page),
            (_, None, node) => {
                Some(page_at(cache.index.as_ref(), node.expect("the page was found"), shared))
            }
        };
        assert_eq!(matched.pages, reuse.found.pages());
        let place = &mut self.sequences[slot as usize];
        let mut tail = std::mem::take(&mut place.tail);
        tail.extend_from_slice(own_keys);
        *place = Sequence {
            number: place.number,
            tail,
            namespace: *namespace,
            began,
            lock,
            base: matched.node,
            base_pages: matched.pages,
            shared,
            positions: query.positions,
            prompt_positions: query.positions,
            computed: reuse.positions,
            cached_positions: reuse.positions,
            cached_tokens: query.tokens_before(reuse.positions),
            copy: source.map(|source| PageCopy { source, target: 0, positions: copied }),
            image_spans,
            ..Sequence::default()
        };
        Ok(Reused::Found(reuse.found, reuse.positions, copied))
    }

    /// Maps the first pages of the prefix that ends at a node into a new row.
    pub(super) fn map_path(&mut self, slot: u32, node: Option<Node>, count: usize) {
        let (Some(node), Some(cache)) = (node, &self.cache) else {
            return;
        };
        let row = self.table.extend_shared(slot, count);
        cache.index.visit_path(node, &mut |start, pages| {
            let end = (start + pages.len()).min(count);
            if start < end {
                row[start..end].copy_from_slice(&pages[..end - start]);
            }
        });
    }

    /// As much as can be reused while the other pages can still be had.
    fn choose_reuse(
        &self,
        query: Query<'_>,
        found: Found,
        row_pages: usize,
    ) -> Result<Reuse, Error> {
        let last_token = query.boundary(query.positions - 1);
        let reuse = self.reuse(found, found.positions().min(last_token), query);
        if self.fits(&reuse, row_pages).is_ok() {
            return Ok(reuse);
        }
        // Protecting the page to copy from, or what was found beyond the cut, may be too much.
        let cut = query.page_boundary(reuse.positions, self.table.page_size());
        let reuse = self.reuse(found.cut(cut, query), cut, query);
        self.fits(&reuse, row_pages).map(|()| reuse)
    }

    fn reuse(&self, found: Found, positions: usize, query: Query<'_>) -> Reuse {
        let page_size = self.table.page_size();
        let cache = self.cache.as_ref().expect("it was there");
        let positions = cache.reusable(positions, query);
        let locks_partial =
            !positions.is_multiple_of(page_size) && positions / page_size == found.pages();
        let protected = found.unprotected_pages(cache, locks_partial);
        Reuse { found, positions, protected, locks_partial }
    }

    fn fits(&self, reuse: &Reuse, row_pages: usize) -> Result<(), Error> {
        let shared = reuse.positions / self.table.page_size();
        self.check_room(row_pages - shared, reuse.protected)
    }

    /// Shows the sequence to others, now that its row is as long as it begins with: says where the
    /// copy goes, and counts the reuse.
    pub(super) fn finish(&mut self, begun: &Begun) {
        let slot = begun.id.slot();
        let sequence = &mut self.sequences[slot as usize];
        sequence.incomplete = false;
        if let Some(copy) = &mut sequence.copy {
            copy.target = self.table.row(slot).expect("the slot is in use")[sequence.shared];
        }
        let cache = self.cache.as_mut().expect("it was there");
        match begun.reuse {
            Reused::Found(found, reused, copied) => cache.count_lookup(&found, reused, copied),
            Reused::Inherited(positions) => cache.count_inherit(positions),
        }
    }
}

impl Turn<'_> {
    /// Begins a sequence.
    pub fn begin(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: impl Into<Room>,
    ) -> Result<SequenceInfo, Error> {
        let begun = self.start(namespace, tokens, room.into())?;
        if let Err(error) = self.carry_out(begun.row()) {
            self.end(begun.id.slot());
            return Err(error);
        }
        self.finish(&begun);
        self.sequence_info(begun.id)
    }
}

impl Shared {
    /// Begins a sequence.
    pub fn begin(
        &self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: impl Into<Room>,
    ) -> Result<SequenceInfo, Error> {
        self.turn().begin(namespace, tokens, room)
    }
}
