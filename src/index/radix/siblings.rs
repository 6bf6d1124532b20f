//! The children of a node, in the order of their first pages.
//!
//! The order serves the search for the child that shares the longest start of a page: it is one of
//! the two between which the query would stand. (A child that shares a whole page is found by the
//! `ChildTable`.) A few children are one sorted run; many are sorted runs of bounded length, so
//! that adding one moves little.
//!
//! Readers without a lock search the same runs. An entry is one atomic, so what they read while
//! entries move is some child or none; `Row::children` tells them that they have to read again.
use super::super::tree::NONE;
use super::row::{Row, SEVERAL};
use crate::grace::{Array, Garbage, Link, Reader};
use crate::sync::{AtomicU64, Ordering::Relaxed, limit};

/// A child, with the first key of its first page: most comparisons need no look at the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sibling {
    pub(super) first_key: u32,
    pub(super) node: u32,
}

/// A `Sibling`, or EMPTY behind the last one of a run.
pub(super) type Entry = AtomicU64;

/// No node has the number that this would be.
const EMPTY: u64 = u64::MAX;
/// Length at which a run is cut in two.
const RUN: usize = limit(128, 2);

impl Sibling {
    fn pack(self) -> u64 {
        (self.first_key as u64) << 32 | self.node as u64
    }

    fn unpack(entry: u64) -> Option<Self> {
        let sibling = Self { first_key: (entry >> 32) as u32, node: entry as u32 };
        (entry != EMPTY).then_some(sibling)
    }
}

/// Sorted runs, as a reader or the owner has them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Runs<'a> {
    One(&'a [Entry]),
    Many(&'a [Link<Entry>], &'a Reader),
    Owned(&'a [Run]),
}

/// Run, and index in it.
type Place = (usize, usize);

impl<'a> Runs<'a> {
    fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(runs, _) => runs.len(),
            Self::Owned(runs) => runs.len(),
        }
    }

    fn run(&self, at: usize) -> &'a [Entry] {
        match *self {
            Self::One(run) => run,
            Self::Many(runs, reader) => runs[at].read(reader),
            Self::Owned(runs) => &runs[at].entries[..runs[at].len as usize],
        }
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Sibling> + 'a {
        let entries = (0..self.count()).flat_map(move |at| self.run(at));
        entries.filter_map(|entry| Sibling::unpack(entry.load(Relaxed)))
    }

    fn get(&self, (run, at): Place) -> Option<Sibling> {
        let entry = (run < self.count()).then(|| self.run(run)).and_then(|run| run.get(at));
        entry.and_then(|entry| Sibling::unpack(entry.load(Relaxed)))
    }

    /// The last run that begins before keys, or the first run; and in it the first child that
    /// doesn't stand before them. `before` decides it of children with the same first key.
    #[inline]
    fn search(&self, first_key: u32, mut before: impl FnMut(u32) -> bool) -> Place {
        // No first key is as large as that of an EMPTY entry.
        let key = |entry: &Entry| (entry.load(Relaxed) >> 32) as u32;
        let mut tied_before = |entry: &Entry| before(entry.load(Relaxed) as u32);
        let (mut run, mut end) = (0, self.count());
        while end - run > 1 {
            let middle = run + (end - run) / 2;
            let begins = self.run(middle).first().is_some_and(|first| {
                key(first) < first_key || (key(first) == first_key && tied_before(first))
            });
            *(if begins { &mut run } else { &mut end }) = middle;
        }
        let entries = self.run(run);
        let at = entries.partition_point(|entry| key(entry) < first_key);
        if entries.get(at).is_none_or(|entry| key(entry) != first_key) {
            return (run, at);
        }
        let tied = entries[at..].partition_point(|entry| key(entry) == first_key);
        (run, at + entries[at..at + tied].partition_point(tied_before))
    }

    /// The children between which keys stand.
    #[inline]
    pub(super) fn neighbours(
        &self,
        first_key: u32,
        before: impl FnMut(u32) -> bool,
    ) -> [Option<Sibling>; 2] {
        let (run, at) = self.search(first_key, before);
        // What stands before the first child of a run stands in the run before.
        let before = at.checked_sub(1).and_then(|at| self.get((run, at)));
        [before, self.get((run, at)).or_else(|| self.get((run + 1, 0)))]
    }
}

/// A sorted run: `len` entries, and EMPTY ones behind them.
#[derive(Debug)]
pub(super) struct Run {
    len: u32,
    entries: Array<Entry>,
}

/// The same, wherever its parts are: in a node there is no room for a `Run` in one piece.
struct RunMut<'a> {
    len: &'a mut u32,
    entries: &'a mut Array<Entry>,
}

impl Run {
    fn new(capacity: usize, len: usize, get: impl Fn(usize) -> u64) -> Self {
        let entry = |at| if at < len { get(at) } else { EMPTY };
        let entries = Array::shown((0..capacity).map(|at| Entry::new(entry(at))));
        Self { len: len as u32, entries }
    }

    fn as_mut(&mut self) -> RunMut<'_> {
        RunMut { len: &mut self.len, entries: &mut self.entries }
    }
}

fn move_entry(from: &Entry, to: &Entry) {
    to.store(from.load(Relaxed), Relaxed);
}

impl RunMut<'_> {
    fn entries(&self) -> &[Entry] {
        &self.entries[..*self.len as usize]
    }

    /// The entries from one on, which are in a run of their own afterwards.
    fn cut(&mut self, at: usize) -> Run {
        let rest = &self.entries()[at..];
        let cut = Run::new(RUN, rest.len(), |at| rest[at].load(Relaxed));
        rest.iter().for_each(|entry| entry.store(EMPTY, Relaxed));
        *self.len = at as u32;
        cut
    }

    /// Puts an entry in; the run may be in other memory afterwards.
    fn insert(&mut self, at: usize, new: Sibling) {
        let len = *self.len as usize;
        if len == self.entries.len() {
            let entries = self.entries();
            *self.entries =
                Run::new((len * 2).min(RUN), len, |at| entries[at].load(Relaxed)).entries;
        }
        let entries = &self.entries[at..=len];
        for pair in entries.windows(2).rev() {
            move_entry(&pair[0], &pair[1]);
        }
        entries[0].store(new.pack(), Relaxed);
        *self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let entries = &self.entries()[at..];
        for pair in entries.windows(2) {
            move_entry(&pair[1], &pair[0]);
        }
        entries[entries.len() - 1].store(EMPTY, Relaxed);
        *self.len -= 1;
    }
}

/// The children of a node.
#[derive(Debug, Default)]
pub(super) enum Siblings {
    #[default]
    None,
    One(Sibling),
    Few {
        len: u32,
        entries: Array<Entry>,
    },
    Many(Box<Many>),
}

#[derive(Debug)]
pub(super) struct Many {
    runs: Vec<Run>,
    /// The way to them for readers.
    links: Array<Link<Entry>>,
    count: usize,
}

impl Many {
    fn link(&mut self, garbage: &mut Garbage) {
        self.links = Array::shown(self.runs.iter_mut().map(|run| {
            let link = Link::default();
            link.set(Some(&mut run.entries), garbage);
            link
        }));
    }

    fn cut(&mut self, run: usize, garbage: &mut Garbage) {
        let half = self.runs[run].as_mut().cut(RUN / 2);
        self.runs.insert(run + 1, half);
        self.link(garbage);
    }
}

impl Siblings {
    fn few(Run { len, entries }: Run) -> Self {
        Self::Few { len, entries }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Few { len, .. } => *len as usize,
            Self::Many(many) => many.count,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The child of a node that has just one.
    pub(super) fn only(&self) -> Option<u32> {
        match self {
            Self::One(one) => Some(one.node),
            _ => None,
        }
    }

    fn runs(&self) -> Option<Runs<'_>> {
        match self {
            Self::None | Self::One(_) => None,
            Self::Few { len, entries } => Some(Runs::One(&entries[..*len as usize])),
            Self::Many(many) => Some(Runs::Owned(&many.runs)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Sibling> + '_ {
        let one = if let Self::One(one) = self { Some(*one) } else { None };
        one.into_iter().chain(self.runs().into_iter().flat_map(Runs::iter))
    }

    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::None | Self::One(_) => 0,
            Self::Few { entries, .. } => entries.bytes(),
            Self::Many(many) => {
                let entries: usize = many.runs.iter().map(|run| run.entries.bytes()).sum();
                entries + many.runs.capacity() * size_of::<Run>() + many.links.bytes()
            }
        }
    }

    /// The children between which keys stand. `before` tells of a child with the same first key
    /// whether it stands before them.
    #[inline]
    pub(super) fn neighbours(
        &self,
        first_key: u32,
        before: impl FnMut(u32) -> bool,
    ) -> [Option<Sibling>; 2] {
        match self {
            Self::None => [None; 2],
            Self::One(one) => [Some(*one), None],
            _ => self.runs().map_or([None; 2], |runs| runs.neighbours(first_key, before)),
        }
    }

    /// Where the first child stands that doesn't stand before keys.
    #[inline]
    pub(super) fn place(&self, first_key: u32, mut before: impl FnMut(u32) -> bool) -> Place {
        match self {
            Self::None => (0, 0),
            Self::One(one) if one.first_key == first_key => (0, before(one.node) as usize),
            Self::One(one) => (0, (one.first_key < first_key) as usize),
            _ => {
                let runs = self.runs().expect("there are several");
                let (run, at) = runs.search(first_key, before);
                let ends = at == runs.run(run).len() && run + 1 < runs.count();
                if ends { (run + 1, 0) } else { (run, at) }
            }
        }
    }

    /// Adds a child at its place.
    pub(super) fn insert(&mut self, (run, at): Place, new: Sibling, garbage: &mut Garbage) {
        match self {
            Self::None => *self = Self::One(new),
            Self::One(one) => {
                let pair = if at == 0 { [new, *one] } else { [*one, new] };
                *self = Self::few(Run::new(2, 2, |at| pair[at].pack()));
            }
            Self::Few { len, entries } if (*len as usize) < RUN => {
                RunMut { len, entries }.insert(at, new);
            }
            Self::Few { .. } => {
                let Self::Few { len, entries } = std::mem::take(self) else { unreachable!() };
                let (count, links) = (len as usize, Array::with_capacity(0));
                let mut many = Many { runs: vec![Run { len, entries }], links, count };
                many.cut(0, garbage);
                *self = Self::Many(Box::new(many));
                let place = if at > RUN / 2 { (1, at - RUN / 2) } else { (0, at) };
                self.insert(place, new, garbage);
            }
            Self::Many(many) => {
                let (many, mut run, mut at) = (&mut **many, run, at);
                if many.runs[run].len as usize == RUN {
                    many.cut(run, garbage);
                    if at > RUN / 2 {
                        (run, at) = (run + 1, at - RUN / 2);
                    }
                }
                let into = &mut many.runs[run];
                into.as_mut().insert(at, new);
                many.links[run].set(Some(&mut into.entries), garbage);
                many.count += 1;
            }
        }
    }

    /// Takes the child at a place away.
    pub(super) fn remove(&mut self, (run, at): Place, garbage: &mut Garbage) {
        match self {
            Self::None | Self::One(_) => *self = Self::None,
            Self::Few { len, entries } => RunMut { len, entries }.remove(at),
            Self::Many(many) => {
                many.runs[run].as_mut().remove(at);
                many.count -= 1;
                if many.runs[run].len == 0 {
                    many.runs.remove(run);
                    many.link(garbage);
                }
                if many.runs.len() == 1 {
                    let last = many.runs.pop().expect("there is a run");
                    *self = Self::few(last);
                }
            }
        }
        if let Self::Few { len: 1, entries } = self {
            let last = Sibling::unpack(entries[0].load(Relaxed)).expect("the run has a child");
            *self = Self::One(last);
        }
    }

    /// Puts another node in the place of a child, with the same first page.
    pub(super) fn replace(&mut self, (run, at): Place, node: u32) {
        let set = |entry: &Entry| {
            let before = Sibling::unpack(entry.load(Relaxed)).expect("a child is here");
            entry.store(Sibling { node, ..before }.pack(), Relaxed);
        };
        match self {
            Self::None => unreachable!("a child is replaced that isn't there"),
            Self::One(one) => one.node = node,
            Self::Few { entries, .. } => set(&entries[at]),
            Self::Many(many) => set(&many.runs[run].entries[at]),
        }
    }

    /// Shows a node's children to readers, while its row says that they are changing.
    pub(super) fn publish(&mut self, row: &Row, garbage: &mut Garbage) {
        let several = self.len() > 1;
        let only = if several { SEVERAL } else { self.only().unwrap_or(NONE) };
        row.only.store(only, Relaxed);
        let (few, many) = match self {
            Self::None | Self::One(_) => (None, None),
            Self::Few { entries, .. } => (Some(entries), None),
            Self::Many(many) => (None, Some(&mut many.links)),
        };
        row.few.set(few, garbage);
        row.many.set(many, garbage);
    }
}
