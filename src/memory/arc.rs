//! Shared ownership whose allocation can fail. In std `Arc::try_new` is not stable yet.
use super::{OutOfMemory, try_box_with};
use std::fmt;
use std::hint::black_box;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// std's, for what has weak owners or is behind a trait. It can't be refused yet: as much memory is
/// asked for, and given back, right before, so that it is refused there.
pub fn try_std_arc<T>(value: T) -> Result<std::sync::Arc<T>, OutOfMemory> {
    // The compiler must not find out that nobody needs it.
    drop(black_box(try_box_with(MaybeUninit::<(T, [usize; 2])>::uninit)?));
    Ok(std::sync::Arc::new(value))
}

/// What owners share.
struct Inner<T> {
    owners: AtomicUsize,
    value: T,
}

/// An owner of a value that has others too; the last one drops it. std's `Arc`, without weak ones.
pub struct Arc<T>(NonNull<Inner<T>>, PhantomData<Inner<T>>);

// SAFETY: owners on several threads get `&T`, and any of them may be the one that drops the value.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    /// The first owner of a value.
    pub fn new(value: T) -> Result<Self, OutOfMemory> {
        Self::new_with(|| value)
    }

    /// The same for a value that is made when there is memory for it, and not otherwise.
    pub fn new_with(make: impl FnOnce() -> T) -> Result<Self, OutOfMemory> {
        let inner = try_box_with(|| Inner { owners: AtomicUsize::new(1), value: make() })?;
        Ok(Self(NonNull::from(Box::leak(inner)), PhantomData))
    }

    /// Gives up a share, unless it is the last one: that is returned, so that whoever has it can
    /// choose where the value is dropped.
    pub fn leave(self) -> Option<Self> {
        let owners = &self.inner().owners;
        let mut seen = owners.load(Ordering::Relaxed);
        // The only owner stays the only one: another one would come from it.
        while seen > 1 {
            let left =
                owners.compare_exchange_weak(seen, seen - 1, Ordering::Release, Ordering::Relaxed);
            match left {
                Ok(_) => {
                    std::mem::forget(self);
                    return None;
                }
                Err(now) => seen = now,
            }
        }
        Some(self)
    }

    /// Whether two own the same value.
    pub fn is_same(one: &Self, other: &Self) -> bool {
        one.0 == other.0
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: the value lives as long as it has an owner.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        let owners = self.inner().owners.fetch_add(1, Ordering::Relaxed);
        // Owners that were forgotten, 2^63 of them, would wrap the count.
        assert!(owners < isize::MAX as usize, "a value has too many owners");
        Self(self.0, PhantomData)
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.inner().owners.fetch_sub(1, Ordering::Release) == 1 {
            // What the others did with the value comes before it is dropped. A load and no fence:
            // ThreadSanitizer knows none.
            self.inner().owners.load(Ordering::Acquire);
            // SAFETY: it came from a box, and this was the last owner.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
