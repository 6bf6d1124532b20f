//! A caller that publishes pages and maps rows itself.
use super::{CallerRow, World, namespace};
use crate::abi::{Sized32, last_message, ok};
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

impl World {
    pub(super) fn allocate(&mut self, input: &mut Input<'_>) {
        let count = input.below(12);
        self.allocate_count(count);
    }

    fn allocate_count(&mut self, count: usize) -> Option<Vec<u32>> {
        let mut pages = vec![0; count];
        let room = self.last.free() + self.last.reclaimable();
        let into = if count == 0 { ptr::null_mut() } else { pages.as_mut_ptr() };
        // SAFETY: the handle is alive, the buffer has the room that is stated.
        let status = unsafe { rkv_page_table_allocate_pages(self.pair.table, count, into) };
        if !self.after(status) {
            assert_eq!(status, rkv_status::OutOfPages, "{}", last_message());
            assert!(count as u64 > room, "refused although it fits");
            self.check_shortage();
            return None;
        }
        assert!(count as u64 <= room);
        for &page in &pages {
            assert!(page != 0 && !self.loose.contains(&page), "page {page} was handed out twice");
            self.loose.push(page);
        }
        Some(pages)
    }

    pub(super) fn free(&mut self, input: &mut Input<'_>) {
        let count = input.below(8).min(self.loose.len());
        let pages: Vec<_> = self.loose.drain(..count).collect();
        self.free_all(&pages);
    }

    pub(super) fn free_all(&mut self, pages: &[u32]) {
        let into = if pages.is_empty() { ptr::null() } else { pages.as_ptr() };
        // SAFETY: the handle is alive, the buffer has the length that is stated.
        let status = unsafe { rkv_page_table_free_pages(self.pair.table, into, pages.len()) };
        assert!(self.after(status), "free: {status:?}: {}", last_message());
    }

    /// Publishes a prompt whose pages the caller allocated, perhaps going on from a match.
    pub(super) fn insert(&mut self, input: &mut Input<'_>) {
        let prompt = self.prompt(input);
        let number = input.below(4);
        let from_match = input.flag();
        let whole = prompt.positions() / self.page_size;
        let mut start = (0, 0, 0);
        let mut pages = Vec::new();
        if from_match && let Some((found, row)) = self.match_prompt(number, &prompt, false, false) {
            if found.node != 0 {
                start = (found.node, found.token_count, found.page_count);
                pages = row;
            }
        }
        let Some(own) = self.allocate_count(whole - pages.len()) else {
            return;
        };
        // The allocation may have evicted what the match found.
        let stale = start.0 != 0 && !pages.iter().all(|&page| self.contains(page));
        pages.extend(&own);
        let first = start.2 as usize;
        let todo = first * self.page_size..whole * self.page_size;
        self.write_content(&prompt, number, &pages, todo);

        let (namespace, tokens) = (namespace(number), prompt.raw());
        let args = rkv_cache_insert_args {
            space: &namespace,
            tokens: &tokens,
            pages: pages.as_ptr(),
            page_count: pages.len(),
            from_node: start.0,
            from_token_index: start.1,
            from_page_index: start.2,
            ..Sized32::sized()
        };
        let mut published = vec![0; pages.len()];
        let mut result = rkv_cache_insert_result::sized();
        // SAFETY: all pointers lead to live values, `published` has as many entries as `pages`.
        let status = unsafe {
            rkv_cache_insert(self.pair.cache, &args, published.as_mut_ptr(), &mut result)
        };
        let cached = self.last.cached();
        if !self.after(status) {
            assert_eq!(status, rkv_status::StaleNode, "insert: {}", last_message());
            assert!(stale, "the node was there a moment ago");
            return;
        }
        assert_eq!(result.node != 0, whole > 0);
        assert_eq!(self.last.cached() - cached, result.claimed_page_count);
        let claimed = own.iter().filter(|&&page| self.contains(page)).count() as u64;
        assert_eq!(result.claimed_page_count, claimed);
        assert_eq!(result.claimed_page_count + result.duplicate_page_count, own.len() as u64);
        self.check_content(&prompt, number, &published, whole * self.page_size);
        let mut loose = std::mem::take(&mut self.loose);
        loose.retain(|&page| !self.contains(page));
        self.loose = loose;
        self.note_node(result.node);
    }

    /// Makes, fills or erases a row.
    pub(super) fn caller_row(&mut self, input: &mut Input<'_>) {
        match input.below(4) {
            0 => {
                let mut slot = 0;
                // SAFETY: all pointers lead to live values.
                let status = unsafe { rkv_page_table_allocate_slot(self.pair.table, &mut slot) };
                if self.after(status) {
                    self.rows.push(CallerRow { slot, lock: None });
                    self.map_prefix(input);
                } else {
                    assert_eq!(status, rkv_status::OutOfSlots);
                    assert_eq!(self.last.free_slots(), 0);
                }
            }
            1 => self.reserve(input),
            2 => self.map_loose(input),
            _ => {
                let places: Vec<_> = (0..self.rows.len()).collect();
                if let Some(&at) = input.pick(&places) {
                    let row = self.rows.swap_remove(at);
                    self.erase_one(row);
                }
            }
        }
    }

    /// Maps what is cached of a prompt into the newest row, and keeps it locked.
    fn map_prefix(&mut self, input: &mut Input<'_>) {
        let prompt = self.prompt(input);
        let number = input.below(4);
        let Some((found, pages)) = self.match_prompt(number, &prompt, true, false) else {
            return;
        };
        let row = self.rows.last_mut().expect("it was just made");
        row.lock = (found.lock != 0).then_some(found.lock);
        self.map(self.rows.len() - 1, &pages);
    }

    fn map_loose(&mut self, input: &mut Input<'_>) {
        let places: Vec<_> = (0..self.rows.len()).collect();
        let Some(&at) = input.pick(&places) else {
            return;
        };
        let count = input.below(4).min(self.loose.len());
        let pages = self.loose[..count].to_vec();
        if self.map(at, &pages) {
            self.loose.drain(..count);
        }
    }

    fn map(&mut self, at: usize, pages: &[u32]) -> bool {
        let slot = self.rows[at].slot;
        let before = self.pair.row(slot);
        let from = if pages.is_empty() { ptr::null() } else { pages.as_ptr() };
        // SAFETY: the handle is alive, the buffer has the length that is stated.
        let status =
            unsafe { rkv_page_table_map(self.pair.table, slot, before.len(), from, pages.len()) };
        let good = self.after(status);
        if good {
            assert_eq!(self.pair.row(slot), [&before, pages].concat());
        } else {
            assert_eq!(status, rkv_status::InvalidArgument);
            assert!(before.len() + pages.len() > self.row_limit, "{}", last_message());
        }
        good
    }

    fn reserve(&mut self, input: &mut Input<'_>) {
        let places: Vec<_> = (0..self.rows.len()).collect();
        let Some(&at) = input.pick(&places) else {
            return;
        };
        let slot = self.rows[at].slot;
        let before = self.pair.row(slot);
        let positions = input.byte() as usize * 2;
        let (mut can, mut capacity) = (false, 0);
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_page_table_can_reserve(self.pair.table, slot, positions, &mut can) });
        // SAFETY: the handle is alive.
        let status = unsafe { rkv_page_table_reserve(self.pair.table, slot, positions) };
        let good = self.after(status);
        assert_eq!(good, can, "can_reserve promises what reserve does");
        if !good {
            match status {
                rkv_status::OutOfPages => self.check_shortage(),
                rkv_status::InvalidArgument => {
                    assert!(positions.div_ceil(self.page_size) > self.row_limit);
                }
                other => panic!("reserve: {other:?}: {}", last_message()),
            }
            return;
        }
        let row = self.pair.row(slot);
        assert!(row.starts_with(&before));
        assert_eq!(row.len(), before.len().max(positions.div_ceil(self.page_size)));
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_page_table_row_capacity(self.pair.table, slot, &mut capacity) });
        assert_eq!(capacity, row.len() * self.page_size);
    }

    pub(super) fn erase_one(&mut self, row: CallerRow) {
        // SAFETY: the handle is alive.
        let status = unsafe { rkv_page_table_free_slot(self.pair.table, row.slot) };
        assert!(self.after(status), "erase: {status:?}: {}", last_message());
        if let Some(lock) = row.lock {
            self.unlock_one(lock);
        }
    }
}
