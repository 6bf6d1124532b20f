//! Memory of one value that several threads fill, each a piece that nobody else has.
use super::OutOfMemory;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ptr::NonNull;

/// Slices that are filled one after the other, wherever they lie.
pub type Piece<'a> = SmallVec<[&'a mut [u8]; 1]>;

/// A value, and pieces of its memory, which are lent. It is given back when nobody has any.
pub struct Carved<T: ?Sized + 'static> {
    /// Of a box. Until it is given back its memory is reached through the pieces alone.
    value: NonNull<T>,
    books: Mutex<Books>,
}

struct Books {
    /// Those that were not lent yet. In truth they live until the value is given back.
    pieces: Vec<Piece<'static>>,
    /// How many are lent.
    out: usize,
    is_given_back: bool,
}

// SAFETY: the value and its pieces, which are bytes, belong to whoever has this.
unsafe impl<T: ?Sized + Send> Send for Carved<T> {}
// SAFETY: what is shared are the books, under their lock; through them a thread gets a piece that
// no other one has, or the value when nobody has any.
unsafe impl<T: ?Sized + Send> Sync for Carved<T> {}

impl<T: ?Sized> Carved<T> {
    /// Has the memory of a value carved. Without memory for that the value comes back.
    pub fn new(
        value: Box<T>,
        carve: impl for<'a> FnOnce(&'a mut T) -> Result<Vec<Piece<'a>>, OutOfMemory>,
    ) -> Result<Self, Box<T>> {
        // As long as it is carved there is only a pointer: a box would be its memory's only owner.
        let mut value = NonNull::from(Box::leak(value));
        // SAFETY: it came from a box, so it lives until it is given back to one. `carve` is for any
        // lifetime, so of what it borrows it keeps nothing but the pieces.
        let carved = carve(unsafe { value.as_mut() });
        match carved {
            Ok(pieces) => {
                let books = Books { pieces, out: 0, is_given_back: false };
                Ok(Self { value, books: Mutex::new(books) })
            }
            // SAFETY: it came from a box, and there are no pieces.
            Err(OutOfMemory) => Err(unsafe { Box::from_raw(value.as_ptr()) }),
        }
    }

    /// Lends a piece. No piece is lent twice; one that was is empty.
    pub fn lend(&self, piece: usize) -> Lent<'_, T> {
        let mut books = self.books.lock();
        books.out += 1;
        let slices = books.pieces.get_mut(piece).map(std::mem::take).unwrap_or_default();
        Lent { slices, of: self }
    }

    /// Gives the value back; nothing while somebody has a piece of it, or when it is gone.
    pub fn give_back(&self) -> Option<Box<T>> {
        let mut books = self.books.lock();
        if books.out > 0 || books.is_given_back {
            return None;
        }
        books.is_given_back = true;
        books.pieces = Vec::new();
        // SAFETY: it came from a box, which nobody else makes again, and nobody has a piece.
        Some(unsafe { Box::from_raw(self.value.as_ptr()) })
    }
}

impl<T: ?Sized> Drop for Carved<T> {
    fn drop(&mut self) {
        // Nobody has a piece: it would have borrowed this.
        drop(self.give_back());
    }
}

impl<T: ?Sized> std::fmt::Debug for Carved<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carved").finish_non_exhaustive()
    }
}

/// A piece that is lent.
pub struct Lent<'c, T: ?Sized + 'static> {
    slices: Piece<'static>,
    of: &'c Carved<T>,
}

impl<T: ?Sized> Lent<'_, T> {
    /// Its slices, one after the other.
    pub fn slices(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.slices.iter_mut().map(|slice| &mut **slice)
    }
}

impl<T: ?Sized> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        self.slices.clear();
        self.of.books.lock().out -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts = Vec<Vec<u8>>;

    fn halves(parts: &mut Parts) -> Result<Vec<Piece<'_>>, OutOfMemory> {
        let mut pieces = vec![Piece::new(), Piece::new()];
        for part in parts {
            let half = part.len() / 2;
            let (one, other) = part.split_at_mut(half);
            pieces[0].push(one);
            pieces[1].push(other);
        }
        Ok(pieces)
    }

    #[test]
    fn threads_fill_pieces_and_the_value_comes_back() {
        let carved = Carved::new(Box::new(vec![vec![0; 4], vec![0; 6]]), halves).unwrap();
        std::thread::scope(|scope| {
            for piece in 0..2 {
                let carved = &carved;
                scope.spawn(move || {
                    let mut lent = carved.lend(piece);
                    assert!(carved.give_back().is_none(), "a piece is out");
                    assert_eq!(lent.slices().len(), 2);
                    lent.slices().for_each(|slice| slice.fill(piece as u8 + 1));
                });
            }
        });
        assert_eq!(carved.lend(0).slices().len(), 0, "no piece is lent twice");
        assert_eq!(carved.lend(7).slices().len(), 0);
        let parts = carved.give_back().unwrap();
        assert_eq!(*parts, [vec![1, 1, 2, 2], vec![1, 1, 1, 2, 2, 2]]);
        assert!(carved.give_back().is_none());
        assert_eq!(carved.lend(0).slices().len(), 0);
    }

    #[test]
    fn what_cannot_be_carved_comes_back() {
        let refused = Carved::new(Box::new(vec![vec![5; 3]]), |_: &mut Parts| Err(OutOfMemory));
        assert_eq!(*refused.unwrap_err(), [[5; 3]]);
        // Dropped with pieces that nobody asked for.
        drop(Carved::new(Box::new(vec![vec![0; 100]]), halves));
    }
}
