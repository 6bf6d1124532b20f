//! What readers without a lock see of a node.
use super::super::tree::{Changed, NONE, Version};
use super::siblings::{Entry, Runs};

use crate::grace::{Link, Reader};
use crate::sync::{AtomicBool, AtomicU32, OnceLock, Ordering::Relaxed, limit};
use std::sync::Arc;

/// In place of an only child: there are several.
pub(super) const SEVERAL: u32 = NONE - 1;

/// A node as it was published last. Row and node have the same number. A row never moves and is
/// never freed while the index lives: a number is enough to read one.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Row {
    /// Of the node itself: its segment, its parent, whether it exists.
    pub(super) version: Version,
    /// Of the set of its children: the fields here, the entries of the child table, and which node
    /// has which parent.
    pub(super) children: Version,
    /// Memory that has the keys of the segment; of a root, its namespace.
    pub(super) words: Link<u32>,
    /// The children in order, when they are few.
    pub(super) few: Link<Entry>,
    /// The children in order, when they are many.
    pub(super) many: Link<Link<Entry>>,
    /// NONE for roots and for rows that are not in use.
    pub(super) parent: AtomicU32,
    /// Where the keys begin among the words, and how many they are.
    pub(super) first_key: AtomicU32,
    pub(super) key_count: AtomicU32,
    /// The only child, NONE, or SEVERAL.
    pub(super) only: AtomicU32,
    pub(super) is_root: AtomicBool,
    /// Some key may be other than text.
    pub(super) media: AtomicBool,
}

const _: () = assert!(cfg!(loom) || size_of::<Row>() == 64);

impl Default for Row {
    /// Not in use.
    fn default() -> Self {
        Self {
            version: Version::default(),
            children: Version::default(),
            words: Link::default(),
            few: Link::default(),
            many: Link::default(),
            parent: AtomicU32::new(NONE),
            first_key: AtomicU32::new(0),
            key_count: AtomicU32::new(0),
            only: AtomicU32::new(NONE),
            is_root: AtomicBool::new(false),
            media: AtomicBool::new(false),
        }
    }
}

/// A row's fields of one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) row: &'a Row,
    pub(super) at: u32,
    pub(super) version: u64,
    pub(super) parent: u32,
    pub(super) keys: &'a [u32],
    pub(super) is_root: bool,
    pub(super) media: bool,
}

impl Row {
    fn read<'a>(&'a self, at: u32, reader: &'a Reader) -> Result<Seen<'a>, Changed> {
        let version = self.version.read()?;
        let (first, count) = (self.first_key.load(Relaxed), self.key_count.load(Relaxed));
        let first = first as usize;
        let seen = Seen {
            row: self,
            at,
            version,
            parent: self.parent.load(Relaxed),
            keys: self.words.read(reader).get(first..first + count as usize).ok_or(Changed)?,
            is_root: self.is_root.load(Relaxed),
            media: self.media.load(Relaxed),
        };
        self.version.expect(version)?;
        Ok(seen)
    }
}

impl<'a> Seen<'a> {
    /// Fails when the node is not any more what it was.
    pub(super) fn expect_same(&self) -> Result<(), Changed> {
        self.row.version.expect(self.version)
    }

    /// The children, as they are while nobody changes them.
    pub(super) fn children(&self, reader: &'a Reader) -> Vec<u32> {
        match self.row.only.load(Relaxed) {
            NONE => Vec::new(),
            SEVERAL => self.runs(reader).iter().map(|sibling| sibling.node).collect(),
            node => vec![node],
        }
    }

    /// The children in order.
    pub(super) fn runs(&self, reader: &'a Reader) -> Runs<'a> {
        let many = self.row.many.read(reader);
        if many.is_empty() {
            Runs::One(self.row.few.read(reader))
        } else {
            Runs::Many(many, reader)
        }
    }
}

/// Rows of a chunk: a small index takes little, and opening one is quick.
const CHUNK: usize = limit(64, 2);
/// Chunks of a span.
const SPAN: usize = limit(64, 2);
/// Groups of spans: each has twice as many as the one before. Together they have more than 2^32
/// rows.
const GROUPS: usize = 21;

type Chunk = Arc<[Row; CHUNK]>;
type Span = Box<[OnceLock<Chunk>]>;
type Group = Box<[OnceLock<Span>]>;

/// Rows by number. What is made stays where it is; nothing is ever copied to make room.
#[derive(Debug, Default)]
pub(super) struct Rows([OnceLock<Group>; GROUPS]);

fn new<T: Default>(count: usize) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}

/// Group, span within it, chunk and row of a number.
fn place(at: u32) -> (usize, usize, usize, usize) {
    let at = at as usize;
    let span = at / (CHUNK * SPAN) + 1;
    let group = span.ilog2() as usize;
    (group, span - (1 << group), at / CHUNK % SPAN, at % CHUNK)
}

impl Rows {
    /// A row that was made.
    pub(super) fn get(&self, at: u32) -> Option<&Row> {
        let (group, span, chunk, row) = place(at);
        Some(&self.0.get(group)?.get()?[span].get()?[chunk].get()?[row])
    }

    /// The rows of a number's chunk, made if need be.
    fn make(&self, at: u32) -> Chunk {
        let (group, span, chunk, _) = place(at);
        let spans = self.0[group].get_or_init(|| new(1 << group));
        let chunks = spans[span].get_or_init(|| new(SPAN));
        let rows = || Arc::new(std::array::from_fn(|_| Row::default()));
        Arc::clone(chunks[chunk].get_or_init(rows))
    }

    /// The fields of a row.
    pub(super) fn read<'a>(&'a self, at: u32, reader: &'a Reader) -> Result<Seen<'a>, Changed> {
        self.get(at).ok_or(Changed)?.read(at, reader)
    }
}

/// The same rows, as their owner finds them.
#[derive(Debug)]
pub(super) struct OwnRows {
    chunks: Vec<Chunk>,
    rows: Arc<Rows>,
}

impl OwnRows {
    pub(super) fn new(rows: Arc<Rows>) -> Self {
        Self { chunks: Vec::new(), rows }
    }

    /// Makes a row for a node that may be new. Nodes come in the order of their numbers.
    pub(super) fn open(&mut self, at: u32) {
        if at as usize == self.chunks.len() * CHUNK {
            self.chunks.push(self.rows.make(at));
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Row>()
    }
}

impl std::ops::Index<u32> for OwnRows {
    type Output = Row;

    #[inline]
    fn index(&self, at: u32) -> &Row {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}
