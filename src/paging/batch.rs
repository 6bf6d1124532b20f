//! A batch of rows as the arrays that paged attention kernels take.
//!
//! The layout is that of FlashInfer's paged KV cache: `indices[indptr[i]..indptr[i + 1]]` are the
//! pages of row i, and `last_page_len[i]` of the positions of its last page count.
use super::table::PageTable;
use crate::error::Error;
use crate::error::text;
use crate::memory::{OutOfMemory, TryGrow};

/// One row of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchRow {
    /// Its slot.
    pub slot: u32,
    /// Positions that count.
    pub positions: usize,
}

/// The arrays.
#[derive(Debug, Default)]
pub struct BatchArrays {
    /// Where each row begins in `indices`, and where the last ends.
    pub indptr: Vec<i32>,
    /// Pages.
    pub indices: Vec<i32>,
    /// Positions in each row's last page.
    pub last_page_len: Vec<i32>,
}

impl PageTable {
    /// The arrays for a batch.
    pub fn batch(&self, rows: &[BatchRow]) -> Result<BatchArrays, Error> {
        let mut made = BatchArrays::default();
        made.indptr.try_reserve_exact(rows.len() + 1).map_err(OutOfMemory::from)?;
        made.last_page_len.try_reserve_exact(rows.len()).map_err(OutOfMemory::from)?;
        made.indptr.push(0);
        for (at, asked) in rows.iter().enumerate() {
            let row = self.row(asked.slot)?;
            let pages = asked.positions.div_ceil(self.page_size());
            if pages > row.len() {
                return Err(Error::argument(text!(
                    "rows[{at}].position_count {} is beyond the row's {} positions",
                    asked.positions,
                    row.len() * self.page_size()
                )));
            }
            // Page numbers and counts stay below 2^31: a larger pool is refused at creation.
            made.indices.try_extend(row[..pages].iter().map(|&page| page as i32))?;
            let end = i32::try_from(made.indices.len());
            made.indptr.push(end.map_err(|_| Error::argument("rows: the batch has 2^31 pages"))?);
            let unused = pages * self.page_size() - asked.positions;
            let last = if pages == 0 { 0 } else { self.page_size() - unused };
            made.last_page_len.push(last as i32);
        }
        Ok(made)
    }
}
