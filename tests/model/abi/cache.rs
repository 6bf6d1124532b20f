//! Lookups, inserts, nodes.
use super::super::namespaces::namespace;
use super::super::tokens::TokenList;
use super::many::{MatchItem, Matched, only};
use super::{InsertCall, Library, Status, done, sized};
use radixkv::capi::*;
use std::ptr::{null, null_mut};

// Every unsafe block has the reason that `mod.rs` gives.
impl Library {
    /// The match and its pages, with room for `room` pages.
    pub fn lookup(&self, ns: u8, tokens: &TokenList, lock: bool, room: usize) -> Matched {
        if self.in_batch() {
            return only(self.match_many(&[MatchItem { ns, tokens: Some(tokens), lock, room }]));
        }
        let mut pages = vec![0; room];
        let mut found: rkv_cache_match_result = sized();
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
        if self.in_batch() {
            return only(self.probe_many(&[(ns, Some(tokens))]));
        }
        let namespace = namespace(ns);
        let namespace = namespace.as_ref().map_or(null(), std::ptr::from_ref);
        let (mut count, mut positions) = (usize::MAX, usize::MAX);
        let tokens = tokens.raw();
        // SAFETY: see above.
        let status = crate::call("rkv_cache_probe", Some(self), &mut || unsafe {
            rkv_cache_probe(self.cache, namespace, &tokens, &mut count, &mut positions)
        });
        done(status, (count, positions))
    }

    pub fn insert(&self, call: &InsertCall) -> Result<(rkv_cache_insert_result, Vec<u32>), Status> {
        let namespace = namespace(call.ns);
        let tokens = call.tokens.raw();
        let args = rkv_cache_insert_args {
            space: namespace.as_ref().map_or(null(), std::ptr::from_ref),
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

    /// A lock's id.
    pub fn lock(&self, node: u64) -> Result<u64, Status> {
        let mut lock = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_cache_lock", Some(self), &mut || unsafe {
            rkv_cache_lock(self.cache, node, &mut lock)
        });
        done(status, lock)
    }

    pub fn unlock(&self, lock: u64) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call_sure("rkv_cache_unlock", Some(self), &mut || unsafe {
            rkv_cache_unlock(self.cache, lock)
        });
        done(status, ())
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

    pub fn clear(&self, ns: u8, flags: u32) -> Result<rkv_cache_clear_result, Status> {
        let namespace = namespace(ns).filter(|_| flags != RKV_CLEAR_EVERYTHING);
        let space = namespace.as_ref().map_or(null(), std::ptr::from_ref);
        let args = rkv_cache_clear_args { flags, space, ..sized() };
        let mut result = sized();
        // SAFETY: see above.
        let status = crate::call_sure("rkv_cache_clear", Some(self), &mut || unsafe {
            rkv_cache_clear(self.cache, &args, &mut result)
        });
        done(status, result)
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
        let status = crate::call("rkv_node_read_info", Some(self), &mut || unsafe {
            rkv_node_read_info(self.cache, node, &mut info)
        });
        done(status, ())?;
        Ok(info)
    }

    pub fn node_pages(&self, node: u64, count: usize) -> Result<Vec<u32>, Status> {
        let mut pages = vec![0; count.max(1)];
        let mut written = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_node_read_pages", Some(self), &mut || unsafe {
            rkv_node_read_pages(self.cache, node, pages.as_mut_ptr(), count, &mut written)
        });
        pages.truncate(written);
        done(status, pages)
    }

    pub fn node_children(&self, node: u64, count: usize) -> Result<Vec<u64>, Status> {
        let mut children = vec![0; count.max(1)];
        let mut written = 0;
        // SAFETY: see above.
        let status = crate::call("rkv_node_read_children", Some(self), &mut || unsafe {
            rkv_node_read_children(self.cache, node, children.as_mut_ptr(), count, &mut written)
        });
        children.truncate(written);
        done(status, children)
    }

    pub fn stats(&self) -> Result<rkv_cache_stats, Status> {
        let mut stats = sized();
        // SAFETY: see above.
        let status = crate::call_sure("rkv_cache_read_stats", Some(self), &mut || unsafe {
            rkv_cache_read_stats(self.cache, &mut stats)
        });
        done(status, ())?;
        Ok(stats)
    }

    pub fn check(&self) -> Result<(), Status> {
        // SAFETY: see above.
        let status = crate::call("rkv_cache_check", Some(self), &mut || unsafe {
            rkv_cache_check(self.cache)
        });
        done(status, ())
    }

    // Sequences.
}
