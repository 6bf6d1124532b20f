//! Tree masks: new positions of a draft that see some of those before them.
use super::numbers::encode;
use super::setup::{DTYPES, Setup, random_setup};
use super::world::{Chunk, Kind, World};
use fastrand::Rng;
use radixkv::attention::{Batch, Region};
use radixkv::cpu::Isa;

/// Masks of a tree in which each position's parent is drawn among those before it.
pub fn random_tree(random: &mut Rng, count: usize) -> Vec<u64> {
    let mut masks: Vec<u64> = Vec::new();
    for at in 0..count {
        let parent = match at {
            0 => None,
            _ if random.u8(..6) == 0 => None, // the draft begins anew
            _ => Some(random.usize(at.saturating_sub(6)..at)),
        };
        masks.push(parent.map_or(0, |parent| masks[parent] | 1 << parent));
    }
    masks
}

/// The masks of a causal row.
fn chain(count: usize) -> Vec<u64> {
    (0..count).map(|at| (1u64 << at) - 1).collect()
}

/// Trees behind contexts of any length, beside rows that have none; also masks of no tree.
pub fn random_trees(isa: Isa, cases: u64) {
    for case in 0..cases {
        let mut random = Rng::with_seed(case ^ 0x7ee);
        let mut setup = Setup { isa, ..random_setup(&mut random) };
        if random.bool() {
            // Views that end inside of a draft, or shortly before it.
            setup.params.view.window = Some(random.u32(1..80));
        }
        let mut world = World::new(setup, 3);
        for at in 0..3 {
            let context = random.usize(0..150);
            if context > 0 {
                world.fill(at, context);
            }
        }
        let counts = [random.usize(1..65), random.usize(1..20), random.usize(1..30)];
        world.sequences[0].tree = random_tree(&mut random, counts[0]);
        world.sequences[1].tree = match random.bool() {
            true => (0..counts[1]).map(|at| random.u64(..) & ((2 << at) - 1)).collect(),
            false => random_tree(&mut random, counts[1]),
        };
        let mut chunks = [0, 1, 2].map(|at| Chunk::new(at, counts[at]));
        random.shuffle(&mut chunks);
        world.step(&chunks);
        world.check_poison();
    }
}

/// Every format, with rows of a head that are few and many, and a draft over three blocks of keys.
pub fn every_format() {
    for dtypes in DTYPES {
        for heads in [(1, 1), (8, 1), (6, 2)] {
            let mut setup = Setup::default().with_dtypes(dtypes).with_heads(heads);
            setup.params.soft_cap = (heads.0 == 8).then_some(1.5);
            setup.sinks = heads.0 == 6;
            let mut world = World::new(setup, 2);
            world.fill(0, 100);
            world.fill(1, 63);
            let mut random = Rng::with_seed(heads.0 as u64);
            world.sequences[0].tree = random_tree(&mut random, 64);
            world.sequences[1].tree = vec![0, 0, 0b11];
            world.step(&[Chunk::new(0, 64), Chunk::new(1, 3)]);
        }
    }
}

/// In so few steps that an interpreter can follow.
pub fn a_small_tree() {
    let setup = Setup { isa: Isa::Portable, room: 9, ..Setup::default() }.with_heads((2, 1));
    let mut world = World::new(setup, 1);
    world.fill(0, 3);
    world.sequences[0].tree = vec![0, 1, 1, 0b101];
    world.step(&[Chunk::new(0, 4)]);
}

/// A tree without branches is a causal row, to the last bit; also where some of its positions have
/// their sinks apart, and others don't.
pub fn a_chain_is_causal() {
    for isa in Isa::available() {
        for (context, count, window, sinks) in [
            (0, 64, None, 0),
            (130, 40, None, 0),
            (61, 20, Some(9), 0),
            (61, 20, Some(9), 4),
            (3, 40, Some(9), 5),
            (0, 64, Some(20), 30),
            (40, 64, Some(33), 70),
        ] {
            let mut setup = Setup { isa, ..Setup::default() };
            (setup.params.view.window, setup.params.view.sinks) = (window, sinks);
            let mut world = World::new(setup, 1);
            if context > 0 {
                world.fill(0, context);
            }
            let causal = world.run(&[Chunk::new(0, count)]);
            world.sequences[0].tree = chain(count);
            assert!(world.run_written(&[Chunk::new(0, count)]) == causal);
        }
    }
}

/// What is NaN on one branch does not reach the others.
pub fn nan_stays_on_its_branch() {
    for dtypes in DTYPES {
        for in_k in [true, false] {
            for isa in Isa::available() {
                let setup = Setup { isa, ..Setup::default() }.with_dtypes(dtypes);
                let mut world = World::new(setup, 1);
                world.fill(0, 60);
                world.sequences[0].tree =
                    (0..12).map(|at| 0x555 << (at & 1) & ((1 << at) - 1)).collect();
                world.fill(0, 12);
                let clean = world.run_written(&[Chunk::new(0, 12)]);
                let place = world.place(Kind::K, 0, 63, 1); // the draft's fourth
                let mut nan = Vec::new();
                encode(f32::NAN, dtypes.1, &mut nan);
                let memory = if in_k { &mut world.k } else { &mut world.v };
                memory[place.start..place.start + nan.len()].copy_from_slice(&nan);
                let found = world.run_written(&[Chunk::new(0, 12)]);
                for (index, lse) in found.1.iter().enumerate() {
                    let (position, head) = (index / 4, index % 4);
                    let numbers = |out: &[f32]| out[index * 64..(index + 1) * 64].to_vec();
                    if position >= 3 && position % 2 == 1 && head / 2 == 1 {
                        assert!(numbers(&found.0)[0].is_nan());
                        assert_eq!(lse.is_nan(), in_k);
                    } else {
                        assert_eq!(numbers(&found.0), numbers(&clean.0), "position {position}");
                        assert_eq!(*lse, clean.1[index]);
                    }
                }
            }
        }
    }
}

/// Masks that are none are refused, and change nothing.
pub fn refused_masks() {
    let mut batch = Batch::new(4).unwrap();
    batch.push_masked_row(3, 2, &[7, 5, 9], (&[], &[0, 1])).unwrap();
    let before = format!("{batch:?}");
    let pages: Vec<u32> = (1..40).collect();
    let region = [Region { start: 1, end: 5 }];
    let many = [0; 65];
    let refusals: [(usize, &[Region], &[u64], &str); 5] = [
        (2, &[], &[0], "tree_masks: a row with them has at most 64"),
        (65, &[], &many, "tree_masks: a row with them has at most 64"),
        (3, &[], &[0, 0b100, 0], "tree_masks[1] has bit 2"),
        (2, &[], &[1 << 63, 0], "tree_masks[0] has bit 63"),
        (2, &region, &[0, 0], "tree_masks: a row with them has no regions"),
    ];
    for (count, regions, tree, words) in refusals {
        let refused = batch.push_masked_row(8, count, &pages, (regions, tree));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("rows[1]") && error.contains(words), "{error}");
        assert_eq!(format!("{batch:?}"), before);
    }
    batch.push_masked_row(8, 64, &pages, (&[], &many[..64])).unwrap();
}
