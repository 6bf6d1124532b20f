//! Looks at single entries, for a cache that has others below it: nothing here counts as a lookup.
use super::freed::Freed;
use super::search::NODE;
use super::spot::{Exact, Spot};
use super::tree::Tree;
use super::{Hit, NONE, SnapshotCache};
use crate::error::Error;
use crate::ids::PinId;
use crate::lock::RwLockReadGuard;
use crate::memory::{OutOfMemory, try_zeros};
use std::sync::atomic::Ordering::Relaxed;

impl<V> SnapshotCache<V> {
    /// What is asked of the value of exactly these tokens.
    pub(super) fn exactly<R>(&self, list: Exact<'_>, view: impl FnOnce(&V) -> R) -> Option<R> {
        self.spot_of(list, view).1
    }

    /// Pins the entry of exactly these tokens, for a list that begins with so many of them: for
    /// fewer than all if it can be trimmed.
    pub(super) fn pin<R>(
        &self,
        list: Exact<'_>,
        common: usize,
        view: impl FnOnce(&V) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        let (tree, Some(end)) = self.follow(list) else { return Ok(None) };
        match tree.entry_at(&end, list.tokens.len()) {
            Some(node) => self.pin_at(&tree, node, (list.tokens.len(), common), view),
            None => Ok(None),
        }
    }

    /// The same of the entry of so many tokens that a pin keeps, unless it is none any more.
    pub(super) fn pin_again<R>(
        &self,
        pin: PinId,
        (tokens, common): (usize, usize),
        view: impl FnOnce(&V) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        let tree = self.store.read();
        let ledger = self.ledger.read();
        let reader = ledger.pins.get(pin).ok_or_else(|| Error::StalePin(pin.0))?;
        let node = ledger.readers[reader].node;
        drop(ledger);
        if node == NONE { Ok(None) } else { self.pin_at(&tree, node, (tokens, common), view) }
    }

    fn pin_at<R>(
        &self,
        tree: &Tree<V>,
        node: u32,
        (tokens, common): (usize, usize),
        view: impl FnOnce(&V) -> R,
    ) -> Result<Option<Hit<R>>, Error> {
        // Another one may have come for the same tokens, whose end nobody can take away.
        if common < tokens && !tree.nodes.is_trimmable(node) {
            return Ok(None);
        }
        let Some(entry) = tree.nodes[node].entry.as_ref() else { return Ok(None) };
        let mut ledger = self.ledger.write();
        ledger.try_reserve()?;
        let pin = ledger.pin(&tree.nodes, node);
        drop(ledger);
        let (bytes, next_token, value) = (entry.bytes, entry.next_token, view(&entry.value));
        Ok(Some(Hit { pin, tokens, common, bytes, next_token, value }))
    }

    /// Whether what a pin keeps is an entry still.
    pub(super) fn is_entry(&self, pin: PinId) -> bool {
        let ledger = self.ledger.read();
        ledger.pins.get(pin).is_some_and(|reader| ledger.readers[reader].node != NONE)
    }

    /// What is asked of the value that a pin keeps.
    pub(super) fn pinned<R>(&self, pin: PinId, view: impl FnOnce(&V) -> R) -> Result<R, Error> {
        let tree = self.store.read();
        let ledger = self.ledger.read();
        let reader = ledger.pins.get(pin).ok_or_else(|| Error::StalePin(pin.0))?;
        let reader = &ledger.readers[reader];
        let entry = match reader.node {
            NONE => reader.kept.as_ref(),
            node => tree.nodes[node].entry.as_ref(),
        };
        Ok(view(&entry.expect("a pin keeps a snapshot").value))
    }

    /// The entry of exactly these tokens was used now. Returns where they lead to.
    pub(super) fn refresh(&self, list: Exact<'_>) -> Spot {
        let (tree, Some(end)) = self.follow(list) else { return Spot::NONE };
        if let Some(node) = tree.entry_at(&end, list.tokens.len()) {
            self.use_now(&tree, node);
        }
        Spot::new(&tree.nodes, end.node, end.tokens)
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
        list: Exact<'_>,
        freed: &mut Freed<V>,
        is_meant: impl FnOnce(&V) -> bool,
    ) -> bool {
        self.exactly(list, is_meant) == Some(true) && self.remove_exact(list, freed)
    }

    /// The tokens of the entry at a spot, of which the first are known; none when it is not there
    /// any more. Others are let in on the way.
    pub(super) fn tokens_at(
        &self,
        spot: Spot,
        first: &[u32],
    ) -> Result<Option<Vec<u32>>, OutOfMemory> {
        let Some((mut node, mut end)) = spot.place() else { return Ok(None) };
        let mut tokens = try_zeros(end)?;
        tokens[..first.len()].copy_from_slice(first);
        let mut tree = self.store.read();
        let mut left = self.stretch;
        while end > first.len() {
            if left == 0 {
                RwLockReadGuard::bump(&mut tree);
                self.store.check();
                left = self.stretch;
            }
            // Nobody changes what is above an entry, but the nodes may be others.
            if !tree.nodes.is_still(node, spot.gone()) {
                return Ok(None);
            }
            let label = &tree.nodes[node].label;
            let from = end - label.len();
            tokens[from..end].copy_from_slice(label.tokens());
            (node, end) = (tree.nodes[node].parent, from);
            left = left.saturating_sub(label.len() + NODE);
        }
        Ok(Some(tokens))
    }
}
