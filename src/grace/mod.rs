//! Memory that threads without a lock may look at: one thread changes it, any number read it.
//!
//! The one rule of read-copy-update, in types that hold it without `unsafe` on the user's side:
//!
//! - A [`Link`] leads to an [`Array`]. Who reads it has to be a [`Reader`], and what it gets can't
//!   change and stays alive until that reader leaves.
//! - Whoever takes an array out of a link puts it into [`Garbage`]. It is freed after a *grace
//!   period*: when all readers that were there at that time have left. A reader who comes later
//!   can't find it any more.
//!
//! A reader costs one compare-and-swap in a place that it shares with nobody, so readers don't slow
//! each other down. Whoever writes pays for readers only when it frees memory, and doesn't wait,
//! unless there is no memory for the list of what is to be freed. A reader that the system suspends
//! holds back what is taken out meanwhile; readers are there for a microsecond and wait for nothing
//! while they are.
//!
//! Why not crossbeam-epoch: `cargo bench --bench grace` has both in one run. There a reader that
//! comes, reads and leaves takes 47 instructions (here 36, and 0.7 of the time), and replacing an
//! array and freeing it 427 (here 260, 0.6 of the time). A thread's first reader costs 4500
//! instructions more there: it allocates, and is registered until the thread ends. And an epoch
//! can't be asked whether anybody reads now, so `Array::hide`, with which a segment grows in place,
//! would have to copy. Its garbage is freed when later guards come around to it, and waits for
//! every guard in the process.
//!
//! `tests/loom` runs all this in every order of the threads' steps that loom can make, and shows
//! that nearly every ordering below is needed (docs/TESTING.md).

mod array;
mod garbage;
mod junction;
mod prefetch;

pub use array::{Array, Link, One};
pub use garbage::Garbage;
pub use junction::{Arrays, Junction, Lead, Led};
pub(crate) use prefetch::{prefetch, prefetch_all};

use crate::sync::{AtomicU64, AtomicUsize, Ordering, fence, limit, thread_local};
use std::cell::Cell;
use std::marker::PhantomData;

/// Readers at one time. There are hardly more than cores.
const PLACES: usize = limit(128, 2);

/// Where a reader signs in, alone in its cache lines. The number is odd while somebody is there,
/// and never the same for two readers.
#[derive(Debug)]
#[repr(align(128))]
struct Place(AtomicU64);

#[cfg(not(loom))]
static READERS: [Place; PLACES] = [const { Place(AtomicU64::new(0)) }; PLACES];
/// Places that were in use at some time; those behind are free.
#[cfg(not(loom))]
static USED: AtomicUsize = AtomicUsize::new(0);

// Loom's atomics are no constants, and belong to one run of a model.
#[cfg(loom)]
loom::lazy_static! {
    static ref READERS: [Place; PLACES] = std::array::from_fn(|_| Place(AtomicU64::new(0)));
    static ref USED: AtomicUsize = AtomicUsize::new(0);
}

thread_local! {
    /// The place that this thread had last.
    static LAST: Cell<usize> = const { Cell::new(0) };
}

/// Whether anybody may read without a lock. To helgrind an atomic is a variable like any other, so
/// that each look at what the owner changes would be a race: with the lock that helgrind
/// understands, nobody does. Miri and ThreadSanitizer watch readers.
const READABLE: bool = cfg!(any(miri, not(feature = "pthread-lock")));

/// A thread that reads. What it finds in links stays as it is until it leaves.
#[derive(Debug)]
pub struct Reader {
    place: usize,
    number: u64,
    /// Left by the thread that came.
    not_send: PhantomData<*const ()>,
}

impl Reader {
    /// Signs in; None when there are too many, or nobody may.
    ///
    /// Why what the reader finds afterwards is safe: everything on both sides is sequentially
    /// consistent, signing in and reading links here, a fence and looking at the places in
    /// `Present`. If the writer, who has changed a link before, doesn't see the reader, then the
    /// reader came after the fence, and reads what the link holds now.
    ///
    /// Loom doesn't know that order of accesses, only that of fences: in models a fence follows the
    /// compare-and-swap, and what they show holds for that fence. The order of C++20 does as much.
    /// Were a link read as it was before the change, the read would come before the writer's fence
    /// in it. So signing in would, too, and the writer, who looks later, would see it.
    #[inline]
    pub fn enter() -> Option<Self> {
        if !READABLE {
            return None;
        }
        let last = LAST.with(Cell::get);
        (0..PLACES).map(|step| (last + step) % PLACES).find_map(|place| {
            if place >= USED.load(Ordering::SeqCst) {
                USED.fetch_max(place + 1, Ordering::SeqCst);
            }
            let at = &READERS[place].0;
            let (free, success) = (at.load(Ordering::Relaxed), Ordering::SeqCst);
            if free % 2 == 1 {
                return None;
            }
            at.compare_exchange(free, free + 1, success, Ordering::Relaxed).ok()?;
            LAST.with(|last| last.set(place));
            Some(Self { place, number: free + 1, not_send: PhantomData })
        })
    }
}

impl Drop for Reader {
    #[inline]
    fn drop(&mut self) {
        READERS[self.place].0.store(self.number + 1, Ordering::Release);
    }
}

/// The readers of one moment: after everything that this thread has changed before.
#[derive(Debug)]
struct Present {
    /// By place; even where nobody was.
    numbers: [u64; PLACES],
    /// The places behind these were free.
    used: usize,
}

impl Default for Present {
    /// Nobody.
    fn default() -> Self {
        Self { numbers: [0; PLACES], used: 0 }
    }
}

impl Present {
    fn look(&mut self) {
        fence(Ordering::SeqCst);
        let used = USED.load(Ordering::SeqCst);
        for (number, place) in self.numbers.iter_mut().zip(&READERS[..used]) {
            *number = place.0.load(Ordering::SeqCst);
        }
        let last = self.numbers[..used].iter().rposition(|number| number % 2 == 1);
        self.used = last.map_or(0, |last| last + 1);
    }

    fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether none of them is there any more.
    fn have_left(&self) -> bool {
        let mut then = self.numbers[..self.used].iter().zip(READERS.iter());
        then.all(|(&then, place)| then % 2 == 0 || place.0.load(Ordering::Acquire) != then)
    }
}

/// Lets go of the readers that a child process inherited: of its parent's threads only the one that
/// forked is there, and that one doesn't read, because a reader calls nothing that could fork.
#[cfg(all(unix, not(miri)))]
pub fn forget_readers() {
    for place in &READERS[..USED.load(Ordering::SeqCst)] {
        let number = place.0.load(Ordering::Relaxed);
        place.0.store(number + number % 2, Ordering::SeqCst);
    }
}

/// Whether nobody reads; who comes later sees what this thread has changed before.
pub(crate) fn nobody_reads() -> bool {
    fence(Ordering::SeqCst);
    let used = USED.load(Ordering::SeqCst);
    READERS[..used].iter().all(|place| place.0.load(Ordering::SeqCst) % 2 == 0)
}
