//! G: several groups over one spine, driven through the header. An engine with books of its own
//! does anything at random; a naive model says after each step what must be so.
//!
//! `RKV_GROUPS_STEPS` and `RKV_GROUPS_SEED` make the runs longer and other ones. With
//! `fuzz/src/groups.rs` a fuzzer decides instead of the seed.
mod chance;
mod cleared_copy;
mod compute;
mod cut_short;
mod drop_retained;
mod engine;
#[path = "../failing/mod.rs"]
mod failing;
mod family;
mod far_states;
mod follower;
mod foreign;
mod growth;
mod image_of_child;
mod insert_order;
mod library;
mod limit;
mod model;
mod moving;
mod order;
mod refusals;
mod remapped_source;
mod requests;
mod retained_parts;
mod seen;
mod sequences;
mod share_less;
mod shortage;
mod simulation;
mod slips;
mod states;
mod taken_back;
mod worlds;
mod yields;

use chance::Chance;
use engine::Seen;
use library::World;
use requests::Requests;
use worlds::{run, worlds};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// G08 too: a path keeps as many states as the limit says.
#[test]
fn g02_g03_g06_g09_any_mix_of_groups_at_random() {
    let (steps, seed) = (number("RKV_GROUPS_STEPS", 48_000), number("RKV_GROUPS_SEED", 1));
    let (mut seen, worlds) = (Seen::default(), worlds());
    let runs = (steps / 400).max(worlds.len() as u64);
    for run_number in 0..runs {
        let world = &worlds[run_number as usize % worlds.len()];
        run(world, 400, seed * 1_000_000 + run_number, &mut seen);
    }
    println!("{seen:?}");
    let Seen { claimed, filled, duplicates, evicted, lost, partial, refused, .. } = seen;
    assert!([claimed, filled, duplicates, evicted, lost, partial, refused].iter().all(|&n| n > 0));
    assert!(seen.records_lost > 0 && seen.records_of_groups > 1000, "{seen:?}");
    // A quarter of the steps, as under AddressSanitizer, has somewhat less than a quarter of these.
    assert!(seen.moved > steps / 60 && seen.slid > steps / 120, "{seen:?}");
    assert!(seen.dropped > steps / 960, "hardly a path had too many states: {seen:?}");
}

/// M05: each request for memory of each call fails in turn. A refused call has changed nothing.
#[test]
fn g02_a_call_without_memory_changes_nothing() {
    let mut seen = Seen::default();
    for (at, world) in worlds().into_iter().enumerate() {
        run(&World { failures: true, ..world }, 60, at as u64, &mut seen);
    }
    assert!(seen.out_of_memory > 1000, "hardly a call was refused: {seen:?}");
}

fn serve(world: &World, steps: u64, seed: u64, seen: &mut seen::Seen) {
    let mut requests = Requests::new(world, Chance::of_seed(seed));
    for step in 0..steps {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| requests.step()));
        assert!(done.is_ok(), "{world:?}, seed {seed}, step {step}");
    }
    requests.end();
    let mut more = requests.seen;
    seen.counts().into_iter().zip(more.counts()).for_each(|(sum, more)| *sum += *more);
}

/// Every page that a request reads holds what was computed of its own tokens, whatever is reused,
/// copied, published by others first, slid or evicted; and no page is lost.
#[test]
fn g05_g07_g09_g11_requests_read_what_was_computed() {
    let (steps, seed) = (number("RKV_GROUPS_STEPS", 48_000), number("RKV_GROUPS_SEED", 1));
    let (mut seen, mut worlds) = (seen::Seen::default(), worlds());
    worlds.retain(|world| !world.external);
    for run in 0..(steps / 400).max(worlds.len() as u64) {
        let world = &worlds[run as usize % worlds.len()];
        serve(world, 400, seed * 1_000_000 + run, &mut seen);
    }
    println!("{seen:?}");
    seen.out_of_memory = 1;
    seen.assert_all(steps);
}

/// M05: each request for memory of each call fails in turn. A refused call has changed nothing.
#[test]
fn g11_a_call_of_a_sequence_without_memory_changes_nothing() {
    let mut seen = seen::Seen::default();
    for (at, world) in worlds().into_iter().filter(|world| !world.external).enumerate() {
        serve(&World { failures: true, ..world }, 150, at as u64, &mut seen);
    }
    assert!(seen.out_of_memory > 500, "hardly a call was refused: {seen:?}");
}
