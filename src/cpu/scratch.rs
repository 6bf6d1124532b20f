//! Memory that calls compute in. It is kept from call to call.
use super::kernel::Span;
use super::places::Places;
use super::schedule::Schedule;
use super::state::Tree;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Numbers at the beginning of a cache line; zero until they are written.
#[derive(Default)]
pub(super) struct Numbers(Vec<Line>);

impl Numbers {
    /// Room for `count` numbers. What they were is lost when the room was smaller.
    pub(super) fn reserve(&mut self, count: usize) -> *mut f32 {
        let lines = count.div_ceil(16);
        if lines > self.0.len() {
            self.0.clear();
            self.0.resize(lines, Line::default());
        }
        self.0.as_mut_ptr().cast()
    }
}

/// Memory of one thread.
#[derive(Default)]
pub(super) struct Scratch {
    /// Queries.
    pub q: Numbers,
    /// Keys or values of a block, converted.
    pub kv: Numbers,
    /// Scores, then weights, of a block.
    pub scores: Numbers,
    /// What was seen.
    pub tree: Tree,
    /// Keys that each row of a head sees, from position 0 on.
    pub seen: Vec<Span>,
    /// Keys of a block that each row sees, from the block's first on.
    pub spans: Vec<Span>,
    /// Where the keys of a block lie.
    pub places: Places,
}

/// Memory of one call.
#[derive(Default)]
pub(super) struct Desk {
    /// Who does what.
    pub schedule: Schedule,
    /// States of the parts of tiles.
    pub parts: Numbers,
}

/// Memory that is lent for as long as some work takes.
#[derive(Default)]
pub(super) struct Kept<T>(Mutex<Vec<Box<T>>>);

impl<T: Default> Kept<T> {
    /// Does the work with memory that no other work has meanwhile.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let lent = self.all().pop();
        let mut lent = lent.unwrap_or_default();
        let result = work(&mut lent);
        self.all().push(lent);
        result
    }

    fn all(&self) -> MutexGuard<'_, Vec<Box<T>>> {
        // A panic elsewhere leaves the list whole: only pushes and pops happen under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
