//! Sequences that go on from another one, live or retained: without a lookup, without comparing or
//! hashing a token of the parent.
//!
//! A child locks the node that its parent has locked, maps the pages of the cache up to there and
//! knows the same keys after it. The page that the parent computed in part stays the parent's: the
//! child is told to copy out of it, and the pool keeps it until that is done.
use super::begin::{Begun, Origin, Room};
use crate::error::Error;
use crate::error::text;
use crate::ids::SequenceId;
use crate::index::Namespace;
use crate::memory::{OutOfMemory, TryGrow};
use crate::paging::PageCopy;
use crate::store::{
    GroupRoom, HeldQuery, Hold, Longer, ParentRows, Retained, Sequence, SequenceInfo, Shared,
    State, Turn, Versioned, page_at,
};
use crate::token::{HeldKeys, ImageSpan, Query, TokenList, position_count};

/// How a sequence goes on from another one.
#[derive(Debug, Clone, Copy)]
pub struct Continuation<'a> {
    /// The parent.
    pub parent: SequenceId,
    /// Must be the parent's.
    pub namespace: &'a Namespace,
    /// What comes after the parent's tokens.
    pub suffix: TokenList<'a>,
    /// All tokens of the child, to begin with when there is no parent.
    pub all: Option<TokenList<'a>>,
    /// What gets pages at once.
    pub room: Room,
    /// Take what a parent that is still running has computed.
    pub running: bool,
}

/// What a child takes from its parent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    /// Positions: a token boundary.
    pub(super) positions: usize,
    tokens: usize,
    /// Pages that a row of all positions has, and for which of them there are some at once.
    row_pages: usize,
    /// The same for the rows of groups.
    in_groups: GroupRoom,
    room: Room,
}

/// The tail of a live or retained sequence.
#[derive(Debug, Clone, Copy)]
struct ParentTail(SequenceId);

impl Versioned for ParentTail {
    const NAME: &'static str = "a child";

    fn read(self, state: &State) -> Result<(&[u32], u64), Error> {
        let tail = &state.heritable(self.0)?.tail;
        Ok((tail.keys(), tail.version()))
    }
}

impl State {
    /// The live or retained sequence that an id names.
    fn parent(&self, id: SequenceId) -> Result<&Sequence, Error> {
        let retained = || self.retained.get(id).map(|entry| &entry.sequence);
        let found = self.live_sequence(id).or_else(retained);
        found.ok_or_else(|| self.no_sequence(id))
    }

    /// The same, but for retained ones of what was cleared: they are about to be dropped.
    pub(super) fn heritable(&self, id: SequenceId) -> Result<&Sequence, Error> {
        let parent = self.parent(id)?;
        let is_gone = self.retained.get(id).is_some() && self.is_cleared(parent);
        // Its state is not there yet.
        parent.check_groups_loaded()?;
        if parent.has_unpublished_pages(self.table.page_size()) {
            return Err(Error::state("what a fetch brought is not published yet"));
        }
        if is_gone { Err(Error::StaleSequence(id.0)) } else { Ok(parent) }
    }

    /// The page of a parent at an index where it holds computed positions.
    fn parent_page(&self, parent: SequenceId, index: usize) -> u32 {
        match self.retained.get(parent) {
            None => self.table.row(parent.slot()).expect("it is live")[index],
            Some(Retained { sequence, partial, .. }) if index == sequence.shared => {
                partial.expect("it was computed in part")
            }
            Some(Retained { sequence, .. }) => {
                let cache = self.cache.as_ref().expect("a sequence has a cache");
                page_at(cache.index.as_ref(), sequence.base.expect("it shares pages"), index)
            }
        }
    }

    /// What a child of `more` positions beyond the parent's takes over, of at most `limit`.
    pub(super) fn share(
        &self,
        parent: &Sequence,
        limit: usize,
        (more, room): (usize, Room),
        name: &str,
    ) -> Result<Share, Error> {
        let known = Query {
            keys: &[],
            positions: parent.positions,
            images: &parent.image_spans,
            unchecked: 0,
        };
        let computed = parent.computed(self.table.page_size());
        let mut positions = self.cache()?.reusable(known.boundary(computed.min(limit)), known);
        if self.has_groups() {
            let id = parent.id.expect("it was looked up");
            if !parent.groups.copies().is_empty() {
                return Err(Error::state("the parent waits for copies of its own"));
            }
            // A state can't be taken back, and a window may have passed.
            let exact = known.boundary(computed.min(limit));
            let exact = if self.cache()?.inherits_parts() { exact } else { positions };
            let depths = [exact, positions, 0];
            let found = depths.into_iter().find(|&at| self.can_inherit_groups(id, at));
            positions = found.expect("nothing can always be inherited");
        }
        let tokens = parent.positions.saturating_add(more);
        let most = tokens.saturating_add(room.reserve);
        let row_pages = self.table.pages_for(most, "args.reserve_position_count");
        // The tokens may be too many by themselves.
        let alone = |error| self.table.pages_for(tokens, name).and(Err(error));
        let row_pages = row_pages.or_else(alone)?;
        Ok(Share {
            positions,
            tokens: known.tokens_before(positions),
            row_pages,
            in_groups: room.of_groups(row_pages, tokens),
            room,
        })
    }

    /// Refuses children that would not fit.
    pub(super) fn check_children(&self, share: Share, count: usize) -> Result<(), Error> {
        self.table.check_slots(count)?;
        if !self.has_groups() {
            let own = share.row_pages - share.positions / self.table.page_size();
            return self.check_room(own.saturating_mul(count), 0);
        }
        let needed = self.needed_by_children(share.in_groups, share.positions, count);
        let mut pools = 0..self.table.pool_count();
        pools.try_for_each(|pool| self.check_pool_room(pool, needed[pool], 0))
    }

    /// Does everything for one child but taking private pages, and writing the shared ones to its
    /// row if those are known. `tail` is that of the parent and the suffix, where it is long.
    pub(super) fn start_child(
        &mut self,
        parent: SequenceId,
        share: Share,
        (suffix, suffix_images): (Query<'_>, &[u32]),
        (is_known, tail, rows): (bool, Option<Longer>, Option<ParentRows>),
    ) -> Result<Begun, Error> {
        let no_room = |_: OutOfMemory| Error::memory("a child");
        let page_size = self.table.page_size();
        let (shared, copied) = (share.positions / page_size, share.positions % page_size);
        let slot = self.table.next_slot()?;
        self.table.reserve_row(slot, share.row_pages).map_err(no_room)?;
        self.table.pool.reserve_loans(1).map_err(no_room)?;
        if self.has_groups() {
            self.reserve_group_loans()?;
            self.reserve_group_rows(slot, share.row_pages)?;
        }
        let source = (copied > 0).then(|| self.parent_page(parent, shared));
        let from = self.parent(parent)?;
        let images = concat(&from.images, suffix_images.iter().copied()).map_err(no_room)?;
        let start = from.positions;
        let shift =
            |image: &ImageSpan| ImageSpan { start: start + image.start, end: start + image.end };
        let image_spans =
            concat(&from.image_spans, suffix.images.iter().map(shift)).map_err(no_room)?;
        let tail = tail.filter(|tail| tail.fits(ParentTail(parent), self));
        let rows = rows.filter(|rows| self.fit_parent(parent, (rows, share.positions)));
        if tail.is_none() {
            self.reserve_tail(slot, from.tail().len() + suffix.keys.len()).map_err(no_room)?;
        }

        // Nothing can fail from here on.
        let place = &mut self.sequences[slot as usize];
        let (mut own, groups) =
            (std::mem::take(&mut place.tail), std::mem::take(&mut place.groups));
        self.sequence_bytes -= own.bytes();
        let from = self.parent(parent).expect("it was looked up");
        match tail {
            Some(tail) => own = tail.into_list().into(),
            None => {
                own.extend(from.tail());
                own.extend(suffix.keys);
            }
        }
        self.sequence_bytes += own.bytes();
        let from = self.parent(parent).expect("it was looked up");
        let positions = from.positions + suffix.positions;
        let mut child = Sequence {
            number: self.sequences[slot as usize].number,
            namespace: from.namespace,
            began: from.began,
            lock: from.base,
            base: from.base,
            base_pages: from.base_pages,
            shared,
            tail: own,
            positions,
            prompt_positions: positions,
            computed: share.positions,
            cached_positions: share.positions,
            cached_tokens: share.tokens,
            inherited: Some(share.positions),
            copy: source.map(|source| PageCopy { source, target: 0, positions: copied }),
            images,
            image_spans,
            groups,
            ..Sequence::default()
        };
        let cache = self.cache.as_mut().expect("a sequence has a cache");
        if let Some(base) = child.base {
            cache.index.lock(base);
        }
        let whole = Query { keys: &[], positions, images: &child.image_spans, unchecked: 0 };
        child.groups.depths = cache.depths_of_child(share.positions, whole);
        let held = child.images.len() - suffix_images.len();
        cache.images.add_uses(&child.images[..held]);
        let base = child.base;
        self.sequences[slot as usize] = child;
        let id = self.occupy(slot);
        if self.has_groups() {
            let holds = rows.as_ref().and_then(ParentRows::holds);
            self.inherit_groups(parent, (slot, share.positions), holds);
        }
        match self.retained.get(parent) {
            _ if is_known => self.sequences[slot as usize].shared = 0,
            None => self.table.share_row(slot, parent.slot(), shared),
            Some(_) => self.map_path(slot, base, 0..shared),
        }
        // A page of the cache is protected by the lock on the node, which ends there or later.
        if let Some(page) = source.filter(|&page| !self.table.pool.is_cached(page)) {
            self.table.pool.lend(page, slot);
        }
        let Share { positions: reused, row_pages, room, .. } = share;
        let row_pages = room.row_pages(row_pages, positions, reused, page_size);
        Ok(Begun { id, shared, row_pages, origin: Origin::Parent, rows })
    }

    /// What a continuation takes over. None when there is no such parent, but all tokens to begin
    /// with.
    fn share_for_continuation(&self, how: &Continuation<'_>) -> Result<Option<Share>, Error> {
        let parent = match self.heritable(how.parent) {
            Err(Error::StaleSequence(_)) if how.all.is_some() => return Ok(None),
            found => found?,
        };
        check_namespace(&parent.namespace, how.namespace)?;
        if !how.running && self.live_sequence(how.parent).is_some() {
            return Err(Error::Pending(how.parent.0));
        }
        let more = position_count(how.suffix)?;
        // A token at least is computed: one of the suffix, or the parent's last again.
        let limit = parent.positions - (more == 0) as usize;
        let share = self.share(parent, limit, (more, how.room), "args.tokens")?;
        self.check_children(share, 1)?;
        Ok(Some(share))
    }
}

impl Shared {
    /// Begins a sequence that goes on from another one.
    pub fn continue_from(&self, how: &Continuation<'_>) -> Result<SequenceInfo, Error> {
        let mut turn = self.turn();
        let known = turn.pages_of(how.parent)?;
        match turn.start_continuation(how, !known.is_empty())? {
            Some(begun) => {
                turn.touch_path_of(&begun);
                turn.complete(&[begun], &known)?;
                turn.sequence_info(begun.id)
            }
            None => {
                let begun = turn.begin(how.namespace, how.all.expect("it was looked at"), how.room);
                begun.map_err(|error| error.within("args.all_tokens"))
            }
        }
    }
}

impl Turn<'_> {
    /// None when there is no such parent, but all tokens to begin with.
    fn start_continuation(
        &mut self,
        how: &Continuation<'_>,
        is_known: bool,
    ) -> Result<Option<Begun>, Error> {
        let Some(share) = self.share_for_continuation(how)? else { return Ok(None) };
        let mut suffix = self.hold_query(how.suffix, Hold::All)?;
        let started = self.start_continuation_with(how, share, &mut suffix, is_known);
        self.end_query(suffix);
        started
    }

    fn start_continuation_with(
        &mut self,
        how: &Continuation<'_>,
        mut share: Share,
        suffix: &mut HeldQuery<'_>,
        is_known: bool,
    ) -> Result<Option<Begun>, Error> {
        self.check_text_ahead(suffix, 0)?;
        suffix.keys().check_text(0)?;
        let tail = match self.tail_of_child(how.parent, suffix.keys().keys) {
            // The parent went while others were let in.
            Err(Error::StaleSequence(_)) if how.all.is_some() => return Ok(None),
            read => read?,
        };
        let made = self.make_room_for_child(share)?;
        let (let_in, rows) = self.use_parent_rows(how.parent, share.positions)?;
        self.with_parent_rows(rows, |turn| {
            if tail.is_some() || made || let_in || !HeldKeys::lie_there(how.suffix) {
                // Others were let in.
                let Some(now) = turn.share_for_continuation(how)? else { return Ok(None) };
                share = now;
            }
            let images = turn.images_of(suffix)?;
            let child = (suffix.keys(), &images[..]);
            let begun = turn.start_child(how.parent, share, child, (is_known, tail, rows))?;
            // In the same step: they are the child's now, and others may be let in.
            turn.take_images(suffix);
            Ok(Some(begun))
        })
    }

    /// Starts a child, for which rows of its parent are in use; ends that unless the child takes it
    /// over.
    pub(super) fn with_parent_rows(
        &mut self,
        rows: Option<ParentRows>,
        start: impl FnOnce(&mut Self) -> Result<Option<Begun>, Error>,
    ) -> Result<Option<Begun>, Error> {
        let started = start(self);
        let is_taken = matches!(&started, Ok(Some(Begun { rows: Some(_), .. })));
        if let Some(rows) = rows.filter(|_| !is_taken) {
            self.end_parent_rows(rows);
        }
        started
    }

    /// Makes room for the rows of a child, if those are long. Whether others were let in.
    pub(super) fn make_room_for_child(&mut self, share: Share) -> Result<bool, Error> {
        let are_long = share.row_pages > self.shared.read_portion();
        if are_long {
            self.make_room_in_next_rows(share.row_pages)?;
        }
        Ok(are_long)
    }

    /// A copy of a parent's tail and what comes after it, if to write it takes longer than others
    /// should wait for.
    pub(super) fn tail_of_child(
        &mut self,
        parent: SequenceId,
        suffix: &[u32],
    ) -> Result<Option<Longer>, Error> {
        let of = ParentTail(parent);
        if of.read(self)?.0.len() + suffix.len() <= self.shared.read_portion() {
            return Ok(None);
        }
        let mut longer = self.longer(of, suffix.len())?;
        if !suffix.is_empty() {
            self.unlocked(|| longer.extend(suffix));
        }
        Ok(Some(longer))
    }

    /// The pages on the path of a parent, if to read them takes long.
    pub(super) fn pages_of(&mut self, parent: SequenceId) -> Result<Vec<u32>, Error> {
        let base = match self.retained.get(parent) {
            Some(entry) => entry.sequence.base,
            // A row is quicker to read.
            None => {
                let live = self.live_sequence(parent);
                live.filter(|live| self.is_long_row(live.shared)).and_then(|live| live.base)
            }
        };
        base.map_or(Ok(Vec::new()), |base| self.read_ahead(base))
    }

    /// The path that a child has from its parent was used now.
    pub(super) fn touch_path_of(&mut self, child: &Begun) {
        let place = self.sequences.get(child.id.slot() as usize);
        let child = place.filter(|place| place.id == Some(child.id));
        if let Some(base) = child.and_then(|child| child.base) {
            // Without a cache there is no child any more, as `complete` will see.
            let _ = self.touch(base);
        }
    }

    /// Writes the pages that children share to their rows if those are known, and takes the pages
    /// that they lack, for all or for none.
    pub(super) fn complete(&mut self, children: &[Begun], known: &[u32]) -> Result<(), Error> {
        let done = children.iter().try_for_each(|child| {
            if !known.is_empty() || child.rows.is_some() {
                let holds = child.rows.as_ref().and_then(ParentRows::holds);
                self.fill(child, (known, holds), &[])?;
            }
            self.carry_out(child.row())?;
            match self.has_groups() {
                false => Ok(()),
                true => self.extend_groups(child.id, child.row_pages, 0),
            }
        });
        match done {
            Ok(()) => children.iter().for_each(|child| self.finish(child)),
            Err(_) => {
                children.iter().for_each(|child| self.abandon(child));
                // Their path may have been cleared meanwhile.
                self.drop_let_go();
            }
        }
        self.end_rows_of(children);
        done
    }

    pub(super) fn end_rows_of(&mut self, children: &[Begun]) {
        let rows = children.iter().filter_map(|child| child.rows);
        rows.for_each(|rows| self.end_parent_rows(rows));
    }
}

/// Refuses another namespace than the parent's, in the words of the field.
fn check_namespace(parent: &Namespace, child: &Namespace) -> Result<(), Error> {
    let field = match (parent, child) {
        (parent, child) if parent == child => return Ok(()),
        (parent, child) if parent.lora != child.lora => "lora_id",
        (parent, child) if parent.salt != child.salt => "salt",
        (parent, child) if parent.epoch != child.epoch => "epoch",
        _ => "image_digest",
    };
    Err(Error::argument(text!("args.space: {field} is not the parent's")))
}

/// A list and what comes after it.
fn concat<T: Copy>(
    first: &[T],
    more: impl ExactSizeIterator<Item = T>,
) -> Result<Vec<T>, OutOfMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(first.len() + more.len())?;
    all.extend_from_slice(first);
    all.try_extend(more)?;
    Ok(all)
}
