//! Telling a store's threads what there is for them: at once, or when whoever holds a lock of his
//! own has let go of it. To wake a thread takes microseconds, and it may take the processor of who
//! woke it.
use super::Shared;
use super::state::State;
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// What was not told yet.
#[derive(Default)]
pub(super) struct News {
    /// There is something to read, or to write.
    pub reads: bool,
    pub writes: bool,
    /// Something is to be committed.
    pub commit: bool,
    /// What somebody flushes may be done.
    pub flushed: bool,
}

/// Whether it can be told now.
#[derive(Default)]
pub(super) struct Telling {
    /// Callers that have put it off.
    deferred: AtomicUsize,
    /// There are news. Set before `deferred` is looked at, and looked at after that has changed: so
    /// one of both tells them.
    has_news: AtomicBool,
}

impl Shared {
    /// Lets go of the lock and tells what there is, unless that is put off.
    pub(super) fn tell(&self, mut state: MutexGuard<'_, State>, news: impl FnOnce(&mut News)) {
        news(&mut state.news);
        self.telling.has_news.store(true, SeqCst);
        if self.telling.deferred.load(SeqCst) == 0 {
            self.tell_now(state);
        }
    }

    fn tell_now(&self, mut guard: MutexGuard<'_, State>) {
        let state = &mut *guard;
        let News { reads, writes, commit, flushed } = std::mem::take(&mut state.news);
        let listens = [
            reads && std::mem::take(&mut state.reads_listen),
            writes && std::mem::take(&mut state.writes_listen),
        ];
        self.telling.has_news.store(false, SeqCst);
        drop(guard);
        let kinds = [(reads, &self.has_reads), (writes, &self.has_writes)];
        for (((is_new, threads), ring), listens) in kinds.into_iter().zip(&self.wakers).zip(listens)
        {
            match ring {
                Some(ring) if listens => ring.wake(),
                _ if is_new => _ = threads.notify_all(),
                _ => {}
            }
        }
        if commit {
            self.wants_commit.notify_one();
        }
        if flushed {
            self.flushed.notify_all();
        }
    }

    /// Nothing is told from here on.
    pub(super) fn defer(&self) {
        self.telling.deferred.fetch_add(1, SeqCst);
    }

    /// All that was not told is now, whoever else has put it off: otherwise several who take turns
    /// might do so for ever.
    pub(super) fn resume(&self) {
        self.telling.deferred.fetch_sub(1, SeqCst);
        if self.telling.has_news.load(SeqCst) {
            self.tell_now(self.state.lock());
        }
    }
}
