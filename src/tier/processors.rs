//! What takes several processors: opening a store of many records.
use crate::memory::OutOfMemory;
use parking_lot::Mutex;

/// Below so many items, one is as quick.
const MANY: usize = 1 << 15;
/// More would wait for memory most of the time.
const MOST: usize = 8;

/// How many are worth it for so many items.
pub(super) fn processors(items: usize) -> usize {
    if items < MANY {
        return 1;
    }
    most()
}

fn most() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST))
}

/// Does some parts of a work side by side, and returns what came of each, in order. Who has done
/// one takes the next, so with several parts for each processor none waits long for another.
pub(super) fn side_by_side<P: Send, R: Send>(
    parts: impl ExactSizeIterator<Item = P> + Send,
    work: impl Fn(P) -> R + Sync,
) -> Result<Vec<R>, OutOfMemory> {
    let count = parts.len();
    let mut results = Vec::new();
    results.try_reserve_exact(count)?;
    results.extend((0..count).map(|_| None));
    let left = Mutex::new(parts.zip(&mut results));
    let run = || {
        loop {
            let Some((part, result)) = left.lock().next() else { return };
            *result = Some(work(part));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..count.min(most()) {
            let thread = std::thread::Builder::new().name("rkv-open".into());
            // Without one the others do it.
            drop(thread.spawn_scoped(scope, run));
        }
        run();
    });
    let mut done = Vec::new();
    done.try_reserve_exact(count)?;
    done.extend(results.into_iter().flatten());
    Ok(done)
}
