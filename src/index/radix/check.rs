//! Every invariant of the tree, each with a name. Used by tests, fuzzing and `rkv_cache_check`.
use super::super::Namespace;
use super::RadixIndex;
use super::ages::Age;
use super::node::{NONE, Queue, RadixNode, State};
use crate::grace::Reader;
use crate::token::all_text;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

impl RadixIndex {
    pub(super) fn check_tree(&self) -> Result<(), String> {
        let mut totals = Totals::default();
        for at in self.nodes.numbers() {
            let node = &self.nodes[at];
            self.check_node(at, node).map_err(|broken| format!("{broken} (node {at})"))?;
            self.check_children(at, node).map_err(|broken| format!("{broken} (node {at})"))?;
            self.check_published(at, node).map_err(|broken| format!("{broken} (node {at})"))?;
            totals.add(node, self.page_size);
        }
        self.check_totals(&totals)?;
        self.check_roots()?;
        self.check_order()
    }

    fn check_node(&self, at: u32, node: &RadixNode) -> Result<(), String> {
        if node.state == State::Root {
            return if node.parent != NONE || node.label.len() > 0 || node.queue != Queue::Out {
                Err("root_shape: a root has a parent, a segment or a place in the order".into())
            } else {
                Ok(())
            };
        }
        let parent = self.nodes.get(node.parent).filter(|parent| parent.state != State::Free);
        let Some(parent) = parent else {
            return Err("parent_alive: the parent is no node".into());
        };
        if node.label.len() == 0 {
            return Err("segment_not_empty: a node has no pages".into());
        }
        if node.label.keys(self.page_size).len() != node.label.len() * self.page_size {
            return Err("segment_shape: pages and positions disagree".into());
        }
        let ages = node.ages.parts();
        let grows = |before: &Age, after: &Age| before.end < after.end && before.time < after.time;
        let last = |part: &Age| {
            (part.end as usize) < node.label.len() && part.time < node.last_access && part.end > 0
        };
        if !ages.is_sorted_by(grows) || !ages.last().is_none_or(last) {
            return Err("segment_ages: parts are not older towards the front".into());
        }
        if node.start as usize != parent.end() {
            return Err("segment_place: a segment doesn't start where the parent's ends".into());
        }
        if node.locks > parent.locks {
            return Err("lock_reaches_root: a node has more locks than its parent".into());
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

    fn check_children(&self, at: u32, node: &RadixNode) -> Result<(), String> {
        let children: Vec<_> = node.children.iter().collect();
        let first_page = |child: u32| self.nodes[child].label.first_page_keys(self.page_size);
        for child in &children {
            let below = &self.nodes[child.node];
            if below.state != State::Node || below.parent != at {
                return Err("child_link: a child has another parent".into());
            }
            if child.first_key != first_page(child.node)[0] {
                return Err("child_key: a child is listed under another key".into());
            }
        }
        let pages = children.iter().map(|child| first_page(child.node));
        if !pages.is_sorted_by(|before, after| before < after) {
            return Err("child_order: children are not in the order of their first pages".into());
        }
        let below: u64 = children.iter().map(|child| self.nodes[child.node].locks as u64).sum();
        if node.locks as u64 != below + node.own_locks() as u64 {
            return Err("lock_sum: locks are not those below and the node's own".into());
        }
        Ok(())
    }

    /// What readers without a lock see of a node is what it is.
    fn check_published(&self, at: u32, node: &RadixNode) -> Result<(), String> {
        let Some(reader) = Reader::enter() else {
            // A hundred threads probe right now.
            return Ok(());
        };
        let Ok(seen) = self.view.rows.read(at, &reader) else {
            return Err("published: a row is half written".into());
        };
        let is_root = node.state == State::Root;
        let words = self.names.get(&at).map(Namespace::words);
        let keys = node.label.keys(self.page_size);
        if seen.keys != words.as_ref().map_or(keys, |words| words)
            || (seen.parent, seen.is_root, seen.media) != (node.parent, is_root, node.media)
        {
            return Err("published: readers see another node".into());
        }
        let children = node.children.iter().map(|sibling| sibling.node);
        if !seen.children(&reader).into_iter().eq(children) {
            return Err("published: readers see other children".into());
        }
        Ok(())
    }

    fn check_totals(&self, totals: &Totals) -> Result<(), String> {
        let entries = self.table.len();
        if totals.nodes + self.roots.len() != entries {
            return Err(format!("child_table: {} nodes, {entries} entries", totals.nodes));
        }
        if totals.children != totals.nodes {
            return Err("child_link: a node is nobody's child, or several's".into());
        }
        if totals.pages != self.cached_pages {
            return Err(format!("cached_pages: {} counted", totals.pages));
        }
        if totals.reclaimable != self.reclaimable_pages {
            return Err(format!("reclaimable_pages: {} counted", totals.reclaimable));
        }
        if totals.distinct.len() != totals.pages {
            return Err("page_unique: a page has two places in the index".into());
        }
        if totals.bytes != self.segment_bytes {
            return Err(format!("segment_bytes: {} counted", totals.bytes));
        }
        Ok(())
    }

    fn check_roots(&self) -> Result<(), String> {
        for (name, &root) in &self.roots {
            let is_root = self.nodes.get(root).is_some_and(|node| node.state == State::Root);
            if !is_root || self.names.get(&root) != Some(name) {
                return Err("namespace_root: a namespace leads to no root of its own".into());
            }
            if self.nodes[root].children.is_empty() && self.nodes[root].locks == 0 {
                return Err("namespace_empty: an empty namespace stayed".into());
            }
        }
        for (&root, name) in &self.names {
            let hash = self.child_hash(NONE, &name.words());
            if self.table.find(hash, |found| found == root).is_none() {
                return Err("namespace_root: a root is not in the table".into());
            }
        }
        let published = self.view.default_root.load(Ordering::Relaxed);
        if published != self.default_root {
            return Err("published: readers see another default root".into());
        }
        let default = self.roots.get(&Namespace::default()).copied();
        if default.unwrap_or(NONE) != self.default_root {
            return Err("namespace_root: the default namespace is found elsewhere".into());
        }
        let roots = self.nodes.numbers().filter(|&at| self.nodes[at].state == State::Root).count();
        if roots != self.roots.len() || roots != self.names.len() {
            return Err("namespace_root: a root has no namespace".into());
        }
        Ok(())
    }
}

#[derive(Default)]
struct Totals {
    nodes: usize,
    children: usize,
    pages: usize,
    reclaimable: usize,
    bytes: usize,
    distinct: HashSet<u32>,
}

impl Totals {
    fn add(&mut self, node: &RadixNode, page_size: usize) {
        self.nodes += (node.state == State::Node) as usize;
        self.children += node.children.len();
        self.pages += node.label.len();
        self.reclaimable += if node.locks == 0 { node.label.len() } else { 0 };
        self.bytes += node.label.bytes() + node.children.bytes();
        self.distinct.extend(node.label.pages(page_size));
    }
}
