//! M10: the host memory of a cache with several groups is what its counters say. In a process of
//! its own: what other threads free later would count as this one's.
#![allow(dead_code)] // of what drives the library, this needs a part

#[path = "groups/engine.rs"]
mod engine;
mod failing;
#[path = "groups/library.rs"]
mod library;
#[path = "groups/model.rs"]
mod model;
#[path = "groups/worlds.rs"]
mod worlds;

use engine::Seen;
use worlds::{run, worlds};

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
