//! Showing nodes to readers without a lock, who read them in `probe`.
//!
//! The owner works on nodes of its own, which nobody else sees, and publishes a row when a node has
//! changed. A row's `version` covers the row; that several rows, the child table and the lists of
//! siblings change together is what the `children` version of the parent is for: it is odd from
//! before the first of these changes until after the last. Recency, locks and hits are not
//! published, so a lookup, a lock and an unlock change nothing that a reader reads.
use super::super::Namespace;
use super::RadixIndex;
use super::node::{NONE, State};
use crate::grace::Array;
use std::sync::atomic::Ordering::Relaxed;

impl RadixIndex {
    /// Makes changes after which a node has other children, or the same ones in other places.
    pub(super) fn changing_children<R>(
        &mut self,
        at: u32,
        change: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.nodes.row(at).children.begin();
        let done = change(self);
        self.nodes.row(at).children.end();
        done
    }

    /// Shows a node as it is now.
    pub(super) fn publish(&mut self, at: u32) {
        let (node, row) = self.nodes.with_row(at);
        let parent = if node.state == State::Node { node.parent } else { NONE };
        row.version.begin();
        row.parent.store(parent, Relaxed);
        row.is_root.store(false, Relaxed);
        row.media.store(node.media, Relaxed);
        node.label.publish(self.page_size, row, &mut self.garbage);
        row.version.end();
    }

    /// Frees a node; readers find it no more.
    pub(super) fn release(&mut self, at: u32) {
        self.nodes.release(at);
        self.publish(at);
    }

    /// Shows a root: a child of nobody, with its namespace in place of keys.
    pub(super) fn publish_root(&mut self, root: u32, namespace: &Namespace) {
        let words = namespace.words();
        let hash = self.child_hash(NONE, &words);
        self.view.roots.begin();
        let row = self.nodes.row(root);
        row.version.begin();
        row.is_root.store(true, Relaxed);
        row.key_count.store(words.len() as u32, Relaxed);
        row.words.set(Some(&mut Array::shown(words.into_iter())), &mut self.garbage);
        row.version.end();
        self.table.insert(hash, root, &mut self.garbage);
        self.view.default_root.store(self.default_root, Relaxed);
        self.view.roots.end();
    }

    /// Frees a root; readers find it no more.
    pub(super) fn withdraw_root(&mut self, root: u32, namespace: &Namespace) {
        let hash = self.child_hash(NONE, &namespace.words());
        self.view.roots.begin();
        self.view.default_root.store(self.default_root, Relaxed);
        self.table.remove(hash, root, &mut self.garbage);
        self.release(root);
        self.view.roots.end();
    }
}
