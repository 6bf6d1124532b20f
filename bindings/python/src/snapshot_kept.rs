//! What a snapshot cache keeps for Python: an object, and the bytes of it that may be written.
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::c::*;

/// What the library's pointer leads to.
pub struct Kept {
    object: Py<PyAny>,
    /// The arrays as they were given: their memory stays what it is.
    parts: Vec<Array>,
    /// What was let go of before it, in `LET_GO`.
    before: AtomicPtr<Kept>,
}

/// Where the boxes lie that the library has: C code may insert too, and nobody else knows what its
/// pointers lead to.
static GIVEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
/// The last box that threads let go of, for the next one that has the interpreter. They need
/// neither memory for that nor a lock: it would stay closed in a child of a fork that comes then.
static LET_GO: AtomicPtr<Kept> = AtomicPtr::new(null_mut());

impl Kept {
    /// The object, and arrays that are dense and on the host.
    pub fn new(
        object: Bound<'_, PyAny>,
        given: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<Box<Self>> {
        let mut parts = Vec::new();
        for (at, part) in given.iter().flatten().enumerate() {
            let name = format!("parts[{at}]");
            let array = Array::of(part, &name, false)?.on_host(&name)?;
            parts.push(array);
        }
        if given.is_some() && parts.is_empty() {
            return Err(PyValueError::new_err("parts: there is none"));
        }
        Ok(Box::new(Kept { object: object.unbind(), parts, before: AtomicPtr::default() }))
    }

    /// What the library takes.
    pub fn give(self: Box<Self>) -> *mut c_void {
        let data = Box::into_raw(self).cast::<c_void>();
        GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(data as usize);
        data
    }

    /// The box behind what the library had.
    ///
    /// # Safety
    /// `give` gave it, and nobody has taken it back.
    pub unsafe fn take_back(data: *mut c_void) -> Box<Self> {
        GIVEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&(data as usize));
        // SAFETY: as promised by the caller.
        unsafe { Box::from_raw(data.cast()) }
    }

    /// The object behind what the library has; none for what C code gave it.
    pub fn object_of(py: Python<'_>, data: *mut c_void) -> Option<Py<PyAny>> {
        let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a box that was not taken back, which waits for this lock.
        let object = |data: *mut c_void| unsafe { &*data.cast::<Kept>() }.object.clone_ref(py);
        given.contains(&(data as usize)).then(|| object(data))
    }

    /// As the library takes them; none for what may not be written.
    pub fn parts(&self) -> Vec<rkv_snapshot_part> {
        let part = |array: &Array| rkv_snapshot_part {
            data: array.data::<c_void>(),
            size_bytes: (array.count * array.item_size) as u64,
        };
        self.parts.iter().map(part).collect()
    }

    /// The destructor for the library.
    pub fn destructor(&self) -> rkv_snapshot_destructor {
        Some(if self.parts.is_empty() { let_go } else { let_go_later })
    }
}

/// Lets go of what stays in memory. The library holds no lock here, so waiting for the interpreter
/// is fine. One that is ending is given to nobody: then the call that led here lets go of it.
///
/// # Safety
/// Called once by the library, with what `insert` gave it.
unsafe extern "C" fn let_go(data: *mut c_void, size: u64, user_data: *mut c_void) {
    // SAFETY: the box that `insert` gave away.
    if Python::try_attach(|_| drop(unsafe { Kept::take_back(data) })).is_none() {
        // SAFETY: as promised by the caller.
        unsafe { let_go_later(data, size, user_data) };
    }
}

/// Lets go of what may be written. Here it may be a thread of the library's that comes, for which
/// the end of a cache waits, and which can come when the interpreter has ended: it must not wait
/// for that.
///
/// # Safety
/// As for `let_go`.
unsafe extern "C" fn let_go_later(data: *mut c_void, _size: u64, _user_data: *mut c_void) {
    let kept = data.cast::<Kept>();
    let mut last = LET_GO.load(Ordering::Relaxed);
    loop {
        // SAFETY: the box that `insert` gave away. It is nobody else's before it is in the list.
        unsafe { &*kept }.before.store(last, Ordering::Relaxed);
        match LET_GO.compare_exchange_weak(last, kept, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => last = now,
        }
    }
}

/// Drops what was let go of for later. To be called when no lock is held: objects may do anything
/// when they go.
#[inline]
pub fn settle(py: Python<'_>) {
    if !LET_GO.load(Ordering::Relaxed).is_null() {
        drop_waiting(py);
    }
}

#[cold]
fn drop_waiting(_py: Python<'_>) {
    let mut last = LET_GO.swap(null_mut(), Ordering::Acquire);
    while !last.is_null() {
        // SAFETY: the box that `insert` gave away, which came here once.
        let kept = unsafe { Kept::take_back(last.cast()) };
        last = kept.before.load(Ordering::Relaxed);
        drop(kept);
    }
}
