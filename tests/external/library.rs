//! The library through its header, as an engine with an external pool uses it.
use super::failing::{Failure, failing};
use radixkv::capi::*;
use std::cell::Cell;
use std::ptr::{null, null_mut};

fn sized<T: Copy>() -> T {
    let mut made = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: called for structs of the header alone: repr(C), plain integers and pointers, for
    // which zero is a value, with struct_size: u32 first.
    unsafe {
        made.as_mut_ptr().cast::<u32>().write(size_of::<T>() as u32);
        made.assume_init()
    }
}

#[track_caller]
fn must(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok);
}

/// A tenant's space.
fn namespace(tenant: u32) -> rkv_namespace {
    rkv_namespace { flags: RKV_NAMESPACE_LORA, lora_id: u64::from(tenant), ..sized() }
}

fn tokens(ids: &[u32]) -> rkv_tokens {
    rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
}

/// A lock of a match.
pub struct Lock(rkv_node_id);

pub struct Match {
    pub pages: Vec<u32>,
    pub partial_page: Option<u32>,
    pub node: rkv_node_id,
    pub tokens: u64,
    pub lock: Option<Lock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub cached: usize,
    pub outside: usize,
    pub reclaimable: usize,
}

/// A record of the journal.
pub struct Record {
    pub stored: bool,
    pub reason: u32,
    pub tenant: u32,
    pub parent: u32,
    pub pages: Vec<u32>,
    pub tokens: Vec<u32>,
}

/// What an insert is given, beside its tokens.
#[derive(Debug, Clone, Copy, Default)]
pub struct From {
    pub node: rkv_node_id,
    pub tokens: u64,
    pub pages: u64,
}

pub struct Library {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
    page_size: usize,
    index: u32,
    failures: bool,
    /// Calls that were refused for want of memory.
    pub out_of_memory: Cell<u64>,
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: both were created by this object, which is their last user.
        unsafe {
            rkv_cache_destroy(self.cache);
            rkv_page_table_destroy(self.table);
        }
    }
}

// Every block below has this reason: the handles live as long as the object, each pointer comes
// from a reference or from a slice with its length, and the library keeps none of them.
impl Library {
    pub fn new(page_size: u32, page_count: u32, block_hash: bool, failures: bool) -> Self {
        let config = rkv_page_table_config {
            page_size,
            page_count: page_count + 1,
            flags: RKV_PAGE_TABLE_EXTERNAL_POOL,
            ..sized()
        };
        let index = if block_hash { RKV_INDEX_BLOCK_HASH } else { RKV_INDEX_RADIX };
        let mut table = null_mut();
        // SAFETY: see above.
        must(unsafe { rkv_page_table_create(&config, &mut table) });
        let (cache, page_size) = (null_mut(), page_size as usize);
        let mut made =
            Self { table, cache, page_size, index, failures, out_of_memory: Cell::new(0) };
        made.create_cache();
        made
    }

    fn create_cache(&mut self) {
        let config = rkv_cache_config { index: self.index, journal_bytes: 1 << 18, ..sized() };
        // SAFETY: see above.
        must(unsafe { rkv_cache_create(self.table, &config, &mut self.cache) });
    }

    pub fn restart_cache(&mut self) {
        // SAFETY: see above.
        unsafe { rkv_cache_destroy(self.cache) };
        self.cache = null_mut();
    }

    pub fn start_cache(&mut self) {
        self.create_cache();
    }

    /// Makes a call; with failures again and again, with one more of its requests for memory
    /// granted each time.
    fn call(&self, made: &mut dyn FnMut() -> rkv_status) -> rkv_status {
        if !self.failures {
            return made();
        }
        let before = self.look();
        for request in 0.. {
            for failure in [Failure::From(request), Failure::Once(request)] {
                let (status, failed) = failing(failure, &mut *made);
                if status != rkv_status::OutOfMemory {
                    return status;
                }
                assert!(failed > 0, "there was memory");
                assert_eq!(self.look(), before, "a call without memory changed something");
                self.out_of_memory.set(self.out_of_memory.get() + 1);
            }
        }
        unreachable!("a call ends")
    }

    /// Everything that a refused call could have changed.
    fn look(&self) -> (Vec<u8>, Counts, u64) {
        self.check();
        let mut bytes = 0;
        let mut text = Vec::new();
        // SAFETY: see above.
        unsafe {
            must(rkv_cache_dump(self.cache, RKV_DUMP_JSON, null_mut(), 0, &mut bytes));
            text.resize(bytes, 0);
            let into = text.as_mut_ptr().cast();
            must(rkv_cache_dump(self.cache, RKV_DUMP_JSON, into, bytes, &mut bytes));
        }
        (text, self.counts(), self.read_journal(0, &sized()).newest_number)
    }

    pub fn lookup(&self, tenant: u32, ids: &[u32], lock: bool) -> Match {
        let (space, list) = (namespace(tenant), tokens(ids));
        let mut pages = vec![0; ids.len() / self.page_size + 1];
        let mut found: rkv_cache_match_result = sized();
        let flags = if lock { RKV_MATCH_LOCK } else { 0 };
        // SAFETY: see above.
        must(self.call(&mut || unsafe {
            let (into, room) = (pages.as_mut_ptr(), pages.len());
            rkv_cache_match(self.cache, &space, &list, flags, into, room, &mut found)
        }));
        pages.truncate(found.page_count as usize);
        let partial_page = (found.partial_position_count > 0).then_some(found.partial_page);
        let lock = (lock && found.lock != 0).then_some(Lock(found.lock));
        Match { pages, partial_page, node: found.node, tokens: found.token_count, lock }
    }

    pub fn unlock(&self, lock: Lock) {
        // SAFETY: see above.
        must(unsafe { rkv_cache_unlock(self.cache, lock.0) });
    }

    pub fn probe(&self, tenant: u32, ids: &[u32]) -> usize {
        let (space, list, mut positions) = (namespace(tenant), tokens(ids), 0);
        // SAFETY: see above.
        must(self.call(&mut || unsafe {
            rkv_cache_probe(self.cache, &space, &list, null_mut(), &mut positions)
        }));
        positions
    }

    /// Which pages are published then, how many were claimed, how many are duplicates. None when a
    /// page was refused.
    pub fn insert(
        &self,
        tenant: u32,
        ids: &[u32],
        pages: &[u32],
        from: From,
    ) -> Option<(Vec<u32>, usize, usize)> {
        let (space, list) = (namespace(tenant), tokens(ids));
        let args = rkv_cache_insert_args {
            space: &space,
            tokens: &list,
            pages: pages.as_ptr(),
            page_count: pages.len(),
            from_node: from.node,
            from_token_index: from.tokens,
            from_page_index: from.pages,
            ..sized()
        };
        let mut published = vec![u32::MAX; pages.len()];
        let mut result: rkv_cache_insert_result = sized();
        // SAFETY: see above.
        let status = self.call(&mut || unsafe {
            rkv_cache_insert(self.cache, &args, published.as_mut_ptr(), &mut result)
        });
        if status == rkv_status::InvalidArgument {
            assert!(published.iter().all(|&page| page == u32::MAX), "it was refused");
            return None;
        }
        must(status);
        Some((published, result.claimed_page_count as usize, result.duplicate_page_count as usize))
    }

    /// The pages that were given up, of which there are no more than asked.
    pub fn evict(&self, count: usize) -> Vec<u32> {
        let (mut pages, mut evicted) = (vec![0; count], 0);
        // SAFETY: see above.
        must(self.call(&mut || unsafe {
            rkv_cache_evict(self.cache, count, pages.as_mut_ptr(), count, &mut evicted)
        }));
        pages.truncate(evicted);
        pages
    }

    pub fn contains(&self, page: u32) -> bool {
        let mut contains = false;
        // SAFETY: see above.
        must(unsafe { rkv_cache_contains_page(self.cache, page, &mut contains) });
        contains
    }

    pub fn counts(&self) -> Counts {
        let stats = self.stats();
        assert_eq!((stats.free_page_count, stats.private_page_count), (0, 0));
        assert_eq!(stats.cached_page_count + stats.outside_page_count, stats.total_page_count);
        Counts {
            cached: stats.cached_page_count as usize,
            outside: stats.outside_page_count as usize,
            reclaimable: stats.reclaimable_page_count as usize,
        }
    }

    fn stats(&self) -> rkv_page_table_stats {
        let mut stats = sized();
        // SAFETY: see above.
        must(unsafe { rkv_page_table_read_stats(self.table, &mut stats) });
        stats
    }

    pub fn counted_bytes(&self) -> usize {
        let mut cache: rkv_cache_stats = sized();
        // SAFETY: see above.
        must(unsafe { rkv_cache_read_stats(self.cache, &mut cache) });
        (self.stats().memory_bytes + cache.index_bytes) as usize
    }

    pub fn check(&self) {
        // SAFETY: see above.
        unsafe {
            must(rkv_page_table_check(self.table));
            if !self.cache.is_null() {
                must(rkv_cache_check(self.cache));
            }
        }
    }

    /// Records after a number, with that of the last. They are those of the page table, so they
    /// can be read when the cache is gone.
    pub fn read(&self, after: u64) -> (Vec<Record>, u64) {
        let mut buffers = rkv_journal_buffers {
            record_size: size_of::<rkv_journal_record>(),
            item_size: size_of::<rkv_journal_item>(),
            ..sized()
        };
        let room = self.read_journal(after, &buffers);
        assert_eq!(room.lost_count, 0, "the ring is large enough");
        let mut records = Vec::with_capacity(room.record_count as usize);
        let mut pages = vec![0; room.page_count as usize];
        let mut ids = vec![0; room.token_count as usize];
        buffers.records = records.as_mut_ptr();
        buffers.record_capacity = records.capacity();
        (buffers.pages, buffers.page_capacity) = (pages.as_mut_ptr(), pages.len());
        (buffers.tokens, buffers.token_capacity) = (ids.as_mut_ptr(), ids.len());
        if room.record_count > 0 {
            let read = self.read_journal(after, &buffers);
            assert_eq!(read.record_count, room.record_count, "what was asked for is read");
            // SAFETY: so many were written.
            unsafe { records.set_len(read.record_count as usize) };
        }
        let part =
            |list: &[u32], at: u64, count: u64| list[at as usize..][..count as usize].to_vec();
        let told = records.iter().map(|record: &rkv_journal_record| Record {
            stored: record.kind == RKV_JOURNAL_STORED,
            reason: record.reason,
            tenant: record.lora_id as u32,
            parent: record.parent_page,
            pages: part(&pages, record.page_index, record.page_count),
            tokens: part(&ids, record.token_index, record.token_count),
        });
        (told.collect(), room.newest_number)
    }

    fn read_journal(
        &self,
        after: u64,
        buffers: &rkv_journal_buffers,
    ) -> rkv_cache_read_journal_result {
        let mut result = sized();
        // SAFETY: see above.
        must(unsafe { rkv_page_table_read_journal(self.table, after, buffers, &mut result) });
        result
    }

    /// What is refused whatever the state is: nothing would say where pages go.
    pub fn check_refusals(&self, ids: &[u32], pages: &[u32]) {
        let (list, mut count, mut result) = (tokens(ids), 0, sized());
        let args = rkv_cache_insert_args {
            tokens: &list,
            pages: pages.as_ptr(),
            page_count: pages.len(),
            ..sized()
        };
        let mut page = 0;
        // SAFETY: see above.
        unsafe {
            let status = rkv_cache_evict(self.cache, 1, null_mut(), 0, &mut count);
            assert_eq!(status, rkv_status::InvalidArgument);
            let status = rkv_cache_insert(self.cache, &args, null_mut(), &mut result);
            assert_eq!(status, rkv_status::InvalidArgument);
            let status = rkv_page_table_allocate_pages(self.table, 1, &mut page);
            assert_eq!(status, rkv_status::Unsupported);
            let begin = rkv_sequence_begin_args { tokens: &list, space: null(), ..sized() };
            let status = rkv_sequence_begin(self.cache, &begin, &mut sized());
            assert_eq!(status, rkv_status::Unsupported);
        }
    }
}
