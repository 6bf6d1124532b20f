//! What memory has for a token list: a caller's state, or a copy of one that was read.
use super::note::Note;
use crate::lock::RwLock;
use crate::memory::{Arc, OutOfMemory, TryGrow, try_zeros};
use crate::snapshot::spot::Spot;
use crate::tier::{Source, Target};
use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// What is behind an entry in memory.
#[derive(Debug)]
pub(super) enum Value<P> {
    /// Stays in memory.
    Plain(P),
    /// May be written. Who writes it keeps it, also when it is no entry any more.
    Storable(Arc<Storable<P>>),
}

impl<P> Value<P> {
    pub(super) fn state(&self) -> State<'_, P> {
        match self {
            Self::Plain(given) => State::Given(given),
            Self::Storable(storable) => match storable.data() {
                Data::Given(given) => State::Given(given),
                Data::Loaded(loaded) => State::Loaded(loaded),
            },
        }
    }

    pub(super) fn storable(&self) -> Option<&Arc<Storable<P>>> {
        match self {
            Self::Plain(_) => None,
            Self::Storable(storable) => Some(storable),
        }
    }
}

/// A state that a lookup found.
#[derive(Debug)]
pub enum State<'a, P> {
    /// What a caller inserted.
    Given(&'a P),
    /// A copy of it that was read.
    Loaded(&'a Loaded),
}

/// A state that may be written.
#[derive(Debug)]
pub(super) struct Storable<P> {
    pub(super) note: Arc<Note>,
    /// Set before anybody else sees it.
    data: OnceLock<Data<P>>,
    /// The number of the record that it was last written to, or read from; 0 is none.
    pub(super) record: AtomicU64,
    /// Lookups that found it.
    pub(super) uses: AtomicU32,
    /// A store that caches share was given it, or gave it.
    pub(super) is_offered: AtomicBool,
    /// Where its tokens lead to in the index of what is below, and in which of those that the cache
    /// had.
    spot: RwLock<(u32, Spot)>,
}

#[derive(Debug)]
enum Data<P> {
    Given(P),
    Loaded(Loaded),
}

impl<P> Storable<P> {
    /// Room for a state: what is put in then needs no memory.
    pub(super) fn new(note: Note) -> Result<Arc<Self>, OutOfMemory> {
        let note = Arc::new(note)?;
        let (record, uses) = (AtomicU64::new(0), AtomicU32::new(0));
        let (is_offered, spot) = (AtomicBool::new(false), RwLock::new((0, Spot::NONE)));
        Arc::new(Self { note, data: OnceLock::new(), record, uses, is_offered, spot })
    }

    /// The copy of a record.
    pub(super) fn loaded(
        note: &Arc<Note>,
        loaded: Loaded,
        record: u64,
    ) -> Result<Arc<Self>, OutOfMemory> {
        let (record, uses) = (AtomicU64::new(record), AtomicU32::new(0));
        let data = OnceLock::from(Data::Loaded(loaded));
        let (is_offered, spot) = (AtomicBool::new(false), RwLock::new((0, Spot::NONE)));
        Arc::new(Self { note: note.clone(), data, record, uses, is_offered, spot })
    }

    /// Puts the state in.
    pub(super) fn give(&self, state: P) {
        let is_first = self.data.set(Data::Given(state)).is_ok();
        assert!(is_first, "a state is given once");
    }

    /// Where a lookup below may begin, in an attachment; nowhere when somebody else is at it.
    pub(super) fn spot(&self, attachment: u32) -> Spot {
        let spot = self.spot.try_read().filter(|spot| spot.0 == attachment);
        spot.map_or(Spot::NONE, |spot| spot.1)
    }

    pub(super) fn set_spot(&self, attachment: u32, spot: Spot) {
        if let Some(mut old) = self.spot.try_write() {
            *old = (attachment, spot);
        }
    }

    fn data(&self) -> &Data<P> {
        self.data.get().expect("an entry has its state")
    }
}

/// Keeps a state while it is written.
pub(super) struct Writing<P>(pub(super) Arc<Storable<P>>);

impl<P: Source> Source for Writing<P> {
    fn parts(&self) -> usize {
        self.0.note.parts.len()
    }

    fn part(&self, index: usize) -> &[u8] {
        match self.0.data() {
            Data::Given(given) => given.part(index),
            Data::Loaded(loaded) => loaded.part(index),
        }
    }
}

/// A state in memory of the cache: parts as they were written, each at an address that is a
/// multiple of 16.
#[derive(Debug)]
pub struct Loaded {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    words: Vec<u128>,
    bytes: usize,
}

impl Loaded {
    /// Room for parts of these sizes.
    pub(super) fn new(sizes: &[u64]) -> Result<Self, OutOfMemory> {
        let mut parts = Vec::new();
        parts.try_reserve_exact(sizes.len())?;
        for &size in sizes {
            let bytes = usize::try_from(size).map_err(|_| OutOfMemory)?;
            parts.try_push(Part { words: try_zeros(bytes.div_ceil(16))?, bytes })?;
        }
        Ok(Self { parts })
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The bytes of one.
    pub fn part(&self, index: usize) -> &[u8] {
        let Part { words, bytes } = &self.parts[index];
        &bytemuck::cast_slice(words)[..*bytes]
    }
}

impl Target for Loaded {
    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn part(&mut self, index: usize) -> &mut [u8] {
        let Part { words, bytes } = &mut self.parts[index];
        &mut bytemuck::cast_slice_mut(words)[..*bytes]
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}
