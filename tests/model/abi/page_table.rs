//! Page tables.
use super::{Library, Status, done, sized};
use radixkv::capi::*;

// Every unsafe block has the reason that `mod.rs` gives.
impl Library {
    pub fn table_stats(&self) -> Result<rkv_page_table_stats, Status> {
        let mut stats = sized();
        // SAFETY: see above.
        let status = crate::call_sure("rkv_page_table_read_stats", Some(self), &mut || unsafe {
            rkv_page_table_read_stats(self.table, &mut stats)
        });
        done(status, ())?;
        Ok(stats)
    }

    pub fn allocate_slot(&self) -> Result<u32, Status> {
        let mut slot = u32::MAX;
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_allocate_slot", Some(self), &mut || unsafe {
            rkv_page_table_allocate_slot(self.table, &mut slot)
        });
        done(status, slot)
    }

    pub fn erase(&self, slot: u32) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call_sure("rkv_page_table_free_slot", Some(self), &mut || unsafe {
            rkv_page_table_free_slot(self.table, slot)
        });
        done(status, ())
    }

    pub fn allocate_pages(&self, count: usize) -> Result<Vec<u32>, Status> {
        let mut pages = vec![0; count];
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_allocate_pages", Some(self), &mut || unsafe {
            rkv_page_table_allocate_pages(self.table, count, pages.as_mut_ptr())
        });
        done(status, pages)
    }

    pub fn free_pages(&self, pages: &[u32]) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call_sure("rkv_page_table_free_pages", Some(self), &mut || unsafe {
            rkv_page_table_free_pages(self.table, pages.as_ptr(), pages.len())
        });
        done(status, ())
    }

    pub fn map(&self, slot: u32, first: usize, pages: &[u32]) -> Result<(), Status> {
        let (data, len) = (pages.as_ptr(), pages.len());
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_map", Some(self), &mut || unsafe {
            rkv_page_table_map(self.table, slot, first, data, len)
        });
        done(status, ())
    }

    pub fn reserve(&self, slot: u32, positions: usize) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_reserve", Some(self), &mut || unsafe {
            rkv_page_table_reserve(self.table, slot, positions)
        });
        done(status, ())
    }

    pub fn can_reserve(&self, slot: Option<u32>, positions: usize) -> Result<bool, Status> {
        let mut can = false;
        let slot = slot.unwrap_or(RKV_NO_SLOT);
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_can_reserve", Some(self), &mut || unsafe {
            rkv_page_table_can_reserve(self.table, slot, positions, &mut can)
        });
        done(status, can)
    }

    pub fn capacity(&self, slot: u32) -> Result<usize, Status> {
        let mut positions = 0;
        // SAFETY: see above.
        let status = crate::call_sure("rkv_page_table_row_capacity", Some(self), &mut || unsafe {
            rkv_page_table_row_capacity(self.table, slot, &mut positions)
        });
        done(status, positions)
    }

    pub fn row(&self, slot: u32, first: usize) -> Result<Vec<u32>, Status> {
        let mut pages = vec![0; 64];
        let mut count = 0;
        loop {
            let (data, room) = (pages.as_mut_ptr(), pages.len());
            // SAFETY: see above.
            let status = crate::call("rkv_page_table_read_row", Some(self), &mut || unsafe {
                rkv_page_table_read_row(self.table, slot, first, data, room, &mut count)
            });
            if status != Status::BufferTooSmall {
                pages.truncate(count);
                return done(status, pages);
            }
            pages.resize(count, 0);
        }
    }

    pub fn slot_mapping(&self, slot: u32, positions: &[u64]) -> Result<Vec<i64>, Status> {
        let mut mapping = vec![i64::MIN; positions.len()];
        let (data, into) = (positions.as_ptr(), mapping.as_mut_ptr());
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_read_slot_mapping", Some(self), &mut || unsafe {
            rkv_page_table_read_slot_mapping(self.table, slot, data, positions.len(), into)
        });
        done(status, mapping)
    }

    /// indptr, indices and last_page_len of (slot, positions) pairs.
    pub fn batch(&self, rows: &[(u32, usize)], room: usize) -> Result<[Vec<i32>; 3], Status> {
        let rows: Vec<_> = rows
            .iter()
            .map(|&(slot, positions)| rkv_page_table_batch_row {
                slot,
                position_count: positions as u32,
            })
            .collect();
        let mut indptr = vec![-1; rows.len() + 1];
        let mut indices = vec![-1; room];
        let mut last_page_len = vec![-1; rows.len()];
        let arrays = rkv_page_table_batch_arrays {
            indptr: indptr.as_mut_ptr(),
            indices: indices.as_mut_ptr(), // Not NULL, which would ask for the count alone.
            indices_capacity: room,
            last_page_len: last_page_len.as_mut_ptr(),
            ..sized()
        };
        let mut count = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_read_batch", Some(self), &mut || unsafe {
            rkv_page_table_read_batch(
                self.table,
                rows.as_ptr(),
                rows.len(),
                size_of::<rkv_page_table_batch_row>(),
                &arrays,
                &mut count,
            )
        });
        indices.truncate(count);
        done(status, [indptr, indices, last_page_len])
    }

    pub fn audit(&self) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_check", Some(self), &mut || unsafe {
            rkv_page_table_check(self.table)
        });
        done(status, ())
    }

    // The cache.
}
