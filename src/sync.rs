//! What threads without a lock share: the standard library's atomics. Under `cfg(loom)` they are
//! those of the model checker loom, for `tests/loom`.

#[cfg(loom)]
#[path = "../tests/loom/sync.rs"]
mod model;

#[cfg(loom)]
pub(crate) use model::*;
#[cfg(not(loom))]
pub(crate) use std::{
    alloc::{alloc, dealloc},
    hint::spin_loop,
    sync::OnceLock,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
    thread_local,
};

/// A limit, or a smaller one: a model is small, and has to get past it.
pub(crate) const fn limit(usual: usize, in_models: usize) -> usize {
    if cfg!(loom) { in_models } else { usual }
}
