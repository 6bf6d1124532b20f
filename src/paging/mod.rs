//! Physical pages and the rows that map them. Knows nothing of tokens or the index.
#![forbid(unsafe_code)]

mod batch;
mod check;
mod config;
mod copied;
mod page_set;
mod pool;
mod row_id;
mod slots;
mod table;

pub use batch::{BatchArrays, BatchRow};
pub(crate) use config::check_page_count;
pub use config::{MorePools, PageTableConfig};
pub use page_set::PageSet;
pub use pool::{Claimed, PagePool, RowOwner};
pub use row_id::RowId;
pub use table::{PageTable, Part, check_positions};

/// Positions to copy from a page of the cache or of a parent to a private one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCopy {
    /// From.
    pub source: u32,
    /// To.
    pub target: u32,
    /// How many, from the page's beginning.
    pub positions: usize,
}
