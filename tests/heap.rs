//! M10: heap against counters. What the library asked the allocator for and has not given back is
//! what `memory_bytes` and `index_bytes` say, whatever it was used for and at every page size.
//! `benches/heap` measures the same in the large, through the shared library.

mod failing;

use failing::bytes_in_use;
use radixkv::capi::*;
use std::fmt::Write;
use std::ptr::{null, null_mut};
use std::sync::Mutex;

/// What the counters may be off by: a fiftieth, and what small worlds have beside their contents.
const PART: usize = 50;
const FIXED: usize = 4096;

/// The allocator counts for all threads, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn sized<T: Copy>() -> T {
    let mut made = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: called for structs of the header alone: repr(C), plain integers and pointers, for
    // which zero is a value, with struct_size: u32 first.
    unsafe {
        made.as_mut_ptr().cast::<u32>().write(size_of::<T>() as u32);
        made.assume_init()
    }
}

#[track_caller]
fn must(status: rkv_status) {
    assert_eq!(status, rkv_status::Ok);
}

/// `count` ids of their own: no other number has the first one.
fn own(number: u32, count: usize) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(u64::from(number));
    let mut ids: Vec<u32> = (0..count).map(|_| rng.u32(..128_000)).collect();
    ids[0] = 128_000 + number;
    ids
}

fn tokens(ids: &[u32]) -> rkv_tokens {
    rkv_tokens { ids: ids.as_ptr(), count: ids.len(), ..sized() }
}

/// A page table and its cache.
struct World {
    table: *mut rkv_page_table,
    cache: *mut rkv_cache,
    page_size: usize,
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: both were created by this object, which is their last user.
        unsafe {
            rkv_cache_destroy(self.cache);
            rkv_page_table_destroy(self.table);
        }
    }
}

// Every block below has this reason: the handles live as long as the object, each pointer comes
// from a reference or from a slice with its length, and the library keeps none of them.
impl World {
    fn new(page_size: usize, positions: usize, index: u32, journal_bytes: u64) -> World {
        let config = rkv_page_table_config {
            page_size: page_size as u32,
            page_count: (positions / page_size + 600) as u32,
            slot_count: 256,
            ..sized()
        };
        let cache_config =
            rkv_cache_config { index, retained_sequence_limit: 100, journal_bytes, ..sized() };
        let (mut table, mut cache) = (null_mut(), null_mut());
        // SAFETY: see above.
        unsafe {
            must(rkv_page_table_create(&config, &mut table));
            must(rkv_cache_create(table, &cache_config, &mut cache));
        }
        World { table, cache, page_size }
    }

    fn counted(&self) -> usize {
        let mut pages: rkv_page_table_stats = sized();
        let mut cache: rkv_cache_stats = sized();
        // SAFETY: see above.
        unsafe {
            must(rkv_page_table_read_stats(self.table, &mut pages));
            must(rkv_cache_read_stats(self.cache, &mut cache));
        }
        (pages.memory_bytes + cache.index_bytes) as usize
    }

    fn begin(&self, space: Option<&rkv_namespace>, tokens: &rkv_tokens) -> rkv_sequence_info {
        let space = space.map_or(null(), std::ptr::from_ref);
        let args = rkv_sequence_begin_args { space, tokens, ..sized() };
        let mut state: rkv_sequence_info = sized();
        // SAFETY: see above.
        unsafe {
            must(rkv_sequence_begin(self.cache, &args, &mut state));
            if state.copy_count > 0 {
                must(rkv_sequence_confirm_copies(self.cache, state.sequence));
            }
        }
        state
    }

    fn publish(&self, sequence: u64, positions: usize) {
        let mut result = sized();
        // SAFETY: see above.
        must(unsafe { rkv_sequence_publish(self.cache, sequence, positions as u64, &mut result) });
    }

    fn append(&self, sequence: u64, ids: &[u32]) {
        // SAFETY: see above.
        must(unsafe { rkv_sequence_append(self.cache, sequence, &tokens(ids)) });
    }

    fn release(&self, sequence: u64) {
        // SAFETY: see above.
        must(unsafe { rkv_sequence_release(self.cache, sequence) });
    }

    fn retain(&self, sequence: u64) {
        let mut retained = false;
        // SAFETY: see above.
        must(unsafe { rkv_sequence_retain(self.cache, sequence, &mut retained) });
    }

    fn evict(&self, positions: usize) {
        let (pages, mut count) = (positions / self.page_size, 0);
        // SAFETY: see above.
        must(unsafe { rkv_cache_evict(self.cache, pages, null_mut(), 0, &mut count) });
    }

    /// Begin, publish all, release.
    fn request_of(&self, space: Option<&rkv_namespace>, tokens: &rkv_tokens) {
        let state = self.begin(space, tokens);
        self.publish(state.sequence, state.position_count as usize);
        self.release(state.sequence);
    }

    fn request(&self, ids: &[u32]) {
        self.request_of(None, &tokens(ids));
    }
}

/// Runs a workload at every page size and with both indexes, and compares after it.
#[track_caller]
fn counters_are_the_heap(positions: usize, fill: impl Fn(&World)) {
    counters_are_the_heap_with(0, positions, fill);
}

/// The same with a journal.
#[track_caller]
fn counters_are_the_heap_with(journal_bytes: u64, positions: usize, fill: impl Fn(&World)) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut wrong = String::new();
    for (index, name) in [(RKV_INDEX_RADIX, "radix"), (RKV_INDEX_BLOCK_HASH, "block hash")] {
        for page_size in [1, 16, 64, 256] {
            let make = || World::new(page_size, positions, index, journal_bytes);
            // What the process keeps for lookups to work in is no cache's: it is there before.
            fill(&make());
            let before = bytes_in_use();
            let world = make();
            fill(&world);
            let (heap, counted) = (bytes_in_use() - before, world.counted());
            if heap.abs_diff(counted) > heap / PART + FIXED {
                let _ = writeln!(wrong, "{name}, pages of {page_size}: {heap}, counted {counted}");
            }
        }
    }
    assert!(wrong.is_empty(), "bytes of the heap:\n{wrong}");
}

#[test]
fn m10_nothing_yet() {
    counters_are_the_heap(1, |_| ());
}

#[test]
fn m10_shared_prompt() {
    counters_are_the_heap(100_000, |world| {
        let shared = own(0, 1024);
        for i in 1..400 {
            world.request(&[&shared[..], &own(i, 32 + i as usize % 97)].concat());
        }
    });
}

#[test]
fn m10_chats() {
    counters_are_the_heap(150_000, |world| {
        for chat in 0..50 {
            let mut history = Vec::new();
            for number in chat * 8..chat * 8 + 8 {
                history.extend(own(number, 50 + number as usize * 37 % 351));
                world.request(&history);
            }
        }
    });
}

#[test]
fn m10_long_context() {
    counters_are_the_heap(150_000, |world| {
        for document in 0..4 {
            let document_ids = own(document, 32_768);
            for i in 0..8 {
                world.request(&[&document_ids[..], &own(100 + document * 8 + i, 64)].concat());
            }
        }
    });
}

#[test]
fn m10_churn() {
    counters_are_the_heap(50_000, |world| {
        let mut rng = fastrand::Rng::with_seed(4);
        for i in 0..600 {
            let document = own((rng.f64().powi(2) * 150.0) as u32, 1024);
            world.request(&[&document[..], &own(1000 + i, 64)].concat());
        }
    });
}

fn fan_out(world: &World) {
    let prefix = own(0, 64);
    for i in 1..2000 {
        world.request(&[&prefix[..], &own(i, 64)].concat());
    }
}

#[test]
fn m10_fan_out() {
    counters_are_the_heap(600_000, fan_out);
}

/// What is kept for the next ones when everything is gone.
#[test]
fn m10_evicted_again() {
    counters_are_the_heap(600_000, |world| {
        fan_out(world);
        world.evict(usize::MAX / 2);
    });
}

#[test]
fn m10_tree() {
    counters_are_the_heap(300_000, |world| {
        for i in 0..1000 {
            let leaf = i * 791 % 1000;
            let level = |level: u32, divisor: u32| own(level * 1000 + leaf / divisor, 64);
            world.request(&[level(0, 100), level(1, 10), level(2, 1)].concat());
        }
    });
}

/// Half of the sequences are still there.
#[test]
fn m10_published_token_by_token() {
    counters_are_the_heap(30_000, |world| {
        for i in 0..16 {
            let ids = own(i, 1000);
            let state = world.begin(None, &tokens(&ids[..1]));
            for at in 1..ids.len() {
                world.append(state.sequence, &ids[at..at + 1]);
                world.publish(state.sequence, at + 1);
            }
            if i % 2 == 0 {
                world.release(state.sequence);
            }
        }
    });
}

#[test]
fn m10_forks() {
    counters_are_the_heap(80_000, |world| {
        for i in 0..10 {
            let state = world.begin(None, &tokens(&own(i, 1005)));
            world.publish(state.sequence, 1005);
            world.retain(state.sequence);
            let args = rkv_sequence_fork_args { parent: state.sequence, child_count: 8, ..sized() };
            let none = rkv_sequence_fork_child { sequence: 0, slot: 0, copy_count: 0 };
            let mut children = [none; 8];
            // SAFETY: as in World.
            must(unsafe {
                rkv_sequence_fork(
                    world.cache,
                    &args,
                    children.as_mut_ptr(),
                    size_of::<rkv_sequence_fork_child>(),
                )
            });
            for (number, child) in children.iter().enumerate() {
                if child.copy_count > 0 {
                    // SAFETY: as in World.
                    must(unsafe { rkv_sequence_confirm_copies(world.cache, child.sequence) });
                }
                world.append(child.sequence, &own(100 + i * 8 + number as u32, 100));
                world.publish(child.sequence, 1105);
            }
        }
    });
}

/// More than are kept: some have given way.
#[test]
fn m10_retained() {
    counters_are_the_heap(100_000, |world| {
        for i in 0..200 {
            let state = world.begin(None, &tokens(&own(i, 205)));
            world.publish(state.sequence, 200);
            world.retain(state.sequence);
        }
    });
}

/// Tokens that are published are the cache's alone; those that are not go along, with their room.
#[test]
fn m10_retained_long() {
    counters_are_the_heap(400_000, |world| {
        let published = world.begin(None, &tokens(&own(1, 100_000)));
        world.publish(published.sequence, 100_000);
        // Calls that let others in make what the next table of children lacks; by now it is there.
        world.request(&own(1, 100_000));
        let before = world.counted();
        world.retain(published.sequence);
        assert!(world.counted() < before + 1000, "it keeps more than its name");
        let fresh = world.begin(None, &tokens(&own(2, 20_000)));
        world.publish(fresh.sequence, 256);
        world.retain(fresh.sequence);
    });
}

/// Half of them are gone again.
#[test]
fn m10_images() {
    counters_are_the_heap(200_000, |world| {
        for i in 0..600_u32 {
            let ids = [own(i % 10, 20), own(1000 + i, 20)].concat();
            let mut item = rkv_token_item {
                token_index: 20,
                kind: RKV_TOKEN_IMAGE,
                position_count: 200,
                bin: 0,
                height_bin: 0,
                digest: [0; 16],
            };
            item.digest[..4].copy_from_slice(&i.to_le_bytes());
            world.request_of(
                None,
                &rkv_tokens {
                    item_size: size_of::<rkv_token_item>() as u32,
                    items: &item,
                    item_count: 1,
                    ..tokens(&ids)
                },
            );
        }
        world.evict(300 * 200);
    });
}

/// A quarter of them is gone again.
#[test]
fn m10_namespaces() {
    counters_are_the_heap(200_000, |world| {
        let ids = own(0, 256);
        for lora_id in 0..600 {
            let space = rkv_namespace { flags: RKV_NAMESPACE_LORA, lora_id, ..sized() };
            world.request_of(Some(&space), &tokens(&ids));
        }
        world.evict(150 * 256);
    });
}

/// The ring, the mirror, and the namespaces that the mirror names.
#[test]
fn j01_journal() {
    counters_are_the_heap_with(300_000, 100_000, |world| {
        let ids = own(0, 256);
        for lora_id in 0..300 {
            let space = rkv_namespace { flags: RKV_NAMESPACE_LORA, lora_id, ..sized() };
            world.request_of(Some(&space), &tokens(&ids));
        }
        world.evict(100 * 256);
    });
}

/// What is left of a cache that is gone: its records, which count for the page table.
#[test]
fn j01_journal_of_a_cache_that_is_gone() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = bytes_in_use();
    let mut world = World::new(16, 20_000, RKV_INDEX_RADIX, 1 << 20);
    (0..10).for_each(|i| world.request(&own(i, 1000)));
    let with_cache = world.counted();
    let mut pages: rkv_page_table_stats = sized();
    // SAFETY: as in World; the handle is given back before the object ends.
    let heap = unsafe {
        rkv_cache_destroy(world.cache);
        must(rkv_page_table_read_stats(world.table, &mut pages));
        let heap = bytes_in_use() - before;
        must(rkv_cache_create(world.table, null(), &mut world.cache));
        heap
    };
    let counted = pages.memory_bytes as usize;
    assert!(heap.abs_diff(counted) <= heap / PART + FIXED, "heap {heap}, counted {counted}");
    assert!(counted > 1 << 20 && counted < with_cache, "{counted} of {with_cache}");
}

/// Sequences that have begun and published nothing.
#[test]
fn m10_running() {
    counters_are_the_heap(150_000, |world| {
        for i in 0..100 {
            world.begin(None, &tokens(&own(i, 1000 + i as usize)));
        }
    });
}

struct Snapshots(*mut rkv_snapshot_cache);

impl Drop for Snapshots {
    fn drop(&mut self) {
        // SAFETY: created by this object, which is its last user.
        unsafe { rkv_snapshot_cache_destroy(self.0) };
    }
}

impl Snapshots {
    fn insert(&self, ids: &[u32]) {
        let args =
            rkv_snapshot_cache_insert_args { tokens: &tokens(ids), size_bytes: 1, ..sized() };
        // SAFETY: as in World.
        must(unsafe { rkv_snapshot_cache_insert(self.0, &args, null_mut()) });
    }

    fn remove(&self, ids: &[u32]) {
        // SAFETY: as in World.
        must(unsafe { rkv_snapshot_cache_remove(self.0, null(), &tokens(ids), null_mut()) });
    }
}

#[track_caller]
fn snapshot_counters_are_the_heap(fill: impl Fn(&Snapshots)) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let before = bytes_in_use();
    let config = rkv_snapshot_cache_config { entry_limit: 2000, byte_limit: u64::MAX, ..sized() };
    let mut made = null_mut();
    // SAFETY: as in World.
    must(unsafe { rkv_snapshot_cache_create(&config, &mut made) });
    let snapshots = Snapshots(made);
    fill(&snapshots);
    let mut stats: rkv_snapshot_cache_stats = sized();
    // SAFETY: as in World.
    must(unsafe { rkv_snapshot_cache_read_stats(snapshots.0, &mut stats) });
    let (heap, counted) = (bytes_in_use() - before, stats.index_bytes as usize);
    assert!(heap.abs_diff(counted) <= heap / PART + FIXED, "heap {heap}, counted {counted}");
}

#[test]
fn m10_snapshots_of_a_shared_prompt() {
    snapshot_counters_are_the_heap(|snapshots| {
        let shared = own(0, 1024);
        for i in 1..1000 {
            snapshots.insert(&[&shared[..], &own(i, 32 + i as usize % 97)].concat());
        }
    });
}

#[test]
fn m10_snapshots_token_by_token() {
    snapshot_counters_are_the_heap(|snapshots| {
        for chat in 0..20 {
            let ids = own(chat, 200);
            for end in 1..ids.len() {
                snapshots.insert(&ids[..end]);
            }
        }
    });
}

/// Two thirds of them; what is left may have moved.
#[test]
fn m10_snapshots_removed() {
    snapshot_counters_are_the_heap(|snapshots| {
        for i in 0..900 {
            snapshots.insert(&own(i, 600 + i as usize % 48));
        }
        for i in 0..600 {
            snapshots.remove(&own(i, 600 + i as usize % 48));
        }
    });
}
