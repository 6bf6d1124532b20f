//! An index, what was done with it, and what can be done next.
use fastrand::Rng;
use radixkv::error::Error;
use radixkv::index::{
    DumpFormat, IndexKind, Limits, Namespace, Node, NodeIds, Portion, PrefixIndex,
};
use radixkv::token::{Images, Keys};

/// Keys of a prompt. Few different ones, so that prompts share beginnings.
type Prompt = Vec<u32>;

/// No prompt has more pages.
pub const PAGES: usize = 64;

/// The key of a coordinate.
const COORD: u32 = 1 << 31;

#[derive(Debug, Clone)]
pub enum Op {
    /// Puts a prompt's pages in, numbered from `first` on.
    Insert {
        namespace: u64,
        prompt: Prompt,
        first: u32,
    },
    /// Matches a prompt, cut to some pages, and perhaps locks it for a sequence.
    Match {
        namespace: u64,
        prompt: Prompt,
        cut: usize,
        lock: bool,
    },
    /// Goes on from a lock; there may be more keys than pages.
    Extend {
        lock: usize,
        prompt: Prompt,
        pages: usize,
        first: u32,
    },
    Unlock {
        lock: usize,
    },
    Evict {
        count: usize,
    },
    Children {
        namespace: u64,
    },
    Dump,
}

fn prompt(rng: &mut Rng, page_size: usize, pages: usize) -> Prompt {
    // Where many children hang below one node, their lists are cut.
    let kinds = if rng.u8(..4) == 0 { 500 } else { 2 };
    let key = |rng: &mut Rng| match rng.u8(..16) {
        0 => COORD + rng.u32(..2),
        _ => rng.u32(..kinds),
    };
    let mut keys: Prompt = (0..pages * page_size).map(|_| key(rng)).collect();
    // The beginning of a page is what tells it from others, most often.
    for (at, key) in keys.iter_mut().enumerate() {
        *key = if at % page_size == 0 { *key } else { *key % 2 };
    }
    keys
}

impl Op {
    pub fn random(rng: &mut Rng, world: &World) -> Self {
        let namespace = rng.u64(..3) * rng.u64(..2);
        let lock = rng.usize(..world.locks.len().max(1));
        let (size, first) = (world.page_size, world.next_page);
        let count = if rng.u8(..16) == 0 { 40 } else { 5 };
        let pages = rng.usize(1..=count);
        let keys = prompt(rng, size, pages);
        match rng.u8(..20) {
            0..=5 => Self::Insert { namespace, prompt: keys, first },
            6..=9 => Self::Match { namespace, prompt: keys, cut: rng.usize(..6), lock: rng.bool() },
            10..=13 if !world.locks.is_empty() => {
                Self::Extend { lock, prompt: keys, pages: rng.usize(1..=pages), first }
            }
            14..=16 if !world.locks.is_empty() => Self::Unlock { lock },
            17 => Self::Children { namespace },
            18 => Self::Dump,
            _ => Self::Evict { count: rng.usize(..8) * rng.usize(..8) },
        }
    }

    pub fn can_fail(&self) -> bool {
        !matches!(self, Self::Unlock { .. } | Self::Evict { .. })
    }
}

fn name(namespace: u64) -> Namespace {
    Namespace { epoch: namespace, ..Namespace::default() }
}

#[derive(Debug)]
pub struct World {
    pub index: Box<dyn PrefixIndex>,
    pub page_size: usize,
    images: Images,
    pub locks: Vec<Node>,
    next_page: u32,
    /// Pages in the order in which they went.
    pub evicted: Vec<u32>,
    /// A root that was made for an insert that failed then, and how often.
    pub pruned: Option<(u64, u32)>,
}

impl World {
    /// With so few generations that nodes have to move.
    pub fn new(kind: IndexKind, page_size: usize) -> Self {
        Self::with_segments(kind, page_size, PAGES)
    }

    /// The same, and nodes of so few pages.
    pub fn with_segments(kind: IndexKind, page_size: usize, segment_pages: usize) -> Self {
        let segment_words = (segment_pages * (page_size + 1)) as u32;
        let limits = Limits { generations: 100, segment_words, ..Limits::default() };
        let ids = NodeIds { limits, ..NodeIds::from(1) };
        let (index, images) = (kind.open(page_size, ids).unwrap(), Images::default());
        // So that the test's own lists ask for nothing.
        let (locks, evicted) = (Vec::with_capacity(1 << 14), Vec::with_capacity(1 << 18));
        Self { index, page_size, images, locks, next_page: 1, evicted, pruned: None }
    }

    fn pages(&self, first: u32, count: usize, into: &mut [u32]) {
        (first..).zip(&mut into[..count]).for_each(|(page, place)| *place = page);
    }

    /// Does it, or changes nothing.
    pub fn apply(&mut self, op: &Op) -> Result<(), Error> {
        let mut room = [0; PAGES];
        match op {
            Op::Insert { namespace, prompt, first } => {
                let count = prompt.len() / self.page_size;
                self.pages(*first, count, &mut room);
                let is_new = self.index.find_root(&name(*namespace)).is_none();
                let root = self.index.make_root(&name(*namespace))?;
                let keys = Keys { keys: prompt, images: &self.images };
                if let Err(error) = self.index.insert(root, keys, &room[..count]) {
                    self.index.prune_root(root);
                    if is_new {
                        let times = self.pruned.map_or(0, |(_, times)| times);
                        self.pruned = Some((*namespace, times + 1));
                    }
                    return Err(error);
                }
                self.next_page = first + count as u32;
            }
            Op::Match { namespace, prompt, cut, lock } => {
                let Some(root) = self.index.find_root(&name(*namespace)) else { return Ok(()) };
                let walk = self.index.walk(root, Keys { keys: prompt, images: &self.images });
                let pages = walk.pages.min(*cut);
                if pages == 0 {
                    return Ok(());
                }
                let node = self.index.end_node_at(walk.node, pages)?;
                self.index.touch(node, None);
                if *lock && self.locks.len() < 40 {
                    self.index.lock(node);
                    self.locks.push(node);
                }
            }
            Op::Extend { lock, prompt, pages, first } => {
                self.pages(*first, *pages, &mut room);
                let keys = Keys { keys: prompt, images: &self.images };
                let from = self.locks[*lock];
                let inserted = self.index.insert_moving_lock(from, keys, &room[..*pages])?;
                self.locks[*lock] = inserted.node;
                self.next_page = first + *pages as u32;
            }
            Op::Unlock { lock } => {
                let node = self.locks.swap_remove(*lock);
                self.index.unlock(node);
            }
            Op::Evict { count } => self.evict(*count),
            Op::Children { namespace } => {
                let Some(root) = self.index.find_root(&name(*namespace)) else { return Ok(()) };
                let children = self.index.children(root)?;
                assert_eq!(children.len(), self.index.info(root).children);
            }
            Op::Dump => {
                self.index.dump(DumpFormat::Dot, &|_, _| Ok(()))?;
                self.index.check()?;
            }
        }
        Ok(())
    }

    pub fn evict(&mut self, count: usize) {
        let evicted = &mut self.evicted;
        self.index.evict(Portion::of(count), &mut |pages, _| evicted.extend(pages.iter().rev()));
    }

    /// Uses up the ids that another index gave to roots.
    pub fn prune_roots(&mut self, pruned: Option<(u64, u32)>) {
        let Some((namespace, times)) = pruned else { return };
        for _ in 0..times {
            let root = self.index.make_root(&name(namespace)).unwrap();
            self.index.prune_root(root);
        }
    }

    pub fn unlock_all(&mut self) {
        for node in self.locks.drain(..) {
            self.index.unlock(node);
        }
    }

    /// Memory of the world's own lists.
    pub fn own_bytes(&self) -> usize {
        (self.locks.capacity() + self.evicted.capacity()) * 4
    }

    /// All invariants.
    pub fn check(&self) {
        self.index.check().unwrap();
    }

    /// All that can be seen, but for the bytes: room that was made stays.
    pub fn image(&self) -> String {
        self.check();
        let (dump, stats) =
            (self.index.dump(DumpFormat::Json, &|_, _| Ok(())).unwrap(), self.index.stats());
        format!("{dump} {:?}", radixkv::index::IndexStats { bytes: 0, ..stats })
    }

    /// The pages that are cached, and how many could go.
    pub fn pages_seen(&self) -> (Vec<u32>, usize) {
        let mut all = Vec::new();
        self.index.visit_all(&mut |pages, _| all.extend(pages));
        all.sort_unstable();
        (all, self.index.stats().reclaimable_pages)
    }
}
