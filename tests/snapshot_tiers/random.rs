//! Random calls, and a disk that does random things, beside a model that knows only which version
//! of what is the last one: whatever is found is that one, and nothing that could be kept is lost.
use crate::memory_store::MemoryStore;
use crate::runs::runs;
use crate::world::{BYTES, World};
use fastrand::Rng;
use radixkv::ids::HandleId;
use radixkv::snapshot::SnapshotLimits;
use radixkv::snapshot::tiered::{FreedSnapshots, TierPolicy};
use radixkv::tier::{Dropped, LoadError};
use std::collections::BTreeMap;
use std::time::Duration;

/// Steps of one run, and runs.
const STEPS: usize = 400;
const RUNS: u64 = 2000;

/// Lists of up to four tokens, few enough to be asked for again.
fn list(rng: &mut Rng) -> Vec<u32> {
    (0..rng.usize(1..=4)).map(|_| rng.u32(0..2)).collect()
}

struct Run {
    world: World,
    rng: Rng,
    /// The last version of each list, and whether it may be written.
    versions: BTreeMap<Vec<u32>, (u32, bool)>,
    /// The list of each version.
    lists: Vec<Vec<u32>>,
    /// The most lists that could be below at once.
    most: usize,
    /// Tickets that are out, with what was asked for and the tokens that they bring.
    tickets: Vec<(HandleId, Vec<u32>, usize)>,
    /// The disk fails at times.
    is_faulty: bool,
    trims: bool,
    limits: SnapshotLimits,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let bytes = if rng.bool() { u64::MAX } else { rng.u64(1..5) * BYTES };
        let limits = SnapshotLimits { entries: rng.usize(1..5), bytes };
        let policies =
            [TierPolicy::Through, TierPolicy::OnEviction, TierPolicy::AfterUses(rng.u32(1..3))];
        let policy = policies[rng.usize(0..3)];
        let queue = if rng.bool() { usize::MAX } else { rng.usize(1..3) };
        let below = if rng.bool() { 64 } else { rng.u64(1..6) };
        let mut world = World::with(limits, MemoryStore::new(below * BYTES, queue), policy);
        let trims = rng.bool();
        world.trims = trims;
        let is_faulty = rng.bool();
        let (versions, lists, tickets) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { world, rng, versions, lists, most: 0, tickets, is_faulty, trims, limits }
    }

    /// What was found is the last version of its list, and that list is what was asked for.
    fn check(&self, tokens: &[u32], found: (usize, u32)) {
        let list = &self.lists[found.1 as usize];
        let known = self.versions.get(list).map(|&(version, _)| version);
        assert_eq!(known, Some(found.1), "{tokens:?} found {found:?}");
        assert_eq!(list.len(), found.0);
        assert!(self.world.trims && list[0] == tokens[0] || tokens.starts_with(list));
    }

    /// Whether a list that may be written has so many tokens in common with these.
    fn may_be_below(&self, tokens: &[u32], common: usize) -> bool {
        let is_meant = |list: &[u32]| match self.world.trims {
            true => list.starts_with(&tokens[..common]),
            false => list == &tokens[..common],
        };
        self.versions.iter().any(|(list, &(_, is_storable))| is_storable && is_meant(list))
    }

    fn step(&mut self) {
        let Self { world, rng, .. } = self;
        let freed = &mut FreedSnapshots::new();
        match rng.u32(0..100) {
            0..25 => {
                let (tokens, is_storable) = (list(rng), rng.u32(0..8) > 0);
                let version = self.lists.len() as u32;
                world.insert_in(&Default::default(), &tokens, version, is_storable);
                self.lists.push(tokens.clone());
                self.versions.insert(tokens, (version, is_storable));
                self.most = self.most.max(self.versions.len());
            }
            25..45 => {
                let tokens = list(rng);
                let (hit, fetchable) = world.find(&tokens);
                if let Some((length, version, _)) = hit {
                    assert!(self.world.trims || fetchable == 0 || fetchable > length);
                    self.check(&tokens, (length, version));
                }
                assert!(fetchable == 0 || self.may_be_below(&tokens, fetchable));
                // A lookup goes on where an earlier one came to; a fetch begins at the root.
                if self.rng.bool()
                    && let Some(fetch) = self.world.fetch(&tokens)
                {
                    // With the pin memory may have let go what it had, and that pushed others out.
                    let list = hit.map_or(&[][..], |hit| &self.lists[hit.1 as usize]);
                    let known = list.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
                    let common = fetch.common;
                    assert!(common <= fetchable.max(known), "{tokens:?}: {common}");
                    self.tickets.push((fetch.ticket, tokens, fetch.tokens));
                }
            }
            45..60 => {
                let tokens = list(rng);
                if let Some(fetch) = world.fetch(&tokens) {
                    assert!(self.world.trims || fetch.common == fetch.tokens);
                    assert!(self.may_be_below(&tokens, fetch.common));
                    self.tickets.push((fetch.ticket, tokens, fetch.tokens));
                }
            }
            60..70 if !self.tickets.is_empty() => {
                let at = rng.usize(0..self.tickets.len());
                let (ticket, tokens, length) = self.tickets[at].clone();
                if rng.u32(0..4) == 0 {
                    world.cache.cancel(ticket, freed).unwrap();
                    self.tickets.swap_remove(at);
                } else if let Some(taken) = world.take(ticket) {
                    self.tickets.swap_remove(at);
                    if let Some(found) = taken {
                        assert_eq!(found.0, length);
                        self.check(&tokens, found);
                    }
                }
            }
            70..75 => {
                let tokens = list(rng);
                world.remove(&tokens);
                self.versions.remove(&tokens);
            }
            75..85 => {
                let fails = self.is_faulty && rng.u32(0..4) == 0;
                world.store.write(rng.usize(..), fails.then_some(Dropped::Io));
            }
            85..90 => world.store.commit(),
            90..98 => {
                let fails = self.is_faulty && rng.u32(0..4) == 0;
                world.store.read(rng.usize(..), fails.then_some(LoadError::Damaged), fails);
            }
            98 if rng.u32(0..8) == 0 => {
                world.cache.clear(freed);
                self.versions.clear();
            }
            99 if rng.u32(0..4) == 0 => self.restart(),
            _ => world.cache.check().unwrap(),
        }
    }

    /// Another process goes on with the directory, after everything was written.
    fn restart(&mut self) {
        let mut freed = FreedSnapshots::new();
        for (ticket, ..) in self.tickets.drain(..) {
            self.world.cache.cancel(ticket, &mut freed).unwrap();
        }
        // What is on its way arrives: a removal that is not committed would come undone.
        let is_flushed = self.world.cache.flush(Duration::from_secs(60), &mut freed);
        drop(freed);
        let writes_all = self.world.policy == TierPolicy::Through && !self.is_faulty;
        let all = self.versions.values().filter(|known| known.1).count();
        let entries = self.world.stats().entries;
        let again = self.world.restarted(self.limits);
        assert_eq!(again.stats().entries, entries);
        let counters = self.world.stats().counters;
        if writes_all && is_flushed && counters.full + counters.busy + counters.no_memory == 0 {
            let room = (self.world.stats().store.capacity / BYTES) as usize;
            // Of what had to go for others some may have room again.
            let is_all = self.most <= room;
            assert!(entries <= all.min(room), "no more than fits was written");
            assert!(entries == all || !is_all, "all that fits was written");
        }
        self.world = again;
        self.world.trims = false;
        // Only what was written is there now.
        let there = |tokens: &Vec<u32>| {
            let found = self.world.bring(tokens);
            found.filter(|found| found.0 == tokens.len())
        };
        let mut kept = BTreeMap::new();
        for (tokens, &(version, _)) in &self.versions {
            let in_memory = self.world.find(tokens).0;
            let in_memory = in_memory.filter(|found| found.0 == tokens.len());
            let found = there(tokens).or(in_memory.map(|found| (found.0, found.1)));
            if let Some(found) = found {
                assert_eq!(found, (tokens.len(), version), "{tokens:?} after a restart");
                kept.insert(tokens.clone(), (version, true));
            }
        }
        self.world.trims = self.trims;
        assert_eq!(kept.len(), entries, "nothing is there that should not be");
        self.most = kept.len();
        self.versions = kept;
    }
}

#[test]
fn t01_random_calls_over_a_disk_that_does_what_it_likes() {
    for seed in 0..runs(RUNS) {
        let mut run = Run::new(seed);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                run.step();
            }
            let freed = &mut FreedSnapshots::new();
            for (ticket, ..) in run.tickets.drain(..) {
                run.world.cache.cancel(ticket, freed).unwrap();
            }
        }));
        if let Err(panic) = result {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
