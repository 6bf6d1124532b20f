//! How a fetch begins, and what ranks agree on.
use super::loads::{Load, LoadPage, Origin, Stage};
use super::map::{Level, Name};
use super::poll::Fetched;
use super::table::Table;
use super::work::PageTiers;
use crate::error::{Error, text};
use crate::ids::SequenceId;
use crate::index::Namespace;
use crate::memory::TryGrow;
use crate::token::PageDigest;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Pages whose digests are made before others are let in.
const SLICE: usize = 64;

/// How long a fetch may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// As long as it takes.
    Never,
    /// After so long nothing more is begun. None at all: only what host memory has.
    After(Duration),
}

/// What the tiers have of a sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetchable {
    /// Positions beyond those that it reuses.
    pub positions: usize,
    /// Of those, from the first one on, how many are in host memory.
    pub host_positions: usize,
    /// Positions beyond those for which the remote store is asked.
    pub asked_positions: usize,
    /// A fetch of them was begun.
    pub is_begun: bool,
}

/// Pages of a prefix that the tiers have.
struct Known {
    first: usize,
    names: Vec<Name>,
    /// Of those the first are in host memory.
    in_host: usize,
    /// Of those the first are in host memory or on the disk; the remote store may have the others.
    here: usize,
    namespace: Namespace,
    /// The page before the first.
    before: Option<PageDigest>,
    /// The latest clear.
    clear: u64,
}

impl PageTiers {
    /// The digest before the first page that could be fetched, if that is known.
    fn parent(
        &self,
        table: &Table,
        last: Option<(u32, u64)>,
        has_shared: bool,
        start: PageDigest,
    ) -> Option<PageDigest> {
        match last {
            Some((page, since)) if table.knows(since) => {
                table.pages.get(page).map(|page| page.digest)
            }
            None if !has_shared => Some(start),
            _ => None,
        }
    }

    fn known(
        &self,
        id: SequenceId,
        (host_only, asks): (bool, bool),
        in_row: bool,
    ) -> Result<Known, Error> {
        let state = self.shared.read();
        let (first, most) = state.fetchable_pages(id, in_row)?;
        let (last, namespace) = (state.last_shared(id)?, state.namespace_of(id)?);
        let latest = state.latest_clear();
        let asks = asks && self.may_ask(&state, &namespace);
        drop(state);
        if self.policy.counts_uses() {
            self.table().stores.note_use(last.map(|(page, _)| page));
        }
        let (names, in_host, here) = (Vec::new(), 0, 0);
        let mut known =
            Known { first, names, in_host, here, namespace, before: None, clear: latest };
        if most == 0 {
            return Ok(known);
        }
        let table = self.table();
        let is_current = table.applied.is_some() && table.clear >= latest;
        let parent = self.parent(&table, last, first > 0, namespace.digest());
        drop(table);
        let Some(mut parent) = parent.filter(|_| is_current) else { return Ok(known) };
        known.before = (first > 0).then_some(parent);
        // A miss costs one digest, unless somebody else may have it.
        let (mut digests, mut open, mut room) = ([PageDigest::default(); SLICE], None, 1);
        while known.names.len() < most {
            let count = room.min(most - known.names.len()).min(SLICE);
            let at = first + known.names.len();
            let into = &mut digests[..count];
            let made = self.shared.read().digest_pages(id, at, (parent, open), into)?;
            let table = self.table();
            for &digest in &digests[..made.count] {
                let name = Name { digest, group: 0 };
                match table.find(name) {
                    _ if known.here < known.names.len() => {}
                    Some((_, Level::Host)) => {
                        known.in_host += (known.in_host == known.here) as usize;
                        known.here += 1;
                    }
                    Some((_, Level::Disk)) if !host_only => known.here += 1,
                    _ if asks => {}
                    _ => return Ok(known),
                }
                known.names.try_push(name)?;
                parent = digest;
            }
            if made.count < count {
                break;
            }
            (open, room) = (made.open, 2 * room);
        }
        Ok(known)
    }

    /// Starts to bring what the tiers have of a sequence beyond what it reuses, unless `looks_only`
    /// or there is nothing.
    pub fn fetch(
        &self,
        id: SequenceId,
        deadline: Deadline,
        looks_only: bool,
    ) -> Result<Fetchable, Error> {
        let host_only = deadline == Deadline::After(Duration::ZERO);
        let asks = !host_only && !looks_only;
        let known = self.known(id, (host_only, asks), !looks_only)?;
        let page_size = self.page_size;
        let count = known.names.len();
        let found = Fetchable {
            positions: known.here * page_size,
            host_positions: known.in_host * page_size,
            asked_positions: (count - known.here) * page_size,
            is_begun: false,
        };
        if count == 0 || looks_only {
            return Ok(found);
        }
        let table = &mut *self.table();
        let loads = &mut table.loads;
        loads.open.try_reserve(1)?;
        loads.numbers.try_reserve(1)?;
        let mut pages = VecDeque::new();
        pages.try_reserve_exact(count).map_err(crate::memory::OutOfMemory::from)?;
        let own = self.shared.write().open_fetch(id, known.first, count)?;
        if own.is_empty() {
            return Ok(Fetchable::default());
        }
        for (&name, page) in known.names.iter().zip(own) {
            pages.push_back(LoadPage { name, page, stage: Stage::Waiting, from: Origin::Host });
        }
        let begun = Instant::now();
        let deadline = match deadline {
            Deadline::After(time) if !time.is_zero() => begun.checked_add(time),
            _ => None,
        };
        // An earlier one of the same sequence is over: it would be loading else.
        loads.next += 1;
        let number = loads.next;
        loads.numbers.insert(id.0, number);
        let Known { here, namespace, before, clear, .. } = known;
        let remote = self.wanted((here, count), namespace, before, clear);
        let load = Load {
            remote,
            sequence: id,
            pages,
            landed: 0,
            done: 0,
            limit: count,
            wanted: here,
            deadline,
            begun,
            host_only,
            running: 0,
            is_joined: false,
            was_joined: false,
            is_late: false,
            is_ready: false,
        };
        loads.open.insert(number, load);
        table.counters.fetches += 1;
        table.counters.wanted_pages += here as u64;
        table.map.tick();
        self.signal.notify();
        Ok(Fetchable { is_begun: true, ..found })
    }

    /// Makes a sequence reuse what all ranks have: so many positions at most. Returns how many.
    pub fn agree(&self, id: SequenceId, positions: usize) -> Result<Fetched, Error> {
        let table = &mut *self.table();
        let number = table.loads.numbers.get(&id.0).copied();
        let ready =
            number.filter(|number| table.loads.open.get(number).is_some_and(|load| load.is_ready));
        if let Some(number) = ready {
            let mut turn = self.shared.turn();
            let shared = turn.sequence_info(id)?.shared_pages;
            let most = (positions / self.page_size).saturating_sub(shared);
            let done = self.end_load(table, turn.state(), number, most);
            if done.positions > positions {
                let positions = turn.share_less(id, positions)?;
                return Ok(Fetched { positions, ..done });
            }
            return Ok(done);
        }
        if number.is_some() {
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
