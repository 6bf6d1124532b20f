//! Lookups of a batch on their ways down, ahead of being made.
//!
//! In a large tree a lookup waits for memory most of the time. So while one is made, the next ones
//! go down, a node at a time each: what one of them comes to is asked for from memory, and it goes
//! on when it is its turn again, after a lookup, by when that is there. Source: Chen, Ailamaki,
//! Gibbons and Mowry, Improving Hash Join Performance through Prefetching, 2004 (software-pipelined
//! prefetching).
//!
//! Nothing is decided here. The nodes on a way are hints: whoever follows them looks at each.
use super::Namespace;
use smallvec::SmallVec;

/// Lookups on their way at a time: nodes of a usual path, and some more so that the last of them is
/// there in time. What they need has room in a first cache of 32 KiB.
const LOOKAHEAD: usize = 10;

/// Nodes on one way that are fetched.
pub(super) const DEPTH: usize = 16;

/// A lookup that is about to be made: where, and the keys.
pub type Ask<'a> = (Namespace, &'a [u32]);

/// Nodes that a lookup may come to, one below the other.
pub type Path = SmallVec<[u32; DEPTH]>;

/// A lookup on its way down.
#[derive(Debug)]
pub struct Way<'a> {
    /// The node that it came to last.
    pub(super) node: u32,
    /// The keys behind that.
    pub(super) rest: &'a [u32],
    /// The hash of the next node, while its slot is being fetched.
    pub(super) hash: Option<u32>,
    /// What it came to, and of how many of those the keys were asked for.
    pub(super) path: Path,
    pub(super) fetched: usize,
}

impl<'a> Way<'a> {
    /// One that begins at a node.
    pub(super) fn new(node: u32, rest: &'a [u32]) -> Self {
        Self { node, rest, hash: None, path: Path::new(), fetched: 0 }
    }
}

/// The lookups of a batch that are on their way; none does where it isn't worth it.
#[derive(Debug, Default)]
pub struct Ways<'a> {
    ring: [Option<Way<'a>>; LOOKAHEAD],
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
    /// up, one after another. Returns where that of the item came to.
    pub(crate) fn advance(
        &mut self,
        at: usize,
        mut ask: impl FnMut() -> Option<Ask<'a>>,
        set_out: impl Fn(Ask<'a>) -> Option<Way<'a>>,
        go_on: impl Fn(&mut [Option<Way<'a>>]),
    ) -> Path {
        let Self { ring, .. } = self;
        if at == 0 {
            ring.iter_mut().for_each(|way| *way = ask().and_then(&set_out));
            (1..LOOKAHEAD).for_each(|_| go_on(ring));
        } else {
            go_on(ring);
            ring[(at - 1) % LOOKAHEAD] = ask().and_then(&set_out);
        }
        let way = ring[at % LOOKAHEAD].take();
        way.map_or_else(Path::new, |way| way.path)
    }
}
