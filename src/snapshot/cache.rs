//! The verbs: each takes the locks that it needs, in their order, and leaves everything whole.
use super::ledger::{Ledger, Record};
use super::tree::Tree;
use super::{
    ENTRY_LIMIT, Freed, Hit, NONE, Namespace, NewSnapshot, SnapshotInserted, SnapshotLimits,
    SnapshotStats, check,
};
use crate::error::Error;
use crate::ids::PinId;
use crate::lock::RwLock;
use crate::token::{TEXT_ID_LIMIT, all_text, bad_id};
use std::sync::atomic::{AtomicU8, Ordering};

/// The cache, for any number of threads.
#[derive(Debug)]
pub struct SnapshotCache<V> {
    limits: SnapshotLimits,
    tree: RwLock<Tree>,
    ledger: RwLock<Ledger<V>>,
}

impl<V> SnapshotCache<V> {
    /// An empty cache.
    pub fn new(limits: SnapshotLimits) -> Self {
        // Tags 1 to 255: an id is never 0.
        static TAG: AtomicU8 = AtomicU8::new(0);
        let next = |tag: u8| Some(tag % 255 + 1);
        let tag = TAG.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let limits = SnapshotLimits { entries: limits.entries.min(ENTRY_LIMIT), ..limits };
        Self {
            limits,
            tree: RwLock::new(Tree::new()),
            ledger: RwLock::new(Ledger::new(limits, next(tag.unwrap_or(0)).unwrap_or(1))),
        }
    }

    /// Stores a snapshot, in the place of the one for the same tokens if there is one. `make` gives
    /// it, when nothing can fail any more.
    pub fn insert(
        &self,
        new: NewSnapshot<'_>,
        make: impl FnOnce() -> V,
        freed: &mut Freed<V>,
    ) -> Result<SnapshotInserted, Error> {
        let NewSnapshot { namespace, tokens, bytes, next_token } = new;
        if !all_text(tokens) {
            let at = tokens.iter().position(|&id| id >= TEXT_ID_LIMIT).unwrap_or(0);
            return Err(bad_id(at, tokens[at]));
        }
        let SnapshotLimits { entries, bytes: limit } = self.limits;
        if tokens.is_empty() || entries == 0 || limit == 0 || bytes > limit {
            self.ledger.write().counters.rejected += 1;
            freed.push(make());
            return Ok(SnapshotInserted { stored: false, replaced: false, evicted: 0 });
        }
        let mut tree = self.tree.write();
        let mut ledger = self.ledger.write();
        let node = tree.make(namespace, tokens)?;
        let old = tree.nodes[node].entry;
        if old != NONE {
            ledger.detach(old, freed);
            ledger.counters.replaced += 1;
        }
        let entry = ledger.store(Record { value: make(), bytes, next_token, pins: 0, node });
        tree.nodes[node].entry = entry;
        ledger.counters.stored += 1;
        let evicted = evict(&mut tree, &mut ledger, entry, freed);
        Ok(SnapshotInserted { stored: true, replaced: old != NONE, evicted })
    }

    /// Finds the longest stored prefix of `tokens` and pins its snapshot. `view` looks at the value
    /// under a lock: it must not call the cache.
    pub fn find<R>(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        view: impl FnOnce(&V) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        // Held until the pin is there: whoever evicts or removes takes it for writing.
        let tree = self.tree.read();
        let found = tree.find(namespace, tokens);
        let mut ledger = self.ledger.write();
        if found.is_some() {
            ledger.pins.check_room()?;
        }
        let counters = &mut ledger.counters;
        counters.lookups += 1;
        counters.lookup_tokens += tokens.len() as u64;
        let Some(found) = found else { return Ok(None) };
        counters.hits += 1;
        counters.full_hits += (found.tokens == tokens.len()) as u64;
        counters.hit_tokens += found.tokens as u64;
        let (pin, record) = ledger.pin(found.entry);
        let (bytes, next_token) = (record.bytes, record.next_token);
        Ok(Some(Hit { pin, tokens: found.tokens, bytes, next_token, value: view(&record.value) }))
    }

    /// The length of the longest stored prefix. Changes nothing.
    pub fn probe(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        self.tree.read().find(namespace, tokens).map_or(0, |found| found.tokens)
    }

    /// Ends a pin.
    pub fn release(&self, pin: PinId, freed: &mut Freed<V>) -> Result<(), Error> {
        let mut ledger = self.ledger.write();
        let is_last = ledger.unpin(pin, freed)?;
        if is_last && ledger.is_over() && ledger.recency.oldest().is_some() {
            // The locks in their order.
            drop(ledger);
            let mut tree = self.tree.write();
            evict(&mut tree, &mut self.ledger.write(), NONE, freed);
        }
        Ok(())
    }

    /// Removes the entry of exactly these tokens; false when there is none. Readers keep what they
    /// have.
    pub fn remove(&self, namespace: &Namespace, tokens: &[u32], freed: &mut Freed<V>) -> bool {
        let mut tree = self.tree.write();
        let Some(entry) = tree.exact(namespace, tokens) else { return false };
        let mut ledger = self.ledger.write();
        drop_entry(&mut tree, &mut ledger, entry, freed);
        ledger.counters.removed += 1;
        tighten(&mut tree, &mut ledger);
        true
    }

    /// Removes every entry. Readers keep what they have.
    pub fn clear(&self, freed: &mut Freed<V>) {
        let mut old = Tree::new(); // dropped last, when nobody waits any more
        let mut tree = self.tree.write();
        let mut ledger = self.ledger.write();
        for (_, node) in tree.nodes.iter().filter(|(_, node)| node.entry != NONE) {
            ledger.detach(node.entry, freed);
            ledger.counters.removed += 1;
        }
        std::mem::swap(&mut *tree, &mut old);
        ledger.tighten();
    }

    /// What the cache holds and counted, at one moment.
    pub fn stats(&self) -> SnapshotStats {
        let tree = self.tree.read();
        let ledger = self.ledger.read();
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        SnapshotStats {
            entries: ledger.stored,
            pinned_entries: ledger.pinned,
            entry_bytes: bytes(ledger.bytes - ledger.detached_bytes),
            detached: ledger.len() - ledger.stored,
            detached_bytes: bytes(ledger.detached_bytes),
            pins: ledger.pins.out(),
            nodes: tree.nodes.len() - tree.roots.len(),
            namespaces: tree.roots.len(),
            index_bytes: tree.bytes() + ledger.index_bytes(),
            counters: ledger.counters,
        }
    }

    /// Checks every invariant; names the first that is broken.
    pub fn check(&self) -> Result<(), Error> {
        let tree = self.tree.read();
        let ledger = self.ledger.read();
        check::check(&tree, &ledger).map_err(Error::Corrupt)
    }
}

fn drop_entry<V>(tree: &mut Tree, ledger: &mut Ledger<V>, entry: u32, freed: &mut Freed<V>) {
    let node = ledger.detach(entry, freed);
    tree.nodes[node].entry = NONE;
    tree.prune(node);
}

/// Lets entries go, least recently used first, until the limits hold or all that are left are
/// pinned. `keep` was just inserted: it stays, or an insert beside pinned entries would be in vain.
fn evict<V>(tree: &mut Tree, ledger: &mut Ledger<V>, keep: u32, freed: &mut Freed<V>) -> usize {
    let mut evicted = 0;
    while ledger.is_over() {
        let Some(oldest) = ledger.recency.oldest().filter(|&oldest| oldest != keep) else { break };
        drop_entry(tree, ledger, oldest, freed);
        evicted += 1;
    }
    ledger.counters.evicted += evicted as u64;
    if evicted > 0 {
        tighten(tree, ledger);
    }
    evicted
}

/// Gives memory back when most of it is unused.
fn tighten<V>(tree: &mut Tree, ledger: &mut Ledger<V>) {
    if let Some(new) = ledger.tighten() {
        tree.renumber_entries(&new);
    }
    if tree.tighten() {
        for (node, at) in tree.nodes.iter().filter(|(_, at)| at.entry != NONE) {
            ledger.move_to(at.entry, node);
        }
    }
}
