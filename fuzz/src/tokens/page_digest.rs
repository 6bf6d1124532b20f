//! Page digests against a plain account of docs/block_hash.md: all bytes in one list, one hash.
use super::List;
use crate::abi::{Sized32, last_message};
use crate::input::Input;
use radixkv::capi::*;
use sha2::{Digest, Sha256};
use std::ptr;

/// A position: its id, the record of what stands there, and whether an image goes on there.
struct Position {
    id: u32,
    record: Option<(u32, u32, u32, [u8; 16])>,
    goes_on: bool,
}

fn positions(list: &List) -> Vec<Position> {
    let mut found = Vec::new();
    let mut items = list.items.iter().peekable();
    for (at, &id) in list.ids.iter().enumerate() {
        let Some(item) = items.next_if(|item| item.token_index == at as u64) else {
            found.push(Position { id, record: None, goes_on: false });
            continue;
        };
        if item.kind == RKV_TOKEN_IMAGE {
            for offset in 0..item.position_count {
                let record = Some((3, offset, item.position_count, item.digest));
                found.push(Position { id: 0, record, goes_on: offset > 0 });
            }
        } else {
            let record = Some((item.kind, item.bin, item.height_bin, [0; 16]));
            found.push(Position { id: 0, record, goes_on: false });
        }
    }
    found
}

fn page_digest(parent: &[u8; 32], page: &[Position]) -> [u8; 32] {
    let mut records = Vec::new();
    let mut count = 0u32;
    for (place, position) in page.iter().enumerate() {
        let Some((kind, first, second, digest)) = position.record else { continue };
        if place == 0 || !position.goes_on {
            let words = [place as u32, kind, first, second];
            records.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            records.extend(digest);
            count += 1;
        }
    }
    let mut bytes = b"rkvpage1".to_vec();
    bytes.extend((page.len() as u32).to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(parent);
    bytes.extend(page.iter().flat_map(|position| position.id.to_le_bytes()));
    bytes.extend(records);
    Sha256::digest(bytes).into()
}

impl List {
    pub(super) fn check_page_digests(&self, input: &mut Input<'_>) {
        let tokens = self.raw();
        let page_size = 1 + input.below(20);
        let parent = rkv_page_digest { bytes: [input.byte(); 32] };
        let first_page = input.below(3);
        let args = rkv_tokens_page_digests_args {
            page_size: page_size as u32,
            tokens: &tokens,
            parent: &parent,
            first_page: first_page as u64,
            ..Sized32::sized()
        };
        let mut digests = vec![rkv_page_digest { bytes: [7; 32] }; 32];
        let (into, room, mut count) = (digests.as_mut_ptr(), digests.len(), usize::MAX);
        // SAFETY: all pointers lead to live values, `digests` has the room that is stated.
        let status = unsafe { rkv_tokens_page_digests(&args, into, room, &mut count) };
        let untouched = || digests.iter().all(|digest| digest.bytes == [7; 32]);
        if !self.is_good() || self.positions() < (first_page * page_size) as u64 {
            assert_eq!(status, rkv_status::InvalidArgument);
            assert!(count == usize::MAX && untouched());
            return;
        }
        let pages = (self.positions() / page_size as u64) as usize - first_page;
        if pages > room {
            assert_eq!((status, count), (rkv_status::BufferTooSmall, pages));
            assert!(untouched());
            return;
        }
        let positions = positions(self);
        let hashed = &positions[first_page * page_size..][..pages * page_size];
        let text = |position: &Position| position.record.is_some() || position.id < 1 << 31;
        if !hashed.iter().all(text) {
            assert_eq!(status, rkv_status::InvalidArgument);
            assert!(count == usize::MAX && untouched());
            return;
        }
        assert_eq!((status, count), (rkv_status::Ok, pages), "{}", last_message());
        let mut last = parent.bytes;
        for (page, digest) in hashed.chunks(page_size).zip(&digests) {
            last = page_digest(&last, page);
            assert_eq!(digest.bytes, last);
        }
        // SAFETY: as above; no room is stated.
        let asked = unsafe { rkv_tokens_page_digests(&args, ptr::null_mut(), 0, &mut count) };
        assert_eq!((asked, count), (rkv_status::Ok, pages));
    }
}
