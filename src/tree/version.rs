//! A counter that tells readers without a lock whether what they read belongs together.
use crate::sync::{AtomicU64, Ordering, fence, limit, spin_loop};

/// Looks at something that is being changed, before a reader gives up for now. A change takes less
/// than a microsecond, unless the system suspends the thread.
const LOOKS: usize = limit(64, 1);

/// Odd while something is being changed, another even number after each change. What it guards is
/// made of atomics, so that reading it at the wrong moment yields nonsense, which is noticed.
#[derive(Debug, Default)]
pub(crate) struct Version(AtomicU64);

impl Version {
    /// Announces a change. There is one thread that changes, and its changes don't overlap.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn begin(&self) {
        let now = self.0.load(Ordering::Relaxed);
        debug_assert!(now.is_multiple_of(2));
        self.0.store(now + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Ends a change.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn end(&self) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now + 1, Ordering::Release);
    }

    /// To be read before what it guards.
    #[inline]
    pub(crate) fn read(&self) -> Result<u64, Changed> {
        for _ in 0..LOOKS {
            let now = self.0.load(Ordering::Acquire);
            if now.is_multiple_of(2) {
                return Ok(now);
            }
            spin_loop();
        }
        Err(Changed)
    }

    /// Like `read`, for who may not need it in the end: `expect` fails when it was odd.
    #[inline]
    pub(crate) fn peek(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// To be asked after reading: fails when something changed since `then`.
    #[inline]
    pub(crate) fn expect(&self, then: u64) -> Result<(), Changed> {
        fence(Ordering::Acquire);
        let same = self.0.load(Ordering::Relaxed) == then && then.is_multiple_of(2);
        if same { Ok(()) } else { Err(Changed) }
    }
}

/// Something changed while it was read: what was read means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed;
