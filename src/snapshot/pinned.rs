//! Pins that release themselves, for Rust. After a panic inside the cache these calls are refused,
//! and what is dropped stays; calls of `SnapshotCache` itself unwind then.
use super::{Freed, Hit, Namespace, NewSnapshot, SnapshotCache, SnapshotInserted};
use crate::error::Error;
use crate::ids::PinId;
use crate::lock::unless_left;
use std::ops::Deref;
use std::sync::Arc;

/// A snapshot that a lookup found. It stays in the cache's care until this is dropped.
#[derive(Debug)]
pub struct Pinned<'a, T> {
    cache: &'a SnapshotCache<Arc<T>>,
    hit: Hit<Arc<T>>,
}

impl<T> Pinned<'_, T> {
    /// Tokens that the snapshot covers.
    pub fn tokens(&self) -> usize {
        self.hit.tokens
    }

    /// Of those, how many the query begins with: all, unless it was found as a trimmable one.
    pub fn common(&self) -> usize {
        self.hit.common
    }

    /// What the model predicts after the tokens that the snapshot covers.
    pub fn next_token(&self) -> Option<u32> {
        self.hit.next_token
    }

    /// The id of the pin.
    pub fn id(&self) -> PinId {
        self.hit.pin
    }
}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.hit.value
    }
}

impl<T> Drop for Pinned<'_, T> {
    fn drop(&mut self) {
        // The pin is ours alone, so it is there. After a panic it stays.
        let released = unless_left(|| self.cache.release(self.hit.pin, &mut Freed::new()));
        debug_assert!(matches!(released, Ok(()) | Err(Error::Poisoned)));
    }
}

impl<T> SnapshotCache<Arc<T>> {
    /// Stores a snapshot. What gives way to it is dropped, unless somebody else has a share in it.
    pub fn put(&self, new: NewSnapshot<'_>, value: Arc<T>) -> Result<SnapshotInserted, Error> {
        unless_left(|| self.insert(new, || value, &mut Freed::new()))
    }

    /// Finds the snapshot of the longest stored prefix of `tokens`.
    pub fn get(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> Result<Option<Pinned<'_, T>>, Error> {
        let hit = unless_left(|| self.find(namespace, tokens, Arc::clone))?;
        Ok(hit.map(|hit| Pinned { cache: self, hit }))
    }

    /// The same, and a snapshot that is trimmable counts with the tokens that it has in common with
    /// `tokens`.
    pub fn get_trimmable(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> Result<Option<Pinned<'_, T>>, Error> {
        let hit = unless_left(|| self.find_trimmable(namespace, tokens, Arc::clone))?;
        Ok(hit.map(|hit| Pinned { cache: self, hit }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::snapshot::SnapshotLimits;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    /// M02: what was found before a panic inside the cache can be dropped, and calls are refused.
    #[test]
    fn m02_pins_of_snapshots_are_dropped_after_a_panic() {
        let limits = SnapshotLimits { entries: 10, bytes: 100 };
        let cache = SnapshotCache::<Arc<u32>>::new(limits).expect("a cache");
        let space = Namespace::default();
        let new = NewSnapshot {
            namespace: &space,
            tokens: &[1],
            bytes: 1,
            next_token: None,
            is_trimmable: false,
        };
        cache.put(new, Arc::new(7)).expect("room");
        let pins = [0, 1].map(|_| cache.get(&space, &[1]).expect("a lookup").expect("a hit"));
        let bug = catch_unwind(AssertUnwindSafe(|| {
            let _tree = cache.change();
            resume_unwind(Box::new("as the test wants it"));
        }));
        assert!(bug.is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(pins))).is_ok());
        assert!(matches!(cache.get(&space, &[1]), Err(Error::Poisoned)));
        assert!(matches!(cache.put(new, Arc::new(8)), Err(Error::Poisoned)));
    }
}
