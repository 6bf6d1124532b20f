//! What the stores have done: taken in by the next call, whichever that is, a little at a time, so
//! that no call waits long for another one's.
//!
//! ```text
//! committed ─────────────────────────────► found
//! dropped ───► lost ───────► out of the index
//! loaded ────► came ──┬────► an entry in memory, pinned
//!                     └────► failed
//! ```
//!
//! What came waits in the table until somebody has made what an entry takes long for: he who took
//! it in, or he who asks for it before that one is there.
use super::TieredSnapshots;
use super::fetch::FreedStates;
use super::loads::Came;
use super::lower::Lower;
use super::note::Note;
use super::place::{Place, number};
use super::table::{Pending, Table};
use super::value::{Loaded, Storable, Value};
use super::write::memory_for;
use crate::error::Error;
use crate::ids::PinId;
use crate::memory::Arc;
use crate::snapshot::cache::Ahead;
use crate::snapshot::freed::Snapshot;
use crate::snapshot::spot::Spot;
use crate::snapshot::{Freed, count};
use crate::tier::{Event, LoadError, Source};

impl Lower {
    /// Takes in some of what the store has done. False when there was nothing, or no memory for it.
    fn take_store_events(&self, table: &mut Table) -> bool {
        let mut events = std::mem::take(&mut table.events);
        self.link.store.poll(&mut events);
        let has_some = !events.is_empty();
        for event in events.drain(..) {
            match event {
                Event::Committed { key } => {
                    if let Some(ended) = table.end_write(&self.link, number(&key)) {
                        ended.mark.set_committed();
                    }
                }
                Event::Dropped { key, .. } => {
                    if let Some(ended) = table.end_write(&self.link, number(&key)) {
                        count(&mut table.counters.failed_writes, 1);
                        ended.mark.set_lost();
                        // There is room for it.
                        table.lost.push_back(ended);
                    }
                }
                Event::Loaded { key, target, result, .. } => {
                    let loaded = target.into_any().downcast::<Loaded>().ok();
                    table.loads.come(number(&key), result, loaded);
                }
            }
        }
        table.events = events;
        has_some
    }

    /// Takes out of the index what the store gave up.
    fn remove_lost(&self) {
        loop {
            let table = self.table.read();
            let Some(Pending { note, mark }) = table.lost.front() else { return };
            let (note, mark) = (note.clone(), mark.clone());
            drop(table);
            let is_meant = |place: &Place| place.mark.number == mark.number;
            let (spot, _) = self.index.spot_of(note.list(Spot::NONE), |_| ());
            let mut table = self.change();
            // Somebody else may have done so meanwhile.
            let is_next = |lost: &Pending| Arc::is_same(&lost.mark, &mark);
            if table.lost.front().is_some_and(is_next) {
                table.lost.pop_front();
                self.index.remove_if(note.list(spot), &mut Freed::new(), is_meant);
            }
        }
    }
}

impl<P: Source + 'static> TieredSnapshots<P> {
    /// Takes in what the stores have done. Without `waits`, not when somebody else is about to.
    pub(super) fn take_events(&self, lower: &Lower, waits: bool, freed: &mut FreedStates<P>) {
        while lower.link.store.has_events() {
            let Some(mut table) = lower.try_change(waits) else { return };
            if !lower.take_store_events(&mut table) {
                break;
            }
        }
        self.take_answers(lower, waits);
        loop {
            let table = if waits { Some(lower.table.read()) } else { lower.table.try_read() };
            let Some(table) = table else { return };
            let came = table.loads.first_came();
            let (has_lost, has_retries) = (!table.lost.is_empty(), table.has_retries());
            drop(table);
            if let Some(number) = came {
                self.land(lower, number, freed);
                continue;
            }
            if has_lost {
                lower.remove_lost();
            }
            if has_retries {
                self.retry(lower, waits, freed);
            }
            return;
        }
    }

    /// What a read brought becomes an entry in memory, if it is still waiting for that.
    pub(super) fn land(&self, lower: &Lower, number: u64, freed: &mut FreedStates<P>) {
        let Some((note, is_good)) = lower.table.read().loads.came(number) else { return };
        let arrival = is_good.then(|| self.arrival(&note));
        let below = lower.index.spot_of(note.list(Spot::NONE), |_| ()).0;
        self.ready.want(memory_for(&note.tokens));
        let over = self.memory.evicting();
        let mut table = lower.change();
        let Some(came) = table.loads.take_came(number) else { return };
        table.loads.bytes -= note.bytes();
        let load = &table.loads.loads[&number];
        let (mark, users) = (load.mark.clone(), load.users);
        let Came { result, mut loaded, asking } = came;
        let is_remote = asking.is_some();
        // Of no use where there is another one already.
        let mut unused = None;
        let is_gone = match (&mark, &asking) {
            (Some(mark), _) => lower.link.is_gone(mark),
            (None, asking) => asking
                .as_ref()
                .is_none_or(|asking| asking.is_removed || asking.removals != table.removals),
        };
        let pin = match result {
            Err(why) if users > 0 || !is_remote => {
                let counters = &mut table.counters;
                count(&mut counters.failed_loads, 1);
                count(&mut counters.damaged, (why == LoadError::Damaged) as usize);
                if let Some(mark) = &mark {
                    // Nobody tries for ever.
                    let is_meant = |place: &Place| place.mark.number == mark.number;
                    lower.index.remove_if(note.list(below), &mut Freed::new(), is_meant);
                }
                None
            }
            _ if users == 0 => {
                count(&mut table.counters.late, 1);
                None
            }
            // It was replaced or removed meanwhile.
            _ if is_gone => {
                count(&mut table.counters.failed_loads, is_remote as usize);
                None
            }
            Ok(()) => {
                // What others computed meanwhile is newer, also where memory has let it go already.
                let is_older = is_remote && lower.index.exactly(note.list(below), |_| ()).is_some();
                // Who waits for it may have come after the look.
                let arrival = arrival.or_else(|| Some(self.arrival(&note)));
                let arrived = match (arrival, loaded.take()) {
                    (Some(Ok(arrival)), Some(loaded)) => {
                        let storable = Storable::loaded(&note, *loaded, mark.clone());
                        storable.map_err(Error::from).and_then(|state| {
                            unused = Some(state.clone());
                            self.arrive(&note, arrival, (state, is_older), freed)
                        })
                    }
                    _ => Ok(None),
                };
                let pin = arrived.ok().flatten();
                count(&mut table.counters.failed_loads, (is_remote && pin.is_none()) as usize);
                pin
            }
            Err(_) => None,
        };
        if pin.is_some() {
            if let Some(mark) = &mark {
                lower.link.set_alone(mark, false);
            }
            count(&mut table.counters.loaded, 1);
            count(&mut table.counters.from_remote, is_remote as usize);
        }
        let over_with = table.loads.end_came(number, pin, asking);
        drop(table);
        drop((over_with, unused, loaded));
        if let Some(pin) = pin.filter(|_| is_remote) {
            self.arrived_from_afar(lower, pin, freed);
        } else if is_remote && users > 0 {
            self.go_without(lower, number);
            // Who was told that there is an answer may have looked before that was its end.
            if let Some(lowest) = &lower.lowest {
                lowest.remote.wake();
            }
        }
        self.let_go(lower, false, freed);
        drop(over);
        freed.settle();
    }

    /// What takes long of an entry for what was read, beforehand: where it is to be, unless there
    /// is one.
    fn arrival(&self, note: &Note) -> Result<(Spot, Option<Ahead>), Error> {
        let (spot, there) = self.memory.spot_of(note.list(Spot::NONE), |_| ());
        let is_new = there.is_none() && self.memory.can_hold(&note.entry(note.bytes()));
        Ok((spot, is_new.then(|| self.memory.ahead(note.list(spot))).transpose()?))
    }

    /// Makes an entry in memory of what was read, unless there is one, or a newer one below, and
    /// pins it.
    fn arrive(
        &self,
        note: &Arc<Note>,
        (mut spot, ahead): (Spot, Option<Ahead>),
        (state, is_older): (Arc<Storable<P>>, bool),
        freed: &mut FreedStates<P>,
    ) -> Result<Option<PinId>, Error> {
        if self.memory.exactly(note.list(spot), |_| ()).is_none() {
            if is_older {
                return Ok(None);
            }
            let (new, value) = (note.entry(note.bytes()), Value::Storable(state));
            let ahead = ahead.or_else(|| self.memory.can_hold(&new).then_some(Ahead::NONE));
            match ahead {
                Some(ahead) => {
                    let make = || Snapshot::boxed(&new, || value);
                    spot = self.memory.insert_ahead(new, ahead, false, make, freed)?.1;
                }
                None => _ = self.memory.refuse(value, freed),
            }
        }
        Ok(self.memory.pin(note.list(spot), note.tokens.len(), |_| ())?.map(|hit| hit.pin))
    }
}
