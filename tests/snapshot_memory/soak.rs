//! Random calls of which many are refused for memory, against a map of what is stored.
use super::failing::{Failure, failing};
use super::world::{Insert, World, message, ok};
use fastrand::Rng;
use radixkv::capi::*;
use std::collections::BTreeMap;

type Key = (u64, Vec<u32>);

fn list(rng: &mut Rng) -> Key {
    let count = rng.usize(1..10);
    (rng.u64(0..3), (0..count).map(|_| rng.u32(0..3)).collect())
}

/// The longest prefix that is stored.
fn longest(model: &BTreeMap<Key, usize>, (ns, ids): &Key) -> Option<(usize, usize)> {
    let prefixes = (1..=ids.len()).rev();
    let mut found = prefixes.map(|count| (count, model.get(&(*ns, ids[..count].to_vec()))));
    found.find_map(|(count, data)| Some((count, *data?)))
}

fn run(seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let (mut world, mut model) = (World::new(1000, u64::MAX), BTreeMap::new());
    let (mut data, mut refused) = (0, 0);
    let mut stored = 0;
    for step in 0..1500 {
        let failure = match rng.u8(0..4) {
            0 => Failure::From(rng.u64(0..4)),
            1 => Failure::Once(rng.u64(0..4)),
            _ => Failure::From(u64::MAX),
        };
        let key = list(&mut rng);
        let status = match rng.u8(0..20) {
            0..10 => {
                data += 1;
                let new = Insert { ns: key.0, ids: &key.1, data, bytes: 1 };
                let (status, _) = failing(failure, || world.insert(new));
                if status == rkv_status::Ok {
                    stored += 1;
                    model.insert(key, data);
                }
                status
            }
            10..13 if world.pins.len() < 500 => {
                let ((status, found), _) = failing(failure, || world.pin(key.0, &key.1));
                let expected = longest(&model, &key).map_or(0, |(_, data)| data);
                assert!(found == expected || status != rkv_status::Ok, "{found}, not {expected}");
                status
            }
            13..16 if !world.pins.is_empty() => {
                let at = rng.usize(0..world.pins.len());
                let (status, _) = failing(failure, || world.release(at));
                assert_eq!(status, rkv_status::Ok);
                status
            }
            _ => {
                let ((status, removed), _) = failing(failure, || world.remove(key.0, &key.1));
                assert_eq!((status, removed), (rkv_status::Ok, model.remove(&key).is_some()));
                status
            }
        };
        if status != rkv_status::Ok {
            assert_eq!(status, rkv_status::OutOfMemory, "{}", message());
            refused += 1;
        }
        if step % 100 == 99 {
            // SAFETY: the handle is alive.
            let clear = || unsafe { rkv_snapshot_cache_clear(world.cache) };
            if step % 700 == 699 {
                assert_eq!(failing(failure, clear).0, rkv_status::Ok);
                model.clear();
            }
            world.check();
            let key = list(&mut rng);
            let expected = longest(&model, &key).map_or(0, |(count, _)| count);
            assert_eq!(world.probe(key.0, &key.1), expected);
            assert_eq!(world.stats().entry_count, model.len() as u64);
        }
    }
    // With memory everything is joined in the end.
    for step in 0..200 {
        ok(world.insert(Insert { ns: 5, ids: &[step], data: data + 1, bytes: 1 }));
        ok(world.remove(5, &[step]).0);
        data += 1;
        stored += 1;
    }
    world.check();
    let stats = world.stats();
    assert!(stats.node_count < 2 * stats.entry_count.max(1), "{} nodes", stats.node_count);
    failing(Failure::From(0), || world.end());
    assert_eq!(world.log.destroyed.borrow().len(), stored, "each exactly once");
    refused
}

#[test]
fn m05_random_calls_of_which_many_are_refused() {
    let refused: u64 = (0..40).map(run).sum();
    assert!(refused > 1000, "{refused} refusals");
}
