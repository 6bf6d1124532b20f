//! Memory in slots of one size, each with as many owners as somebody gives it.
use super::{Arc, OutOfMemory, try_zeros};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Where slots begin: what devices and disks read from directly.
const ALIGNMENT: usize = 4096;

/// All slots.
#[derive(Debug)]
pub struct Slots {
    base: NonNull<u8>,
    slot_bytes: usize,
    /// Of memory that is ours.
    layout: Option<Layout>,
    /// Owners of each slot; none: it is free.
    owners: Vec<AtomicU32>,
    free: Mutex<Vec<u32>>,
}

// SAFETY: the memory is one's own, or lent for as long as this lives; bytes of a slot are reached
// only by its owners, as Slot says.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// So many slots in memory of one's own. It is taken from the system as slots are used.
    pub fn new(count: u32, slot_bytes: usize) -> Result<Arc<Self>, OutOfMemory> {
        let bytes = slot_bytes.checked_mul(count as usize).filter(|&bytes| bytes > 0);
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, ALIGNMENT).ok());
        let layout = layout.ok_or(OutOfMemory)?;
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(OutOfMemory)?;
        let (owners, free) = (Vec::new(), Mutex::default());
        let mut made = Self { base, slot_bytes, layout: Some(layout), owners, free };
        // Last: of more than the system has, they take long to write.
        (made.owners, made.free) = Self::books(count)?;
        Arc::new(made)
    }

    /// The same in memory of somebody else.
    ///
    /// # Safety
    /// So many slots of so many bytes can be read and written there by any thread, and nobody else
    /// does, but whom a slot's address was given to, until the last owner of these slots is gone.
    pub unsafe fn over(
        base: NonNull<u8>,
        count: u32,
        slot_bytes: usize,
    ) -> Result<Arc<Self>, OutOfMemory> {
        let (owners, free) = Self::books(count)?;
        Arc::new(Self { base, slot_bytes, layout: None, owners, free })
    }

    fn books(count: u32) -> Result<(Vec<AtomicU32>, Mutex<Vec<u32>>), OutOfMemory> {
        let owners = try_zeros::<u32>(count as usize)?.into_iter().map(AtomicU32::new);
        let owners = super::try_collect(owners)?;
        let free = super::try_collect((0..count as usize).map(|at| count - 1 - at as u32))?;
        Ok((owners, Mutex::new(free)))
    }

    /// All slots.
    pub fn count(&self) -> usize {
        self.owners.len()
    }

    /// Those that nobody has.
    pub fn free(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Bytes of each.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Heap memory beside the slots.
    pub fn bytes(&self) -> usize {
        self.owners.capacity() * 2 * size_of::<u32>()
    }
}

impl Arc<Slots> {
    /// A slot with one owner; none when all have some.
    pub fn take(&self) -> Option<Slot> {
        let index = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        // The lock orders this after what the last owners did.
        self.owners[index as usize].store(1, Ordering::Relaxed);
        Some(Slot { slots: self.clone(), index })
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: it was allocated so, and no slot has an owner any more.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}

/// An owner of a slot. With the last one it is free again.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    index: u32,
}

impl Slot {
    /// The slot's number.
    pub fn index(&self) -> u32 {
        self.index
    }

    fn owners(&self) -> &AtomicU32 {
        &self.slots.owners[self.index as usize]
    }

    /// Where it is. Who is given this may write there while the slot has one owner, who doesn't
    /// look at it meanwhile, and may read while it has any.
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: the slot lies within the memory.
        unsafe { self.slots.base.add(self.index as usize * self.slots.slot_bytes) }
    }

    /// Whether there is no other owner.
    pub fn is_alone(&self) -> bool {
        self.owners().load(Ordering::Acquire) == 1
    }

    /// What is in it.
    pub fn get(&self) -> &[u8] {
        // SAFETY: it lies within the memory, which is initialised; `get_mut` needs the only owner.
        unsafe { std::slice::from_raw_parts(self.address().as_ptr(), self.slots.slot_bytes) }
    }

    /// The same, to be changed by its only owner.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        if !self.is_alone() {
            return None;
        }
        // SAFETY: as in `get`; nobody else owns it, and nobody can while `self` is borrowed.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.address().as_ptr(), self.slots.slot_bytes)
        })
    }
}

impl Clone for Slot {
    fn clone(&self) -> Self {
        let owners = self.owners().fetch_add(1, Ordering::Relaxed);
        assert!(owners < u32::MAX / 2, "a slot has too many owners");
        Self { slots: self.slots.clone(), index: self.index }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.owners().fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut free = self.slots.free.lock().unwrap_or_else(PoisonError::into_inner);
            // There is room for all.
            free.push(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_when_its_last_owner_is_gone() {
        let slots = Slots::new(2, 100).unwrap();
        let mut first = slots.take().unwrap();
        let second = slots.take().unwrap();
        assert!(slots.take().is_none());
        assert_eq!((slots.free(), slots.count(), first.get()), (0, 2, &[0; 100][..]));
        first.get_mut().unwrap().fill(7);
        let other = first.clone();
        assert!(first.get_mut().is_none() && !other.is_alone());
        drop(first);
        assert_eq!((slots.free(), other.get(), second.get()), (0, &[7; 100][..], &[0; 100][..]));
        assert!(other.is_alone());
        let index = other.index();
        drop(other);
        assert_eq!(slots.take().unwrap().index(), index);
        assert_eq!(slots.free(), 1);
        drop((slots, second)); // in any order
    }

    #[test]
    fn slots_in_memory_of_somebody_else() {
        let mut memory = vec![3_u8; 64];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the memory outlives the slots.
        let slots = unsafe { Slots::over(base, 4, 16) }.unwrap();
        let mut slot = slots.take().unwrap();
        slot.get_mut().unwrap().fill(9);
        let index = slot.index() as usize;
        drop((slot, slots));
        assert_eq!(memory.iter().filter(|&&byte| byte == 9).count(), 16);
        assert_eq!(memory[index * 16], 9);
    }

    /// What the system has not is refused before anything is written of it.
    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn too_much_memory_is_refused_at_once() {
        let peak = || -> usize {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let before = peak();
        assert!(Slots::new(1 << 27, 1 << 34).is_err());
        assert!(peak() < before + (256 << 10), "a gibibyte was written");
    }
}
