//! What takes several processors: opening a store of many records.
use crate::memory::OutOfMemory;
use parking_lot::Mutex;

/// Below so many items, one is as quick.
const MANY: usize = 1 << 15;
/// More would wait for memory most of the time.
const MOST: usize = 8;

/// How many are worth it for so many items.
pub(crate) fn processors(items: usize) -> usize {
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

/// Does two things, of which another thread does the first one when that is worth it.
pub(crate) fn beside<A: Send, B>(
    is_worth_it: bool,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B,
) -> (A, B) {
    if !is_worth_it {
        return (one(), other());
    }
    let (one, result) = (Mutex::new(Some(one)), Mutex::new(None));
    let run = || {
        if let Some(one) = one.lock().take() {
            *result.lock() = Some(one());
        }
    };
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("rkv-open".into());
        // Without one this one does both.
        drop(thread.spawn_scoped(scope, run));
        other()
    });
    run();
    (result.into_inner().expect("one of them did it"), done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_in_their_order() {
        let done = side_by_side((0..100).map(|part| part * 3), |part| part + 1).unwrap();
        assert!(done.into_iter().eq((0..100).map(|part| part * 3 + 1)));
    }

    #[test]
    fn two_things_are_done_side_by_side_or_one_after_the_other() {
        for is_worth_it in [false, true] {
            let here = std::thread::current().id();
            let (one, other) =
                beside(is_worth_it, || std::thread::current().id(), || std::thread::current().id());
            assert_eq!((one == here, other), (!is_worth_it, here));
        }
    }
}
