//! What readers without a lock see of a node.
use super::run::{Entry, Runs};
use crate::grace::{Arrays, Junction, Led, Link, Reader};
use crate::memory::{Arc, OutOfMemory, TryGrow, try_collect};
use crate::sync::{AtomicU32, OnceLock, Ordering::Relaxed, limit};
use crate::tree::{Changed, NONE, SEGMENT_PAGES, Version};

/// A node as it was published last. Row and node have the same number. A row never moves and is
/// never freed while the index lives: a number is enough to read one.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct Row {
    /// Of the node itself: its segment, its parent, whether it exists.
    pub(super) version: Version,
    /// Of the set of its children: `kids`, the entries of the child table, and which node has which
    /// parent.
    pub(super) children: Version,
    /// Memory that has the keys of the segment; of a root, its namespace.
    pub(super) words: Link<u32>,
    /// The children in order: the only one, or those of a run, or of several.
    pub(super) kids: Junction<Entry>,
    /// NONE for roots and for rows that are not in use.
    pub(super) parent: AtomicU32,
    /// A `Shape`.
    shape: AtomicU32,
}

// Two in a line of the processor's cache.
const _: () = assert!(cfg!(loom) || size_of::<Row>() == 32);

/// What is published of a segment beside its keys: the page with which it begins in its memory, how
/// many it has, and what it is. A root has no pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape(u32);

/// Bits of a number of pages.
const COUNT_BITS: u32 = 15;
const COUNT: u32 = (1 << COUNT_BITS) - 1;
const MEDIA: u32 = 1 << 30;
const ROOT: u32 = 1 << 31;

// A segment that grew has an eighth more room than pages.
const _: () = assert!(SEGMENT_PAGES + SEGMENT_PAGES / 8 <= COUNT);

impl Shape {
    pub(super) const OF_ROOT: Self = Self(ROOT);

    pub(super) fn new([first, count]: [u32; 2], media: bool) -> Self {
        debug_assert!(first <= COUNT && count <= COUNT);
        let media = if media { MEDIA } else { 0 };
        Self(first | count << COUNT_BITS | media)
    }

    fn first(self) -> usize {
        (self.0 & COUNT) as usize
    }

    fn count(self) -> usize {
        (self.0 >> COUNT_BITS & COUNT) as usize
    }

    /// Some key may be other than text.
    pub(super) fn media(self) -> bool {
        self.0 & MEDIA != 0
    }

    pub(super) fn is_root(self) -> bool {
        self.0 & ROOT != 0
    }
}

impl Default for Row {
    /// Not in use.
    fn default() -> Self {
        Self {
            version: Version::default(),
            children: Version::default(),
            words: Link::default(),
            kids: Junction::default(),
            parent: AtomicU32::new(NONE),
            shape: AtomicU32::new(0),
        }
    }
}

/// A row's fields of one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) row: &'a Row,
    pub(super) at: u32,
    pub(super) version: u32,
    pub(super) parent: u32,
    pub(super) keys: &'a [u32],
    pub(super) shape: Shape,
}

impl Row {
    #[inline(always)] // a probe's step
    fn read<'a>(
        &'a self,
        at: u32,
        page_size: usize,
        reader: &'a Reader,
    ) -> Result<Seen<'a>, Changed> {
        let version = self.version.read()?;
        let shape = Shape(self.shape.load(Relaxed));
        let (first, count) = (shape.first() * page_size, shape.count() * page_size);
        let seen = Seen {
            row: self,
            at,
            version,
            parent: self.parent.load(Relaxed),
            keys: self.words.read(reader).get(first..first + count).ok_or(Changed)?,
            shape,
        };
        self.version.expect(version)?;
        Ok(seen)
    }

    /// Keys of the segment, as far as can be told while it may change.
    pub(super) fn key_count(&self, page_size: usize) -> usize {
        Shape(self.shape.load(Relaxed)).count() * page_size
    }

    /// Has the keys of the segment fetched.
    #[inline(always)]
    pub(super) fn fetch_keys(&self, page_size: usize) {
        let shape = Shape(self.shape.load(Relaxed));
        self.words.fetch(shape.first() * page_size, shape.count() * page_size);
    }

    /// Says what the segment is, while `version` says that it changes.
    pub(super) fn shape(&self, shape: Shape) {
        self.shape.store(shape.0, Relaxed);
    }
}

impl<'a> Seen<'a> {
    /// Fails when the node is not any more what it was.
    pub(super) fn expect_same(&self) -> Result<(), Changed> {
        self.row.version.expect(self.version)
    }

    /// A root's namespace; whether it still has it `expect_same` tells.
    pub(super) fn name(&self, reader: &'a Reader) -> &'a [u32] {
        self.row.words.read(reader)
    }

    /// The only child, or that there are several, or none.
    #[inline(always)] // a probe's step
    pub(super) fn kids(&self) -> Led {
        self.row.kids.peek()
    }

    /// The children in order, where there are several.
    pub(super) fn runs(&self, reader: &'a Reader) -> Runs<'a> {
        match self.row.kids.read(reader) {
            Arrays::One(run) => Runs::One(run),
            Arrays::Many(runs) => Runs::Many(runs, reader),
        }
    }

    /// The children, as they are while nobody changes them.
    pub(super) fn children(&self, reader: &'a Reader) -> impl Iterator<Item = u32> {
        let only = if let Led::Number(only) = self.kids() { Some(only) } else { None };
        only.into_iter().chain(self.runs(reader).iter().map(|sibling| sibling.node))
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
    pub(super) fn read<'a>(
        &'a self,
        at: u32,
        page_size: usize,
        reader: &'a Reader,
    ) -> Result<Seen<'a>, Changed> {
        self.get(at).ok_or(Changed)?.read(at, page_size, reader)
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

    /// Has room for the list of the chunks of so many, as the arena of their nodes has.
    pub(super) fn expect(&mut self, count: usize) -> Result<(), OutOfMemory> {
        let chunks = count.div_ceil(CHUNK);
        Ok(self.chunks.try_reserve_exact(chunks.saturating_sub(self.chunks.len()))?)
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
