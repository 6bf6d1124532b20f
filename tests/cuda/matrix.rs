//! Every kernel, with every mask that it may meet.
use super::hopper::has_hopper;
use super::world::{Setup, World};
use radixkv::attention::{Dtype, KvLayout, Region};
use radixkv::gpu::{Heads, heads, heads_of_sm90};

/// One combination: prefill, append, drafts and decoding, with rows for every tile.
fn run(setup: Setup, with_regions: bool) {
    let mut world = World::new(setup, 3);
    if with_regions {
        world.sequences[0].regions =
            vec![Region { start: 5, end: 30 }, Region { start: 90, end: 120 }];
    }
    world.fill(1, 131);
    let group = world.setup.geometry.group();
    world.step(&[(0, 130), (1, 1)]);
    world.step(&[(0, 1), (1, 40 / group), (2, 70)]);
    world.step(&[(0, 2), (1, 1), (2, 1)]);
}

fn masks(setup: &mut Setup, which: usize) -> bool {
    setup.params.view.window = [None, Some(50), None, Some(20)][which];
    setup.params.soft_cap = [None, None, Some(15.0), Some(30.0)][which];
    setup.sinks = which == 3;
    which >= 2
}

/// Of all combinations of head dim, formats, page size, layout, mask and group, those whose number
/// leaves a remainder of 0: with 1 all of them. attn_sm90 has fewer head dims.
fn every(nth: usize, sm90: bool) {
    let formats = [
        (Dtype::Bf16, Dtype::Bf16),
        (Dtype::F16, Dtype::F16),
        (Dtype::Bf16, Dtype::Fp8E4m3),
        (Dtype::F16, Dtype::Fp8E4m3),
    ];
    let all: Vec<Heads> = if sm90 { heads_of_sm90().collect() } else { heads().to_vec() };
    let mut number = 0;
    for lengths in all {
        // What attn_sm90 widens is alike.
        let is_for = |kv_dtype| !sm90 || kv_dtype != Dtype::Fp8E4m3 || lengths.are_alike();
        for (dtype, kv_dtype) in formats.into_iter().filter(|&(_, kv_dtype)| is_for(kv_dtype)) {
            for mask in 0..4 {
                for page_size in [1, 16, 23, 128] {
                    for (heads, layout) in [((8, 2), KvLayout::Nhd), ((3, 1), KvLayout::Hnd)] {
                        number += 1;
                        if number % nth != 0 {
                            continue;
                        }
                        let mut setup = Setup::of(lengths, page_size).heads(heads.0, heads.1);
                        setup = setup.dtypes(dtype, kv_dtype);
                        (setup.layout, setup.sm90) = (layout, sm90);
                        setup.pages = 700 / page_size + 8;
                        // Flat distributions, and sharp ones, whose sums are rescaled.
                        setup.q_size = if number % 3 == 0 { 12.0 } else { 1.0 };
                        let with_regions = masks(&mut setup, mask);
                        run(setup, with_regions);
                    }
                }
            }
        }
    }
}

/// With RKV_CUDA_MATRIX=1 all combinations, otherwise some of every format and head dim.
#[test]
fn k20_k21_k22_all_formats_masks_and_shapes() {
    every(nth().unwrap_or(23), false);
}

#[test]
fn k20_k21_all_formats_masks_and_shapes_of_attn_sm90() {
    if has_hopper() {
        every(nth().unwrap_or(23), true);
    }
}

fn nth() -> Option<usize> {
    std::env::var("RKV_CUDA_MATRIX").ok().and_then(|nth| nth.parse().ok())
}

/// The plain kernels, which other masks don't reach, and head dims with each of their tiles.
#[test]
fn every_kernel_of_every_head_dim() {
    for lengths in heads() {
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let mut setup = Setup::of(lengths, 16).heads(8, 2).dtypes(dtype, dtype);
            setup.pages = 40;
            let mut world = World::new(setup, 2);
            world.fill(1, 17);
            world.step(&[(0, 33), (1, 10)]);
            world.step(&[(0, 1), (1, 1)]);
        }
    }
}
