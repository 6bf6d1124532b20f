//! Handles: what an opaque pointer leads to.
use super::guard::{Fail, guard_with};
use super::status::rkv_status;
use crate::capi::ffi::fork::Process;
use crate::capi::library::install_panic_hook;
use crate::error::Error;
use crate::error::text;
use crate::memory::{Arc, try_box};
use crate::store::Shared;

/// What can be behind a handle: something that any thread may use, and that refuses further work
/// once a call on it panicked.
pub(crate) trait Object: Send + Sync {
    fn is_poisoned(&self) -> bool;
    fn poison(&self);
}

impl Object for Shared {
    fn is_poisoned(&self) -> bool {
        self.is_poisoned()
    }

    fn poison(&self) {
        self.poison();
    }
}

/// A C type whose pointers lead to a `Handle`.
pub(crate) trait Opaque {
    type Object: Object;
    const NAME: &'static str;
    const MAGIC: u64;
}

/// What lies behind an opaque pointer.
#[repr(C)] // the magic first, so that a handle of another kind is told apart
pub(crate) struct Handle<T: Opaque> {
    /// An aid against use after destroy and mixed-up handles, not a guarantee.
    magic: u64,
    /// The process that made it, and whose calls alone are good.
    process: Process,
    object: Arc<T::Object>,
}

impl<T: Opaque> Handle<T> {
    pub(crate) fn new(object: Arc<T::Object>) -> Result<Box<Self>, Fail> {
        install_panic_hook();
        crate::error::prepare();
        Ok(try_box(Self { magic: T::MAGIC, process: Process::this(), object })?)
    }

    /// A pointer for C, which owns what it leads to.
    pub(crate) fn into_raw(self: Box<Self>) -> *mut T {
        Box::into_raw(self).cast()
    }

    /// # Safety
    /// `pointer` is NULL or leads to a live handle.
    unsafe fn borrow<'a>(pointer: *const T) -> Result<&'a Self, Fail> {
        // SAFETY: the caller's contract.
        let handle = unsafe { pointer.cast::<Self>().as_ref() };
        let handle = handle.ok_or_else(|| Error::argument(text!("{} is NULL", T::NAME)))?;
        if handle.magic != T::MAGIC {
            return Err(Error::argument(text!("{} is no live handle", T::NAME)).into());
        }
        handle.process.check()?;
        Ok(handle)
    }
}

/// Runs a call on a handle. A panic poisons what the handle stands on.
///
/// # Safety
/// `pointer` is NULL or came from the create function of its type and is not destroyed.
#[inline]
pub(crate) unsafe fn with<T: Opaque>(
    pointer: *const T,
    body: impl FnOnce(&Arc<T::Object>) -> Result<(), Fail>,
) -> rkv_status {
    let call = || {
        // SAFETY: the caller's contract.
        let handle = unsafe { Handle::<T>::borrow(pointer)? };
        if handle.object.is_poisoned() {
            return Err(Fail::poisoned());
        }
        body(&handle.object)
    };
    guard_with(call, || {
        // SAFETY: the caller's contract; the handle was found good before anything could panic.
        if let Ok(handle) = unsafe { Handle::<T>::borrow(pointer) } {
            handle.object.poison();
        }
    })
}

/// What a second handle of a call leads to.
///
/// # Safety
/// As for `with`; the handle is not destroyed during the call.
pub(crate) unsafe fn borrow<'a, T: Opaque + 'a>(pointer: *const T) -> Result<&'a T::Object, Fail> {
    // SAFETY: the caller's contract.
    let handle = unsafe { Handle::<T>::borrow(pointer)? };
    if handle.object.is_poisoned() { Err(Fail::poisoned()) } else { Ok(&handle.object) }
}

/// None also in a child process, in which a handle of the parent stays where it is.
///
/// # Safety
/// `pointer` is NULL or came from the create function of its type and is not destroyed.
unsafe fn take<T: Opaque>(pointer: *mut T) -> Option<Arc<T::Object>> {
    // SAFETY: the caller's contract.
    unsafe { Handle::<T>::borrow(pointer) }.ok()?;
    // SAFETY: a live handle came from Box::into_raw in Handle::into_raw.
    let mut handle = unsafe { Box::from_raw(pointer.cast::<Handle<T>>()) };
    handle.magic = 0;
    Some(handle.object)
}

/// Destroys a handle; `last_words` get what it stands on, also when that is poisoned.
///
/// # Safety
/// As for `with`, and the caller is the handle's last user.
pub(crate) unsafe fn destroy<T: Opaque>(pointer: *mut T, last_words: impl FnOnce(&T::Object)) {
    // SAFETY: the caller's contract.
    let Some(object) = (unsafe { take(pointer) }) else { return };
    let end = || {
        last_words(&object);
        Ok(())
    };
    // Others may have what it stands on.
    guard_with(end, || object.poison());
    let last = || {
        drop(object);
        Ok(())
    };
    guard_with(last, || {});
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::capi::*;
    use crate::paging::PageTableConfig;
    use crate::store::{CacheConfig, Turn};
    use std::mem::zeroed;
    use std::panic::resume_unwind;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    struct Thing(AtomicBool);

    impl Object for Thing {
        fn is_poisoned(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }

        fn poison(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    struct OfThing;

    impl Opaque for OfThing {
        type Object = Thing;
        const NAME: &'static str = "thing";
        const MAGIC: u64 = 7;
    }

    /// M02: others may have what a handle stood on.
    #[test]
    fn m02_a_panic_of_a_destroy_poisons_too() {
        let thing = Arc::new(Thing(AtomicBool::new(false))).unwrap();
        let handle = Handle::<OfThing>::new(thing.clone()).ok().unwrap().into_raw();
        let last_words = |_: &Thing| resume_unwind(Box::new("as the test wants it"));
        // SAFETY: made above, and used no more.
        unsafe { destroy(handle, last_words) };
        assert!(thing.is_poisoned());
    }

    fn shared() -> Arc<Shared> {
        let config =
            PageTableConfig { page_size: 1, page_count: 9, slot_count: 2, ..Default::default() };
        let shared = Shared::new(config).expect("a page table");
        shared.attach_cache(CacheConfig::default()).expect("a cache");
        shared
    }

    /// A pointer of C's that a test hands to another thread.
    #[derive(Clone, Copy)]
    struct Sent<T>(*mut T);
    // SAFETY: the handles behind it are for any thread.
    unsafe impl<T> Send for Sent<T> {}

    impl<T> Sent<T> {
        fn get(self) -> *mut T {
            self.0
        }
    }

    fn read_stats(table: *mut rkv_page_table) -> rkv_status {
        // SAFETY: plain numbers.
        let mut stats: rkv_page_table_stats = unsafe { zeroed() };
        stats.struct_size = size_of_val(&stats) as u32;
        // SAFETY: a live handle, and a struct of the test's.
        unsafe { rkv_page_table_read_stats(table, &mut stats) }
    }

    fn match_one(cache: *mut rkv_cache) -> rkv_status {
        let ids = [7_u32];
        // SAFETY: plain numbers and pointers that may be NULL.
        let (mut tokens, mut found): (rkv_tokens, rkv_cache_match_result) =
            unsafe { (zeroed(), zeroed()) };
        (tokens.struct_size, tokens.ids, tokens.count) =
            (size_of_val(&tokens) as u32, ids.as_ptr(), 1);
        found.struct_size = size_of_val(&found) as u32;
        // SAFETY: a live handle, and structs of the test's.
        unsafe { rkv_cache_match(cache, ptr::null(), &tokens, 0, ptr::null_mut(), 0, &mut found) }
    }

    /// M02: a call that waits for the lock while the one that has it panics looks at nothing of
    /// what that left half done.
    #[test]
    fn m02_who_waits_for_a_panic_is_refused() {
        for reads in [true, false] {
            let shared = shared();
            let table = Handle::<rkv_page_table>::new(shared.clone()).ok().unwrap().into_raw();
            let cache = Handle::<rkv_cache>::new(shared.clone()).ok().unwrap().into_raw();
            let (sent_table, sent_cache) = (Sent(table), Sent(cache));
            let (has_it, waits) = channel();
            let waiter = std::thread::spawn(move || {
                waits.recv().expect("it has the lock");
                match reads {
                    true => read_stats(sent_table.get()),
                    false => match_one(sent_cache.get()),
                }
            });
            let bug = |shared: &Arc<Shared>| -> Result<(), Fail> {
                let _turn = shared.turn();
                has_it.send(()).expect("it waits");
                while !shared.is_waited_for() {
                    std::thread::yield_now();
                }
                resume_unwind(Box::new("as the test wants it"))
            };
            // SAFETY: a live handle.
            assert!(unsafe { with(cache, bug) } == rkv_status::Internal);
            assert!(waiter.join().expect("a status") == rkv_status::Poisoned, "{reads}");
            // SAFETY: made above, and used no more.
            unsafe { (destroy(cache, |_| {}), destroy(table, |_| {})) };
        }
    }

    /// M02: nor does a call that has let others in, of whom one panicked.
    #[test]
    fn m02_who_let_a_panic_in_is_refused() {
        let steps: [fn(&mut Turn<'_>); 2] =
            [|turn| turn.let_others_in(), |turn| turn.unlocked(|| ())];
        for step in steps {
            let cache = Handle::<rkv_cache>::new(shared()).ok().unwrap().into_raw();
            let call = |shared: &Arc<Shared>| -> Result<(), Fail> {
                let mut turn = shared.turn();
                step(&mut turn);
                // As the panic of somebody does who is let in.
                shared.poison();
                step(&mut turn);
                Ok(())
            };
            // SAFETY: a live handle.
            assert!(unsafe { with(cache, call) } == rkv_status::Poisoned);
            // SAFETY: made above, and used no more.
            unsafe { destroy(cache, |_| {}) };
        }
    }
}
