//! What takes the place of a state that is on its way: one that cannot be trimmed, or none that the
//! disk has.
use super::few;
use super::world::World;
use radixkv::snapshot::tiered::TierPolicy;
use radixkv::tier::Dropped;
use std::sync::mpsc;
use std::time::Duration;

const WHOLE: &[u32] = &[1, 2, 3, 4, 5];
const BRANCH: &[u32] = &[1, 2, 3, 9, 9];

/// T12: while a state is brought back for a list that parts from it, another one takes its place,
/// whose end cannot be taken away: it is none for that list.
#[test]
fn t12_what_cannot_be_trimmed_is_not_given_in_the_place_of_what_can() {
    for has_landed in [false, true] {
        for trims in [true, false] {
            let mut world = World::new(2, 8, TierPolicy::Through);
            world.trims = true;
            world.insert(WHOLE, 1);
            world.insert(&[7], 2);
            world.insert(&[8], 3);
            world.settle();
            let fetch = world.fetch(BRANCH).unwrap();
            assert_eq!((fetch.tokens, fetch.common), (5, 3));
            let read = |world: &World| {
                assert!(world.store.read(0, None, false));
                world.stats();
            };
            if has_landed {
                read(&world);
            }
            world.trims = trims;
            world.insert(WHOLE, 4);
            world.trims = true;
            if !has_landed {
                read(&world);
            }
            let want = trims.then_some((5, 4));
            assert_eq!(world.take(fetch.ticket), Some(want), "landed {has_landed}, trims {trims}");
            // As a whole it is there for all.
            assert_eq!(world.find(WHOLE).0, Some((5, 4, false)));
        }
    }
}

/// T04: a write has failed, and the state leaves memory for what was read in the same moment: it
/// has another chance all the same.
#[test]
fn t04_a_state_whose_write_failed_is_written_when_it_leaves_memory_at_once() {
    let world = World::new(1, 8, TierPolicy::Through);
    world.insert(&[1, 2, 3], 1);
    world.insert(&[7], 2);
    world.settle();
    let fetch = world.fetch(&[1, 2, 3]).unwrap();
    world.insert(&[9], 3);
    assert!(world.store.write(0, Some(Dropped::Io)));
    assert!(world.store.read(0, None, false));
    // What came takes the only place in memory.
    assert_eq!(world.take(fetch.ticket), Some(Some((3, 1))));
    assert_eq!(world.stats().counters.failed_writes, 1);
    world.settle();
    assert_eq!(world.find(&[9]), (None, 1));
    assert_eq!(world.bring(&[9]), Some((1, 3)));
}

/// T01, M06: a lookup that begins at the root of what is below, and has a long way to go down from
/// where the list parts, gets there.
#[test]
fn t01_a_long_way_down_from_the_root_has_an_end() {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let mut before = World::new(1, 1024, TierPolicy::Through);
        // Each is the beginning of the next one; the end of the last one alone can be taken away.
        let tokens: Vec<u32> = (1..=600).collect();
        for length in 4..=tokens.len() {
            before.trims = length == tokens.len();
            before.insert(&tokens[..length], 1);
            before.settle();
        }
        let store = before.store.restarted();
        // What is inserted now is in memory alone.
        let mut world = World::with(few(1), store, TierPolicy::AfterUses(1000));
        world.trims = true;
        world.insert(&tokens[..2], 9);
        for _ in 0..2 {
            done.send(world.find(&[1, 2, 3, 999])).unwrap();
        }
    });
    for _ in 0..2 {
        let found = is_done.recv_timeout(Duration::from_secs(60)).expect("the lookup returns");
        assert_eq!(found, (Some((2, 9, false)), 3));
    }
}

/// T01: while a state is being written whose end could be taken away, a shorter one is found.
#[test]
fn t01_a_shorter_one_is_found_while_what_can_be_trimmed_is_written() {
    let mut world = World::new(1, 8, TierPolicy::OnEviction);
    world.trims = true;
    let tokens: Vec<u32> = (1..=13).collect();
    world.insert(&tokens[..3], 1);
    world.insert(&tokens[..12], 2);
    world.settle();
    // The longer one leaves memory now.
    world.insert(&[70], 3);
    assert_eq!(world.find(&tokens), (None, 3));
    assert_eq!(world.bring(&tokens), Some((3, 1)));
    world.settle();
    assert_eq!(world.find(&tokens).1, 12);
}
