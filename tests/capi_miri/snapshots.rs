//! Snapshots, from one thread and from two.
use crate::{list, ok, sized};
use radixkv::capi::*;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C-unwind" fn drop_counter(data: *mut c_void, bytes: u64, user_data: *mut c_void) {
    // SAFETY: the tests pass a box of a usize, and a counter that outlives the cache.
    unsafe {
        assert_eq!(*Box::from_raw(data.cast::<usize>()), bytes as usize);
        (*user_data.cast::<AtomicUsize>()).fetch_add(1, Ordering::Relaxed);
    }
}

/// A snapshot of `bytes` bytes, which holds that number.
fn snapshot(
    tokens: &rkv_tokens,
    bytes: u64,
    user_data: *mut c_void,
) -> rkv_snapshot_cache_insert_args {
    rkv_snapshot_cache_insert_args {
        tokens,
        data: Box::into_raw(Box::new(bytes as usize)).cast(),
        size_bytes: bytes,
        destructor: Some(drop_counter),
        user_data,
        has_next_token: 1,
        next_token: 9,
        ..sized()
    }
}

/// S01, S02, S05, S07, M03
#[test]
fn snapshots_and_their_pins() {
    let gone = AtomicUsize::new(0);
    let user_data = (&raw const gone).cast_mut().cast();
    let count = || gone.load(Ordering::Relaxed);
    let ids = [1, 2, 3, 4];
    let (all, two, namespace) = (list(&ids), list(&ids[..2]), sized::<rkv_namespace>());
    let mut config = sized::<rkv_snapshot_cache_config>();
    let mut cache = ptr::null_mut();
    // SAFETY: all pointers lead to live values; a match's data is a box's until the release.
    unsafe {
        ok(rkv_snapshot_cache_config_init(&mut config, size_of_val(&config)));
        config.entry_limit = 2;
        ok(rkv_snapshot_cache_create(&config, &mut cache));
        let mut result = sized::<rkv_snapshot_cache_insert_result>();
        ok(rkv_snapshot_cache_insert(cache, &snapshot(&all, 4, user_data), &mut result));
        ok(rkv_snapshot_cache_insert(cache, &snapshot(&two, 2, user_data), ptr::null_mut()));
        assert_eq!((result.stored, count()), (1, 0));

        let (mut found, mut tokens) = (sized::<rkv_snapshot_cache_match_result>(), 0);
        ok(rkv_snapshot_cache_probe(cache, &namespace, &all, &mut tokens));
        ok(rkv_snapshot_cache_match(cache, ptr::null(), &all, 0, &mut found));
        assert_eq!((tokens, found.token_count, *found.data.cast::<usize>()), (4, 4, 4));
        assert_eq!((found.full_hit, found.next_token), (1, 9));
        ok(rkv_snapshot_cache_insert(cache, &snapshot(&all, 5, user_data), &mut result));
        assert_eq!((result.replaced, count(), *found.data.cast::<usize>()), (1, 0, 4));
        ok(rkv_snapshot_cache_release(cache, found.pin));
        assert_eq!(rkv_snapshot_cache_release(cache, found.pin), rkv_status::StalePin);
        assert_eq!(count(), 1);

        let (mut removed, mut stats) = (false, sized::<rkv_snapshot_cache_stats>());
        ok(rkv_snapshot_cache_remove(cache, ptr::null(), &two, &mut removed));
        ok(rkv_snapshot_cache_read_stats(cache, &mut stats));
        assert_eq!((removed, stats.entry_count, count()), (true, 1, 2));
        ok(rkv_snapshot_cache_check(cache));
        ok(rkv_snapshot_cache_match(cache, ptr::null(), &all, 0, &mut found));
        ok(rkv_snapshot_cache_clear(cache));
        ok(rkv_snapshot_cache_insert(cache, &snapshot(&two, 2, user_data), ptr::null_mut()));
        rkv_snapshot_cache_destroy(cache);
        assert_eq!((count(), *found.data.cast::<usize>()), (3, 5));
        ok(rkv_snapshot_cache_release(cache, found.pin));
        assert_eq!(count(), 4);
        rkv_snapshot_cache_destroy(ptr::null_mut());
    }
}

/// S05, S09
#[test]
fn threads_share_snapshots() {
    let gone = AtomicUsize::new(0);
    struct Handle(*mut rkv_snapshot_cache, *mut c_void);
    // SAFETY: every call may be made from any thread.
    unsafe impl Sync for Handle {}
    impl Handle {
        fn run(&self) {
            let (ids, mut found) = ([1, 2, 3], sized::<rkv_snapshot_cache_match_result>());
            let tokens = list(&ids);
            // SAFETY: all pointers lead to live values; what is pinned is there.
            unsafe {
                let args = snapshot(&tokens, 3, self.1);
                ok(rkv_snapshot_cache_insert(self.0, &args, ptr::null_mut()));
                ok(rkv_snapshot_cache_match(self.0, ptr::null(), &tokens, 0, &mut found));
                assert_eq!(*found.data.cast::<usize>(), 3);
                ok(rkv_snapshot_cache_release(self.0, found.pin));
            }
        }
    }
    let mut cache = ptr::null_mut();
    // SAFETY: all pointers lead to live values.
    ok(unsafe { rkv_snapshot_cache_create(ptr::null(), &mut cache) });
    let handle = Handle(cache, (&raw const gone).cast_mut().cast());
    std::thread::scope(|scope| {
        scope.spawn(|| handle.run());
        handle.run();
    });
    // SAFETY: nobody else uses the handle.
    unsafe {
        ok(rkv_snapshot_cache_check(cache));
        rkv_snapshot_cache_destroy(cache);
    }
    assert_eq!(gone.load(Ordering::Relaxed), 2);
}
