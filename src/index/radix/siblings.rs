//! The children of a node, in the order of their first pages.
//!
//! The order serves the search for the child that shares the longest start of a page: it is one of
//! the two between which the query would stand. (A child that shares a whole page is found by the
//! `ChildTable`.) A few children are one sorted run; many are sorted runs, no longer than about the
//! square root of their number, so that neither adding one to a run nor adding a run moves much.
//!
//! Readers without a lock search the same runs. An entry is one atomic, so what they read while
//! entries move is some child or none; `Row::children` tells them that they have to read again.
use super::row::Row;
use super::run::{Entry, Place, RUN, Run, RunMut, Runs, Sibling};
use crate::grace::{Array, Garbage, Lead, Link};
use crate::memory::{OutOfMemory, try_box};
use crate::sync::Ordering::Relaxed;

/// Length at which a run of so many children is cut.
fn run_limit(count: usize) -> usize {
    count.isqrt().next_power_of_two().max(RUN)
}

/// Room of the first run: with an odd number of entries nothing of what the allocator gives is left
/// over, since a header and its own note come before them.
const FIRST_RUN: usize = 3;

/// Room of a run with half as many entries more, as long as it is short.
fn longer(room: usize) -> usize {
    ((room + room / 2) | 1).min(RUN)
}

/// A run is given less memory when it uses this part of it.
const SPARSE: usize = 8;

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
    /// Their heap memory.
    run_bytes: usize,
    /// The way to them for readers; there may be empty ones behind.
    links: Links,
    count: usize,
}

type Links = Array<Link<Entry>>;

fn links(count: usize) -> Result<Links, OutOfMemory> {
    Array::shown((0..count).map(|_| Link::default()))
}

/// Memory that another child needs, made before it comes.
#[derive(Debug)]
pub(super) enum Room {
    /// There is room.
    There,
    /// A run that is larger than the one at the place.
    Run(Run),
    /// The second part of a run that is cut, and links to all of them.
    Cut(Run, Links),
    /// The same, where the run is the only one yet.
    Many(Box<Many>, Run, Links),
}

impl Room {
    /// For a child beside an only one.
    pub(super) fn for_second() -> Result<Self, OutOfMemory> {
        Ok(Self::Run(Run::empty(FIRST_RUN.min(RUN))?))
    }
}

impl Many {
    /// Makes the links from one on lead to the runs: of those that do already none is touched.
    fn link(&mut self, from: usize, garbage: &mut Garbage) {
        for at in from..self.links.len() {
            self.links[at].set(self.runs.get_mut(at).map(|run| &mut run.entries), garbage);
        }
    }

    /// Moves half of a run into an empty one, for which there is room; returns where a place in it
    /// is now. Behind the last entry nothing is moved: children that come in their order, one after
    /// another, leave full runs behind.
    fn cut(
        &mut self,
        (run, at): Place,
        mut half: Run,
        links: Links,
        garbage: &mut Garbage,
    ) -> Place {
        let len = self.runs[run].len as usize;
        let is_behind = at == len;
        let stay = if is_behind { len } else { len / 2 };
        self.runs[run].as_mut().cut(stay, &mut half);
        self.run_bytes += half.entries.bytes();
        for (at, old) in self.links.iter().enumerate().take(self.runs.len()) {
            links[at + usize::from(at > run)].take(old);
        }
        self.runs.insert(run + 1, half);
        self.links = links;
        self.link(0, garbage);
        if at > stay || is_behind { (run + 1, at - stay) } else { (run, at) }
    }

    /// Moves the entries of a run into an empty one.
    fn replace_run(&mut self, run: usize, mut other: Run, garbage: &mut Garbage) {
        let old = &mut self.runs[run];
        other.fill(&old.entries[..old.len as usize]);
        self.run_bytes = self.run_bytes + other.entries.bytes() - old.entries.bytes();
        let old = std::mem::replace(old, other);
        self.links[run].set(Some(&mut self.runs[run].entries), garbage);
        drop(old);
    }

    /// Gives most of the memory of a run back, if little of it is used and there is some for a
    /// smaller one.
    fn shrink_run(&mut self, run: usize, garbage: &mut Garbage) {
        let (len, room) = (self.runs[run].len as usize, self.runs[run].entries.len());
        if room > RUN
            && len * SPARSE <= room
            && let Ok(smaller) = Run::empty((room / SPARSE * 2).max(RUN))
        {
            self.replace_run(run, smaller, garbage);
        }
    }

    /// Takes an empty run away.
    fn remove_run(&mut self, run: usize, garbage: &mut Garbage) {
        self.links[run].set(None, garbage);
        self.run_bytes -= self.runs.remove(run).entries.bytes();
        for at in run..self.runs.len() {
            self.links[at].take(&self.links[at + 1]);
        }
        // Without memory for fewer links the old ones do.
        if self.runs.len() * 2 <= self.links.len()
            && let Ok(fewer) = links(self.runs.len())
        {
            for (new, old) in fewer.iter().zip(self.links.iter()) {
                new.take(old);
            }
            self.links = fewer;
        }
    }
}

impl Siblings {
    /// Has a few children's entries fetched. Of many the run would have to be searched for.
    pub(super) fn fetch(&self) {
        if let Self::Few { len, entries } = self {
            entries.fetch(0, *len as usize);
        }
    }

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
                let runs = many.runs.capacity() * size_of::<Run>();
                size_of::<Many>() + many.run_bytes + runs + many.links.bytes()
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

    /// Makes what another child at this place needs.
    pub(super) fn room(&mut self, (run, _): Place) -> Result<Room, OutOfMemory> {
        Ok(match self {
            Self::None => Room::There,
            Self::One(_) => Room::for_second()?,
            Self::Few { len, entries } if (*len as usize) < entries.len() => Room::There,
            Self::Few { len, .. } if (*len as usize) < RUN => {
                Room::Run(Run::empty(longer(*len as usize))?)
            }
            Self::Few { entries, .. } => {
                let mut runs = Vec::new();
                runs.try_reserve(2)?;
                let run_bytes = entries.bytes();
                let many = try_box(Many { runs, run_bytes, links: links(0)?, count: 0 })?;
                Room::Many(many, Run::empty(entries.len())?, links(2)?)
            }
            Self::Many(many) => {
                let (len, room) = (many.runs[run].len as usize, many.runs[run].entries.len());
                if len < room {
                    Room::There
                } else if room < run_limit(many.count) {
                    Room::Run(Run::empty(room * 2)?)
                } else {
                    let cut = Room::Cut(Run::empty(room)?, links(many.runs.len() + 1)?);
                    // Last: whoever is refused does not count what the list has more.
                    many.runs.try_reserve(1)?;
                    cut
                }
            }
        })
    }

    /// Adds a child at its place, in the room that was made for it.
    pub(super) fn insert(
        &mut self,
        (run, at): Place,
        new: Sibling,
        room: Room,
        garbage: &mut Garbage,
    ) {
        let place = match room {
            Room::There => (run, at),
            Room::Run(mut larger) => {
                match self {
                    Self::One(one) => larger.fill(&[Entry::new(one.pack())]),
                    Self::Many(many) => {
                        many.replace_run(run, larger, garbage);
                        return self.insert_at((run, at), new);
                    }
                    _ => larger.fill(self.runs().map_or(&[], |runs| runs.run(0))),
                }
                *self = Self::few(larger);
                (run, at)
            }
            Room::Many(mut many, half, links) => {
                let Self::Few { len, entries } = std::mem::take(self) else {
                    unreachable!("the room is that of few children")
                };
                many.count = len as usize;
                many.runs.push(Run { len, entries });
                let place = many.cut((0, at), half, links, garbage);
                *self = Self::Many(many);
                place
            }
            Room::Cut(half, links) => {
                let Self::Many(many) = self else {
                    unreachable!("the room is that of many children")
                };
                many.cut((run, at), half, links, garbage)
            }
        };
        self.insert_at(place, new);
    }

    /// Adds a child where there is room.
    #[inline(always)]
    fn insert_at(&mut self, (run, at): Place, new: Sibling) {
        match self {
            Self::None | Self::One(_) => *self = Self::One(new),
            Self::Few { len, entries } => RunMut { len, entries }.insert(at, new),
            Self::Many(many) => {
                many.runs[run].as_mut().insert(at, new);
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
                    many.remove_run(run, garbage);
                } else {
                    many.shrink_run(run, garbage);
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
    #[inline(always)]
    pub(super) fn publish(&mut self, row: &Row, garbage: &mut Garbage) {
        let lead = match self {
            Self::None => Lead::Nothing,
            Self::One(only) => Lead::Number(only.node),
            Self::Few { entries, .. } => Lead::One(entries),
            Self::Many(many) => Lead::Many(&mut many.links),
        };
        row.kids.set(lead, garbage);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Heap memory by a walk over the runs.
    fn counted(siblings: &Siblings) -> usize {
        let Siblings::Many(many) = siblings else { return siblings.bytes() };
        let entries: usize = many.runs.iter().map(|run| run.entries.bytes()).sum();
        let runs = many.runs.capacity() * size_of::<Run>();
        size_of::<Many>() + entries + runs + many.links.bytes()
    }

    /// Many children come and go in any order: they stay sorted, runs and their number stay near
    /// the square root, and memory follows.
    #[test]
    fn many_children_are_runs_of_the_square_root() {
        let (mut siblings, mut known) = (Siblings::default(), BTreeSet::new());
        let (mut garbage, mut random) = (Garbage::default(), fastrand::Rng::with_seed(7));
        let mut most = 0;
        for step in 0..160_000 {
            let grows = step < 60_000 || (80_000..100_000).contains(&step);
            if grows {
                let key = random.u32(..1 << 30);
                if known.insert(key) {
                    let place = siblings.place(key, |_| false);
                    let room = siblings.room(place).unwrap();
                    let new = Sibling { first_key: key, node: key };
                    siblings.insert(place, new, room, &mut garbage);
                }
            } else if let Some(&key) = known.range(random.u32(..1 << 30)..).next() {
                known.remove(&key);
                let place = siblings.place(key, |_| false);
                siblings.remove(place, &mut garbage);
            }
            if step % 997 == 0 {
                assert!(siblings.iter().map(|child| child.first_key).eq(known.iter().copied()));
                assert_eq!((siblings.len(), siblings.bytes()), (known.len(), counted(&siblings)));
                if let Siblings::Many(many) = &siblings {
                    let root = known.len().isqrt().max(RUN);
                    let longest = many.runs.iter().map(|run| run.len as usize).max();
                    assert!(longest <= Some(run_limit(60_000)) && many.runs.len() <= 8 * root);
                    most = most.max(many.runs.len());
                }
            }
        }
        assert!(most > 128 && most < 600, "{most} runs");
    }
    /// Children that come in their order leave full runs behind, wherever they begin.
    #[test]
    fn children_in_order_fill_their_runs() {
        let (mut siblings, mut garbage) = (Siblings::default(), Garbage::default());
        for key in 0..20_000 {
            let place = siblings.place(key, |_| false);
            let room = siblings.room(place).unwrap();
            siblings.insert(place, Sibling { first_key: key, node: key }, room, &mut garbage);
        }
        assert!(siblings.iter().map(|child| child.first_key).eq(0..20_000));
        let bytes = siblings.bytes() / siblings.len();
        assert!(bytes <= 10, "{bytes} bytes a child");
        assert_eq!(siblings.bytes(), counted(&siblings));
    }
}
