//! Physical pages and the rows that map them. Knows nothing of tokens or the index.
#![forbid(unsafe_code)]

mod batch;
mod check;
mod pool;
mod table;

pub use batch::{BatchArrays, BatchRow};
pub use pool::{Claimed, PagePool, RowOwner};
pub use table::{PageTable, PageTableConfig, RowId};
