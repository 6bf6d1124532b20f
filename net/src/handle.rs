//! Handles: what an opaque pointer of C leads to.
use crate::capi::check;
use crate::failure::Failure;

/// A type whose pointers lead to a `Handle`.
pub trait Opaque {
    type Object;
    const NAME: &'static str;
    const MAGIC: u64;
}

#[repr(C)] // the magic first, so that a handle of another kind is told apart
struct Handle<T: Opaque> {
    magic: u64,
    process: u32,
    object: T::Object,
}

/// A new handle, which the caller owns.
pub fn new<T: Opaque>(object: T::Object) -> *mut T {
    let process = std::process::id();
    Box::into_raw(Box::new(Handle::<T> { magic: T::MAGIC, process, object })).cast()
}

/// What a handle leads to.
///
/// # Safety
/// `pointer` is NULL, or came from `new` and is not destroyed.
pub unsafe fn borrow<'a, T: Opaque + 'a>(pointer: *const T) -> Result<&'a T::Object, Failure> {
    let pointer = pointer.cast::<Handle<T>>();
    check(pointer, T::NAME)?;
    // SAFETY: aligned, and the caller's contract: every handle begins with its magic.
    if unsafe { (&raw const (*pointer).magic).read() } != T::MAGIC {
        return Err(Failure::argument(format!("{} is no live handle", T::NAME)));
    }
    // SAFETY: its magic says that it is one of these.
    let handle = unsafe { &*pointer };
    if handle.process != std::process::id() {
        let text = "the handle is from before fork(): in a child process it does nothing";
        return Err(Failure::state(text));
    }
    Ok(&handle.object)
}

/// Ends a handle, if it is a live one of this process.
///
/// # Safety
/// As for `borrow`, and the caller is its last user.
pub unsafe fn destroy<T: Opaque>(pointer: *mut T) {
    // SAFETY: the caller's contract.
    if unsafe { borrow(pointer) }.is_ok() {
        // SAFETY: it came from Box::into_raw in `new`, and the caller is its last user.
        let mut handle = unsafe { Box::from_raw(pointer.cast::<Handle<T>>()) };
        handle.magic = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capi::rkv_net_publisher;
    use crate::store::rkv_net_store;

    /// E03: it lies there in handles of any kind, so that others are told apart by it.
    #[test]
    fn e03_the_magic_of_a_handle_comes_first() {
        assert_eq!(std::mem::offset_of!(Handle<rkv_net_publisher>, magic), 0);
        assert_eq!(std::mem::offset_of!(Handle<rkv_net_store>, magic), 0);
    }
}
