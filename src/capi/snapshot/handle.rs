//! What lies behind an rkv_snapshot_cache: a cache of C's snapshots that lives until the last pin
//! is released, and destructors that run when a call has done everything else.
use crate::capi::ffi::fork::Process;
use crate::capi::ffi::{Fail, call_back, guard, guard_with, rkv_status};
use crate::capi::library::install_panic_hook;
use crate::capi::snapshot::{rkv_snapshot_cache, rkv_snapshot_destructor, rkv_snapshot_part};
use crate::error::Error;
use crate::memory::try_box;
use crate::snapshot::SnapshotLimits;
use crate::snapshot::tiered::{FreedSnapshots, TieredSnapshots};
use crate::tier::Source;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A snapshot as C gives it. Dropping it calls the destructor.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) data: *mut c_void,
    pub(crate) size_bytes: u64,
    pub(crate) destructor: rkv_snapshot_destructor,
    pub(crate) user_data: *mut c_void,
    /// What may be written of it; none of one that may not.
    pub(crate) parts: Box<[rkv_snapshot_part]>,
}
// SAFETY: the header demands that the destructor may run on any thread; the pointers are only
// passed on.
unsafe impl Send for Payload {}
// SAFETY: as above.
unsafe impl Sync for Payload {}

impl Source for Payload {
    fn parts(&self) -> usize {
        self.parts.len()
    }

    fn part(&self, index: usize) -> &[u8] {
        let rkv_snapshot_part { data, size_bytes } = self.parts[index];
        if size_bytes == 0 {
            return &[];
        }
        // SAFETY: the header demands that the bytes stay readable, and as they are, until the
        // destructor; that they are no more than there is was checked when they came.
        unsafe { std::slice::from_raw_parts(data.cast(), size_bytes as usize) }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        let Some(destructor) = self.destructor else { return };
        call_back("rkv_snapshot_cache_insert_args.destructor", || {
            // SAFETY: the header's contract on the destructor, which is called here alone.
            unsafe { destructor(self.data, self.size_bytes, self.user_data) };
        });
    }
}

/// What the opaque pointer leads to. It goes with its last share.
#[repr(C)] // the magic first, as in every handle
pub(crate) struct SnapshotHandle {
    /// An aid against use after destroy and mixed-up handles, not a guarantee.
    magic: u64,
    /// The process that made it, and whose calls alone are good.
    process: Process,
    /// The owner destroyed it; pins keep it.
    closed: AtomicBool,
    poisoned: AtomicBool,
    /// One for the owner and one for each pin that is out: at most 2^24 + 1.
    shares: AtomicUsize,
    cache: TieredSnapshots<Payload>,
}

/// What a handle takes beside the cache in it.
pub(crate) const HANDLE_BYTES: usize =
    size_of::<SnapshotHandle>() - size_of::<TieredSnapshots<Payload>>();

const MAGIC: u64 = u64::from_le_bytes(*b"rkvsnaps");

/// Any thread may use it, of which pointers tell the compiler nothing.
const _: fn(&SnapshotHandle) -> &(dyn Send + Sync) = |handle| handle;

impl Drop for SnapshotHandle {
    fn drop(&mut self) {
        self.magic = 0;
    }
}

/// Which calls a handle still takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Those of an owner, before it is destroyed.
    Owner,
    /// Those of somebody who has a pin.
    Pin,
}

/// What the body of a call works on.
pub(crate) struct Call<'a> {
    pub(crate) cache: &'a TieredSnapshots<Payload>,
    /// What the call frees. It is dropped, and so destroyed, after everything else.
    pub(crate) freed: &'a mut FreedSnapshots<Payload>,
}

/// A pointer for C, which owns what it leads to.
pub(crate) fn into_raw(limits: SnapshotLimits) -> Result<*mut rkv_snapshot_cache, Fail> {
    install_panic_hook();
    crate::error::prepare();
    let handle = SnapshotHandle {
        magic: MAGIC,
        process: Process::this(),
        closed: AtomicBool::new(false),
        poisoned: AtomicBool::new(false),
        shares: AtomicUsize::new(1),
        cache: TieredSnapshots::new(limits)?,
    };
    Ok(Box::into_raw(try_box(handle)?).cast())
}

/// # Safety
/// `pointer` is NULL or leads to a handle that its owner or a pin keeps.
unsafe fn borrow<'a>(
    pointer: *const rkv_snapshot_cache,
    needs: Needs,
) -> Result<&'a SnapshotHandle, Fail> {
    // SAFETY: the caller's contract.
    let handle = unsafe { pointer.cast::<SnapshotHandle>().as_ref() };
    let handle = handle.ok_or_else(|| Error::argument("cache is NULL"))?;
    if handle.magic != MAGIC {
        return Err(Error::argument("cache is no live handle").into());
    }
    handle.process.check()?;
    if handle.closed.load(Ordering::Relaxed) && needs == Needs::Owner {
        return Err(Error::argument("cache is destroyed: pins can be released, no more").into());
    }
    Ok(handle)
}

/// Runs a call. A panic poisons the cache. Snapshots that the call freed are destroyed at the end,
/// when no lock is held, every output is written, and the handle is not needed any more.
///
/// # Safety
/// `pointer` is NULL or leads to a handle that its owner or a pin keeps.
pub(crate) unsafe fn with(
    pointer: *const rkv_snapshot_cache,
    needs: Needs,
    body: impl FnOnce(Call<'_>) -> Result<(), Fail>,
) -> rkv_status {
    // Dropped at the end, when no lock is held: to say so would move it first, which takes long.
    let mut freed = FreedSnapshots::new();
    let call = || {
        // SAFETY: the caller's contract.
        let handle = unsafe { borrow(pointer, needs)? };
        if handle.poisoned.load(Ordering::Relaxed) {
            return Err(Fail::poisoned());
        }
        body(Call { cache: &handle.cache, freed: &mut freed })
    };
    guard_with(call, || {
        // SAFETY: the caller's contract; the handle was found good before anything could panic.
        if let Ok(handle) = unsafe { borrow(pointer, needs) } {
            handle.poisoned.store(true, Ordering::Relaxed);
        }
    })
}

/// Gives a new pin its share in the handle.
///
/// # Safety
/// `pointer` leads to a handle that its owner keeps.
pub(crate) unsafe fn keep_for_pin(pointer: *const rkv_snapshot_cache) {
    // SAFETY: the caller's contract.
    let handle = unsafe { &*pointer.cast::<SnapshotHandle>() };
    handle.shares.fetch_add(1, Ordering::Relaxed);
}

/// Ends one share in the handle, the owner's or a pin's. With the last one the cache goes.
///
/// # Safety
/// `pointer` came from `into_raw`, and the share was not ended before.
unsafe fn end_share(pointer: *const rkv_snapshot_cache) {
    // Poisoned caches may still have snapshots: their destructors run here, without any lock.
    guard(|| {
        let handle = pointer.cast::<SnapshotHandle>().cast_mut();
        // SAFETY: the share keeps the handle until here.
        if unsafe { &*handle }.shares.fetch_sub(1, Ordering::Release) == 1 {
            // What the others did with the cache comes before it goes. A load and no fence:
            // ThreadSanitizer knows none.
            // SAFETY: this was the last share, and nothing has gone yet.
            unsafe { &*handle }.shares.load(Ordering::Acquire);
            // SAFETY: it came from a box, and this was the last share.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    });
}

/// Runs `with` for the release of a pin, and ends the pin's share if it succeeds.
///
/// # Safety
/// As for `with`.
pub(crate) unsafe fn with_pin(
    pointer: *mut rkv_snapshot_cache,
    body: impl FnOnce(Call<'_>) -> Result<(), Fail>,
) -> rkv_status {
    // SAFETY: the caller's contract. Only who releases a pin that is out gets a success, once.
    unsafe {
        let status = with(pointer, Needs::Pin, body);
        if status == rkv_status::Ok {
            end_share(pointer);
        }
        status
    }
}

/// Destroys a handle: snapshots without a pin now, the others with their last pin.
///
/// # Safety
/// As for `with`, and the caller is the last user, but for pins.
pub(crate) unsafe fn destroy(pointer: *mut rkv_snapshot_cache) {
    let mut freed = FreedSnapshots::new();
    let mut owned = false;
    guard(|| {
        // SAFETY: the caller's contract.
        let handle = unsafe { borrow(pointer, Needs::Owner)? };
        owned = true;
        handle.closed.store(true, Ordering::Relaxed);
        // What a panic left half done is not touched.
        if !handle.poisoned.load(Ordering::Relaxed) {
            handle.cache.detach(Duration::ZERO, &mut freed);
            handle.cache.clear(&mut freed);
        }
        Ok(())
    });
    drop(freed);
    if owned {
        guard(|| {
            // Pins may keep the handle for ever. What is below has threads and files, and goes now,
            // also when a panic came before or in between, of this call or of who releases a pin.
            // SAFETY: the owner's share is still there.
            unsafe { borrow(pointer, Needs::Pin)? }.cache.leave_lower();
            Ok(())
        });
        // SAFETY: the owner's share, which `closed` keeps from being ended again.
        unsafe { end_share(pointer) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Arc;
    use crate::snapshot::tiered::TierPolicy;
    use crate::tier::{Event, FoundRecords, Key, LowerStore, Refused, StoreStats, Target};
    use std::panic::resume_unwind;

    /// A directory in whose flush another call turns out to have panicked.
    struct Below(Arc<AtomicBool>);

    impl LowerStore for Below {
        fn put(&self, _: Key, _: Box<[u8]>, _: Box<dyn Source>) -> Result<(), Refused> {
            Err(Refused::Closed)
        }

        fn get(&self, _: Key, target: Box<dyn Target>) -> Result<u64, (Refused, Box<dyn Target>)> {
            Err((Refused::Missing, target))
        }

        fn remove(&self, _: Key) {}

        fn touch(&self, _: Key) {}

        fn cost(&self, bytes: u64, _: usize) -> u64 {
            bytes
        }

        fn has_events(&self) -> bool {
            false
        }

        fn poll(&self, _: &mut Vec<Event>) {}

        fn flush(&self, _: Duration) -> bool {
            resume_unwind(Box::new("it is half done"))
        }

        fn stats(&self) -> StoreStats {
            StoreStats::default()
        }
    }

    impl Drop for Below {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// M02: what is below a cache goes with its owner also when the end of it is left half done,
    /// though a pin keeps the rest.
    #[test]
    fn m02_what_is_below_goes_when_the_end_is_left_half_done() {
        let has_gone = Arc::new(AtomicBool::new(false)).expect("a flag");
        let cache = into_raw(SnapshotLimits { entries: 9, bytes: 100 }).ok().expect("a cache");
        // SAFETY: the handle is new, its owner and the pin are this test's, and each ends once.
        unsafe {
            let handle = &*cache.cast::<SnapshotHandle>();
            let below = Box::new(Below(has_gone.clone()));
            let attached = handle.cache.attach(below, FoundRecords::default(), TierPolicy::Through);
            attached.expect("there was none");
            keep_for_pin(cache);
            destroy(cache);
            assert!(has_gone.load(Ordering::Relaxed), "its files stay open");
            end_share(cache);
        }
    }
}
