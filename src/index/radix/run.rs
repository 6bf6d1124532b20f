//! Sorted runs of children, as their owner changes them and as readers without a lock search them.
use crate::grace::{Array, Link, Reader};
use crate::memory::OutOfMemory;
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
pub(super) const RUN: usize = limit(128, 2);

impl Sibling {
    pub(super) fn pack(self) -> u64 {
        (self.first_key as u64) << 32 | self.node as u64
    }

    pub(super) fn unpack(entry: u64) -> Option<Self> {
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
pub(super) type Place = (usize, usize);

impl<'a> Runs<'a> {
    pub(super) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(runs, _) => runs.len(),
            Self::Owned(runs) => runs.len(),
        }
    }

    pub(super) fn run(&self, at: usize) -> &'a [Entry] {
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

    #[inline(always)]
    fn get(&self, (run, at): Place) -> Option<Sibling> {
        let entry = (run < self.count()).then(|| self.run(run)).and_then(|run| run.get(at));
        entry.and_then(|entry| Sibling::unpack(entry.load(Relaxed)))
    }

    /// The last run that begins before keys, or the first run; and in it the first child that
    /// doesn't stand before them. `before` decides it of children with the same first key.
    #[inline]
    pub(super) fn search(&self, first_key: u32, mut before: impl FnMut(u32) -> bool) -> Place {
        // No child has as large a first key as an EMPTY entry, but an id that nobody has checked
        // yet may be as large: then those stand behind it.
        let key = |entry: &Entry| (entry.load(Relaxed) >> 32) as u32;
        let mut tied_before = |entry: &Entry| {
            Sibling::unpack(entry.load(Relaxed)).is_some_and(|child| before(child.node))
        };
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
    pub(super) len: u32,
    pub(super) entries: Array<Entry>,
}

/// The same, wherever its parts are: in a node there is no room for a `Run` in one piece.
pub(super) struct RunMut<'a> {
    pub(super) len: &'a mut u32,
    pub(super) entries: &'a mut Array<Entry>,
}

impl Run {
    /// A run without entries.
    pub(super) fn empty(capacity: usize) -> Result<Self, OutOfMemory> {
        let entries = Array::shown((0..capacity).map(|_| Entry::new(EMPTY)))?;
        Ok(Self { len: 0, entries })
    }

    /// Copies entries into an empty run.
    pub(super) fn fill(&mut self, entries: &[Entry]) {
        self.entries.iter().zip(entries).for_each(|(to, from)| move_entry(from, to));
        self.len = entries.len() as u32;
    }

    pub(super) fn as_mut(&mut self) -> RunMut<'_> {
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

    /// Moves the entries from one on into an empty run.
    pub(super) fn cut(&mut self, at: usize, into: &mut Run) {
        let rest = &self.entries()[at..];
        into.fill(rest);
        rest.iter().for_each(|entry| entry.store(EMPTY, Relaxed));
        *self.len = at as u32;
    }

    /// Puts an entry in; there is room.
    pub(super) fn insert(&mut self, at: usize, new: Sibling) {
        let entries = &self.entries[at..=*self.len as usize];
        for pair in entries.windows(2).rev() {
            move_entry(&pair[0], &pair[1]);
        }
        entries[0].store(new.pack(), Relaxed);
        *self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        let entries = &self.entries()[at..];
        for pair in entries.windows(2) {
            move_entry(&pair[1], &pair[0]);
        }
        entries[entries.len() - 1].store(EMPTY, Relaxed);
        *self.len -= 1;
    }
}
