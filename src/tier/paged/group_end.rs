//! How a fetch with several groups of layers ends: all groups go on at once from the end that it
//! has brought everything for, or ranks agree on one before that.
use super::poll::Fetched;
use super::table::Table;
use super::work::PageTiers;
use crate::error::Error;
use crate::ids::SequenceId;
use crate::sequence::{GroupLanding, Landed};
use crate::store::{State, Turn};

/// Times that a fetch looks anew for the same end, after the device lost some of it.
const SURPRISES: u32 = 4;

impl PageTiers {
    /// A fetch waits for nothing more: the sequence goes on from the end that it was begun for, or
    /// another one before that is looked for, by the tiers' thread. What came of it, if it has
    /// ended.
    pub(super) fn end_group_load(
        &self,
        table: &mut Table,
        turn: &mut Turn<'_>,
        number: u64,
    ) -> Option<Fetched> {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let id = load.sequence.expect("it is one of a sequence");
        let is_complete = load.done == load.pages.len();
        let is_agreed = !self.agrees || load.is_agreed;
        let plan = load.plan.as_mut().expect("it has one");
        if plan.target > plan.first && !is_complete {
            plan.most = plan.target - 1;
        } else if !is_agreed {
            self.make_group_ready(table, turn.state(), number);
            return None;
        } else if plan.target == plan.first {
            return self.give_group_load_up(table, turn, number);
        } else {
            let (pages, own_from) = (plan.target, plan.own_from());
            let landing = GroupLanding { pages, own_from, row: plan.row };
            let brought = |group: usize, place: usize| plan.is_done(group, place);
            match turn.land_groups(id, landing, &brought) {
                Ok(Some(landed)) => {
                    return self.finish_group_load(table, number, landed);
                }
                Ok(None) => {
                    plan.surprises += 1;
                    if plan.surprises > SURPRISES {
                        plan.most = plan.target - 1;
                    }
                }
                Err(_) => {
                    table.counters.no_memory += 1;
                    return self.give_group_load_up(table, turn, number);
                }
            }
        }
        plan.is_stale = true;
        self.signal.notify();
        None
    }

    /// All that could be had is there, and nobody sees it before the ranks agree.
    fn make_group_ready(&self, table: &mut Table, state: &State, number: u64) {
        let load = table.loads.open.get_mut(&number).expect("it is open");
        if std::mem::replace(&mut load.is_ready, true) {
            return;
        }
        let Some(sequence) = load.sequence else { return };
        let plan = load.plan.as_ref().expect("it has one");
        let positions = match plan.target > plan.first {
            true => plan.target * self.page_size,
            false => state.sequence_info(sequence).map_or(0, |info| info.cached_positions),
        };
        let brought = plan.came.iter().sum::<u64>() as usize;
        let (wanted, is_late) = (load.wanted, load.is_late);
        self.announce_fetched(table, Fetched { sequence, positions, wanted, brought, is_late });
    }

    /// Ranks have agreed on so many positions for a fetch that is ready. One that was begun for
    /// more goes on, for what the last end before that needs.
    pub(super) fn agree_groups(
        &self,
        table: &mut Table,
        turn: &mut Turn<'_>,
        (number, id): (u64, SequenceId),
        positions: usize,
    ) -> Result<Fetched, Error> {
        // Of one that has ended nothing more comes.
        turn.sequence_info(id)?;
        let load = table.loads.open.get_mut(&number).expect("it is open");
        let plan = load.plan.as_mut().expect("it has one");
        let most = positions / self.page_size;
        if most <= plan.first {
            plan.aim_at(plan.first);
        } else if plan.target > most {
            (plan.most, plan.is_stale, load.is_ready) = (most, true, false);
            self.signal.notify();
            return Err(Error::Loading(id.0));
        }
        load.is_agreed = true;
        let Some(done) = self.end_group_load(table, turn, number) else {
            if let Some(load) = table.loads.open.get_mut(&number) {
                (load.is_agreed, load.is_ready) = (false, false);
            }
            turn.sequence_info(id)?;
            return Err(Error::Loading(id.0));
        };
        if done.positions > positions {
            let positions = turn.share_less(id, positions)?;
            return Ok(Fetched { positions, ..done });
        }
        Ok(done)
    }

    /// It goes on from where it would without a fetch.
    fn give_group_load_up(
        &self,
        table: &mut Table,
        turn: &mut Turn<'_>,
        number: u64,
    ) -> Option<Fetched> {
        let load = table.loads.open.get(&number).expect("it is open");
        let id = load.sequence.expect("it is one of a sequence");
        let row = load.plan.as_ref().expect("it has one").row;
        let _ = turn.end_growing(id, row);
        if let Ok(landed) = turn.state().end_group_fetch(id) {
            return self.finish_group_load(table, number, landed);
        }
        self.abandon(table, number);
        None
    }

    fn finish_group_load(&self, table: &mut Table, number: u64, landed: Landed) -> Option<Fetched> {
        let load = table.loads.end(number)?;
        let plan = load.plan.as_ref().expect("it has one");
        let counters = &mut table.counters;
        for (into, came) in counters.fetched.iter_mut().zip(plan.came) {
            *into += came;
        }
        counters.landed_pages += landed.pages as u64;
        let is_all = plan.first + landed.pages >= plan.aim && !load.is_late;
        *if is_all { &mut counters.complete } else { &mut counters.shortened } += 1;
        self.count_end(table, &load);
        let brought = plan.came.iter().sum::<u64>() as usize;
        let (wanted, is_late) = (load.wanted, load.is_late);
        let sequence = load.sequence.expect("it is one of a sequence");
        Some(Fetched { sequence, positions: landed.positions, wanted, brought, is_late })
    }
}
