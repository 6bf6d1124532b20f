//! Groups of layers, each with pages of its own: full attention, sliding windows, states.
//!
//! ```text
//!   prefix      ├──page──┼──page──┼──page──┼──page──┤
//!   group 0        p1       p2       p3       p4       FULL: the spine, which the index keeps
//!   group 1        ·        ·        w3       w4       WINDOW: what lies before it may be missing
//!   group 2        ·        s2       ·        s4       STATE: what it was after p2, and after p4
//! ```
//!
//! The index knows group 0 alone. A page of another group hangs on the page of the spine that has
//! the same positions, by that page's number: so neither splits nor merges of nodes touch it, and
//! it goes when that one goes. `kind` says which pages a prefix needs, `reach` how far all groups
//! have what they need, `hung` which page hangs where, who uses it, and which goes next, `chain`
//! that in a FULL group whoever uses a page uses all before it, `saved` which state lies before
//! which.
#![forbid(unsafe_code)]

mod chain;
mod check;
mod hung;
mod kind;
mod queue;
mod reach;
mod saved;

pub use hung::{Class, Hung, HungPage};
pub use kind::{GroupConfig, GroupKind, Groups, Needs, check_count};
pub use reach::{Reached, Search, Seen, Spine, reach};
pub(crate) use saved::CHECKPOINT_LIMIT_MAX;
pub use saved::SavedStates;

/// Groups of a page table at most.
pub(crate) const GROUP_LIMIT: usize = 8;
