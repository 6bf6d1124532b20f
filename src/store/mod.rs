//! The room with the lock: pages, index, sequences and journal, which change together.
//!
//! [`State`] is all of it, [`Shared`] the one lock around it. A call that only reads takes the lock
//! shared; a change takes it as a [`Turn`], and lets others in between slices, when the state is
//! whole. What is done with single things is in files of their names; `sequence` has the verbs that
//! take a prompt through a life: begin, append, publish, release, fork, continue.
#![forbid(unsafe_code)]

mod ahead;
mod attach;
mod audit;
mod cache;
mod clear;
mod descent;
mod discarded;
mod dump;
mod early;
mod ends_aside;
mod group_ahead;
mod group_cache;
mod group_children;
mod group_costs;
mod group_hang;
mod group_holds;
mod group_insert;
mod group_keep;
mod group_landing;
mod group_leave;
mod group_less;
mod group_limit;
mod group_reuse;
mod group_rows;
mod group_slide;
mod group_states;
mod group_stats;
mod group_windows;
mod held_path;
mod insert;
mod inspect;
mod journal;
mod locked_pages;
mod locks;
mod long_insert;
mod long_path;
mod long_query;
mod long_read;
mod long_rows;
mod lookup;
mod longer;
mod lower;
mod moved_lock;
mod page_table;
mod pools;
mod probe;
mod ready_digests;
mod retained;
mod sequence;
mod shared;
mod state;
mod tail;
mod tail_digests;
mod turn;

pub(crate) use cache::page_at;
pub use cache::{CacheConfig, Counters, PrefixCache};
pub use clear::{Cleared, Scope};
pub use descent::Descent;
pub(crate) use early::{Claim, EarlyByPool};
pub(crate) use group_ahead::{Chains, RowHolds};
pub use group_cache::Depths;
pub(crate) use group_children::ParentRows;
pub use group_insert::{GroupRow, HangResult};
pub(crate) use group_keep::KeptWindows;
pub(crate) use group_landing::Landing;
pub(crate) use group_reuse::GroupRoom;
pub(crate) use group_rows::ByPool;
pub use group_rows::{GroupCopy, PublishedGroups};
pub use group_stats::GroupStats;
pub use held_path::HeldPath;
pub use insert::{InsertRequest, InsertResult};
pub use inspect::{CacheStats, PageTableStats};
pub use journal::{ContentsRead, JournalRead};
pub use locked_pages::LockedPages;
pub(crate) use long_query::{HeldQuery, Hold, LongQuery};
pub(crate) use longer::{GroupRowOf, Longer, RowOf, TailOf, Versioned};
pub use lookup::{Found, Matched, WithPartial};
pub use lower::{Lower, OnDevice, PoolPage};
pub use pools::{EvictedPage, PoolStats};
pub use probe::Prober;
pub(crate) use ready_digests::READY;
pub use ready_digests::ReadyDigests;
pub(crate) use retained::Retained;
pub(crate) use sequence::Sequence;
pub use sequence::SequenceInfo;
pub use shared::Shared;
pub use state::State;
pub(crate) use state::no_cache;
pub(crate) use tail_digests::TailDigests;
pub use turn::Turn;
