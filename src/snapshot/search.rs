//! Long lookups: stretch by stretch, between which whoever waits to change the tree gets in. When
//! it has changed by then the lookup begins anew: what it held is not what is there.
use super::cache::Store;
use super::tree::{Found, Tree};
use super::{NONE, Namespace, SnapshotCache};
use crate::lock::RwLockReadGuard;
use crate::memory::settle_allocator;
use crate::tree::common_start;

/// Tokens that are compared before others are let in: 6 microseconds, 12 from memory.
const STRETCH: usize = 1 << 15;
/// Tokens that are compared in the time that it takes to come to a node.
pub(super) const NODE: usize = 128;
/// Times that a lookup begins anew; then it keeps the lock.
const TRIES: usize = 4;

/// How far a query was followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// The deepest node whose segment was passed whole; NONE when not even a root is there.
    pub(super) node: u32,
    /// Tokens up to there.
    pub(super) tokens: usize,
    /// The child that begins like the rest, and how many tokens they share: fewer than it has.
    pub(super) inside: Option<(u32, usize)>,
    /// What the search is for: the longest stored prefix on the way, or another entry.
    pub(super) found: Option<Found>,
    /// The query has left the tree, and what was found is gone down from.
    pub(super) has_left: bool,
}

impl Search {
    /// One that begins at a root.
    pub(super) fn at(root: u32) -> Self {
        Self { node: root, tokens: 0, inside: None, found: None, has_left: false }
    }

    /// Tokens that are in the tree.
    pub(super) fn known(&self) -> usize {
        self.tokens + self.inside.map_or(0, |(_, common)| common)
    }
}

/// What takes a search on for so many tokens. Whether that was all.
pub(super) trait Step<V>: Fn(&Tree<V>, &mut Search, usize) -> bool {}

impl<V, F: Fn(&Tree<V>, &mut Search, usize) -> bool> Step<V> for F {}

impl<V> Tree<V> {
    /// Follows a query to where the tree has no more of it, for so many tokens; whether that was
    /// all. `note` gets each child on the way that begins like the rest, before it is passed, and
    /// how many tokens they share.
    #[inline]
    pub(super) fn walk_on(
        &self,
        search: &mut Search,
        tokens: &[u32],
        most: usize,
        mut note: impl FnMut(&mut Search, u32, usize),
    ) -> bool {
        let mut left = most;
        while let Some(&first) = tokens.get(search.tokens) {
            let Some(child) = self.child(search.node, first) else { break };
            let label = &self.nodes[child].label;
            let common = common_start(label.tokens(), &tokens[search.tokens..]);
            note(search, child, common);
            if common < label.len() {
                search.inside = Some((child, common));
                break;
            }
            (search.node, search.tokens) = (child, search.tokens + common);
            left = left.saturating_sub(common + NODE);
            if left == 0 {
                return false;
            }
        }
        true
    }
}

impl<V> SnapshotCache<V> {
    /// Searches a namespace, if it is there.
    #[inline]
    pub(super) fn search(
        &self,
        namespace: &Namespace,
        step: &impl Step<V>,
    ) -> (RwLockReadGuard<'_, Tree<V>>, Option<Search>) {
        let mut tree = self.store.read();
        let mut tries = 0;
        loop {
            let Some(root) = tree.roots.find(namespace) else { return (tree, None) };
            let (mut search, changes) = (Search::at(root), tree.changes);
            let most = if tries < TRIES { self.stretch } else { usize::MAX };
            while changes == tree.changes {
                if step(&tree, &mut search, most) {
                    return (tree, Some(search));
                }
                RwLockReadGuard::bump(&mut tree);
            }
            self.store.check();
            tries += 1;
        }
    }

    /// The same, to change what it finds.
    pub(super) fn search_to_change(
        &self,
        namespace: &Namespace,
        step: &impl Step<V>,
    ) -> (Store<'_, V>, Search) {
        let nothing = Search::at(NONE);
        let mut tree = self.change();
        for tries in 0..=TRIES {
            let Some(root) = tree.roots.find(namespace) else { return (tree, nothing) };
            let mut search = Search::at(root);
            let most = if tries < TRIES { self.stretch } else { usize::MAX };
            if step(&tree, &mut search, most) {
                return (tree, search);
            }
            drop(tree);
            let (seen, search) = self.search(namespace, step);
            let changes = seen.changes;
            drop(seen);
            tree = self.change();
            if tree.changes == changes + 1 {
                return (tree, search.unwrap_or(nothing));
            }
        }
        unreachable!("the last try goes to the end")
    }

    /// The lock, for a change.
    pub(super) fn change(&self) -> Store<'_, V> {
        let mut tree = self.store.write();
        tree.changes += 1;
        tree
    }
}

/// Lets others in, in the middle of a change, and has the allocator join meanwhile what that freed.
/// The tree must be whole.
pub(super) fn let_others_in<V>(tree: &mut Store<'_, V>) {
    let discarded = tree.nodes.discarded.take();
    tree.unlocked_fair(|| {
        drop(discarded);
        settle_allocator();
    });
    tree.changes += 1;
}

/// Ends a change.
#[inline]
pub(super) fn end_change<V>(mut tree: Store<'_, V>) {
    if !tree.nodes.discarded.is_empty() {
        let discarded = tree.nodes.discarded.take();
        drop(tree);
        drop(discarded);
    }
}

/// Tokens of a stretch.
pub(super) fn stretch(segment: usize) -> usize {
    // Tests have short segments, and so short stretches.
    segment.saturating_mul(STRETCH / super::cache::SEGMENT).min(STRETCH)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::lock::unless_left;
    use crate::snapshot::SnapshotLimits;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// M02: a call that waits for the cache's lock while the one that has it panics looks at
    /// nothing of what that left half done.
    #[test]
    fn m02_who_waits_for_a_panic_is_refused_by_snapshots_too() {
        let limits = SnapshotLimits { entries: 10, bytes: 100 };
        let cache = &SnapshotCache::<u32>::new(limits).expect("a cache");
        let (has_it, waits) = channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                waits.recv().expect("it has the lock");
                unless_left(|| Ok(cache.probe(&Namespace::default(), &[1])))
            });
            let bug = catch_unwind(AssertUnwindSafe(|| {
                let _tree = cache.change();
                has_it.send(()).expect("it waits");
                // Until the other one surely does.
                std::thread::sleep(Duration::from_millis(300));
                resume_unwind(Box::new("as the test wants it"));
            }));
            assert!(bug.is_err());
            assert_eq!(waiter.join().expect("an answer"), Err(Error::Poisoned));
        });
    }
}
