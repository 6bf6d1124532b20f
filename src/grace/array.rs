//! Arrays of fixed room, and links that lead readers to them.
use super::garbage::{Garbage, Retired};
use super::prefetch::prefetch_range;
use super::{Reader, nobody_reads};
use crate::memory::{OutOfMemory, put_reserved, take_reserved};
use crate::sync::{AtomicPtr, AtomicU32, Ordering, alloc, dealloc, fence};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// What stands in front of the items.
#[repr(C)]
pub(super) struct Header {
    /// The handle and every link, or retired link, that leads here.
    references: AtomicU32,
    /// Items that readers may look at.
    visible: AtomicU32,
    /// Items that there are, and room for them. Only the handle uses `len`, until the end.
    len: u32,
    capacity: u32,
}

/// Items in one allocation. Readers, who come through links, see those at the front that were
/// shown; the others are the owner's alone.
#[derive(Debug)]
pub struct Array<T>(NonNull<Header>, PhantomData<T>);

// SAFETY: a handle owns its items; readers on other threads get `&T` only.
unsafe impl<T: Send + Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Array<T> {}

/// None: no memory is that large.
const fn layout<T>(capacity: usize) -> Option<Layout> {
    const { assert!(align_of::<T>() <= align_of::<u64>()) };
    let Some(items) = capacity.checked_mul(size_of::<T>()) else { return None };
    let Some(size) = items.checked_add(size_of::<Header>()) else { return None };
    match Layout::from_size_align(size, align_of::<u64>()) {
        Ok(layout) => Some(layout),
        Err(_) => None,
    }
}

/// The same, of an array that there is.
const fn layout_of<T>(capacity: usize) -> Layout {
    layout::<T>(capacity).expect("the array was made with this layout")
}

/// The first item of an allocation.
///
/// # Safety
/// `header` leads to an allocation of `Array<T>`.
unsafe fn items<T>(header: NonNull<Header>) -> NonNull<T> {
    const { assert!(size_of::<Header>().is_multiple_of(align_of::<u64>())) };
    // SAFETY: items follow the header in the same allocation, aligned as it is.
    unsafe { header.add(1).cast() }
}

/// Has items fetched, so many from one on, without a look at the array: its header is as far away
/// as they are. Who reads them looks at it first, so it comes with the first ones.
#[inline(always)]
fn fetch_items<T>(header: *const Header, from: usize, count: usize) {
    let first = header.wrapping_add(1).cast::<T>().wrapping_add(from);
    let bytes = count * size_of::<T>();
    match from {
        0 => prefetch_range(header.cast(), bytes + size_of::<Header>()),
        _ => prefetch_range(first.cast(), bytes),
    }
}

/// Gives one reference back, the last one with the memory.
///
/// # Safety
/// `memory` is a live `Array<T>`, and the caller has a reference that nobody uses from now on.
pub(super) unsafe fn release<T>(memory: NonNull<()>) {
    let header = memory.cast::<Header>();
    // SAFETY: the caller has a reference, so the memory is alive. Who has the last reference is
    // alone: new ones are made from an old one.
    unsafe {
        let references = &(*header.as_ptr()).references;
        if references.load(Ordering::Acquire) != 1 {
            if references.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        let (len, capacity) = ((*header.as_ptr()).len, (*header.as_ptr()).capacity);
        let all = std::ptr::slice_from_raw_parts_mut(items::<T>(header).as_ptr(), len as usize);
        all.drop_in_place();
        if !put_reserved(header.cast()) {
            dealloc(header.as_ptr().cast(), layout_of::<T>(capacity as usize));
        }
    }
}

/// Lets go of a reference that a link had, when its readers have left.
///
/// # Safety
/// `header` leads to an `Array<T>`, and the reference is the caller's, who took it out of reach.
pub(super) unsafe fn retire<T: Send + Sync>(header: NonNull<Header>, garbage: &mut Garbage) {
    // SAFETY: the reference is there until it is released.
    let (capacity, references) =
        unsafe { ((*header.as_ptr()).capacity as usize, &(*header.as_ptr()).references) };
    // What has its handle, or another link, still is counted there.
    let is_last = references.load(Ordering::Relaxed) == 1;
    let bytes = if is_last { layout_of::<T>(capacity).size() } else { 0 };
    garbage.retire(Retired { memory: header.cast(), release: release::<T>, bytes });
}

/// What readers may see of an array.
///
/// # Safety
/// `header` leads to an `Array<T>` that lives as long as the result, and was found by a reader who
/// stays so long.
#[inline]
pub(super) unsafe fn visible<'a, T: Send + Sync>(header: NonNull<Header>) -> &'a [T] {
    // SAFETY: the first `visible` items are there and don't change before the reader has left.
    unsafe {
        let visible = (*header.as_ptr()).visible.load(Ordering::SeqCst);
        std::slice::from_raw_parts(items::<T>(header).as_ptr(), visible as usize)
    }
}

impl<T: Send + Sync> Array<T> {
    /// What a link leads to.
    pub(super) fn header(&self) -> *mut Header {
        self.0.as_ptr()
    }

    /// Makes a reference more, for a link.
    pub(super) fn refer(&mut self) {
        // References are made by the handle only, so one that is alone stays alone.
        let references = self.references();
        if references.load(Ordering::Relaxed) == 1 {
            references.store(2, Ordering::Relaxed);
        } else {
            references.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An empty array with room for so many items.
    #[inline(always)]
    pub fn with_capacity(capacity: usize) -> Result<Self, OutOfMemory> {
        let room = u32::try_from(capacity).map_err(|_| OutOfMemory)?;
        let layout = layout::<T>(capacity).ok_or(OutOfMemory)?;
        // SAFETY: the layout has a size, and what is written fits.
        unsafe {
            let memory = take_reserved(layout.size()).or_else(|| NonNull::new(alloc(layout)));
            let header = memory.ok_or(OutOfMemory)?.cast::<Header>();
            let (references, visible) = (AtomicU32::new(1), AtomicU32::new(0));
            header.write(Header { references, visible, len: 0, capacity: room });
            Ok(Self(header, PhantomData))
        }
    }

    /// An array of which readers see everything.
    pub fn shown(made: impl ExactSizeIterator<Item = T>) -> Result<Self, OutOfMemory> {
        let mut array = Self::with_capacity(made.len())?;
        array.extend(made);
        array.show(array.len());
        Ok(array)
    }

    /// Has items fetched, should there be so many from one on.
    #[inline(always)]
    pub fn fetch(&self, from: usize, count: usize) {
        fetch_items::<T>(self.0.as_ptr(), from, count);
    }

    /// Items that fit.
    pub fn capacity(&self) -> usize {
        // SAFETY: the memory is alive; `capacity` never changes.
        unsafe { (*self.0.as_ptr()).capacity as usize }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        Self::bytes_for(self.capacity())
    }

    /// Bytes that an array with room for so many items takes.
    pub fn bytes_for(capacity: usize) -> usize {
        size_of::<Header>() + capacity * size_of::<T>()
    }

    fn references(&self) -> &AtomicU32 {
        // SAFETY: the memory is alive.
        unsafe { &(*self.0.as_ptr()).references }
    }

    fn visible(&self) -> &AtomicU32 {
        // SAFETY: the memory is alive.
        unsafe { &(*self.0.as_ptr()).visible }
    }

    /// Adds items at the end, as far as there is room, where readers don't see them yet.
    pub fn extend(&mut self, made: impl Iterator<Item = T>) {
        let (mut len, room) = (self.len(), self.capacity() - self.len());
        // SAFETY: the allocation is an `Array<T>`.
        let first = unsafe { items::<T>(self.0) };
        // The length is written once, so that several items can be written at a time.
        for item in made.take(room) {
            // SAFETY: there is room. Nobody else uses what lies behind `len`.
            unsafe { first.add(len).write(item) };
            len += 1;
        }
        // SAFETY: so many are there, and nobody else uses `len`.
        unsafe { (*self.0.as_ptr()).len = len as u32 };
    }

    /// Lets readers see the first `count` items, which don't change from now on.
    pub fn show(&mut self, count: usize) {
        assert!(count <= self.len());
        let visible = (count as u32).max(self.visible().load(Ordering::Relaxed));
        self.visible().store(visible, Ordering::Release);
    }

    /// Takes all but the first `count` items out of the readers' sight; false when somebody reads
    /// who may have seen them, then nothing changes.
    pub fn hide(&mut self, count: usize) -> bool {
        let before = self.visible().load(Ordering::Relaxed);
        if before as usize <= count {
            return true;
        }
        // See `Reader::enter`: this is a change like that of a link.
        self.visible().store(count as u32, Ordering::SeqCst);
        let hidden = nobody_reads();
        if !hidden {
            self.visible().store(before, Ordering::Release);
        }
        hidden
    }

    /// The items that readers don't see, with the index of the first.
    pub fn hidden_mut(&mut self) -> (usize, &mut [T]) {
        let from = self.visible().load(Ordering::Relaxed) as usize;
        // SAFETY: readers look only at what is before `visible`, and those who saw more of it have
        // left (`hide`). The handle, of which there is one, is borrowed.
        let hidden = unsafe {
            let first = items::<T>(self.0).add(from);
            std::slice::from_raw_parts_mut(first.as_ptr(), self.len() - from)
        };
        (from, hidden)
    }
}

impl<T: Copy + Send + Sync> Array<T> {
    /// Adds items at the end, where readers don't see them yet.
    pub fn extend_from_slice(&mut self, more: &[T]) {
        let len = self.len();
        assert!(more.len() <= self.capacity() - len);
        // SAFETY: there is room. Nobody else uses what lies behind `len`, nor `len` itself.
        unsafe {
            let end = items::<T>(self.0).add(len);
            end.as_ptr().copy_from_nonoverlapping(more.as_ptr(), more.len());
            (*self.0.as_ptr()).len += more.len() as u32;
        }
    }

    /// Adds `count` times an item at the end, where readers don't see it yet.
    pub fn extend_with(&mut self, count: usize, item: T) {
        let len = self.len();
        assert!(count <= self.capacity() - len);
        // SAFETY: as above.
        unsafe {
            let end = items::<T>(self.0).add(len).cast::<MaybeUninit<T>>();
            std::slice::from_raw_parts_mut(end.as_ptr(), count).fill(MaybeUninit::new(item));
            (*self.0.as_ptr()).len += count as u32;
        }
    }

    /// Keeps the first `count` items, none of which readers see.
    pub fn truncate(&mut self, count: usize) {
        assert!(self.visible().load(Ordering::Relaxed) == 0 && count <= self.len());
        // SAFETY: only the handle uses `len`. The items need no drop: they are Copy.
        unsafe { (*self.0.as_ptr()).len = count as u32 }
    }
}

impl<T> std::ops::Deref for Array<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` items are there. Only the handle changes them, and it is borrowed.
        unsafe {
            let len = (*self.0.as_ptr()).len as usize;
            std::slice::from_raw_parts(items::<T>(self.0).as_ptr(), len)
        }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        // SAFETY: the handle's own reference.
        unsafe { release::<T>(self.0.cast()) }
    }
}

/// An array of one item, which readers see. It is found without a look at the array's length.
#[derive(Debug)]
pub struct One<T>(Array<T>);

impl<T: Send + Sync> One<T> {
    /// An array of this item.
    pub fn new(item: T) -> Result<Self, OutOfMemory> {
        Ok(Self(Array::shown(std::iter::once(item))?))
    }

    /// Bytes of memory.
    pub const BYTES: usize = size_of::<Header>() + size_of::<T>();

    /// The array alone.
    pub fn into_array(self) -> Array<T> {
        self.0
    }

    /// The array, for a link.
    pub fn array(&mut self) -> &mut Array<T> {
        &mut self.0
    }
}

impl<T> std::ops::Deref for One<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is an item, since arrays never lose any.
        unsafe { items::<T>(self.0.0).as_ref() }
    }
}

/// A place in which readers find an array, or none.
#[derive(Debug)]
pub struct Link<T>(AtomicPtr<Header>, PhantomData<Array<T>>);

// SAFETY: readers get `&T`, and who drops the last reference drops the items.
unsafe impl<T: Send + Sync> Send for Link<T> {}
// SAFETY: as above; the pointer is atomic.
unsafe impl<T: Send + Sync> Sync for Link<T> {}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self(AtomicPtr::default(), PhantomData)
    }
}

impl<T: Send + Sync> Link<T> {
    /// Leads to another array from now on, or to none. The handle stays with its owner, who may
    /// drop it at any time.
    pub fn set(&self, array: Option<&mut Array<T>>, garbage: &mut Garbage) {
        let to = array.as_ref().map_or(std::ptr::null_mut(), |array| array.header());
        if to == self.0.load(Ordering::Relaxed) {
            return;
        }
        if let Some(array) = array {
            array.refer();
        }
        if let Some(before) = NonNull::new(self.0.swap(to, Ordering::AcqRel)) {
            // SAFETY: the link's reference to an array, which was taken out.
            unsafe { retire::<T>(before, garbage) }
        }
    }

    /// Leads where another link led, which leads nowhere then. This one led nowhere before. The
    /// reference moves along: neither array is looked at.
    pub fn take(&self, other: &Self) {
        debug_assert!(self.0.load(Ordering::Relaxed).is_null());
        // Readers rather find it in both than in none.
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Release);
        other.0.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Has items fetched, should there be an array and so many from one on.
    #[inline(always)]
    pub fn fetch(&self, from: usize, count: usize) {
        fetch_items::<T>(self.0.load(Ordering::Relaxed), from, count);
    }

    /// What readers may see of the array.
    #[inline]
    pub fn read<'a>(&'a self, _: &'a Reader) -> &'a [T] {
        match NonNull::new(self.0.load(Ordering::SeqCst)) {
            // SAFETY: the link had a reference when the pointer was read; should it be retired now,
            // it is not released before the reader has left, whom the result doesn't outlive.
            Some(header) => unsafe { visible(header) },
            None => &[],
        }
    }
}

impl<T> Drop for Link<T> {
    fn drop(&mut self) {
        if let Some(header) = NonNull::new(self.0.load(Ordering::Relaxed)) {
            // SAFETY: the link's own reference. Readers borrow the link, so none came through it
            // that is still there.
            unsafe { release::<T>(header.cast()) }
        }
    }
}
