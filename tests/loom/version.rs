//! What a version guards is read whole, or the reader is told.
use super::{Extent, model};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::tree::Version;
use std::sync::Arc;

#[derive(Default)]
struct Pair {
    version: Version,
    left: AtomicU64,
    right: AtomicU64,
}

impl Pair {
    fn change(&self, to: u64) {
        self.version.begin();
        self.left.store(to, Relaxed);
        self.right.store(to, Relaxed);
        self.version.end();
    }
}

/// Two changes, while a reader looks once, with either way to begin.
fn no_half(look: impl Fn(&Version) -> Option<u32> + Copy + Send + Sync + 'static) {
    model(Extent::Preemptions(3), move || {
        let pair = Arc::new(Pair::default());
        let reads = Arc::clone(&pair);
        let reader = loom::thread::spawn(move || {
            let Some(then) = look(&reads.version) else { return };
            let seen = (reads.left.load(Relaxed), reads.right.load(Relaxed));
            if reads.version.expect(then).is_ok() {
                let count = u64::from(then / 2);
                assert_eq!(seen, (count, count));
            }
        });
        (1..=2).for_each(|to| pair.change(to));
        reader.join().unwrap();
        let then = pair.version.read().unwrap();
        assert_eq!((pair.left.load(Relaxed), pair.right.load(Relaxed)), (2, 2));
        assert!(pair.version.expect(then).is_ok());
    });
}

#[test]
fn b09_no_half_of_a_change_is_read() {
    no_half(|version| version.read().ok());
}

#[test]
fn b09_no_half_of_a_change_is_read_after_a_peek() {
    no_half(|version| Some(version.peek()));
}
