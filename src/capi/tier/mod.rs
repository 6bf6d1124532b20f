//! Tiers: what lies below the pages of a cache, and how an engine carries copies out for it.
mod attach;
mod copies;
mod fetch;
mod prefetch;
mod remote;
mod stats;

pub use attach::*;
pub(in crate::capi) use attach::{OWN_THREAD, io_of};
pub use copies::*;
pub use fetch::*;
pub use prefetch::*;
pub use remote::*;
pub(in crate::capi) use remote::{Use, remote_of};
pub use stats::*;
