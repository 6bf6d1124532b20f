//! J07: an engine with an allocator of its own, over random operations. It knows which pages it has
//! because it counts them itself; the library must agree after every step, page by page, and so
//! must the journal. No page is lost, none is in two places.
//!
//! `RKV_EXTERNAL_STEPS` and `RKV_EXTERNAL_SEED` make the runs longer and other ones.
mod engine;
#[path = "../failing/mod.rs"]
mod failing;
mod library;
mod mirror;
mod slices;

use engine::{Engine, World};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// So many steps in all, in worlds of different sizes.
fn simulate(steps: u64, sizes: &[(u32, u32)], failures: bool) -> engine::Seen {
    let (steps, first) = (number("RKV_EXTERNAL_STEPS", steps), number("RKV_EXTERNAL_SEED", 1));
    let mut seen = engine::Seen::default();
    let mut done = 0;
    for seed in first.. {
        for &(page_size, page_count) in sizes {
            let block_hash = seed % 2 == 0;
            let world = World { page_size, page_count, block_hash, failures };
            let length = 400.min(steps - done);
            let mut engine = Engine::new(world, seed * 1000 + u64::from(page_count));
            for step in 0..length {
                engine.step();
                engine.agree(&format!("{world:?}, seed {seed}, after step {step}"));
            }
            engine.end();
            seen.add(engine.seen());
            done += length;
            if done == steps {
                return seen;
            }
        }
    }
    unreachable!("there are enough seeds")
}

#[test]
fn j07_an_engine_with_an_allocator_of_its_own() {
    let sizes = [(4, 40), (16, 60), (1, 100), (2, 25), (16, 12), (256, 8)];
    let seen = simulate(400_000, &sizes, false);
    println!("{seen:?}");
    seen.must_have_happened();
}

#[test]
fn j07_the_smallest_pools() {
    let sizes = [(1, 1), (1, 2), (4, 1), (1, 3), (2, 2), (4, 3), (1, 5), (2, 4)];
    let seen = simulate(200_000, &sizes, false);
    println!("{seen:?}");
    assert!(seen.evicted > 0 && seen.refused_for_pages > 0 && seen.restarts > 0);
}

/// M05: each request for memory of each call fails in turn. A call that is refused has changed
/// nothing: no page was adopted, and none was given up.
#[test]
fn j07_a_call_without_memory_adopts_no_page() {
    let sizes = [(4, 40), (1, 20), (2, 4), (16, 12)];
    let seen = simulate(20_000, &sizes, true);
    println!("{seen:?}");
    assert!(seen.out_of_memory > 1000, "hardly a call was refused: {seen:?}");
}

/// M10: the host memory of such a page table is what its counters say.
#[test]
fn j07_memory_is_counted() {
    for (page_size, page_count) in [(1, 1), (16, 5000), (256, 100)] {
        let world = World { page_size, page_count, block_hash: false, failures: false };
        let before = failing::bytes_in_use();
        let mut engine = Engine::new(world, 5);
        for _ in 0..200 {
            engine.step();
            engine.agree("while memory is counted");
        }
        let library = engine.into_library();
        let (heap, counted) = (failing::bytes_in_use() - before, library.counted_bytes());
        assert!(heap.abs_diff(counted) <= heap / 50 + 4096, "heap {heap}, counted {counted}");
    }
}
