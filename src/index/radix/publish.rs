//! Showing nodes to readers without a lock, who read them in `probe`.
//!
//! The owner works on nodes of its own, which nobody else sees, and publishes a row when a node has
//! changed. A row's `version` covers the row; that several rows, the child table and the lists of
//! siblings change together is what the `children` version of the parent is for: it is odd from
//! before the first of these changes until after the last. Recency, locks and hits are not
//! published, so a lookup, a lock and an unlock change nothing that a reader reads.
use super::RadixIndex;
use super::row::Shape;
use crate::grace::Array;
use crate::memory::OutOfMemory;
use crate::sync::Ordering::Relaxed;
use crate::tree::{NAMESPACE_WORDS, Namespace};
use crate::tree::{NONE, State};

impl RadixIndex {
    /// Makes room for so many nodes more, and rows for them.
    #[inline]
    pub(super) fn reserve_nodes(&mut self, count: usize) -> Result<(), OutOfMemory> {
        self.tree.nodes.try_reserve(count)?;
        self.rows.try_reserve(self.tree.nodes.capacity())
    }

    /// Makes changes after which a node has other children, or the same ones in other places.
    pub(super) fn changing_children<R>(
        &mut self,
        at: u32,
        change: impl FnOnce(&mut Self) -> R,
    ) -> R {
        self.rows[at].children.begin();
        let done = change(self);
        self.rows[at].children.end();
        done
    }

    /// Shows a node as it is now.
    #[inline(always)]
    pub(super) fn publish(&mut self, at: u32) {
        let (node, row) = (&mut self.tree.nodes[at], &self.rows[at]);
        let parent = if node.state == State::Node { node.parent } else { NONE };
        row.version.begin();
        row.parent.store(parent, Relaxed);
        let (words, pages) = node.held.label.shown();
        row.shape(Shape::new(pages, node.media));
        row.words.set(words, &mut self.garbage);
        row.version.end();
    }

    /// Frees a node; readers find it no more.
    pub(super) fn release(&mut self, at: u32) {
        self.tree.nodes.release(at);
        self.publish(at);
    }

    /// Memory of what readers see of roots: their namespaces.
    pub(super) fn root_bytes(&self) -> usize {
        self.tree.roots.len() * Array::<u32>::bytes_for(NAMESPACE_WORDS)
    }

    /// Makes a root, and shows it: a child of nobody, with its namespace in place of keys.
    pub(super) fn add_root(&mut self, namespace: &Namespace) -> Result<u32, OutOfMemory> {
        let words = namespace.words();
        let hash = self.child_hash(NONE, &words);
        let mut shown = Array::shown(words.into_iter())?;
        self.reserve_nodes(1)?;
        self.tree.try_reserve_root()?;
        let [place] = self.table.places([hash])?;

        let root = self.tree.add_root(namespace);
        let row = &self.rows[root];
        self.view.roots.begin();
        row.version.begin();
        row.shape(Shape::OF_ROOT);
        row.words.set(Some(&mut shown), &mut self.garbage);
        row.version.end();
        self.table.put(place, root, 0);
        self.publish_default_root();
        self.view.roots.end();
        Ok(root)
    }

    /// Drops a root that has neither nodes nor locks; readers find it no more.
    pub(super) fn drop_empty_root(&mut self, root: u32) {
        let was_shown = self.tree.nodes[root].state == State::Root;
        if let Some(namespace) = self.tree.prune_root(root)
            && was_shown
        {
            self.hide_root(root, &namespace);
        }
    }

    /// Lets readers, and everyone, find a root no more, nor what is below it.
    pub(super) fn forget_root(&mut self, root: u32) {
        let namespace = self.tree.detach_root(root);
        self.hide_root(root, &namespace);
    }

    /// A root that no reader finds.
    pub(super) fn add_detached_root(&mut self, namespace: &Namespace) -> Result<u32, OutOfMemory> {
        self.reserve_nodes(1)?;
        self.tree.try_reserve_root()?;
        Ok(self.tree.add_detached_root(namespace))
    }

    fn hide_root(&mut self, root: u32, namespace: &Namespace) {
        self.view.roots.begin();
        self.publish_default_root();
        self.table.remove(self.child_hash(NONE, &namespace.words()), root);
        self.publish(root);
        self.view.roots.end();
    }

    fn publish_default_root(&self) {
        let root = self.tree.find_root(&Namespace::default());
        self.view.default_root.store(root.unwrap_or(NONE), Relaxed);
    }
}
