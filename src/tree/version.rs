//! A counter that tells readers without a lock whether what they read belongs together.
//!
//! It has 32 bits, since there are two of them for each node. Where it would begin anew it waits
//! for a moment when nobody reads, and is odd until then: so no reader meets a number twice.
use crate::grace::nobody_reads;
use crate::sync::{AtomicU32, Ordering, fence, limit, spin_loop};

/// Looks at something that is being changed, before a reader gives up for now. A change takes less
/// than a microsecond, unless the system suspends the thread.
const LOOKS: usize = limit(64, 1);

/// Odd while something is being changed, another even number after each change. What it guards is
/// made of atomics, so that reading it at the wrong moment yields nonsense, which is noticed.
#[derive(Debug, Default)]
pub(crate) struct Version(AtomicU32);

impl Version {
    /// Announces a change. There is one thread that changes, and its changes don't overlap.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn begin(&self) {
        let now = self.0.load(Ordering::Relaxed);
        debug_assert!(now.is_multiple_of(2) || now == u32::MAX);
        // It stays at the last number where it could not begin anew.
        self.0.store(now | 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Ends a change.
    #[cfg_attr(loom, track_caller)]
    pub(crate) fn end(&self) {
        let now = self.0.load(Ordering::Relaxed);
        match now.checked_add(1) {
            Some(next) => self.0.store(next, Ordering::Release),
            None => self.begin_anew(),
        }
    }

    #[cold]
    fn begin_anew(&self) {
        if nobody_reads() {
            self.0.store(0, Ordering::Release);
        }
    }

    /// To be read before what it guards.
    #[inline]
    pub(crate) fn read(&self) -> Result<u32, Changed> {
        for _ in 0..LOOKS {
            let now = self.0.load(Ordering::Acquire);
            if now.is_multiple_of(2) {
                return Ok(now);
            }
            spin_loop();
        }
        Err(Changed)
    }

    /// Like `read`, for who may not need it in the end: `expect` fails when it was odd, since that
    /// even number was passed.
    #[inline]
    pub(crate) fn peek(&self) -> u32 {
        self.0.load(Ordering::Acquire) & !1
    }

    /// To be asked after reading: fails when something changed since `then`.
    #[inline]
    pub(crate) fn expect(&self, then: u32) -> Result<(), Changed> {
        fence(Ordering::Acquire);
        if self.0.load(Ordering::Relaxed) == then { Ok(()) } else { Err(Changed) }
    }
}

/// Something changed while it was read: what was read means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::grace::Reader;

    /// A reader that stays while the numbers run out is told that all has changed, and so is who
    /// comes then; when nobody reads, they begin anew.
    #[test]
    fn numbers_begin_anew_when_nobody_reads() {
        let version = Version(AtomicU32::new(u32::MAX - 1));
        let change = || {
            version.begin();
            version.end();
        };
        if let Some(reader) = Reader::enter() {
            let then = version.read().unwrap();
            for _ in 0..3 {
                change();
                assert_eq!((version.expect(then), version.read()), (Err(Changed), Err(Changed)));
                assert_eq!(version.expect(version.peek()), Err(Changed));
            }
            drop(reader);
        } else {
            change();
        }
        // Other tests may read just now.
        while version.read().is_err() {
            change();
        }
        assert_eq!(version.read(), Ok(0));
        change();
        assert_eq!(version.read(), Ok(2));
    }
}
