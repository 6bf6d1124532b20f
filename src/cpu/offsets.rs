//! Where the keys of a block lie in KV memory.
use super::kernel::BLOCK;
use crate::attention::KvStrides;
use std::ops::Range;

/// How positions are laid out.
#[derive(Clone, Copy)]
pub(super) struct KeyLayout<'a> {
    pub strides: KvStrides,
    /// Of an element.
    pub bytes: usize,
    pub page_size: usize,
    /// Pages of the row.
    pub pages: &'a [u32],
}

/// Distances from head 0 of page 0, in bytes, of the keys of a block and of the next one.
pub(super) struct Offsets {
    offsets: [usize; BLOCK],
    next_offsets: [usize; BLOCK],
    /// The first key of the next one.
    next_block: Option<usize>,
}

impl Default for Offsets {
    fn default() -> Self {
        Self { offsets: [0; BLOCK], next_offsets: [0; BLOCK], next_block: None }
    }
}

impl Offsets {
    /// Before another row.
    pub(super) fn forget(&mut self) {
        self.next_block = None;
    }

    /// Whether nobody asked for a block's keys while another was computed.
    pub(super) fn comes_unasked(&self, block: usize) -> bool {
        self.next_block != Some(block)
    }

    /// Finds those of the block's keys that are asked for, and of the first `after` keys of the
    /// next block. Around the block's keys, up to multiples of 8, it names the nearest one
    /// again, so that register tiles have something to read.
    pub(super) fn find(
        &mut self,
        layout: KeyLayout<'_>,
        block: usize,
        keys: Range<usize>,
        after: usize,
    ) -> (&[usize; BLOCK], &[usize]) {
        if self.next_block == Some(block) {
            std::mem::swap(&mut self.offsets, &mut self.next_offsets);
        } else {
            layout.find(block, keys.clone(), &mut self.offsets);
        }
        let (first, last) = (self.offsets[keys.start], self.offsets[keys.end - 1]);
        self.offsets[keys.start & !7..keys.start].fill(first);
        self.offsets[keys.end..keys.end.next_multiple_of(8)].fill(last);
        layout.find(block + BLOCK, 0..after, &mut self.next_offsets);
        self.next_block = (after > 0).then_some(block + BLOCK);
        (&self.offsets, &self.next_offsets[..after])
    }
}

impl KeyLayout<'_> {
    fn find(&self, block: usize, keys: Range<usize>, to: &mut [usize; BLOCK]) {
        let Self { strides, bytes, page_size, pages } = *self;
        let mut key = keys.start;
        while key < keys.end {
            let (page, first) = ((block + key) / page_size, (block + key) % page_size);
            let end = (key + page_size - first).min(keys.end);
            let start = pages[page] as usize * strides.page;
            for (offset, to) in to[key..end].iter_mut().enumerate() {
                *to = (start + (first + offset) * strides.position) * bytes;
            }
            key = end;
        }
    }
}
