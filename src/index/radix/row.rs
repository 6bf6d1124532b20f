//! What readers without a lock see of a node.
use super::run::{Entry, Runs};
use crate::grace::{Link, Reader};
use crate::memory::{Arc, OutOfMemory, TryGrow, try_collect};
use crate::sync::{AtomicBool, AtomicU32, OnceLock, Ordering::Relaxed, limit};
use crate::tree::{Changed, NONE, Version};

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
    #[inline(always)] // a probe's step
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
    pub(super) fn children(&self, reader: &'a Reader) -> impl Iterator<Item = u32> {
        let only = self.row.only.load(Relaxed);
        let runs = (only == SEVERAL).then(|| self.runs(reader));
        let several = runs.into_iter().flat_map(Runs::iter).map(|sibling| sibling.node);
        Some(only).filter(|&only| only != NONE && only != SEVERAL).into_iter().chain(several)
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
/// Places for what is made when it is needed.
type Cells<T> = Box<[OnceLock<T>]>;
/// A chunk, and the count of its owners in front of it.
const CHUNK_BYTES: usize = (CHUNK + 1) * size_of::<Row>();
type Span = Cells<Chunk>;
type Group = Cells<Span>;

/// Rows by number. What is made stays where it is; nothing is ever copied to make room.
#[derive(Debug, Default)]
pub(super) struct Rows([OnceLock<Group>; GROUPS]);

/// What a cell has, made if need be. Only the owner of the rows makes anything. Counts the bytes.
fn fill<'a, T>(
    cell: &'a OnceLock<T>,
    bytes: &mut usize,
    make: impl FnOnce() -> Result<(T, usize), OutOfMemory>,
) -> Result<&'a T, OutOfMemory> {
    if cell.get().is_none() {
        let (made, size) = make()?;
        *bytes += if cell.set(made).is_ok() { size } else { 0 };
    }
    Ok(cell.get().expect("it was made"))
}

/// So many empty cells, and their bytes.
fn cells<T>(count: usize) -> Result<(Cells<T>, usize), OutOfMemory> {
    let cells = try_collect((0..count).map(|_| OnceLock::new()))?.into_boxed_slice();
    let bytes = size_of_val(&*cells);
    Ok((cells, bytes))
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
    fn make(&self, at: u32, bytes: &mut usize) -> Result<Chunk, OutOfMemory> {
        let (group, span, chunk, _) = place(at);
        let spans = fill(&self.0[group], bytes, || cells(1 << group))?;
        let chunks = fill(&spans[span], bytes, || cells(SPAN))?;
        let rows = || Arc::new(std::array::from_fn(|_| Row::default()));
        let made = fill(&chunks[chunk], bytes, || Ok((rows()?, CHUNK_BYTES)))?;
        Ok(Arc::clone(made))
    }

    /// The fields of a row.
    #[inline(always)]
    pub(super) fn read<'a>(&'a self, at: u32, reader: &'a Reader) -> Result<Seen<'a>, Changed> {
        self.get(at).ok_or(Changed)?.read(at, reader)
    }
}

/// The same rows, as their owner finds them.
#[derive(Debug)]
pub(super) struct OwnRows {
    chunks: Vec<Chunk>,
    rows: Arc<Rows>,
    /// Memory of the rows and the way to them.
    made_bytes: usize,
}

impl OwnRows {
    pub(super) fn new(rows: Arc<Rows>) -> Self {
        Self { chunks: Vec::new(), rows, made_bytes: size_of::<Rows>() }
    }

    /// Makes rows for the first `count` nodes.
    #[inline]
    pub(super) fn try_reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        if self.chunks.len() * CHUNK >= count { Ok(()) } else { self.grow(count) }
    }

    #[cold]
    fn grow(&mut self, count: usize) -> Result<(), OutOfMemory> {
        while self.chunks.len() * CHUNK < count {
            self.chunks.try_reserve(1)?;
            let chunk = self.rows.make((self.chunks.len() * CHUNK) as u32, &mut self.made_bytes)?;
            self.chunks.try_push(chunk)?;
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.made_bytes + self.chunks.capacity() * size_of::<Chunk>()
    }
}

impl std::ops::Index<u32> for OwnRows {
    type Output = Row;

    #[inline]
    fn index(&self, at: u32) -> &Row {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}
