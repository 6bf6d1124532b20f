//! Requests that have parents: forks, and those that go on from a retained one.
use super::requests::{Requests, Running};
use radixkv::capi::*;

impl Requests {
    /// Children with the same tokens as a request that runs.
    pub(super) fn fork(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        if self.running[at].waits || !self.is_told(at) {
            return;
        }
        let (count, reserve) = (self.rng.usize(1..3), self.reserve());
        let (parent, tenant) = (self.running[at].id, self.running[at].tenant);
        let Running { ids, computed, clears, .. } = &self.running[at];
        let (ids, computed, clears) = (ids.clone(), *computed, *clears);
        match self.library.fork(parent, (count, reserve)) {
            Ok(children) => {
                for child in children {
                    let info = self.library.info(child);
                    let (known, info) = ((tenant, ids.clone()), (info, computed));
                    self.add_child(parent, known, info, (0, clears));
                }
                self.seen.forked += 1;
            }
            Err(status) => {
                let is_short = [rkv_status::OutOfPages, rkv_status::OutOfSlots].contains(&status);
                // The row would be longer than any.
                let is_long = reserve > 0 && status == rkv_status::InvalidArgument;
                assert!(is_short || is_long, "{status:?}");
            }
        }
    }

    /// Positions for which a child gets pages beyond its tokens.
    fn reserve(&mut self) -> usize {
        if self.rng.u32(..4) == 0 { self.rng.usize(1..=2 * self.page_size()) } else { 0 }
    }

    pub(super) fn add_child(
        &mut self,
        parent: rkv_sequence_id,
        (tenant, ids): (u32, Vec<u32>),
        (info, most): (rkv_sequence_info, usize),
        (chunk, clears): (usize, u64),
    ) {
        let (id, computed) = (info.sequence, info.cached_position_count as usize);
        assert!(computed <= most, "no more than was computed");
        self.seen.inherited += u64::from(computed > 0);
        let waits = info.copy_count > 0;
        self.running.push(Running {
            id,
            tenant,
            prompt: ids.len(),
            ids,
            computed,
            chunk,
            waits,
            parent,
            told: computed,
            accepted: 0,
            clears,
            publishes: true,
        });
        self.verify(self.running.len() - 1);
    }

    pub(super) fn retain(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        if self.running[at].waits || !self.is_told(at) {
            return;
        }
        self.library.retain(self.running[at].id);
        self.seen.retained += 1;
        let request = self.running.swap_remove(at);
        self.retained.push(request);
        if self.retained.len() > 4 {
            self.drop_oldest();
        }
    }

    pub(super) fn drop_oldest(&mut self) {
        let gone = self.retained.remove(0);
        self.library.drop_sequence(gone.id);
    }

    /// A request that goes on from one that was retained, or that still runs.
    pub(super) fn go_on(&mut self) {
        let runs = self.rng.u32(..3) == 0;
        let parents = if runs { &self.running } else { &self.retained };
        if parents.is_empty() {
            return;
        }
        let at = self.rng.usize(..parents.len());
        let parent = &parents[at];
        let (id, tenant, computed) = (parent.id, parent.tenant, parent.computed);
        let clears = parent.clears;
        let mut ids = parent.ids.clone();
        if runs && (parent.waits || !self.is_told(at)) {
            return;
        }
        if ids.len() > self.pages_long(9) {
            return;
        }
        let more: Vec<u32> = (0..self.rng.usize(..4)).map(|_| self.rng.u32(..3)).collect();
        let chunk = if self.rng.bool() { 1 + self.rng.usize(..3 * self.page_size()) } else { 0 };
        let reserve = self.reserve();
        match self.library.go_on((id, runs), (tenant, &more), (chunk, reserve)) {
            Ok(info) => {
                ids.extend(more);
                let parent = if runs { id } else { 0 };
                self.add_child(parent, (tenant, ids), (info, computed), (chunk, clears));
                self.seen.followed += u64::from(runs);
            }
            Err(status) => {
                // It may have been displaced.
                use rkv_status::{InvalidArgument, OutOfPages, OutOfSlots, StaleSequence};
                let refused = [OutOfPages, OutOfSlots, InvalidArgument, StaleSequence];
                assert!(refused.contains(&status), "{status:?}");
            }
        }
    }
}
