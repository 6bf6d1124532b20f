//! Lookups of a batch on their ways down, ahead of being made.
//!
//! In a large tree a lookup waits for memory most of the time. So while one is made, the next ones
//! go down, a node at a time each: what one of them comes to is asked for from memory, and it goes
//! on when it is its turn again, a lookup or two later, by when that is there. Source: Chen,
//! Ailamaki, Gibbons and Mowry, Improving Hash Join Performance through Prefetching, 2004
//! (software-pipelined prefetching).
//!
//! Asking for memory waits until its address is translated, and a processor translates several at a
//! time if it comes upon them close together. So all lookups do one thing, then all do the next.
//!
//! Nothing is decided here. The nodes on a way are hints: whoever follows them looks at each.
use super::Namespace;

/// Lookups on their way at a time, at most: nodes of a usual path, and some more so that the last
/// of them is there in time. What they need has room in a first cache of 32 KiB.
const LOOKAHEAD: usize = 12;
/// How many set out together at most: what they come to, they ask for together.
const TOGETHER: usize = 4;
const _: () = assert!(LOOKAHEAD.is_multiple_of(TOGETHER) && LOOKAHEAD <= 32);

/// How lookups follow one another on their ways, in lookups that are made meanwhile.
#[derive(Debug, Default, Clone, Copy)]
struct Pace {
    /// So many are on their way.
    ahead: usize,
    /// So many set out together.
    together: usize,
    /// After so many, all go on by a node.
    every: usize,
}

/// Of short ways. A lookup takes less time than memory to answer, so they go on after two; and the
/// first ones, which nothing is made beside, are a large part of what a batch waits for: they are
/// few.
const SHORT: Pace = Pace { ahead: 8, together: 2, every: 2 };
/// Of long ones.
const LONG: Pace = Pace { ahead: LOOKAHEAD, together: TOGETHER, every: 1 };
/// After so many steps a short way has come to its end: it has two nodes.
const SHORT_STEPS: usize = 3;

/// Nodes on one way that are fetched.
const DEPTH: usize = 16;

/// A lookup that is about to be made: where, and the keys.
pub type Ask<'a, N = Namespace> = (N, &'a [u32]);

/// Nodes that a lookup may come to, one below the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Path {
    nodes: [u32; DEPTH],
    len: u32,
}

impl Path {
    /// Its nodes, as many as are known.
    #[inline(always)]
    pub(super) fn nodes(&self) -> &[u32] {
        self.nodes.get(..self.len as usize).unwrap_or_default()
    }

    /// How many those are.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it takes no more.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.len as usize == DEPTH
    }

    /// Adds a node, unless it is full.
    #[inline(always)]
    pub(super) fn push(&mut self, node: u32) {
        if let Some(place) = self.nodes.get_mut(self.len as usize) {
            *place = node;
            self.len += 1;
        }
    }
}

/// A lookup on its way down.
#[derive(Debug, Default)]
pub struct Way<'a> {
    /// The node that it came to last.
    pub(super) node: u32,
    /// The hash of the next node, while its slot is being fetched.
    pub(super) hash: u32,
    /// The keys behind the node.
    pub(super) rest: &'a [u32],
    /// What it came to.
    pub(super) path: Path,
}

impl<'a> Way<'a> {
    /// One that begins at a node.
    pub(super) fn new(node: u32, rest: &'a [u32]) -> Self {
        Self { node, rest, ..Self::default() }
    }

    /// Begins at a root, or behind the first node of a way that began alike.
    #[inline(always)]
    fn set_out(&mut self, root: u32, keys: &'a [u32], first: &First<'_>) {
        (self.node, self.rest, self.path.len) = (root, keys, 0);
        if first.root == root && !first.page.is_empty() && keys.starts_with(first.page) {
            self.go_to(first.node, first.keys);
        }
    }

    /// Goes to a node that has the next so many keys.
    #[inline(always)]
    pub(super) fn go_to(&mut self, node: u32, keys: usize) {
        self.path.push(node);
        (self.node, self.rest) = (node, self.rest.get(keys..).unwrap_or(&[]));
    }

    /// The page of keys with which the next node begins, unless the way ends.
    #[inline(always)]
    pub(super) fn next_page(&self, page_size: usize) -> Option<&'a [u32]> {
        self.rest.get(..page_size).filter(|_| !self.path.is_full())
    }
}

/// The first node that a way came to: what many prompts begin with is looked for once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct First<'a> {
    /// Where the way began.
    pub(super) root: u32,
    /// The first page of its keys; empty before there is one.
    pub(super) page: &'a [u32],
    pub(super) node: u32,
    /// Keys of the node.
    pub(super) keys: usize,
}

/// Some of the ways, by their numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Numbers(u32);

impl Numbers {
    pub(super) fn add(&mut self, number: usize) {
        self.0 |= 1 << number;
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.0 &= !(1 << number);
    }

    /// Adds all of another set, which has none then.
    pub(super) fn take(&mut self, others: &mut Self) {
        self.0 |= std::mem::take(&mut others.0);
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn has(self, number: usize) -> bool {
        self.0 >> number & 1 != 0
    }

    /// Those that there are now.
    #[inline(always)]
    pub(super) fn each(self) -> impl Iterator<Item = usize> {
        let next = |&left: &u32| Some(left & left.wrapping_sub(1));
        let left = std::iter::successors(Some(self.0), next);
        left.take_while(|&left| left != 0).map(|left| left.trailing_zeros() as usize)
    }
}

/// The lookups of a batch that are on their way; none does where it isn't worth it.
#[derive(Debug, Default)]
pub struct Ways<'a> {
    pub(super) ring: [Way<'a>; LOOKAHEAD],
    /// Those that set out now.
    pub(super) starting: Numbers,
    /// Those that wait for the slot that leads to the next node.
    pub(super) looking: Numbers,
    /// Those that wait for a node, the keys of which are to be fetched.
    pub(super) coming: Numbers,
    /// Where one of them came first, the last that looked for that.
    pub(super) first: First<'a>,
    /// The next item that sets out.
    next: usize,
    pace: Pace,
    go: bool,
}

impl<'a> Ways<'a> {
    /// Before item `at`: whether any go ahead, which `worth` decides for the whole batch.
    #[inline]
    pub(crate) fn go(&mut self, at: usize, worth: impl FnOnce() -> bool) -> bool {
        self.go = if at == 0 { worth() } else { self.go };
        self.go
    }

    /// Lets the lookups behind item `at` go on, and more of them set out; `ask` has what they look
    /// up, one after another, and `root` where that begins. Returns where that of the item came to.
    #[inline(always)]
    pub(crate) fn advance(
        &mut self,
        at: usize,
        mut ask: impl for<'n> FnMut(&'n mut Option<Namespace>) -> Option<Ask<'a, &'n Namespace>>,
        root: impl Fn(&Namespace) -> Option<u32>,
        go_on: impl Fn(&mut Self),
    ) -> &Path {
        let mut set_out = |ways: &mut Self, end: usize| {
            let mut named = None;
            for item in ways.next..end {
                let number = item % LOOKAHEAD;
                let way = &mut ways.ring[number];
                way.path.len = 0;
                if let Some((namespace, keys)) = ask(&mut named)
                    && let Some(root) = root(namespace)
                {
                    way.set_out(root, keys, &ways.first);
                    ways.starting.add(number);
                }
            }
            ways.next = end;
        };
        if at == 0 {
            set_out(self, TOGETHER);
            (0..SHORT_STEPS).for_each(|_| go_on(self));
            self.pace = SHORT;
            if !self.looking.is_empty() {
                self.pace = LONG;
                set_out(self, LOOKAHEAD);
                (SHORT_STEPS..LOOKAHEAD - TOGETHER).for_each(|_| go_on(self));
            }
        }
        let Pace { ahead, together, every } = self.pace;
        if at.is_multiple_of(together) {
            set_out(self, at + ahead);
        }
        if at.is_multiple_of(every) {
            go_on(self);
        }
        let number = at % LOOKAHEAD;
        self.looking.remove(number);
        self.coming.remove(number);
        &self.ring[number].path
    }
}
