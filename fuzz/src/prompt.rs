//! Token lists, and what the KV memory should hold for each of their positions.
use crate::abi::{Sized32, ok};
use crate::input::Input;
use radixkv::capi::*;

/// A token list that is always valid.
#[derive(Clone, Default)]
pub struct Prompt {
    ids: Vec<u32>,
    items: Vec<rkv_token_item>,
    /// The position at which each token ends.
    ends: Vec<usize>,
    /// For each position, a hash of everything up to it.
    hashes: Vec<u64>,
}

fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

impl Prompt {
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    pub fn positions(&self) -> usize {
        self.hashes.len()
    }

    /// What a position of this list should hold in a namespace.
    pub fn content(&self, namespace: usize, position: usize) -> u64 {
        mix(self.hashes[position], namespace as u64 + 1) | 1
    }

    fn push(&mut self, id: u32, key: u64, positions: usize) {
        self.ids.push(id);
        let mut hash = self.hashes.last().copied().unwrap_or(7);
        for at in 0..positions {
            hash = mix(hash, key.wrapping_add(at as u64) << 8 | 3);
            self.hashes.push(hash);
        }
        self.ends.push(self.hashes.len());
    }

    pub fn push_text(&mut self, id: u32) {
        self.push(id, id as u64, 1);
    }

    fn push_item(&mut self, item: rkv_token_item, key: u64) {
        let item = rkv_token_item { token_index: self.ids.len() as u64, ..item };
        let positions = item.position_count.max(1) as usize;
        self.items.push(item);
        // Not read, so it may be anything.
        self.push(u32::MAX, key, positions);
    }

    /// Adds one token. Few kinds and few values, so that lists begin alike.
    pub fn push_any(&mut self, input: &mut Input<'_>) {
        let kind = input.byte();
        let value = (kind >> 4) as u32;
        let item = rkv_token_item {
            token_index: 0,
            kind: 0,
            position_count: 0,
            bin: 0,
            height_bin: 0,
            digest: [0; 16],
        };
        match kind & 15 {
            0 => {
                let made = rkv_token_item { kind: RKV_TOKEN_COORD, bin: value * 68, ..item };
                self.push_item(made, 1 << 40 | value as u64);
            }
            1 => {
                let (bin, height_bin) = (value & 3, value >> 2);
                let made = rkv_token_item { kind: RKV_TOKEN_SIZE, bin, height_bin, ..item };
                self.push_item(made, 1 << 41 | value as u64);
            }
            2 => {
                let position_count = 1 + input.below(40) as u32;
                let made = rkv_token_item {
                    kind: RKV_TOKEN_IMAGE,
                    position_count,
                    digest: [(value & 3) as u8; 16],
                    ..item
                };
                let key = 1 << 42 | ((value & 3) as u64) << 32 | (position_count as u64) << 16;
                self.push_item(made, key);
            }
            3..8 => (0..=value).for_each(|_| self.push_text(1)),
            _ => self.push_text(value & 3),
        }
    }

    /// The first tokens.
    pub fn cut(&self, tokens: usize) -> Self {
        let tokens = tokens.min(self.tokens());
        let positions = tokens.checked_sub(1).map_or(0, |last| self.ends[last]);
        let items = self.items.iter().take_while(|item| item.token_index < tokens as u64);
        Self {
            ids: self.ids[..tokens].to_vec(),
            items: items.copied().collect(),
            ends: self.ends[..tokens].to_vec(),
            hashes: self.hashes[..positions].to_vec(),
        }
    }

    /// The first tokens, as many as end at or before a position.
    pub fn cut_at(&self, position: usize) -> Self {
        self.cut(self.tokens_before(position))
    }

    /// The tokens from one on, as a list of its own.
    pub fn rest(&self, from: usize) -> Self {
        let items = self.items.iter().filter(|item| item.token_index >= from as u64);
        let items = items
            .map(|item| rkv_token_item { token_index: item.token_index - from as u64, ..*item });
        Self { ids: self.ids[from..].to_vec(), items: items.collect(), ..Self::default() }
    }

    pub fn is_boundary(&self, position: usize) -> bool {
        position == 0 || self.ends.binary_search(&position).is_ok()
    }

    /// The last token boundary at or before a position.
    pub fn boundary(&self, position: usize) -> usize {
        self.tokens_before(position).checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// The last page boundary at or before a position that is a token boundary too.
    pub fn page_boundary(&self, position: usize, page_size: usize) -> usize {
        let mut at = position / page_size * page_size;
        while !self.is_boundary(at) {
            at -= page_size;
        }
        at
    }

    /// Tokens that end at or before a position.
    pub fn tokens_before(&self, position: usize) -> usize {
        self.ends.partition_point(|&end| end <= position)
    }

    /// The images' positions.
    pub fn regions(&self) -> Vec<rkv_region> {
        let mut regions = vec![rkv_region { start: 0, end: 0 }; self.items.len()];
        let mut count = 0;
        // SAFETY: all pointers lead to live values, there is room for as many as there can be.
        ok(unsafe {
            rkv_tokens_regions(&self.raw(), regions.as_mut_ptr(), regions.len(), &mut count)
        });
        regions.truncate(count);
        regions
    }

    /// For a call, which must not outlive this list.
    pub fn raw(&self) -> rkv_tokens {
        rkv_tokens {
            ids: self.ids.as_ptr(),
            count: self.ids.len(),
            items: self.items.as_ptr(),
            item_size: size_of::<rkv_token_item>() as u32,
            item_count: self.items.len(),
            ..Sized32::sized()
        }
    }
}
