//! Page tables with several groups: a user of the cache with books of its own and a naive model
//! beside it, or requests whose memory remembers what was computed into each page. Both are those
//! of the random tests in `tests/groups`; here a fuzzer decides what they do.
#![allow(dead_code)] // The tests use the rest.

#[path = "../../tests/groups/chance.rs"]
mod chance;
#[path = "../../tests/groups/compute.rs"]
mod compute;
#[path = "../../tests/groups/engine.rs"]
mod engine;
#[path = "../../tests/failing/mod.rs"]
mod failing;
#[path = "../../tests/groups/family.rs"]
mod family;
#[path = "../../tests/groups/follower.rs"]
mod follower;
#[path = "../../tests/groups/foreign.rs"]
mod foreign;
#[path = "../../tests/groups/growth.rs"]
mod growth;
#[path = "../../tests/groups/library.rs"]
mod library;
#[path = "../../tests/groups/model.rs"]
mod model;
#[path = "../../tests/groups/moving.rs"]
mod moving;
#[path = "../../tests/groups/requests.rs"]
mod requests;
#[path = "../../tests/groups/seen.rs"]
mod seen;
#[path = "../../tests/groups/sequences.rs"]
mod sequences;
#[path = "../../tests/groups/slips.rs"]
mod slips;
#[path = "../../tests/groups/worlds.rs"]
mod worlds;
#[path = "../../tests/groups/yields.rs"]
mod yields;

use chance::Chance;
use engine::Engine;
use library::World;
use requests::Requests;

/// Steps of one run, and of one in which every request for memory of each call fails in turn.
const STEP_LIMIT: usize = 400;
const STEP_LIMIT_WITH_FAILURES: usize = 30;

/// Runs the steps that `data` stands for.
pub fn groups(data: &[u8]) {
    let mut chance = Chance::Bytes(Vec::from(data).into_iter());
    let world = worlds::any_world(&mut chance);
    let limit = if world.failures { STEP_LIMIT_WITH_FAILURES } else { STEP_LIMIT };
    if chance.bool() {
        let mut engine = Engine::new(&world, chance);
        for _ in 0..limit {
            if engine.is_over() {
                return;
            }
            engine.step();
            engine.agree();
        }
    } else {
        // Rows are mapped by whoever owns the pages.
        let mut requests = Requests::new(&World { external: false, ..world }, chance);
        for _ in 0..limit {
            if requests.is_over() {
                break;
            }
            requests.step();
        }
        requests.end();
    }
}
