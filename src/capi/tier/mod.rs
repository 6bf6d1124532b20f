//! Tiers: what lies below the pages of a cache, and how an engine carries copies out for it.
mod attach;
mod copies;
mod fetch;
mod remote;
mod stats;

pub use attach::*;
pub use copies::*;
pub use fetch::*;
pub use remote::*;
pub use stats::*;
