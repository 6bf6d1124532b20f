//! The snapshot cache: states of an engine by the tokens that led to them.
//!
//! For engines whose KV isn't paged, or that have none: the state after a token list is one opaque
//! value, and the useful one for a prompt is that of its longest stored prefix.
//!
//! ```text
//!            store (RwLock)                        ledger (RwLock)
//!    tokens ─► tree ─► entry: value, bytes,        order of use, pins by id,
//!                      next token                  limits, counters
//! ```
//!
//! Two locks, always taken in this order. A lookup compares tokens, which may take long, under the
//! store's read lock, beside any number of others; only pinning what it found, a few steps on
//! memory that was fetched meanwhile, is done by one at a time. A release takes the same two.
//!
//! Memory may run out. Whatever a call will need is there before it changes anything, so a call
//! that is refused changed nothing; and what lets something go needs no memory at all, since the
//! places that snapshots pass through on their way out are made when they come in, or are pinned.
//!
//! Values are dropped by the caller, from [`Freed`], after all locks are gone: so dropping one may
//! call the cache again. In Rust, values behind an [`std::sync::Arc`] come with pins that release
//! themselves:
//!
//! ```
//! use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotCache, SnapshotLimits};
//! use std::sync::Arc;
//!
//! let cache = SnapshotCache::new(SnapshotLimits { entries: 64, bytes: 1 << 30 })?;
//! let namespace = Namespace::default();
//! let state = vec![0.5f32; 1024]; // after the tokens 1, 2, 3
//! let new = NewSnapshot {
//!     namespace: &namespace,
//!     tokens: &[1, 2, 3],
//!     bytes: 4096,
//!     next_token: Some(4),
//!     is_trimmable: false,
//! };
//! cache.put(new, Arc::new(state))?;
//!
//! let found = cache.get(&namespace, &[1, 2, 3, 9])?.expect("a prefix is stored");
//! assert_eq!((found.tokens(), found.next_token(), found[0]), (3, Some(4), 0.5));
//! # Ok::<(), radixkv::error::Error>(())
//! ```
#![forbid(unsafe_code)]

mod buckets;
mod cache;
mod check;
mod discarded;
mod entries;
mod evict;
mod freed;
mod ledger;
mod nodes;
mod pinned;
mod recency;
mod rest;
mod search;
mod spot;
pub mod tiered;
mod tree;
mod trimmable;

#[doc(hidden)]
pub use crate::handles::Numbers;
pub use crate::tree::Namespace;
#[doc(hidden)]
pub use cache::SnapshotBounds;
pub use cache::SnapshotCache;
pub use freed::Freed;
pub use pinned::Pinned;

use crate::ids::PinId;
use cache::count;

/// The tokens of a node's segment; none at a root.
type Label = crate::tree::Label<false>;

/// No node.
const NONE: u32 = u32::MAX;
/// Unused places of nodes that are not worth moving nodes together.
const SPARSE: usize = 1024;
/// Entries that numbers suffice for.
const ENTRY_LIMIT: usize = 1 << 30;

/// How much a cache may hold. Zero in either place disables it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Entries.
    pub entries: usize,
    /// Bytes of snapshots, as their owners state them.
    pub bytes: u64,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { entries: 1024, bytes: u64::MAX }
    }
}

/// What to insert.
#[derive(Debug, Clone, Copy)]
pub struct NewSnapshot<'a> {
    /// Where.
    pub namespace: &'a Namespace,
    /// The tokens that led to the state.
    pub tokens: &'a [u32],
    /// What the state takes.
    pub bytes: u64,
    /// What the model predicts next, if that is known.
    pub next_token: Option<u32>,
    /// Whether the engine can make the state after fewer tokens of it, by taking its end away.
    pub is_trimmable: bool,
}

/// What an insert did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotInserted {
    /// Whether the snapshot is in the cache. Otherwise it was freed at once.
    pub stored: bool,
    /// Whether it took the place of another.
    pub replaced: bool,
    /// Entries that went for the limits.
    pub evicted: usize,
}

/// A snapshot that was found and pinned.
#[derive(Debug, Clone, Copy)]
pub struct Hit<R> {
    /// Keeps the snapshot until it is released.
    pub pin: PinId,
    /// Tokens that the snapshot covers.
    pub tokens: usize,
    /// Of those, how many the query begins with: all, unless it was found as a trimmable one.
    pub common: usize,
    /// What it takes.
    pub bytes: u64,
    /// What the model predicts after the tokens that the snapshot covers.
    pub next_token: Option<u32>,
    /// What was asked of the value.
    pub value: R,
}

impl<R> Hit<R> {
    /// Whether it is the snapshot of a list of so many tokens, to the last one.
    pub(crate) fn is_of(&self, token_count: usize) -> bool {
        [self.tokens, self.common] == [token_count; 2]
    }
}

/// What a cache counted since it was made. A counter that comes to its end stays there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Lookups; probes are not counted.
    pub lookups: u64,
    /// Lookups that found something.
    pub hits: u64,
    /// Of those, how many found the whole query.
    pub full_hits: u64,
    /// Tokens asked for.
    pub lookup_tokens: u64,
    /// Tokens found.
    pub hit_tokens: u64,
    /// Snapshots stored.
    pub stored: u64,
    /// Of those, how many took the place of another.
    pub replaced: u64,
    /// Snapshots that were not stored: too large, or the cache is disabled.
    pub rejected: u64,
    /// Entries that went for the limits.
    pub evicted: u64,
    /// Entries that callers removed.
    pub removed: u64,
}

/// What a cache holds now, and what it counted.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotStats {
    /// Entries.
    pub entries: usize,
    /// Of those, how many are pinned.
    pub pinned_entries: usize,
    /// Bytes of the entries' snapshots.
    pub entry_bytes: u64,
    /// Snapshots without an entry, that readers keep.
    pub detached: usize,
    /// Their bytes.
    pub detached_bytes: u64,
    /// Pins that are out.
    pub pins: usize,
    /// Nodes of the tree, roots not counted.
    pub nodes: usize,
    /// Namespaces.
    pub namespaces: usize,
    /// Memory of the cache itself.
    pub index_bytes: usize,
    /// Counters.
    pub counters: Counters,
}
