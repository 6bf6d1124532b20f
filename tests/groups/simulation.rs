//! Engines over any page tables: all is drawn from the seed. In `make test` some runs, in
//! `make test-long` many.
use super::chance::Chance;
use super::library::World;
use super::number;
use super::requests::Requests;
use super::seen::Seen;
use super::slips::{SLIPS, Slip};
use super::worlds::{any_world, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

const STEPS: u64 = 400;
/// With failures, each call is made again for each of its requests for memory.
const STEPS_WITH_FAILURES: u64 = 40;

fn steps(world: &World) -> u64 {
    if world.failures { STEPS_WITH_FAILURES } else { STEPS }
}

/// The first number is that of the first seed.
fn seeds(default_steps: u64) -> std::ops::Range<u64> {
    let first = number("RKV_GROUPS_SEED", 1_000_000);
    first..first + number("RKV_GROUPS_STEPS", default_steps) / STEPS
}

/// What is wrong with the run of a seed, if anything, and whether the slip happened.
fn serve(seed: u64, slip: Slip) -> (World, Requests, Result<(), u64>) {
    let mut chance = Chance::of_seed(seed);
    let world = World { external: false, ..any_world(&mut chance) };
    let mut requests = Requests::new(&world, chance);
    requests.slip = slip;
    for step in 0..steps(&world) {
        if catch_unwind(AssertUnwindSafe(|| requests.step())).is_err() {
            return (world, requests, Err(step));
        }
    }
    let ended = catch_unwind(AssertUnwindSafe(|| requests.end()));
    (world.clone(), requests, ended.map_err(|_| steps(&world)))
}

#[test]
fn g05_g07_g09_g11_requests_over_any_page_table() {
    let mut seen = Seen::default();
    for seed in seeds(80_000) {
        let (world, mut requests, done) = serve(seed, Slip::None);
        assert_eq!(done, Ok(()), "{world:?}, seed {seed}");
        seen.counts().into_iter().zip(requests.seen.counts()).for_each(|(sum, more)| *sum += *more);
    }
    println!("{seen:?}");
    seen.assert_all(number("RKV_GROUPS_STEPS", 80_000));
}

#[test]
fn g02_g03_g06_g09_an_index_of_any_groups() {
    let mut seen = super::engine::Seen::default();
    for seed in seeds(40_000) {
        let world = any_world(&mut Chance::of_seed(seed));
        run(&world, steps(&world), seed, &mut seen);
    }
    println!("{seen:?}");
}

/// Each slip of the engine is noticed wherever it happens.
#[test]
fn the_requests_notice_planted_slips() {
    for slip in SLIPS {
        let mut noticed = 0;
        for seed in 2000.. {
            let (world, requests, done) = serve(seed, slip);
            let happened = requests.slip == Slip::None;
            assert_eq!(happened, done.is_err(), "{slip:?}, {world:?}, seed {seed}");
            noticed += u32::from(happened);
            if noticed == 8 {
                break;
            }
            assert!(seed < 2200, "{slip:?} does not happen");
        }
    }
}
