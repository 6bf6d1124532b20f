//! The C ABI with Rust's manners: slices in, results out, nothing interpreted.
use super::namespaces::namespace;
use super::ops::Config;
use super::tokens::TokenList;
use radixkv::capi::*;
use std::ptr::{null, null_mut};

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
        done(
            crate::call("rkv_page_table_create", None, &mut || unsafe {
                rkv_page_table_create(&raw, &mut table)
            }),
            (),
        )?;
        let cache_config = rkv_cache_config {
            flags: if config.whole_pages { RKV_CACHE_WHOLE_PAGES } else { 0 },
            index: if config.block_hash { RKV_INDEX_BLOCK_HASH } else { RKV_INDEX_RADIX },
            retained_sequence_limit: config.retained_sequences as u32,
            retained_page_limit: config.retained_pages as u32,
            ..sized()
        };
        let mut library = Library { table, cache: null_mut(), cache_config };
        library.create_cache()?;
        Ok(library)
    }

    fn create_cache(&mut self) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call("rkv_cache_create", None, &mut || unsafe {
                rkv_cache_create(self.table, &self.cache_config, &mut self.cache)
            }),
            (),
        )
    }

    pub fn recreate_cache(&mut self) -> Result<(), Status> {
        // SAFETY: see above; the handle is replaced at once.
        unsafe { rkv_cache_destroy(std::mem::replace(&mut self.cache, null_mut())) };
        self.create_cache()
    }

    /// Creates a page table and a cache, and destroys them.
    #[allow(dead_code)] // not every test that includes this does
    pub fn create_and_destroy(block_hash: bool) -> Status {
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
            let config = rkv_cache_config { index, ..sized() };
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
        done(
            crate::call("rkv_last_shortage", None, &mut || unsafe {
                rkv_last_shortage(&mut shortage)
            }),
            (),
        )?;
        Ok(shortage)
    }

    // The page table.

    pub fn table_stats(&self) -> Result<rkv_page_table_statistics, Status> {
        let mut stats = sized();
        // SAFETY: see above.
        done(
            crate::call_sure("rkv_page_table_stats", Some(self), &mut || unsafe {
                rkv_page_table_stats(self.table, &mut stats)
            }),
            (),
        )?;
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
        done(
            crate::call_sure("rkv_page_table_erase", Some(self), &mut || unsafe {
                rkv_page_table_erase(self.table, slot)
            }),
            (),
        )
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
        done(
            crate::call_sure("rkv_page_table_free_pages", Some(self), &mut || unsafe {
                rkv_page_table_free_pages(self.table, pages.as_ptr(), pages.len())
            }),
            (),
        )
    }

    pub fn map(&self, slot: u32, first: usize, pages: &[u32]) -> Result<(), Status> {
        let (data, len) = (pages.as_ptr(), pages.len());
        // SAFETY: see above.
        done(
            crate::call("rkv_page_table_map", Some(self), &mut || unsafe {
                rkv_page_table_map(self.table, slot, first, data, len)
            }),
            (),
        )
    }

    pub fn reserve(&self, slot: u32, positions: usize) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call("rkv_page_table_reserve", Some(self), &mut || unsafe {
                rkv_page_table_reserve(self.table, slot, positions)
            }),
            (),
        )
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
        let status = crate::call_sure("rkv_page_table_capacity", Some(self), &mut || unsafe {
            rkv_page_table_capacity(self.table, slot, &mut positions)
        });
        done(status, positions)
    }

    pub fn row(&self, slot: u32, first: usize) -> Result<Vec<u32>, Status> {
        let mut pages = vec![0; 64];
        let mut count = 0;
        loop {
            let (data, room) = (pages.as_mut_ptr(), pages.len());
            // SAFETY: see above.
            let status = crate::call("rkv_page_table_row", Some(self), &mut || unsafe {
                rkv_page_table_row(self.table, slot, first, data, room, &mut count)
            });
            done(status, ())?;
            if count <= room {
                pages.truncate(count);
                return Ok(pages);
            }
            pages.resize(count, 0);
        }
    }

    pub fn slot_mapping(&self, slot: u32, positions: &[u64]) -> Result<Vec<i64>, Status> {
        let mut mapping = vec![i64::MIN; positions.len()];
        let (data, into) = (positions.as_ptr(), mapping.as_mut_ptr());
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_slot_mapping", Some(self), &mut || unsafe {
            rkv_page_table_slot_mapping(self.table, slot, data, positions.len(), into)
        });
        done(status, mapping)
    }

    /// indptr, indices and last_page_len of (slot, positions) pairs.
    pub fn batch(&self, rows: &[(u32, usize)], room: usize) -> Result<[Vec<i32>; 3], Status> {
        let rows: Vec<_> = rows
            .iter()
            .map(|&(slot, positions)| rkv_batch_row { slot, position_count: positions as u32 })
            .collect();
        let mut indptr = vec![-1; rows.len() + 1];
        let mut indices = vec![-1; room];
        let mut last_page_len = vec![-1; rows.len()];
        let arrays = rkv_batch_arrays {
            indptr: indptr.as_mut_ptr(),
            indices: indices.as_mut_ptr(), // Not NULL, which would ask for the count alone.
            indices_capacity: room,
            last_page_len: last_page_len.as_mut_ptr(),
            ..sized()
        };
        let mut count = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_page_table_batch", Some(self), &mut || unsafe {
            rkv_page_table_batch(self.table, rows.as_ptr(), rows.len(), &arrays, &mut count)
        });
        indices.truncate(count);
        done(status, [indptr, indices, last_page_len])
    }

    pub fn audit(&self) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call("rkv_page_table_audit", Some(self), &mut || unsafe {
                rkv_page_table_audit(self.table)
            }),
            (),
        )
    }

    // The cache.

    /// The match and its pages, with room for `room` pages.
    pub fn lookup(
        &self,
        ns: u8,
        tokens: &TokenList,
        lock: bool,
        room: usize,
    ) -> (Status, rkv_match, Vec<u32>) {
        let mut pages = vec![0; room];
        let mut found: rkv_match = sized();
        let namespace = namespace(ns);
        let namespace = namespace.as_ref().map_or(null(), std::ptr::from_ref);
        let flags = if lock { RKV_MATCH_LOCK } else { 0 };
        let into = if room == 0 { null_mut() } else { pages.as_mut_ptr() };
        let tokens = tokens.raw();
        // SAFETY: see above.
        let status = crate::call("rkv_cache_match", Some(self), &mut || unsafe {
            rkv_cache_match(self.cache, namespace, &tokens, flags, into, room, &mut found)
        });
        (status, found, pages)
    }

    pub fn probe(&self, ns: u8, tokens: &TokenList) -> Result<(usize, usize), Status> {
        let namespace = namespace(ns);
        let namespace = namespace.as_ref().map_or(null(), std::ptr::from_ref);
        let (mut count, mut positions) = (usize::MAX, usize::MAX);
        // SAFETY: see above.
        let status = crate::call("rkv_cache_probe", Some(self), &mut || unsafe {
            rkv_cache_probe(self.cache, namespace, &tokens.raw(), &mut count, &mut positions)
        });
        done(status, (count, positions))
    }

    pub fn insert(&self, call: &InsertCall) -> Result<(rkv_insert_result, Vec<u32>), Status> {
        let namespace = namespace(call.ns);
        let tokens = call.tokens.raw();
        let args = rkv_insert_args {
            namespace_: namespace.as_ref().map_or(null(), std::ptr::from_ref),
            tokens: &tokens,
            pages: call.pages.as_ptr(),
            page_count: call.pages.len(),
            from_node: call.from_node,
            from_token_index: call.from_token_index as u64,
            from_page_index: call.from_page_index as u64,
            ..sized()
        };
        let mut published = vec![u32::MAX; call.pages.len()];
        let mut result = sized();
        // SAFETY: see above.
        let status = crate::call("rkv_cache_insert", Some(self), &mut || unsafe {
            rkv_cache_insert(self.cache, &args, published.as_mut_ptr(), &mut result)
        });
        done(status, (result, published))
    }

    pub fn lock(&self, node: u64) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call("rkv_cache_lock", Some(self), &mut || unsafe {
                rkv_cache_lock(self.cache, node)
            }),
            (),
        )
    }

    pub fn unlock(&self, node: u64) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call_sure("rkv_cache_unlock", Some(self), &mut || unsafe {
                rkv_cache_unlock(self.cache, node)
            }),
            (),
        )
    }

    /// The number of evicted pages, and the pages when there is room for some.
    pub fn evict(&self, count: usize, room: Option<usize>) -> Result<(usize, Vec<u32>), Status> {
        let mut pages = vec![0; room.unwrap_or(0).max(1)];
        let into = if room.is_some() { pages.as_mut_ptr() } else { null_mut() };
        let mut evicted = 0;
        // SAFETY: see above.
        let status = crate::call_sure("rkv_cache_evict", Some(self), &mut || unsafe {
            rkv_cache_evict(self.cache, count, into, room.unwrap_or(0), &mut evicted)
        });
        pages.truncate(if room.is_some() { evicted } else { 0 });
        done(status, (evicted, pages))
    }

    pub fn contains_page(&self, page: u32) -> Result<bool, Status> {
        let mut contains = false;
        // SAFETY: see above.
        let status = crate::call("rkv_cache_contains_page", Some(self), &mut || unsafe {
            rkv_cache_contains_page(self.cache, page, &mut contains)
        });
        done(status, contains)
    }

    pub fn node_info(&self, node: u64) -> Result<rkv_node_info, Status> {
        let mut info = sized();
        // SAFETY: see above.
        done(
            crate::call("rkv_cache_node_info", Some(self), &mut || unsafe {
                rkv_cache_node_info(self.cache, node, &mut info)
            }),
            (),
        )?;
        Ok(info)
    }

    pub fn node_pages(&self, node: u64, count: usize) -> Result<Vec<u32>, Status> {
        let mut pages = vec![0; count.max(1)];
        let mut written = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_cache_node_pages", Some(self), &mut || unsafe {
            rkv_cache_node_pages(self.cache, node, pages.as_mut_ptr(), count, &mut written)
        });
        pages.truncate(written);
        done(status, pages)
    }

    pub fn node_children(&self, node: u64, count: usize) -> Result<Vec<u64>, Status> {
        let mut children = vec![0; count.max(1)];
        let mut written = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_cache_node_children", Some(self), &mut || unsafe {
            rkv_cache_node_children(self.cache, node, children.as_mut_ptr(), count, &mut written)
        });
        children.truncate(written);
        done(status, children)
    }

    pub fn stats(&self) -> Result<rkv_cache_statistics, Status> {
        let mut stats = sized();
        // SAFETY: see above.
        done(
            crate::call_sure("rkv_cache_stats", Some(self), &mut || unsafe {
                rkv_cache_stats(self.cache, &mut stats)
            }),
            (),
        )?;
        Ok(stats)
    }

    pub fn check(&self) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call("rkv_cache_check", Some(self), &mut || unsafe {
                rkv_cache_check(self.cache)
            }),
            (),
        )
    }

    // Sequences.

    pub fn begin(
        &self,
        ns: u8,
        tokens: &TokenList,
        reserve: usize,
    ) -> Result<rkv_sequence_state, Status> {
        let namespace = namespace(ns);
        let tokens = tokens.raw();
        let args = rkv_sequence_args {
            namespace_: namespace.as_ref().map_or(null(), std::ptr::from_ref),
            tokens: &tokens,
            reserve_position_count: reserve as u64,
            ..sized()
        };
        let mut state = sized();
        // SAFETY: see above.
        done(
            crate::call("rkv_sequence_begin", Some(self), &mut || unsafe {
                rkv_sequence_begin(self.cache, &args, &mut state)
            }),
            (),
        )?;
        Ok(state)
    }

    pub fn go_on(
        &self,
        parent: u64,
        ns: u8,
        tokens: &TokenList,
        all: Option<&TokenList>,
        reserve: usize,
        running: bool,
    ) -> Result<rkv_sequence_state, Status> {
        let namespace = namespace(ns);
        let (tokens, all) = (tokens.raw(), all.map(TokenList::raw));
        let args = rkv_continue_args {
            flags: if running { RKV_CONTINUE_RUNNING } else { 0 },
            parent,
            namespace_: namespace.as_ref().map_or(null(), std::ptr::from_ref),
            tokens: &tokens,
            all_tokens: all.as_ref().map_or(null(), std::ptr::from_ref),
            reserve_position_count: reserve as u64,
            ..sized()
        };
        let mut state = sized();
        // SAFETY: see above.
        done(
            crate::call("rkv_sequence_continue", Some(self), &mut || unsafe {
                rkv_sequence_continue(self.cache, &args, &mut state)
            }),
            (),
        )?;
        Ok(state)
    }

    pub fn fork(
        &self,
        parent: u64,
        child_count: usize,
        reserve: usize,
    ) -> Result<Vec<rkv_fork_child>, Status> {
        let args = rkv_fork_args {
            parent,
            child_count,
            reserve_position_count: reserve as u64,
            ..sized()
        };
        let nobody = rkv_fork_child {
            sequence: u64::MAX,
            slot: u32::MAX,
            copy_position_count: u32::MAX,
            copy_source_page: u32::MAX,
            copy_target_page: u32::MAX,
        };
        let mut children = vec![nobody; child_count];
        // SAFETY: see above.
        done(
            crate::call("rkv_sequence_fork", Some(self), &mut || unsafe {
                rkv_sequence_fork(self.cache, &args, children.as_mut_ptr())
            }),
            (),
        )?;
        Ok(children)
    }

    pub fn retain(&self, sequence: u64) -> Result<bool, Status> {
        let mut retained = false;
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_retain", Some(self), &mut || unsafe {
            rkv_sequence_retain(self.cache, sequence, &mut retained)
        });
        done(status, retained)
    }

    pub fn drop_sequence(&self, sequence: u64) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call_sure("rkv_sequence_drop", Some(self), &mut || unsafe {
                rkv_sequence_drop(self.cache, sequence)
            }),
            (),
        )
    }

    pub fn drop_retained(&self, pages: usize) -> Result<usize, Status> {
        let mut gained = usize::MAX;
        // SAFETY: see above.
        let status = crate::call_sure("rkv_cache_drop_retained", Some(self), &mut || unsafe {
            rkv_cache_drop_retained(self.cache, pages, &mut gained)
        });
        done(status, gained)
    }

    /// The retained sequences, with room for `room` of them.
    pub fn retained(&self, room: usize) -> Result<Vec<u64>, Status> {
        let mut ids = vec![0; room.max(1)];
        let mut count = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_cache_retained", Some(self), &mut || unsafe {
            rkv_cache_retained(self.cache, ids.as_mut_ptr(), room, &mut count)
        });
        ids.truncate(count);
        done(status, ids)
    }

    pub fn query(&self, sequence: u64) -> Result<rkv_sequence_state, Status> {
        let mut state = sized();
        // SAFETY: see above.
        done(
            crate::call("rkv_sequence_query", Some(self), &mut || unsafe {
                rkv_sequence_query(self.cache, sequence, &mut state)
            }),
            (),
        )?;
        Ok(state)
    }

    pub fn confirm_copy(&self, sequence: u64) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call_sure("rkv_sequence_confirm_copy", Some(self), &mut || unsafe {
                rkv_sequence_confirm_copy(self.cache, sequence)
            }),
            (),
        )
    }

    pub fn append(&self, sequence: u64, tokens: &TokenList) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call("rkv_sequence_append", Some(self), &mut || unsafe {
                rkv_sequence_append(self.cache, sequence, &tokens.raw())
            }),
            (),
        )
    }

    pub fn truncate(&self, sequence: u64, positions: usize) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call_sure("rkv_sequence_truncate", Some(self), &mut || unsafe {
                rkv_sequence_truncate(self.cache, sequence, positions as u64)
            }),
            (),
        )
    }

    pub fn publish(&self, sequence: u64, computed: usize) -> Result<rkv_publish_result, Status> {
        let mut result = sized();
        // SAFETY: see above.
        let status = crate::call("rkv_sequence_publish", Some(self), &mut || unsafe {
            rkv_sequence_publish(self.cache, sequence, computed as u64, &mut result)
        });
        done(status, result)
    }

    pub fn release(&self, sequence: u64) -> Result<(), Status> {
        // SAFETY: see above.
        done(
            crate::call_sure("rkv_sequence_release", Some(self), &mut || unsafe {
                rkv_sequence_release(self.cache, sequence)
            }),
            (),
        )
    }
}
