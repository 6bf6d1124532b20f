//! Boxes whose allocation can fail. In std `Box::try_new` is not stable yet.
use super::OutOfMemory;
use super::reserve::{put_reserved, take_reserved};
use std::alloc::{Layout, alloc, dealloc};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// `Box::new`.
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    try_box_with(|| value)
}

/// The same for a value that is made when there is memory for it, and not otherwise.
pub fn try_box_with<T>(make: impl FnOnce() -> T) -> Result<Box<T>, OutOfMemory> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(make())); // allocates nothing
    }
    // SAFETY: the size is not zero.
    let memory = NonNull::new(unsafe { alloc(layout) }.cast::<T>()).ok_or(OutOfMemory)?;
    // SAFETY: the memory is new, has the layout of a T, and is that of a Box once a T is in it. It
    // is leaked when `make` panics.
    unsafe {
        memory.write(make());
        Ok(Box::from_raw(memory.as_ptr()))
    }
}

/// Bytes that a processor fetches at once.
const LINE: usize = 64;

/// A box for what an index reads again and again: in the reserve, if that has room. It begins where
/// a cache line does, so that none has parts of more things than it must.
#[derive(Debug)]
pub struct IndexBox<T>(NonNull<T>, PhantomData<T>);

// SAFETY: as a Box.
unsafe impl<T: Send> Send for IndexBox<T> {}
// SAFETY: as a Box.
unsafe impl<T: Sync> Sync for IndexBox<T> {}

impl<T> IndexBox<T> {
    /// Of memory that is not the reserve's.
    const LAYOUT: Layout = match Layout::new::<T>().align_to(LINE) {
        Ok(layout) => layout,
        Err(_) => panic!("it is too large"),
    };

    /// `Box::new`, of a value that is made when there is memory for it.
    pub fn try_new(make: impl FnOnce() -> T) -> Result<Self, OutOfMemory> {
        const { assert!(size_of::<T>() > 0 && align_of::<T>() <= 16) };
        // SAFETY: the size is not zero.
        let system = || NonNull::new(unsafe { alloc(Self::LAYOUT) });
        let memory = take_reserved(size_of::<T>()).or_else(system).ok_or(OutOfMemory)?.cast::<T>();
        // SAFETY: the memory is new, large enough and aligned.
        unsafe { memory.write(make()) };
        Ok(Self(memory, PhantomData))
    }
}

impl<T> std::ops::Deref for IndexBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is a T, which is the box's.
        unsafe { self.0.as_ref() }
    }
}

impl<T> std::ops::DerefMut for IndexBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl<T> Drop for IndexBox<T> {
    fn drop(&mut self) {
        let memory = self.0.cast::<u8>();
        // SAFETY: nobody uses the T from now on, and the memory is either the reserve's, or of the
        // process with this layout.
        unsafe {
            self.0.drop_in_place();
            if !put_reserved(memory) {
                dealloc(memory.as_ptr(), Self::LAYOUT);
            }
        }
    }
}
