//! A batch of rows as the arrays that paged attention kernels take.
//!
//! The layout is that of FlashInfer's paged KV cache: `indices[indptr[i]..indptr[i + 1]]` are the
//! pages of row i, and `last_page_len[i]` of the positions of its last page count.
use super::table::PageTable;
use crate::error::{Error, text};
use crate::memory::{OutOfMemory, try_filled};

/// One row of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchRow {
    /// Its slot.
    pub slot: u32,
    /// Positions that count.
    pub positions: usize,
}

/// The arrays. They are reused from batch to batch.
#[derive(Debug, Clone)]
pub struct BatchArrays {
    page_size: usize,
    indptr: Vec<i32>,
    indices: Vec<u32>,
    last_page_len: Vec<i32>,
}

impl BatchArrays {
    /// No rows yet.
    pub fn new(page_size: usize) -> Result<Self, OutOfMemory> {
        assert!(page_size > 0, "a page has positions");
        let mut indptr = Vec::new();
        indptr.try_reserve(1)?;
        indptr.push(0);
        Ok(Self { page_size, indptr, indices: Vec::new(), last_page_len: Vec::new() })
    }

    /// Takes all rows away and keeps the room.
    pub fn clear(&mut self) {
        self.indptr.truncate(1);
        self.indices.clear();
        self.last_page_len.clear();
    }

    /// Makes room for so many more rows, with so many pages in all.
    pub fn reserve(&mut self, rows: usize, pages: usize) -> Result<(), OutOfMemory> {
        self.indices.try_reserve(pages)?;
        self.indptr.try_reserve(rows)?;
        self.last_page_len.try_reserve(rows)?;
        Ok(())
    }

    /// Makes room for so many pages before there is any, and writes to it, so that the system has
    /// given all of it.
    pub fn touch(&mut self, pages: usize) -> Result<(), OutOfMemory> {
        self.indices = try_filled(1, pages)?;
        self.indices.clear();
        Ok(())
    }

    /// Whether numbers suffice for so many more pages.
    pub fn may_have(&self, pages: usize) -> bool {
        i32::try_from(self.indices.len().saturating_add(pages)).is_ok()
    }

    /// Adds a row of so many positions, of which `pages` has all.
    pub fn try_push(&mut self, positions: usize, pages: &[u32]) -> Result<(), Error> {
        if !self.may_have(pages.len()) {
            return Err(Error::argument("rows: the batch has 2^31 pages"));
        }
        self.reserve(1, pages.len())?;
        self.push(positions, pages);
        Ok(())
    }

    /// Adds a row of so many positions, of which `pages` has all. There is room for it, and numbers
    /// suffice.
    pub fn push(&mut self, positions: usize, pages: &[u32]) {
        let count = positions.div_ceil(self.page_size);
        self.indices.extend_from_slice(&pages[..count]);
        self.indptr.push(i32::try_from(self.indices.len()).expect("numbers suffice"));
        let unused = count * self.page_size - positions;
        self.last_page_len.push(if count == 0 { 0 } else { self.page_size - unused } as i32);
    }

    /// Adds a row of pages of two parts. `positions` are those from the second part's beginning on,
    /// which has pages for them and no more. There is room for it, and numbers suffice.
    pub fn push_parts(&mut self, positions: usize, first: &[u32], last: &[u32]) {
        self.indices.extend_from_slice(first);
        self.push(positions, last);
    }

    /// Positions of a page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Where each row begins in `indices`, and where the last ends.
    pub fn indptr(&self) -> &[i32] {
        &self.indptr
    }

    /// Pages. Their numbers stay below 2^31: a larger pool is refused at creation.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Positions in each row's last page; 0 in a row without pages.
    pub fn last_page_len(&self) -> &[i32] {
        &self.last_page_len
    }
}

impl PageTable {
    /// The pages of a row that count in a batch, in which it has this place.
    pub fn batch_row(&self, at: usize, asked: &BatchRow) -> Result<&[u32], Error> {
        let row = self.row(asked.slot)?;
        row.get(..asked.positions.div_ceil(self.page_size())).ok_or_else(|| {
            Error::argument(text!(
                "rows[{at}].position_count {} is beyond the row's {} positions",
                asked.positions,
                row.len() * self.page_size()
            ))
        })
    }
}
