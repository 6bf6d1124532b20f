//! Small helpers around the raw calls.
use radixkv::capi::*;
use std::ffi::{CStr, c_char};
use std::ptr;

/// A struct of the ABI that is all zero but for its struct_size.
///
/// # Safety
/// All zero bytes are a T, and its first field is a u32 that holds the size.
pub unsafe trait Sized32: Copy {
    fn sized() -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let mut made = std::mem::zeroed::<Self>();
            (&raw mut made).cast::<u32>().write(size_of::<Self>() as u32);
            made
        }
    }
}

macro_rules! sized {
    ($($name:ty),* $(,)?) => {
        // SAFETY: integers and raw pointers, struct_size first.
        $(unsafe impl Sized32 for $name {})*
    };
}
sized!(
    rkv_runner_append_prefill_args,
    rkv_page_table_batch_arrays,
    rkv_cache_config,
    rkv_cache_read_contents_result,
    rkv_cache_read_journal_result,
    rkv_journal_buffers,
    rkv_cache_stats,
    rkv_sequence_continue_args,
    rkv_sequence_fork_args,
    rkv_cache_clear_args,
    rkv_cache_poll_result,
    rkv_cache_prefetch_result,
    rkv_cache_clear_result,
    rkv_cache_insert_args,
    rkv_cache_insert_result,
    rkv_index_memory_stats,
    rkv_cache_match_result,
    rkv_runner_merge_states_args,
    rkv_namespace,
    rkv_event_batch,
    rkv_event_encoder_config,
    rkv_group_depths,
    rkv_node_info,
    rkv_tokens_page_digests_args,
    rkv_page_table_config,
    rkv_page_table_stats,
    rkv_plan_arrays,
    rkv_plan_group_arrays,
    rkv_plan_capacity,
    rkv_sequence_publish_result,
    rkv_runner_config,
    rkv_runner_stats,
    rkv_sequence_begin_args,
    rkv_sequence_info,
    rkv_pool_stats,
    rkv_remote_store,
    rkv_sequence_fetch_result,
    rkv_shortage,
    rkv_snapshot_cache_config,
    rkv_snapshot_cache_stats,
    rkv_snapshot_cache_insert_args,
    rkv_snapshot_cache_insert_result,
    rkv_snapshot_cache_match_result,
    rkv_snapshot_cache_fetch_result,
    rkv_snapshot_tier_config,
    rkv_snapshot_tier_stats,
    rkv_tier_config,
    rkv_tier_stats,
    rkv_tokens,
);

/// The calling thread's last message.
pub fn last_message() -> String {
    let mut text = [0u8; 512];
    // SAFETY: the buffer has the room that is stated.
    unsafe { rkv_last_error_message(text.as_mut_ptr().cast::<c_char>(), text.len()) };
    CStr::from_bytes_until_nul(&text).unwrap().to_string_lossy().into_owned()
}

/// Panics with the library's message unless the call went well.
#[track_caller]
pub fn ok(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok, "{}", last_message());
}

/// A page table with a cache.
pub struct Pair {
    pub table: *mut rkv_page_table,
    pub cache: *mut rkv_cache,
}

impl Pair {
    pub fn new(config: &rkv_page_table_config, flags: u32, index: u32) -> Self {
        let mut pair = Self { table: ptr::null_mut(), cache: ptr::null_mut() };
        // With a journal the cache proves that it holds what the records said.
        let journal_bytes = 96 << 10;
        let cache_config = rkv_cache_config { flags, index, journal_bytes, ..Sized32::sized() };
        // SAFETY: all pointers lead to live values.
        unsafe {
            ok(rkv_page_table_create(config, &mut pair.table));
            ok(rkv_cache_create(pair.table, &cache_config, &mut pair.cache));
        }
        pair
    }

    /// Every invariant that the library can check itself.
    #[track_caller]
    pub fn check(&self) {
        // SAFETY: both handles are alive.
        unsafe {
            ok(rkv_cache_check(self.cache));
            ok(rkv_page_table_check(self.table));
        }
    }

    pub fn table_stats(&self) -> rkv_page_table_stats {
        let mut stats = rkv_page_table_stats::sized();
        // SAFETY: the handle is alive, the struct has its size.
        ok(unsafe { rkv_page_table_read_stats(self.table, &mut stats) });
        stats
    }

    pub fn cache_stats(&self) -> rkv_cache_stats {
        let mut stats = rkv_cache_stats::sized();
        // SAFETY: the handle is alive, the struct has its size.
        ok(unsafe { rkv_cache_read_stats(self.cache, &mut stats) });
        stats
    }

    pub fn retained(&self) -> Vec<rkv_sequence_id> {
        let mut count = 0;
        // SAFETY: the handle is alive, the buffer has the room that is stated.
        unsafe {
            ok(rkv_cache_read_retained(self.cache, ptr::null_mut(), 0, &mut count));
            let mut ids = vec![0; count];
            ok(rkv_cache_read_retained(self.cache, ids.as_mut_ptr(), count, &mut count));
            ids
        }
    }

    /// The page copy that a sequence waits for; zeros when there is none.
    pub fn copy_of(&self, sequence: rkv_sequence_id) -> rkv_page_copy {
        let mut copy =
            rkv_page_copy { source_page: 0, target_page: 0, position_count: 0, group: 0 };
        let (size, mut count) = (size_of::<rkv_page_copy>(), 0);
        // SAFETY: the handle is alive, all pointers lead to live values.
        ok(unsafe {
            rkv_sequence_read_copies(self.cache, sequence, &mut copy, size, 1, &mut count)
        });
        assert_eq!(count, (copy.position_count > 0) as usize);
        copy
    }

    pub fn row(&self, slot: u32) -> Vec<u32> {
        let mut count = 0;
        // SAFETY: the handle is alive, the buffer has the room that is stated.
        unsafe {
            ok(rkv_page_table_read_row(self.table, slot, 0, ptr::null_mut(), 0, &mut count));
            let mut pages = vec![0; count];
            ok(rkv_page_table_read_row(self.table, slot, 0, pages.as_mut_ptr(), count, &mut count));
            pages
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handles.
        unsafe {
            rkv_cache_destroy(self.cache);
            rkv_page_table_destroy(self.table);
        }
    }
}

/// The shortage behind the last OUT_OF_PAGES.
pub fn last_shortage() -> rkv_shortage {
    let mut shortage = rkv_shortage::sized();
    // SAFETY: the struct has its size.
    ok(unsafe { rkv_last_shortage(&mut shortage) });
    shortage
}

/// The index that a run works with. The last byte chooses, so that inputs which were saved before
/// there was a choice mean what they meant, or the same with the other index.
pub fn index_for(data: &[u8]) -> u32 {
    let odd = data.last().is_some_and(|byte| byte & 1 == 1);
    if odd { RKV_INDEX_BLOCK_HASH } else { RKV_INDEX_RADIX }
}
