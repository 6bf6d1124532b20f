//! What an engine computes, into a memory that remembers of which tokens it was; and that whatever
//! a request reads was computed of its own.
use super::library::Counts;
use super::model::Kind;
use super::requests::{Requests, Running};
use super::slips::Slip;
use radixkv::capi::*;

impl Requests {
    pub(super) fn pool_of(&self, group: usize) -> usize {
        self.world.groups[group].pool
    }

    pub(super) fn is_state(&self, group: usize) -> bool {
        self.world.groups[group].kind == Kind::State
    }

    pub(super) fn has_states(&self) -> bool {
        self.world.groups.iter().any(|of| of.kind == Kind::State)
    }

    /// The states that there are after draft tokens, in the group with the fewest.
    pub(super) fn draft_states(&self) -> Option<usize> {
        let states = self.world.groups.iter().filter(|of| of.kind == Kind::State);
        states.map(|of| of.drafts).min()
    }

    /// A state is that of all that is computed, so the library must know how much that is.
    pub(super) fn is_told(&self, at: usize) -> bool {
        !self.has_states() || self.running[at].told == self.running[at].computed
    }

    /// What the next position attends to must be there: mapped or to be copied, and right.
    pub(super) fn verify(&mut self, at: usize) {
        let is_read = self.running[at].computed > 0 && !self.running[at].waits;
        if is_read && self.slips(Slip::SpoiledPage) {
            let row = self.library.group_row(self.running[at].id, 0);
            self.memory.get_mut(&(self.pool_of(0), row[0])).expect("it was computed")[0] ^= 1;
        }
        let (id, has_others) = (self.running[at].id, self.world.groups.len() > 1);
        let row = |group: usize| self.library.group_row(id, group);
        // Pages of two pools may have the same numbers.
        let differs = has_others && self.running[at].computed > 0 && row(0)[0] != row(1)[0];
        let is_read_wrongly = differs && self.slips(Slip::OtherGroup);
        let request = &self.running[at];
        let copies = self.library.copies(request.id);
        let page_size = self.page_size();
        for (group, of) in self.world.groups.iter().enumerate() {
            let row_of = if is_read_wrongly && group == 0 { 1 } else { group };
            let row = self.library.group_row(request.id, row_of);
            let needs = of.kind.needs(request.computed, page_size).unwrap_or_default();
            if self.is_state(group) {
                if request.computed == 0 {
                    continue;
                }
                let reading = copies.iter().find(|copy| copy.group as usize == group);
                let page = reading.map_or(row[0], |copy| copy.source_page);
                let holds = self.memory.get(&(of.pool, page)).expect("the state was computed");
                let wanted = self.hash(group, request.tenant, &request.ids[..request.computed]);
                assert_eq!(holds[0], wanted, "the state of group {group}");
                continue;
            }
            for place in needs {
                assert!(row[place] != 0, "group {group} has a hole at {place}");
                let end = request.computed.min((place + 1) * page_size);
                let reading = |copy: &&rkv_page_copy| {
                    copy.group as usize == group && copy.target_page == row[place]
                };
                let page = copies.iter().find(reading).map_or(row[place], |copy| copy.source_page);
                let holds = self.memory.get(&(of.pool, page)).expect("it was computed");
                for position in place * page_size..end {
                    let attended = of.kind.needs(request.computed, 1).unwrap();
                    if attended.contains(&position) {
                        let wanted = self.hash(group, request.tenant, &request.ids[..=position]);
                        assert_eq!(holds[position % page_size], wanted, "{group} at {position}");
                    }
                }
            }
        }
    }

    /// Carries out what a request waits for.
    pub(super) fn copy(&mut self, at: usize) {
        let id = self.running[at].id;
        for copy in self.library.copies(id) {
            let (group, count) = (copy.group as usize, copy.position_count as usize);
            let pool = self.pool_of(group);
            let source = self.memory.get(&(pool, copy.source_page)).expect("it holds something");
            let source = source.clone();
            let size = self.page_size();
            // A saved state may never be read.
            let is_own = self.library.group_row(id, group).contains(&copy.target_page);
            let is_skipped = is_own && self.slips(Slip::SkippedCopy);
            let target = self.memory.entry((pool, copy.target_page)).or_default();
            target.clear();
            target.resize(size, 0);
            let count = if self.world.groups[group].kind == Kind::State { 1 } else { count };
            if is_skipped {
                continue;
            }
            target[..count].copy_from_slice(&source[..count]);
            self.seen.states += u64::from(self.world.groups[group].kind == Kind::State);
            self.seen.partial += u64::from(group == 0);
        }
        self.library.confirm(id);
        self.running[at].waits = false;
    }

    /// Carries out what children are still to copy of the states of a request.
    pub(super) fn copy_children(&mut self, id: rkv_sequence_id) {
        while self.has_states()
            && let Some(child) =
                self.running.iter().position(|child| child.parent == id && child.waits)
        {
            self.copy(child);
        }
    }

    /// Computes the next chunk of a request, and publishes it, or not.
    pub(super) fn compute(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.rng.usize(..self.running.len());
        if self.running[at].waits {
            self.verify(at);
            return self.copy(at);
        }
        // A step changes the state, which children are still to copy. What they are to copy of a
        // page stays as it is.
        self.copy_children(self.running[at].id);
        let request = &self.running[at];
        let (id, left) = (request.id, request.ids.len() - request.computed);
        if left == 0 {
            return;
        }
        let most = if request.chunk > 0 { request.chunk.min(left) } else { left };
        let mut count = self.rng.usize(1..=most);
        if self.rng.bool() {
            // Where a state may be saved.
            let end = (request.computed + count) / self.page_size() * self.page_size();
            count = if end > request.computed { end - request.computed } else { count };
        }
        let end = request.computed + count;
        if let Err(status) = self.library.allocate_positions(id, end) {
            assert_eq!(status, rkv_status::OutOfPages);
            self.seen.refused += 1;
            return;
        }
        self.verify(at);
        self.write(at, end, false);
        self.running[at].computed = end;
        match self.rng.u32(..10) {
            0..8 if self.running[at].publishes => self.publish(at),
            0..9 => {
                self.library.slide(id, end);
                self.seen.slid += 1;
            }
            _ => {}
        }
        self.verify(at);
    }

    /// Writes what a chunk computes: into pages of the request alone. Of states the last one, or
    /// one after each token.
    pub(super) fn write(&mut self, at: usize, end: usize, leaves_each: bool) {
        let page_size = self.page_size();
        let request = &self.running[at];
        let (id, tenant, ids, computed) =
            (request.id, request.tenant, request.ids.clone(), request.computed);
        for group in 0..self.world.groups.len() {
            let (row, pool) = (self.library.group_row(id, group), self.pool_of(group));
            if self.is_state(group) {
                let ends = if leaves_each { computed + 1..end + 1 } else { end..end + 1 };
                for (&page, end) in row.iter().zip(ends) {
                    let hash = self.hash(group, tenant, &ids[..end]);
                    self.memory.insert((pool, page), vec![hash; page_size]);
                }
                continue;
            }
            for position in computed..end {
                let page = row[position / page_size];
                assert!(page != 0, "group {group} has no page for position {position}");
                let hash = self.hash(group, tenant, &ids[..=position]);
                let holds = self.memory.entry((pool, page)).or_default();
                holds.resize(page_size, 0);
                holds[position % page_size] = hash;
            }
        }
    }

    pub(super) fn all_counts(&self) -> Vec<Counts> {
        (0..self.world.pools.len()).map(|pool| self.library.counts(pool)).collect()
    }

    /// What counts would be without the pages that others evicted since. Those may have come since
    /// too: a count may be less than none.
    pub(super) fn without_gone(&self, mut counts: Vec<Counts>, gone_before: &[u64]) -> Vec<Counts> {
        let gone = self.library.gone().into_iter().zip(gone_before);
        for (of, (gone, before)) in self.world.groups.iter().zip(gone) {
            let (counts, went) = (&mut counts[of.pool], gone - before);
            counts.free += went;
            counts.cached = counts.cached.wrapping_sub(went);
            counts.reclaimable = counts.reclaimable.wrapping_sub(went);
        }
        counts
    }

    /// Each group's pages that came to the cache, and those that went for others.
    fn check_published(
        &mut self,
        before: &[Counts],
        (id, result): (rkv_sequence_id, &rkv_sequence_publish_result),
    ) {
        let groups = self.library.published(id);
        let claimed = groups.iter().map(|group| u64::from(group.claimed_page_count));
        let claimed: Vec<u64> = std::iter::once(result.claimed_page_count).chain(claimed).collect();
        let others = groups.iter().map(|group| u64::from(group.remapped_page_count));
        let remapped: Vec<u64> =
            std::iter::once(result.remapped_page_count).chain(others).collect();
        assert_eq!(claimed.len(), self.world.groups.len());
        for (pool, (before, after)) in before.iter().zip(self.all_counts()).enumerate() {
            let of_pool = |counts: &[u64]| -> u64 {
                let groups = self.world.groups.iter().zip(counts);
                groups.filter(|(of, _)| of.pool == pool).map(|(_, count)| count).sum()
            };
            let cached = before.cached.wrapping_add(of_pool(&claimed));
            assert_eq!(after.cached, cached, "pool {pool}");
            // A child may still read what another page took the place of.
            let gone = before.private - after.private;
            let most = of_pool(&claimed) + of_pool(&remapped);
            let is_read = self.running.iter().any(|request| request.waits);
            assert!(gone == most || (is_read && gone < most), "pool {pool}: {gone} of {most}");
        }
        self.seen.group_remapped += remapped[1..].iter().sum::<u64>();
    }

    /// What is computed of a request can be reused, unless others evicted something since.
    pub(super) fn assert_found(&self, request: &Running, gone_before: &[u64]) {
        let mut longer = request.ids[..request.computed].to_vec();
        longer.push(9);
        let found = self.library.probe(request.tenant, &longer);
        let is_there = found.positions == request.computed;
        let may_go = self.library.gone() != gone_before || self.is_cleared(request);
        assert!(is_there || may_go, "{found:?}");
    }

    pub(super) fn publish(&mut self, at: usize) {
        let request = &self.running[at];
        let (id, computed) = (request.id, request.computed);
        loop {
            let (before, gone_before) = (self.all_counts(), self.library.gone());
            let clears = self.library.clears();
            let result = self.library.publish(id, computed);
            let before = self.without_gone(before, &gone_before);
            if self.library.clears() == clears {
                self.check_published(&before, (id, &result));
            }
            self.seen.remapped += result.remapped_page_count;
            if result.shared_page_count as usize >= computed / self.page_size() {
                break;
            }
            // There was no memory for a later portion.
            assert!(self.world.failures && self.world.slice > 0, "all is published");
        }
        self.running[at].told = computed;
        let whole = computed.is_multiple_of(self.page_size());
        if !whole || !self.has_states() {
            return;
        }
        let gone_before = self.library.gone();
        match self.library.checkpoint(id) {
            Ok(0) => {}
            // Another one may save the same before this is confirmed.
            Ok(_) if self.rng.bool() => self.running[at].waits = true,
            Ok(_) => {
                self.copy(at);
                self.seen.saved += 1;
                let request = &self.running[at];
                if !self.is_cleared(request) {
                    self.assert_found(request, &gone_before);
                }
            }
            Err(status) => assert_eq!(status, rkv_status::OutOfPages),
        }
    }
}
