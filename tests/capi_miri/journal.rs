//! J01, J02: the journal. Buffers of exactly the size that is stated, elements of a caller who
//! knows more than the library, and none.
use super::super::{Pair, list, ok, sized};
use radixkv::capi::*;
use std::ptr::{null, null_mut};

/// An element of a newer caller.
#[repr(C)]
#[derive(Clone, Copy)]
struct Newer<T> {
    known: T,
    unknown: u64,
}

fn newer<T: Copy>() -> Newer<T> {
    // SAFETY: used with structs of integers, for which zero is a value.
    unsafe { Newer { known: std::mem::zeroed(), unknown: u64::MAX } }
}

#[test]
fn journal() {
    let pair = Pair::new();
    // SAFETY: all pointers lead to live values, the buffers have the room that is stated.
    unsafe {
        rkv_cache_destroy(pair.1);
        let config = rkv_cache_config { journal_bytes: 2048, ..sized() };
        let (mut cache, mut pages, mut count) = (null_mut(), [0; 3], 0);
        ok(rkv_cache_create(pair.0, &config, &mut cache));
        ok(rkv_page_table_allocate_pages(pair.0, 3, pages.as_mut_ptr()));
        let mut item = rkv_token_item {
            token_index: 1,
            kind: RKV_TOKEN_IMAGE,
            position_count: 6,
            bin: 0,
            height_bin: 0,
            digest: [7; 16],
        };
        let tokens = rkv_tokens {
            item_size: size_of::<rkv_token_item>() as u32,
            items: &raw mut item,
            item_count: 1,
            ..list(&[1, 0, 2, 3, 4, 5, 6])
        };
        let args = rkv_cache_insert_args {
            tokens: &tokens,
            pages: pages.as_ptr(),
            page_count: 3,
            ..sized()
        };
        ok(rkv_cache_insert(cache, &args, null_mut(), &mut sized()));
        ok(rkv_cache_evict(cache, 1, null_mut(), 0, &mut count));

        let mut records = [newer::<rkv_journal_record>(); 2];
        let mut items = [newer::<rkv_journal_item>(); 1];
        let (mut told, mut ids) = ([0; 4], [0; 12]);
        let mut room = rkv_journal_buffers {
            records: records.as_mut_ptr().cast(),
            record_size: size_of_val(&records[0]),
            record_capacity: 2,
            pages: told.as_mut_ptr(),
            page_capacity: 4,
            tokens: ids.as_mut_ptr(),
            token_capacity: 12,
            items: items.as_mut_ptr().cast(),
            item_size: size_of_val(&items[0]),
            item_capacity: 1,
            ..sized()
        };
        let mut result: rkv_cache_read_journal_result = sized();
        ok(rkv_cache_read_journal(cache, 0, &room, &mut result));
        assert_eq!((result.record_count, result.page_count, result.item_count), (2, 4, 1));
        assert_eq!((records[0].unknown, records[1].unknown, items[0].unknown), (0, 0, 0));
        assert_eq!((told, ids[11]), ([pages[0], pages[1], pages[2], pages[2]], 6));
        room.token_capacity = 11;
        let refused = rkv_cache_read_journal(cache, 0, &room, &mut result);
        assert_eq!((refused, result.token_count), (rkv_status::BufferTooSmall, 12));

        (room.record_capacity, room.page_capacity, room.token_capacity) = (1, 2, 8);
        let mut contents: rkv_cache_read_contents_result = sized();
        ok(rkv_cache_read_contents(cache, 0, &room, &mut contents));
        assert_eq!((contents.page_count, contents.next_page, contents.number), (2, 0, 2));

        rkv_cache_destroy(cache);
        ok(rkv_page_table_read_journal(pair.0, 2, &sized(), &mut result));
        assert_eq!((result.record_count, result.page_count), (1, 2));
        // For the pair to destroy.
        let mut last = null_mut();
        ok(rkv_cache_create(pair.0, null(), &mut last));
        let pair = std::mem::ManuallyDrop::new(pair);
        rkv_cache_destroy(last);
        rkv_page_table_destroy(pair.0);
    }
}
