//! What memory has for a token list: a caller's state, or a copy of one that was read.
use super::note::Note;
use super::place::Mark;
use crate::memory::{Arc, OutOfMemory, TryGrow, try_zeros};
use crate::snapshot::Freed;
use crate::snapshot::spot::{NotedSpot, Spot};
use crate::tier::disk::ALIGNMENT;
use crate::tier::{Source, Target};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;

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

impl<P> Freed<Value<P>> {
    /// A call has looked at a state. Others may have let it go meanwhile: it is the caller's code
    /// that is run then, when the call has done all else.
    pub(super) fn leave(&mut self, state: Arc<Storable<P>>) {
        if let Some(last) = state.leave() {
            self.keep(Value::Storable(last), |last, before| {
                if let (Value::Storable(last), Value::Storable(before)) = (last, before) {
                    *last.before.lock() = Some(before);
                }
            });
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
    /// The record that it was last written to, or read from.
    mark: Mutex<Option<Arc<Mark>>>,
    /// Lookups that found it.
    pub(super) uses: AtomicU32,
    /// The attachment whose store that caches share was given it, or gave it; 0 for none.
    pub(super) offered_to: AtomicU32,
    /// The attachment whose directory never has room for it; 0 for none.
    pub(super) unfit_for: AtomicU32,
    /// Where its tokens lead to in the index of what is below.
    spot: NotedSpot,
    /// One that a call left before this one, which is nobody else's any more either.
    before: Mutex<Option<Arc<Self>>>,
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
        Self::with_data(note, OnceLock::new(), None)
    }

    /// The copy of a record.
    pub(super) fn loaded(
        note: &Arc<Note>,
        loaded: Loaded,
        mark: Option<Arc<Mark>>,
    ) -> Result<Arc<Self>, OutOfMemory> {
        Self::with_data(note.clone(), OnceLock::from(Data::Loaded(loaded)), mark)
    }

    fn with_data(
        note: Arc<Note>,
        data: OnceLock<Data<P>>,
        mark: Option<Arc<Mark>>,
    ) -> Result<Arc<Self>, OutOfMemory> {
        let (mark, uses) = (Mutex::new(mark), AtomicU32::new(0));
        let (offered_to, unfit_for) = (AtomicU32::new(0), AtomicU32::new(0));
        let (spot, before) = (NotedSpot::default(), Mutex::new(None));
        Arc::new(Self { note, data, mark, uses, offered_to, unfit_for, spot, before })
    }

    /// Puts the state in.
    pub(super) fn give(&self, state: P) {
        let is_first = self.data.set(Data::Given(state)).is_ok();
        assert!(is_first, "a state is given once");
    }

    /// Whether it was read from a store.
    pub(super) fn is_copy(&self) -> bool {
        matches!(self.data.get(), Some(Data::Loaded(_)))
    }

    pub(super) fn mark(&self) -> Option<Arc<Mark>> {
        self.mark.lock().clone()
    }

    pub(super) fn set_mark(&self, mark: Option<Arc<Mark>>) {
        *self.mark.lock() = mark;
    }

    /// Where a lookup below may begin.
    pub(super) fn spot(&self) -> Spot {
        self.spot.get()
    }

    pub(super) fn set_spot(&self, spot: Spot) {
        self.spot.set(spot);
    }

    fn data(&self) -> &Data<P> {
        self.data.get().expect("an entry has its state")
    }
}

impl<P> Drop for Storable<P> {
    fn drop(&mut self) {
        // One after the other: there may be many.
        let mut next = self.before.get_mut().take();
        while let Some(state) = next {
            next = state.before.lock().take();
        }
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

/// Smaller parts lie anywhere: copying them is quick.
const LARGE: u64 = 64 << 10;
const WORD: usize = size_of::<u128>();

#[derive(Debug)]
struct Part {
    words: Vec<u128>,
    /// Words before the first byte.
    skip: usize,
    bytes: usize,
}

impl Part {
    /// Room for a part that begins after so many bytes of a state. Where that can be, whole blocks
    /// of the disk are whole pages of memory: then the disk writes there by itself.
    fn new(bytes: u64, before: u64) -> Result<Self, OutOfMemory> {
        let is_large = bytes >= LARGE && before.is_multiple_of(WORD as u64);
        let bytes = usize::try_from(bytes).map_err(|_| OutOfMemory)?;
        let spare = if is_large { ALIGNMENT / WORD } else { 0 };
        let words = try_zeros::<u128>(bytes.div_ceil(WORD) + spare)?;
        let skip = match is_large {
            true => (before as usize).wrapping_sub(words.as_ptr().addr()) % ALIGNMENT / WORD,
            false => 0,
        };
        Ok(Self { words, skip, bytes })
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words[self.skip..])[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words[self.skip..])[..self.bytes]
    }
}

impl Loaded {
    /// Room for parts of these sizes.
    pub(super) fn new(sizes: &[u64]) -> Result<Self, OutOfMemory> {
        let mut parts = Vec::new();
        parts.try_reserve_exact(sizes.len())?;
        let mut before = 0_u64;
        for &size in sizes {
            parts.try_push(Part::new(size, before)?)?;
            before = before.wrapping_add(size);
        }
        Ok(Self { parts })
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The bytes of one.
    pub fn part(&self, index: usize) -> &[u8] {
        self.parts[index].bytes()
    }
}

impl Target for Loaded {
    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn part(&mut self, index: usize) -> &mut [u8] {
        self.parts[index].bytes_mut()
    }

    fn lend<'a>(&'a mut self, to: &mut dyn FnMut(&'a mut [u8])) {
        self.parts.iter_mut().for_each(|part| to(part.bytes_mut()));
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part can be read as whatever an engine wants; where large ones have whole blocks of
    /// the disk they have whole pages.
    #[test]
    fn parts_lie_where_the_disk_can_write() {
        let sizes = [5000, LARGE, 100_001, 1 << 20, 7, 48, LARGE + 1, 0];
        let loaded = Loaded::new(&sizes).unwrap();
        let mut before = 0;
        for (index, &size) in sizes.iter().enumerate() {
            let part = loaded.part(index);
            let at = part.as_ptr().addr();
            assert_eq!((part.len() as u64, at % WORD), (size, 0));
            if size >= LARGE && before % WORD == 0 {
                assert_eq!(at % ALIGNMENT, before % ALIGNMENT, "part {index}");
            }
            before += size as usize;
        }
    }
}
