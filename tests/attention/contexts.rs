//! Queries that are no positions of the row whose keys they see: cross attention.
use super::setup::{DTYPES, HEADS, Setup, random_setup};
use super::world::{Chunk, World};
use fastrand::Rng;
use radixkv::attention::{Batch, View};
use radixkv::cpu::Isa;

/// Contexts of any length beside rows that go on; nothing is written for their queries.
pub fn random_contexts(isa: Isa, cases: u64) {
    for case in 0..cases {
        let mut random = Rng::with_seed(case ^ 0xc0);
        let mut setup = Setup { isa, ..random_setup(&mut random) };
        setup.params.view = View::default();
        let mut world = World::new(setup, 3);
        for at in 0..3 {
            world.fill(at, random.usize(1..170));
        }
        let mut chunks = vec![
            Chunk::over_context(0, random.usize(1..80)),
            Chunk::new(1, random.usize(1..20)),
            Chunk::over_context(2, random.usize(1..5)),
        ];
        random.shuffle(&mut chunks);
        world.step(&chunks);
        world.step(&chunks);
        world.check_poison();
    }
}

/// A scale for each head: its own in memory and in results.
pub fn scales_of_heads() {
    for dtypes in DTYPES {
        for heads in HEADS {
            for rows in [1, 7, 40] {
                let mut setup = Setup::default().with_dtypes(dtypes).with_heads(heads);
                setup.head_scales = true;
                setup.params.soft_cap = (rows == 7).then_some(1.5);
                setup.sinks = rows == 1;
                let mut world = World::new(setup, 1);
                world.fill(0, 90);
                world.step(&[Chunk::new(0, rows)]);
            }
        }
    }
}

/// What cannot be a context is refused, and changes nothing.
pub fn refused_contexts() {
    let mut batch = Batch::new(4).unwrap();
    batch.push_context_row(5, 9, &[7, 5]).unwrap();
    assert_eq!((batch.query_count(), batch.slot_mapping()), (9, &[-1; 9][..]));
    assert_eq!((batch.pages(), batch.last_page_len()), (&[7, 5][..], &[1][..]));
    let before = format!("{batch:?}");
    let refusals = [
        (0, 1, "count, and the start of a context"),
        (3, 0, "count, and the start of a context"),
        (9, 1, "start 9 is beyond the row's 8 positions"),
        (1, usize::MAX, "2^31"),
        (1, 1 << 31, "2^31"),
    ];
    for (context, count, words) in refusals {
        let error = batch.push_context_row(context, count, &[1, 2]).unwrap_err().to_string();
        assert!(error.contains("rows[1]") && error.contains(words), "{error}");
        assert_eq!(format!("{batch:?}"), before);
    }
}
