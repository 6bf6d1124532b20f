//! Taking pages from the ends of unlocked leaves, the least recently used first.
use super::super::Portion;
use super::RadixIndex;
use super::fetch::is_large;
use super::node::{Segment, end_of};
use super::walk::prefetch_node;
use crate::grace::prefetch;
use crate::tree::{NONE, Tree, TreeNode};

impl RadixIndex {
    /// Drops pages from the end of one leaf after another, of those that `next` names.
    pub(super) fn evict_pages(
        &mut self,
        most: Portion,
        next: impl Fn(&Tree<Segment>) -> Option<u32>,
        report: &mut dyn FnMut(&[u32], &[u32]),
    ) -> usize {
        let Portion { pages: mut left, mut runs } = most;
        let is_large = is_large(self);
        while let Some(victim) = next(&self.tree).filter(|_| left > 0 && runs > 0) {
            if is_large {
                self.fetch_after(victim);
            }
            // Pages that were used earlier than the end take their turn by their own time.
            let node = &self.tree.nodes[victim];
            let (label, older) = (&node.label, node.ages.last(end_of(node)));
            let taken = left.min(label.len() - older.map_or(0, |(pages, _)| pages));
            let kept = label.len() - taken;
            let keys = &label.keys(self.page_size)[kept * self.page_size..];
            report(&label.pages()[kept..], keys);
            self.tree.cached_pages -= taken;
            self.tree.reclaimable_pages -= taken;
            (left, runs) = (left - taken, runs - 1);
            if kept == 0 {
                self.tree.retire(victim);
                self.remove_leaf(victim);
            } else {
                self.trim(victim, kept);
                match older {
                    Some((pages, time)) if pages == kept => {
                        self.tree.retire(victim);
                        self.with_bytes(victim, |index| index.tree.nodes[victim].ages.pop());
                        self.tree.nodes[victim].last_access = time;
                        self.tree.enlist(victim);
                    }
                    Some(_) => self.tree.nodes[victim].ages.shorten(taken),
                    None => {}
                }
            }
        }
        most.pages - left
    }

    /// Has fetched what evicting the leaves after this one touches: leaves go in the order of the
    /// list, which leads anywhere in memory. Of the third from here the node, of the second what
    /// that leads to, of the next the slot, for which its keys are needed.
    fn fetch_after(&self, victim: u32) {
        let nodes = &self.tree.nodes;
        let after = |node: &TreeNode<Segment>| Some((node.newer, nodes.get(node.newer)?));
        let Some((number, next)) = after(&nodes[victim]) else { return };
        prefetch(&self.rows[number]);
        if next.parent != NONE && !next.label.is_empty() {
            let first_page = next.label.first_page_keys(self.page_size);
            self.table.fetch(self.child_hash(next.parent, first_page));
            nodes[next.parent].children.fetch();
            prefetch(&self.rows[next.parent]);
        }
        let Some((_, second)) = after(next) else { return };
        second.label.fetch(self.page_size);
        nodes.get(second.parent).into_iter().for_each(prefetch_node);
        nodes.get(second.newer).into_iter().for_each(prefetch_node);
    }

    /// Shortens a leaf. Its id meant the longer prefix and becomes stale; its turn stays.
    fn trim(&mut self, leaf: u32, kept: usize) {
        self.tree.nodes.renew(leaf);
        let label = &mut self.tree.nodes[leaf].label;
        let before = label.bytes();
        label.truncate(self.page_size, kept);
        self.segment_bytes = self.segment_bytes - before + label.bytes();
        self.publish(leaf);
    }
}
