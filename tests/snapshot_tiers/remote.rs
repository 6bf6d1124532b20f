//! A store that caches share, below memory and perhaps a directory: what one has stored, another
//! one finds; whatever the store does, nobody waits in a call, and no wrong state comes.
use super::memory_store::MemoryStore;
use super::remote_store::{MemoryRemote, Mood};
use super::remote_world::{PLAIN, World, filled, prompt};
use super::world::{BYTES, seen};
use radixkv::snapshot::tiered::{FreedSnapshots, Taken, TierPolicy, TieredSnapshots};
use radixkv::snapshot::{Namespace, NewSnapshot, SnapshotLimits};
use radixkv::tier::Source;
use radixkv::tier::remote::RemoteConfig;
use std::time::Duration;

/// T13: another cache finds the longest state of a prompt, whatever its length is, and has it in
/// memory then; where memory has as much, nothing is asked.
#[test]
fn t13_another_cache_finds_the_longest_state() {
    let remote = filled(&[1, 63, 64, 65, 200, 1000]);
    let world = World::new(&remote);
    for (asked, found) in [(1, 1), (62, 1), (63, 63), (64, 64), (199, 65), (200, 200), (999, 200)] {
        let expected = Some((found as usize, found)).filter(|_| {
            let freed = &mut FreedSnapshots::new();
            let in_memory = world.cache.find(&PLAIN, &prompt(1, asked), false, seen, freed);
            let hit = in_memory.unwrap().hit;
            hit.as_ref().map(|hit| world.cache.release(hit.pin, freed));
            hit.is_none_or(|hit| hit.tokens < found as usize)
        });
        assert_eq!(world.bring(&prompt(1, asked)), expected, "{asked}");
    }
    assert_eq!(world.bring(&prompt(1, 5000)), Some((1000, 1000)));
    assert_eq!(world.bring(&prompt(2, 500)), None);
    assert_eq!(world.bring(&prompt(1, 1000)), None, "memory has it");
    let stats = world.stats();
    assert_eq!(stats.counters.from_remote, stats.counters.loaded);
    assert!(stats.counters.loaded >= 6 && stats.remote.damaged == 0, "{stats:?}");
    // What came is not written again.
    world.settle();
    assert_eq!(world.stats().remote.written, 0);
    assert_eq!(world.stats().store, Default::default());
}

/// T13: states of prompts that part within a block don't hide each other, and a mark of another
/// one's leads further down.
#[test]
fn t13_states_that_part_within_a_block_are_both_found() {
    let remote = MemoryRemote::new();
    let world = World::new(&remote);
    let ends = |end: u32| [prompt(1, 130), vec![end, end]].concat();
    for end in [7, 8] {
        world.insert(&ends(end), end);
    }
    world.insert(&prompt(1, 70), 70);
    world.settle();
    let other = World::new(&remote);
    for end in [7, 8] {
        assert_eq!(other.bring(&[ends(end), vec![1]].concat()), Some((132, end)));
    }
    assert_eq!(other.bring(&ends(9)), Some((70, 70)));
}

/// T13, T07: another fingerprint, namespace or epoch finds nothing; nor does a paged cache's key.
#[test]
fn t13_another_model_or_namespace_finds_nothing() {
    let remote = filled(&[100]);
    let world = World::new(&remote);
    for space in [
        Namespace { epoch: 1, ..PLAIN },
        Namespace { lora: Some(0), ..PLAIN },
        Namespace { salt: [1; 32], ..PLAIN },
    ] {
        assert_eq!(world.bring_in(&space, &prompt(1, 100)), None);
    }
    let other = World::new(&MemoryRemote { fingerprint: [2; 32], ..remote });
    assert_eq!(other.bring(&prompt(1, 100)), None);
    assert!(other.stats().remote.asked > 0);
}

/// T13, T01: the directory and the store together: the longer one comes, what came is in the
/// directory then, and a dead store leaves what the directory has.
#[test]
fn t13_the_longer_one_comes() {
    let remote = filled(&[100, 300]);
    let store = MemoryStore::new(1 << 20, 64);
    let world = World::with(&remote, Some(store.clone()), TierPolicy::Through);
    remote.set(Mood::Dead);
    world.insert(&prompt(1, 200), 200);
    world.settle();
    for family in 2..6 {
        world.insert(&prompt(family, 10), family);
        world.settle();
    }
    world.wait_for_pause();
    assert_eq!(world.bring(&prompt(1, 400)), Some((200, 200)), "the directory's");
    remote.set(Mood::Good);
    world.wait_for_pause();
    assert_eq!(world.bring(&prompt(1, 400)), Some((300, 300)));
    world.settle();
    let again = World::with(&MemoryRemote::new(), Some(store.restarted()), TierPolicy::Through);
    assert_eq!(again.bring(&prompt(1, 400)), Some((300, 300)));
}

/// T12, T11: who asks for the same waits for the same answer; one that is cancelled at any step
/// leaks nothing, and the others have what they asked for.
#[test]
fn t12_two_fetches_share_what_the_store_brings() {
    let remote = filled(&[100]);
    let world = World::new(&remote);
    let freed = &mut FreedSnapshots::new();
    let tokens = prompt(1, 150);
    let tickets = [0; 3].map(|_| {
        let fetch = world.cache.fetch(&PLAIN, &tokens, false, freed).unwrap().unwrap();
        assert_eq!((fetch.tokens, fetch.bytes), (0, 0));
        fetch.ticket
    });
    world.cache.cancel(tickets[1], freed).unwrap();
    while world.cache.work_remote() {
        assert!(world.stats().tickets == 2);
    }
    for ticket in [tickets[0], tickets[2]] {
        let Taken::Hit(hit) = world.cache.take(ticket, seen, freed).unwrap() else { panic!() };
        assert_eq!((hit.tokens, hit.common, hit.value), (100, 100, (100, true)));
        world.cache.release(hit.pin, freed).unwrap();
    }
    let stats = world.stats();
    assert_eq!((stats.counters.joined, stats.counters.from_remote), (2, 1));
    for steps in 0..6 {
        let world = World::new(&remote);
        let fetch = world.cache.fetch(&PLAIN, &tokens, false, freed).unwrap().unwrap();
        for _ in 0..steps {
            world.cache.work_remote();
            world.stats();
        }
        world.cache.cancel(fetch.ticket, freed).unwrap();
        assert!(world.cache.take(fetch.ticket, seen, freed).is_err());
        world.settle();
        assert_eq!(world.bring(&tokens).is_some(), steps < 4, "{steps}");
    }
}

/// T13, T04: bytes that changed in any value, values of others, lies about lengths: nothing comes,
/// and who computes the state writes it anew.
#[test]
fn t13_garbage_in_the_store_is_never_used() {
    let keys = |remote: &MemoryRemote| {
        let mut keys: Vec<[u8; 32]> = remote.inside().values.keys().copied().collect();
        keys.sort();
        keys
    };
    type Spoil = fn(&mut Vec<u8>);
    let spoils: [Spoil; 4] = [
        |value| *value.last_mut().unwrap() ^= 1,
        |value| value.clear(),
        |value| value.truncate(value.len() - 1),
        |value| value.push(0),
    ];
    for spoil in spoils {
        for at in 0..3 {
            let remote = filled(&[100]);
            let keys = keys(&remote);
            assert_eq!(keys.len(), 3, "a mark, a head, a piece");
            spoil(remote.inside().values.get_mut(&keys[at]).unwrap());
            let is_mark = remote.inside().values[&keys[at]].len() <= 65;
            let world = World::new(&remote);
            let found = world.bring(&prompt(1, 150));
            // Nobody reads a mark.
            assert!(found.is_none() || is_mark && found == Some((100, 100)), "{found:?}");
            world.insert(&prompt(1, 100), 100);
            world.settle();
            drop(world);
            let world = World::new(&remote);
            assert_eq!(world.bring(&prompt(1, 150)), Some((100, 100)), "it was mended");
        }
    }
    for mood in [Mood::Lies, Mood::Cuts] {
        let remote = MemoryRemote::new();
        remote.set(mood);
        let world = World::new(&remote);
        assert_eq!(world.bring(&prompt(1, 150)), None);
        assert!(world.stats().remote.damaged > 0);
    }
}

/// T13: a piece that the store gave up takes the head along; whoever has other bytes for the same
/// tokens mixes nothing.
#[test]
fn t13_a_store_that_gives_up_pieces() {
    let remote = filled(&[100]);
    remote.inside().values.retain(|_, value| value.len() != 64 + 32);
    assert_eq!(remote.inside().values.len(), 2);
    let world = World::new(&remote);
    assert_eq!(world.bring(&prompt(1, 150)), None);
    world.settle();
    assert_eq!((world.stats().remote.gone, remote.inside().values.len()), (1, 1));
    world.insert(&prompt(1, 100), 101);
    world.settle();
    let other = World::new(&remote);
    assert_eq!(other.bring(&prompt(1, 150)), Some((100, 101)));
}

/// T13, T06: a store that is dead, panics or is full costs nothing but hits, and is used when it is
/// back.
#[test]
fn t13_a_dead_store_costs_a_hit_and_no_more() {
    for mood in [Mood::Dead, Mood::Panics] {
        let remote = filled(&[100]);
        remote.set(mood);
        let world = World::new(&remote);
        for family in 2..30 {
            assert_eq!(world.bring(&prompt(family, 100)), None);
            world.insert(&prompt(family, 90), family);
            world.settle();
        }
        let stats = world.stats();
        assert!(stats.remote.pauses > 0 && stats.remote.failed > 0, "{stats:?}");
        assert!(stats.remote.calls < 20, "{stats:?}");
        remote.set(Mood::Good);
        world.wait_for_pause();
        assert_eq!(world.bring(&prompt(1, 150)), Some((100, 100)));
    }
}

/// T13, T11: a store that stands still is not waited for: not at the questions, the head or the
/// state; what comes late harms nobody, and is counted until it has come.
#[test]
fn t13_a_store_that_stands_still_is_not_waited_for() {
    let remote = MemoryRemote { timeout: Duration::from_millis(200), ..filled(&[100]) };
    for steps in 0..4 {
        let world = World::new(&remote);
        let freed = &mut FreedSnapshots::new();
        let fetch = world.cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
        for _ in 0..steps {
            assert!(world.cache.work_remote());
            let taken = world.cache.take(fetch.ticket, seen, freed).unwrap();
            assert!(matches!(taken, Taken::Pending), "{steps} {taken:?}");
        }
        std::thread::sleep(Duration::from_millis(510));
        let taken = world.cache.take(fetch.ticket, seen, freed).unwrap();
        assert!(matches!(taken, Taken::Missed), "{steps} {taken:?}");
        let stats = world.stats();
        assert_eq!((stats.tickets, stats.counters.remote_late), (0, 1));
        assert_eq!(stats.loading_bytes, if steps == 3 { BYTES } else { 0 });
        world.settle();
        assert_eq!(world.stats().loading_bytes, 0);
        assert_eq!(world.bring(&prompt(1, 150)), Some((100, 100)));
    }
    // A call that takes too long is one that failed, for those who ask next.
    let remote = MemoryRemote { timeout: Duration::from_millis(20), ..remote };
    remote.set(Mood::Slow(Duration::from_millis(40)));
    let world = World::new(&remote);
    assert_eq!(world.bring(&prompt(1, 150)), None);
    assert!(world.stats().remote.slow_calls > 0);
}

/// T13, T11: a state that fails on its way, or comes too late, may be in memory by then. It is
/// taken from there, and has all of its tokens in common with what was asked for.
#[test]
fn t13_what_memory_has_by_then_is_taken_whole() {
    for is_late in [false, true] {
        let timeout = Duration::from_millis(if is_late { 200 } else { 60_000 });
        let remote = MemoryRemote { timeout, ..filled(&[100]) };
        let world = World::new(&remote);
        world.insert(&prompt(1, 50), 50);
        world.settle();
        let freed = &mut FreedSnapshots::new();
        let fetch = world.cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
        // Marks, lengths, the head: the state is read next.
        for _ in 0..3 {
            assert!(world.cache.work_remote());
            let taken = world.cache.take(fetch.ticket, seen, freed).unwrap();
            assert!(matches!(taken, Taken::Pending), "{taken:?}");
        }
        world.insert(&prompt(1, 100), 7);
        if is_late {
            std::thread::sleep(Duration::from_millis(510));
        } else {
            remote.set(Mood::Dead);
            world.work();
        }
        let taken = world.cache.take(fetch.ticket, seen, freed).unwrap();
        let Taken::Hit(hit) = taken else { panic!("{is_late} {taken:?}") };
        assert_eq!((hit.tokens, hit.common, hit.value.0), (100, 100, 7), "{is_late}");
        world.cache.release(hit.pin, freed).unwrap();
        remote.set(Mood::Good);
        world.wait_for_pause();
    }
}

/// T10: what waits to be given to the store, and what is read, is bounded; what doesn't fit is
/// counted.
#[test]
fn t10_what_the_store_takes_and_brings_is_bounded() {
    let remote = MemoryRemote::new();
    let world = World::new(&remote);
    for family in 1..20 {
        world.insert(&prompt(family, 10), family);
    }
    let stats = world.stats();
    assert!(stats.remote.waiting == 8 && stats.counters.not_offered >= 11, "{stats:?}");
    world.settle();
    // Some are in memory still, and go there when they leave it.
    assert_eq!(world.stats().remote.waiting, 0);
    assert_eq!(remote.inside().values.len(), 2 * 8 + 1, "they share a mark");
    // A state that is larger than memory may be.
    let small = World::limited(&remote, None, TierPolicy::Through, BYTES - 1);
    assert_eq!(small.bring(&prompt(1, 20)), None);
    assert_eq!(small.stats().counters.no_memory, 1);
}

/// T17, T13: what is removed or cleared doesn't come back, not even when it is on its way.
#[test]
fn t17_what_was_removed_stays_away() {
    let tokens = prompt(1, 100);
    for (is_clear, steps) in [(true, 0), (true, 3), (false, 0), (false, 3)] {
        let remote = filled(&[100]);
        let world = World::new(&remote);
        let freed = &mut FreedSnapshots::new();
        let fetch = world.cache.fetch(&PLAIN, &tokens, false, freed).unwrap().unwrap();
        for _ in 0..steps {
            assert!(world.cache.work_remote());
            world.stats();
        }
        match is_clear {
            true => world.cache.clear(freed),
            false => assert!(!world.cache.remove(&PLAIN, &tokens, freed), "it was not here"),
        }
        world.settle();
        let taken = loop {
            match world.cache.take(fetch.ticket, seen, freed).unwrap() {
                Taken::Pending => world.settle(),
                taken => break taken,
            }
        };
        assert!(matches!(taken, Taken::Missed), "{taken:?}");
        assert_eq!(world.bring(&tokens), None);
        world.insert(&tokens, 5);
        world.settle();
        let other = World::new(&remote);
        // Who removes one state can store it anew; who clears all leaves the store to others.
        assert_eq!(other.bring(&tokens), Some((100, if is_clear { 100 } else { 5 })));
    }
}

/// T08: the policy says when a state goes there too.
#[test]
fn t08_policies_hold_for_the_store() {
    let remote = MemoryRemote::new();
    let world = World::with(&remote, None, TierPolicy::OnEviction);
    for family in 1..5 {
        world.insert(&prompt(family, 10), family);
    }
    world.settle();
    assert_eq!(remote.inside().values.len(), 0);
    world.insert(&prompt(5, 10), 5);
    world.settle();
    assert_eq!(remote.inside().values.len(), 3);
    assert_eq!(World::new(&remote).bring(&prompt(1, 20)), Some((10, 1)));
}

/// A state of several pieces.
struct Large([Vec<u8>; 3]);

impl Source for Large {
    fn parts(&self) -> usize {
        3
    }

    fn part(&self, index: usize) -> &[u8] {
        &self.0[index]
    }
}

/// T13: a state of 9 MiB goes in pieces, by threads; every byte comes.
#[test]
fn t13_large_states_go_in_pieces() {
    let remote = MemoryRemote::new();
    let sizes = [5_000_003_u64, 0, 4_437_000];
    let bytes = |part: usize, at: u64| (at.wrapping_mul(31) >> 3) as u8 ^ part as u8;
    let made = |part: usize| (0..sizes[part]).map(|at| bytes(part, at)).collect::<Vec<u8>>();
    let cache = || {
        let cache = TieredSnapshots::<Large>::new(SnapshotLimits::default()).unwrap();
        let config = RemoteConfig {
            store: Box::new(remote.clone()),
            fingerprint: [1; 32],
            timeout: Duration::from_secs(60),
            workers: 2,
            waiting_bytes: 1 << 30,
        };
        cache.attach_both(None, Some((config, Box::new(|| {}))), TierPolicy::Through).unwrap();
        cache
    };
    let freed = &mut FreedSnapshots::new();
    let (one, tokens) = (cache(), prompt(1, 777));
    let new = NewSnapshot {
        namespace: &PLAIN,
        tokens: &tokens,
        bytes: sizes.iter().sum(),
        next_token: None,
        is_trimmable: true,
    };
    one.insert(new, Some(&sizes), || Large([0, 1, 2].map(made)), freed).unwrap();
    assert!(one.flush(Duration::from_secs(60), freed));
    assert_eq!(remote.inside().values.len(), 3 + 2);
    let other = cache();
    let fetch = other.fetch(&PLAIN, &prompt(1, 800), false, freed).unwrap().unwrap();
    let view = |state: radixkv::snapshot::tiered::State<'_, Large>| {
        let radixkv::snapshot::tiered::State::Loaded(state) = state else { panic!() };
        (0..3).all(|part| state.part(part) == made(part))
    };
    let hit = loop {
        match other.take(fetch.ticket, view, freed).unwrap() {
            Taken::Pending => std::thread::sleep(Duration::from_millis(1)),
            Taken::Missed => panic!("{:?}", other.tier_stats(freed)),
            Taken::Hit(hit) => break hit,
        }
    };
    assert_eq!((hit.tokens, hit.next_token, hit.value), (777, None, true));
    other.release(hit.pin, freed).unwrap();
}

/// T13: another store takes the place of the one before: what leaves memory is given to that too,
/// as a state is that was there before any was attached.
#[test]
fn t13_another_store_is_given_what_the_one_before_had() {
    let (first, second) = (MemoryRemote::new(), MemoryRemote::new());
    let world = World::new(&first);
    world.insert(&prompt(1, 100), 100);
    world.settle();
    let freed = &mut FreedSnapshots::new();
    assert!(world.cache.detach(Duration::ZERO, freed));
    let config = RemoteConfig {
        store: Box::new(second.clone()),
        fingerprint: second.fingerprint,
        timeout: second.timeout,
        workers: 0,
        waiting_bytes: 8 * BYTES,
    };
    let remote = Some((config, Box::new(|| {}) as _));
    world.cache.attach_both(None, remote, TierPolicy::Through).unwrap();
    // Memory has room for four.
    for family in 2..6 {
        world.insert(&prompt(family, 10), family);
        world.settle();
    }
    let other = World::new(&second);
    assert_eq!(other.bring(&prompt(5, 20)), Some((10, 5)));
    assert_eq!(other.bring(&prompt(1, 150)), Some((100, 100)));
}

/// T13: a mark that the store gave up is written again by whoever has the state: by the others
/// nobody finds it.
#[test]
fn t13_a_mark_that_is_gone_is_written_again() {
    const SEAL: usize = 64;
    let remote = filled(&[100]);
    let all = remote.inside().values.len();
    remote.inside().values.retain(|_, value| value.len() > SEAL);
    assert_eq!(remote.inside().values.len(), all - 1, "a mark is a seal of nothing");
    assert_eq!(World::new(&remote).bring(&prompt(1, 150)), None);
    let world = World::new(&remote);
    world.insert(&prompt(1, 100), 100);
    world.settle();
    assert_eq!(world.stats().remote.known, 1, "the head is there");
    assert_eq!(World::new(&remote).bring(&prompt(1, 150)), Some((100, 100)));
}

/// T13, T17: what is removed takes along what is asked for of it, and nothing else.
#[test]
fn t13_a_fetch_goes_on_while_something_else_is_removed() {
    for steps in 0..4 {
        let remote = filled(&[100]);
        let world = World::new(&remote);
        let freed = &mut FreedSnapshots::new();
        let fetch = world.cache.fetch(&PLAIN, &prompt(1, 150), false, freed).unwrap().unwrap();
        for _ in 0..steps {
            assert!(world.cache.work_remote());
            world.stats();
        }
        // Neither is there.
        assert!(!world.cache.remove(&PLAIN, &prompt(2, 10), freed));
        assert!(!world.cache.remove(&Namespace { epoch: 9, ..PLAIN }, &prompt(1, 100), freed));
        let hit = loop {
            match world.cache.take(fetch.ticket, seen, freed).unwrap() {
                Taken::Pending => world.settle(),
                Taken::Missed => panic!("nothing of it was removed, after {steps} steps"),
                Taken::Hit(hit) => break hit,
            }
        };
        assert_eq!((hit.tokens, hit.value.0), (100, 100));
        world.cache.release(hit.pin, freed).unwrap();
        world.settle();
    }
}

/// T13: a store whose calls may take for ever is asked all the same.
#[test]
fn t13_calls_may_take_for_ever() {
    let remote = filled(&[100]);
    let world = World::new(&MemoryRemote { timeout: Duration::MAX, ..remote });
    assert_eq!(world.bring(&prompt(1, 150)), Some((100, 100)));
    assert_eq!(world.stats().remote.late, 0);
}
