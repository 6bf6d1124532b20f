//! Loads that wait for what another one brings.
use super::map::Name;
use super::table::Table;
use super::work::PageTiers;
use crate::group::GroupKind;

/// What a load got that waited for another one.
pub(super) enum Came {
    /// It did not wait, or waits for nothing any more.
    Nothing,
    /// What became the cache's meanwhile, if anything did.
    Some,
    /// Its sequence has ended.
    Ended,
}

impl PageTiers {
    /// Whether sequences share a page on the device. Of a state each has its own.
    pub(super) fn is_shared(&self, name: Name) -> bool {
        self.groups.list()[usize::from(name.group)].kind != GroupKind::State
    }

    /// Another fetch brings the next page.
    pub(super) fn join(&self, table: &mut Table, number: u64) {
        let Table { loads, counters, .. } = table;
        let load = loads.open.get_mut(&number).expect("it is open");
        load.is_joined = true;
        counters.joined += u64::from(!std::mem::replace(&mut load.was_joined, true));
    }

    /// Who brings what a load waited for goes on, or has given it up: some of it may be the cache's
    /// by now.
    pub(super) fn take_what_came(&self, table: &mut Table, number: u64) -> Came {
        let load = table.loads.open.get(&number).expect("it is open");
        let waited = load.is_joined && load.running == 0 && load.plan.is_none();
        let Some(id) = load.sequence.filter(|_| waited) else { return Came::Nothing };
        let came = (load.done, load.limit);
        let mut turn = self.shared.turn();
        if !turn.is_loading(id) {
            return Came::Ended;
        }
        self.land_some(table, turn.state(), (number, id), came);
        Came::Some
    }
}
