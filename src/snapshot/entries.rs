//! Looks at single entries, for a cache that has others below it: nothing here counts as a lookup.
use super::freed::Freed;
use super::spot::Spot;
use super::tree::{Found, Tree};
use super::{Hit, NONE, Namespace, SnapshotCache};
use crate::error::Error;
use crate::ids::PinId;
use crate::memory::{OutOfMemory, try_zeros};
use std::sync::atomic::Ordering::Relaxed;

impl<V> SnapshotCache<V> {
    /// The longest stored prefix, or with `trims` what has most tokens in common, which was used
    /// now, and what is asked of its value. `view` looks at the value under a lock: it must not
    /// call the cache.
    pub(super) fn longest<R>(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        trims: bool,
        view: impl FnOnce(&V) -> R,
    ) -> Option<(usize, R)> {
        let mut nowhere = Spot::NONE;
        self.longest_beyond(namespace, (tokens, 0), trims, &mut nowhere, view)
    }

    /// The tokens of what [`Self::longest`] finds.
    pub(super) fn longest_tokens(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        trims: bool,
    ) -> Result<Option<Vec<u32>>, OutOfMemory> {
        let tree = self.store.read();
        let found = tree.find_by(namespace, tokens, trims);
        found.map(|found| tree.tokens_of(found)).transpose()
    }

    /// What is asked of the value of exactly these tokens.
    pub(super) fn exactly<R>(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        view: impl FnOnce(&V) -> R,
    ) -> Option<R> {
        let tree = self.store.read();
        let node = tree.exact(namespace, tokens)?;
        tree.nodes[node].entry.as_ref().map(|entry| view(&entry.value))
    }

    /// Pins the entry of exactly these tokens.
    pub(super) fn pin<R>(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        view: impl FnOnce(&V) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        let tree = self.store.read();
        let Some(node) = tree.exact(namespace, tokens) else { return Ok(None) };
        let Some(entry) = tree.nodes[node].entry.as_ref() else { return Ok(None) };
        let mut ledger = self.ledger.write();
        ledger.try_reserve()?;
        let pin = ledger.pin(&tree.nodes, node);
        drop(ledger);
        let (bytes, next_token) = (entry.bytes, entry.next_token);
        let (common, value) = (tokens.len(), view(&entry.value));
        Ok(Some(Hit { pin, tokens: common, common, bytes, next_token, value }))
    }

    /// What is asked of the value that a pin keeps.
    pub(super) fn pinned<R>(&self, pin: PinId, view: impl FnOnce(&V) -> R) -> Result<R, Error> {
        let tree = self.store.read();
        let ledger = self.ledger.read();
        let reader = ledger.pins.get(pin).ok_or(Error::StalePin(pin.0))?;
        let reader = &ledger.readers[reader];
        let entry = match reader.node {
            NONE => reader.kept.as_ref(),
            node => tree.nodes[node].entry.as_ref(),
        };
        Ok(view(&entry.expect("a pin keeps a snapshot").value))
    }

    /// The entry of exactly these tokens was used now.
    pub(super) fn refresh(&self, namespace: &Namespace, tokens: &[u32]) {
        let tree = self.store.read();
        if let Some(node) = tree.exact(namespace, tokens) {
            self.use_now(&tree, node);
        }
    }

    pub(super) fn use_now(&self, tree: &Tree<V>, node: u32) {
        let mut ledger = self.ledger.write();
        // Who reads it uses it until the end of the pin.
        if tree.nodes[node].reader.load(Relaxed) == NONE {
            ledger.order.remove(&tree.nodes, node);
            ledger.order.push(&tree.nodes, node);
        }
    }

    /// Removes the entry of exactly these tokens, if its value is the one that is meant.
    pub(super) fn remove_if(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
        freed: &mut Freed<V>,
        is_meant: impl FnOnce(&V) -> bool,
    ) -> bool {
        self.exactly(namespace, tokens, is_meant) == Some(true)
            && self.remove(namespace, tokens, freed)
    }
}

impl<V> Tree<V> {
    /// What a lookup finds that counts tokens in common, or not.
    fn find_by(&self, namespace: &Namespace, tokens: &[u32], trims: bool) -> Option<Found> {
        match trims {
            true => self.find_trimmable(namespace, tokens),
            false => self.find(namespace, tokens),
        }
    }

    /// The tokens of an entry.
    fn tokens_of(&self, found: Found) -> Result<Vec<u32>, OutOfMemory> {
        let mut tokens = try_zeros(found.tokens)?;
        let (mut node, mut end) = (found.node, found.tokens);
        while end > 0 {
            let label = &self.nodes[node].label;
            let from = end - label.len();
            tokens[from..end].copy_from_slice(label.tokens());
            (node, end) = (self.nodes[node].parent, from);
        }
        Ok(tokens)
    }
}
