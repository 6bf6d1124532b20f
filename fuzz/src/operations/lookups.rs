//! Looking for prefixes, locking them, and taking pages away.
use super::{World, namespace};
use crate::abi::{Sized32, last_message, ok};
use crate::input::Input;
use crate::prompt::Prompt;
use radixkv::capi::*;
use std::ptr;

impl World {
    /// Tokens and positions that are cached.
    pub(super) fn probe(&mut self, number: usize, prompt: &Prompt) -> (usize, usize) {
        let (namespace, tokens) = (namespace(number), prompt.raw());
        let (mut token_count, mut position_count) = (0, 0);
        // SAFETY: all pointers lead to live values.
        ok(unsafe {
            rkv_cache_probe(
                self.pair.cache,
                &namespace,
                &tokens,
                &mut token_count,
                &mut position_count,
            )
        });
        self.after_look();
        assert!(prompt.is_boundary(position_count), "the match ends inside an image");
        assert_eq!(token_count, prompt.tokens_before(position_count));
        (token_count, position_count)
    }

    /// A match, which must be what the probe said, and lead to the right KV.
    pub(super) fn find(&mut self, input: &mut Input<'_>) {
        let prompt = self.prompt(input);
        let number = input.below(4);
        let lock = input.flag();
        if let Some(found) = self.match_prompt(number, &prompt, lock, input.rarely(8)) {
            self.note_node(found.0.node);
            self.note_node(found.0.partial_node);
            if found.0.lock != 0 {
                self.locks.push(found.0.lock);
            }
        }
    }

    /// None when the buffer was too small.
    pub(super) fn match_prompt(
        &mut self,
        number: usize,
        prompt: &Prompt,
        lock: bool,
        small: bool,
    ) -> Option<(rkv_cache_match_result, Vec<u32>)> {
        let (token_count, position_count) = self.probe(number, prompt);
        let (namespace, tokens) = (namespace(number), prompt.raw());
        let whole = position_count / self.page_size;
        let room = if small { whole.saturating_sub(1) } else { prompt.positions() };
        let mut pages = vec![u32::MAX; room];
        let mut found = rkv_cache_match_result::sized();
        let flags = if lock { RKV_MATCH_LOCK } else { 0 };
        let into = if room == 0 { ptr::null_mut() } else { pages.as_mut_ptr() };
        // SAFETY: all pointers lead to live values, `pages` has the room that is stated.
        let status = unsafe {
            rkv_cache_match(self.pair.cache, &namespace, &tokens, flags, into, room, &mut found)
        };
        if !self.after(status) {
            assert_eq!(status, rkv_status::BufferTooSmall, "{}", last_message());
            assert!(room < whole && found.page_count as usize == whole);
            return None;
        }
        assert_eq!(found.token_count as usize, token_count, "a probe says what a match finds");
        assert_eq!(found.position_count as usize, position_count);
        assert_eq!(found.page_count as usize, whole);
        assert_eq!(found.partial_position_count as usize, position_count % self.page_size);
        assert_eq!(found.partial_position_count > 0, found.partial_page != 0);
        assert_eq!(found.node != 0, whole > 0);
        assert_eq!(found.lock != 0, lock && position_count > 0);
        let mut row = self.path_pages(found.node);
        assert_eq!(row.len(), whole, "the node ends where the whole pages end");
        if room >= whole {
            assert_eq!(row, pages[..whole], "the pages of the match are those of its path");
        }
        if found.partial_position_count > 0 {
            assert!(!self.whole_pages);
            row.push(found.partial_page);
            assert!(self.node_pages(found.partial_node).contains(&found.partial_page));
        }
        self.check_content(prompt, number, &row, position_count);
        row.truncate(whole);
        Some((found, row))
    }

    fn node_pages(&self, node: rkv_node_id) -> Vec<u32> {
        let mut count = 0;
        // SAFETY: all pointers lead to live values; no room is stated, then what is needed.
        unsafe {
            ok(rkv_node_read_pages(self.pair.cache, node, ptr::null_mut(), 0, &mut count));
            let mut pages = vec![0; count];
            let into = pages.as_mut_ptr();
            ok(rkv_node_read_pages(self.pair.cache, node, into, count, &mut count));
            pages
        }
    }

    fn info(&self, node: rkv_node_id) -> Option<rkv_node_info> {
        let mut info = rkv_node_info::sized();
        // SAFETY: all pointers lead to live values.
        match unsafe { rkv_node_read_info(self.pair.cache, node, &mut info) } {
            rkv_status::Ok => Some(info),
            rkv_status::StaleNode => None,
            other => panic!("node_info: {other:?}: {}", last_message()),
        }
    }

    /// Pages from the root to the end of a node; none for no node.
    fn path_pages(&self, mut node: rkv_node_id) -> Vec<u32> {
        let mut segments = Vec::new();
        while node != 0 {
            segments.push(self.node_pages(node));
            node = self.info(node).expect("a parent is no stale node").parent;
        }
        segments.into_iter().rev().flatten().collect()
    }

    pub(super) fn lock(&mut self, input: &mut Input<'_>) {
        let Some(&node) = input.pick(&self.nodes) else {
            return;
        };
        let info = self.info(node);
        let mut lock = 0;
        // SAFETY: the handle is alive, and so is the output.
        let status = unsafe { rkv_cache_lock(self.pair.cache, node, &mut lock) };
        if self.after(status) {
            let after = self.info(node).expect("a locked node stays");
            assert_eq!(after.lock_count, info.expect("it was no stale node").lock_count + 1);
            assert!(!self.locks.contains(&lock));
            self.locks.push(lock);
        } else {
            assert_eq!(status, rkv_status::StaleNode);
            assert!(info.is_none());
        }
    }

    pub(super) fn unlock(&mut self, input: &mut Input<'_>) {
        let places: Vec<_> = (0..self.locks.len()).collect();
        if let Some(&at) = input.pick(&places) {
            let lock = self.locks.swap_remove(at);
            self.unlock_one(lock);
            // SAFETY: the handle is alive.
            let again = unsafe { rkv_cache_unlock(self.pair.cache, lock) };
            assert_eq!(again, rkv_status::StaleLock);
            self.after(again);
        }
    }

    pub(super) fn unlock_one(&mut self, lock: rkv_lock_id) {
        // SAFETY: the handle is alive.
        let status = unsafe { rkv_cache_unlock(self.pair.cache, lock) };
        assert!(self.after(status), "unlock: {status:?}: {}", last_message());
    }

    pub(super) fn evict(&mut self, input: &mut Input<'_>) {
        let count = match input.byte() {
            255 => usize::MAX,
            some => some as usize % 24,
        };
        self.evict_count(count);
    }

    pub(super) fn evict_count(&mut self, count: usize) {
        let (reclaimable, free) = (self.last.reclaimable(), self.last.free());
        let evicted_before = self.last.evicted();
        let mut pages = vec![0; count.min(reclaimable as usize + 1)];
        let room = pages.len();
        let mut evicted = 0;
        let into = if room == 0 { ptr::null_mut() } else { pages.as_mut_ptr() };
        // SAFETY: all pointers lead to live values, `pages` has the room that is stated.
        let status = unsafe { rkv_cache_evict(self.pair.cache, count, into, room, &mut evicted) };
        assert!(self.after(status), "evict: {status:?}: {}", last_message());
        assert_eq!(evicted as u64, (count as u64).min(reclaimable), "reclaimable is exact");
        assert_eq!(self.last.free(), free + evicted as u64);
        assert_eq!(self.last.evicted(), evicted_before + evicted as u64);
        let mut sorted = pages[..evicted].to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), evicted, "a page was evicted twice");
        for &page in &pages[..evicted] {
            assert!(!self.contains(page));
            let start = page as usize * self.page_size;
            self.kv.clear(start..start + self.page_size);
        }
    }

    pub(super) fn contains(&self, page: u32) -> bool {
        let mut contains = false;
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_cache_contains_page(self.pair.cache, page, &mut contains) });
        contains
    }

    /// Reads a node and its surroundings.
    pub(super) fn look(&mut self, input: &mut Input<'_>) {
        if let Some(&node) = input.pick(&self.nodes)
            && let Some(info) = self.info(node)
        {
            assert_eq!(info.position_count, info.page_count * self.page_size as u64);
            assert_eq!(self.node_pages(node).len() as u64, info.page_count);
            assert_eq!(self.path_pages(node).len() * self.page_size, info.end_position as usize);
            let mut children = vec![0; info.child_count as usize];
            let mut count = 0;
            let (into, room) = (children.as_mut_ptr(), children.len());
            // SAFETY: all pointers lead to live values, `children` has the room that is stated.
            ok(unsafe { rkv_node_read_children(self.pair.cache, node, into, room, &mut count) });
            assert_eq!(count, children.len());
            let mut locked = 0;
            for child in children {
                let child = self.info(child).expect("a child is no stale node");
                assert_eq!(child.parent, node);
                locked += u32::from(child.lock_count > 0);
            }
            assert!(locked <= info.lock_count, "a lock below protects the node");
        }
        self.after_look();
    }
}
