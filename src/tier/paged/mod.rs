//! Pages below the device: what is evicted from a cache is found in host memory, then on disk, also
//! after a restart.
//!
//! ```text
//!        cache (store)          journal               an engine
//!   open_fetch │ ▲ land            │ follow         poll │ ▲ complete
//!              ▼ │                 ▼                     ▼ │
//!            loads ◄─────── pages: digests         copies page ↔ slot
//!              │  ▲                │ store                 │
//!              ▼  │                ▼                       ▼
//!            map: what is where ◄──────── arrivals: checksum, record
//!              │ ▲
//!          put ▼ │ events
//!            LowerStore                    records by number
//! ```
//!
//! One thread of its own does what takes time: it follows the journal outside of the cache's lock
//! and makes the digests, checks bytes, talks with the disk. The engine's calls (`fetch`, `poll`,
//! `complete`, `agree`) take the lock of the table and that of the store for moments. The table's
//! comes first; who has the store's never waits for it.
//!
//! Why it is so:
//!
//! - *A fetch is named by its sequence.* There is one at a time, a sequence's id is never used
//!   again, and releasing it ends everything: a ticket would be a second name for the same thing.
//! - *What can be fetched is asked by `fetch`, not told by begin.* So begin costs what it did, and
//!   so does a prompt of which the device has all.
//! - *A page that is copied is not locked, it is lent.* An eviction may take it at any time,
//!   without waiting and without taking another one instead; the pool gets it when the copy is
//!   done. So a store never fails because its page went, and a load never writes to a page that
//!   is somebody else's already. Only as many pages as are being copied are reclaimable a little
//!   later.
//! - *A digest counts only if the page has held the same since.* The journal's mirror says of each
//!   page since which record it has; what was followed less far knows nothing of the page.
//! - *What is in host memory goes to the disk at once*, not when it has to leave: a restart finds
//!   it, and host memory gives up what is written without waiting. The policy says when a page goes
//!   from the device to host memory.
//! - *A prefetch is a fetch without a sequence*: it ends in host memory. It owns nothing there, so
//!   nobody has to give anything back when it is not used: what it brought is what was used last.
//! - *The disk's keys are numbers*: a store never sees the same key twice, and a page may come back
//!   while its removal is under way. What a page holds stands in the note.
mod clear;
mod close;
mod config;
mod contents;
mod disk;
mod fetch;
mod flush;
mod follow;
mod group_aim;
mod group_end;
mod group_fetch;
mod group_plan;
mod group_prefetch;
mod host;
mod joined;
mod known;
mod late;
mod leaves;
mod loads;
mod map;
#[cfg(test)]
mod map_tests;
mod note;
mod offered;
mod pages;
mod poll;
mod prefetch;
mod remote;
mod rest;
mod sizes;
mod spaces;
mod stats;
mod stores;
mod table;
mod work;

pub use config::{HostMemory, PagePolicy, TierConfig, TierPool};
pub use fetch::Deadline;
pub use known::Fetchable;
pub(crate) use note::chain;
#[cfg(test)]
pub(crate) use note::tests::{note_beside, note_of};
pub use poll::{CopyJob, Direction, Fetched, Polled};
pub use prefetch::Prefetched;
pub use sizes::{OtherSize, PageSizes};
pub use stats::{PageTierStats, TierTotals};
pub use work::{DiskWake, PageTiers};
