//! Boxes whose allocation can fail. In std `Box::try_new` is not stable yet.
use super::OutOfMemory;
use std::alloc::{Layout, alloc};
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
