//! A store that keeps nothing: for a cache without a directory.
use crate::tier::{Event, Key, LowerStore, Refused, Source, StoreStats, Target};
use std::time::Duration;

/// No directory.
pub(super) struct Nowhere;

impl LowerStore for Nowhere {
    fn put(&self, _: Key, _: Box<[u8]>, _: Box<dyn Source>) -> Result<(), Refused> {
        Err(Refused::Length)
    }

    fn get(&self, _: Key, target: Box<dyn Target>) -> Result<u64, (Refused, Box<dyn Target>)> {
        Err((Refused::Missing, target))
    }

    fn remove(&self, _: Key) {}

    fn touch(&self, _: Key) {}

    fn cost(&self, bytes: u64, _: usize) -> u64 {
        bytes
    }

    fn has_events(&self) -> bool {
        false
    }

    fn poll(&self, _: &mut Vec<Event>) {}

    fn flush(&self, _: Duration) -> bool {
        true
    }

    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
}
