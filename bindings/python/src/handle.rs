//! Handles of the library that may be closed while other threads use them.
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PySlice;

use crate::array::{Array, empty};
use crate::c::*;
use crate::lent::Lent;
use crate::process::Process;
use crate::status::{check, refused};

/// A struct behind a handle: how it is destroyed, and what Python calls it.
pub trait Object {
    const NAME: &'static str;
    /// # Safety
    /// The last use of the handle.
    unsafe fn destroy(this: *mut Self);
}

macro_rules! objects {
    ($($kind:ty, $name:literal, $destroy:ident;)*) => { $(
        impl Object for $kind {
            const NAME: &'static str = $name;
            unsafe fn destroy(this: *mut Self) {
                // SAFETY: as promised by the caller.
                unsafe { $destroy(this) }
            }
        }
    )* };
}

objects! {
    rkv_page_table, "PageTable", rkv_page_table_destroy;
    rkv_cache, "Cache", rkv_cache_destroy;
    rkv_plan, "Plan", rkv_plan_destroy;
    rkv_runner, "Runner", rkv_runner_destroy;
    rkv_event_encoder, "EventEncoder", rkv_event_encoder_destroy;
    rkv_snapshot_cache, "SnapshotCache", rkv_snapshot_cache_destroy;
}

/// An object of the library, destroyed when nobody uses it any more.
pub struct Handle<T: Object> {
    raw: NonNull<T>,
    pub lent: Lent,
}

// SAFETY: every call of the library may be made from any thread.
unsafe impl<T: Object> Send for Handle<T> {}
// SAFETY: likewise, several at once.
unsafe impl<T: Object> Sync for Handle<T> {}

impl<T: Object> Handle<T> {
    /// What a `_create` function gave.
    pub fn new(raw: *mut T) -> Arc<Self> {
        let raw = NonNull::new(raw).expect("a handle that was created");
        Arc::new(Handle { raw, lent: Lent::default() })
    }

    #[inline]
    pub fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T: Object> Drop for Handle<T> {
    fn drop(&mut self) {
        let raw = Raw(self.raw.as_ptr());
        let mut given = Some(self.lent.take());
        // SAFETY: whoever uses the handle has a count of it; this was the last one.
        let end = move || unsafe { T::destroy(raw.get()) };
        // An end may wait for threads of the library, and those for the interpreter: a remote store
        // may be one in Python. One that is ending is not given to anybody any more: a destructor
        // in Python could not have it back.
        // SAFETY: this may be asked at any time.
        let is_there = unsafe { pyo3::ffi::Py_IsInitialized() } != 0;
        let ended = is_there.then(|| {
            Python::try_attach(|py| {
                py.detach(end);
                drop(given.take());
            })
        });
        if ended.flatten().is_none() {
            end();
            // Nobody is left who could let go of it.
            std::mem::forget(given);
        }
    }
}

/// A handle that can be closed. Calls that run meanwhile go on: the last of them destroys it.
pub struct Closable<T: Object> {
    handle: Mutex<Option<Arc<Handle<T>>>>,
    process: Process,
}

impl<T: Object> Closable<T> {
    pub fn new(handle: Arc<Handle<T>>) -> Self {
        Closable { handle: Mutex::new(Some(handle)), process: Process::this() }
    }

    fn inside(&self) -> MutexGuard<'_, Option<Arc<Handle<T>>>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what another process made: to be asked before each lock that is held without the
    /// interpreter's. Who had it at a fork never lets go of it in the child.
    #[inline]
    pub fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py)
    }

    #[inline]
    pub fn get(&self, py: Python<'_>) -> PyResult<Arc<Handle<T>>> {
        // Let go of before Python code runs: whoever waits for this lock keeps the interpreter from
        // stopping all threads, as its garbage collector does, and as a fork does.
        let inside = self.inside().clone();
        let Some(handle) = inside else {
            return Err(refused(py, RKV_STATUS_INVALID_STATE, &format!("{} is closed", T::NAME)));
        };
        self.check_process(py)?;
        Ok(handle)
    }

    /// Closes it for whoever has more to do with it than to let go of it; None when it was closed.
    pub fn take(&self) -> Option<Arc<Handle<T>>> {
        self.inside().take()
    }

    /// The pointer that C code takes.
    pub fn address(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.raw() as usize)
    }

    /// Closing twice is no error. While a call in another thread uses the object, that ends it.
    pub fn close(&self, py: Python<'_>) {
        let handle = self.take();
        py.detach(|| drop(handle));
    }

    pub fn is_closed(&self) -> bool {
        self.inside().is_none()
    }
}

/// Carries out what the end of an object does. It may come while an exception is on its way, which
/// is put aside: Python code, and that makes an error of the library's, would fail with it and have
/// it lost.
pub fn ending<R>(end: impl FnOnce(Python<'_>) -> R) -> R {
    Python::attach(|py| {
        let (mut kind, mut value, mut trace) = (null_mut(), null_mut(), null_mut());
        // SAFETY: attached; all three are NULL where there is none, and ours until they go back.
        unsafe { pyo3::ffi::PyErr_Fetch(&mut kind, &mut value, &mut trace) };
        let done = end(py);
        // SAFETY: attached; what was taken above.
        unsafe { pyo3::ffi::PyErr_Restore(kind, value, trace) };
        done
    })
}

/// Pointers that calls take, for closures that run without the interpreter's lock: what they lead
/// to is kept by the caller of the closure.
#[derive(Clone, Copy, Default)]
pub struct Raw<T>(pub T);

// SAFETY: the caller keeps what the pointers lead to until the closure returns.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: likewise.
unsafe impl<T> Sync for Raw<T> {}

impl<T> Raw<T> {
    /// All of it, so that a closure takes the whole and not the pointers inside.
    #[inline]
    pub fn get(self) -> T {
        self.0
    }
}

/// From so many pages or positions on a call that looks at each of them is a long one.
pub const LONG_LIST: usize = 64;

/// Carries out a call. A long one lets other Python threads run meanwhile, which costs about as
/// much as a short one takes.
#[inline]
pub fn long<R: Send>(py: Python<'_>, is_long: bool, call: impl FnOnce() -> R + Send) -> R {
    if is_long { py.detach(call) } else { call() }
}

/// Milliseconds of a number of seconds, of which `name` is the argument's. What is endless is
/// u64::MAX.
pub fn milliseconds(seconds: f64, name: &str) -> PyResult<u64> {
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!("{name}: {seconds} is no time to wait")));
    }
    Ok((seconds * 1000.0).ceil() as u64)
}

/// A CUDA stream from its number, as torch's `Stream.cuda_stream`.
pub fn stream(number: usize) -> *mut c_void {
    number as *mut c_void
}

/// A struct of numbers that a call fills in.
pub fn filled<T: Sized32>(py: Python<'_>, call: impl FnOnce(*mut T) -> i32) -> PyResult<T> {
    let mut found = T::sized();
    check(py, call(&mut found))?;
    Ok(found)
}

/// A new NumPy array with a list of the library: `call` takes a start, the room, and where the
/// count goes. For a long list it lets other Python threads run.
pub fn listed<'py>(
    py: Python<'py>,
    kind: &str,
    call: impl Fn(*mut c_void, usize, *mut usize) -> i32 + Sync,
) -> PyResult<Bound<'py, PyAny>> {
    let mut count = 0;
    let status = call(std::ptr::null_mut(), 0, &mut count);
    if status != RKV_STATUS_BUFFER_TOO_SMALL {
        check(py, status)?;
    }
    loop {
        let array = empty(py, count, kind)?;
        if count == 0 {
            return Ok(array);
        }
        let room = count;
        let view = Array::of(&array, "result", true)?;
        let into = Raw((view.data(), &raw mut count));
        let status = long(py, room > LONG_LIST, || {
            let (data, count) = into.get();
            call(data, room, count)
        });
        // It has grown since it was counted.
        if status != RKV_STATUS_BUFFER_TOO_SMALL {
            check(py, status)?;
            return if count == room {
                Ok(array)
            } else {
                array.get_item(PySlice::new(py, 0, count as isize, 1))
            };
        }
    }
}
