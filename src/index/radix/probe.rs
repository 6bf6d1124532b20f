//! Reading the tree without a lock, while its owner changes it.
//!
//! Three things make it right:
//!
//! 1. *Memory*: what a link leads to stays as it is until the reader leaves (`crate::grace`). Keys
//!    that were published never change; everything else that a reader looks at is atomic.
//! 2. *A node at a time*: a row is read again when its version changed meanwhile. Then its keys,
//!    its parent and its flags are those of one moment.
//! 3. *The way*: a child counts when its row names the node above as its parent, and the row above
//!    has not changed by then. So at that moment the one hung below the other, with the keys that
//!    were compared. Nodes above can't have gone: who has children is not evicted, a split and a
//!    merge leave the prefix of the deeper node as it is. So *at that moment the whole prefix was
//!    cached*. That nothing more matches is true of a moment as well: a node's children are
//!    searched between two looks at their version, and those of the table's moves.
//!    The root is looked at again in the end: when its namespace was cleared meanwhile, what was
//!    added below it since was never to be found.
//!
//! Hence what a probe returns was the length of the match at some moment during the call. A probe
//! never waits for a call on the index. When a node changes again and again while it looks, it
//! gives up, and the caller takes the lock; a change takes a fraction of a microsecond, and only
//! those of nodes on the probe's way matter, so that is rare.
use super::super::{Namespace, Probe, Reach, Ways};
use super::fetch::{self, Paths, fetch_way, is_large};
use super::hash::ChildHash;
use super::row::{Rows, Seen};
use crate::grace::{Led, Reader, prefetch};
use crate::memory::{Arc, OutOfMemory};
use crate::sync::{AtomicU32, Ordering::Relaxed, limit, spin_loop};
use crate::tree::{Changed, Hint, NONE, TableView, Version, common_start};

use std::cell::Cell;

/// Attempts, before the caller takes the lock.
const ATTEMPTS: usize = limit(32, 2);

/// The index as readers without a lock see it.
#[derive(Debug)]
pub(super) struct View {
    page_size: usize,
    hasher: ChildHash,
    pub(super) rows: Arc<Rows>,
    table: Arc<TableView>,
    /// Changes with the set of roots.
    pub(super) roots: Version,
    pub(super) default_root: AtomicU32,
}

impl View {
    pub(super) fn new(
        page_size: usize,
        hasher: ChildHash,
        table: Arc<TableView>,
    ) -> Result<Self, OutOfMemory> {
        let (rows, roots) = (Arc::new(Rows::default())?, Version::default());
        Ok(Self { page_size, hasher, rows, table, roots, default_root: AtomicU32::new(NONE) })
    }

    #[inline(always)] // a probe's step
    fn read<'a>(&'a self, at: u32, reader: &'a Reader) -> Result<Seen<'a>, Changed> {
        self.rows.read(at, self.page_size, reader)
    }

    /// The first entry of the table that leads to what is wanted.
    fn find<'a>(
        &'a self,
        parent: u32,
        first_page: &[u32],
        reader: &'a Reader,
        wanted: impl Fn(&Seen<'a>) -> bool,
    ) -> Result<Option<Seen<'a>>, Changed> {
        let hash = self.hasher.hash(parent, first_page);
        let mut found = None;
        self.table.find(hash, reader, |at| {
            let seen = self.read(at, reader)?;
            found = Some(seen).filter(&wanted);
            Ok(found.is_some())
        })?;
        Ok(found)
    }

    #[inline(always)] // a probe's first step
    fn root<'a>(
        &'a self,
        namespace: &Namespace,
        reader: &'a Reader,
    ) -> Result<Option<Seen<'a>>, Changed> {
        let words = namespace.words();
        let (roots, moves) = (self.roots.peek(), self.table.moves.peek());
        let is_it = |seen: &Seen<'a>| seen.shape.is_root() && seen.name(reader) == words;
        let found = if *namespace != Namespace::default() {
            self.find(NONE, &words, reader, is_it)?
        } else {
            match self.default_root.load(Relaxed) {
                NONE => None,
                at => Some(self.read(at, reader)?).filter(is_it),
            }
        };
        if found.is_none() {
            self.roots.expect(roots)?;
            self.table.moves.expect(moves)?;
        }
        Ok(found)
    }

    /// The child that begins with the first whole page of keys, and how many keys it shares with
    /// them.
    fn child<'a>(
        &'a self,
        node: &Seen<'a>,
        keys: &[u32],
        reader: &'a Reader,
    ) -> Result<Option<(Seen<'a>, usize)>, Changed> {
        let Some(first_page) = keys.get(..self.page_size) else {
            return Ok(None);
        };
        let hangs = |seen: &Seen<'_>| seen.parent == node.at;
        let child = match node.kids() {
            Led::Nothing => None,
            Led::Arrays => self.find(node.at, first_page, reader, hangs)?,
            Led::Number(only) => Some(self.read(only, reader)?).filter(hangs),
        };
        let Some(child) = child else { return Ok(None) };
        let common = common_start(child.keys, keys);
        if common >= self.page_size {
            return Ok(Some((child, common)));
        }
        self.child_beside(node, keys, reader)
    }

    /// The same where another child has the hash of that page, or is the only one.
    #[cold]
    fn child_beside<'a>(
        &'a self,
        node: &Seen<'a>,
        keys: &[u32],
        reader: &'a Reader,
    ) -> Result<Option<(Seen<'a>, usize)>, Changed> {
        let Led::Arrays = node.kids() else { return Ok(None) };
        let first_page = &keys[..self.page_size];
        let begins = |seen: &Seen<'_>| seen.parent == node.at && seen.keys.starts_with(first_page);
        let child = self.find(node.at, first_page, reader, begins)?;
        Ok(child.map(|child| (child, common_start(child.keys, keys))))
    }

    /// The longest start of a page that the keys share with a child, and whether that child may
    /// have other than text.
    fn longest_start<'a>(
        &'a self,
        node: &Seen<'a>,
        keys: &[u32],
        reader: &'a Reader,
    ) -> Result<(usize, bool), Changed> {
        let page = &keys[..keys.len().min(self.page_size)];
        let Some(&first_key) = page.first() else {
            return Ok((0, false));
        };
        let first_page = |at: u32| {
            let seen = self.read(at, reader)?;
            Ok((seen.keys.get(..self.page_size).ok_or(Changed)?, seen.shape.media()))
        };
        let share = |at: u32| {
            let (keys, media) = first_page(at)?;
            Ok((common_start(keys, page), media))
        };
        match node.kids() {
            Led::Nothing => return Ok((0, false)),
            Led::Number(only) => return share(only),
            Led::Arrays => {}
        }
        let changed = Cell::new(Ok(()));
        let near = node.runs(reader).neighbours(first_key, |at| {
            first_page(at).map(|(keys, _)| keys < page).unwrap_or_else(|error| {
                changed.set(Err(error));
                false
            })
        });
        changed.get()?;
        let mut best = (0, false);
        for near in near.into_iter().flatten().filter(|near| near.first_key == first_key) {
            let found = share(near.node)?;
            // As the owner chooses: of two that are equal the later one.
            best = if found.0 >= best.0 { found } else { best };
        }
        Ok(best)
    }

    fn try_reach(
        &self,
        namespace: &Namespace,
        keys: &[u32],
        is_ahead: bool,
        reader: &Reader,
    ) -> Result<Reach, Changed> {
        let mut reach = Reach::default();
        let Some(root) = self.root(namespace, reader)? else {
            return Ok(reach);
        };
        let seer = Seer(self, reader);
        if !is_ahead && is_large(&seer) {
            fetch_way(&seer, self.page_size, root.at, keys);
        }
        let mut node = root;
        let mut rest = keys;
        loop {
            let (children, moves) = (node.row.children.peek(), self.table.moves.peek());
            let Some((child, common)) = self.child(&node, rest, reader)? else {
                let (partial, media) = self.longest_start(&node, rest, reader)?;
                node.row.children.expect(children)?;
                self.table.moves.expect(moves)?;
                node.expect_same()?;
                root.expect_same()?;
                return Ok(Reach { partial, media: reach.media | media, ..reach });
            };
            node.expect_same()?;
            reach.media |= child.shape.media();
            reach.pages += common / self.page_size;
            reach.partial = common % self.page_size;
            if common < child.keys.len() {
                root.expect_same()?;
                return Ok(reach);
            }
            (node, rest) = (child, &rest[common..]);
        }
    }
}

/// The tree as a reader sees it.
struct Seer<'a>(&'a View, &'a Reader);

impl Paths for Seer<'_> {
    fn slots(&self) -> usize {
        self.0.table.slots(self.1)
    }

    fn hash(&self, node: u32, first_page: &[u32]) -> u32 {
        self.0.hasher.hash(node, first_page)
    }

    fn fetch_slot(&self, hash: u32) {
        self.0.table.fetch(hash, self.1);
    }

    fn in_slot(&self, hash: u32) -> Option<Hint> {
        self.0.table.hint(hash, self.1)
    }

    fn fetch_node(&self, node: u32) {
        self.0.rows.get(node).into_iter().for_each(prefetch);
    }

    fn key_count(&self, node: u32) -> usize {
        self.0.rows.get(node).map_or(0, |row| row.key_count(self.0.page_size))
    }

    fn fetch_keys(&self, node: u32) {
        self.0.rows.get(node).into_iter().for_each(|row| row.fetch_keys(self.0.page_size));
    }
}

impl Probe for Arc<View> {
    fn is_large(&self, reader: &Reader) -> bool {
        is_large(&Seer(self, reader))
    }

    fn first_node(&self, namespace: &Namespace, reader: &Reader) -> Option<u32> {
        let root = self.root(namespace, reader).ok().flatten();
        root.map(|root| root.at)
    }

    fn go_on(&self, ways: &mut Ways<'_>, reader: &Reader) {
        fetch::go_on(&Seer(self, reader), self.page_size, ways);
    }

    fn reach(
        &self,
        namespace: &Namespace,
        keys: &[u32],
        is_ahead: bool,
        reader: &Reader,
    ) -> Option<Reach> {
        (0..ATTEMPTS).find_map(|attempt| {
            (0..attempt).for_each(|_| spin_loop());
            self.try_reach(namespace, keys, is_ahead, reader).ok()
        })
    }
}
