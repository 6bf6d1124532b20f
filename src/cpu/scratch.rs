//! Memory that calls compute in. It is kept from call to call.
//!
//! All that a call may need is made before it writes anything, by the thread that called: so a call
//! for which there is no memory changes nothing, and its threads never ask for any.
use super::block::{DIRECT_ROWS, converted_stride, is_padded};
use super::kernel::{BLOCK, Span, padded};
use super::offsets::Offsets;
use super::schedule::Schedule;
use super::state::{State, Tree};
use crate::attention::Geometry;
use crate::memory::{OutOfMemory, TryGrow, try_box};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Numbers at the beginning of a cache line; zero until they are written.
#[derive(Default)]
pub(super) struct Numbers(Vec<Line>);

impl Numbers {
    /// Makes room for `count` numbers. What they were is lost when the room was smaller.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), OutOfMemory> {
        let lines = count.div_ceil(16);
        if lines > self.0.len() {
            self.0.clear();
            self.0.try_reserve(lines)?;
            self.0.resize(lines, Line::default());
        }
        Ok(())
    }

    /// The numbers, of which there is room for `count`.
    pub(super) fn start(&mut self, count: usize) -> *mut f32 {
        assert!(count <= 16 * self.0.len(), "room was made before");
        self.0.as_mut_ptr().cast()
    }
}

/// Memory of one thread.
#[derive(Default)]
#[repr(align(128))] // two cache lines, which processors fetch together
pub(super) struct Scratch {
    /// Queries.
    pub q: Numbers,
    /// Keys or values of a block, converted, and behind them the keys turned.
    pub kv: Numbers,
    /// Scores, then weights, of a block.
    pub scores: Numbers,
    /// What was seen.
    pub tree: Tree,
    /// Keys that each row of a head sees, from position 0 on, sinks apart.
    pub seen: Vec<Span>,
    /// Sinks that each row sees and that are apart; none in a view without sinks.
    pub sinks: Vec<Span>,
    /// Keys of a block that each row sees, from the block's first on.
    pub spans: Vec<Span>,
    /// Which keys of a block each row sees, where some of its span are hidden from some row.
    pub shown: Vec<u64>,
    /// Where the keys of a block lie.
    pub k_offsets: Offsets,
    /// Where its values do, unless that is as far from the first.
    pub v_offsets: Offsets,
}

impl Scratch {
    /// Before another row, or other keys of it.
    pub(super) fn forget_offsets(&mut self) {
        self.k_offsets.forget();
        self.v_offsets.forget();
    }

    /// Makes room for each part of a schedule.
    fn reserve(&mut self, schedule: &Schedule, geometry: &Geometry) -> Result<(), OutOfMemory> {
        let [head_dim, v_head_dim] = [geometry.head_dim, geometry.v_head_dim].map(padded);
        let rows = schedule.head_rows;
        self.q.reserve(schedule.tile_height * head_dim)?;
        if rows > DIRECT_ROWS || is_padded(geometry) {
            let numbers = BLOCK * converted_stride(head_dim.max(v_head_dim));
            self.kv.reserve(numbers + BLOCK * head_dim)?;
        }
        self.scores.reserve(rows * BLOCK)?;
        for spans in [&mut self.seen, &mut self.sinks, &mut self.spans] {
            spans.clear();
            spans.try_reserve(rows)?;
        }
        self.shown.clear();
        self.shown.try_reserve(rows)?;
        self.tree.reserve(schedule.state_rows(), v_head_dim)
    }
}

/// Memory of one call.
#[derive(Default)]
pub(super) struct Desk {
    /// States of the parts of tiles.
    pub parts: Numbers,
    /// Each thread's, by its number: nobody waits for a lock.
    scratches: Vec<Mutex<Scratch>>,
}

impl Desk {
    /// Makes room for what was scheduled for a number of threads.
    pub(super) fn reserve(
        &mut self,
        schedule: &Schedule,
        threads: usize,
        geometry: &Geometry,
    ) -> Result<(), OutOfMemory> {
        let Self { parts, scratches } = self;
        let numbers = State::numbers(schedule.tile_height, padded(geometry.v_head_dim));
        parts.reserve(schedule.part_count * numbers)?;
        let threads = if schedule.parts.len() > 1 { threads } else { 1 };
        for at in 0..threads {
            if at == scratches.len() {
                scratches.try_push(Mutex::default())?;
            }
            let scratch = scratches[at].get_mut().unwrap_or_else(PoisonError::into_inner);
            scratch.reserve(schedule, geometry)?;
        }
        Ok(())
    }

    /// The memory of a thread; none is there for one that doesn't belong to the call.
    pub(super) fn scratch(&self, thread: usize) -> Option<MutexGuard<'_, Scratch>> {
        // What a panic leaves is overwritten by the next call.
        Some(self.scratches.get(thread)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Memory that is lent for as long as some work takes. Taking it back allocates nothing: what is
/// not lent is a linked list.
#[derive(Default)]
pub(super) struct Kept<T>(Mutex<Option<Box<Lent<T>>>>);

#[derive(Default)]
struct Lent<T> {
    value: T,
    next: Option<Box<Self>>,
}

impl<T: Default> Kept<T> {
    /// Does the work with memory that no other work has meanwhile.
    pub(super) fn with<E: From<OutOfMemory>>(
        &self,
        work: impl FnOnce(&mut T) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut lent = match self.take() {
            Some(lent) => lent,
            None => try_box(Lent::default())?,
        };
        let result = work(&mut lent.value);
        let mut first = self.first();
        lent.next = first.take();
        *first = Some(lent);
        result
    }

    fn take(&self) -> Option<Box<Lent<T>>> {
        let mut first = self.first();
        let mut lent = first.take()?;
        *first = lent.next.take();
        Some(lent)
    }

    fn first(&self) -> MutexGuard<'_, Option<Box<Lent<T>>>> {
        // A panic elsewhere leaves the list whole: nothing else happens under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
