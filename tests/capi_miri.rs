//! Every function of the ABI once, through the Rust library and small enough for Miri:
//! `MIRIFLAGS=-Zmiri-strict-provenance cargo +nightly miri test --test capi_miri`.
//! What the functions mean is shown elsewhere; here each pointer path is walked, for Miri to watch.
use radixkv::capi::*;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

mod capi_miri {
    pub mod journal;
    pub mod runner;
    pub mod snapshots;
}

/// A struct of the ABI that is zero but for its size.
fn sized<T: Copy>() -> T {
    // SAFETY: used with the ABI's structs only: zero is valid, and a u32 size comes first.
    unsafe {
        let mut made = std::mem::zeroed::<T>();
        (&raw mut made).cast::<u32>().write(size_of::<T>() as u32);
        made
    }
}

#[track_caller]
fn ok(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok, "{}", message());
}

fn message() -> String {
    let mut text = [0u8; 200];
    // SAFETY: the buffer has the room that is stated.
    unsafe { rkv_last_error_message(text.as_mut_ptr().cast::<c_char>(), text.len()) };
    CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned()
}

fn list(ids: &[u32]) -> rkv_tokens {
    rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
}

/// A page table with a cache; destroyed in an order that leaves the cache to stand alone.
struct Pair(*mut rkv_page_table, *mut rkv_cache);

impl Pair {
    /// The page copy that a sequence waits for.
    fn copy_of(&self, sequence: rkv_sequence_id) -> rkv_page_copy {
        let mut copy =
            rkv_page_copy { source_page: 0, target_page: 0, position_count: 0, group: 9 };
        let (size, mut count) = (size_of::<rkv_page_copy>(), 0);
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_sequence_read_copies(self.1, sequence, &mut copy, size, 1, &mut count) });
        assert_eq!((count, copy.group), (1, 0));
        copy
    }

    fn new() -> Self {
        let mut pair = Self(ptr::null_mut(), ptr::null_mut());
        // SAFETY: all pointers lead to live values.
        unsafe {
            let mut config = sized::<rkv_page_table_config>();
            ok(rkv_page_table_config_init(&mut config, size_of_val(&config)));
            (config.page_size, config.page_count, config.slot_count) = (4, 12, 3);
            ok(rkv_page_table_create(&config, &mut pair.0));
            let mut config = sized::<rkv_cache_config>();
            ok(rkv_cache_config_init(&mut config, size_of_val(&config)));
            ok(rkv_cache_create(pair.0, &config, &mut pair.1));
        }
        pair
    }

    fn begin(&self, tokens: &rkv_tokens) -> rkv_sequence_info {
        let namespace = sized::<rkv_namespace>();
        let args = rkv_sequence_begin_args { space: &namespace, tokens, ..sized() };
        let mut state = sized();
        // SAFETY: all pointers lead to live values.
        ok(unsafe { rkv_sequence_begin(self.1, &args, &mut state) });
        state
    }

    fn check(&self) {
        // SAFETY: the handles are alive.
        unsafe {
            ok(rkv_cache_check(self.1));
            ok(rkv_page_table_check(self.0));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handles.
        unsafe {
            rkv_page_table_destroy(self.0);
            rkv_cache_destroy(self.1);
        }
    }
}

#[test]
fn version_and_messages() {
    assert_eq!(rkv_abi_version(), RKV_ABI_VERSION);
    assert_ne!(rkv_features() & RKV_FEATURE_RADIX_INDEX, 0);
    assert_ne!(rkv_features() & RKV_FEATURE_BLOCK_HASH_INDEX, 0);
    // SAFETY: the texts are static, the buffers have the room that is stated.
    unsafe {
        assert!(!CStr::from_ptr(rkv_version_string()).is_empty());
        assert_eq!(CStr::from_ptr(rkv_status_name(1)), c"RKV_STATUS_INVALID_ARGUMENT");
        assert_eq!(rkv_coord_bin(0.5, ptr::null_mut()), rkv_status::InvalidArgument);
        let mut short = [1u8; 4];
        let needed = rkv_last_error_message(short.as_mut_ptr().cast(), short.len());
        assert_eq!((needed, short[3]), (message().len() + 1, 0));
        assert_eq!(rkv_last_error_message(ptr::null_mut(), 0), needed);
    }
}

#[test]
fn log_callback_gets_its_user_data() {
    unsafe extern "C-unwind" fn count(_: u32, _: *const c_char, user_data: *mut c_void) {
        // SAFETY: the test passes a usize that outlives the callback.
        unsafe { *user_data.cast::<usize>() += 1 };
    }
    let mut calls = 0usize;
    let user_data = (&raw mut calls).cast();
    // SAFETY: the callback and its data live until it is taken back.
    unsafe {
        rkv_set_log_callback(RKV_LOG_ERROR, Some(count), user_data);
        rkv_set_log_callback(RKV_LOG_OFF, None, ptr::null_mut());
    }
    assert_eq!(calls, 0);
}

/// K02, K03, K04
#[test]
fn tokens_bins_and_digests() {
    let (mut bin, mut value, mut digest) = (0, 0.0, [0; 16]);
    // SAFETY: all pointers lead to live values, the buffers have the room that is stated.
    unsafe {
        ok(rkv_coord_bin(1.0, &mut bin));
        ok(rkv_coord_value(bin, &mut value));
        assert_eq!((bin, value), (1023, 1.0));
        ok(rkv_size_bin(1.0, &mut bin));
        ok(rkv_size_value(bin, &mut value));
        assert_eq!((bin, value), (1023, 1.0));
        ok(rkv_image_digest(c"image".as_ptr().cast(), 5, digest.as_mut_ptr()));

        let none = rkv_token_item {
            token_index: 1,
            kind: RKV_TOKEN_COORD,
            position_count: 0,
            bin: 7,
            height_bin: 0,
            digest: [0; 16],
        };
        let image = rkv_token_item {
            token_index: 2,
            kind: RKV_TOKEN_IMAGE,
            position_count: 5,
            bin: 0,
            digest,
            ..none
        };
        let given = [none, image];
        let prompt = rkv_tokens {
            item_size: size_of::<rkv_token_item>() as u32,
            items: given.as_ptr(),
            item_count: 2,
            ..list(&[1, 2, 3])
        };
        let (mut ids, mut items, mut count) = ([9; 5], [none; 2], 0);
        let status = rkv_tokens_build(&prompt, ids.as_mut_ptr(), 4, items.as_mut_ptr(), &mut count);
        assert_eq!((status, count), (rkv_status::BufferTooSmall, 5));
        let (into, into_items) = (ids.as_mut_ptr(), items.as_mut_ptr());
        ok(rkv_tokens_build(&prompt, into, 5, into_items, &mut count));
        assert_eq!(ids, [1, 0, 2, 0, 3]);
        let made = rkv_tokens {
            item_size: size_of::<rkv_token_item>() as u32,
            items: items.as_ptr(),
            item_count: 2,
            ..list(&ids)
        };
        ok(rkv_tokens_position_count(&made, &mut count));
        assert_eq!(count, 9);
        let mut regions = [rkv_region { start: 0, end: 0 }; 1];
        ok(rkv_tokens_regions(&made, ptr::null_mut(), 0, &mut count));
        ok(rkv_tokens_regions(&made, regions.as_mut_ptr(), count, &mut count));
        assert_eq!((regions[0].start, regions[0].end), (3, 8));

        let mut digests = [rkv_page_digest { bytes: [0; 32] }; 4];
        let mut args = rkv_tokens_page_digests_args { page_size: 2, tokens: &made, ..sized() };
        let into = digests.as_mut_ptr();
        ok(rkv_tokens_page_digests(&args, into, 4, &mut count));
        assert_eq!(count, 4);
        let last = digests[3];
        // Going on in place: the parent lies where the digests go.
        (args.parent, args.first_page) = (into.add(1).cast_const(), 2);
        ok(rkv_tokens_page_digests(&args, into, 2, &mut count));
        assert_eq!(digests[1].bytes, last.bytes);
    }
}

/// K05, K08, K12
#[test]
fn pages_rows_and_the_tree() {
    let pair = Pair::new();
    let Pair(table, cache) = pair;
    let ids = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    let tokens = list(&ids);
    let mut pages = [0; 3];
    // SAFETY: all pointers lead to live values, the buffers have the room that is stated.
    unsafe {
        ok(rkv_page_table_allocate_pages(table, 3, pages.as_mut_ptr()));
        let args = rkv_cache_insert_args {
            tokens: &tokens,
            pages: pages.as_ptr(),
            page_count: 3,
            ..sized()
        };
        let (mut published, mut inserted) = ([0; 3], sized::<rkv_cache_insert_result>());
        ok(rkv_cache_insert(cache, &args, published.as_mut_ptr(), &mut inserted));
        assert_eq!((inserted.claimed_page_count, published), (2, pages));
        ok(rkv_page_table_free_pages(table, &pages[2], 1));

        let (mut token_count, mut position_count) = (0, 0);
        let query = list(&ids[..6]);
        ok(rkv_cache_probe(cache, ptr::null(), &query, &mut token_count, &mut position_count));
        assert_eq!((token_count, position_count), (6, 6));
        let (mut matched, mut found) = ([0; 2], sized::<rkv_cache_match_result>());
        let into = matched.as_mut_ptr();
        ok(rkv_cache_match(cache, ptr::null(), &query, RKV_MATCH_LOCK, into, 2, &mut found));
        assert_eq!((found.page_count, found.partial_page, matched[0]), (1, pages[1], pages[0]));

        let (mut info, mut count, mut contains) = (sized::<rkv_node_info>(), 0, false);
        ok(rkv_node_read_info(cache, found.node, &mut info));
        let mut children = [0; 1];
        let into = children.as_mut_ptr();
        ok(rkv_node_read_children(cache, found.node, into, 1, &mut count));
        assert_eq!((info.child_count, children[0]), (1, found.partial_node));
        let into = matched.as_mut_ptr();
        ok(rkv_node_read_pages(cache, found.partial_node, into, 2, &mut count));
        assert_eq!(matched[..count], pages[1..2]);
        ok(rkv_cache_contains_page(cache, pages[1], &mut contains));
        assert!(contains);
        let mut lock = 0;
        ok(rkv_cache_lock(cache, found.node, &mut lock));
        ok(rkv_cache_unlock(cache, lock));

        let (mut slot, mut can, mut mapping) = (0, false, [0; 2]);
        ok(rkv_page_table_allocate_slot(table, &mut slot));
        ok(rkv_page_table_map(table, slot, 0, pages.as_ptr(), 2));
        ok(rkv_page_table_can_reserve(table, slot, 12, &mut can));
        assert!(can);
        ok(rkv_page_table_reserve(table, slot, 12));
        ok(rkv_page_table_row_capacity(table, slot, &mut position_count));
        ok(rkv_page_table_read_row(table, slot, 1, matched.as_mut_ptr(), 2, &mut count));
        assert_eq!((position_count, count, matched[0]), (12, 2, pages[1]));
        let positions = [5, 0];
        let (from, into) = (positions.as_ptr(), mapping.as_mut_ptr());
        ok(rkv_page_table_read_slot_mapping(table, slot, from, 2, into));
        assert_eq!(mapping, [pages[1] as i64 * 4 + 1, pages[0] as i64 * 4]);
        let rows = [rkv_page_table_batch_row { slot, position_count: 6 }];
        let (mut indptr, mut indices, mut last) = ([9; 2], [9; 2], [9; 1]);
        let arrays = rkv_page_table_batch_arrays {
            indptr: indptr.as_mut_ptr(),
            indices: indices.as_mut_ptr(),
            indices_capacity: 2,
            last_page_len: last.as_mut_ptr(),
            ..sized()
        };
        ok(rkv_page_table_read_batch(
            table,
            rows.as_ptr(),
            1,
            size_of::<rkv_page_table_batch_row>(),
            &arrays,
            &mut count,
        ));
        assert_eq!((indptr, last), ([0, 2], [2]));
        ok(rkv_page_table_free_slot(table, slot));
        ok(rkv_cache_unlock(cache, found.lock));

        for format in [RKV_DUMP_JSON, RKV_DUMP_DOT] {
            ok(rkv_cache_dump(cache, format, ptr::null_mut(), 0, &mut count));
            let mut text = vec![0; count];
            ok(rkv_cache_dump(cache, format, text.as_mut_ptr(), count, &mut count));
        }
        pair.check();
        let mut evicted = [0; 4];
        ok(rkv_cache_evict(cache, 9, evicted.as_mut_ptr(), 4, &mut count));
        assert_eq!(count, 2);
        let mut stats = sized::<rkv_page_table_stats>();
        ok(rkv_page_table_read_stats(table, &mut stats));
        assert_eq!(stats.free_page_count, stats.total_page_count);
    }
}

/// K14, K16, K18, B08
#[test]
fn the_life_of_sequences() {
    let pair = Pair::new();
    let Pair(table, cache) = pair;
    let (ids, longer) = ([1, 2, 3, 4, 5, 6, 7, 8], [0; 60]);
    // SAFETY: all pointers lead to live values.
    unsafe {
        let first = pair.begin(&list(&ids));
        let twin = pair.begin(&list(&ids));
        let mut result = sized::<rkv_sequence_publish_result>();
        ok(rkv_sequence_publish(cache, first.sequence, 8, &mut result));
        assert_eq!(result.claimed_page_count, 2);
        ok(rkv_sequence_publish(cache, twin.sequence, 8, &mut result));
        assert_eq!(result.remapped_page_count, 2);
        ok(rkv_sequence_append(cache, twin.sequence, &list(&[9, 9])));
        ok(rkv_sequence_truncate(cache, twin.sequence, 9));
        let third = pair.begin(&list(&ids[..7]));
        assert_eq!(
            (third.cached_position_count, pair.copy_of(third.sequence).position_count),
            (6, 2)
        );
        ok(rkv_sequence_confirm_copies(cache, third.sequence));
        let mut state = sized::<rkv_sequence_info>();
        ok(rkv_sequence_read_info(cache, third.sequence, &mut state));
        assert_eq!(state.copy_count, 0);

        let mut shortage = sized::<rkv_shortage>();
        let status = rkv_sequence_append(cache, first.sequence, &list(&longer[..32]));
        assert_eq!(status, rkv_status::OutOfPages);
        ok(rkv_last_shortage(&mut shortage));
        assert_eq!(shortage.needed_page_count, 8);
        let mut stats = sized::<rkv_cache_stats>();
        ok(rkv_cache_read_stats(cache, &mut stats));
        assert_eq!(stats.sequence_count, 3);
        pair.check();
        ok(rkv_sequence_release(cache, first.sequence));
        assert_eq!(rkv_sequence_release(cache, first.sequence), rkv_status::StaleSequence);
        // The others end with the cache.
        assert_eq!(rkv_page_table_free_slot(table, twin.slot), rkv_status::InvalidState);
    }
}

/// C01, C02, C04, C08
#[test]
fn parents_and_children() {
    let pair = Pair::new();
    let Pair(table, cache) = pair;
    let (ids, none) =
        ([1, 2, 3, 4, 5, 6], rkv_sequence_fork_child { sequence: 0, slot: 0, copy_count: 0 });
    // SAFETY: all pointers lead to live values, the buffers have the room that is stated.
    unsafe {
        let parent = pair.begin(&list(&ids));
        let mut result = sized::<rkv_sequence_publish_result>();
        ok(rkv_sequence_publish(cache, parent.sequence, 6, &mut result));
        let mut retained = false;
        ok(rkv_sequence_retain(cache, parent.sequence, &mut retained));
        let (mut kept, mut count) = ([0; 2], 0);
        ok(rkv_cache_read_retained(cache, ptr::null_mut(), 0, &mut count));
        ok(rkv_cache_read_retained(cache, kept.as_mut_ptr(), kept.len(), &mut count));
        assert_eq!((retained, count, kept[0]), (true, 1, parent.sequence));

        let (namespace, suffix, all) = (sized::<rkv_namespace>(), list(&[7]), list(&ids));
        let mut args = rkv_sequence_continue_args {
            parent: parent.sequence,
            space: &namespace,
            tokens: &suffix,
            all_tokens: &all,
            ..sized()
        };
        let mut child = sized::<rkv_sequence_info>();
        ok(rkv_sequence_continue(cache, &args, &mut child));
        let copy = pair.copy_of(child.sequence);
        assert_eq!((child.inherited_position_count, copy.position_count), (6, 2));
        args.parent = child.sequence;
        assert_eq!(rkv_sequence_continue(cache, &args, &mut child), rkv_status::Pending);

        let mut children = [none; 2];
        let fork = rkv_sequence_fork_args { parent: parent.sequence, child_count: 2, ..sized() };
        ok(rkv_sequence_fork(
            cache,
            &fork,
            children.as_mut_ptr(),
            size_of::<rkv_sequence_fork_child>(),
        ));
        assert_eq!(pair.copy_of(children[1].sequence).source_page, copy.source_page);
        ok(rkv_sequence_drop(cache, parent.sequence));
        pair.check();
        for child in [child.sequence, children[0].sequence, children[1].sequence] {
            ok(rkv_sequence_confirm_copies(cache, child));
            ok(rkv_sequence_retain(cache, child, &mut retained));
        }
        ok(rkv_cache_drop_retained(cache, usize::MAX, &mut count));
        assert_eq!(count, 4);
        let mut stats = sized::<rkv_page_table_stats>();
        ok(rkv_page_table_read_stats(table, &mut stats));
        assert_eq!(stats.private_page_count, 0);
        pair.check();
    }
}

/// M01: structs of an older and of a newer caller, and pointers that cannot be.
#[test]
fn structs_of_other_sizes() {
    let pair = Pair::new();
    #[repr(C)]
    struct Newer {
        known: rkv_page_table_stats,
        unknown: [u64; 2],
    }
    let mut newer = Newer { known: sized(), unknown: [5; 2] };
    newer.known.struct_size = size_of::<Newer>() as u32;
    // SAFETY: the pointers lead to as many bytes as struct_size says, or are refused before that.
    unsafe {
        ok(rkv_page_table_read_stats(pair.0, (&raw mut newer).cast()));
        assert_eq!((newer.known.struct_size, newer.unknown), (size_of::<Newer>() as u32, [0; 2]));
        let mut small = 8u64;
        let small = (&raw mut small).cast::<rkv_page_table_stats>();
        assert_eq!(rkv_page_table_read_stats(pair.0, small), rkv_status::InvalidArgument);
        let askew = (&raw mut newer).cast::<u8>().add(1).cast();
        assert_eq!(rkv_page_table_read_stats(pair.0, askew), rkv_status::InvalidArgument);
        let mixed_up = pair.1.cast::<rkv_page_table>();
        let stats = (&raw mut newer).cast();
        assert_eq!(rkv_page_table_read_stats(mixed_up, stats), rkv_status::InvalidArgument);
        rkv_page_table_destroy(ptr::null_mut());
        rkv_cache_destroy(ptr::null_mut());
    }
}

/// K16
#[test]
fn threads_publish_one_prompt() {
    let pair = Pair::new();
    struct Handle(*mut rkv_cache);
    // SAFETY: every call may be made from any thread.
    unsafe impl Sync for Handle {}
    impl Handle {
        fn run(&self) {
            let tokens = list(&[1, 2, 3, 4, 5]);
            let args = rkv_sequence_begin_args { tokens: &tokens, ..sized() };
            let (mut state, mut result) =
                (sized::<rkv_sequence_info>(), sized::<rkv_sequence_publish_result>());
            let mut count = 0;
            // SAFETY: all pointers lead to live values.
            unsafe {
                ok(rkv_sequence_begin(self.0, &args, &mut state));
                ok(rkv_sequence_publish(self.0, state.sequence, 5, &mut result));
                ok(rkv_cache_probe(self.0, ptr::null(), &tokens, ptr::null_mut(), &mut count));
                assert!(count >= 4);
                ok(rkv_sequence_release(self.0, state.sequence));
            }
        }
    }
    let handle = Handle(pair.1);
    std::thread::scope(|scope| {
        scope.spawn(|| handle.run());
        handle.run();
    });
    pair.check();
}
