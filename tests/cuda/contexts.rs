//! Queries that are no positions of the row whose keys they see, and scales of heads.
use super::hopper::has_hopper;
use super::world::{Setup, World};
use radixkv::attention::Dtype;

/// Contexts beside a row that goes on, whose pages alone are written.
fn step(setup: Setup) {
    let mut world = World::new(setup, 3);
    world.fill(0, 131);
    world.fill(1, 64);
    world.fill(2, 20);
    for at in [0, 1] {
        world.sequences[at].is_context = true;
    }
    world.step(&[(0, 1), (2, 3), (1, 2)]);
    world.step(&[(1, 50), (0, 140), (2, 1)]);
}

// K21
#[test]
fn k21_queries_that_are_no_positions_see_a_whole_context() {
    let fp8 = (Dtype::F16, Dtype::Fp8E4m3);
    for (head_dim, page_size, heads, dtypes) in [
        (64, 16, (8, 2), (Dtype::Bf16, Dtype::Bf16)),
        (80, 1, (2, 2), (Dtype::F16, Dtype::F16)),
        (112, 23, (3, 1), fp8),
        (128, 64, (8, 2), (Dtype::Bf16, Dtype::Bf16)),
        (192, 16, (4, 2), fp8),
    ] {
        let setup = Setup::new(head_dim, page_size).heads(heads.0, heads.1);
        let mut setup = setup.dtypes(dtypes.0, dtypes.1);
        setup.params.soft_cap = (head_dim == 64).then_some(15.0);
        (setup.sinks, setup.pages) = (head_dim == 128, 500 / page_size + 8);
        step(setup);
    }
}

// K21
#[test]
fn k21_attn_sm90_sees_a_whole_context() {
    if !has_hopper() {
        return;
    }
    for page_size in [7, 16] {
        let mut setup = Setup::new(128, page_size).heads(8, 2).sm90();
        setup.pages = 500 / page_size + 8;
        step(setup);
    }
}

/// Contexts that are the same pages are attended to together, and long ones are cut.
// K21
#[test]
fn k21_contexts_that_are_shared_and_cut() {
    let mut setup = Setup::new(64, 16).heads(8, 2);
    (setup.pages, setup.sinks) = (300, true);
    let mut world = World::new(setup, 3);
    world.fill(0, 1600);
    for to in 1..3 {
        world.share(0, to, 100);
    }
    world.sequences.iter_mut().for_each(|sequence| sequence.is_context = true);
    world.step(&[(0, 2), (1, 1), (2, 9)]);
}

// K22
#[test]
fn k22_each_head_has_scales_of_its_own() {
    for (head_dim, heads, dtype) in
        [(64, (8, 2), Dtype::Bf16), (80, (3, 3), Dtype::F16), (256, (6, 3), Dtype::Bf16)]
    {
        let setup = Setup::new(head_dim, 16).heads(heads.0, heads.1);
        let mut setup = setup.dtypes(dtype, Dtype::Fp8E4m3);
        setup.params.soft_cap = (head_dim == 80).then_some(15.0);
        (setup.head_scales, setup.pages) = (true, 100);
        let mut world = World::new(setup, 2);
        world.fill(0, 131);
        world.step(&[(0, 1), (1, 70)]);
        world.step(&[(0, 40), (1, 1)]);
    }
}
