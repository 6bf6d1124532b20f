//! How a fetch begins, and what ranks agree on.
use super::known::{Beyond, Fetchable};
use super::loads::{Load, LoadPage, Origin, Stage};
use super::map::Name;
use super::poll::Fetched;
use super::rest::{AT_ONCE, Rest};
use super::work::PageTiers;
use crate::error::{Error, text};
use crate::group::{GroupConfig, GroupKind};
use crate::ids::SequenceId;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a fetch may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// As long as it takes.
    Never,
    /// After so long nothing more is begun. None at all: only what host memory has.
    After(Duration),
}

impl Deadline {
    /// When that is.
    pub(super) fn end(self, begun: Instant) -> Option<Instant> {
        match self {
            Self::After(time) if !time.is_zero() => begun.checked_add(time),
            _ => None,
        }
    }
}

/// Pages that one fetch says it uses, at most: that takes a moment.
const USED: usize = 256;

impl PageTiers {
    /// Where what the device has of a sequence ends, and whether the remote store may be asked;
    /// nothing where it has all of one group, which is most of the time.
    pub(super) fn beyond(
        &self,
        id: SequenceId,
        in_row: bool,
    ) -> Result<Option<(Beyond, bool)>, Error> {
        let state = self.shared.read();
        let (first, most) = state.fetchable_pages(id, in_row)?;
        if most == 0 && !self.policy.counts_uses() && !self.groups.are_several() {
            return Ok(None);
        }
        let (last, namespace) = (state.last_shared(id)?, state.namespace_of(id)?);
        let clear = state.latest_clear();
        let may_ask = self.may_ask(&state, &namespace);
        Ok(Some((Beyond { first, last, most, namespace, clear }, may_ask)))
    }

    /// Whether what a fetch uses is noted: one of four, at no regular distance, for callers may
    /// take turns. What is used often is used again.
    fn is_noted(&self) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        asked.wrapping_mul(0x9e37_79b9) < u32::MAX / 4
    }

    /// What the device uses is used below, or would be the first to go there: the last page that a
    /// sequence reuses, which leads to those before it; of groups beside the first, whose pages go
    /// each by itself, what an end there needs. Nobody waits for that.
    fn use_below(&self, id: SequenceId) -> Result<(), Error> {
        let (mut page, end) = {
            let state = self.shared.read();
            let Some((page, _)) = state.last_shared(id)? else { return Ok(()) };
            (page, state.sequence_info(id)?.shared_pages)
        };
        let Some(mut table) = self.try_table() else { return Ok(()) };
        let table = &mut *table;
        let first_of = |group: usize, kind: GroupKind| {
            let needs = kind.needs(end * self.page_size, self.page_size).filter(|_| group > 0);
            needs.map_or(end - 1, |needs| needs.last.start)
        };
        let groups = self.groups.list().iter().enumerate();
        let first = groups.clone().map(|(group, of)| first_of(group, of.kind)).min();
        // From the end up: what comes behind a page needs it.
        for place in (first.unwrap_or(0).max(end.saturating_sub(USED))..end).rev() {
            // It may hold something else by now: then that counts as used.
            let Some(what) = table.pages.get(page).filter(|what| what.group == 0) else { break };
            table.map.tick();
            let needed = |&(group, of): &(usize, &GroupConfig)| place >= first_of(group, of.kind);
            for (group, _) in groups.clone().filter(needed) {
                let name = Name { group: group as u8, ..what.name() };
                if let Some(at) = table.map.find(name) {
                    table.map.touch(at);
                }
            }
            page = what.before;
        }
        Ok(())
    }

    /// Starts to bring what the tiers have of a sequence beyond what it reuses, unless `looks_only`
    /// or there is nothing.
    pub fn fetch(
        &self,
        id: SequenceId,
        deadline: Deadline,
        looks_only: bool,
    ) -> Result<Fetchable, Error> {
        self.shared.check_whole()?;
        if !looks_only && self.is_noted() {
            self.use_below(id)?;
        }
        if self.groups.are_several() {
            return self.fetch_groups(id, deadline, looks_only);
        }
        let host_only = deadline == Deadline::After(Duration::ZERO);
        let Some((beyond, may_ask)) = self.beyond(id, !looks_only)? else {
            return Ok(Fetchable::default());
        };
        let asks = may_ask && !host_only && !looks_only;
        if self.policy.counts_uses() && !looks_only {
            self.table().stores.note_use(beyond.last.map(|(page, _)| page));
        }
        let mut open = None;
        let limit = if looks_only { usize::MAX } else { AT_ONCE };
        let known = self.known(&beyond, limit, (host_only, asks), |at, parent, into| {
            let made = self.shared.read().digest_pages(id, at, (parent, open), into)?;
            open = made.open;
            Ok(made.count)
        })?;
        let (mut found, count) = (known.fetchable(self.page_size), known.names.len());
        let rest = known.last.map(|parent| {
            let (next, end) = (beyond.first + count, beyond.first + beyond.most);
            Rest { next, end, parent, open, asks, known: None }
        });
        if count == 0 || looks_only {
            return Ok(found);
        }
        let table = &mut *self.table();
        if table.is_closing {
            return Ok(Fetchable::default());
        }
        table.reserve_fetch()?;
        let loads = &mut table.loads;
        let mut pages = VecDeque::new();
        pages.try_reserve_exact(count).map_err(crate::memory::OutOfMemory::from)?;
        let own = self.shared.turn().open_fetch(id, beyond.first, count)?;
        if own.is_empty() {
            return Ok(Fetchable::default());
        }
        for ((&name, page), place) in known.names.iter().zip(own).zip(beyond.first..) {
            let (stage, from) = (Stage::Waiting, Origin::Host);
            pages.push_back(LoadPage { name, page, place, stage, from });
        }
        // An earlier one of the same sequence is over: it would be loading else.
        let number = self.shared.number_load();
        loads.numbers.insert(id.0, number);
        let here = known.here;
        // It may have what is still to be hashed, too.
        let most = if asks && rest.is_some() { beyond.most } else { count };
        let mut remote = self.wanted((here, most), &beyond, known.before);
        if rest.is_some() {
            remote.ask_later();
            if asks && here < count {
                found.asked_positions = (beyond.most - here) * self.page_size;
            }
        }
        let mut load = Load::new(Some(id), pages, here, remote);
        load.rest = rest;
        (load.deadline, load.host_only) = (deadline.end(load.begun), host_only);
        loads.open.insert(number, load);
        table.counters.fetches += 1;
        table.counters.wanted_pages += here as u64;
        table.map.tick();
        self.signal.notify();
        Ok(Fetchable { is_begun: true, ..found })
    }

    /// Makes a sequence reuse what all ranks have: so many positions at most. Returns how many.
    pub fn agree(&self, id: SequenceId, positions: usize) -> Result<Fetched, Error> {
        self.shared.check_whole()?;
        let table = &mut *self.table();
        let number = table.loads.numbers.get(&id.0).copied();
        let ready =
            number.filter(|number| table.loads.open.get(number).is_some_and(|load| load.is_ready));
        if let Some(number) = ready {
            let mut turn = self.shared.turn();
            if self.groups.are_several() {
                return self.agree_groups(table, &mut turn, (number, id), positions);
            }
            let shared = turn.sequence_info(id)?.shared_pages;
            let most = (positions / self.page_size).saturating_sub(shared);
            if positions < shared * self.page_size {
                // Of what came nothing is used then. First, as there may be no pages for it: then
                // the fetch waits as before.
                turn.share_less_in_fetch(id, positions)?;
            }
            let most = self.land_all_but_some(table, &mut turn, (number, id), most)?;
            return Ok(self.end_load(table, turn.state(), number, most));
        }
        if number.is_some() {
            // Of one that has ended nothing more comes.
            self.shared.read().sequence_info(id)?;
            return Err(Error::Loading(id.0));
        }
        let positions =
            self.shared.turn().share_less(id, positions).map_err(|error| match error {
                Error::State(message) => Error::state(text!("{message}: agree before computing")),
                error => error,
            })?;
        Ok(Fetched { sequence: id, positions, wanted: 0, brought: 0, is_late: false })
    }
}
