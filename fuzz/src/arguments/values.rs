//! Values that a caller should pass, and values that it should not.
use super::arena::Arena;
use super::world::World;
use crate::abi::Sized32;
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

/// Any 32-bit number, most of them small.
pub fn number(input: &mut Input<'_>) -> u32 {
    match input.byte() {
        small if small < 192 => small as u32 % 24,
        192..208 => RKV_TEXT_ID_LIMIT - 1 + input.below(3) as u32,
        208..224 => u32::MAX - input.below(2) as u32,
        224..232 => 255 + input.below(3) as u32,
        232..240 => 1023 + input.below(2) as u32,
        _ => input.u64() as u32,
    }
}

/// Any size, most of them small.
pub fn size(input: &mut Input<'_>) -> usize {
    match input.byte() {
        small if small < 208 => small as usize % 40,
        208..220 => usize::MAX - input.below(20),
        220..232 => isize::MAX as usize - input.below(4),
        232..240 => u32::MAX as usize + input.below(3),
        _ => input.u64() as usize,
    }
}

/// Zero, and now and then something else.
pub fn zero(input: &mut Input<'_>) -> u32 {
    if input.rarely(24) { number(input) } else { 0 }
}

/// A set of flags, most often a known one.
pub fn flags(input: &mut Input<'_>, known: u32) -> u32 {
    if input.rarely(16) { number(input) } else { input.byte() as u32 & known }
}

/// A number that a call gave out, or any, or none.
pub fn given_out(input: &mut Input<'_>, known: &[u64]) -> u64 {
    let id = input.pick(known).copied().unwrap_or(0);
    match input.below(16) {
        13 => id ^ 1 << input.below(64),
        14 => input.u64(),
        15 => 0,
        _ => id,
    }
}

/// So many milliseconds that a run doesn't stand still.
pub fn timeout(input: &mut Input<'_>) -> u64 {
    input.below(3) as u64
}

pub fn float(input: &mut Input<'_>) -> f64 {
    match input.below(12) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => -0.0,
        3 => 1.0,
        4 => 2f64.powi(-10),
        5 => f64::from_bits(input.u64()),
        6 => 1.0 + f64::EPSILON,
        7 => -f64::MIN_POSITIVE,
        _ => input.byte() as f64 / 255.0,
    }
}

/// Room in 8-byte words for a struct, and the size to state.
pub fn init_room(input: &mut Input<'_>, known: usize) -> (usize, usize) {
    let stated = match input.below(4) {
        0 => size(input),
        1 => input.below(known + 1),
        2 => known + input.below(64),
        _ => known,
    };
    (if stated <= 4096 { stated.div_ceil(8) } else { 0 }, stated)
}

pub fn namespace(input: &mut Input<'_>, arena: &mut Arena) -> *const rkv_namespace {
    if input.below(4) != 0 {
        return ptr::null();
    }
    let mut made = rkv_namespace::sized();
    made.flags = flags(input, RKV_NAMESPACE_LORA | RKV_NAMESPACE_IMAGE);
    if made.flags & RKV_NAMESPACE_LORA != 0 || input.rarely(16) {
        made.lora_id = input.byte() as u64;
    }
    if made.flags & RKV_NAMESPACE_IMAGE != 0 || input.rarely(16) {
        made.image_digest = [input.byte() & 1; 16];
    }
    made.epoch = input.byte() as u64 & 1;
    arena.read(input, &made)
}

/// A text id that the world's sequences and nodes begin with, or any.
fn text_id(input: &mut Input<'_>) -> u32 {
    match input.byte() {
        small if small < 240 => small as u32 & 1,
        _ => number(input),
    }
}

pub fn item(input: &mut Input<'_>, token_index: u64) -> rkv_token_item {
    let kind = match input.below(8) {
        7 => number(input),
        some => 1 + some as u32 % 3,
    };
    let image = kind == RKV_TOKEN_IMAGE;
    let positions = if image { 1 + input.below(20) as u32 } else { 0 };
    rkv_token_item {
        token_index,
        kind,
        position_count: if input.rarely(24) { number(input) } else { positions },
        bin: if image { zero(input) } else { number(input) },
        height_bin: if kind == RKV_TOKEN_SIZE { number(input) } else { zero(input) },
        digest: [if image { input.byte() & 3 } else { zero(input) as u8 }; 16],
    }
}

/// sizeof an element of an array, or another number.
pub fn element_size<T>(input: &mut Input<'_>) -> usize {
    let chosen = if input.rarely(24) { size(input) } else { size_of::<T>() };
    // What is larger than an element is not there to be read.
    if chosen > size_of::<T>() && chosen <= 4096 { size_of::<T>() } else { chosen }
}

/// A token list; `ascending` items may stand at the same index and at the end.
pub fn tokens(input: &mut Input<'_>, arena: &mut Arena) -> *const rkv_tokens {
    let ids: Vec<_> = (0..input.below(24)).map(|_| text_id(input)).collect();
    let mut items = Vec::new();
    if input.below(3) == 0 {
        let mut at = 0;
        for _ in 0..input.below(5) {
            at += input.below(4) as u64;
            let index = if input.rarely(24) { size(input) as u64 } else { at };
            items.push(item(input, index));
            at += input.flag() as u64;
        }
    }
    let (ids, count) = arena.list(input, &ids);
    let (items, item_count) =
        if items.is_empty() { (ptr::null(), 0) } else { arena.list(input, &items) };
    let item_size = element_size::<rkv_token_item>(input) as u32;
    let made = rkv_tokens { item_size, ids, count, items, item_count, ..Sized32::sized() };
    arena.read(input, &made)
}

impl World {
    /// A page: mostly one that exists, in any state.
    pub fn page(&self, input: &mut Input<'_>) -> u32 {
        match input.below(16) {
            15 => number(input),
            some if some < 8 => input.pick(&self.loose).copied().unwrap_or(1),
            _ => input.below(Self::PAGES as usize + 1) as u32,
        }
    }

    pub fn pages(&self, input: &mut Input<'_>) -> Vec<u32> {
        if input.below(3) == 0 {
            let count = input.below(self.loose.len() + 1);
            return self.loose[..count].to_vec();
        }
        (0..input.below(12)).map(|_| self.page(input)).collect()
    }

    pub fn slot(&self, input: &mut Input<'_>) -> u32 {
        match input.below(16) {
            15 => number(input),
            14 => RKV_NO_SLOT,
            some => some as u32 % (Self::SLOTS + 1),
        }
    }

    /// A node: alive, stale, of another cache, or none.
    pub fn node(&self, input: &mut Input<'_>) -> rkv_node_id {
        self.id(input, &self.nodes)
    }

    /// A lock of ours, or none.
    pub fn lock(&self, input: &mut Input<'_>) -> rkv_lock_id {
        self.id(input, &self.locks)
    }

    pub fn sequence(&self, input: &mut Input<'_>) -> rkv_sequence_id {
        self.id(input, &self.sequences)
    }

    fn id(&self, input: &mut Input<'_>, known: &[u64]) -> u64 {
        let id = input.pick(known).copied().unwrap_or(0);
        match input.below(16) {
            12 => id ^ 1 << input.below(64),
            13 => input.below(8) as u64,
            14 => input.u64(),
            15 => *input.pick(&self.foreign).expect("there are some"),
            _ => id,
        }
    }

    /// A page table: ours, none, or a handle of the wrong kind.
    pub fn table(&self, input: &mut Input<'_>) -> *mut rkv_page_table {
        match input.below(32) {
            30 => ptr::null_mut(),
            31 => self.pairs[0].cache.cast(),
            _ => self.pairs[0].table,
        }
    }

    pub fn cache(&self, input: &mut Input<'_>) -> *mut rkv_cache {
        match input.below(32) {
            30 => ptr::null_mut(),
            31 => self.pairs[0].table.cast(),
            _ => self.pairs[0].cache,
        }
    }
}
