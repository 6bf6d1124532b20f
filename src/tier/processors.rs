//! What takes several processors: opening a store of many records.
use crate::memory::OutOfMemory;

/// Below so many items, one is as quick.
const MANY: usize = 1 << 15;
/// More would wait for memory most of the time.
const MOST: usize = 8;

/// How many are worth it for so many items.
pub(super) fn processors(items: usize) -> usize {
    if items < MANY {
        return 1;
    }
    std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST))
}

/// Does some parts of a work side by side, and returns what came of each, in order. What gets no
/// thread is done by the caller's.
pub(super) fn side_by_side<P: Send, R: Send>(
    parts: impl ExactSizeIterator<Item = P>,
    work: impl Fn(P) -> R + Sync,
) -> Result<Vec<R>, OutOfMemory> {
    let mut results = Vec::new();
    results.try_reserve_exact(parts.len())?;
    results.extend((0..parts.len()).map(|_| None));
    let last = parts.len().saturating_sub(1);
    std::thread::scope(|scope| {
        for (number, (part, result)) in parts.zip(&mut results).enumerate() {
            // Taken back when no thread could be had.
            let place = std::sync::Mutex::new(Some((part, result)));
            let place = std::sync::Arc::new(place);
            let (other, work) = (place.clone(), &work);
            let run = move || {
                let taken = other.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
                if let Some((part, result)) = taken {
                    *result = Some(work(part));
                }
            };
            if number == last {
                run();
            } else {
                let thread = std::thread::Builder::new().name("rkv-open".into());
                if thread.spawn_scoped(scope, run).is_err()
                    && let Ok(mut place) = place.lock()
                    && let Some((part, result)) = place.take()
                {
                    *result = Some(work(part));
                }
            }
        }
    });
    let mut done = Vec::new();
    done.try_reserve_exact(results.len())?;
    done.extend(results.into_iter().flatten());
    Ok(done)
}
