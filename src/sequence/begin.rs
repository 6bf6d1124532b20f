//! The beginning of a sequence: match, lock, take a slot, map what is shared. One transaction.
use crate::error::Error;
use crate::ids::SequenceId;
use crate::index::{Namespace, Node};
use crate::memory::{settle_allocator, try_to_vec, try_touched_room};
use crate::paging::{PageCopy, RowOwner};
use crate::store::{
    Chains, Claim, Descent, Found, GroupRoom, Hold, LongQuery, ParentRows, PrefixCache,
    SequenceInfo, Shared, State, Turn, no_cache, page_at,
};
use crate::token::{Query, TokenList, position_count, with_query};
use std::ops::Range;

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
    pub(super) fn of_groups(self, places: usize, positions: usize) -> GroupRoom {
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
    /// Pages that it shares: the first of its row.
    pub(super) shared: usize,
    /// Pages that the row gets now.
    pub(super) row_pages: usize,
    pub(super) origin: Origin,
    /// What the rows of a child in several groups are still to be written from.
    pub(super) rows: Option<ParentRows>,
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

/// The pages that the row of an incomplete sequence lacks: room for them was made at the start.
pub(super) struct NewRow {
    id: SequenceId,
    pages: usize,
}

impl Claim<()> for NewRow {
    const OWNER: Option<RowOwner> = Some(RowOwner::Sequence);
    const PLACES: bool = true;

    #[inline(always)]
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

    fn place(&mut self, state: &mut State, pages: &[u32]) -> Result<(), Error> {
        // Nobody knows the row, and when the sequence ends they go back with it.
        state.table.extend_taken(self.id.slot(), pages);
        Ok(())
    }

    #[inline(always)]
    fn finish(self, state: &mut State, missing: usize, early: &mut Vec<u32>) -> Result<(), Error> {
        state.extend_row(self.id.slot(), missing, early);
        Ok(())
    }
}

impl State {
    /// Does everything but taking private pages, after making sure that they can be had: those of
    /// all positions, also where only the first get theirs now. `find` looks the tokens up.
    #[inline(always)] // of every request
    fn start(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: Room,
        find: impl FnOnce(&PrefixCache, Query<'_>) -> Found,
    ) -> Result<Begun, Error> {
        let positions = check_prompt(tokens)?;
        let (most, slot) = self.check_place(positions, room)?;
        let cache = self.cache.as_mut().ok_or_else(no_cache)?;
        let images = cache.images.hold_all(tokens.items)?;
        let started = with_query(tokens, &images, |query| {
            let own = self.start_query(namespace, (query, None), slot, (most, room), find)?;
            self.sequences[slot as usize].tail.extend(&query.keys[own..]);
            Ok(())
        });
        if started.is_err() {
            self.cache.as_mut().expect("it was there").images.release(&images);
        }
        started?;
        let begun = self.occupy_begun(slot, images, (most, room));
        let new = &self.sequences[slot as usize];
        self.map_path(slot, new.base, 0..new.shared);
        Ok(begun)
    }

    /// The pages that a row of so many positions may come to, and the slot of the next sequence.
    #[inline(always)] // as above
    fn check_place(&self, positions: usize, room: Room) -> Result<(usize, u32), Error> {
        let all = positions.saturating_add(room.reserve);
        let most = self.table.pages_for(all, "args.reserve_position_count");
        // The prompt may be too long by itself.
        let alone = |error| self.table.pages_for(positions, "args.tokens").and(Err(error));
        Ok((most.or_else(alone)?, self.table.next_slot()?))
    }

    /// Names the sequence that was put into a slot. These are its images.
    #[inline(always)] // as above
    fn occupy_begun(&mut self, slot: u32, images: Vec<u32>, (most, room): (usize, Room)) -> Begun {
        let new = &mut self.sequences[slot as usize];
        new.images = images;
        let (positions, reused) = (new.positions, new.cached_positions);
        let id = self.occupy(slot);
        let row_pages = room.row_pages(most, positions, reused, self.table.page_size());
        let shared = self.sequences[slot as usize].shared;
        Begun { id, shared, row_pages, origin: Origin::Lookup, rows: None }
    }

    /// Finds and locks what is reused, and puts the sequence into a slot that is still free. What
    /// is left to do is to write its row and its tail, the keys from the returned one on: there is
    /// room for both.
    fn start_query(
        &mut self,
        namespace: &Namespace,
        (query, descent): (Query<'_>, Option<&Descent>),
        slot: u32,
        (row_pages, room): (usize, Room),
        find: impl FnOnce(&PrefixCache, Query<'_>) -> Found,
    ) -> Result<usize, Error> {
        let (page_size, has_groups) = (self.table.page_size(), self.has_groups());
        let before = self.row_bytes();
        let reuse = match has_groups {
            false => self.find_reuse(query, row_pages, find)?,
            true => {
                self.reserve_group_rows(slot, row_pages)?;
                let room = room.of_groups(row_pages, query.positions);
                self.find_group_reuse((query, descent), room, find)?
            }
        };
        let own = reuse.found.pages() * page_size;
        let no_room = |_| Error::memory("the tokens of a sequence");
        self.reserve_tail(slot, query.keys.len() - own).map_err(no_room)?;
        let image_spans = try_to_vec(query.images)?;
        self.table.reserve_row(slot, row_pages).map_err(|_| Error::memory("a row"))?;
        self.housekeeping.took(self.row_bytes() - before);
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
            let end = (matched.node, matched.partial);
            let holds = descent.and_then(Descent::row_holds);
            self.map_groups(slot, end, (reuse.positions, &reuse.found), holds);
        }
        Ok(own)
    }

    /// Maps pages of the prefix that ends at a node into a new row that has those before.
    #[inline(always)]
    pub(super) fn map_path(&mut self, slot: u32, node: Option<Node>, places: Range<usize>) {
        let (Some(node), Some(cache)) = (node.filter(|_| !places.is_empty()), &self.cache) else {
            return;
        };
        let row = self.table.row_to_extend(slot, places.len());
        cache.index.add_pages(node, places, row);
    }

    /// Whether a sequence waits for its pages: nobody else knows it.
    pub(super) fn is_being_made(&self, id: SequenceId) -> bool {
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
    #[inline(always)]
    pub(super) fn finish(&mut self, begun: &Begun) {
        let slot = begun.id.slot();
        let sequence = &mut self.sequences[slot as usize];
        sequence.incomplete = false;
        let (positions, reused) = (sequence.positions, sequence.cached_positions);
        let copied = sequence.copy.as_ref().map_or(0, |copy| copy.positions);
        let depths = sequence.groups.depths;
        if let Some(copy) = &mut sequence.copy {
            copy.target = self.table.row(slot).expect("the slot is in use")[sequence.shared];
        }
        if self.has_groups() {
            self.aim_group_copies(slot);
        }
        let cache = self.cache.as_mut().expect("it was there");
        match begun.origin {
            Origin::Lookup => {
                cache.count_lookup(positions, reused, copied);
                cache.count_limit(depths, reused);
            }
            Origin::Parent => cache.count_inherit(reused),
        }
    }
}

/// Positions of a prompt that a sequence can begin with.
#[inline(always)]
fn check_prompt(tokens: TokenList<'_>) -> Result<usize, Error> {
    if tokens.ids.is_empty() {
        return Err(Error::argument("args.tokens: a sequence needs at least one token"));
    }
    position_count(tokens)
}

impl Turn<'_> {
    /// Starts a sequence whose lookup may take longer than others should wait for.
    #[cold]
    fn start_long(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: Room,
    ) -> Result<Begun, Error> {
        if let Some(descent) = self.descend_text(namespace, tokens) {
            return self.start(namespace, tokens, room, |cache, query| {
                cache.find_below(namespace, (query, &[]), &descent)
            });
        }
        let positions = check_prompt(tokens)?;
        let (row_pages, _) = self.check_place(positions, room)?;
        self.make_room_in_next_rows(row_pages)?;
        let mut query = self.ask_long(namespace, tokens, Hold::All)?;
        let mut descent = match self.descend_to_begin(&mut query, positions) {
            Ok(descent) => descent,
            Err(error) => {
                self.end_long(query);
                return Err(error);
            }
        };
        let mut started = self.start_below(&mut query, &descent, (positions, room));
        if let Err(Error::OutOfPages(_)) = started {
            // Those that the call itself uses may be the ones that are missing.
            match self.leave_windows(&mut descent) {
                Ok(false) => {}
                Ok(true) => started = self.start_below(&mut query, &descent, (positions, room)),
                Err(error) => started = Err(error),
            }
        }
        if self.has_groups() && matches!(started, Err(Error::OutOfPages(_))) {
            // So may those of the path that it holds: groups may reuse far less of that than is
            // known. Without the descent it is all looked up in the step.
            started = self
                .begin_anew(&mut descent)
                .and_then(|()| self.start_below(&mut query, &descent, (positions, room)));
        }
        let used_at = self.now().filter(|_| started.is_ok());
        let filled = started.and_then(|(begun, own)| {
            let known = (descent.pages(), descent.row_holds());
            let filled = self.fill(&begun, known, &query.keys().keys[own..]);
            filled.inspect_err(|_| self.abandon(&begun)).map(|()| begun)
        });
        let pages = descent.take_pages();
        self.ascend(descent, used_at);
        self.housekeeping.discard(pages);
        self.end_long(query);
        filled
    }

    /// Makes room for the rows of the next sequence, while others have the lock where that is much.
    pub(super) fn make_room_in_next_rows(&mut self, pages: usize) -> Result<(), Error> {
        let before = self.row_bytes();
        // They are large requests.
        self.unlocked(settle_allocator);
        let slot = self.table.next_slot()?;
        if !self.table.has_room_in_row(slot, pages) {
            let longer = self.room_for_pages(pages).map_err(|_| Error::memory("a row"))?;
            let left = self.state().give_row_room(longer);
            self.housekeeping.discard(left);
        }
        if self.has_groups() {
            self.make_room_in_next_group_rows(pages)?;
        }
        let took = self.row_bytes().saturating_sub(before);
        self.housekeeping.took(took);
        Ok(())
    }

    /// Goes down the path of a prompt, behind which all ids are good then, and there is room for
    /// its tail.
    fn descend_to_begin(
        &mut self,
        query: &mut LongQuery<'_>,
        positions: usize,
    ) -> Result<Descent, Error> {
        let mut descent = self.descend_to_find(query, positions, Chains::Map)?;
        let reused = descent.reused(self.cache()?);
        let checked = match self.check_text_ahead(query.held(), reused) {
            Ok(checked) => checked,
            Err(error) => {
                self.ascend(descent, None);
                return Err(error);
            }
        };
        let keys = positions - descent.known_end() * self.table.page_size();
        if self.make_room_in_next_tail(keys) || checked {
            descent = self.descend_further(query, positions, Chains::Map, descent)?;
        }
        Ok(descent)
    }

    /// Makes room for the tail of the next sequence. Whether that was much, and others were let in.
    fn make_room_in_next_tail(&mut self, keys: usize) -> bool {
        let has_room = |slot: u32| self.sequences[slot as usize].tail.has_room(keys);
        if keys <= self.shared.read_portion() || self.table.next_slot().ok().is_none_or(has_room) {
            return false;
        }
        // Without memory whoever needs the list says so.
        if let Ok(room) = self.unlocked(|| try_touched_room(keys)) {
            let left = self.state().give_tail_room(room);
            self.housekeeping.discard(left);
        }
        true
    }

    /// Starts a sequence after a descent, but for writing its row and its tail, the keys from the
    /// one on that is returned too.
    fn start_below(
        &mut self,
        query: &mut LongQuery<'_>,
        descent: &Descent,
        (positions, room): (usize, Room),
    ) -> Result<(Begun, usize), Error> {
        let (most, slot) = self.check_place(positions, room)?;
        let find = |cache: &PrefixCache, _: Query<'_>| cache.find_behind(query, descent);
        let (namespace, asked) = (query.namespace(), (query.keys(), Some(descent)));
        let own = self.state().start_query(namespace, asked, slot, (most, room), find)?;
        let images = self.state().take_images(query.held());
        let begun = self.state().occupy_begun(slot, images, (most, room));
        self.sequences[slot as usize].shared = 0;
        Ok((begun, own))
    }

    /// Begins a sequence.
    pub fn begin(
        &mut self,
        namespace: &Namespace,
        tokens: TokenList<'_>,
        room: impl Into<Room>,
    ) -> Result<SequenceInfo, Error> {
        let begun = if self.is_long(tokens) && self.is_slow(tokens) {
            self.start_long(namespace, tokens, room.into())?
        } else {
            let find = |cache: &PrefixCache, query: Query<'_>| cache.find_query(namespace, query);
            self.start(namespace, tokens, room.into(), find)?
        };
        let mut filled = self.carry_out(begun.row());
        if self.has_groups() {
            filled = filled.and_then(|()| self.extend_groups(begun.id, begun.row_pages, 0));
        }
        if let Err(error) = filled {
            self.abandon(&begun);
            // Its path may have been cleared meanwhile.
            self.drop_let_go();
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
