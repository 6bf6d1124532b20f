//! The C ABI with Rust's manners: slices in, results out, nothing interpreted.
mod cache;
mod journal;
pub mod many;
mod page_table;
mod sequence;

use super::ops::Config;
use super::tokens::TokenList;
#[allow(unused_imports)] // not every test that includes this reads records
pub use journal::Read;
use radixkv::capi::*;
use std::cell::Cell;
use std::ptr::null_mut;

pub type Status = rkv_status;

/// A struct of the header, zero but for its size.
pub fn sized<T: Copy>() -> T {
    let mut made = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: called for structs of the header alone: repr(C), plain integers and pointers, for
    // which zero is a value, with struct_size: u32 first.
    unsafe {
        made.as_mut_ptr().cast::<u32>().write(size_of::<T>() as u32);
        made.assume_init()
    }
}

pub fn done<T>(status: Status, value: T) -> Result<T, Status> {
    if status == Status::Ok { Ok(value) } else { Err(status) }
}

/// What an insert is made of.
pub struct InsertCall<'a> {
    pub ns: u8,
    pub tokens: &'a TokenList,
    pub pages: &'a [u32],
    pub from_node: u64,
    pub from_token_index: usize,
    pub from_page_index: usize,
}

/// A page table and its cache.
pub struct Library {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
    cache_config: rkv_cache_config,
    /// Calls that could have gone by a batch verb.
    calls: Cell<u32>,
    /// Calls over many items.
    batches: Cell<u32>,
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: both were created by this object, which is their last user.
        unsafe {
            rkv_page_table_destroy(self.table);
            rkv_cache_destroy(self.cache);
        }
    }
}

// Every block below has this reason: the handles live as long as the object, each pointer comes
// from a reference or from a slice with its length, and the library keeps none of them.
impl Library {
    pub fn new(config: &Config) -> Result<Library, Status> {
        let mut raw: rkv_page_table_config = sized();
        raw.page_size = config.page_size as u32;
        raw.page_count = config.page_count as u32;
        raw.slot_count = config.slot_count as u32;
        raw.row_page_limit = config.row_page_limit as u32;
        let mut table = null_mut();
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_create", None, &mut || unsafe {
            rkv_page_table_create(&raw, &mut table)
        });
        done(status, ())?;
        let cache_config = rkv_cache_config {
            flags: if config.whole_pages { RKV_CACHE_WHOLE_PAGES } else { 0 },
            index: if config.block_hash { RKV_INDEX_BLOCK_HASH } else { RKV_INDEX_RADIX },
            retained_sequence_limit: config.retained_sequences as u32,
            retained_page_limit: config.retained_pages as u32,
            journal_bytes: config.journal_bytes as u64,
            ..sized()
        };
        let (cache, calls, batches) = (null_mut(), Cell::new(0), Cell::new(0));
        let mut library = Library { table, cache, cache_config, calls, batches };
        library.create_cache()?;
        Ok(library)
    }

    /// Calls over many items so far.
    #[allow(dead_code)] // as above
    pub fn batches(&self) -> u32 {
        self.batches.get()
    }

    /// J03: whether a call goes by its batch verb this time, alone. What comes of it must be what
    /// comes of the single call.
    fn in_batch(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        self.calls.get().is_multiple_of(2)
    }

    fn create_cache(&mut self) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call("rkv_cache_create", None, &mut || unsafe {
            rkv_cache_create(self.table, &self.cache_config, &mut self.cache)
        });
        done(status, ())
    }

    pub fn recreate_cache(&mut self) -> Result<(), Status> {
        // SAFETY: see above; the handle is replaced at once.
        unsafe { rkv_cache_destroy(std::mem::replace(&mut self.cache, null_mut())) };
        self.create_cache()
    }

    /// Creates a page table and a cache, and destroys them.
    #[allow(dead_code)] // not every test that includes this does
    pub fn create_and_destroy(block_hash: bool, journal: bool) -> Status {
        let mut config: rkv_page_table_config = sized();
        (config.page_size, config.page_count, config.slot_count) = (4, 20, 3);
        let (mut table, mut cache) = (null_mut(), null_mut());
        // SAFETY: see above.
        unsafe {
            let status = rkv_page_table_create(&config, &mut table);
            if status != Status::Ok {
                return status;
            }
            let index = if block_hash { RKV_INDEX_BLOCK_HASH } else { RKV_INDEX_RADIX };
            let journal_bytes = if journal { 4096 } else { 0 };
            let config = rkv_cache_config { index, journal_bytes, ..sized() };
            let status = rkv_cache_create(table, &config, &mut cache);
            rkv_cache_destroy(cache);
            rkv_page_table_destroy(table);
            status
        }
    }

    /// Whether the page table and the cache are there.
    #[allow(dead_code)] // as above
    pub fn is_whole(&self) -> bool {
        !self.table.is_null() && !self.cache.is_null()
    }

    /// The tree as text.
    #[allow(dead_code)] // as above
    pub fn dump(&self) -> String {
        let mut bytes = 0;
        // SAFETY: see above.
        unsafe {
            let (cache, format) = (self.cache, RKV_DUMP_JSON);
            done(rkv_cache_dump(cache, format, null_mut(), 0, &mut bytes), ()).unwrap();
            let mut text = vec![0_u8; bytes];
            let into = text.as_mut_ptr().cast();
            done(rkv_cache_dump(cache, format, into, bytes, &mut bytes), ()).unwrap();
            String::from_utf8(text).unwrap()
        }
    }

    pub fn last_message() -> String {
        let mut text = [0u8; 256];
        // SAFETY: see above.
        unsafe { rkv_last_error_message(text.as_mut_ptr().cast(), text.len()) };
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        String::from_utf8_lossy(&text[..end]).into_owned()
    }

    pub fn last_shortage() -> Result<rkv_shortage, Status> {
        let mut shortage = sized();
        // SAFETY: see above.
        let status = crate::call("rkv_last_shortage", None, &mut || unsafe {
            rkv_last_shortage(&mut shortage)
        });
        done(status, ())?;
        Ok(shortage)
    }

    // The page table.
}
