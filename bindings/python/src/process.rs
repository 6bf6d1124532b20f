//! Child processes, as the library knows them: a handle is good in the process that made it. It is
//! asked for here too, since a lock of this module's is reached before the library can refuse.
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

use crate::c::*;
use crate::status::refused;

unsafe extern "C" {
    fn pthread_atfork(
        before: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> c_int;
}

/// Forks between this process and the one that loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process, as an object remembers it.
#[derive(Clone, Copy, PartialEq)]
pub struct Process(u32);

impl Process {
    /// This one. No system call: every call asks.
    #[inline]
    pub fn this() -> Self {
        Process(FORKS.load(Ordering::Relaxed))
    }

    #[inline]
    pub fn check(self, py: Python<'_>) -> PyResult<()> {
        if self == Self::this() { Ok(()) } else { Err(inherited(py)) }
    }
}

#[cold]
fn inherited(py: Python<'_>) -> PyErr {
    let message = "the object is from before fork(): in a child process it can only be closed";
    refused(py, RKV_STATUS_INVALID_STATE, message)
}

/// Counts forks from now on. Where the module is loaded twice, each is counted twice: no harm.
pub fn watch() -> PyResult<()> {
    // SAFETY: the function lives as long as the module, which is never unloaded.
    if unsafe { pthread_atfork(None, None, Some(in_child)) } != 0 {
        return Err(PyMemoryError::new_err("pthread_atfork"));
    }
    Ok(())
}

/// Runs in a child before fork() returns there.
///
/// # Safety
/// May be called at any time.
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}
