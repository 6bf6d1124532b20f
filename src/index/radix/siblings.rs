//! The children of a node, in the order of their first pages.
//!
//! The order serves the search for the child that shares the longest start of a page: it is one of
//! the two between which the query would stand. (A child that shares a whole page is found by the
//! `ChildTable`.) A few children are one sorted run; many are sorted runs of bounded length, so
//! that adding one moves little.
//!
//! Readers without a lock search the same runs. An entry is one atomic, so what they read while
//! entries move is some child or none; `Row::children` tells them that they have to read again.
use super::row::{Row, SEVERAL};
use super::run::{Entry, Place, RUN, Run, RunMut, Runs, Sibling};
use crate::grace::{Array, Garbage, Link};
use crate::memory::{OutOfMemory, try_box};
use crate::sync::Ordering::Relaxed;
use crate::tree::NONE;

/// A place in a run of RUN children, when that was cut.
fn after_cut((run, at): Place) -> Place {
    if at > RUN / 2 { (run + 1, at - RUN / 2) } else { (run, at) }
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
    /// All of them have room for RUN entries.
    runs: Vec<Run>,
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
    /// A run that is larger than the one that there is.
    Run(Run),
    /// The second half of a run that is cut, and links to all of them.
    Cut(Run, Links),
    /// The same, where the run is the only one yet.
    Many(Box<Many>, Run, Links),
}

impl Room {
    /// For a child beside an only one.
    pub(super) fn for_second() -> Result<Self, OutOfMemory> {
        Ok(Self::Run(Run::empty(2)?))
    }
}

impl Many {
    /// Makes the links from one on lead to the runs.
    fn link(&mut self, from: usize, garbage: &mut Garbage) {
        for at in from..self.links.len() {
            self.links[at].set(self.runs.get_mut(at).map(|run| &mut run.entries), garbage);
        }
    }

    /// Moves half of a run into an empty one, for which there is room.
    fn cut(&mut self, run: usize, mut half: Run, links: Links, garbage: &mut Garbage) {
        self.runs[run].as_mut().cut(RUN / 2, &mut half);
        self.runs.insert(run + 1, half);
        self.links = links;
        self.link(0, garbage);
    }

    /// Takes an empty run away.
    fn remove_run(&mut self, run: usize, garbage: &mut Garbage) {
        self.runs.remove(run);
        // Without memory for other links the old ones do, one after another.
        match links(self.runs.len()) {
            Ok(links) => {
                self.links = links;
                self.link(0, garbage);
            }
            Err(OutOfMemory) => self.link(run, garbage),
        }
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
                let entries = many.runs.len() * many.runs[0].entries.bytes();
                let runs = many.runs.capacity() * size_of::<Run>();
                size_of::<Many>() + entries + runs + many.links.bytes()
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
                Room::Run(Run::empty((*len as usize * 2).min(RUN))?)
            }
            Self::Few { .. } => {
                let mut runs = Vec::new();
                runs.try_reserve(2)?;
                let many = try_box(Many { runs, links: links(0)?, count: 0 })?;
                Room::Many(many, Run::empty(RUN)?, links(2)?)
            }
            Self::Many(many) if (many.runs[run].len as usize) < RUN => Room::There,
            Self::Many(many) => {
                many.runs.try_reserve(1)?;
                Room::Cut(Run::empty(RUN)?, links(many.runs.len() + 1)?)
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
                many.cut(0, half, links, garbage);
                *self = Self::Many(many);
                after_cut((run, at))
            }
            Room::Cut(half, links) => {
                let Self::Many(many) = self else {
                    unreachable!("the room is that of many children")
                };
                many.cut(run, half, links, garbage);
                after_cut((run, at))
            }
        };
        self.insert_at(place, new);
    }

    /// Adds a child where there is room.
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
