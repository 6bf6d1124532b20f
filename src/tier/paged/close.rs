//! How the tiers end.
use super::super::join;
use super::stores::Stores;
use super::table::Job;
use super::work::PageTiers;
use crate::error::{Error, text};
use crate::store::Lower;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the removal of what was cleared is waited for.
const LAST: Duration = Duration::from_secs(1);

impl PageTiers {
    /// From here on no copy is given out and no fetch begins, unless the engine has copies that go
    /// on, fetches are open, or somebody has called this before: then it is refused.
    pub fn begin_closing(&self) -> Result<(), Error> {
        let table = &mut *self.table();
        // A fetch ends with its sequence, though nobody may have polled since.
        let (state, mut after) = (self.shared.read(), 0);
        while let Some((number, id)) = table.loads.from(after) {
            after = number + 1;
            if !state.is_loading(id) {
                self.abandon(table, number);
            }
        }
        drop(state);
        if table.is_busy() {
            let (copies, fetches) = (table.jobs.len(), table.loads.numbers.len());
            return Err(Error::state(text!(
                "copies that were given out and are not complete: {copies}; open fetches: {fetches}"
            )));
        }
        if std::mem::replace(&mut table.is_closing, true) {
            return Err(Error::state("another thread detaches the tiers"));
        }
        Ok(())
    }
}

impl Lower for PageTiers {
    fn cleared(&self) {
        self.signal.notify();
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.signal.notify();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            join(thread);
        }
        if self.shared.is_poisoned() {
            // What a panic left half done is not touched; the rest goes with whoever had it last.
            if let Some(remote) = &self.remote {
                remote.close();
            }
            return;
        }
        // What was cleared last the thread may not have come to; the directory commits it when it
        // is closed.
        self.take_last_clears();
        // Without a directory no clear was carried out, nor in one that has not committed all that
        // was removed, and may not be able to: then the next attachment carries it out again.
        let (clear, removed) = {
            let table = self.table();
            (table.clear, table.removed)
        };
        let directory = self.directory();
        let is_new = self.shared.lower_ended_at(directory) != clear;
        // A flush may have seen it: what the directory is busy with now came later.
        if let Some(disk) = &self.disk
            && is_new
            && (removed == Some(clear) || self.is_removed(LAST) && !disk.stats().is_read_only)
        {
            self.shared.end_lower_at(directory, clear);
        }
        if let Some(remote) = &self.remote {
            remote.close();
        }
        let table = &mut *self.table();
        table.is_closing = true;
        table.stores = Stores::default();
        // Others get in after each: there may be many, and a fetch may have pages of all groups.
        let mut turn = self.shared.turn();
        while let Some((&id, _)) = table.jobs.first() {
            match table.jobs.remove(&id) {
                Some(Job::Load { page, .. } | Job::Store { page, .. }) => turn.end_copied(page),
                None => {}
            }
            turn.let_waiting_in();
        }
        while let Some((&number, load)) = table.loads.open.first() {
            let id = load.sequence;
            table.loads.end(number);
            if let Some(id) = id.filter(|&id| turn.is_loading(id)) {
                let _ = match turn.has_groups() {
                    true => turn.state().end_group_fetch(id),
                    false => turn.state().land(id, (0, 0), None),
                };
            }
            turn.let_waiting_in();
        }
    }
}
