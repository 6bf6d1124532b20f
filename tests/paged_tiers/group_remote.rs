//! T16, T13, T09: several groups of layers through a store that others share, rows that are too
//! short for what is fetched, prompts too long for the caller to hash, and ranks that agree.
use super::failing::{Failure, failing};
use super::group_world::{GroupWorld, Setup};
use super::groups::{FULL, hybrid, prompt, window};
use super::memory_store::MemoryStore;
use super::remote_store::{MemoryRemote, Mood};
use super::runs::runs;
use super::world::{self, PAGE_SIZE, World};
use radixkv::error::Error;
use radixkv::group::GroupKind;
use radixkv::index::Namespace;
use radixkv::store::Scope;
use radixkv::tier::paged::Deadline;
use std::time::{Duration, Instant};

pub fn on(remote: &MemoryRemote) -> GroupWorld {
    GroupWorld::new(Setup { remote: Some(remote.clone()), ..hybrid(None) })
}

/// A store that has all groups of a prompt, by a world that is gone.
pub fn filled(tokens: &[u32], saves: &[usize]) -> MemoryRemote {
    let remote = MemoryRemote::new();
    let mut world = on(&remote);
    assert_eq!(world.run(tokens, saves), (0, 0));
    world.settle();
    world.end();
    remote
}

/// One computes, another one that begins with nothing takes from there what the farthest end needs.
#[test]
fn t16_t13_caches_share_all_groups_of_a_prefix() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens, &[4, 10]);
    assert_eq!(remote.inside().values.len(), 22);
    let mut other = on(&remote);
    assert_eq!(other.run(&tokens, &[]), (0, 40));
    let stats = other.tiers.stats();
    assert_eq!((stats.counters.fetched, stats.counters.complete), ([0, 0, 10 + 2 + 1], 1));
    assert_eq!((stats.remote.read, stats.counters.shortened), (13, 0));
    // 10 pages of group 0 first, then what else hangs there: 10 of the window, and states.
    assert_eq!((stats.remote.asked, stats.remote.found), (10 + 20, 10 + 12));
    // Host memory has it now.
    other.evict_all();
    assert_eq!(other.run(&tokens, &[]), (0, 40));
    assert_eq!(other.tiers.stats().counters.fetched[0], 13);
    // A prompt that parts behind page 6: the state after page 4 is the last that can be used.
    let branch: Vec<u32> = tokens[..26].iter().copied().chain(900..920).collect();
    other.evict_all();
    assert_eq!(other.run(&branch, &[]), (0, 16));
    other.end();
    // Nobody has more of a prompt that is new: one question.
    let mut other = on(&remote);
    assert_eq!(other.run(&prompt(2, 41), &[]), (0, 0));
    assert_eq!(other.tiers.stats().remote.asked, 10);
    other.end();
    // Two requests at once: pages of the store are read once.
    let mut other = on(&remote);
    let ids = [0, 1].map(|_| other.begin(&Namespace::default(), &tokens).unwrap().id);
    while other.tiers.work() {}
    ids.iter().for_each(|&id| assert!(other.fetch(id, Deadline::Never).is_begun));
    other.settle();
    for id in ids {
        assert_eq!(other.requests[&id].computed, 40);
        other.compute(id, 41);
    }
    assert!(other.tiers.stats().remote.read <= 14);
    other.end();
}

/// What host memory and the disk have is taken from there, and what they lack from the store.
#[test]
fn t16_t13_a_fetch_goes_on_where_the_disk_ends() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens, &[4, 10]);
    let store = MemoryStore::new(1 << 20, 1 << 10);
    let setup = Setup { remote: Some(remote.clone()), ..hybrid(Some(store)) };
    let mut other = GroupWorld::new(setup);
    remote.set(Mood::Dead);
    assert_eq!(other.run(&tokens[..25], &[4]), (0, 0));
    other.evict_all();
    remote.set(Mood::Good);
    while other.tiers.stats().remote.is_paused {
        std::thread::sleep(Duration::from_millis(5));
    }
    let info = other.begin(&Namespace::default(), &tokens).unwrap();
    let found = other.fetch(info.id, Deadline::Never);
    assert_eq!((found.positions, found.asked_positions), (16, 24));
    other.settle();
    assert_eq!(other.requests[&info.id].computed, 40);
    other.compute(info.id, 41);
    other.end();
    // With a deadline of nothing, and for a look, nobody is asked.
    let mut other = on(&remote);
    let info = other.begin(&Namespace::default(), &tokens).unwrap();
    while other.tiers.work() {}
    for (deadline, looks) in [(Deadline::After(Duration::ZERO), false), (Deadline::Never, true)] {
        let found = other.tiers.fetch(info.id, deadline, looks).unwrap();
        assert!(!found.is_begun && found.asked_positions == 0);
    }
    other.end();
}

/// A store that is dead, panics, lies or cuts: what is known here is fetched all the same.
#[test]
fn t16_t13_a_bad_store_costs_what_it_has_and_no_more() {
    let tokens = prompt(1, 41);
    for mood in [Mood::Dead, Mood::Panics, Mood::Lies, Mood::Cuts] {
        let remote = filled(&tokens, &[4, 10]);
        let mut world = on(&remote);
        assert_eq!(world.run(&tokens[..25], &[4]), (0, 16));
        world.evict_all();
        remote.set(mood);
        assert_eq!(world.run(&tokens, &[]), (0, 16), "{mood:?}");
        world.end();
        let mut world = on(&remote);
        assert_eq!(world.run(&tokens, &[]), (0, 0), "{mood:?}");
        world.end();
    }
}

/// Bytes that changed, of any group: the hit gets shorter, and nothing wrong is mapped.
#[test]
fn t16_t13_garbage_of_any_group_is_never_used() {
    let tokens = prompt(1, 41);
    let count = filled(&tokens, &[3, 6, 10]).inside().values.len();
    let mut hits = [0; 3];
    for spoiled in 0..count {
        let remote = filled(&tokens, &[3, 6, 10]);
        let mut keys: Vec<[u8; 32]> = remote.inside().values.keys().copied().collect();
        keys.sort();
        remote.inside().values.get_mut(&keys[spoiled]).unwrap()[70] ^= 1;
        let mut world = on(&remote);
        let (_, reused) = world.run(&tokens, &[]);
        assert!([40, 24, 12, 0].contains(&reused), "{reused}");
        hits[reused.min(38) / 13] += 1;
        world.end();
    }
    assert!(hits[2] >= 10 && hits[1] + hits[0] >= 10, "{hits:?}");
}

/// T17: what was cleared is not found in the store.
#[test]
fn t16_t13_a_cleared_namespace_is_left_alone() {
    let tokens = prompt(1, 41);
    let remote = filled(&tokens, &[10]);
    let mut world = on(&remote);
    world.shared.clear(Scope::exactly(Namespace::default())).unwrap();
    assert_eq!(world.run(&tokens, &[]), (0, 0));
    assert_eq!(world.tiers.stats().remote.asked, 0);
    world.end();
    // At any moment of a fetch.
    for steps in 0..4 {
        let remote = filled(&tokens, &[10]);
        let mut world = on(&remote);
        let info = world.begin(&Namespace::default(), &tokens).unwrap();
        while world.tiers.work() {}
        world.fetch(info.id, Deadline::Never);
        for _ in 0..steps {
            while world.tiers.work() {}
            world.tiers.work_remote();
        }
        world.shared.clear(Scope::exactly(Namespace::default())).unwrap();
        world.settle();
        // Another request never finds what came.
        let other = world.begin(&Namespace::default(), &tokens).unwrap();
        assert_eq!(other.cached_positions, 0);
        world.end();
    }
}

/// A row that has pages for the first chunk alone: it is made longer, with pages of the window
/// alone where the pool of that is small, and short again when less comes.
#[test]
fn t16_rows_of_a_chunk_get_what_is_fetched_beyond_them() {
    let tokens = prompt(1, 161);
    let remote = filled_small(&tokens, &[10, 20, 40]);
    for spoiled in [false, true] {
        let mut setup = small(Some(remote.clone()));
        setup.first = 8;
        let mut world = GroupWorld::new(setup);
        if spoiled {
            remote.set(Mood::Lies);
        }
        let info = world.begin(&Namespace::default(), &tokens).unwrap();
        let rows = |world: &GroupWorld, group| {
            world.shared.read().group_row(info.id, group, 0).unwrap().len()
        };
        assert_eq!([rows(&world, 0), rows(&world, 1)], [2, 2]);
        while world.tiers.work() {}
        assert!(world.fetch(info.id, Deadline::Never).is_begun);
        world.settle();
        let (reused, places) = if spoiled { (0, 2) } else { (160, 40) };
        assert_eq!(world.requests[&info.id].computed, reused);
        assert_eq!([rows(&world, 0), rows(&world, 1)], [places; 2]);
        for end in (reused..=tokens.len()).step_by(8).skip(1).chain([tokens.len()]) {
            world.shared.allocate(info.id, end).unwrap();
            world.compute(info.id, end);
        }
        world.end();
    }
}

/// Room for the window and a chunk, not for all of the prompt.
fn small(remote: Option<MemoryRemote>) -> Setup {
    let groups = vec![FULL, window(9, 0, 1), GroupKind::State.in_pool(2)];
    let pages = vec![60, 6, 8];
    Setup { groups, pages, host_pages: vec![60, 60, 20], remote, ..hybrid(None) }
}

fn filled_small(tokens: &[u32], saves: &[usize]) -> MemoryRemote {
    let remote = MemoryRemote::new();
    let mut world =
        GroupWorld::new(Setup { pages: vec![60, 60, 8], ..small(Some(remote.clone())) });
    world.run(tokens, saves);
    world.settle();
    world.end();
    remote
}

/// What is behind the pages that the caller hashes is hashed by the tiers' thread, and comes as
/// well: from host memory, the disk and the store, whatever ends it meanwhile.
#[test]
fn t16_a_long_prompt_is_fetched_whole() {
    let tokens = prompt(1, 4 * 700 + 1);
    for (host, has_store) in [(710, false), (200, true)] {
        let remote = MemoryRemote::new();
        let store = has_store.then(|| MemoryStore::new(1 << 20, 1 << 12));
        let setup = Setup {
            pages: vec![750, 750, 8],
            host_pages: vec![host, host, 20],
            store,
            remote: Some(remote.clone()),
            ..hybrid(None)
        };
        let mut world = GroupWorld::new(setup.clone());
        world.run(&tokens, &[300, 700]);
        world.evict_all();
        assert_eq!(world.run(&tokens, &[]), (0, 2800));
        assert_eq!(world.tiers.stats().counters.shortened, 0);
        world.end();
        // From the store alone.
        let store = has_store.then(|| MemoryStore::new(1 << 20, 1 << 12));
        let mut world = GroupWorld::new(Setup { store, ..setup });
        assert_eq!(world.run(&tokens, &[]), (0, 2800));
        world.evict_all();
        // Whatever ends it while it is hashed.
        for case in 0..3 {
            let info = world.begin(&Namespace::default(), &tokens).unwrap();
            let deadline = Deadline::After(Duration::from_nanos(1));
            let found = world.fetch(info.id, if case == 0 { deadline } else { Deadline::Never });
            assert!(found.is_begun && found.positions < 2800);
            world.tiers.work();
            match case {
                0 => world.settle(),
                1 => {}
                _ => drop(world.shared.clear(Scope::exactly(Namespace::default())).unwrap()),
            }
            world.release(info.id);
            world.settle();
            world.check_all();
        }
        world.end();
    }
}

/// The same with one group.
#[test]
fn t05_a_long_prompt_is_fetched_whole() {
    let tokens = prompt(1, 4 * 700 + 1);
    let plain = Namespace::default();
    for host in [710, 90] {
        let remote = MemoryRemote::new();
        let store = MemoryStore::new(1 << 20, 1 << 12);
        let setup =
            world::Setup { remote: Some(remote), ..world::Setup::new(750, host, Some(store)) };
        let mut world = World::new(setup);
        world.run(&plain, &tokens);
        for _ in 0..20 {
            world.settle();
        }
        world.shared.evict(1000, |_, _| {}).unwrap();
        let info = world.begin(&plain, &tokens).unwrap();
        let found = world.fetch(info.id, Deadline::Never);
        // Of what is not hashed yet nothing is said.
        assert!((4..=512).contains(&found.positions), "{found:?}");
        world.settle();
        assert_eq!(world.requests[&info.id].computed, 2800);
        assert_eq!(world.fetched.last().unwrap().wanted, 700);
        world.compute(info.id, tokens.len());
        world.release(info.id);
        // From the store alone, and with a part of it on the disk.
        for known in [0, 300] {
            let mut setup = world.setup.clone();
            setup.store = Some(MemoryStore::new(1 << 20, 1 << 12));
            let mut other = World::new(setup);
            if known > 0 {
                other.run(&plain, &tokens[..4 * known + 1]);
                other.settle();
                other.shared.evict(1000, |_, _| {}).unwrap();
            }
            let info = other.begin(&plain, &tokens).unwrap();
            other.work();
            let found = other.fetch(info.id, Deadline::Never);
            if known == 0 {
                assert_eq!((found.positions, found.asked_positions), (0, 2800));
            }
            other.settle();
            assert_eq!(other.requests[&info.id].computed, 2800);
            other.compute(info.id, tokens.len());
            other.release(info.id);
            other.shared.evict(1000, |_, _| {}).unwrap();
            // Its time is over, or it ends, before all of it is hashed.
            for time in [Deadline::After(Duration::from_nanos(1)), Deadline::Never] {
                let info = other.begin(&plain, &tokens).unwrap();
                assert!(other.fetch(info.id, time).is_begun);
                if time != Deadline::Never {
                    other.settle();
                    assert!(other.requests[&info.id].computed < 2800);
                }
                other.release(info.id);
                other.settle();
            }
            other.end();
        }
        world.end();
    }
}

/// T09: ranks with different room and faults use the same length in all groups, always.
#[test]
fn t16_t09_ranks_agree_with_several_groups() {
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut agreed_all, mut shorter, mut again) = (0, 0, 0);
    for round in 0..runs(40) {
        let mut ranks: Vec<GroupWorld> = (0..3)
            .map(|rank| {
                let mut setup = hybrid(rng.bool().then(|| MemoryStore::new(4000, 1 << 10)));
                setup.agrees = true;
                setup.pages = vec![50 + rank, 40 + 4 * rank, 8 + rank];
                setup.host_pages = vec![30 + 10 * rank as usize, 20, 4 + rank as usize];
                if round % 3 == 0 {
                    setup.groups.pop();
                }
                GroupWorld::new(setup)
            })
            .collect();
        for _ in 0..20 {
            let tokens = prompt(rng.u32(1..4), rng.u32(8..48));
            let saves: Vec<usize> =
                (1..=tokens.len() / PAGE_SIZE).filter(|_| rng.u8(0..4) == 0).collect();
            let mut ids = Vec::new();
            let mut lengths = Vec::new();
            for world in &mut ranks {
                while world.tiers.work() {}
                let info = world.begin(&Namespace::default(), &tokens).unwrap();
                let begun = world.fetch(info.id, Deadline::Never).is_begun;
                for _ in 0..rng.usize(0..60) {
                    world.tiers.work();
                    world.poll(2);
                    if !world.copies.is_empty() {
                        world.end_copy(0, rng.u8(0..15) > 0);
                    }
                }
                world.settle();
                let ready = world.fetched.pop().filter(|_| begun);
                assert!(!begun || world.shared.read().is_loading(info.id));
                lengths.push(ready.map_or(info.cached_positions, |done| done.positions));
                ids.push(info.id);
            }
            // Until all have the same. What a rank that had more needs for less may have to come.
            for attempt in 0.. {
                assert!(attempt < 60);
                let agreed = *lengths.iter().min().unwrap();
                shorter += lengths.iter().filter(|&&length| length > agreed).count();
                let mut is_done = true;
                for ((world, &id), length) in ranks.iter_mut().zip(&ids).zip(&mut lengths) {
                    *length = match world.tiers.agree(id, agreed) {
                        Ok(done) => {
                            world.requests.get_mut(&id).unwrap().is_open = false;
                            world.requests.get_mut(&id).unwrap().computed = done.positions;
                            world.check(id);
                            done.positions
                        }
                        Err(Error::Loading(_)) => {
                            again += 1;
                            is_done = false;
                            world.settle();
                            world.fetched.pop().unwrap().positions
                        }
                        Err(error) => panic!("{error}"),
                    };
                    assert!(*length <= agreed, "{length} of {agreed}");
                    is_done &= *length == agreed;
                }
                if is_done {
                    agreed_all += agreed;
                    break;
                }
            }
            for (world, &id) in ranks.iter_mut().zip(&ids) {
                for &pages in &saves {
                    if pages * PAGE_SIZE > lengths[0] && world.has_states() {
                        world.compute(id, pages * PAGE_SIZE);
                        world.save(id);
                    }
                }
                world.compute(id, tokens.len());
                world.release(id);
                world.settle();
                world.check_all();
                if rng.bool() {
                    world.evict(rng.usize(..world.setup.pages.len()), rng.usize(..30));
                }
            }
        }
        ranks.iter_mut().for_each(GroupWorld::end);
    }
    let least = [4000, 60, 10].map(runs);
    assert!(agreed_all > least[0] as usize, "{agreed_all} {shorter} {again}");
    assert!(shorter > least[1] as usize && again > least[2], "{agreed_all} {shorter} {again}");
}

/// A question without memory is given up: it is not asked again and again.
#[test]
fn a_question_of_groups_without_memory_is_given_up() {
    let tokens = prompt(1, 41);
    let mut remote = filled(&tokens, &[4, 10]);
    remote.timeout = Duration::from_millis(10);
    for (first, later) in (0..16).flat_map(|first| (0..10).map(move |later| (first, later))) {
        let mut world = on(&remote);
        let id = world.begin(&Namespace::default(), &tokens).unwrap().id;
        while world.tiers.work() {}
        assert!(world.fetch(id, Deadline::Never).is_begun);
        while world.tiers.work() {}
        // The first one, for the pages of group 0, is answered.
        while world.tiers.work_remote() {}
        let (begun, mut is_first) = (Instant::now(), true);
        while world.requests[&id].is_open {
            assert!(begun.elapsed() < Duration::from_secs(60), "after {first} and {later}");
            let after = if std::mem::take(&mut is_first) { first } else { later };
            failing(Failure::From(after), || world.tiers.work());
            world.poll(64);
            while !world.copies.is_empty() {
                world.end_copy(0, true);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        world.end();
    }
}
