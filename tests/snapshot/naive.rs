//! The specification: a list of entries that is scanned, and a clock.
use super::ops::{Answer, Config, Counts, Op};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A bug to plant in the specification, to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// A use leaves the order of eviction as it is.
    ForgetsUse,
    /// Pinned entries go like others.
    EvictsPinned,
    /// A snapshot that is replaced goes at once, read or not.
    FreesReplaced,
    /// Bytes that only readers keep do not count.
    ForgetsDetached,
    /// The longest prefix is not the one that is found.
    ShorterMatch,
    /// A release does not look at the limits.
    NeverShrinks,
    /// Removing leaves the path behind.
    KeepsPath,
    /// An entry that goes on beyond the prompt is not found.
    NeverTrims,
    /// One is found that has another, shorter one on its way.
    TrimsMore,
}

#[derive(Debug)]
struct Entry {
    ns: u8,
    tokens: Vec<u32>,
    snapshot: u64,
    next: Option<u32>,
    trimmable: bool,
    used: u64,
}

#[derive(Debug)]
struct Snapshot {
    bytes: u64,
    pins: u64,
    destructor: bool,
    /// Of the present cache.
    present: bool,
    /// The cache has let it go: it is about to be destroyed.
    gone: bool,
}

/// How often something rare happened.
pub type Marks = BTreeMap<&'static str, u64>;

#[derive(Debug)]
pub struct Naive {
    config: Config,
    fault: Fault,
    clock: u64,
    entries: Vec<Entry>,
    /// Snapshots that are not destroyed, by number.
    snapshots: BTreeMap<u64, Snapshot>,
    made: u64,
    /// The snapshot of each pin that is out.
    pins: Vec<u64>,
    released: usize,
    armed: VecDeque<Op>,
    /// What the library found, where several would do.
    pub choices: VecDeque<u64>,
    removed_paths: u64,
    counts: Counts,
    pub log: Vec<Answer>,
    pub marks: Marks,
}

impl Naive {
    pub fn new(config: Config, fault: Fault) -> Self {
        Self {
            config,
            fault,
            clock: 0,
            entries: Vec::new(),
            snapshots: BTreeMap::new(),
            made: 0,
            pins: Vec::new(),
            released: 0,
            armed: VecDeque::new(),
            choices: VecDeque::new(),
            removed_paths: 0,
            counts: Counts::default(),
            log: Vec::new(),
            marks: Marks::new(),
        }
    }

    fn mark(&mut self, what: &'static str, happened: bool) {
        *self.marks.entry(what).or_default() += u64::from(happened);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn find(&self, ns: u8, tokens: &[u32]) -> Option<usize> {
        let prefixes = (0..self.entries.len()).filter(|&at| {
            let entry = &self.entries[at];
            entry.ns == ns && tokens.starts_with(&entry.tokens)
        });
        if self.fault == Fault::ShorterMatch {
            return prefixes.min_by_key(|&at| self.entries[at].tokens.len());
        }
        prefixes.max_by_key(|&at| self.entries[at].tokens.len())
    }

    /// The entry with most tokens in common, and how many. A trimmable one counts with those that
    /// it has, another one as a whole. Of several the library takes a whole one, else one that goes
    /// on from no other.
    fn find_trimmable(&mut self, ns: u8, tokens: &[u32]) -> Option<(usize, usize)> {
        let common = |entry: &Entry| {
            let count = entry.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
            let counts = entry.trimmable && self.fault != Fault::NeverTrims;
            let counts = counts || count == entry.tokens.len();
            if entry.ns == ns && counts { count } else { 0 }
        };
        let most = self.entries.iter().map(common).max().filter(|&most| most > 0);
        let most = most?;
        let chosen = self.choices.pop_front();
        let can_be: Vec<usize> =
            (0..self.entries.len()).filter(|&at| common(&self.entries[at]) == most).collect();
        let list = |at: usize| &self.entries[at].tokens;
        let goes_on = |at: usize| {
            let others = can_be.iter().filter(|&&other| other != at);
            others.into_iter().any(|&other| list(at).starts_with(list(other)))
        };
        let more = self.fault == Fault::TrimsMore;
        let good: Vec<usize> =
            can_be.iter().copied().filter(|&at| goes_on(at) == more || can_be.len() == 1).collect();
        let is_chosen = |at: &&usize| Some(self.entries[**at].snapshot) == chosen;
        let at = *good.iter().find(is_chosen).or(good.first()).or(can_be.first())?;
        let (is_longer, is_one_of) = (list(at).len() > most, good.len() > 1);
        self.mark("an entry is found beyond the prompt", is_longer);
        self.mark("one of several entries is chosen", is_one_of);
        Some((at, most))
    }

    fn exact(&self, ns: u8, tokens: &[u32]) -> Option<usize> {
        self.entries.iter().position(|entry| entry.ns == ns && entry.tokens == tokens)
    }

    fn is_stored(&self, snapshot: u64) -> bool {
        self.entries.iter().any(|entry| entry.snapshot == snapshot)
    }

    fn pins_on(&self, entry: &Entry) -> u64 {
        self.snapshots[&entry.snapshot].pins
    }

    /// Bytes of the present cache: of entries, and of what only readers keep.
    fn bytes(&self) -> (u128, u128) {
        let (mut stored, mut detached) = (0, 0);
        let present = self.snapshots.iter().filter(|(_, at)| at.present && !at.gone);
        for (&number, snapshot) in present {
            let sum = if self.is_stored(number) { &mut stored } else { &mut detached };
            *sum += u128::from(snapshot.bytes);
        }
        (stored, detached)
    }

    fn is_over(&self) -> bool {
        let (stored, detached) = self.bytes();
        let detached = if self.fault == Fault::ForgetsDetached { 0 } else { detached };
        self.entries.len() as u64 > self.config.entry_limit
            || stored + detached > u128::from(self.config.byte_limit)
    }

    /// Takes an entry away. Its snapshot goes to `freed` unless somebody reads it.
    fn detach(&mut self, at: usize, freed: &mut Vec<u64>) {
        let entry = self.entries.remove(at);
        if self.pins_on(&entry) == 0 || self.fault == Fault::FreesReplaced {
            self.free(entry.snapshot, freed);
        }
        self.removed_paths += 1;
    }

    fn free(&mut self, number: u64, freed: &mut Vec<u64>) {
        self.snapshots.get_mut(&number).expect("a snapshot goes once").gone = true;
        freed.push(number);
    }

    fn evict(&mut self, keep: Option<u64>, freed: &mut Vec<u64>) -> u64 {
        let mut evicted = 0;
        while self.is_over() {
            let any = self.fault == Fault::EvictsPinned;
            let can_go = |at: &usize| {
                let entry = &self.entries[*at];
                (any || self.pins_on(entry) == 0) && Some(entry.snapshot) != keep
            };
            let oldest =
                (0..self.entries.len()).filter(can_go).min_by_key(|&at| self.entries[at].used);
            let Some(oldest) = oldest else {
                self.mark("over the limits while all are pinned", true);
                break;
            };
            self.detach(oldest, freed);
            evicted += 1;
        }
        self.counts.evicted += evicted;
        evicted
    }

    /// Calls the destructors, one of which may have something to do.
    fn destroy(&mut self, freed: Vec<u64>) {
        for number in freed {
            let gone = self.snapshots.remove(&number).expect("a snapshot is destroyed once");
            if !gone.destructor {
                continue;
            }
            self.log.push(Answer::Destroyed(number));
            if let Some(op) = self.armed.pop_front() {
                self.mark("a destructor calls the library", true);
                self.perform(&op);
            }
        }
    }

    pub fn perform(&mut self, op: &Op) {
        let mut freed = Vec::new();
        let answer = match op {
            Op::Insert { ns, tokens, bytes, next, destructor, trimmable } => {
                let (bytes, destructor) = (*bytes, *destructor);
                let snapshot = Snapshot { bytes, pins: 0, destructor, present: true, gone: false };
                self.insert((*ns, tokens, *trimmable), snapshot, *next, &mut freed)
            }
            Op::Match { ns, tokens, trimmable } => self.lookup(*ns, tokens, *trimmable),
            Op::Probe { ns, tokens } => {
                Answer::Probed(self.find(*ns, tokens).map_or(0, |at| self.entries[at].tokens.len()))
            }
            Op::Release { pin } if !self.pins.is_empty() => {
                let pin = self.pins.remove(*pin as usize % self.pins.len());
                self.release(pin, &mut freed);
                Answer::Released
            }
            Op::ReleaseAgain { .. } if self.released > 0 => Answer::Stale,
            Op::Remove { ns, tokens } => {
                let found = self.exact(*ns, tokens);
                if let Some(at) = found {
                    self.detach(at, &mut freed);
                    self.counts.removed += 1;
                }
                Answer::Removed(found.is_some())
            }
            Op::Clear => {
                self.clear(&mut freed);
                Answer::Done
            }
            Op::Arm(op) => {
                self.armed.push_back((**op).clone());
                Answer::Done
            }
            Op::Recreate => {
                self.mark("a cache is destroyed while pins are out", !self.pins.is_empty());
                self.clear(&mut freed);
                self.snapshots.values_mut().for_each(|snapshot| snapshot.present = false);
                self.counts = Counts::default();
                self.removed_paths = 0;
                Answer::Done
            }
            Op::Release { .. } | Op::ReleaseAgain { .. } => Answer::Done,
        };
        self.destroy(freed);
        self.log.push(answer);
    }

    fn insert(
        &mut self,
        (ns, tokens, trimmable): (u8, &[u32], bool),
        snapshot: Snapshot,
        next: Option<u32>,
        freed: &mut Vec<u64>,
    ) -> Answer {
        self.made += 1;
        let (number, bytes, used) = (self.made, snapshot.bytes, self.tick());
        self.snapshots.insert(number, snapshot);
        let Config { entry_limit, byte_limit } = self.config;
        if tokens.is_empty() || entry_limit == 0 || byte_limit == 0 || bytes > byte_limit {
            self.counts.rejected += 1;
            self.free(number, freed);
            return Answer::Inserted { stored: false, replaced: false, evicted: 0 };
        }
        let old = self.exact(ns, tokens);
        if let Some(at) = old {
            let pinned = self.pins_on(&self.entries[at]) > 0;
            self.mark("a snapshot is replaced while somebody reads it", pinned);
            self.detach(at, freed);
            self.counts.replaced += 1;
        }
        let (tokens, snapshot) = (tokens.to_vec(), number);
        self.entries.push(Entry { ns, tokens, snapshot, next, trimmable, used });
        self.counts.stored += 1;
        let evicted = self.evict(Some(number), freed);
        Answer::Inserted { stored: true, replaced: old.is_some(), evicted }
    }

    fn lookup(&mut self, ns: u8, tokens: &[u32], trimmable: bool) -> Answer {
        self.counts.lookups += 1;
        self.counts.lookup_tokens += tokens.len() as u64;
        let found = match trimmable {
            true => self.find_trimmable(ns, tokens),
            false => self.find(ns, tokens).map(|at| (at, self.entries[at].tokens.len())),
        };
        let Some((at, common)) = found else { return Answer::Miss };
        let entry = &self.entries[at];
        let (number, found, next) = (entry.snapshot, entry.tokens.len(), entry.next);
        let snapshot = self.snapshots.get_mut(&number).unwrap();
        snapshot.pins += 1;
        let bytes = snapshot.bytes;
        self.pins.push(number);
        self.counts.hits += 1;
        self.counts.hit_tokens += common as u64;
        let full = [found, common] == [tokens.len(); 2];
        self.counts.full_hits += u64::from(full);
        let (tokens, common) = (found as u64, common as u64);
        Answer::Hit { snapshot: number, bytes, tokens, common, full, next }
    }

    fn release(&mut self, number: u64, freed: &mut Vec<u64>) {
        self.released += 1;
        let used = self.tick();
        let Some(snapshot) = self.snapshots.get_mut(&number) else { return };
        snapshot.pins -= 1;
        if snapshot.pins > 0 {
            return;
        }
        let present = snapshot.present;
        match self.entries.iter_mut().find(|entry| entry.snapshot == number) {
            Some(_) if self.fault == Fault::ForgetsUse => {}
            Some(entry) => entry.used = used,
            None => self.free(number, freed),
        }
        if present && self.fault != Fault::NeverShrinks {
            let evicted = self.evict(None, freed);
            self.mark("a release shrinks the cache", evicted > 0);
        }
    }

    fn clear(&mut self, freed: &mut Vec<u64>) {
        self.counts.removed += self.entries.len() as u64;
        while !self.entries.is_empty() {
            self.detach(0, freed);
        }
    }

    /// The lists that end at a node: those of entries, and those where two of them part.
    fn nodes(&self) -> u64 {
        let mut nodes = BTreeSet::new();
        for one in &self.entries {
            nodes.insert((one.ns, &one.tokens[..]));
            for other in self.entries.iter().filter(|other| other.ns == one.ns) {
                let pairs = one.tokens.iter().zip(&other.tokens);
                let common = pairs.take_while(|(a, b)| a == b).count();
                nodes.insert((one.ns, &one.tokens[..common]));
            }
        }
        let kept = if self.fault == Fault::KeepsPath { self.removed_paths } else { 0 };
        nodes.iter().filter(|(_, tokens)| !tokens.is_empty()).count() as u64 + kept
    }

    /// What can be counted now; the nodes only where that is quick.
    pub fn counts(&self, with_nodes: bool) -> Counts {
        let (stored, detached) = self.bytes();
        let most = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        let present = self.snapshots.iter().filter(|(_, at)| at.present);
        let namespaces: BTreeSet<_> = self.entries.iter().map(|entry| entry.ns).collect();
        let is_present = |number: &&u64| self.snapshots.get(*number).is_some_and(|at| at.present);
        Counts {
            entries: self.entries.len() as u64,
            entry_bytes: most(stored),
            pinned_entries: self.entries.iter().filter(|e| self.pins_on(e) > 0).count() as u64,
            pins: self.pins.iter().filter(is_present).count() as u64,
            detached: present.filter(|(number, _)| !self.is_stored(**number)).count() as u64,
            detached_bytes: most(detached),
            nodes: if with_nodes { self.nodes() } else { 0 },
            namespaces: namespaces.len() as u64,
            ..self.counts.clone()
        }
    }

    /// Every snapshot that has a destructor and was not destroyed yet, in ascending order.
    pub fn end(&self) -> Vec<u64> {
        let left = self.snapshots.iter().filter(|(_, snapshot)| snapshot.destructor);
        left.map(|(&number, _)| number).collect()
    }
}
