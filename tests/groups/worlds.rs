//! Page tables of all kinds, and runs over them.
use super::chance::Chance;
use super::engine::{Engine, Seen};
use super::library::World;
use super::model::{Group, Kind};

pub fn group(kind: Kind, pool: usize) -> Group {
    Group { kind, pool, drafts: 0 }
}

/// A STATE group whose rows have states after draft tokens.
pub fn drafting(drafts: usize, pool: usize) -> Group {
    Group { drafts, ..group(Kind::State, pool) }
}

/// A world of groups, the first of which is FULL.
pub fn world(page_size: u32, groups: &[Group], pools: &[u32]) -> World {
    let mut all = vec![group(Kind::Full, 0)];
    all.extend(groups);
    World {
        page_size,
        groups: all,
        pools: pools.to_vec(),
        external: false,
        whole_pages: false,
        journal_bytes: 0,
        checkpoint_limit: 0,
        failures: false,
        slice: 0,
        reach: 1,
    }
}

pub fn worlds() -> Vec<World> {
    use Kind::{Chunk, Full, State, Window};
    let external = |world: World| World { external: true, ..world };
    let whole = |world: World| World { whole_pages: true, ..world };
    let told = |world: World| World { journal_bytes: 1 << 16, ..world };
    let barely_told =
        |world: World| World { journal_bytes: 1024 + 256 * u64::from(world.page_size), ..world };
    let limited = |checkpoint_limit, world: World| World { checkpoint_limit, ..world };
    vec![
        told(world(4, &[group(Window(9, 0), 1)], &[40, 25])),
        told(world(1, &[group(Window(3, 1), 0)], &[60])),
        world(4, &[group(State, 1)], &[40, 4]),
        told(world(2, &[group(Window(5, 3), 1), group(State, 2)], &[40, 20, 5])),
        told(external(world(3, &[group(Window(7, 0), 0), group(State, 1)], &[50, 6]))),
        world(4, &[group(Chunk(10), 1)], &[40, 20]),
        whole(world(4, &[group(Chunk(6), 0), group(Window(6, 5), 1)], &[50, 20])),
        external(world(2, &[group(Full, 1), group(Window(4, 0), 1)], &[40, 40])),
        world(4, &[group(Window(1, 0), 1), group(Window(100, 0), 2)], &[30, 10, 30]),
        barely_told(world(
            16,
            &[group(State, 0), group(State, 1), group(Window(40, 4), 1)],
            &[40, 20],
        )),
        barely_told(world(2, &[group(Window(4, 0), 1)], &[3, 1])),
        told(external(world(1, &[group(State, 1), group(Window(2, 0), 2)], &[9, 1, 2]))),
        limited(1, told(world(2, &[group(State, 1), group(Window(5, 0), 1)], &[40, 20]))),
        world(4, &[drafting(2, 1), group(Window(9, 0), 0)], &[50, 20]),
        limited(2, told(world(1, &[drafting(1, 1), drafting(3, 0)], &[60, 30]))),
        limited(2, told(external(world(2, &[group(State, 1)], &[40, 9])))),
    ]
}

/// So many steps, after each of which the library and the model must agree.
pub fn run(world: &World, steps: u64, seed: u64, seen: &mut Seen) -> Engine {
    let mut engine = Engine::new(world, Chance::of_seed(seed));
    for step in 0..steps {
        let at = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            engine.step();
            engine.agree();
        }));
        assert!(at.is_ok(), "{world:?}, seed {seed}, step {step}");
    }
    let more = engine.seen;
    seen.claimed += more.claimed;
    seen.filled += more.filled;
    seen.duplicates += more.duplicates;
    seen.evicted += more.evicted;
    seen.lost += more.lost;
    seen.partial += more.partial;
    seen.refused += more.refused;
    seen.out_of_memory += more.out_of_memory;
    seen.records_lost += more.records_lost;
    seen.records_of_groups += more.records_of_groups;
    seen.dropped += more.dropped;
    seen.moved += more.moved;
    seen.slid += more.slid;
    engine
}

/// Any page table; rarely a large one.
#[allow(dead_code)] // of the fuzz targets and the simulation
pub fn any_world(chance: &mut Chance) -> World {
    const PAGE_SIZES: [u32; 8] = [1, 2, 3, 4, 4, 5, 8, 16];
    let page_size = PAGE_SIZES[chance.usize(..8)];
    let positions = 6 * page_size as usize;
    let pool_count = chance.usize(1..=3);
    let groups: Vec<Group> = (0..chance.usize(0..=4))
        .map(|_| {
            let kind = match chance.usize(..8) {
                0 => Kind::Full,
                1..4 => {
                    let window = chance.usize(1..=positions);
                    Kind::Window(window, if chance.bool() { 0 } else { chance.usize(..positions) })
                }
                4 => Kind::Chunk(chance.usize(1..=positions)),
                _ => Kind::State,
            };
            let drafts = if kind == Kind::State { [0, 1, 2, 2][chance.usize(..4)] } else { 0 };
            Group { drafts, ..group(kind, chance.usize(..pool_count)) }
        })
        .collect();
    // Each pool has a group; the first one group 0.
    let mut used: Vec<usize> = std::iter::once(0).chain(groups.iter().map(|of| of.pool)).collect();
    used.sort_unstable();
    used.dedup();
    let place = |pool: usize| used.iter().position(|&one| one == pool).expect("it is used");
    let groups: Vec<Group> =
        groups.iter().map(|of| Group { pool: place(of.pool), ..*of }).collect();
    let pools: Vec<u32> = used.iter().map(|_| chance.usize(1..=60) as u32).collect();
    let has_states = groups.iter().any(|of| of.kind == Kind::State);
    let least = 1024 + 256 * u64::from(page_size);
    let mut made = World {
        external: chance.usize(..4) == 3,
        whole_pages: chance.usize(..4) == 3,
        journal_bytes: [0, 0, least, 1 << 16][chance.usize(..4)],
        checkpoint_limit: if has_states { [0, 0, 1, 3][chance.usize(..4)] } else { 0 },
        ..world(page_size, &groups, &pools)
    };
    // One choice for both: so what a fuzzer found before there were slices is still the same.
    let choice = chance.usize(..64);
    (made.failures, made.slice) = (choice % 16 == 15, choice / 16);
    if made.slice > 0 && page_size < 5 && !made.failures && chance.bool() {
        // Some lists go in portions of sixteen slices.
        made.reach = 4;
        made.groups.iter_mut().for_each(|of| of.kind = of.kind.times(made.reach));
        made.pools.iter_mut().for_each(|pages| *pages *= made.reach as u32);
    }
    made
}
