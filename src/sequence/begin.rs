//! The beginning of a sequence: match, lock, take a slot, map what is shared. One transaction.
use crate::error::Error;
use crate::ids::SequenceId;
use crate::index::{Namespace, Node};
use crate::memory::try_to_vec;
use crate::paging::{PageCopy, RowOwner};
use crate::store::{
    Claim, Found, GroupRoom, PrefixCache, SequenceInfo, Shared, State, Turn, no_cache, page_at,
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
    /// The same for the rows of groups, which slide with each chunk.
    fn of_groups(self, places: usize, positions: usize) -> GroupRoom {
        let is_chunked = self.first > 0 && self.first < positions;
        GroupRoom { places, chunk: if is_chunked { self.first } else { 0 } }
    }

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
    pub(super) origin: Origin,
}

/// From where a sequence has what it need not compute, for the statistics.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin {
    /// A lookup found it.
    Lookup,
    /// A parent has it.
    Parent,
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
    const OWNER: Option<RowOwner> = Some(RowOwner::Sequence);

    fn missing(&self, state: &State, early: usize) -> Result<usize, Error> {
        let slot = self.id.slot();
        if !state.is_being_made(self.id) {
            // The cache was taken off the page table.
            return Err(no_cache());
        }
        let missing = self.pages - state.table.row(slot)?.len();
        state.check_room(missing.saturating_sub(early), 0)?;
        Ok(missing)
    }

    fn make_room(&mut self, _: &mut State, _: usize) -> Result<bool, Error> {
        // It was made at the start.
        Ok(true)
    }

    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        state.extend_row(self.id.slot(), missing, early);
        Ok(())
    }
}

impl State {
    /// Does everything but taking private pages, after making sure that they can be had: those of
    /// all positions, also where only the first get theirs now. `find` looks the tokens up; these
    /// are the first pages of what it finds, as far as they are known.
    pub(super) fn start(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: Room,
        find: impl FnOnce(&PrefixCache, Query<'_>) -> Found,
        known: &[u32],
    ) -> Result<Begun, Error> {
        if tokens.ids.is_empty() {
            return Err(Error::argument("args.tokens: a sequence needs at least one token"));
        }
        let positions = position_count(tokens)?;
        let most = self.table.pages_for(positions.saturating_add(room.reserve), "args.tokens")?;
        let slot = self.table.next_slot()?;
        let cache = self.cache.as_mut().ok_or_else(no_cache)?;
        let images = cache.images.hold_all(tokens.items)?;
        let started = with_query(tokens, &images, |query| {
            self.start_query(namespace, query, slot, (most, room), find)
        });
        if started.is_err() {
            self.cache.as_mut().expect("it was there").images.release(&images);
        }
        started?;
        let new = &mut self.sequences[slot as usize];
        new.images = images;
        let (base, shared, reused) = (new.base, new.shared, new.cached_positions);
        let id = self.occupy(slot);
        self.map_path(slot, base, shared, known);
        let row_pages = room.row_pages(most, positions, reused, self.table.page_size());
        Ok(Begun { id, row_pages, origin: Origin::Lookup })
    }

    /// Finds and locks what is reused, and puts the sequence into a slot that is still free.
    fn start_query(
        &mut self,
        namespace: &Namespace,
        query: Query<'_>,
        slot: u32,
        (row_pages, room): (usize, Room),
        find: impl FnOnce(&PrefixCache, Query<'_>) -> Found,
    ) -> Result<(), Error> {
        let (page_size, has_groups) = (self.table.page_size(), self.has_groups());
        let reuse = match has_groups {
            false => self.find_reuse(query, row_pages, find)?,
            true => {
                self.reserve_group_rows(slot, row_pages)?;
                self.find_group_reuse(query, room.of_groups(row_pages, query.positions), find)?
            }
        };
        let own_keys = &query.keys[reuse.found.pages() * page_size..];
        let no_room = |_| Error::memory("the tokens of a sequence");
        self.reserve_tail(slot, own_keys.len()).map_err(no_room)?;
        let image_spans = try_to_vec(query.images)?;
        self.table.reserve_row(slot, row_pages).map_err(|_| Error::memory("a row"))?;
        let cache = self.cache.as_mut().expect("it was there");
        let matched = cache.take(&reuse.found, reuse.with)?;

        // Nothing can fail from here on.
        assert_eq!(matched.pages, reuse.found.pages());
        let (shared, copied) = (reuse.positions / page_size, reuse.positions % page_size);
        let source = match matched.partial {
            Some(partial) => Some(partial.page),
            None if copied == 0 => None,
            None => Some(page_at(
                cache.index.as_ref(),
                matched.node.expect("the page was found"),
                shared,
            )),
        };
        let new = &mut self.sequences[slot as usize];
        new.tail.extend_from_slice(own_keys);
        (new.namespace, new.began) = (*namespace, self.clears.latest());
        (new.base, new.base_pages, new.shared) = (matched.node, matched.pages, shared);
        (new.positions, new.prompt_positions) = (query.positions, query.positions);
        (new.computed, new.cached_positions) = (reuse.positions, reuse.positions);
        new.cached_tokens = query.tokens_before(reuse.positions);
        new.copy = source.map(|source| PageCopy { source, target: 0, positions: copied });
        new.image_spans = image_spans;
        new.lock = matched.deepest();
        if let Some(node) = new.lock {
            cache.index.lock(node);
        }
        if has_groups {
            new.groups.depths = reuse.found.depths();
            self.map_groups(slot, (matched.node, matched.partial), reuse.positions);
        }
        Ok(())
    }

    /// Maps the first pages of the prefix that ends at a node into a new row, of which some are
    /// known.
    pub(super) fn map_path(&mut self, slot: u32, node: Option<Node>, count: usize, known: &[u32]) {
        let (Some(node), Some(cache)) = (node, &self.cache) else {
            return;
        };
        let row = self.table.extend_shared(slot, count);
        let known = &known[..known.len().min(count)];
        row[..known.len()].copy_from_slice(known);
        if known.len() == count {
            return;
        }
        cache.index.visit_path_from(node, known.len(), &mut |start, pages| {
            let end = (start + pages.len()).min(count);
            if start < end {
                row[start..end].copy_from_slice(&pages[..end - start]);
            }
        });
    }

    /// Whether a sequence waits for its pages: nobody else knows it.
    fn is_being_made(&self, id: SequenceId) -> bool {
        let place = self.sequences.get(id.slot() as usize);
        place.is_some_and(|place| place.id == Some(id) && place.incomplete)
    }

    /// Ends a sequence that doesn't get its pages.
    pub(super) fn abandon(&mut self, begun: &Begun) {
        if self.is_being_made(begun.id) {
            self.end(begun.id.slot());
        }
    }

    /// Shows the sequence to others, now that its row is as long as it begins with: says where the
    /// copy goes, and counts the reuse.
    pub(super) fn finish(&mut self, begun: &Begun) {
        let slot = begun.id.slot();
        let sequence = &mut self.sequences[slot as usize];
        sequence.incomplete = false;
        let (positions, reused) = (sequence.positions, sequence.cached_positions);
        let copied = sequence.copy.as_ref().map_or(0, |copy| copy.positions);
        if let Some(copy) = &mut sequence.copy {
            copy.target = self.table.row(slot).expect("the slot is in use")[sequence.shared];
        }
        if self.has_groups() {
            self.aim_group_copies(slot);
        }
        let cache = self.cache.as_mut().expect("it was there");
        match begun.origin {
            Origin::Lookup => cache.count_lookup(positions, reused, copied),
            Origin::Parent => cache.count_inherit(reused),
        }
    }
}

impl Turn<'_> {
    /// Starts a sequence on what may be a long path, or takes many digests to find.
    #[cold]
    fn start_long(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: Room,
    ) -> Result<Begun, Error> {
        let (descent, digests) = self.descend(namespace, tokens)?;
        let find = |cache: &PrefixCache, query: Query<'_>| {
            cache.find_behind(namespace, query, (&descent, &digests))
        };
        let begun = self.start(namespace, tokens, room, find, descent.pages());
        self.ascend(descent, begun.is_ok());
        begun
    }

    /// Begins a sequence.
    pub fn begin(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: impl Into<Room>,
    ) -> Result<SequenceInfo, Error> {
        let begun = if self.digests_many(tokens) || self.may_be_long(tokens) {
            self.start_long(namespace, tokens, room.into())?
        } else {
            let find = |cache: &PrefixCache, query: Query<'_>| cache.find_query(namespace, query);
            self.start(namespace, tokens, room.into(), find, &[])?
        };
        let mut filled = self.carry_out(begun.row());
        if self.has_groups() {
            filled = filled.and_then(|()| self.extend_groups(begun.id, begun.row_pages, 0));
        }
        if let Err(error) = filled {
            self.abandon(&begun);
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
