//! Pins that release themselves, for Rust.
use super::{Freed, Hit, Namespace, NewSnapshot, SnapshotCache, SnapshotInserted};
use crate::error::Error;
use crate::ids::PinId;
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
        // The pin is ours alone, so it is there.
        let released = self.cache.release(self.hit.pin, &mut Freed::new());
        debug_assert_eq!(released, Ok(()));
    }
}

impl<T> SnapshotCache<Arc<T>> {
    /// Stores a snapshot. What gives way to it is dropped, unless somebody else has a share in it.
    pub fn put(&self, new: NewSnapshot<'_>, value: Arc<T>) -> Result<SnapshotInserted, Error> {
        self.insert(new, || value, &mut Freed::new())
    }

    /// Finds the snapshot of the longest stored prefix of `tokens`.
    pub fn get(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> Result<Option<Pinned<'_, T>>, Error> {
        let hit = self.find(namespace, tokens, Arc::clone)?;
        Ok(hit.map(|hit| Pinned { cache: self, hit }))
    }

    /// The same, and a snapshot that is trimmable counts with the tokens that it has in common with
    /// `tokens`.
    pub fn get_trimmable(
        &self,
        namespace: &Namespace,
        tokens: &[u32],
    ) -> Result<Option<Pinned<'_, T>>, Error> {
        let hit = self.find_trimmable(namespace, tokens, Arc::clone)?;
        Ok(hit.map(|hit| Pinned { cache: self, hit }))
    }
}
