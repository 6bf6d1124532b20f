//! M10: the host memory of a cache with several groups is what its counters say. In a process of
//! its own: what other threads free later would count as this one's.
#![allow(dead_code)] // of what drives the library, this needs a part

#[path = "groups/chance.rs"]
mod chance;
#[path = "groups/engine.rs"]
mod engine;
mod failing;
#[path = "groups/follower.rs"]
mod follower;
#[path = "groups/library.rs"]
mod library;
#[path = "groups/model.rs"]
mod model;
#[path = "groups/moving.rs"]
mod moving;
#[path = "groups/worlds.rs"]
mod worlds;
#[path = "groups/yields.rs"]
mod yields;

use engine::Seen;
use library::Library;
use model::Kind;
use worlds::{group, run, world, worlds};

/// What the counters may be off by: a fiftieth, and what small worlds have beside their contents.
const PART: usize = 50;
const FIXED: usize = 6144;

#[test]
fn m10_g01_memory_of_groups_is_counted() {
    // What the process keeps is there then.
    run(&worlds()[0], 20, 1, &mut Seen::default());
    for (at, world) in worlds().into_iter().enumerate() {
        let before = failing::bytes_in_use();
        let library = run(&world, 200, 77 + at as u64, &mut Seen::default()).into_library();
        let (heap, counted) = (failing::bytes_in_use() - before, library.counted_bytes());
        let off = heap.abs_diff(counted);
        assert!(off <= heap / PART + FIXED, "{world:?}: heap {heap}, counted {counted}");
    }
}

/// What docs/groups.md says of it: 32 bytes for each page of a pool that groups beside the first
/// draw from, and 4 bytes for each page of the first pool and each such group, beside what a pool
/// takes for its pages' states.
#[test]
fn m10_g01_memory_by_page() {
    const SPINE: u32 = 10_000;
    const POOL: u32 = 1_000_000;
    const OF_POOL: usize = 5;
    let bytes = |groups: &[model::Group], pools: &[u32]| {
        Library::new(&world(4, groups, pools)).counted_bytes()
    };
    let one = bytes(&[], &[SPINE]);
    let window = |pool| group(Kind::Window(9, 0), pool);
    let two = bytes(&[window(1)], &[SPINE, POOL]);
    let shared = bytes(&[window(0)], &[SPINE]);
    println!("one group {one}, two {two}, of one pool {shared}");
    let near = |bytes: usize, of: u32, each: usize| {
        let off = bytes.abs_diff(of as usize * each);
        assert!(off < FIXED, "{bytes} bytes for {of} pages");
    };
    // A pool's own: where each page is, and the list of the free ones.
    near(two - one - 4 * SPINE as usize, POOL, 32 + OF_POOL);
    near(shared - one, SPINE, 32 + 4);
}
