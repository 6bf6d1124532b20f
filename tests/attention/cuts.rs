//! A prompt in chunks gives what it gives in one piece, and the same bits whatever else is
//! computed.
use super::check::Bits;
use super::setup::{DTYPES, MASKINGS, Masking, Setup, best_isa, random_setup};
use super::world::{Chunk, World};
use fastrand::Rng;
use radixkv::attention::Region;
use radixkv::cpu::Isa;

const POSITIONS: usize = 71;

fn region(start: usize, end: usize) -> Region {
    Region { start, end }
}

/// Prefill of a prompt in chunks.
fn prefill(setup: &Setup, regions: &[Region], chunks: &[usize]) -> Bits {
    let mut world = World::new(setup.clone(), 1);
    world.sequences[0].regions = regions.to_vec();
    let mut bits = Bits::new();
    for &count in chunks.iter().filter(|&&count| count > 0) {
        bits.extend(world.step(&[Chunk::new(0, count)]));
    }
    world.check_poison();
    bits
}

/// Two chunks, cut everywhere: each is compared with the definition, and with the prefill in one
/// piece, bit by bit.
pub fn every_cut(isa: Isa) {
    for (turn, dtypes) in DTYPES.into_iter().enumerate() {
        for masking in MASKINGS {
            if masking == Masking::Regions {
                continue;
            }
            let mut setup = Setup { isa, ..Setup::default() }.with_dtypes(dtypes);
            setup = setup.with_masking(masking);
            setup.geometry.page_size = [16, 5, 1][turn % 3];
            let whole = prefill(&setup, &[], &[POSITIONS]);
            for cut in (1..POSITIONS).step_by(if masking == Masking::Causal { 1 } else { 7 }) {
                assert_eq!(prefill(&setup, &[], &[cut, POSITIONS - cut]), whole, "cut at {cut}");
            }
        }
    }
}

/// Regions that a cut leaves whole give the same bits as a prefill in one piece; where a cut goes
/// through one, what was computed before saw less, and what is computed after sees the same.
pub fn regions_and_cuts() {
    let regions = [region(5, 20), region(20, 24), region(40, 41), region(50, 90)];
    for window in [None, Some(3), Some(30)] {
        let mut setup = Setup::default();
        setup.params.view.window = window;
        setup.geometry.page_size = 7;
        let whole = prefill(&setup, &regions, &[POSITIONS]);
        for cut in 1..POSITIONS {
            let parts = prefill(&setup, &regions, &[cut, POSITIONS - cut]);
            let cut_region = regions.iter().find(|region| region.start < cut && cut < region.end);
            for position in 0..POSITIONS {
                let same = parts[&(0, position)] == whole[&(0, position)];
                let saw_less =
                    cut_region.is_some_and(|region| (region.start..cut).contains(&position));
                assert_eq!(same, !saw_less, "position {position}, cut at {cut}, {window:?}");
            }
        }
        // Chunks that begin inside a region, between two, and behind the last one.
        let thirds = prefill(&setup, &regions, &[24, 20, POSITIONS - 44]);
        assert_eq!(thirds, whole);
    }
}

/// The same sequences in other batches, chunks and threads: the same bits.
pub fn batches_and_threads(cases: u64) {
    for case in 0..cases {
        let mut random = Rng::with_seed(case ^ 0xba7c4);
        let setup = Setup { isa: best_isa(), batch_invariant: true, ..random_setup(&mut random) };
        let lengths: Vec<usize> = (0..3).map(|_| random.usize(1..200)).collect();
        let mut alone = Bits::new();
        for (sequence, &length) in lengths.iter().enumerate() {
            let mut world = World::new(Setup { threads: 1, ..setup.clone() }, 3);
            alone.extend(world.step(&[Chunk::new(sequence, length)]));
        }
        for threads in [1, 2, 3] {
            let mut world = World::new(Setup { threads, ..setup.clone() }, 3);
            let mut together = Bits::new();
            loop {
                let mut chunks = Vec::new();
                for (sequence, &length) in lengths.iter().enumerate() {
                    let left = length - world.sequences[sequence].positions;
                    if left > 0 && random.u8(0..4) > 0 {
                        chunks.push(Chunk::new(sequence, random.usize(1..=left)));
                    }
                }
                random.shuffle(&mut chunks);
                let (out, lse) = world.run(&chunks);
                together.extend(world.bits(&chunks, &out, &lse));
                if world.sequences.iter().zip(&lengths).all(|(row, &end)| row.positions == end) {
                    break;
                }
            }
            assert!(together == alone, "case {case}, {threads} threads: {setup:?}");
        }
    }
}

/// Rows so long that their keys are cut into parts for threads.
pub fn long_rows() {
    for (masking, query_heads, new) in [
        (Masking::Causal, 4, 1),
        (Masking::Causal, 2, 1),
        (Masking::Sinks, 8, 3),
        (Masking::Window, 4, 40),
        (Masking::Everything, 12, 5),
    ] {
        let mut all = Vec::new();
        for threads in [1, 2, 7] {
            let mut setup = Setup { threads, room: 3200, ..Setup::default() };
            setup = setup.with_heads((query_heads, 2)).with_masking(masking);
            if masking == Masking::Window {
                setup.params.view.window = Some(1500);
            }
            let mut world = World::new(setup, 2);
            world.fill(0, 2900);
            world.fill(1, 130);
            all.push(world.step(&[Chunk::new(1, 2), Chunk::new(0, new)]));
        }
        assert!(all[0] == all[1] && all[0] == all[2], "{masking:?}, {query_heads}, {new}");
    }
}

/// A row so long that each thread gets parts of several segments, in a backend's very first call.
pub fn first_call_with_a_long_row() {
    let results = [1, 2, 3].map(|threads| {
        let setup = Setup { threads, room: 12_000, ..Setup::default() }.with_heads((2, 1));
        let mut world = World::new(setup, 1);
        world.fill(0, 11_000);
        world.step(&[Chunk::new(0, 1)])
    });
    assert!(results[0] == results[1] && results[0] == results[2]);
}
