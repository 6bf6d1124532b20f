//! Arrays of structs that can grow: a call says how large the caller's elements are.
use super::guard::Fail;
use super::pointer::{SIZE_LIMIT, check, put};
use crate::error::{Error, text};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice;

/// An element of such an array. It grows at its end only.
///
/// # Safety
/// `repr(C)`, made of integers and raw pointers, without padding.
pub(crate) unsafe trait AbiElement: Copy {
    /// sizeof in the first release.
    const V1: usize;

    /// All fields zero.
    fn zeroed() -> Self {
        // SAFETY: all bytes are valid for an AbiElement.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }

    /// For structs that are elements here and stand alone elsewhere: their struct_size is set to
    /// the size of the caller's elements.
    fn sized(self, _size: u32) -> Self {
        self
    }
}
// SAFETY: nothing at all.
unsafe impl AbiElement for () {
    const V1: usize = 0;
}
// SAFETY: a plain integer.
unsafe impl AbiElement for u64 {
    const V1: usize = 8;
}

/// Checks the size of elements, and how many bytes all of them take.
fn check_sizes<T: AbiElement>(
    (count, name): (usize, &str),
    (size, size_name): (usize, &str),
) -> Result<usize, Fail> {
    if !(T::V1..=SIZE_LIMIT).contains(&size) || !size.is_multiple_of(align_of::<T>()) {
        let least = T::V1;
        let message = text!("{size_name} {size} is not the size of this struct ({least})");
        return Err(Error::argument(message).into());
    }
    let bytes = count.checked_mul(size).filter(|&bytes| bytes <= isize::MAX as usize);
    let refused = || Error::argument(text!("{name}: {count} elements are out of range"));
    Ok(bytes.ok_or_else(refused)?)
}

/// An array that C gave to read.
pub(crate) struct GivenElements<'a, T> {
    bytes: &'a [u8],
    size: usize,
    read: PhantomData<T>,
}

impl<'a, T: AbiElement> GivenElements<'a, T> {
    /// # Safety
    /// `pointer` is NULL, or `count` elements of `size` bytes are readable there during the call.
    pub(crate) unsafe fn new(
        pointer: *const T,
        count: usize,
        (size, size_name): (usize, &str),
        name: &str,
    ) -> Result<Self, Fail> {
        let bytes = check_sizes::<T>((count, name), (size, size_name))?;
        let made = |bytes| Self { bytes, size, read: PhantomData };
        if count == 0 {
            return Ok(made(&[]));
        }
        check(pointer, name)?;
        // SAFETY: not NULL, and the caller promises as many bytes.
        let made = made(unsafe { slice::from_raw_parts(pointer.cast(), bytes) });
        let known = size.min(size_of::<T>());
        let mut unknown = made.bytes.chunks_exact(size).map(|element| &element[known..]);
        if let Some(at) = unknown.position(|bytes| bytes.iter().any(|&byte| byte != 0)) {
            let what = "sets a field that this library doesn't know";
            return Err(Error::argument(text!("{name}[{at}] {what}")).into());
        }
        Ok(made)
    }

    /// The elements; what is missing in them is zero.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = T> + Clone + use<'a, T> {
        let known = self.size.min(size_of::<T>());
        self.bytes.chunks_exact(self.size).map(move |element| {
            if known == size_of::<T>() {
                // SAFETY: as many bytes are there; all bytes are valid for an AbiElement.
                return unsafe { element.as_ptr().cast::<T>().read_unaligned() };
            }
            let mut read = T::zeroed();
            // SAFETY: `known` bytes are there and fit; all bytes are valid for an AbiElement.
            unsafe { element.as_ptr().copy_to_nonoverlapping((&raw mut read).cast(), known) };
            read
        })
    }
}

/// Room for an array that C wants.
#[derive(Clone, Copy)]
pub(crate) struct WantedElements<T> {
    first: *mut T,
    size: usize,
    capacity: usize,
}

impl WantedElements<()> {
    /// For calls without results.
    pub(crate) fn none() -> Self {
        Self { first: std::ptr::null_mut(), size: 0, capacity: 0 }
    }
}

impl<T: AbiElement> WantedElements<T> {
    /// # Safety
    /// `first` is NULL, or `capacity` elements of `size` bytes are writable there as long as this
    /// lives.
    pub(crate) unsafe fn new(
        first: *mut T,
        size: usize,
        capacity: usize,
        [name, size_name]: [&str; 2],
    ) -> Result<Self, Fail> {
        if capacity > 0 {
            check(first, name)?;
            check_sizes::<T>((capacity, name), (size, size_name))?;
        }
        Ok(Self { first, size, capacity })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Where an element lies, of which the caller knows all fields of the first release at least.
    pub(crate) fn place(&self, at: usize) -> *mut T {
        assert!(at < self.capacity, "there is room for the element");
        // SAFETY: the element lies within what `new` was promised.
        unsafe { self.first.byte_add(at * self.size) }
    }

    /// Writes a list: the count always, the elements when they fit. (NULL, 0) asks for the count.
    ///
    /// # Safety
    /// `out_count` is NULL, or writable.
    pub(crate) unsafe fn fill(
        &mut self,
        values: impl ExactSizeIterator<Item = T>,
        out_count: *mut usize,
        name: &str,
    ) -> Result<(), Fail> {
        // SAFETY: the caller's contract.
        unsafe { put(values.len(), out_count, "out_count")? };
        if self.first.is_null() {
            return Ok(());
        }
        if values.len() > self.capacity {
            return Err(Fail::too_small(values.len(), self.capacity, name));
        }
        for (at, value) in values.enumerate() {
            self.put(at, &value);
        }
        Ok(())
    }

    /// Writes one element: as much as the caller knows, and zeros where the caller knows more.
    pub(crate) fn put(&mut self, at: usize, value: &T) {
        let (to, value) = (self.place(at), value.sized(self.size as u32));
        if self.size == size_of::<T>() {
            // SAFETY: the element lies within what `new` was promised.
            return unsafe { to.write_unaligned(value) };
        }
        let (to, known) = (to.cast::<u8>(), self.size.min(size_of::<T>()));
        // SAFETY: the element lies within what `new` was promised; `known` bytes come from `value`,
        // which has no padding.
        unsafe {
            to.copy_from_nonoverlapping((&raw const value).cast(), known);
            to.add(known).write_bytes(0, self.size - known);
        }
    }
}
