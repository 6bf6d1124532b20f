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
        let count = self.rng.usize(1..3);
        let (parent, tenant) = (self.running[at].id, self.running[at].tenant);
        let (ids, computed) = (self.running[at].ids.clone(), self.running[at].computed);
        match self.library.fork(parent, count) {
            Ok(children) => {
                for child in children {
                    let info = self.library.info(child);
                    self.add_child(parent, tenant, ids.clone(), info, computed);
                }
                self.seen.forked += 1;
            }
            Err(status) => {
                assert!([rkv_status::OutOfPages, rkv_status::OutOfSlots].contains(&status));
            }
        }
    }

    pub(super) fn add_child(
        &mut self,
        parent: rkv_sequence_id,
        tenant: u32,
        ids: Vec<u32>,
        info: rkv_sequence_info,
        most: usize,
    ) {
        let (id, computed) = (info.sequence, info.cached_position_count as usize);
        let is_cleared =
            self.running.iter().any(|request| request.id == parent && request.is_cleared);
        assert!(computed <= most, "no more than was computed");
        self.seen.inherited += u64::from(computed > 0);
        let waits = info.copy_count > 0;
        self.running.push(Running {
            id,
            tenant,
            prompt: ids.len(),
            ids,
            computed,
            chunk: 0,
            waits,
            parent,
            told: computed,
            accepted: 0,
            is_cleared,
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

    /// A request that goes on from one that was retained.
    pub(super) fn go_on(&mut self) {
        if self.retained.is_empty() {
            return;
        }
        let parent = &self.retained[self.rng.usize(..self.retained.len())];
        let (id, tenant, computed) = (parent.id, parent.tenant, parent.computed);
        let mut ids = parent.ids.clone();
        if ids.len() > 9 * self.page_size() {
            return;
        }
        let more: Vec<u32> = (0..self.rng.usize(..4)).map(|_| self.rng.u32(..3)).collect();
        match self.library.go_on(id, tenant, &more) {
            Ok(info) => {
                ids.extend(more);
                self.add_child(0, tenant, ids, info, computed);
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
