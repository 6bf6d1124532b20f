//! Entries that serve a prompt beyond which they go on: the engine takes their end away.
//!
//! Each node knows whether a trimmable entry is at it or below it, by one bit beside its chunk, and
//! the children for which that is so come first among their siblings. So from where a prompt leaves
//! the tree one of the first children leads to the next one, down to an entry: nothing is searched.
//! The bit changes on the way up from an entry, as far as it is another one there.
use super::NONE;
use super::nodes::Nodes;
use super::search::{NODE, Search};
use super::tree::{Found, Tree};

/// Children that are looked at for the shortest one.
const LOOKED_AT: usize = 8;

impl<V> Tree<V> {
    /// Says whether the entry that a node has, or had, can be trimmed. Returns how many nodes
    /// lead elsewhere now than before.
    #[inline]
    pub(super) fn set_trimmable(&mut self, node: u32, is_trimmable: bool) -> usize {
        if self.nodes.is_trimmable(node) == is_trimmable {
            return 0;
        }
        self.nodes.set_trimmable(node, is_trimmable);
        let (mut at, mut steps) = (node, 0);
        while at != NONE && self.nodes.leads(at) != leads_now(&self.nodes, at) {
            let leads = !self.nodes.leads(at);
            self.nodes.set_leads(at, leads);
            let parent = self.nodes[at].parent;
            if parent != NONE && self.nodes.only_child(parent).is_none() {
                self.nodes.unhang(at);
                self.nodes.hang(parent, at);
            }
            at = parent;
            steps += 1;
        }
        steps
    }

    /// Looks for the entry that has most tokens in common with `tokens`, for so many of them;
    /// whether that was all. A trimmable one may have others behind them, any other must be whole.
    /// Of several it is an entry that is whole, else one of which no other is a prefix. First it
    /// finds the deepest node at which or below which there is something, then it goes down from
    /// there. Whole ones that are not meant are passed over.
    pub(super) fn find_trimmable_on(
        &self,
        search: &mut Search,
        tokens: &[u32],
        most: usize,
        is_meant: impl Fn(&V) -> bool,
    ) -> bool {
        let is_entry =
            |node: u32| self.nodes[node].entry.as_ref().is_some_and(|entry| is_meant(&entry.value));
        search.has_left = search.has_left
            || self.walk_on(search, tokens, most, |search, child, common| {
                let length = self.nodes[child].label.len();
                if self.nodes.leads(child) || common == length && is_entry(child) {
                    let (tokens, common) = (search.tokens + length, search.tokens + common);
                    search.found = Some(Found { node: child, tokens, common });
                }
            });
        let nodes = most.div_ceil(NODE);
        search.has_left
            && search.found.as_mut().is_none_or(|found| self.go_down(found, nodes, is_entry))
    }

    /// Goes on, for so many nodes, to the entry at or below what was found; whether it is there.
    fn go_down(&self, found: &mut Found, nodes: usize, is_entry: impl Fn(u32) -> bool) -> bool {
        // What leads nowhere was found as an entry, whatever is said of it by now.
        let is_whole = found.common == found.tokens;
        if is_whole && (is_entry(found.node) || !self.nodes.leads(found.node)) {
            return true;
        }
        for _ in 0..nodes {
            if self.nodes.is_trimmable(found.node) {
                return true;
            }
            found.node = self.shortest_child(found.node);
            found.tokens += self.nodes[found.node].label.len();
        }
        false
    }

    /// Of the first children that lead to an entry the one with the shortest segment: what goes
    /// beyond a prompt is read for nothing. There may be very many, so only some are looked at.
    fn shortest_child(&self, parent: u32) -> u32 {
        let leading = self.nodes.children(parent).take(LOOKED_AT);
        let leading = leading.take_while(|&child| self.nodes.leads(child));
        leading.min_by_key(|&child| self.nodes[child].label.len()).unwrap_or(NONE)
    }
}

fn leads_now<V>(nodes: &Nodes<V>, at: u32) -> bool {
    let first = nodes[at].first_child;
    nodes.is_trimmable(at) || first != NONE && nodes.leads(first)
}
