//! What waits for the store, so that it has all that it was given: a flush, and what comes before
//! the store is taken away.
use super::lower::Lower;
use super::{FreedSnapshots, TieredSnapshots};
use crate::tier::Source;
use std::time::{Duration, Instant};

/// How long a flush sleeps at most with the store in its hands.
const FLUSH_STEP: Duration = Duration::from_millis(2);

impl<P: Source + 'static> TieredSnapshots<P> {
    /// Takes the store away, after waiting for what is being written as long as the time allows.
    /// What was committed is found when it is attached again. Tickets are stale from now on. False
    /// when there is none, or the time was over first, or others took it away; what they attached
    /// since then stays.
    pub fn detach(&self, timeout: Duration, freed: &mut FreedSnapshots<P>) -> bool {
        let Some((attachment, is_flushed)) = self.flush_until(timeout, freed, true) else {
            return false;
        };
        // Others may have attached another store meanwhile, for which nobody has waited.
        let is_it = |lower: &mut Lower| lower.link.attachment == attachment;
        let Some(mut lower) = self.lower.write().take_if(is_it) else { return false };
        // Until now others could write and remove, or attach another directory.
        let is_given = lower.is_given(u64::MAX) && !lower.has_unremoved();
        let (freed, table) = (&mut freed.0, lower.table.get_mut());
        let is_written = is_given && table.is_written(u64::MAX) && !table.has_retries();
        for pin in table.loads.take_pins() {
            let released = self.memory.release(pin, freed);
            debug_assert!(released.is_ok(), "the pin is ours");
        }
        freed.settle();
        is_flushed && is_written
    }

    /// Takes away what is below memory, as a panic left it.
    pub fn leave_lower(&self) {
        let lower = self.lower.write().take();
        drop(lower);
    }

    /// Waits until everything that is to be written by now is, and what was removed, replaced or
    /// cleared is gone from the store; false when the time is over first, the store removes
    /// nothing any more, a write failed since the flush before, or the store is taken away.
    pub fn flush(&self, timeout: Duration, freed: &mut FreedSnapshots<P>) -> bool {
        self.flush_until(timeout, freed, false).is_some_and(|(_, is_flushed)| is_flushed)
    }

    /// The number of the attachment that was waited for, and whether all is written; none when that
    /// was taken away.
    fn flush_until(
        &self,
        timeout: Duration,
        freed: &mut FreedSnapshots<P>,
        all: bool,
    ) -> Option<(u32, bool)> {
        let start = Instant::now();
        let (mut turns, mut before, mut is_trying) = (None, None, false);
        let mut commits = None;
        loop {
            let lower = self.lower.read();
            // Whoever took it away has given up what was not written.
            let lower = (*lower).as_ref()?;
            let left = timeout.saturating_sub(start.elapsed());
            let given = lower.given();
            let table = lower.table.read();
            let had_retries = is_trying || table.is_trying() || table.has_retries();
            let (removed, told) = (table.removed, table.failures_told);
            let now = (lower.link.attachment, removed, told, table.next, given);
            drop(table);
            // What came before this call; with `all` also what comes while it waits.
            let (attachment, wanted, told, end, values) = before.get_or_insert(now);
            if *attachment != lower.link.attachment {
                return None;
            }
            *values = if all { given } else { *values };
            let commits = *commits.get_or_insert(lower.link.store.stats().commits);
            let is_still = lower.link.store.flush(left.min(FLUSH_STEP));
            let is_given = lower.is_given(*values);
            // Writes that were stopped have their bytes until what they came from is let go.
            let is_stopping = had_retries && lower.link.store.stats().waiting_bytes > 0;
            if is_still && (!is_given || is_trying || is_stopping) {
                std::thread::sleep(left.min(FLUSH_STEP));
            }
            self.take_events(lower, true, &mut freed.0);
            let mut table = lower.change();
            let stats = lower.link.store.stats();
            let now = stats.turns();
            is_trying = table.is_trying();
            if all || had_retries || is_trying || table.has_retries() {
                // What is tried again is another write.
                *end = table.next;
            }
            if is_still && !stats.is_read_only {
                table.gone = table.gone.max(removed);
            }
            // One commit may have been under way: the next one has all that was removed before it,
            // but for what waits for memory. Where others go on to insert, the store is never
            // still.
            if stats.commits >= commits + 2 && !stats.is_read_only && !stats.has_unremoved {
                table.gone = table.gone.max(*wanted);
            }
            // What waits is tried again when there may be room, once for each time.
            let is_tried = !table.has_retries() || turns == Some(now) && stats.waiting_bytes == 0;
            let is_gone = is_still || table.gone >= *wanted;
            if is_given && is_tried && is_gone && !is_trying && table.is_written(*end) {
                table.failures_told = table.counters.failed_writes;
                let has_failed = table.failures_told != *told;
                let is_gone = table.gone >= *wanted && !lower.has_unremoved();
                return Some((*attachment, !has_failed && !table.has_retries() && is_gone));
            }
            if left.is_zero() {
                return Some((*attachment, false));
            }
            turns = (is_still && is_given).then_some(now);
        }
    }
}
