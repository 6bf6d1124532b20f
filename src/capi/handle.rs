//! Handles: what an opaque pointer leads to.
use super::cache::rkv_cache;
use super::guard::{Fail, guard_with};
use super::page_table::rkv_page_table;
use super::status::rkv_status;
use crate::error::Error;
use crate::sequence::Shared;
use std::sync::Arc;

/// What lies behind an opaque pointer.
pub(super) struct Handle {
    /// An aid against use after destroy and mixed-up handles, not a guarantee.
    magic: u64,
    shared: Arc<Shared>,
}

/// A C type whose pointers lead to a `Handle`.
pub(super) trait Opaque {
    const NAME: &'static str;
    const MAGIC: u64;
}

impl Opaque for rkv_page_table {
    const NAME: &'static str = "table";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvtable");
}

impl Opaque for rkv_cache {
    const NAME: &'static str = "cache";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvcache");
}

impl Handle {
    /// A pointer for C, which owns what it leads to.
    pub(super) fn into_raw<T: Opaque>(shared: Arc<Shared>) -> *mut T {
        super::log::install_panic_hook();
        Box::into_raw(Box::new(Self { magic: T::MAGIC, shared })).cast()
    }

    /// # Safety
    /// `pointer` is NULL or leads to a live handle.
    unsafe fn borrow<'a, T: Opaque>(pointer: *const T) -> Result<&'a Self, Fail> {
        // SAFETY: the caller's contract.
        let handle = unsafe { pointer.cast::<Self>().as_ref() };
        let handle = handle.ok_or_else(|| Error::argument(format!("{} is NULL", T::NAME)))?;
        if handle.magic != T::MAGIC {
            return Err(Error::argument(format!("{} is no live handle", T::NAME)).into());
        }
        Ok(handle)
    }
}

/// Runs a call on a handle. A panic poisons what the handle stands on.
///
/// # Safety
/// `pointer` is NULL or came from the create function of its type and is not destroyed.
#[inline]
pub(super) unsafe fn with<T: Opaque>(
    pointer: *const T,
    body: impl FnOnce(&Arc<Shared>) -> Result<(), Fail>,
) -> rkv_status {
    let call = || {
        // SAFETY: the caller's contract.
        let handle = unsafe { Handle::borrow(pointer)? };
        if handle.shared.is_poisoned() {
            return Err(Fail::poisoned());
        }
        body(&handle.shared)
    };
    guard_with(call, || {
        // SAFETY: the caller's contract; the handle was found good before anything could panic.
        if let Ok(handle) = unsafe { Handle::borrow(pointer) } {
            handle.shared.poison();
        }
    })
}

/// # Safety
/// `pointer` is NULL or came from the create function of its type and is not destroyed.
unsafe fn take<T: Opaque>(pointer: *mut T) -> Option<Arc<Shared>> {
    // SAFETY: the caller's contract.
    unsafe { Handle::borrow(pointer) }.ok()?;
    // SAFETY: a live handle came from Box::into_raw in Handle::into_raw.
    let mut handle = unsafe { Box::from_raw(pointer.cast::<Handle>()) };
    handle.magic = 0;
    Some(handle.shared)
}

/// Destroys a page table's handle.
///
/// # Safety
/// As for `with`, and the caller is the handle's last user.
pub(super) unsafe fn destroy(pointer: *mut rkv_page_table) {
    guard_with(
        || {
            // SAFETY: the caller's contract.
            drop(unsafe { take(pointer) });
            Ok(())
        },
        || {},
    );
}

/// Destroys a cache's handle, and the cache.
///
/// # Safety
/// As for `with`, and the caller is the handle's last user.
pub(super) unsafe fn destroy_cache(pointer: *mut rkv_cache) {
    guard_with(
        || {
            // SAFETY: the caller's contract.
            if let Some(shared) = unsafe { take(pointer) } {
                // What a panic left half done is better leaked than touched.
                if !shared.is_poisoned() {
                    shared.detach_cache();
                }
            }
            Ok(())
        },
        || {},
    );
}
