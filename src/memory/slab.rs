//! Items by number, in chunks that never move: growing copies nothing, however many there are.
use super::{OutOfMemory, TryGrow, try_collect};

/// Items of a chunk; a power of two.
const CHUNK: usize = 64;
/// No place.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
enum Place<T> {
    /// The next free place.
    Free(u32),
    Taken(T),
}

/// Items by number. A number is given out again when its item is gone.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Box<[Place<T>]>>,
    free: u32,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: NONE, len: 0 }
    }
}

impl<T> Slab<T> {
    /// Items that there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All numbers are below this.
    pub fn capacity(&self) -> usize {
        self.chunks.len() * CHUNK
    }

    /// Makes room for so many items more.
    pub fn try_reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        while self.capacity() - self.len < count {
            let first = u32::try_from(self.capacity()).map_err(|_| OutOfMemory)?;
            // Every number is below NONE.
            first.checked_add(CHUNK as u32).ok_or(OutOfMemory)?;
            let last = first + CHUNK as u32 - 1;
            let next = |at| if at == last { self.free } else { at + 1 };
            let places = try_collect((0..CHUNK as u32).map(|at| Place::Free(next(first + at))))?;
            self.chunks.try_push(places.into_boxed_slice())?;
            self.free = first;
        }
        Ok(())
    }

    /// Adds an item, for which room was made, and returns its number.
    pub fn insert(&mut self, item: T) -> u32 {
        let at = self.free;
        assert!(at != NONE, "room was made for the item");
        let place = std::mem::replace(self.place(at), Place::Taken(item));
        let Place::Free(next) = place else { unreachable!("a free place is taken") };
        self.free = next;
        self.len += 1;
        at
    }

    /// Takes an item out.
    pub fn remove(&mut self, at: u32) -> T {
        let free = self.free;
        match std::mem::replace(self.place(at), Place::Free(free)) {
            Place::Taken(item) => {
                self.free = at;
                self.len -= 1;
                item
            }
            Place::Free(_) => panic!("no item has the number {at}"),
        }
    }

    /// Heap memory.
    pub fn bytes(&self) -> usize {
        self.capacity() * size_of::<Place<T>>() + self.chunks.capacity() * size_of::<usize>() * 2
    }

    /// The items, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().filter_map(|place| match place {
            Place::Taken(item) => Some(item),
            Place::Free(_) => None,
        })
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten().filter_map(|place| match place {
            Place::Taken(item) => Some(item),
            Place::Free(_) => None,
        })
    }

    /// The item of a number that may have none.
    pub fn get(&self, at: u32) -> Option<&T> {
        match self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)? {
            Place::Taken(item) => Some(item),
            Place::Free(_) => None,
        }
    }

    fn place(&mut self, at: u32) -> &mut Place<T> {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        match &self.chunks[at as usize / CHUNK][at as usize % CHUNK] {
            Place::Taken(item) => item,
            Place::Free(_) => panic!("no item has the number {at}"),
        }
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        match self.place(at) {
            Place::Taken(item) => item,
            Place::Free(_) => panic!("no item has the number {at}"),
        }
    }
}
