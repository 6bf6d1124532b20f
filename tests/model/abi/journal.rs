//! The journal.
use super::{Library, Status, done, sized};
use radixkv::capi::*;
use std::ptr::null_mut;

/// Room for records, and what was read into it.
pub struct Read {
    pub records: Vec<rkv_journal_record>,
    pub pages: Vec<u32>,
    pub tokens: Vec<u32>,
    pub items: Vec<rkv_journal_item>,
}

#[allow(dead_code)] // as below
impl Read {
    /// Room for so many records, pages, tokens and items.
    pub fn new([records, pages, tokens, items]: [u64; 4]) -> Self {
        // SAFETY: plain integers, for which zero is a value.
        let (record, item) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Self {
            records: vec![record; records as usize],
            pages: vec![0; pages as usize],
            tokens: vec![0; tokens as usize],
            items: vec![item; items as usize],
        }
    }

    fn buffers(&mut self) -> rkv_journal_buffers {
        rkv_journal_buffers {
            records: place(&mut self.records),
            record_size: size_of::<rkv_journal_record>(),
            record_capacity: self.records.len(),
            pages: place(&mut self.pages),
            page_capacity: self.pages.len(),
            tokens: place(&mut self.tokens),
            token_capacity: self.tokens.len(),
            items: place(&mut self.items),
            item_size: size_of::<rkv_journal_item>(),
            item_capacity: self.items.len(),
            ..sized()
        }
    }

    fn truncate(&mut self, [records, pages, tokens, items]: [u64; 4]) {
        self.records.truncate(records as usize);
        self.pages.truncate(pages as usize);
        self.tokens.truncate(tokens as usize);
        self.items.truncate(items as usize);
    }

    pub fn pages_of(&self, record: &rkv_journal_record) -> &[u32] {
        &self.pages[record.page_index as usize..][..record.page_count as usize]
    }

    pub fn tokens_of(&self, record: &rkv_journal_record) -> &[u32] {
        &self.tokens[record.token_index as usize..][..record.token_count as usize]
    }

    pub fn items_of(&self, record: &rkv_journal_record) -> &[rkv_journal_item] {
        &self.items[record.item_index as usize..][..record.item_count as usize]
    }
}

/// Where a vector's elements are; NULL for none.
fn place<T>(buffer: &mut [T]) -> *mut T {
    if buffer.is_empty() { null_mut() } else { buffer.as_mut_ptr() }
}

// Every unsafe block has the reason that `mod.rs` gives.
#[allow(dead_code)] // not every test that includes this reads records
impl Library {
    /// Records after a number. There is room for what `into` has room for, and more when the first
    /// one needs it.
    pub fn read_journal(
        &self,
        after: u64,
        into: &mut Read,
    ) -> Result<rkv_cache_read_journal_result, Status> {
        loop {
            let buffers = into.buffers();
            let mut result: rkv_cache_read_journal_result = sized();
            // SAFETY: see above.
            let status = crate::call_sure("rkv_cache_read_journal", Some(self), &mut || unsafe {
                rkv_cache_read_journal(self.cache, after, &buffers, &mut result)
            });
            let counts =
                [result.record_count, result.page_count, result.token_count, result.item_count];
            if status == Status::BufferTooSmall {
                *into = Read::new(counts);
                continue;
            }
            into.truncate(counts);
            return done(status, result);
        }
    }

    /// What is held, from a page on.
    pub fn read_contents(
        &self,
        first_page: u32,
        into: &mut Read,
    ) -> Result<rkv_cache_read_contents_result, Status> {
        loop {
            let buffers = into.buffers();
            let mut result: rkv_cache_read_contents_result = sized();
            // SAFETY: see above.
            let status = crate::call_sure("rkv_cache_read_contents", Some(self), &mut || unsafe {
                rkv_cache_read_contents(self.cache, first_page, &buffers, &mut result)
            });
            let counts =
                [result.record_count, result.page_count, result.token_count, result.item_count];
            if status == Status::BufferTooSmall {
                *into = Read::new(counts);
                continue;
            }
            into.truncate(counts);
            return done(status, result);
        }
    }

    /// The number of the newest record; None without a journal.
    pub fn newest_record(&self) -> Option<u64> {
        let buffers: rkv_journal_buffers = sized();
        let mut result: rkv_cache_read_journal_result = sized();
        // SAFETY: see above.
        let status = unsafe { rkv_cache_read_journal(self.cache, 0, &buffers, &mut result) };
        (status == Status::Ok).then_some(result.newest_number)
    }
}
