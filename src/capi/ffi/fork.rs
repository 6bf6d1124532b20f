//! Child processes. fork() copies memory and one thread: what another thread had locked stays
//! locked for ever, and threads of the library are not there. So a handle is good in its own
//! process only.
use crate::capi::ffi::Fail;
#[cfg(all(unix, not(miri)))]
use crate::capi::library::renew_lock;
use crate::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between this process and the one that loaded the library.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as a handle remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one. No system call: every call on a handle asks.
    #[inline]
    pub(crate) fn this() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Refuses what another process made, before anything of it is looked at.
    #[inline]
    pub(crate) fn check(self) -> Result<(), Fail> {
        if self == Self::this() { Ok(()) } else { Err(inherited()) }
    }
}

#[cold]
fn inherited() -> Fail {
    Error::state("the handle is from before fork(): in a child process it can only be destroyed")
        .into()
}

/// Counts forks from now on; before the first handle of a process is made, and its reserve.
pub(crate) fn watch() -> Result<(), Fail> {
    #[cfg(all(unix, not(miri)))]
    {
        use std::sync::atomic::AtomicBool;
        // No Once: a child whose parent was about to register would wait for ever. To count twice
        // does no harm.
        static WATCHES: AtomicBool = AtomicBool::new(false);
        if !WATCHES.load(Ordering::Relaxed) {
            // SAFETY: the function lives as long as the library, which is never unloaded.
            if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
                return Err(Error::memory("pthread_atfork").into());
            }
            WATCHES.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Runs in a child before fork() returns there.
///
/// # Safety
/// For pthread_atfork(): there is no other thread.
#[cfg(all(unix, not(miri)))]
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    crate::grace::forget_readers();
    crate::memory::leave_reserve();
    renew_lock();
}
