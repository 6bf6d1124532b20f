//! Every format with every head size, grouping, layout and mask; page sizes, cuts and threads in
//! turns.
use super::setup::{
    DTYPES, HEADS, MASKINGS, Masking, PAGE_SIZES, Setup, random_regions, random_setup,
};
use super::world::{Chunk, World};
use fastrand::Rng;
use radixkv::attention::KvLayout;
use radixkv::cpu::Isa;

/// All combinations for a head size, in a batch of a prefill, an append and a decode.
pub fn matrix(head_dim: usize) {
    let mut turn = head_dim;
    for dtypes in DTYPES {
        for heads in HEADS {
            for masking in MASKINGS {
                for layout in [KvLayout::Nhd, KvLayout::Hnd] {
                    turn += 1;
                    let mut setup = Setup { layout, seed: turn as u64, ..Setup::default() }
                        .with_head_dim(head_dim)
                        .with_dtypes(dtypes)
                        .with_heads(heads)
                        .with_masking(masking);
                    setup.geometry.page_size = PAGE_SIZES[turn % 5];
                    setup.padding = [0, 16, 0, 1][turn / 2 % 4];
                    setup.threads = 1 + turn / 3 % 2;
                    setup.room = 200;
                    mixed_batch(setup, masking, turn);
                }
            }
        }
    }
}

fn mixed_batch(setup: Setup, masking: Masking, turn: usize) {
    let mut world = World::new(setup, 3);
    if matches!(masking, Masking::Regions | Masking::Everything) {
        let mut random = Rng::with_seed(turn as u64);
        for sequence in &mut world.sequences {
            sequence.regions = random_regions(&mut random, 100);
        }
    }
    // Cuts before, at and behind the end of a page and of a block of the kernels.
    let cached = [15, 16, 17, 63, 64, 65][turn % 6];
    world.fill(1, cached);
    world.fill(2, 30);
    world.step(&[Chunk::new(0, 13), Chunk::new(1, 6), Chunk::new(2, 1)]);
    world.check_poison();
}

/// Shapes, masks, batches and cuts by chance.
pub fn random_shapes(isa: Isa, cases: u64) {
    for case in 0..cases {
        let mut random = Rng::with_seed(case);
        let setup = Setup { isa, ..random_setup(&mut random) };
        let count = random.usize(1..5);
        let mut world = World::new(setup, count);
        for at in 0..count {
            if random.bool() {
                world.sequences[at].regions = random_regions(&mut random, 300);
            }
            if random.bool() {
                world.fill(at, random.usize(1..150));
            }
        }
        for _ in 0..2 {
            let mut chunks = Vec::new();
            for at in 0..count {
                let new = if random.bool() { 1 } else { random.usize(1..60) };
                if random.u8(0..4) > 0 {
                    chunks.push(Chunk::new(at, new));
                }
            }
            random.shuffle(&mut chunks);
            world.step(&chunks);
        }
        world.check_poison();
    }
}
