//! Every invariant of the radix tree, each with a name. Used by tests, fuzzing and
//! `rkv_cache_check`.
use super::super::Namespace;
use super::RadixIndex;
use super::node::{Segment, end_of};
use crate::error::{Error, Message, text};
use crate::grace::Reader;
use crate::sync::Ordering::Relaxed;
use crate::token::all_text;
use crate::tree::{NONE, State, Totals, TreeNode};

impl RadixIndex {
    pub(super) fn check_tree(&self) -> Result<(), Error> {
        let (mut totals, mut bytes) = (Totals::default(), 0);
        for at in self.tree.nodes.numbers() {
            let node = &self.tree.nodes[at];
            let checked = self.check_node(at, node).and_then(|()| self.check_siblings(at, node));
            let checked = checked.and_then(|()| self.check_published(at, node));
            checked.map_err(|broken| Error::Corrupt(text!("{broken} (node {at})")))?;
            totals.add(node)?;
            bytes += node.held.bytes();
        }
        let (nodes, entries) = (totals.nodes + self.tree.roots.len(), self.table.len());
        if nodes != entries {
            let wrong = text!("child_table: {nodes} nodes and roots, {entries} entries");
            return Err(Error::Corrupt(wrong));
        }
        self.check_published_roots().map_err(Error::Corrupt)?;
        if bytes != self.segment_bytes {
            return Err(Error::Corrupt(text!("segment_bytes: {bytes} counted")));
        }
        self.tree.check_whole(totals).map_err(Error::Corrupt)
    }

    fn check_node(&self, at: u32, node: &TreeNode<Segment>) -> Result<(), Message> {
        self.tree.check_place(node)?;
        if node.is_root() {
            return Ok(());
        }
        if node.label.keys(self.page_size).len() != node.label.len() * self.page_size {
            return Err("segment_shape: pages and positions disagree".into());
        }
        if !node.ages.fit(end_of(node)) {
            return Err("segment_ages: parts are not older towards the front".into());
        }
        if !node.media && !all_text(node.label.keys(self.page_size)) {
            return Err("media_flag: a segment with other than text says it has only text".into());
        }
        let page = node.label.first_page_keys(self.page_size);
        let hash = self.child_hash(node.parent, page);
        if self.table.find(hash, |found| found == at).is_none() {
            return Err("child_table: a node is not found under its parent".into());
        }
        if self.child(node.parent, page).map(|(child, _)| child) != Some(at) {
            return Err("child_unique: another child begins with the same page".into());
        }
        Ok(())
    }

    /// What readers without a lock see of a node is what it is.
    fn check_published(&self, at: u32, node: &TreeNode<Segment>) -> Result<(), Message> {
        let Some(reader) = Reader::enter() else {
            // More threads probe right now than there are places for.
            return Ok(());
        };
        let Ok(seen) = self.view.rows.read(at, self.page_size, &reader) else {
            return Err("published: a row is half written".into());
        };
        let is_root = node.state == State::Root;
        let same_keys = node.is_root() || seen.keys == node.label.keys(self.page_size);
        let flags = (seen.parent, seen.shape.is_root(), seen.shape.media());
        if !same_keys || flags != (node.parent, is_root, node.media) {
            return Err("published: readers see another node".into());
        }
        let children = node.children.iter().map(|sibling| sibling.node);
        if !seen.children(&reader).eq(children) {
            return Err("published: readers see other children".into());
        }
        Ok(())
    }

    /// Readers find every root, with its name, and no other default root.
    fn check_published_roots(&self) -> Result<(), Message> {
        let Some(reader) = Reader::enter() else {
            return Ok(());
        };
        for (name, root) in self.tree.roots.iter() {
            let hash = self.child_hash(NONE, &name.words());
            let seen = self.view.rows.read(root, self.page_size, &reader);
            let named = seen.is_ok_and(|seen| seen.name(&reader) == name.words());
            if !named || self.table.find(hash, |found| found == root).is_none() {
                return Err("published: readers don't find a root".into());
            }
        }
        let default = self.tree.find_root(&Namespace::default()).unwrap_or(NONE);
        if self.view.default_root.load(Relaxed) != default {
            return Err("published: readers see another default root".into());
        }
        Ok(())
    }

    fn check_siblings(&self, at: u32, node: &TreeNode<Segment>) -> Result<(), Message> {
        self.tree.check_children(at, node.children.iter().map(|child| child.node))?;
        let first_page = |child: u32| self.tree.nodes[child].label.first_page_keys(self.page_size);
        if node.children.iter().any(|child| child.first_key != first_page(child.node)[0]) {
            return Err("child_key: a child is listed under another key".into());
        }
        let pages = node.children.iter().map(|child| first_page(child.node));
        if !pages.is_sorted_by(|before, after| before < after) {
            return Err("child_order: children are not in the order of their first pages".into());
        }
        Ok(())
    }
}
