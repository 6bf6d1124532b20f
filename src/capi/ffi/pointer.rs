//! Pointers from C: every check of one, and every conversion, used everywhere.
use super::guard::Fail;
use crate::error::Error;
use crate::error::text;
use std::mem::MaybeUninit;
use std::slice;

/// A public struct that begins with `uint32_t struct_size` and only grows at its end.
///
/// # Safety
/// `repr(C)`, made of integers and raw pointers, without padding, `struct_size` first.
pub(crate) unsafe trait AbiStruct: Copy {
    /// The name of the parameter, for messages.
    const NAME: &'static str;
    /// sizeof in the first release.
    const V1: usize;
}

#[cold]
fn null(name: &str) -> Fail {
    Error::argument(text!("{name} is NULL")).into()
}

#[cold]
fn misaligned(name: &str) -> Fail {
    Error::argument(text!("{name} is not aligned")).into()
}

#[inline]
pub(crate) fn check<T>(pointer: *const T, name: &str) -> Result<(), Fail> {
    if pointer.is_null() {
        return Err(null(name));
    }
    if !pointer.is_aligned() {
        return Err(misaligned(name));
    }
    Ok(())
}

#[cold]
fn too_many(count: usize, name: &str) -> Fail {
    Error::argument(text!("{name}: {count} elements are out of range")).into()
}

/// Fewer elements than would overflow an address.
#[inline]
fn check_count<T>(count: usize, name: &str) -> Result<(), Fail> {
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(too_many(count, name));
    }
    Ok(())
}

/// What C gave to read.
///
/// # Safety
/// `pointer` is NULL, or `count` elements are readable there during the call.
#[inline]
pub(crate) unsafe fn slice<'a, T>(
    pointer: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], Fail> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer, name)?;
    check_count::<T>(count, name)?;
    // SAFETY: not NULL, aligned, and the caller promises `count` elements.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// A place that C gave to write to.
///
/// # Safety
/// `pointer` is NULL, or a T is writable there during the call.
#[inline]
pub(crate) unsafe fn out<'a, T>(
    pointer: *mut T,
    name: &str,
) -> Result<&'a mut MaybeUninit<T>, Fail> {
    check(pointer, name)?;
    // SAFETY: not NULL, aligned, and the caller promises that it is writable.
    Ok(unsafe { &mut *pointer.cast::<MaybeUninit<T>>() })
}

/// Writes one output, as the last thing a call does.
///
/// # Safety
/// As for `out`.
#[inline]
pub(crate) unsafe fn put<T>(value: T, pointer: *mut T, name: &str) -> Result<(), Fail> {
    // SAFETY: the caller's contract.
    unsafe { out(pointer, name)? }.write(value);
    Ok(())
}

/// Checks a buffer that is written to later. (NULL, 0) is fine.
#[inline]
pub(crate) fn check_out<T>(pointer: *mut T, count: usize, name: &str) -> Result<(), Fail> {
    if count == 0 {
        return Ok(());
    }
    check(pointer, name)?;
    check_count::<T>(count, name)
}

/// The first `needed` of `capacity` elements that C gave to write to.
///
/// # Safety
/// `pointer` is NULL, or `capacity` elements are writable there during the call.
#[inline(always)] // the room for a match
pub(crate) unsafe fn out_slice<'a, T>(
    pointer: *mut T,
    capacity: usize,
    needed: usize,
    name: &str,
) -> Result<&'a mut [MaybeUninit<T>], Fail> {
    if needed > capacity {
        return Err(Fail::too_small(needed, capacity, name));
    }
    if needed == 0 {
        return Ok(&mut []);
    }
    check_out(pointer, needed, name)?;
    // SAFETY: not NULL, aligned, and the caller promises `capacity` elements.
    Ok(unsafe { slice::from_raw_parts_mut(pointer.cast(), needed) })
}

/// Copies a list to C: the count always, the elements when they fit. (NULL, 0) asks for the count.
///
/// # Safety
/// As for `out_slice` and `out`.
pub(crate) unsafe fn fill<T: Copy>(
    values: &[T],
    pointer: *mut T,
    capacity: usize,
    out_count: *mut usize,
    [name, count_name]: [&str; 2],
) -> Result<(), Fail> {
    check_out(pointer, capacity, name)?;
    // SAFETY: the caller's contract.
    unsafe { put(values.len(), out_count, count_name)? };
    if pointer.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's contract.
    unsafe { out_slice(pointer, capacity, values.len(), name)? }.write_copy_of_slice(values);
    Ok(())
}

/// Reads a struct of any size that this library, an older or a newer one could have. What is
/// missing is zero; what this library doesn't know must be zero.
///
/// # Safety
/// `pointer` is NULL, or as many bytes are readable there as its struct_size says.
#[inline]
pub(crate) unsafe fn read_struct<T: AbiStruct>(pointer: *const T) -> Result<T, Fail> {
    // SAFETY: the caller's contract.
    let size = unsafe { struct_size(pointer)? };
    if size == size_of::<T>() {
        // SAFETY: aligned, and as many bytes are readable; all bytes are valid for an AbiStruct.
        return Ok(unsafe { pointer.read() });
    }
    // SAFETY: the caller's contract.
    unsafe { read_other_size(pointer, size) }
}

/// # Safety
/// `pointer` is aligned, and `size` bytes are readable there.
#[cold]
unsafe fn read_other_size<T: AbiStruct>(pointer: *const T, size: usize) -> Result<T, Fail> {
    let mut read = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes are readable, `known` fit; all bytes are valid for an AbiStruct.
    let (read, unknown) = unsafe {
        pointer.cast::<u8>().copy_to_nonoverlapping(read.as_mut_ptr().cast(), known);
        let bytes = slice::from_raw_parts(pointer.cast::<u8>(), size);
        (read.assume_init(), &bytes[known..])
    };
    if unknown.iter().any(|&byte| byte != 0) {
        let message = text!("{} sets a field that this library doesn't know", T::NAME);
        return Err(Error::argument(message).into());
    }
    Ok(read)
}

/// Checks, before anything is changed, a struct that is written at the end. Returns its size.
///
/// # Safety
/// As for `read_struct`.
#[inline]
pub(crate) unsafe fn check_fit<T: AbiStruct>(pointer: *mut T) -> Result<usize, Fail> {
    // SAFETY: the caller's contract.
    unsafe { struct_size(pointer) }
}

/// Writes a struct: as much as the caller knows, zero where the caller knows more. Its struct_size
/// stays the caller's.
///
/// # Safety
/// As for `read_struct`, and writable.
#[inline]
pub(crate) unsafe fn write_struct<T: AbiStruct>(pointer: *mut T, value: &T) -> Result<(), Fail> {
    // SAFETY: the caller's contract.
    let size = unsafe { struct_size(pointer)? };
    let head = size_of::<u32>();
    if size == size_of::<T>() {
        let (to, from) = (pointer.cast::<u8>(), (&raw const *value).cast::<u8>());
        // SAFETY: `size` bytes are writable and come from `value`, which has no padding.
        unsafe { to.add(head).copy_from_nonoverlapping(from.add(head), size_of::<T>() - head) };
        return Ok(());
    }
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes are writable and `known` of them come from `value`, which has no
    // padding.
    unsafe {
        let (to, from) = (pointer.cast::<u8>(), (&raw const *value).cast::<u8>());
        to.add(head).copy_from_nonoverlapping(from.add(head), known - head);
        to.add(known).write_bytes(0, size - known);
    }
    Ok(())
}

/// Writes defaults, struct_size included.
///
/// # Safety
/// `pointer` is NULL, or `size` bytes are writable there.
pub(crate) unsafe fn init_struct<T: AbiStruct>(
    pointer: *mut T,
    size: usize,
    value: &T,
) -> Result<(), Fail> {
    check(pointer, T::NAME)?;
    check_size::<T>(size, "struct_size")?;
    // SAFETY: not NULL, aligned, and `size` bytes, at least a u32, are writable.
    unsafe {
        pointer.cast::<u32>().write(size as u32);
        write_struct(pointer, value)
    }
}

/// # Safety
/// `pointer` is NULL or leads to a struct that begins with its size.
#[inline]
unsafe fn struct_size<T: AbiStruct>(pointer: *const T) -> Result<usize, Fail> {
    check(pointer, T::NAME)?;
    // SAFETY: not NULL and aligned; the first field of every AbiStruct is its size.
    let size = unsafe { pointer.cast::<u32>().read() } as usize;
    check_size::<T>(size, "struct_size").map(|()| size)
}

/// Sizes of structs stay far below this.
pub(crate) const SIZE_LIMIT: usize = 4096;

#[inline]
fn check_size<T: AbiStruct>(size: usize, field: &str) -> Result<(), Fail> {
    let is_good = (T::V1..=SIZE_LIMIT).contains(&size);
    if is_good { Ok(()) } else { Err(bad_struct_size::<T>(size, field)) }
}

#[cold]
fn bad_struct_size<T: AbiStruct>(size: usize, field: &str) -> Fail {
    bad_size(format_args!("{}: {field} {size}", T::NAME), [size_of::<T>(), T::V1])
}

/// Why a size is refused. The least one alone would mislead: who takes it for the size of the
/// struct is understood, but for what came to the struct's end since.
#[cold]
pub(super) fn bad_size(given: std::fmt::Arguments<'_>, [size, least]: [usize; 2]) -> Fail {
    let message =
        text!("{given}: this struct has {size} bytes here, and at least {least} in this series");
    Error::argument(message).into()
}
