//! Sequences: a prompt on its way through begin, publish and release, with its row and its lock.
//!
//! These are verbs on the state that `store` keeps behind one lock. A sequence's row is always
//! `shared pages of the cache | private pages`, and may be too short for the sequence: pages for a
//! prompt can come chunk by chunk. Its keys beyond the node that it locks wait in its `tail` until
//! they are published.
//!
//! Besides a lookup, a sequence can come from another one: `fork` and `continue` lock the parent's
//! node, copy the shared part of its row and its tail, and are told to copy the page that it
//! computed in part. Only pages of the cache are ever in two rows, so a parent shares what it has
//! published. `retain` is a release that keeps lock, row and tail for such children.
#![forbid(unsafe_code)]

mod append;
mod begin;
mod compute;
mod fetch;
mod fetch_groups;
mod fill;
mod fork;
mod groups;
mod inherit;
mod publish;
mod release;
mod share_less;

pub use begin::Room;
pub use compute::{ComputedRow, RowPages};
pub use fetch::{Digested, Landed};
pub use fetch_groups::GroupLanding;
pub use inherit::Continuation;
pub use publish::Published;

/// Why what waits for copies is refused: whoever began them, it ends in the same way.
const COPY_IS_OPEN: &str = "a copy is not confirmed yet: carry out those that \
    rkv_sequence_read_copies() names, then call rkv_sequence_confirm_copies()";
