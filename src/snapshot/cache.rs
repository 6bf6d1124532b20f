//! The verbs: each takes the locks that it needs, in their order, and leaves everything whole.
use super::ledger::Ledger;
use super::nodes::Entry;
use super::recency::Links;
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

/// What is stored: changes to it exclude everybody, lookups go on side by side.
#[derive(Debug)]
pub(super) struct Store<V> {
    pub(super) tree: Tree<V>,
    /// Of the tree's nodes.
    pub(super) links: Links,
    /// Of the last entry.
    serial: u64,
}

/// The cache, for any number of threads.
#[derive(Debug)]
pub struct SnapshotCache<V> {
    limits: SnapshotLimits,
    store: RwLock<Store<V>>,
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
            store: RwLock::new(Store { tree: Tree::new(), links: Links::default(), serial: 0 }),
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
        let SnapshotLimits { entries: entry_limit, bytes: byte_limit } = self.limits;
        if tokens.is_empty() || entry_limit == 0 || byte_limit == 0 || bytes > byte_limit {
            self.ledger.write().counters.rejected += 1;
            freed.push(make());
            return Ok(SnapshotInserted { stored: false, replaced: false, evicted: 0 });
        }
        let mut store = self.store.write();
        let Store { tree, links, serial } = &mut *store;
        let node = tree.make(namespace, tokens)?;
        links.grow(tree.nodes.capacity());
        let mut ledger = self.ledger.write();
        let old = tree.nodes[node].entry.take();
        let replaced = old.is_some();
        if let Some(old) = old {
            ledger.remove(links, node, old, freed);
        }
        *serial += 1;
        let entry = Entry { value: make(), bytes, next_token, serial: *serial };
        tree.nodes[node].entry = Some(entry);
        ledger.add(links, node, bytes);
        ledger.counters.stored += 1;
        ledger.counters.replaced += replaced as u64;
        let evicted = evict(&mut store, &mut ledger, node, freed);
        Ok(SnapshotInserted { stored: true, replaced, evicted })
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
        let store = self.store.read();
        let found = store.tree.find(namespace, tokens, Some(&store.links));
        let found = found.and_then(|found| {
            let entry = store.tree.nodes[found.node].entry.as_ref()?;
            Some((found, entry))
        });
        let mut ledger = self.ledger.write();
        if found.is_some() {
            ledger.pins.check_room()?;
        }
        let counters = &mut ledger.counters;
        counters.lookups += 1;
        counters.lookup_tokens += tokens.len() as u64;
        let Some((found, entry)) = found else { return Ok(None) };
        counters.hits += 1;
        counters.full_hits += (found.tokens == tokens.len()) as u64;
        counters.hit_tokens += found.tokens as u64;
        let pin = ledger.pin(&store.links, found.node, entry.serial);
        drop(ledger);
        let Entry { value, bytes, next_token, .. } = entry;
        let (bytes, next_token) = (*bytes, *next_token);
        Ok(Some(Hit { pin, tokens: found.tokens, bytes, next_token, value: view(value) }))
    }

    /// The length of the longest stored prefix. Changes nothing.
    pub fn probe(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let store = self.store.read();
        store.tree.find(namespace, tokens, None).map_or(0, |found| found.tokens)
    }

    /// Ends a pin.
    pub fn release(&self, pin: PinId, freed: &mut Freed<V>) -> Result<(), Error> {
        let store = self.store.read();
        let mut ledger = self.ledger.write();
        let is_last = ledger.unpin(&store.links, pin, freed)?;
        if is_last && ledger.is_over() && ledger.order.oldest().is_some() {
            drop((ledger, store));
            let mut store = self.store.write();
            evict(&mut store, &mut self.ledger.write(), NONE, freed);
        }
        Ok(())
    }

    /// Removes the entry of exactly these tokens; false when there is none. Readers keep what they
    /// have.
    pub fn remove(&self, namespace: &Namespace, tokens: &[u32], freed: &mut Freed<V>) -> bool {
        let mut store = self.store.write();
        let Some(node) = store.tree.exact(namespace, tokens) else { return false };
        let mut ledger = self.ledger.write();
        remove(&mut store, &mut ledger, node, freed);
        ledger.counters.removed += 1;
        tighten(&mut store, &mut ledger);
        true
    }

    /// Removes every entry. Readers keep what they have.
    pub fn clear(&self, freed: &mut Freed<V>) {
        let mut store = self.store.write();
        let mut ledger = self.ledger.write();
        let mut old = std::mem::replace(&mut store.tree, Tree::new());
        for node in 0..old.nodes.capacity() as u32 {
            if let Some(entry) = old.nodes.get_mut(node).and_then(|node| node.entry.take()) {
                ledger.remove(&store.links, node, entry, freed);
                ledger.counters.removed += 1;
            }
        }
        store.links = Links::default();
        // The old tree takes longest, and nobody has to wait for it.
        drop((ledger, store));
        drop(old);
    }

    /// What the cache holds and counted, at one moment.
    pub fn stats(&self) -> SnapshotStats {
        let store = self.store.read();
        let ledger = self.ledger.read();
        let Store { tree, links, .. } = &*store;
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        SnapshotStats {
            entries: ledger.entries,
            pinned_entries: ledger.pinned,
            entry_bytes: bytes(ledger.bytes - ledger.detached_bytes),
            detached: ledger.detached.len(),
            detached_bytes: bytes(ledger.detached_bytes),
            pins: ledger.pins.out(),
            nodes: tree.nodes.len() - tree.roots.len(),
            namespaces: tree.roots.len(),
            index_bytes: tree.bytes() + links.bytes() + ledger.index_bytes(),
            counters: ledger.counters,
        }
    }

    /// Checks every invariant; names the first that is broken.
    pub fn check(&self) -> Result<(), Error> {
        let store = self.store.read();
        let ledger = self.ledger.read();
        check::check(&store, &ledger).map_err(Error::Corrupt)
    }
}

fn remove<V>(store: &mut Store<V>, ledger: &mut Ledger<V>, node: u32, freed: &mut Freed<V>) {
    let entry = store.tree.nodes[node].entry.take().expect("an entry that is there");
    ledger.remove(&store.links, node, entry, freed);
    store.tree.prune(node);
}

/// Lets entries go, least recently used first, until the limits hold or all that are left are
/// pinned. `keep` was just inserted: it stays, or an insert beside pinned entries would be in vain.
fn evict<V>(
    store: &mut Store<V>,
    ledger: &mut Ledger<V>,
    keep: u32,
    freed: &mut Freed<V>,
) -> usize {
    let mut evicted = 0;
    while ledger.is_over() {
        let Some(oldest) = ledger.order.oldest().filter(|&oldest| oldest != keep) else { break };
        remove(store, ledger, oldest, freed);
        evicted += 1;
    }
    ledger.counters.evicted += evicted as u64;
    if evicted > 0 {
        tighten(store, ledger);
    }
    evicted
}

/// Gives memory back when most of it is unused.
fn tighten<V>(store: &mut Store<V>, ledger: &mut Ledger<V>) {
    if let Some(new) = store.tree.tighten() {
        store.links = ledger.renumber(&store.links, &new, store.tree.nodes.capacity());
    }
}
