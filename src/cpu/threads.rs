//! Threads of the library's own, or the engine's.
use crate::error::Error;
use crate::error::text;
use rayon_core::{ThreadBuilder, ThreadPool, ThreadPoolBuilder};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

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

/// Threads of the library's own. When this is dropped they have ended: the pool alone would leave
/// that to them, and code that is unloaded, or a process that ends, would pull the rug from under
/// them.
struct OwnThreads {
    pool: Option<ThreadPool>,
    handles: Vec<JoinHandle<()>>,
}

impl OwnThreads {
    fn new(count: usize) -> Result<Self, Error> {
        let mut handles = Vec::with_capacity(count);
        let spawn = |thread: ThreadBuilder| {
            let name = format!("radixkv-{}", thread.index());
            handles.push(Builder::new().name(name).spawn(|| thread.run())?);
            Ok(())
        };
        let pool = ThreadPoolBuilder::new().num_threads(count).spawn_handler(spawn).build();
        let pool = pool.map_err(|error| Error::memory(text!("threads: {error}")))?;
        Ok(Self { pool: Some(pool), handles })
    }
}

impl Drop for OwnThreads {
    fn drop(&mut self) {
        drop(self.pool.take());
        for handle in self.handles.drain(..) {
            // A thread that panicked has ended too.
            let _ = handle.join();
        }
    }
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
            0 => std::thread::available_parallelism().map_or(1, |count| count.get()),
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

    /// Runs `worker` on every thread and returns when all are done.
    fn everywhere(&self, worker: &(dyn Fn() + Sync)) {
        match &self.workers {
            Workers::None => worker(),
            Workers::Own(own) => {
                let pool = own.pool.as_ref().expect("it is there until it is dropped");
                pool.in_place_scope(|scope| {
                    for _ in 1..self.count {
                        scope.spawn(|_| worker());
                    }
                    worker();
                });
            }
            Workers::Engine(parallel_for) => parallel_for(self.count, &|_| worker()),
        }
    }

    /// Runs `start` on as many threads as are useful for `count` tasks; each gets tasks from the
    /// function that it is given, until there are none.
    pub(super) fn share(&self, count: usize, start: &(dyn Fn(&Take) + Sync)) {
        let next = AtomicUsize::new(0);
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&task| task < count);
        match count {
            0 => {}
            1 => start(&take),
            _ => self.everywhere(&|| start(&take)),
        }
    }
}
