//! Token lists with items: what they take, where their images lie, how they are built, the digests
//! of their pages, and the bins and digests that items are made of; each compared with a plain
//! account of what the header says.
mod page_digest;

use crate::abi::{Sized32, ok};
use crate::input::Input;
use radixkv::capi::*;
use std::ptr;

/// A list as the caller writes it, perhaps a wrong one.
struct List {
    ids: Vec<u32>,
    items: Vec<rkv_token_item>,
}

/// Runs the checks that `data` stands for.
pub fn tokens(data: &[u8]) {
    let mut input = Input::new(data);
    bins(&mut input);
    digest(&mut input);
    let list = List::any(&mut input);
    list.check_positions();
    list.check_regions(&mut input);
    list.check_build(&mut input);
    list.check_page_digests(&mut input);
}

impl List {
    fn any(input: &mut Input<'_>) -> Self {
        let ids = (0..input.below(48)).map(|_| match input.byte() {
            255 => RKV_TEXT_ID_LIMIT,
            254 => RKV_TEXT_ID_LIMIT - 1,
            253 => u32::MAX,
            small => small as u32,
        });
        let ids: Vec<_> = ids.collect();
        let mut at = 0;
        let items = (0..input.below(12)).map(|_| {
            at += input.below(4) as u64;
            let index = if input.rarely(32) { input.u64() } else { at };
            let made = item(input, index);
            at += input.flag() as u64;
            made
        });
        let items = items.collect();
        Self { ids, items }
    }

    fn raw(&self) -> rkv_tokens {
        rkv_tokens {
            ids: self.ids.as_ptr(),
            count: self.ids.len(),
            items: if self.items.is_empty() { ptr::null() } else { self.items.as_ptr() },
            item_size: size_of::<rkv_token_item>() as u32,
            item_count: self.items.len(),
            ..Sized32::sized()
        }
    }

    /// Items are good one by one, and stand at strictly ascending tokens.
    fn is_good(&self) -> bool {
        let ascend = self.items.windows(2).all(|two| two[0].token_index < two[1].token_index);
        let inside = self.items.iter().all(|item| item.token_index < self.ids.len() as u64);
        ascend && inside && self.items.iter().all(item_is_good)
    }

    fn positions(&self) -> u64 {
        let extra = self.items.iter().map(|item| item.position_count.max(1) as u64 - 1);
        self.ids.len() as u64 + extra.sum::<u64>()
    }

    fn regions(&self) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut extra = 0;
        for item in &self.items {
            let start = item.token_index + extra;
            if item.kind == RKV_TOKEN_IMAGE {
                found.push((start, start + item.position_count as u64));
                extra += item.position_count as u64 - 1;
            }
        }
        found
    }

    fn check_positions(&self) {
        let (tokens, mut count) = (self.raw(), usize::MAX);
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_tokens_position_count(&tokens, &mut count) };
        assert_eq!(status == rkv_status::Ok, self.is_good(), "{}", crate::abi::last_message());
        if status == rkv_status::Ok {
            assert_eq!(count as u64, self.positions());
        } else {
            assert_eq!(status, rkv_status::InvalidArgument);
            assert_eq!(count, usize::MAX);
        }
    }

    fn check_regions(&self, input: &mut Input<'_>) {
        let tokens = self.raw();
        let (mut count, room) = (usize::MAX, input.below(8));
        let mut regions = vec![rkv_region { start: 77, end: 77 }; room];
        let into = if room == 0 { ptr::null_mut() } else { regions.as_mut_ptr() };
        // SAFETY: all pointers lead to live values, `regions` has the room that is stated.
        let status = unsafe { rkv_tokens_regions(&tokens, into, room, &mut count) };
        if !self.is_good() {
            assert_eq!(status, rkv_status::InvalidArgument);
            return;
        }
        let expected = self.regions();
        assert_eq!(count, expected.len());
        if room == 0 || room >= count {
            assert_eq!(status, rkv_status::Ok);
            let written = regions.iter().take(count).map(|region| (region.start, region.end));
            let written: Vec<_> = written.collect();
            assert_eq!(written, expected[..written.len()]);
        } else {
            assert_eq!(status, rkv_status::BufferTooSmall);
            assert!(regions.iter().all(|region| (region.start, region.end) == (77, 77)));
        }
    }

    /// As a prompt: items stand before the id at their index.
    fn check_build(&self, input: &mut Input<'_>) {
        let prompt = self.raw();
        let needed = self.ids.len() + self.items.len();
        let room = if input.rarely(4) { input.below(needed + 1) } else { needed };
        let mut ids = vec![u32::MAX; room];
        let none = rkv_token_item {
            token_index: u64::MAX,
            kind: 0,
            position_count: 0,
            bin: 0,
            height_bin: 0,
            digest: [0; 16],
        };
        let mut items = vec![none; self.items.len()];
        let mut count = usize::MAX;
        // SAFETY: all pointers lead to live values, the buffers have the room that is needed.
        let status = unsafe {
            let (ids, items) = (ids.as_mut_ptr(), items.as_mut_ptr());
            rkv_tokens_build(&prompt, ids, room, items, &mut count)
        };
        let ascend = self.items.windows(2).all(|two| two[0].token_index <= two[1].token_index);
        let inside = self.items.iter().all(|item| item.token_index <= self.ids.len() as u64);
        let good = ascend
            && inside
            && self.items.iter().all(item_is_good)
            && self.ids.iter().all(|&id| id < RKV_TEXT_ID_LIMIT);
        if !good {
            assert_eq!(status, rkv_status::InvalidArgument, "{}", crate::abi::last_message());
            assert_eq!(count, usize::MAX);
            return;
        }
        assert_eq!(count, needed);
        if room < needed {
            assert_eq!(status, rkv_status::BufferTooSmall);
            assert!(ids.iter().all(|&id| id == u32::MAX));
            return;
        }
        ok(status);
        let made = Self { ids, items };
        assert!(made.is_good());
        assert_eq!(made.ids, self.expected_ids(&made.items));
        for (made, given) in made.items.iter().zip(&self.items) {
            assert_eq!((made.kind, made.bin), (given.kind, given.bin));
            assert_eq!((made.height_bin, made.digest), (given.height_bin, given.digest));
            assert_eq!(made.position_count.max(1), given.position_count.max(1));
        }
        made.check_positions();
        made.check_regions(input);
        let texts = self.ids.len() as u64;
        let taken = made.items.iter().map(|item| item.position_count.max(1) as u64);
        assert_eq!(made.positions(), texts + taken.sum::<u64>());
    }

    /// The ids of a list that was built: zero at its items, else this prompt's in order.
    fn expected_ids(&self, items: &[rkv_token_item]) -> Vec<u32> {
        let mut rest = self.ids.iter().copied();
        let mut expected = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let texts_before = item.token_index as usize - at;
            assert_eq!(texts_before as u64, self.items[at].token_index, "an item moved");
            while expected.len() < item.token_index as usize {
                expected.extend(rest.next());
            }
            expected.push(0);
        }
        expected.extend(rest);
        expected
    }
}

fn item(input: &mut Input<'_>, token_index: u64) -> rkv_token_item {
    let kind = match input.below(32) {
        31 => input.byte() as u32,
        some => 1 + some as u32 % 3,
    };
    let image = kind == RKV_TOKEN_IMAGE;
    let mut bin = || input.byte() as u32 * 4 + input.below(8) as u32 % 5;
    let (bin, height_bin) = (bin(), bin());
    rkv_token_item {
        token_index,
        kind,
        position_count: match input.byte() {
            255 => u32::MAX,
            some if image || some == 254 => some as u32,
            _ => 0,
        },
        bin: if image && input.below(32) != 0 { 0 } else { bin },
        height_bin: if kind == RKV_TOKEN_SIZE || input.rarely(64) { height_bin } else { 0 },
        digest: [if image || input.rarely(64) { input.byte() } else { 0 }; 16],
    }
}

fn item_is_good(item: &rkv_token_item) -> bool {
    match item.kind {
        RKV_TOKEN_IMAGE => item.position_count > 0 && item.bin == 0 && item.height_bin == 0,
        RKV_TOKEN_COORD | RKV_TOKEN_SIZE => {
            let height_is_good = match item.kind {
                RKV_TOKEN_SIZE => item.height_bin < RKV_BIN_COUNT,
                _ => item.height_bin == 0,
            };
            // One position may be stated, or left out.
            item.position_count <= 1
                && item.bin < RKV_BIN_COUNT
                && height_is_good
                && item.digest == [0; 16]
        }
        _ => false,
    }
}

type ToBin = unsafe extern "C" fn(f64, *mut u32) -> rkv_status;
type ToValue = unsafe extern "C" fn(u32, *mut f64) -> rkv_status;

fn bins(input: &mut Input<'_>) {
    let value = match input.below(4) {
        0 => f64::from_bits(input.u64()),
        1 => input.u64() as f64 / u64::MAX as f64,
        _ => input.byte() as f64 / 255.0,
    };
    let bin = input.byte() as u32 * 4 + input.below(8) as u32 % 5;
    check_bins(rkv_coord_bin, rkv_coord_value, 0.0, value, bin);
    check_bins(rkv_size_bin, rkv_size_value, 2f64.powi(-10), value, bin);
}

fn check_bins(to_bin: ToBin, to_value: ToValue, least: f64, value: f64, bin: u32) {
    let value_of = |bin| {
        let mut value = f64::NAN;
        // SAFETY: the pointer leads to a live value.
        let status = unsafe { to_value(bin, &mut value) };
        assert_eq!(status == rkv_status::Ok, bin < RKV_BIN_COUNT);
        value
    };
    let bin_of = |value: f64| {
        let mut bin = u32::MAX;
        // SAFETY: the pointer leads to a live value.
        let status = unsafe { to_bin(value, &mut bin) };
        assert_eq!(status == rkv_status::Ok, value >= least && value <= 1.0, "{value}");
        bin
    };
    if bin < RKV_BIN_COUNT {
        let value = value_of(bin);
        assert_eq!(bin_of(value), bin, "bins are stable");
        assert!((least..=1.0).contains(&value));
        assert!(bin == 0 || value_of(bin - 1) < value, "bins ascend");
    } else {
        value_of(bin);
    }
    let found = bin_of(value);
    if found != u32::MAX {
        // The nearest on the scale is no further than either neighbour in order.
        assert!(found == 0 || value_of(found - 1) < value);
        assert!(found == RKV_BIN_COUNT - 1 || value < value_of(found + 1));
    }
}

fn digest(input: &mut Input<'_>) {
    let bytes: Vec<_> = (0..input.below(40)).map(|_| input.byte()).collect();
    let of = |bytes: &[u8]| {
        let mut digest = [0; 16];
        // SAFETY: the pointers lead to live values of the stated length.
        ok(unsafe { rkv_image_digest(bytes.as_ptr().cast(), bytes.len(), digest.as_mut_ptr()) });
        digest
    };
    assert_eq!(of(&bytes), of(&bytes.clone()));
    let mut other = bytes.clone();
    other.push(0);
    assert_ne!(of(&bytes), of(&other));
}
