//! Any calls in any order, with copies and a disk that take their time and fail: no row ever maps a
//! page that holds anything but what would have been computed.
use super::memory_store::MemoryStore;
use super::runs::runs;
use super::world::{Setup, World};
use radixkv::ids::SequenceId;
use radixkv::index::{IndexKind, Namespace};
use radixkv::store::Scope;
use radixkv::tier::paged::{Deadline, PagePolicy};
use radixkv::tier::{Dropped, LoadError};
use radixkv::token::TokenList;
use std::time::Duration;

const SOON: Duration = Duration::from_micros(200);

fn space(number: u8) -> Namespace {
    Namespace { lora: (number > 0).then_some(number.into()), ..Namespace::default() }
}

/// Prompts of a few families, which part at any place.
fn prompt(rng: &mut fastrand::Rng) -> Vec<u32> {
    let mut tokens = vec![rng.u32(0..2)];
    for at in 1..rng.usize(2..40) {
        tokens.push(if rng.u8(0..40) == 0 { rng.u32(0..3) } else { at as u32 });
    }
    tokens
}

fn any(world: &World, rng: &mut fastrand::Rng, is_open: Option<bool>) -> Option<SequenceId> {
    let mut ids: Vec<SequenceId> = world
        .requests
        .iter()
        .filter(|(_, request)| is_open.is_none_or(|is_open| request.is_open == is_open))
        .map(|(&id, _)| id)
        .collect();
    ids.sort();
    (!ids.is_empty()).then(|| ids[rng.usize(..ids.len())])
}

fn step(world: &mut World, rng: &mut fastrand::Rng, faults: bool) {
    let fails = faults && rng.u8(0..12) == 0;
    match rng.u8(0..32) {
        0..=4 => {
            let (space, tokens) = (space(rng.u8(0..2)), prompt(rng));
            let begun = world.begin(&space, &tokens);
            if let Some(info) = begun.filter(|_| rng.u8(0..4) > 0) {
                let deadline = match rng.u8(0..6) {
                    0 => Deadline::After(Duration::ZERO),
                    1 => Deadline::After(Duration::from_nanos(1)),
                    _ => Deadline::Never,
                };
                world.fetch(info.id, deadline);
            }
        }
        5..=8 => {
            let Some(id) = any(world, rng, Some(false)) else { return };
            let request = &world.requests[&id];
            let end = rng.usize(request.computed..=request.tokens.len());
            world.compute(id, end);
        }
        9..=11 => {
            if let Some(id) = any(world, rng, None) {
                world.release(id);
            }
        }
        12..=14 => {
            world.poll(rng.usize(..6));
        }
        15..=19 if world.copies.is_empty() => {}
        15..=19 => {
            let at = rng.usize(..world.copies.len());
            world.step_copy(at, !fails);
        }
        20..=24 => {
            world.tiers.work();
        }
        25..=27 => {
            let Some(store) = world.setup.store.clone() else { return };
            match rng.u8(0..3) {
                0 => drop(store.write(rng.usize(..99), fails.then_some(Dropped::Io))),
                1 => {
                    let failure = fails.then_some(LoadError::Damaged);
                    store.read(rng.usize(..99), failure, faults && rng.u8(0..9) == 0);
                }
                _ => store.commit(),
            }
        }
        28 => {
            let _ = world.shared.evict(rng.usize(..8), |_, _| {});
        }
        29 if rng.u8(0..8) == 0 => {
            world.shared.clear(Scope::exactly(space(rng.u8(0..2)))).unwrap();
        }
        29 => {
            let (space, tokens) = (space(rng.u8(0..2)), prompt(rng));
            let deadline = if rng.bool() { Deadline::Never } else { Deadline::After(SOON) };
            let list = TokenList::text(&tokens);
            let begun = world.tiers.prefetch(&space, list, deadline, rng.u8(0..4) == 0).unwrap();
            if begun.number > 0 && rng.u8(0..4) == 0 {
                world.tiers.cancel_prefetch(begun.number).unwrap();
            }
        }
        30 => {
            // Of an engine whose rows are loading nothing else is possible.
            let Some(id) = any(world, rng, Some(true)) else { return };
            let refused = world.shared.write().publish(id, 1);
            let is_loading = world.shared.read().is_loading(id);
            assert_eq!(refused.is_err(), is_loading, "{refused:?}");
        }
        31 if rng.u8(0..16) == 0 => world.tiers.shrink_to(rng.u64(..256), rng.u64(..512)),
        _ => {}
    }
    if rng.u8(0..16) == 0 {
        world.check_all();
    }
}

/// Counts of all processes together: landed, joined, damaged, late, prefetched.
type Counts = [u64; 5];

fn count(world: &World, counts: &mut Counts) {
    let counters = world.tiers.stats().counters;
    let damaged = counters.damaged[0] + counters.damaged[1];
    let [prefetched, _] = counters.prefetched;
    let more = [counters.landed_pages, counters.joined, damaged, counters.late, prefetched];
    counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
}

fn run(seed: u64, setup: Setup, faults: bool, counts: &mut Counts) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(setup);
    for round in 0..3 {
        for _ in 0..700 {
            step(&mut world, &mut rng, faults);
        }
        if round < 2 && rng.bool() {
            // The process is killed in the midst of it.
            count(&world, counts);
            world.requests.clear();
            world.copies.clear();
            world = world.restarted();
        }
    }
    world.end();
    count(&world, counts);
}

/// T02, T04, T06, T11, T12, T18.
#[test]
fn t04_no_row_maps_what_was_not_computed() {
    let policies = [PagePolicy::Through, PagePolicy::AfterUses(2), PagePolicy::OnEviction];
    let mut counts = Counts::default();
    for seed in 0..runs(240) {
        let mut rng = fastrand::Rng::with_seed(seed ^ 77);
        let store = rng.bool().then(|| MemoryStore::new(rng.u64(64..1024), 8));
        let host_pages = rng.usize(2..20);
        let mut setup = Setup::new(rng.u32(14..40), host_pages, store);
        setup.policy = policies[seed as usize % 3];
        setup.index = if seed % 5 == 0 { IndexKind::BlockHash } else { IndexKind::Radix };
        run(seed, setup, seed % 2 == 0, &mut counts);
    }
    // Else nothing was tested.
    let least = [800, 100, 10, 100, 50].map(runs);
    assert!(counts.iter().zip(least).all(|(&count, least)| count > least), "{counts:?}");
}
