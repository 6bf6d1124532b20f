//! Memory that may run out: containers that refuse to grow where std's would end the process.
//!
//! A call that runs out of memory changes nothing. So each one first makes room for all that it is
//! about to write, and then writes; what makes room returns [`OutOfMemory`]. For arrays that is
//! `Vec::try_reserve`. What std has nothing for is here: boxes and shared ownership, places by
//! number, ordered maps.

mod arc;
mod boxed;
mod carved;
mod code;
mod from_end;
mod huge;
mod ordered_map;
mod queue;
mod reserve;
mod seed;
mod shared_bytes;
mod slab;
mod slots;
pub mod treap;

pub use arc::{Arc, try_std_arc};
pub use boxed::{IndexBox, try_box, try_box_with};
pub use carved::{Carved, Lent, Piece};
pub use code::map_code;
pub use from_end::{FromEnd, extend_from_end};
pub use huge::Pages;
pub use ordered_map::OrderedMap;
pub use queue::Queue;
pub use reserve::{
    Refused, ReserveStats, leave_reserve, put_reserved, reserve, reserve_stats, take_reserved,
};
pub use seed::{choose_seed, seed};
pub use shared_bytes::SharedBytes;
pub use slab::Slab;
pub use slots::{Slot, Slots};

use std::collections::TryReserveError;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The host has no memory for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory;

impl From<TryReserveError> for OutOfMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

/// A request that is large for the C library's allocator.
const LARGE: usize = 2048;

/// Lets the allocator put its house in order before a lock is taken. glibc keeps small blocks that
/// were freed apart, and joins all of them when it is next asked for a large one: milliseconds,
/// after 100,000 of them.
pub fn settle_allocator() {
    let mut large = Vec::<u8>::new();
    // Without memory there is nothing to be done about it.
    drop(large.try_reserve_exact(LARGE));
    // A block that nobody looks at might never be asked for.
    std::hint::black_box(&large);
}

/// A request that is no reason for glibc to give memory back to the system.
const MUCH: usize = 60 << 10;

/// Has the allocator take more from the system than the next small block needs, and touches it.
/// glibc lets what a thread has grow page by page, with a call each, and the page faults of all
/// threads wait for it.
pub fn grow_allocator() {
    // Without memory there is nothing to be done about it.
    drop(try_touched_room::<u8>(MUCH));
}

/// Bytes that may be used, as roughly as they are counted, of the much more that is made ready.
pub(crate) const READY: usize = 16 << 10;

/// Memory that is made ready for what is done with a lock, before that is taken.
#[derive(Debug, Default)]
pub struct ReadyMemory(AtomicUsize);

impl ReadyMemory {
    /// So many bytes are about to be asked for, roughly.
    pub fn want(&self, bytes: usize) {
        if self.0.fetch_add(bytes.min(READY), Ordering::Relaxed) >= READY {
            self.0.store(0, Ordering::Relaxed);
            grow_allocator();
        }
    }
}

/// Growth that can be refused; nothing changes then.
pub trait TryGrow<T> {
    /// `push`.
    fn try_push(&mut self, item: T) -> Result<(), OutOfMemory>;

    /// `extend`.
    fn try_extend(&mut self, items: impl ExactSizeIterator<Item = T>) -> Result<(), OutOfMemory>;

    /// `extend_from_slice`.
    fn try_extend_from_slice(&mut self, items: &[T]) -> Result<(), OutOfMemory>
    where
        T: Copy;
}

impl<T> TryGrow<T> for Vec<T> {
    #[inline]
    fn try_push(&mut self, item: T) -> Result<(), OutOfMemory> {
        self.try_reserve(1)?;
        self.push(item);
        Ok(())
    }

    fn try_extend(&mut self, items: impl ExactSizeIterator<Item = T>) -> Result<(), OutOfMemory> {
        let room = items.len();
        self.try_reserve(room)?;
        self.extend(items.take(room));
        Ok(())
    }

    #[inline]
    fn try_extend_from_slice(&mut self, items: &[T]) -> Result<(), OutOfMemory>
    where
        T: Copy,
    {
        self.try_reserve(items.len())?;
        self.extend_from_slice(items);
        Ok(())
    }
}

/// `collect`, of items whose number is known.
pub fn try_collect<T>(items: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, OutOfMemory> {
    let mut made = Vec::new();
    made.try_reserve_exact(items.len())?;
    made.try_extend(items)?;
    Ok(made)
}

/// `to_vec`.
pub fn try_to_vec<T: Copy>(items: &[T]) -> Result<Vec<T>, OutOfMemory> {
    let mut made = Vec::new();
    made.try_reserve_exact(items.len())?;
    made.extend_from_slice(items);
    Ok(made)
}

/// `vec![0; count]`: memory that is new from the system is zero, and isn't touched here.
pub fn try_zeros<T: bytemuck::Zeroable>(count: usize) -> Result<Vec<T>, OutOfMemory> {
    let zeros = bytemuck::allocation::try_zeroed_slice_box(count);
    zeros.map(Vec::from).map_err(|()| OutOfMemory)
}

/// The same, given by the system now: for lists that are written to under a lock later.
pub fn try_touched_zeros<T: bytemuck::Zeroable>(count: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut made = try_zeros(count)?;
    // Zeros that are written to what is known to be zero are left out.
    for item in std::hint::black_box(&mut made).iter_mut().step_by(touched_by::<T>()) {
        *item = T::zeroed();
    }
    std::hint::black_box(&made);
    Ok(made)
}

/// An empty list with room for so many items, which the system gives now.
pub fn try_touched_room<T>(count: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut made = Vec::new();
    made.try_reserve_exact(count)?;
    touch(made.spare_capacity_mut());
    std::hint::black_box(&mut made);
    Ok(made)
}

/// Has the system give memory now that is to be written to: it does so when it is first touched,
/// and that takes longer than to fill it. What is in it is lost.
pub fn touch<T>(room: &mut [MaybeUninit<T>]) {
    for item in room.iter_mut().step_by(touched_by::<T>()) {
        *item = MaybeUninit::zeroed();
    }
}

/// The system gives memory 4096 bytes at a time, or more.
const fn touched_by<T>() -> usize {
    let items = if size_of::<T>() == 0 { 1 } else { 4096 / size_of::<T>() };
    if items == 0 { 1 } else { items }
}

/// `vec![item; count]`.
pub fn try_filled<T: Clone>(item: T, count: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut made = Vec::new();
    made.try_reserve_exact(count)?;
    made.resize(count, item);
    Ok(made)
}
