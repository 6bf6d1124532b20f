//! T13: snapshots over the same servers: what one cache inserted another one fetches, with equal
//! bytes, and a server that is gone costs a hit.
use super::Place;
use super::engine::{Store, ok, sized};
use radixkv::capi::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

const LENGTH: usize = 100;
/// Of several values on the server.
const BYTES: usize = (5 << 20) + 3;

struct Snapshots(*mut rkv_snapshot_cache);

fn state_of(family: u32) -> Vec<u8> {
    let byte = |at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ family as u8;
    (0..BYTES as u32).map(byte).collect()
}

/// A state goes with its box.
unsafe extern "C-unwind" fn end(_: *mut c_void, _: u64, user_data: *mut c_void) {
    // SAFETY: it came from Box::into_raw, and this is called once.
    drop(unsafe { Box::from_raw(user_data.cast::<Vec<u8>>()) });
}

impl Snapshots {
    fn new(store: &Store) -> Self {
        let mut made = null_mut();
        let remote = store.remote();
        let mut config: rkv_snapshot_tier_config = sized();
        // SAFETY: everything is there during the calls.
        unsafe {
            ok(rkv_snapshot_cache_create(null(), &mut made));
            ok(rkv_snapshot_tier_config_init(&mut config, size_of_val(&config)));
            config.remote = &remote;
            config.remote_timeout_ms = 20_000;
            ok(rkv_snapshot_cache_attach(made, &config));
        }
        Self(made)
    }

    fn with<R>(family: u32, count: usize, ask: impl FnOnce(&rkv_tokens) -> R) -> R {
        let ids: Vec<u32> = (0..count as u32).map(|at| family * 1000 + at).collect();
        let mut tokens: rkv_tokens = sized();
        (tokens.ids, tokens.count) = (ids.as_ptr(), ids.len());
        ask(&tokens)
    }

    fn insert(&self, family: u32) {
        let state = Box::new(state_of(family));
        Self::with(family, LENGTH, |tokens| {
            let mut args: rkv_snapshot_cache_insert_args = sized();
            args.flags = RKV_SNAPSHOT_INSERT_STORABLE;
            args.tokens = tokens;
            args.data = state.as_ptr().cast_mut().cast();
            args.size_bytes = BYTES as u64;
            args.destructor = Some(end);
            args.user_data = Box::into_raw(state).cast();
            // SAFETY: the state stays until its destructor is called.
            ok(unsafe { rkv_snapshot_cache_insert(self.0, &args, null_mut()) });
        });
    }

    fn stats(&self) -> rkv_snapshot_tier_stats {
        let mut stats = sized();
        // SAFETY: the cache is there.
        ok(unsafe { rkv_snapshot_cache_read_tier_stats(self.0, &mut stats) });
        stats
    }

    fn until(&self, what: &str, is_true: impl Fn(&rkv_snapshot_tier_stats) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_true(&self.stats()) {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Tokens of what is found of a longer prompt; its bytes are compared.
    fn fetch(&self, family: u32) -> u64 {
        let mut fetch: rkv_snapshot_cache_fetch_result = sized();
        // SAFETY: everything is there during the calls; the pin keeps the state.
        Self::with(family, LENGTH + 5, |tokens| unsafe {
            ok(rkv_snapshot_cache_fetch(self.0, null(), tokens, 0, &mut fetch));
        });
        if fetch.ticket == 0 {
            return 0;
        }
        let mut found: rkv_snapshot_cache_match_result = sized();
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            // SAFETY: the same.
            match unsafe { rkv_snapshot_cache_take(self.0, fetch.ticket, &mut found) } {
                rkv_status::Pending => std::thread::sleep(Duration::from_millis(1)),
                status => break ok(status),
            }
            assert!(Instant::now() < end, "it never came");
        }
        if found.pin != 0 {
            // SAFETY: the same.
            let state = unsafe { std::slice::from_raw_parts(found.data.cast::<u8>(), BYTES) };
            assert!(found.size_bytes == BYTES as u64 && state == state_of(family));
            // SAFETY: nobody looks at it any more.
            ok(unsafe { rkv_snapshot_cache_release(self.0, found.pin) });
        }
        found.token_count
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        // SAFETY: it came from create, and nobody else has it.
        unsafe { rkv_snapshot_cache_destroy(self.0) };
    }
}

fn are_shared(mut place: Place) {
    let store = place.store();
    let first = Snapshots::new(&store);
    (1..4).for_each(|family| first.insert(family));
    // A state is found by what is written last.
    first.until("written", |stats| {
        stats.remote.written_bytes >= 3 * BYTES as u64 && stats.remote.waiting_page_count == 0
    });
    drop(first);
    let second = Snapshots::new(&store);
    for family in 1..4 {
        assert_eq!(second.fetch(family), LENGTH as u64, "{}", store.last_failure());
    }
    assert_eq!(second.fetch(9), 0, "nobody inserted that");
    assert_eq!(second.stats().remote.fetched_page_count, 3);
    // A server that is gone.
    place.server.kill();
    let third = Snapshots::new(&store);
    assert_eq!(third.fetch(1), 0);
    third.insert(1);
    assert_eq!(third.stats().remote.fetched_page_count, 0);
}

#[test]
fn t13_snapshots_are_shared_over_redis() {
    Place::redis().into_iter().for_each(are_shared);
}

#[test]
fn t13_snapshots_are_shared_over_tls() {
    Place::redis_over_tls().into_iter().for_each(are_shared);
}

#[test]
fn t13_snapshots_are_shared_over_s3() {
    Place::s3().into_iter().for_each(are_shared);
}
