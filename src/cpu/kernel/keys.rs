//! Where the keys or values of a block lie.
use crate::cpu::element::{Element, F32};
use std::marker::PhantomData;

/// Rows of elements, one for each key of a block.
pub(in crate::cpu) trait KeyRows: Copy {
    /// Their format.
    type Element: Element;

    /// The row of a key, counted from the block's first.
    ///
    /// # Safety
    /// The block has such a row.
    unsafe fn row(self, key: usize) -> *const u8;
}

/// Rows in the pages themselves.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Listed<E> {
    base: *const u8,
    offsets: *const usize,
    element: PhantomData<E>,
}

impl<E> Listed<E> {
    /// Rows at these distances from `base`, in bytes.
    pub(in crate::cpu) fn new(base: *const u8, offsets: *const usize) -> Self {
        Self { base, offsets, element: PhantomData }
    }
}

impl<E: Element> KeyRows for Listed<E> {
    type Element = E;

    /// # Safety
    /// The block has such a row.
    #[inline(always)]
    unsafe fn row(self, key: usize) -> *const u8 {
        // SAFETY: the caller's contract.
        unsafe { self.base.add(*self.offsets.add(key)) }
    }
}

/// Rows that were converted into scratch memory.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Strided {
    base: *const f32,
    stride: usize,
}

impl Strided {
    /// Rows `stride` numbers apart.
    pub(in crate::cpu) fn new(base: *const f32, stride: usize) -> Self {
        Self { base, stride }
    }
}

impl KeyRows for Strided {
    type Element = F32;

    /// # Safety
    /// The block has such a row.
    #[inline(always)]
    unsafe fn row(self, key: usize) -> *const u8 {
        // SAFETY: the caller's contract.
        unsafe { self.base.add(key * self.stride).cast() }
    }
}
