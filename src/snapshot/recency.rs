//! In which order entries go: a list that is threaded through an array, every step O(1).
//!
//! The links lie beside the tree, one for each node; the list's ends and every change of it are the
//! ledger's. So whoever walks the tree can have the links of what it meets fetched meanwhile; what
//! it sees of them decides nothing.
use super::NONE;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[derive(Debug)]
struct Link {
    before: AtomicU32,
    after: AtomicU32,
    /// Pins on the entry.
    pins: AtomicU32,
}

/// Neighbour of an entry that is not in the list.
const OUT: u32 = NONE - 1;

impl Link {
    fn new() -> Self {
        Self { before: OUT.into(), after: OUT.into(), pins: 0.into() }
    }
}

/// The links of all nodes, by number; entries are named by the node where they end.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

/// The ends of the list. Having it to change means having the ledger.
#[derive(Debug)]
pub(super) struct Order {
    oldest: u32,
    newest: u32,
}

impl Order {
    pub(super) fn new() -> Self {
        Self { oldest: NONE, newest: NONE }
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }
}

impl Links {
    /// Makes room for as many nodes.
    pub(super) fn grow(&mut self, nodes: usize) {
        if self.0.len() < nodes {
            self.0.resize_with(nodes, Link::new);
        }
    }

    fn at(&self, at: u32) -> &Link {
        &self.0[at as usize]
    }

    /// Has an entry's link fetched into the cache. Changes nothing.
    #[inline]
    pub(super) fn fetch(&self, at: u32) {
        // A race detector that knows locks alone would call these reads a race.
        if cfg!(not(feature = "pthread-lock")) {
            std::hint::black_box(self.at(at).pins.load(Relaxed));
        }
    }

    /// The same for its neighbours, which change when it is taken out.
    #[inline]
    pub(super) fn fetch_neighbours(&self, at: u32) {
        if cfg!(not(feature = "pthread-lock")) {
            let link = self.at(at);
            for near in [link.before.load(Relaxed), link.after.load(Relaxed)] {
                let near = self.0.get(near as usize).map_or(0, |near| near.pins.load(Relaxed));
                std::hint::black_box(near);
            }
        }
    }

    pub(super) fn contains(&self, at: u32) -> bool {
        self.at(at).before.load(Relaxed) != OUT
    }

    /// Puts an entry that is not in the list at its newest end.
    pub(super) fn push(&self, order: &mut Order, at: u32) {
        debug_assert!(!self.contains(at));
        self.at(at).before.store(order.newest, Relaxed);
        self.at(at).after.store(NONE, Relaxed);
        match order.newest {
            NONE => order.oldest = at,
            newest => self.at(newest).after.store(at, Relaxed),
        }
        order.newest = at;
    }

    /// Takes an entry out.
    pub(super) fn remove(&self, order: &mut Order, at: u32) {
        debug_assert!(self.contains(at));
        let link = self.at(at);
        let (before, after) = (link.before.swap(OUT, Relaxed), link.after.swap(OUT, Relaxed));
        match before {
            NONE => order.oldest = after,
            before => self.at(before).after.store(after, Relaxed),
        }
        match after {
            NONE => order.newest = before,
            after => self.at(after).before.store(before, Relaxed),
        }
    }

    pub(super) fn pins(&self, at: u32) -> u32 {
        self.at(at).pins.load(Relaxed)
    }

    /// Sets the number of pins, which only who has the ledger changes.
    pub(super) fn set_pins(&self, _: &mut Order, at: u32, pins: u32) {
        self.at(at).pins.store(pins, Relaxed);
    }

    /// From the oldest to the newest. Ends where the list contradicts itself.
    pub(super) fn iter(&self, order: &Order) -> impl Iterator<Item = u32> + '_ {
        let next = |at: &u32| Some(self.at(*at).after.load(Relaxed)).filter(|&at| at != NONE);
        std::iter::successors(order.oldest(), next).take(self.0.len())
    }

    /// Whether every link is answered by its neighbour.
    pub(super) fn is_sound(&self, order: &Order) -> bool {
        let mut before = NONE;
        for at in self.iter(order) {
            if self.at(at).before.load(Relaxed) != before {
                return false;
            }
            before = at;
        }
        order.newest == before
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Link>()
    }
}
