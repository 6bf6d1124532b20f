//! Entries that go for the limits, least recently used first.
use super::cache::{SLICE, Store, end_pruning, remove};
use super::freed::Freed;
use super::ledger::Ledger;
use super::search::{end_change, let_others_in};
use super::tree::Tree;
use super::{SnapshotCache, count};
use crate::lock::Writing;
use crate::memory::settle_allocator;

/// Says that a cache may be over its limits, since somebody is about to let entries go.
pub(super) struct Evicting<'a, V>(&'a SnapshotCache<V>);

impl<V> Drop for Evicting<'_, V> {
    fn drop(&mut self) {
        self.0.ledger.write().evicting -= 1;
    }
}

impl<V> SnapshotCache<V> {
    /// Lets entries go, least recently used first, until the limits hold or all that are left are
    /// pinned; and others in after every few of them. With `keep_newest` the newest stays: what was
    /// just inserted, or an insert beside pinned entries would be in vain.
    pub(super) fn evict<'a>(
        &'a self,
        tree: &mut Store<'_, V>,
        mut ledger: Writing<'a, Ledger<V>>,
        keep_newest: bool,
        freed: &mut Freed<V>,
    ) -> usize {
        let mut evicted = 0;
        loop {
            let (gone, more) = evict_some(tree, &mut ledger, keep_newest, freed);
            evicted += gone;
            count(&mut ledger.counters.evicted, gone);
            if !more {
                return evicted;
            }
            ledger.evicting += 1;
            drop(ledger);
            let_others_in(tree);
            ledger = self.ledger.write();
            ledger.evicting -= 1;
        }
    }

    /// Lets entries go until the limits hold.
    pub(super) fn shrink(&self, freed: &mut Freed<V>) {
        settle_allocator();
        let mut tree = self.change();
        self.evict(&mut tree, self.ledger.write(), false, freed);
        end_change(tree);
    }

    /// Somebody is about to let entries go, one by one.
    pub(super) fn evicting(&self) -> Evicting<'_, V> {
        self.evicting_with(&mut self.ledger.write())
    }

    /// The same of who has the ledger.
    pub(super) fn evicting_with(&self, ledger: &mut Ledger<V>) -> Evicting<'_, V> {
        ledger.evicting += 1;
        Evicting(self)
    }

    /// What is asked of the value that goes next for the limits, if one has to.
    pub(super) fn next_to_go<R>(&self, keep_newest: bool, view: impl FnOnce(&V) -> R) -> Option<R> {
        let tree = self.store.read();
        let oldest = self.ledger.read().next_to_go(keep_newest)?;
        tree.nodes[oldest].entry.as_ref().map(|entry| view(&entry.value))
    }

    /// Lets the entry go that is next to, if that is the one that is meant. Whether it did.
    pub(super) fn evict_one(
        &self,
        keep_newest: bool,
        is_meant: impl FnOnce(&V) -> bool,
        freed: &mut Freed<V>,
    ) -> bool {
        let mut tree = self.change();
        let mut ledger = self.ledger.write();
        let oldest = ledger.next_to_go(keep_newest).filter(|&oldest| {
            tree.nodes[oldest].entry.as_ref().is_some_and(|entry| is_meant(&entry.value))
        });
        let mut work = SLICE;
        if let Some(oldest) = oldest {
            remove(&mut tree, &mut ledger, oldest, &mut work, &mut freed.evicted);
            count(&mut ledger.counters.evicted, 1);
        }
        drop(ledger);
        end_pruning(tree, work);
        oldest.is_some()
    }

    /// Lets a few entries go that one of so many bytes has no room beside, which takes the place of
    /// one of so many others; whether more are to.
    pub(super) fn make_some_room(
        &self,
        bytes: u64,
        replaced: Option<u64>,
        freed: &mut Freed<V>,
    ) -> bool {
        let mut tree = self.change();
        let mut ledger = self.ledger.write();
        let mut work = SLICE;
        let mut is_full = true;
        while work > 0 {
            let oldest = ledger.order.oldest().filter(|_| ledger.has_no_room(bytes, replaced));
            let Some(oldest) = oldest else {
                is_full = false;
                break;
            };
            work -= 1;
            remove(&mut tree, &mut ledger, oldest, &mut work, &mut freed.evicted);
            count(&mut ledger.counters.evicted, 1);
        }
        drop(ledger);
        end_pruning(tree, work);
        is_full
    }

    /// Whether an entry of so many bytes has room, in the place of one of so many others.
    pub(super) fn has_room(&self, bytes: u64, replaced: Option<u64>) -> bool {
        !self.ledger.read().has_no_room(bytes, replaced)
    }
}

/// A slice of an eviction: how many went, and whether more are to go.
#[inline]
fn evict_some<V>(
    tree: &mut Tree<V>,
    ledger: &mut Ledger<V>,
    keep_newest: bool,
    freed: &mut Freed<V>,
) -> (usize, bool) {
    let (mut evicted, mut work) = (0, SLICE);
    loop {
        if tree.prune_again(&mut work) {
            return (evicted, true);
        }
        let Some(oldest) = ledger.next_to_go(keep_newest) else { return (evicted, false) };
        if work == 0 {
            return (evicted, true);
        }
        work -= 1;
        remove(tree, ledger, oldest, &mut work, &mut freed.evicted);
        evicted += 1;
    }
}
