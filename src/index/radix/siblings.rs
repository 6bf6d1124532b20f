//! The children of a node, in the order of their first pages.
//!
//! The order serves the search for the child that shares the longest start of a page: it is one of
//! the two between which the query would stand. (A child that shares a whole page is found by the
//! `ChildTable`.) A few children are one sorted list; many are sorted runs of bounded length, so
//! that adding one moves little.
use smallvec::SmallVec;
use std::cmp::Ordering;

/// A child, with the first key of its first page: most comparisons need no look at the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sibling {
    pub(super) first_key: u32,
    pub(super) node: u32,
}

/// Length at which a run is cut in two.
const RUN: usize = 256;

#[derive(Debug)]
pub(super) enum Siblings {
    Few(SmallVec<[Sibling; 2]>),
    Many { runs: Vec<Vec<Sibling>>, count: usize },
}

impl Default for Siblings {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl Siblings {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many { count, .. } => *count,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The child of a node that has just one.
    pub(super) fn only(&self) -> Option<u32> {
        match self {
            Self::Few(few) if few.len() == 1 => Some(few[0].node),
            _ if self.len() == 1 => self.iter().next().map(|sibling| sibling.node),
            _ => None,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Sibling> + '_ {
        let (few, many) = match self {
            Self::Few(few) => (few.as_slice(), &[][..]),
            Self::Many { runs, .. } => (&[][..], runs.as_slice()),
        };
        few.iter().chain(many.iter().flatten()).copied()
    }

    /// Heap memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Few(few) if few.spilled() => few.capacity() * size_of::<Sibling>(),
            Self::Few(_) => 0,
            Self::Many { runs, .. } => {
                let entries: usize = runs.iter().map(Vec::capacity).sum();
                entries * size_of::<Sibling>() + runs.capacity() * size_of::<Vec<Sibling>>()
            }
        }
    }

    /// Adds a child at its place; `order` compares another child with it.
    pub(super) fn insert(&mut self, new: Sibling, order: impl FnMut(Sibling) -> Ordering) {
        let (run, at) = self.place(order);
        match self {
            Self::Few(few) => {
                few.insert(at, new);
                if few.len() > RUN {
                    let (count, run) = (few.len(), few.to_vec());
                    *self = Self::Many { runs: vec![run], count };
                    self.cut(0);
                }
            }
            Self::Many { runs, count } => {
                runs[run].insert(at, new);
                *count += 1;
                self.cut(run);
            }
        }
    }

    /// Takes a child away; `order` compares another child with it.
    pub(super) fn remove(&mut self, order: impl FnMut(Sibling) -> Ordering) {
        let (run, at) = self.place(order);
        match self {
            Self::Few(few) => {
                few.remove(at);
            }
            Self::Many { runs, count } => {
                runs[run].remove(at);
                *count -= 1;
                if runs[run].is_empty() {
                    runs.remove(run);
                }
            }
        }
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Puts another node in a child's place, with the same first page.
    pub(super) fn replace(&mut self, node: u32, order: impl FnMut(Sibling) -> Ordering) {
        let (run, at) = self.place(order);
        match self {
            Self::Few(few) => few[at].node = node,
            Self::Many { runs, .. } => runs[run][at].node = node,
        }
    }

    /// The children between which something stands that `order` compares others with.
    pub(super) fn neighbours(
        &self,
        order: impl FnMut(Sibling) -> Ordering,
    ) -> [Option<Sibling>; 2] {
        let (run, at) = self.place(order);
        match self {
            Self::Few(few) => [at.checked_sub(1).map(|at| few[at]), few.get(at).copied()],
            Self::Many { runs, .. } => {
                let before = match at.checked_sub(1) {
                    Some(at) => Some(runs[run][at]),
                    None => run.checked_sub(1).and_then(|run| runs[run].last().copied()),
                };
                let after = runs.get(run).and_then(|run| run.get(at));
                let next = runs.get(run + 1).and_then(|run| run.first());
                [before, after.or(next).copied()]
            }
        }
    }

    /// Run and index of the first child that does not stand before.
    fn place(&self, mut order: impl FnMut(Sibling) -> Ordering) -> (usize, usize) {
        let mut before = |sibling: &Sibling| order(*sibling) == Ordering::Less;
        match self {
            Self::Few(few) => (0, few.partition_point(before)),
            Self::Many { runs, .. } => {
                // The last run that begins before: what follows may stand in its middle or at its
                // end.
                let run = runs.partition_point(|run| before(&run[0])).saturating_sub(1);
                let at = runs[run].partition_point(&mut before);
                if at == runs[run].len() && run + 1 < runs.len() { (run + 1, 0) } else { (run, at) }
            }
        }
    }

    fn cut(&mut self, run: usize) {
        let Self::Many { runs, .. } = self else {
            return;
        };
        if runs[run].len() > RUN {
            let half = runs[run].split_off(RUN / 2);
            runs.insert(run + 1, half);
        }
    }
}
