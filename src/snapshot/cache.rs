//! The cache: takes the locks that it needs, in their order, and leaves everything whole.
use super::freed::{Freed, Snapshot};
use super::ledger::Ledger;
use super::nodes::NODE_LIMIT;
use super::tree::Tree;
use super::{
    Counters, ENTRY_LIMIT, Hit, NONE, Namespace, NewSnapshot, SnapshotInserted, SnapshotLimits,
    SnapshotStats, check,
};
use crate::error::Error;
use crate::handles::{Handles, Numbers};
use crate::ids::{HANDLE_LIMIT, PinId};
use crate::lock::RwLock;
use crate::memory::try_box_with;
use crate::token::{TEXT_ID_LIMIT, all_text, bad_id};

/// How far a cache can count. For tests, which come to the ends sooner than anybody else.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct SnapshotBounds {
    /// Nodes of the tree.
    pub nodes: u32,
    /// Pins that are out at once.
    pub pins: u32,
    /// Where the numbers of pins come from.
    pub numbers: &'static Numbers,
    /// What the counters begin with.
    pub counters: Counters,
}

impl Default for SnapshotBounds {
    fn default() -> Self {
        Self {
            nodes: NODE_LIMIT,
            pins: HANDLE_LIMIT,
            numbers: Numbers::shared(),
            counters: Counters::default(),
        }
    }
}

/// The cache, for any number of threads.
#[derive(Debug)]
pub struct SnapshotCache<V> {
    limits: SnapshotLimits,
    /// What is stored: changes to it exclude everybody, lookups go on side by side.
    store: RwLock<Tree<V>>,
    ledger: RwLock<Ledger<V>>,
}

impl<V> SnapshotCache<V> {
    /// An empty cache. Refused when more than 65535 are there.
    pub fn new(limits: SnapshotLimits) -> Result<Self, Error> {
        Self::with_bounds(limits, SnapshotBounds::default())
    }

    /// The same, and how far it can count.
    #[doc(hidden)]
    pub fn with_bounds(limits: SnapshotLimits, bounds: SnapshotBounds) -> Result<Self, Error> {
        let limits = SnapshotLimits { entries: limits.entries.min(ENTRY_LIMIT), ..limits };
        let pins = Handles::new("pins", bounds.numbers, bounds.pins)?;
        Ok(Self {
            limits,
            store: RwLock::new(Tree::new(bounds.nodes)),
            ledger: RwLock::new(Ledger::new(limits, pins, bounds.counters)),
        })
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
            count(&mut self.ledger.write().counters.rejected, 1);
            freed.refuse(make());
            return Ok(SnapshotInserted { stored: false, replaced: false, evicted: 0 });
        }
        let mut tree = self.store.write();
        let plan = tree.plan(namespace, tokens)?;
        let snapshot =
            try_box_with(|| Snapshot { value: make(), bytes, next_token, before: None })?;
        // Nothing needs memory from here on.
        let node = tree.carry_out(namespace, plan);
        let mut ledger = self.ledger.write();
        let old = tree.nodes[node].entry.replace(snapshot);
        let replaced = old.is_some();
        if let Some(old) = old {
            ledger.remove(&tree.nodes, node, old, freed);
        }
        ledger.add(&tree.nodes, node, bytes);
        count(&mut ledger.counters.stored, 1);
        count(&mut ledger.counters.replaced, replaced as usize);
        let evicted = evict(&mut tree, &mut ledger, node, freed);
        tree.join_again();
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
        let tree = self.store.read();
        let found = tree.find(namespace, tokens, true);
        let found = found.and_then(|found| Some((found, tree.nodes[found.node].entry.as_ref()?)));
        let mut ledger = self.ledger.write();
        if found.is_some() {
            ledger.try_reserve()?;
        }
        let counters = &mut ledger.counters;
        count(&mut counters.lookups, 1);
        count(&mut counters.lookup_tokens, tokens.len());
        let Some((found, entry)) = found else { return Ok(None) };
        count(&mut counters.hits, 1);
        count(&mut counters.full_hits, (found.tokens == tokens.len()) as usize);
        count(&mut counters.hit_tokens, found.tokens);
        let pin = ledger.pin(&tree.nodes, found.node);
        drop(ledger);
        let Snapshot { value, bytes, next_token, .. } = &**entry;
        let (bytes, next_token) = (*bytes, *next_token);
        Ok(Some(Hit { pin, tokens: found.tokens, bytes, next_token, value: view(value) }))
    }

    /// The length of the longest stored prefix. Changes nothing.
    pub fn probe(&self, namespace: &Namespace, tokens: &[u32]) -> usize {
        let tree = self.store.read();
        tree.find(namespace, tokens, false).map_or(0, |found| found.tokens)
    }

    /// Ends a pin.
    pub fn release(&self, pin: PinId, freed: &mut Freed<V>) -> Result<(), Error> {
        let tree = self.store.read();
        let mut ledger = self.ledger.write();
        let is_last = ledger.unpin(&tree.nodes, pin, freed)?;
        if is_last && ledger.is_over() && ledger.order.oldest().is_some() {
            drop((ledger, tree));
            let mut tree = self.store.write();
            evict(&mut tree, &mut self.ledger.write(), NONE, freed);
        }
        Ok(())
    }

    /// Removes the entry of exactly these tokens; false when there is none. Readers keep what they
    /// have.
    pub fn remove(&self, namespace: &Namespace, tokens: &[u32], freed: &mut Freed<V>) -> bool {
        let mut tree = self.store.write();
        let Some(node) = tree.exact(namespace, tokens) else { return false };
        let mut ledger = self.ledger.write();
        remove(&mut tree, &mut ledger, node, freed);
        count(&mut ledger.counters.removed, 1);
        tree.tighten(&mut ledger.order);
        tree.join_again();
        true
    }

    /// Removes every entry. Readers keep what they have.
    pub fn clear(&self, freed: &mut Freed<V>) {
        let mut tree = self.store.write();
        let mut ledger = self.ledger.write();
        let entries = ledger.entries;
        let empty = Tree::new(tree.nodes.limit());
        let mut old = std::mem::replace(&mut *tree, empty);
        ledger.remove_all(&mut old.nodes);
        count(&mut ledger.counters.removed, entries);
        // The old tree takes longest, and nobody has to wait for it.
        drop((ledger, tree));
        freed.push_all(old.nodes);
    }

    /// What the cache holds and counted, at one moment.
    pub fn stats(&self) -> SnapshotStats {
        let tree = self.store.read();
        let ledger = self.ledger.read();
        let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        SnapshotStats {
            entries: ledger.entries,
            pinned_entries: ledger.pinned,
            entry_bytes: bytes(ledger.bytes - ledger.detached_bytes),
            detached: ledger.detached(),
            detached_bytes: bytes(ledger.detached_bytes),
            pins: ledger.pins.out(),
            nodes: tree.nodes.len() - tree.roots.len(),
            namespaces: tree.roots.len(),
            index_bytes: size_of::<Self>() + tree.bytes() + ledger.index_bytes(),
            counters: ledger.counters,
        }
    }

    /// Checks every invariant; names the first that is broken.
    pub fn check(&self) -> Result<(), Error> {
        let tree = self.store.read();
        let ledger = self.ledger.read();
        check::check(&tree, &ledger)
    }
}

/// Counts, up to where a counter ends: what an engine sees there is wrong, and harms nobody.
fn count(counter: &mut u64, more: usize) {
    *counter = counter.saturating_add(more as u64);
}

fn remove<V>(tree: &mut Tree<V>, ledger: &mut Ledger<V>, node: u32, freed: &mut Freed<V>) {
    let entry = tree.nodes[node].entry.take().expect("an entry that is there");
    ledger.remove(&tree.nodes, node, entry, freed);
    tree.prune(node);
}

/// Lets entries go, least recently used first, until the limits hold or all that are left are
/// pinned. `keep` was just inserted: it stays, or an insert beside pinned entries would be in vain.
fn evict<V>(tree: &mut Tree<V>, ledger: &mut Ledger<V>, keep: u32, freed: &mut Freed<V>) -> usize {
    let mut evicted = 0;
    while ledger.is_over() {
        let Some(oldest) = ledger.order.oldest().filter(|&oldest| oldest != keep) else { break };
        remove(tree, ledger, oldest, freed);
        evicted += 1;
    }
    count(&mut ledger.counters.evicted, evicted);
    if evicted > 0 {
        tree.tighten(&mut ledger.order);
    }
    evicted
}
