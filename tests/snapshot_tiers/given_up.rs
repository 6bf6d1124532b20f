//! Reads from a store that caches share, which nobody waits for any more.
use super::remote_store::{MemoryRemote, Mood};
use super::remote_world::{PLAIN, World, filled, prompt};
use super::world::{BYTES, seen};
use radixkv::snapshot::tiered::{FreedSnapshots, Taken};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// T13, T12: two threads that give up the same read at once end it once: what it takes is counted
/// until it has ended, and no longer.
#[test]
fn t13_t12_a_read_that_two_threads_give_up_is_counted_until_it_has_ended() {
    let remote = MemoryRemote { timeout: Duration::from_millis(20), ..filled(&[100]) };
    let tokens = prompt(1, 150);
    let mut raced = 0;
    for round in 0..100 {
        let world = World::new(&remote);
        let freed = &mut FreedSnapshots::new();
        let tickets = [0; 2]
            .map(|_| world.cache.fetch(&PLAIN, &tokens, false, freed).unwrap().unwrap().ticket);
        // The mark, the length and the head are answered, and the state is asked for.
        for _ in 0..3 {
            world.cache.work_remote();
            world.stats();
        }
        let is_reading = world.stats().loading_bytes == BYTES;
        // The time of a read of one piece is that of two calls.
        std::thread::sleep(Duration::from_millis(45));
        let here = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for ticket in tickets {
                let (cache, here) = (&world.cache, &here);
                scope.spawn(move || {
                    here.fetch_add(1, Ordering::SeqCst);
                    while here.load(Ordering::SeqCst) < 2 {
                        std::hint::spin_loop();
                    }
                    let freed = &mut FreedSnapshots::new();
                    let taken = cache.take(ticket, seen, freed).unwrap();
                    assert!(matches!(taken, Taken::Missed), "{taken:?}");
                });
            }
        });
        if is_reading {
            raced += 1;
            assert_eq!(world.stats().loading_bytes, BYTES, "{round}: it goes on");
        }
        world.settle();
        // Were it ended twice, nobody would know it when it comes.
        assert_eq!((world.stats().loading_bytes, world.stats().tickets), (0, 0), "{round}");
    }
    assert!(raced > 0, "the state was never asked for in time");
}

/// T11, T13: what stands before a state is not read for who has gone on without the store, however
/// well that answers others.
#[test]
fn t13_no_head_is_read_for_who_has_gone_on_without() {
    let remote = MemoryRemote { timeout: Duration::from_millis(300), ..filled(&[100]) };
    let (world, freed) = (World::new(&remote), &mut FreedSnapshots::new());
    let first = world.cache.fetch(&PLAIN, &prompt(1, 100), false, freed).unwrap().unwrap().ticket;
    world.work();
    // The store has something; now of what length is asked.
    assert!(matches!(world.cache.take(first, seen, freed).unwrap(), Taken::Pending));
    let second = world.cache.fetch(&PLAIN, &prompt(2, 100), false, freed).unwrap().unwrap().ticket;
    world.work();
    // Its head is to be read, behind the question of the second.
    assert!(matches!(world.cache.take(first, seen, freed).unwrap(), Taken::Pending));
    std::thread::sleep(Duration::from_millis(200));
    remote.set(Mood::Slow(Duration::from_millis(150)));
    world.work();
    remote.set(Mood::Good);
    let read = remote.inside().counts[1];
    world.work();
    assert_eq!(remote.inside().counts[1], read, "the head");
    assert!(world.stats().remote.late > 0);
    assert!(matches!(world.cache.take(first, seen, freed).unwrap(), Taken::Missed));
    world.cache.cancel(second, freed).unwrap();
}
