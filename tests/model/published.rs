//! The naive cache: a flat set of published pages, each keyed by its namespace and by all keys from
//! the beginning to the page's end. Whatever a tree would store is derived from the set.
//!
//! A *node* of the library is a run of pages without a mark between them; the mark is on its last
//! page, and carries what an id stands for: a label, and the locks that were taken on it.
use super::prompt::Key;
use super::spaces::Space;
use radixkv::index::Limits;
use std::collections::BTreeMap;

/// Stands for a node id. Never used twice.
pub type Label = u64;

/// The mark on the last page of a node.
#[derive(Clone, Debug, Default)]
pub struct Mark {
    pub label: Label,
    /// Locks that callers and sequences took on this very node.
    pub locks: u32,
    /// The node was left with a single child, and a lock alone stood against a merge: it happens
    /// when the lock goes, unless another child came.
    pub merge_pending: bool,
}

#[derive(Clone, Debug)]
pub struct Published {
    pub ns: Space,
    /// All keys from the beginning to the end of this page.
    pub prefix: Vec<Key>,
    pub page: u32,
    /// Time of the last match that covered the page, or of its insertion.
    pub used: u64,
    /// Matches that covered the page.
    pub hits: u64,
    pub mark: Option<Mark>,
}

/// The longest cached prefix, before any token boundary is looked at.
pub struct Longest {
    /// The whole pages, in order.
    pub path: Vec<usize>,
    /// Positions after them that stand at the start of some further page.
    pub partial: usize,
}

#[derive(Clone)]
pub struct PublishedPages {
    page_size: usize,
    /// Every page is a node, and ends of other pages are not compared: the block-hash index.
    pub page_nodes: bool,
    /// Pages of a node at most. More at a time are several nodes in a row.
    pub segment_limit: usize,
    pub pages: Vec<Published>,
    /// The mark of each namespace's root.
    pub roots: BTreeMap<Space, Mark>,
    clock: u64,
    next_label: Label,
}

impl PublishedPages {
    pub fn new(page_size: usize, page_nodes: bool, first_label: Label) -> Self {
        let Limits { segment_words, generations, .. } = Limits::default();
        let segment_limit = (segment_words as usize / (page_size + 1)).max(1);
        PublishedPages {
            page_size,
            page_nodes,
            segment_limit: segment_limit.min(generations as usize / 2),
            pages: Vec::new(),
            roots: BTreeMap::new(),
            clock: 0,
            next_label: first_label,
        }
    }

    pub fn next_label(&self) -> Label {
        self.next_label
    }

    pub fn node_count(&self) -> usize {
        self.pages.iter().filter(|page| page.mark.is_some()).count()
    }

    /// Pages with none after them.
    pub fn prefix_count(&self) -> usize {
        (0..self.pages.len()).filter(|&page| self.children(page).next().is_none()).count()
    }

    pub fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The time of the last lookup or insert.
    pub fn latest(&self) -> u64 {
        self.clock
    }

    fn new_mark(&mut self) -> Mark {
        self.next_label += 1;
        Mark { label: self.next_label, ..Mark::default() }
    }

    /// The page published for a prefix.
    pub fn find(&self, ns: Space, prefix: &[Key]) -> Option<usize> {
        self.pages.iter().position(|page| page.ns == ns && page.prefix == prefix)
    }

    pub fn parent(&self, page: usize) -> Option<usize> {
        let Published { ns, prefix, .. } = &self.pages[page];
        self.find(*ns, &prefix[..prefix.len() - self.page_size])
    }

    /// Pages that stand directly after a prefix.
    pub fn after<'a>(&'a self, ns: Space, prefix: &'a [Key]) -> impl Iterator<Item = usize> + 'a {
        let length = prefix.len() + self.page_size;
        (0..self.pages.len()).filter(move |&at| {
            let page = &self.pages[at];
            page.ns == ns && page.prefix.len() == length && page.prefix.starts_with(prefix)
        })
    }

    pub fn children(&self, page: usize) -> impl Iterator<Item = usize> + '_ {
        self.after(self.pages[page].ns, &self.pages[page].prefix)
    }

    pub fn longest(&self, ns: Space, keys: &[Key]) -> Longest {
        let mut path = Vec::new();
        for whole in keys.chunks_exact(self.page_size).enumerate().map(|(index, _)| index + 1) {
            match self.find(ns, &keys[..whole * self.page_size]) {
                Some(page) => path.push(page),
                None => break,
            }
        }
        let start = path.len() * self.page_size;
        let common = |page: usize| {
            let rest = self.pages[page].prefix[start..].iter().zip(&keys[start..]);
            rest.take_while(|(ours, asked)| ours == asked).count()
        };
        let partial = self.after(ns, &keys[..start]).map(common).max().unwrap_or(0);
        Longest { path, partial: if self.page_nodes { 0 } else { partial } }
    }

    /// Pages of which the positions `whole..whole + partial` may be copied.
    pub fn copy_sources(&self, ns: Space, keys: &[Key], whole: usize, partial: usize) -> Vec<u32> {
        let wanted = &keys[..whole + partial];
        let sources = self.after(ns, &keys[..whole]).map(|at| &self.pages[at]);
        sources.filter(|page| page.prefix.starts_with(wanted)).map(|page| page.page).collect()
    }

    pub fn by_page(&self, page: u32) -> Option<usize> {
        self.pages.iter().position(|published| published.page == page)
    }

    pub fn by_label(&self, label: Label) -> Option<usize> {
        self.pages.iter().position(|page| page.mark.as_ref().is_some_and(|m| m.label == label))
    }

    pub fn root_by_label(&self, label: Label) -> Option<Space> {
        self.roots.iter().find(|(_, root)| root.label == label).map(|(&ns, _)| ns)
    }

    pub fn mark_mut(&mut self, label: Label) -> Option<&mut Mark> {
        let marks = self.pages.iter_mut().filter_map(|page| page.mark.as_mut());
        marks.chain(self.roots.values_mut()).find(|mark| mark.label == label)
    }

    pub fn is_live(&self, label: Label) -> bool {
        self.by_label(label).is_some() || self.root_by_label(label).is_some()
    }

    pub fn label(&self, page: usize) -> Label {
        self.pages[page].mark.as_ref().expect("a node ends here").label
    }

    /// The last page of the node that a page is in.
    pub fn node_end(&self, page: usize) -> usize {
        let mut end = page;
        while self.pages[end].mark.is_none() {
            end = self.children(end).next().expect("only a marked page has no page after it");
        }
        end
    }

    /// The pages of the node that ends at a page, in order.
    pub fn segment(&self, end: usize) -> Vec<usize> {
        let mut pages = vec![end];
        let mut first = end;
        while let Some(parent) = self.parent(first) {
            if self.pages[parent].mark.is_some() {
                break;
            }
            first = parent;
            pages.push(first);
        }
        pages.reverse();
        pages
    }

    /// Lets a node end at a page: the deeper half keeps the id, both keep all metadata.
    pub fn split_after(&mut self, page: usize) -> Label {
        if self.pages[page].mark.is_none() {
            self.pages[page].mark = Some(self.new_mark());
        }
        self.label(page)
    }

    /// Locks on a page's prefix or on anything that extends it.
    pub fn locks_at(&self, page: usize) -> u32 {
        self.locks_below(self.pages[page].ns, &self.pages[page].prefix)
    }

    /// Locks on a page's prefix itself, and nodes right below it that are locked.
    pub fn locks_on(&self, page: usize) -> u32 {
        let own = self.pages[page].mark.as_ref().map_or(0, |mark| mark.locks);
        own + self.locked(self.children(page))
    }

    /// How many of the nodes that begin with these pages are locked.
    pub fn locked(&self, firsts: impl Iterator<Item = usize>) -> u32 {
        firsts.filter(|&first| self.locks_at(first) > 0).count() as u32
    }

    fn locks_below(&self, ns: Space, prefix: &[Key]) -> u32 {
        let of_namespace = self.pages.iter().filter(|page| page.ns == ns);
        let below = of_namespace.filter(|page| page.prefix.starts_with(prefix));
        below.filter_map(|page| page.mark.as_ref()).map(|mark| mark.locks).sum()
    }

    pub fn is_reclaimable(&self, page: usize) -> bool {
        self.locks_at(page) == 0
    }

    pub fn reclaimable(&self) -> usize {
        (0..self.pages.len()).filter(|&page| self.is_reclaimable(page)).count()
    }

    /// The next page to evict: of the unlocked pages with none after them, the one whose last use
    /// is the longest ago.
    pub fn victim(&self, newest_instead: bool) -> Option<usize> {
        let unlocked = (0..self.pages.len()).filter(|&page| self.is_reclaimable(page));
        let leaves = unlocked.filter(|&page| self.children(page).next().is_none());
        let leaves: Vec<usize> = leaves.collect();
        let used = |&page: &usize| self.pages[page].used;
        let victim = if newest_instead {
            leaves.iter().copied().max_by_key(used)
        } else {
            leaves.iter().copied().min_by_key(used)
        };
        if let Some(victim) = victim {
            let ties = leaves.iter().filter(|&leaf| used(leaf) == used(&victim)).count();
            assert_eq!(ties, 1, "two leaves were used at the same time");
        }
        victim
    }

    /// Takes a page that has none after it out of the set.
    pub fn remove(&mut self, page: usize) -> u32 {
        let parent = self.parent(page).map(|parent| self.pages[parent].page);
        let gone = self.pages.swap_remove(page);
        match parent {
            Some(parent) => {
                let parent = self.by_page(parent).expect("the page before is still published");
                if self.pages[parent].mark.is_none() {
                    self.split_after(parent); // The rest of a trimmed node has a new id.
                } else {
                    self.merge_upwards(parent);
                }
            }
            None => self.prune_root(gone.ns),
        }
        gone.page
    }

    /// Adds pages after a prefix that is published, as a new node.
    pub fn add(&mut self, ns: Space, keys: &[Key], first: usize, pages: &[u32]) {
        if pages.is_empty() {
            return;
        }
        if !self.roots.contains_key(&ns) {
            let mark = self.new_mark();
            self.roots.insert(ns, mark);
        }
        if let Some(parent) = self.find(ns, &keys[..first * self.page_size]) {
            self.pages[parent].mark.as_mut().expect("a node ends here").merge_pending = false;
        }
        let used = self.now();
        for (index, &page) in pages.iter().enumerate() {
            let prefix = keys[..(first + index + 1) * self.page_size].to_vec();
            let is_full = (index + 1).is_multiple_of(self.segment_limit);
            let is_node = self.page_nodes || is_full || index + 1 == pages.len();
            let mark = is_node.then(|| self.new_mark());
            self.pages.push(Published { ns, prefix, page, used, hits: 0, mark });
        }
    }

    /// A namespace vanishes with its last page, unless its root is locked.
    pub fn prune_root(&mut self, ns: Space) {
        let empty = self.pages.iter().all(|page| page.ns != ns);
        if empty && self.roots.get(&ns).is_some_and(|root| root.locks == 0) {
            self.roots.remove(&ns);
        }
    }

    /// Makes the node that ends at a page longer, for a sequence that holds the only lock on it and
    /// moves that lock along. The id that meant the shorter prefix goes.
    pub fn extend(&mut self, end: usize, keys: &[Key], pages: &[u32]) -> Label {
        let used = self.now();
        let Published { ns, hits, ref prefix, .. } = self.pages[end];
        let first = prefix.len() / self.page_size;
        let old = self.pages[end].mark.take().expect("a node ends here");
        for (index, &page) in pages.iter().enumerate() {
            let prefix = keys[..(first + index + 1) * self.page_size].to_vec();
            self.pages.push(Published { ns, prefix, page, used, hits, mark: None });
        }
        let mark = Mark { locks: old.locks, ..self.new_mark() };
        let label = mark.label;
        self.pages.last_mut().expect("the node had a page").mark = Some(mark);
        label
    }

    /// K24: a node with a single child becomes one with it when both are unlocked and the node was
    /// not used after the child, unless it would be too long; then the same for the node above. The
    /// child's id survives.
    pub fn merge_upwards(&mut self, end: usize) {
        let mut end = Some(end).filter(|_| !self.page_nodes);
        while let Some(at) = end {
            let above = self.parent(self.segment(at)[0]);
            let mut children = self.children(at);
            let (Some(only), None) = (children.next(), children.next()) else { return };
            drop(children);
            let child = self.node_end(only);
            let together = self.segment(at).len() + self.segment(child).len();
            if together > self.segment_limit || self.pages[at].used > self.pages[only].used {
                return;
            }
            if self.locks_at(at) > 0 {
                self.pages[at].mark.as_mut().expect("a node ends here").merge_pending = true;
                return;
            }
            let hits = self.pages[child].hits;
            for page in self.segment(at) {
                self.pages[page].hits = hits;
            }
            self.pages[at].mark = None;
            end = above;
        }
    }

    /// Takes one lock off a node, and does what waited for it.
    pub fn unlock(&mut self, label: Label) {
        let locks = &mut self.mark_mut(label).expect("a locked node stays").locks;
        *locks = locks.checked_sub(1).expect("it was locked");
        if let Some(ns) = self.root_by_label(label) {
            return self.prune_root(ns);
        }
        // From the node upwards, each node that waited and is unlocked now.
        let mut at = self.by_label(label);
        while let Some(end) = at {
            let above = self.parent(self.segment(end)[0]).map(|above| self.pages[above].page);
            if self.is_reclaimable(end) {
                let mark = self.pages[end].mark.as_mut().expect("a node ends here");
                if std::mem::take(&mut mark.merge_pending) {
                    self.merge_upwards(end);
                }
            }
            at = above.and_then(|page| self.by_page(page));
            if at.is_some_and(|above| self.pages[above].mark.is_none()) {
                // The merge went past it.
                at = at.map(|above| self.segment(self.node_end(above))[0]);
                at = at.and_then(|first| self.parent(first));
            }
        }
    }
}
