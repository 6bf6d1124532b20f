//! The library, through its C ABI: one request after another, whole pages only.

use std::ptr::{null, null_mut};

use radixkv::capi::*;

use crate::block_lru::BlockLru;

/// A page table and a cache of whole pages on it.
pub struct Library {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
}

#[track_caller]
fn ok(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok);
}

/// A struct of the ABI, zero but for its struct_size.
macro_rules! abi {
    ($name:ident { $($field:ident: $value:expr),* $(,)? }) => {
        $name {
            struct_size: size_of::<$name>() as u32,
            $($field: $value,)*
            ..zero()
        }
    };
}

/// For the structs of the ABI only.
fn zero<T: Copy>() -> T {
    // SAFETY: they hold integers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

fn token_list(ids: &[u32]) -> rkv_tokens {
    abi!(rkv_tokens { ids: ids.as_ptr(), count: ids.len() })
}

impl Library {
    pub fn new(index: u32, page_size: usize, page_count: usize) -> Self {
        let table_config = abi!(rkv_page_table_config {
            page_size: page_size as u32,
            page_count: page_count as u32 + 1, // page 0 is reserved
            slot_count: 1,
        });
        let cache_config = abi!(rkv_cache_config { flags: RKV_CACHE_WHOLE_PAGES, index: index });
        let mut new = Self { table: null_mut(), cache: null_mut() };
        // SAFETY: valid configs and out pointers.
        unsafe {
            ok(rkv_page_table_create(&table_config, &mut new.table));
            ok(rkv_cache_create(new.table, &cache_config, &mut new.cache));
        }
        new
    }

    /// The pages hit by `match`; the others are allocated and inserted. `pages` is scratch space
    /// with an entry for each page. `None` where the allocation was refused.
    pub fn match_and_insert(&self, tokens: &[u32], pages: &mut [u32]) -> Option<usize> {
        let list = token_list(tokens);
        let mut matched = abi!(rkv_cache_match_result {});
        let mut result = abi!(rkv_cache_insert_result {});
        let (cache, flags) = (self.cache, RKV_MATCH_LOCK);
        let (buffer, capacity) = (pages.as_mut_ptr(), pages.len());
        // SAFETY: the lists and buffers outlive the calls; `pages` has room for every page.
        unsafe {
            ok(rkv_cache_match(cache, null(), &list, flags, buffer, capacity, &mut matched));
            let hit = matched.page_count as usize;
            assert_eq!(matched.partial_position_count, 0);
            let new = &mut pages[hit..];
            let status = rkv_page_table_allocate_pages(self.table, new.len(), new.as_mut_ptr());
            if status == rkv_status::Ok {
                let args = abi!(rkv_cache_insert_args {
                    tokens: &list,
                    pages: pages.as_ptr(),
                    page_count: pages.len(),
                    from_node: matched.node,
                    from_token_index: matched.token_count,
                    from_page_index: matched.page_count,
                });
                ok(rkv_cache_insert(cache, &args, null_mut(), &mut result));
                assert_eq!(result.claimed_page_count as usize, pages.len() - hit);
            } else {
                assert_eq!(status, rkv_status::OutOfPages);
            }
            if matched.lock != 0 {
                ok(rkv_cache_unlock(cache, matched.lock));
            }
            (status == rkv_status::Ok).then_some(hit)
        }
    }

    /// The pages reused by `begin`; the prompt is published in two chunks, the sequence released.
    pub fn begin_to_release(&self, tokens: &[u32], page_size: usize) -> Option<usize> {
        let list = token_list(tokens);
        let args = abi!(rkv_sequence_begin_args { tokens: &list });
        let mut state = abi!(rkv_sequence_info {});
        let mut result = abi!(rkv_sequence_publish_result {});
        // SAFETY: the structs and the tokens outlive the calls.
        unsafe {
            match rkv_sequence_begin(self.cache, &args, &mut state) {
                // A prompt longer than the pool is longer than a row may be.
                rkv_status::OutOfPages | rkv_status::InvalidArgument => return None,
                status => ok(status),
            }
            let (cached, total) = (state.cached_position_count, tokens.len() as u64);
            for computed in [cached + (total - cached) / 2, total] {
                ok(rkv_sequence_publish(self.cache, state.sequence, computed, &mut result));
            }
            assert_eq!(result.shared_page_count, total / page_size as u64);
            ok(rkv_sequence_release(self.cache, state.sequence));
            assert_eq!(cached % page_size as u64, 0, "whole pages only");
        }
        Some(state.cached_position_count as usize / page_size)
    }

    /// Checks every invariant at the end of a run and returns the pages evicted.
    pub fn finish(self, reference: &BlockLru) -> usize {
        let mut stats = abi!(rkv_cache_stats {});
        // SAFETY: live handles, not used after they are destroyed.
        unsafe {
            ok(rkv_cache_check(self.cache));
            ok(rkv_page_table_check(self.table));
            ok(rkv_cache_read_stats(self.cache, &mut stats));
            rkv_cache_destroy(self.cache);
            rkv_page_table_destroy(self.table);
        }
        assert_eq!(stats.cached_page_count as usize, reference.len);
        assert_eq!(stats.reclaimable_page_count, stats.cached_page_count);
        stats.evicted_page_count as usize
    }
}
