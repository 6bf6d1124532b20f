//! Rows as groups have them: pages that a window or chunk has passed are gone, and what they held
//! is poison by now.
use super::check::Bits;
use super::setup::{DTYPES, HEAD_DIMS, HEADS, Setup, random_setup};
use super::world::{Chunk, World};
use fastrand::Rng;
use radixkv::attention::{KvLayout, Region, View};
use radixkv::cpu::Isa;
use radixkv::group::GroupKind;

/// How far back the queries of a group see.
fn view_of(kind: GroupKind) -> View {
    match kind {
        GroupKind::Window { window, sinks } => {
            View { window: Some(window), sinks, ..View::default() }
        }
        GroupKind::Chunk { chunk } => View { chunk: Some(chunk), ..View::default() },
        _ => View::default(),
    }
}

impl World {
    /// Gives away the pages that the next position of a sequence doesn't need. Others may write to
    /// them: they are poison, and so is page 0, which stands in their place.
    pub fn slide(&mut self, sequence: usize, kind: GroupKind) -> usize {
        let page_size = self.setup.geometry.page_size;
        let positions = self.sequences[sequence].positions;
        let needs = kind.needs(positions, page_size).unwrap();
        let mut given = 0;
        for place in (0..positions / page_size).filter(|&place| !needs.contain(place)) {
            let page = std::mem::take(&mut self.sequences[sequence].pages[place]);
            if page != 0 {
                self.give_back(page);
                given += 1;
            }
        }
        given
    }
}

fn pick<T: Copy>(random: &mut Rng, from: &[T]) -> T {
    from[random.usize(0..from.len())]
}

fn random_kind(random: &mut Rng) -> GroupKind {
    let window = pick(random, &[1, 2, 15, 64, 65, 300, 600]);
    match random.u8(..6) {
        0 => GroupKind::Full,
        1 | 2 => GroupKind::Window { window, sinks: 0 },
        3 | 4 => GroupKind::Window { window, sinks: pick(random, &[1, 4, 63, 64, 100, 513, 700]) },
        _ => GroupKind::Chunk { chunk: pick(random, &[1, 7, 64, 100, 512, 600]) },
    }
}

/// Anything that the CPU takes, with K and V of different sizes.
fn random_group(random: &mut Rng, isa: Isa) -> (Setup, GroupKind) {
    let kind = random_kind(random);
    let mut setup = Setup { isa, ..random_setup(random) };
    setup.geometry.head_dim = pick(random, &HEAD_DIMS);
    setup.geometry.v_head_dim = pick(random, &HEAD_DIMS);
    setup.geometry.page_size = pick(random, &[1, 1, 2, 3, 16, 31, 64, 256]);
    setup.params.view = view_of(kind);
    // A call may narrow the group's window.
    if random.u8(..4) == 0 {
        let most = setup.params.view.window.or(setup.params.view.chunk).unwrap_or(300);
        setup.params.view.window = Some(random.u32(1..=most));
    }
    (setup, kind)
}

/// Sequences that grow step by step and let go of what no position to come needs, each step against
/// the definition.
pub fn random_groups(isa: Isa, cases: u64) {
    let (mut given, mut kinds) = (0, [0; 4]);
    for case in 0..cases {
        let mut random = Rng::with_seed(case ^ 0x960a1);
        let (mut setup, kind) = random_group(&mut random, isa);
        setup.room = 2000;
        let count = random.usize(1..4);
        let mut world = World::new(setup, count);
        for sequence in 0..count {
            world.fill(sequence, random.usize(0..500));
            given += world.slide(sequence, kind);
        }
        for _ in 0..3 {
            let mut chunks = Vec::new();
            for sequence in 0..count {
                let new = if random.bool() { 1 } else { random.usize(1..60) };
                let start = world.sequences[sequence].positions;
                // A region of the new positions alone: whole, as plans want it.
                if new > 3 && random.bool() {
                    let (start, end) = (start + random.usize(..new / 2), start + new);
                    world.sequences[sequence].regions.push(Region { start, end });
                }
                chunks.push(Chunk::new(sequence, new));
            }
            random.shuffle(&mut chunks);
            world.step(&chunks);
            for sequence in 0..count {
                given += world.slide(sequence, kind);
            }
        }
        world.check_poison();
        let which = match kind {
            GroupKind::Window { sinks: 0, .. } => 1,
            GroupKind::Window { .. } => 2,
            GroupKind::Chunk { .. } => 3,
            _ => 0,
        };
        kinds[which] += 1;
    }
    assert!(given as u64 > cases && kinds.iter().all(|&seen| seen > 0), "{given} {kinds:?}");
}

/// Keys and values of every pair of sizes, in every format and layout.
pub fn sizes_of_keys_and_values() {
    let mut turn = 0;
    for head_dim in HEAD_DIMS {
        for v_head_dim in HEAD_DIMS {
            for layout in [KvLayout::Nhd, KvLayout::Hnd] {
                turn += 1;
                let mut setup = Setup { layout, seed: turn as u64, ..Setup::default() }
                    .with_head_dim(head_dim)
                    .with_dtypes(DTYPES[turn % 6])
                    .with_heads(HEADS[turn / 2 % 6]);
                setup.geometry.v_head_dim = v_head_dim;
                setup.padding = [0, 16, 0, 1][turn / 3 % 4];
                setup.geometry.page_size = [16, 5, 1][turn % 3];
                setup.threads = 1 + turn % 2;
                let mut world = World::new(setup, 2);
                world.fill(1, 70);
                world.step(&[Chunk::new(0, 12), Chunk::new(1, 1)]);
                world.check_poison();
            }
        }
    }
}

/// Rows so long that their keys are cut into parts, with sinks far from the window: the same bits
/// for any number of threads and in whatever chunks.
pub fn long_rows_with_sinks() {
    for (window, sinks, query_heads) in [(700, 4, 2), (1500, 600, 4), (64, 1100, 8)] {
        let kind = GroupKind::Window { window, sinks };
        let mut all: Vec<Bits> = Vec::new();
        for (threads, chunks) in [(1, &[6][..]), (2, &[1, 5]), (7, &[3, 2, 1]), (3, &[6])] {
            let mut setup = Setup { threads, room: 4000, ..Setup::default() };
            setup = Setup { batch_invariant: true, ..setup.with_heads((query_heads, 2)) };
            setup.params.view = view_of(kind);
            let mut world = World::new(setup, 1);
            world.fill(0, 3300);
            assert!(world.slide(0, kind) > 0);
            let mut bits = Bits::new();
            for &count in chunks {
                bits.extend(world.step(&[Chunk::new(0, count)]));
            }
            all.push(bits);
        }
        assert!(all.iter().all(|bits| *bits == all[0]), "{kind:?}");
    }
}

/// So few steps that an interpreter can follow.
pub fn small_groups() {
    let kinds = [GroupKind::Window { window: 3, sinks: 2 }, GroupKind::Chunk { chunk: 4 }];
    for (turn, kind) in kinds.into_iter().enumerate() {
        let mut setup = Setup { isa: Isa::Portable, room: 16, ..Setup::default() };
        setup = setup.with_heads((1, 1)).with_dtypes(DTYPES[3 * turn]);
        setup.geometry.page_size = 2;
        setup.geometry.v_head_dim = 96;
        setup.params.view = view_of(kind);
        let mut world = World::new(setup, 1);
        let mut given = 0;
        for count in [4, 3, 2, 1] {
            world.step(&[Chunk::new(0, count)]);
            given += world.slide(0, kind);
        }
        assert!(given > 0);
        world.check_poison();
    }
}
