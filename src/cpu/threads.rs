//! Threads of the library's own, or the engine's.
use super::own_threads::OwnThreads;
use super::place::Work;
use super::processors;
use crate::error::Error;
use crate::error::text;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An engine's `parallel for`: calls the function with 0..count, from any threads, and returns when
/// all calls have returned.
pub type ParallelFor = Box<dyn Fn(usize, &(dyn Fn(usize) + Sync)) + Send + Sync>;

/// Where the work is done.
pub enum Threads {
    /// On the calling thread and this many less one of its own; 0: as many as the process may use.
    Own(usize),
    /// On the engine's threads: `count` of them, 0: as many as the process may use.
    Engine {
        /// Tasks for one call of `parallel_for`.
        count: usize,
        /// Runs them.
        parallel_for: ParallelFor,
    },
}

/// Most threads that can be asked for.
const THREAD_LIMIT: usize = 1024;

enum Workers {
    /// The calling thread alone.
    None,
    Own(OwnThreads),
    Engine(ParallelFor),
}

/// Gives the next task.
type Take<'a> = dyn Fn() -> Option<usize> + 'a;

/// Threads that take tasks one after another.
pub(super) struct Team {
    count: usize,
    workers: Workers,
}

impl Team {
    pub(super) fn new(threads: Threads) -> Result<Self, Error> {
        let count = match &threads {
            Threads::Own(count) | Threads::Engine { count, .. } => *count,
        };
        if count > THREAD_LIMIT {
            return Err(Error::argument(text!("thread_count {count} is more than 1024")));
        }
        let count = match count {
            0 => processors::count(),
            _ => count,
        };
        let workers = match threads {
            Threads::Own(_) if count == 1 => Workers::None,
            Threads::Own(_) => Workers::Own(OwnThreads::new(count - 1)?),
            Threads::Engine { parallel_for, .. } => Workers::Engine(parallel_for),
        };
        Ok(Self { count, workers })
    }

    /// How many threads there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Runs `work` on this thread and on up to `helpers` others, with numbers below `count`, and
    /// returns when all are done. One number is not used by two threads at a time.
    fn everywhere(&self, helpers: usize, work: &Work<'_>) {
        match &self.workers {
            Workers::None => work(0),
            Workers::Own(own) => own.everywhere(helpers, work),
            Workers::Engine(parallel_for) => parallel_for(self.count, work),
        }
    }

    /// Runs `start` on as many threads as are useful for `count` tasks. Each gets its number, below
    /// [`Team::count`], and tasks from the function that it is given, until there are none.
    pub(super) fn share(&self, count: usize, start: &(dyn Fn(usize, &Take) + Sync)) {
        let next = AtomicUsize::new(0);
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&task| task < count);
        match count {
            0 => {}
            1 => start(0, &take),
            _ => {
                self.everywhere(count.min(self.count) - 1, &|number| start(number, &take));
                // An engine's pool that is shutting down calls nothing. Pages may have been written
                // to by now, which a refusal promises they were not: so the rest is done here.
                if next.load(Ordering::Relaxed) < count {
                    start(0, &take);
                }
            }
        }
    }
}
