//! When a store is not asked: after failures in a row, for a while.
use std::time::{Duration, Instant};

/// Failures in a row after which nobody asks.
const FAILURES: u32 = 3;
/// How long, at first, and at most.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Pause {
    failures: u32,
    length: Duration,
    until: Option<Instant>,
    /// One call was let through, and has not ended.
    is_tried: bool,
}

impl Pause {
    /// Whether to ask now. After a pause one call is let through, which says how it goes on.
    pub fn lets_through(&mut self, now: Instant) -> bool {
        let Some(until) = self.until else { return true };
        if now < until {
            return false;
        }
        // Others wait for what becomes of this one.
        self.until = now.checked_add(self.length.max(FIRST));
        self.is_tried = true;
        true
    }

    /// Whether nobody asks now.
    pub fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// A call has ended. Whether a pause began.
    pub fn note(&mut self, is_good: bool, now: Instant) -> bool {
        if is_good {
            *self = Self::default();
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES || self.is_on(now) && !self.is_tried {
            return false;
        }
        self.is_tried = false;
        self.length = if self.length.is_zero() { FIRST } else { (2 * self.length).min(LONGEST) };
        self.until = now.checked_add(self.length);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T13: pauses get longer while it fails, and end with a call that is answered.
    #[test]
    fn t13_a_store_that_fails_is_asked_ever_less_often() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut pause = Pause::default();
        assert!(!pause.note(false, start) && !pause.note(false, start));
        assert!(pause.lets_through(start));
        assert!(pause.note(false, start));
        assert!(!pause.lets_through(after(99)) && pause.is_on(after(99)));
        // One is let through, and no other before that one has ended.
        assert!(pause.lets_through(after(100)) && !pause.lets_through(after(101)));
        // It took long, and failed.
        assert!(pause.note(false, after(2000)));
        assert!(!pause.lets_through(after(2199)) && pause.lets_through(after(2200)));
        assert!(!pause.note(true, after(2201)));
        assert!(pause.lets_through(after(2201)) && pause.lets_through(after(2202)));
        for _ in 0..100 {
            pause.note(false, start);
        }
        let mut now = start;
        for _ in 0..20 {
            now += LONGEST;
            pause.lets_through(now);
            pause.note(false, now);
        }
        assert!(!pause.lets_through(now + LONGEST - FIRST) && pause.lets_through(now + LONGEST));
    }
}
