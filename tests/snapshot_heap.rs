//! What a snapshot cache says of its memory is what it has from the allocator. One test: bytes are
//! counted for all threads together.
#[allow(dead_code)]
mod failing;
#[path = "snapshot_memory/world.rs"]
#[allow(dead_code)]
mod world;

use failing::{Failure, bytes_in_use, failing};
use radixkv::capi::*;
use std::ptr;
use world::{World, list, message, namespace, sized};

/// A world whose own memory doesn't count.
struct Heap {
    world: World,
    before: usize,
}

impl Heap {
    fn new(entry_limit: u64) -> Self {
        let mut world = World::new(0, 0);
        world.pins.reserve(10_000);
        world.log.destroyed.borrow_mut().reserve(60_000);
        // SAFETY: nobody uses it.
        unsafe { rkv_snapshot_cache_destroy(world.cache) };
        let before = bytes_in_use();
        let config = rkv_snapshot_cache_config { entry_limit, byte_limit: u64::MAX, ..sized() };
        // SAFETY: all pointers lead to live values.
        let status = unsafe { rkv_snapshot_cache_create(&config, &mut world.cache) };
        assert_eq!(status, rkv_status::Ok);
        Self { world, before }
    }

    /// Within 2 %; what it says. Nothing is printed: what is takes memory, too.
    #[track_caller]
    fn compare(&self, when: &str) -> usize {
        let used = bytes_in_use() - self.before;
        let said = self.world.stats().index_bytes as usize;
        assert!(said.abs_diff(used) * 50 <= used, "{when}: {said} bytes, but {used} are used");
        said
    }

    fn insert(&self, ns: u64, ids: &[u32]) -> rkv_status {
        // No destructor: the log would look through all that went before.
        let (tokens, namespace) = (list(ids), namespace(ns));
        let args = rkv_snapshot_cache_insert_args {
            space: &namespace,
            tokens: &tokens,
            size_bytes: 1,
            ..sized()
        };
        // SAFETY: all pointers lead to live values.
        unsafe { rkv_snapshot_cache_insert(self.world.cache, &args, ptr::null_mut()) }
    }
}

/// Lists of chats: each goes on where another one ends.
fn prompt(entry: usize, ids: &mut [u32; 160]) -> &[u32] {
    let (chat, turn) = (entry / 4, entry % 4);
    let mut rng = fastrand::Rng::with_seed(chat as u64);
    ids.iter_mut().zip(0..).for_each(|(id, at)| *id = at);
    ids[32] = 1000 + chat as u32;
    ids[33..].iter_mut().for_each(|id| *id = rng.u32(0..1000));
    &ids[..64 + 32 * turn]
}

#[test]
fn m10_the_heap_says_the_same() {
    let (mut heap, mut ids) = (Heap::new(1 << 20), [0; 160]);
    let empty = heap.compare("empty");
    let mut at = 0;
    for (count, when) in [
        (1, "an entry"),
        (10, "10 entries"),
        (100, "100 entries"),
        (1000, "1000 entries"),
        (20_000, "20,000 entries"),
    ] {
        while at < count {
            assert_eq!(heap.insert((at % 3) as u64, prompt(at, &mut ids)), rkv_status::Ok);
            at += 1;
        }
        heap.compare(when);
    }
    for at in (0..20_000).step_by(4) {
        assert_eq!(heap.world.pin((at % 3) as u64, prompt(at, &mut ids)).0, rkv_status::Ok);
    }
    let full = heap.compare("5000 pins");
    for at in 0..20_000 {
        let (status, removed) = heap.world.remove((at % 3) as u64, prompt(at, &mut ids));
        assert_eq!((status, removed), (rkv_status::Ok, true), "{}", message());
        if at == 10_000 {
            heap.compare("half removed");
        }
    }
    heap.compare("all removed, some still read");
    (0..heap.world.pins.len()).for_each(|_| assert_eq!(heap.world.release(0), rkv_status::Ok));
    let left = heap.compare("nothing left");
    assert!(left < empty + full / 10, "{left} bytes of {full} are left");
    for at in 0..2000 {
        let insert = || heap.insert(at as u64, prompt(at, &mut ids));
        failing(Failure::Once((at % 7) as u64), insert);
    }
    heap.compare("after refusals, 2000 namespaces");
    // SAFETY: the handle is alive.
    assert_eq!(unsafe { rkv_snapshot_cache_clear(heap.world.cache) }, rkv_status::Ok);
    heap.compare("cleared");
    heap.world.end();
    assert_eq!(bytes_in_use(), heap.before, "everything is given back");
}
