//! How long a fetch waits for a remote store.
use super::loads::{Load, Loads, Stage};
use super::map::Name;
use super::table::Table;
use super::work::PageTiers;
use crate::memory::OrderedMap;
use std::time::Instant;

impl Load {
    /// The first page for which it waits for the remote store, which was asked for it, or is
    /// asked whether it has it. `fetching` are the pages that it brings.
    fn waits_at(&self, fetching: &OrderedMap<Name, u64>) -> Option<usize> {
        let mut window = self.window().take_while(|&at| at < self.limit);
        let is_coming = |at: usize| match self.pages[at].stage {
            Stage::Fetching => true,
            // Somebody else has asked for it, and may have given it up.
            Stage::Waiting => fetching.get(&self.pages[at].name).is_some(),
            _ => false,
        };
        let is_asking = self.remote.is_asking();
        if self.plan.is_some() {
            // Of what else it waits for nobody was asked.
            return window.find(|&at| is_coming(at)).or(is_asking.then_some(self.done));
        }
        let is_asked = |at: usize| {
            let is_waiting = matches!(self.pages[at].stage, Stage::Waiting);
            is_asking && is_waiting && self.landed + at >= self.remote.from
        };
        window.find(|&at| is_coming(at) || is_asked(at))
    }
}

impl PageTiers {
    /// Gives up what the remote store has not brought in time. Whether there was any.
    pub(super) fn end_waiting(&self, table: &mut Table, number: u64) -> bool {
        if self.remote.is_none() {
            return false;
        }
        let now = Instant::now();
        let Loads { open, fetching, .. } = &table.loads;
        let Some(load) = open.get(&number).filter(|load| load.remote.is_late(now)) else {
            return false;
        };
        let Some(at) = load.waits_at(fetching) else { return false };
        let name = load.pages.get(at).map(|page| page.name);
        let Loads { carried, fetching, open, .. } = &mut table.loads;
        let bringing = name.and_then(|name| carried.get(&name).or(fetching.get(&name)).copied());
        if bringing.is_some_and(|other| other != number && open.get(&other).is_some()) {
            // Somebody else brings it, or gives it up.
            self.wait_longer(table, number);
            return false;
        }
        let load = table.loads.open.get_mut(&number).expect("it is open");
        load.is_late = true;
        let was_asking = load.remote.is_asking();
        // With several groups nothing more is asked of it, whatever else goes meanwhile: nobody
        // would give that up.
        load.remote.end_waiting(load.plan.is_none().then_some(load.landed + at));
        if let Some(plan) = &mut load.plan {
            plan.refuse_all();
        }
        if load.plan.is_none() || !was_asking {
            load.shorten(at);
        }
        table.counters.remote_late += u64::from(load.sequence.is_some());
        true
    }

    /// That a load goes on is not for the remote store now: its time begins anew.
    pub(super) fn wait_longer(&self, table: &mut Table, number: u64) {
        if let (Some(lowest), Some(load)) = (&self.remote, table.loads.open.get_mut(&number)) {
            load.remote.wait(lowest.remote.timeout());
        }
    }
}
