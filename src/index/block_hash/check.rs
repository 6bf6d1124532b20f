//! Every invariant of the block-hash index, each with a name.
use super::BlockHashIndex;
use super::entry::Entry;
use crate::error::{Error, Message, text};
use crate::token::all_text;
use crate::tree::{Held, Totals, TreeNode};

impl BlockHashIndex {
    pub(super) fn check_entries(&self) -> Result<(), Error> {
        let (mut totals, mut bytes) = (Totals::default(), 0);
        for at in self.tree.nodes.numbers() {
            let node = &self.tree.nodes[at];
            let checked = self.check_entry(at, node).and_then(|()| self.check_links(at, node));
            checked.map_err(|broken| Error::Corrupt(text!("{broken} (node {at})")))?;
            totals.add(node)?;
            bytes += node.media_bytes();
        }
        if totals.nodes != self.table.len() {
            let (nodes, entries) = (totals.nodes, self.table.len());
            return Err(Error::Corrupt(text!("digest_table: {nodes} nodes, {entries} entries")));
        }
        if bytes != self.media_bytes {
            return Err(Error::Corrupt(text!("media_bytes: {bytes} counted")));
        }
        for (name, root) in self.tree.roots.iter() {
            if self.tree.nodes[root].digest != name.digest() {
                return Err(Error::Corrupt("namespace_digest: a root has another digest".into()));
            }
        }
        self.tree.check_whole(totals).map_err(Error::Corrupt)
    }

    fn check_entry(&self, at: u32, node: &TreeNode<Entry>) -> Result<(), Message> {
        self.tree.check_place(node)?;
        if node.is_root() {
            return Ok(());
        }
        if node.page_count() != 1 {
            return Err("entry_page: a node has no page".into());
        }
        if self.find(node.root, &node.digest) != Some(at) {
            return Err("digest_table: a digest leads to another node".into());
        }
        if node.media != node.kept.is_some() {
            return Err("media_flag: a node of text keeps keys, or one of media none".into());
        }
        let Some(kept) = &node.kept else {
            return Ok(());
        };
        if kept.keys.len() != self.page_size || all_text(&kept.keys) {
            return Err("media_keys: the keys are not those of a page with other than text".into());
        }
        Ok(())
    }

    fn check_links(&self, at: u32, node: &TreeNode<Entry>) -> Result<(), Message> {
        // One more than there are: a ring would never end.
        let children = || self.children_of(at).take(node.child_count() + 1);
        if children().count() != node.child_count() {
            return Err("child_count: another number of children is linked".into());
        }
        let mut pairs = children().zip(children().skip(1));
        if pairs.any(|(left, right)| self.tree.nodes[right].previous != left) {
            return Err("child_link: neighbours disagree".into());
        }
        self.tree.check_children(at, children())
    }
}
