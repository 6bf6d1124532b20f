//! Writes to the store, and room for them: what takes long of each is made before the table is
//! locked, so that nobody waits for it.
use super::fetch::FreedStates;
use super::lower::Lower;
use super::note::Note;
use super::place::{Mark, Place, key};
use super::table::Table;
use super::value::{Storable, Value, Writing};
use super::{TierPolicy, TieredSnapshots};
use crate::error::Error;
use crate::ids::PinId;
use crate::memory::{Arc, OutOfMemory, try_box};
use crate::snapshot::cache::Ahead;
use crate::snapshot::spot::Spot;
use crate::snapshot::{Freed, count};
use crate::tier::{Refused, Source};
use std::sync::atomic::Ordering::Relaxed;

/// Tokens of a list that takes a while to be followed.
const LONG: usize = 1 << 12;
/// Times that what is to go next may be another one, before it goes without having been looked at.
const TRIES: usize = 4;

/// Of a directory, the part that is kept free where states are written when they leave memory.
const AHEAD_PART: u64 = 16;

/// Bytes that an entry and its record take, roughly: tokens in both trees, and in what is written;
/// and what stands for each of them.
pub(super) fn memory_for(tokens: &[u32]) -> usize {
    tokens.len().saturating_mul(3 * size_of::<u32>()).saturating_add(1024)
}

/// What takes long of a write.
pub(super) struct Draft {
    note: Arc<Note>,
    encoded: Box<[u8]>,
    ahead: Ahead,
}

impl Lower {
    /// Whether the directory may have a state some time. One that it refused for its length, when
    /// it came to memory say, is not tried when it goes: it would be counted twice.
    fn may_have<P>(&self, state: &Storable<P>) -> bool {
        self.has_disk && state.unfit_for.load(Relaxed) != self.link.attachment
    }

    /// Makes a draft of a write, and room for it. Not with the table. None when the directory never
    /// has the state.
    pub(super) fn draft<P>(&self, state: &Storable<P>) -> Option<Result<Draft, Error>> {
        self.may_have(state).then(|| {
            let note = &state.note;
            let encoded = note.encode()?;
            self.make_room(note, state.spot(), encoded.len());
            let ahead = self.index.ahead(note.list(state.spot()))?;
            Ok(Draft { note: note.clone(), encoded, ahead })
        })
    }

    /// Lets records go that a new one has no room beside, a few at a time.
    fn make_room(&self, note: &Note, spot: Spot, encoded: usize) {
        let (cost, limit) = (self.link.store.cost(note.bytes(), encoded), self.index.limits.bytes);
        if cost > limit {
            return;
        }
        let room = cost.saturating_add(self.ahead(cost)).min(limit);
        if self.index.has_room(room, None) {
            return;
        }
        let mut is_full = true;
        while is_full {
            let replaced = self.index.exactly(note.list(spot), |place: &Place| place.cost);
            let _table = self.change();
            is_full = self.index.make_some_room(room, replaced, &mut Freed::new());
        }
    }

    /// Bytes that are to be free beside a write of so many. Space comes back with a commit, and
    /// what is written when it leaves memory can't wait for that.
    fn ahead(&self, cost: u64) -> u64 {
        match self.policy {
            TierPolicy::OnEviction => cost.max(self.index.limits.bytes / AHEAD_PART),
            TierPolicy::Through | TierPolicy::AfterUses(_) => 0,
        }
    }

    /// Starts to write a state, in the place of what the store has for its tokens. When that cannot
    /// be, the store has nothing for them: the state in memory goes on without.
    pub(super) fn write<P: Source + 'static>(
        &self,
        table: &mut Table,
        state: &Arc<Storable<P>>,
        draft: Option<Result<Draft, Error>>,
    ) {
        self.offer(table, state);
        if !self.may_have(state) {
            return;
        }
        let draft = draft.filter(|draft| match draft {
            Ok(draft) => Arc::is_same(&draft.note, &state.note),
            Err(_) => true,
        });
        // Room that comes from here on is worth another try.
        let turns = self.link.store.stats().turns();
        let refused = match self.try_write(table, state, draft) {
            Ok(()) => return,
            Err(refused) => refused,
        };
        // What it did not come to take the place of goes all the same.
        table.removed += u64::from(self.remove(state.note.list(state.spot())));
        if refused == Refused::Fragmented {
            self.make_way(&state.note);
        }
        let counters = &mut table.counters;
        let counter = match refused {
            Refused::Full | Refused::Fragmented => &mut counters.full,
            Refused::Busy => &mut counters.busy,
            Refused::Length => {
                state.unfit_for.store(self.link.attachment, Relaxed);
                &mut counters.unfit
            }
            _ => &mut counters.failed_writes,
        };
        count(counter, 1);
        let is_later = matches!(refused, Refused::Full | Refused::Fragmented | Refused::Busy);
        if is_later && !table.try_later(&state.note, turns) {
            // It is not tried again: whoever flushes is told.
            count(&mut table.counters.failed_writes, 1);
        }
    }

    fn try_write<P: Source + 'static>(
        &self,
        table: &mut Table,
        state: &Arc<Storable<P>>,
        draft: Option<Result<Draft, Error>>,
    ) -> Result<(), Refused> {
        let no_memory = |_: OutOfMemory| Refused::OutOfMemory;
        let note = &state.note;
        if note.bytes() == 0 {
            return Err(Refused::Length);
        }
        let draft = match draft {
            Some(draft) => draft,
            // Another one was to be written than was thought.
            None => note.encode().map_err(Error::from).map(|encoded| Draft {
                note: note.clone(),
                encoded,
                ahead: Ahead::NONE,
            }),
        };
        let Draft { encoded, ahead, .. } = draft.map_err(|_| Refused::OutOfMemory)?;
        table.reserve_pending(&self.link).map_err(no_memory)?;
        let source = try_box(Writing(state.clone())).map_err(no_memory)?;
        let mark = Arc::new(Mark::new(&self.link, table.next)).map_err(no_memory)?;
        let place = Place::of_record(&self.link, &mark, note, encoded.len()).map_err(no_memory)?;
        // What goes for it makes room before the store is asked.
        let added = self.add(note, place, false, ahead);
        let added = added.map_err(|_| Refused::OutOfMemory)?.ok_or(Refused::Length)?;
        let (spot, has_replaced) = added;
        table.removed += u64::from(has_replaced);
        state.set_spot(spot);
        if let Err(refused) = self.link.store.put(key(mark.number), encoded, source) {
            self.remove(note.list(spot));
            return Err(refused);
        }
        table.begin_write(note, &mark);
        state.set_mark(Some(mark));
        count(&mut table.counters.writes, 1);
        Ok(())
    }

    /// What takes long of [`Self::rescue`], beforehand.
    fn draft_of_leaving<P>(&self, state: &Storable<P>) -> Option<Result<Draft, Error>> {
        if !self.has(state) {
            let is_wanted = self.policy.wants(state.uses.load(Relaxed), true);
            return if is_wanted { self.draft(state) } else { None };
        }
        if state.note.tokens.len() > LONG && !self.index.is_there(state.spot()) {
            state.set_spot(self.index.spot_of(state.note.list(Spot::NONE), |_| ()).0);
        }
        None
    }

    /// Room that lies in too many pieces takes no state, however much it is: some more go for it,
    /// until the rest of it lies together. With the table.
    fn make_way(&self, note: &Note) {
        let used = self.index.stats().entry_bytes;
        if self.link.store.stats().bytes > used {
            // There is more room with the next commit.
            return;
        }
        let cost = self.link.store.cost(note.bytes(), note.encoded_len());
        let limit = self.index.limits.bytes;
        let room = limit.saturating_sub(used).saturating_add(cost).min(limit);
        self.index.make_some_room(room, None, &mut Freed::new());
    }

    /// A state leaves memory: the store keeps it, if it is worth that.
    fn rescue<P: Source + 'static>(
        &self,
        table: &mut Table,
        state: &Arc<Storable<P>>,
        draft: Option<Result<Draft, Error>>,
    ) {
        let is_wanted = self.policy.wants(state.uses.load(Relaxed), true);
        if self.has(state) {
            self.index.refresh(state.note.list(state.spot()));
            if let Some(mark) = state.mark() {
                self.link.store.touch(key(mark.number));
            }
            if is_wanted && !state.is_copy() {
                // The one that caches share may have had no room for it when it was written.
                self.offer(table, state);
            }
        } else if is_wanted {
            self.write(table, state, draft);
        }
        if let Some(mark) = state.mark().filter(|_| self.has(state)) {
            self.link.set_alone(&mark, true);
        }
    }
}

impl<P: Source + 'static> TieredSnapshots<P> {
    /// Has memory let go what is too much for it, and what is worth it kept below: one at a time,
    /// so that others are let in. How many went.
    pub(super) fn let_go(
        &self,
        lower: &Lower,
        keep_newest: bool,
        freed: &mut FreedStates<P>,
    ) -> usize {
        let (mut gone, mut tries) = (0, 0);
        let state_of = |value: &Value<P>| value.storable().cloned();
        while let Some(next) = self.memory.next_to_go(keep_newest, state_of) {
            let draft = next.as_ref().and_then(|state| lower.draft_of_leaving(state));
            let is_meant = |value: &Value<P>| match (value.storable(), &next) {
                (Some(one), Some(other)) => Arc::is_same(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            let mut table = lower.change();
            let is_any = tries == TRIES;
            if self.memory.evict_one(keep_newest, |value| is_any || is_meant(value), freed) {
                (gone, tries) = (gone + 1, 0);
                let mut draft = draft;
                for value in freed.evicted() {
                    if let Some(state) = value.storable() {
                        lower.rescue(&mut table, state, draft.take());
                    }
                }
            } else {
                tries = (tries + 1).min(TRIES);
            }
            drop(table);
            if let Some(state) = next {
                freed.leave(state);
            }
            freed.settle();
        }
        gone
    }

    /// Writes the state that a pin keeps, unless the store has it, or memory has another one for
    /// its tokens by now.
    pub(super) fn write_pinned(
        &self,
        lower: &Lower,
        pin: PinId,
        freed: &mut FreedStates<P>,
    ) -> Result<(), Error> {
        let state = self.memory.pinned(pin, |value| value.storable().cloned())?;
        let Some(state) = state else { return Ok(()) };
        if !lower.has(&state) {
            let draft = lower.draft(&state);
            let mut table = lower.change();
            if self.memory.is_entry(pin) && !lower.has(&state) {
                lower.write(&mut table, &state, draft);
            }
        }
        // The pin may have been given up meanwhile.
        freed.leave(state);
        Ok(())
    }

    /// Tries again to write what there was no room for, if there may be some now, and it is still
    /// in memory.
    pub(super) fn retry(&self, lower: &Lower, waits: bool, freed: &mut FreedStates<P>) {
        let turns = || lower.link.store.stats().turns();
        let Some(mut table) = lower.try_change(waits) else { return };
        while let Some(note) = table.next_retry(turns) {
            drop(table);
            let state_of = |value: &Value<P>| value.storable().cloned();
            let (spot, state) = self.memory.spot_of(note.list(Spot::NONE), state_of);
            let state = state.flatten();
            let missing = state.as_ref().filter(|state| !lower.has(state));
            let draft = missing.and_then(|state| lower.draft(state));
            table = lower.change();
            table.end_retry();
            let Some(state) = state else { continue };
            let is_it =
                |value: &Value<P>| value.storable().is_some_and(|now| Arc::is_same(now, &state));
            if self.memory.exactly(note.list(spot), is_it) == Some(true) && !lower.has(&state) {
                lower.write(&mut table, &state, draft);
            }
            freed.leave(state);
        }
    }
}

impl TierPolicy {
    pub(super) fn wants(self, uses: u32, is_evicted: bool) -> bool {
        match self {
            Self::Through => true,
            Self::AfterUses(wanted) => uses >= wanted,
            Self::OnEviction => is_evicted,
        }
    }
}
