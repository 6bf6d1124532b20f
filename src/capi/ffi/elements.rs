//! Arrays of structs that can grow: a call says how large the caller's elements are.
use super::guard::Fail;
use super::pointer::{SIZE_LIMIT, bad_size, check, put};
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
        return Err(bad_size(format_args!("{size_name} {size}"), [size_of::<T>(), T::V1]));
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
        if known == size {
            return Ok(made);
        }
        let mut unknown = made.bytes.chunks_exact(size).map(|element| &element[known..]);
        if let Some(at) = unknown.position(|bytes| bytes.iter().any(|&byte| byte != 0)) {
            let what = "sets a field that this library doesn't know";
            return Err(Error::argument(text!("{name}[{at}] {what}")).into());
        }
        Ok(made)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.size
    }

    /// The elements; what is missing in them is zero.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = T> + Clone + use<'a, T> {
        self.bytes.chunks_exact(self.size).map(read_element)
    }

    /// One of them where it is, if it has the usual size; of another one, a copy.
    #[inline(always)] // of every item of a batch
    pub(crate) fn get<'s>(&'s self, at: usize, copy: &'s mut MaybeUninit<T>) -> &'s T {
        let element = &self.bytes[at * self.size..][..self.size];
        if self.size != size_of::<T>() {
            return copy.write(read_element(element));
        }
        // SAFETY: as many bytes are there, aligned, for `new` checked where the first lies, and
        // what lies between two; all bytes are valid for an AbiElement.
        unsafe { &*element.as_ptr().cast::<T>() }
    }
}

/// An element that may be shorter or longer than those of this library.
fn read_element<T: AbiElement>(element: &[u8]) -> T {
    let known = element.len().min(size_of::<T>());
    if known == size_of::<T>() {
        // SAFETY: as many bytes are there; all bytes are valid for an AbiElement.
        return unsafe { element.as_ptr().cast::<T>().read_unaligned() };
    }
    let mut read = T::zeroed();
    // SAFETY: `known` bytes are there and fit; all bytes are valid for an AbiElement.
    unsafe { element.as_ptr().copy_to_nonoverlapping((&raw mut read).cast(), known) };
    read
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

    /// Room for a struct that stands alone, whose size was checked.
    ///
    /// # Safety
    /// `size` bytes are writable at `first` as long as this lives.
    pub(crate) unsafe fn one(first: *mut T, size: usize) -> Self {
        Self { first, size, capacity: 1 }
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
        self.put_made(at, || *value);
    }

    /// The same of one that is made where it goes.
    #[inline(always)]
    pub(crate) fn put_made(&mut self, at: usize, make: impl FnOnce() -> T) {
        let (to, made) = (self.place(at), || make().sized(self.size as u32));
        match self.size == size_of::<T>() {
            // SAFETY: the element lies within what `new` was promised.
            true => unsafe { to.write_unaligned(made()) },
            // SAFETY: as above.
            false => unsafe { put_part(to, self.size, &made()) },
        }
    }
}

/// Writes an element that has `size` bytes to the caller, more or fewer than here.
///
/// # Safety
/// As many are writable.
#[inline(never)] // not a method: who calls it can keep in registers where elements go
unsafe fn put_part<T: AbiElement>(to: *mut T, size: usize, value: &T) {
    let (to, known) = (to.cast::<u8>(), size.min(size_of::<T>()));
    // SAFETY: the caller's contract; `known` bytes come from `value`, which has no padding.
    unsafe {
        to.copy_from_nonoverlapping((&raw const *value).cast(), known);
        to.add(known).write_bytes(0, size - known);
    }
}
