//! Heads that are very long, whose values have another length than keys, or are the beginnings of
//! keys, as multi-head latent attention caches them: steps of many kinds, with every conduct of the
//! device. The matrix has their formats and masks.
use super::emulator::{Driver, is_real};
use super::steps;
use super::trees::binary_tree;
use super::world::{Setup, World};
use radixkv::attention::{Dtype, KvLayout, Region};
use radixkv::gpu::{CudaBackend, Heads, heads};

/// Those of multi-head latent attention.
pub fn latent() -> Heads {
    heads().into_iter().find(|heads| heads.latent).expect("there are kernels for it")
}

/// Those and the others that this is about.
pub fn unusual() -> impl Iterator<Item = Heads> {
    let is_usual = |heads: &Heads| heads.are_alike() && heads.head_dim < 512;
    heads().into_iter().filter(move |heads| !is_usual(heads))
}

fn setup(heads: Heads, page_size: usize, pages: usize) -> Setup {
    let mut setup = Setup::of(heads, page_size).heads(4, 1);
    setup.pages = pages;
    setup
}

// K20
#[test]
fn k20_long_heads_in_any_order_of_threads_and_any_landing_of_copies() {
    for heads in unusual() {
        for conduct in steps::conducts() {
            let mut world = World::new(setup(heads, 7, 60), 2);
            world.driver.conduct(conduct);
            world.fill(0, 150);
            world.fill(1, 70);
            // few rows, and many
            world.step(&[(0, 1), (1, 2)]);
            world.step(&[(0, 11), (1, 1)]);
        }
    }
}

// K20
#[test]
fn k20_long_heads_prefill_decode_and_drafts_in_one_batch() {
    for heads in unusual() {
        steps::mixed_batch(setup(heads, 16, 60), [40, 21]);
    }
}

/// All query heads share the latent of a position: 128 of them are rows of several tiles.
// K20
#[test]
fn k20_more_query_heads_than_a_tile_has_rows() {
    for heads in unusual() {
        let mut world = World::new(setup(heads, 64, 20).heads(128, 1), 2);
        world.fill(0, 300);
        world.step(&[(0, 1)]);
        world.step(&[(0, 1), (1, 2)]);
    }
}

// K20
#[test]
fn k20_long_rows_of_long_heads_are_split_and_merged() {
    for heads in unusual() {
        steps::split_and_merged(setup(heads, 16, 110));
    }
}

// K20
#[test]
fn k20_long_heads_of_rows_that_begin_with_the_same_pages() {
    for heads in unusual() {
        for page_size in [1, 16] {
            let mut world = World::new(setup(heads, page_size, 900 / page_size + 8), 5);
            world.fill(0, 320);
            for to in 1..4 {
                world.share(0, to, (256 + 16 * to) / page_size);
                world.fill(to, 10 * to);
            }
            world.fill(4, 40);
            let rows: Vec<_> = (0..5).map(|sequence| (sequence, 1)).collect();
            world.step(&rows);
            world.setup.params.view.window = Some(60);
            world.step(&rows);
            world.setup.params.view.window = None;
            world.step(&[(3, 2), (4, 1), (1, 12), (0, 1)]);
        }
    }
}

// K21
#[test]
fn k21_long_heads_with_windows_soft_caps_regions_trees_and_contexts() {
    for heads in unusual() {
        for (window, cap, regions) in
            [(Some(37), None, false), (None, Some(20.0), false), (Some(9), Some(5.0), true)]
        {
            let mut setup = setup(heads, 16, 40);
            setup.params.view.window = window;
            (setup.params.soft_cap, setup.q_size) = (cap, 3.0);
            let mut world = World::new(setup, 1);
            if regions {
                world.sequences[0].regions =
                    vec![Region { start: 3, end: 40 }, Region { start: 60, end: 97 }];
            }
            world.step(&[(0, 60)]);
            world.step(&[(0, 40)]);
            world.step(&[(0, 1)]);
        }
        let mut world = World::new(setup(heads, 16, 40), 2);
        world.fill(0, 45);
        world.fill(1, 131);
        world.sequences[0].tree = binary_tree(13);
        world.sequences[1].is_context = true;
        world.step(&[(0, 13), (1, 2)]);
    }
}

/// Pages of any size, in any strides; fp8 with scales of the whole or of each head.
// K22
#[test]
fn k22_long_heads_in_strides_page_sizes_and_fp8() {
    for heads in unusual() {
        for (page_size, padding, layout, kv_heads) in
            [(1, 0, KvLayout::Nhd, 1), (3, 16, KvLayout::Hnd, 2), (256, 32, KvLayout::Nhd, 2)]
        {
            for (kv_dtype, head_scales) in
                [(Dtype::F16, false), (Dtype::Fp8E4m3, false), (Dtype::Fp8E4m3, true)]
            {
                let setup =
                    setup(heads, page_size, 300 / page_size + 8).heads(2 * kv_heads, kv_heads);
                let mut setup = setup.dtypes(Dtype::F16, kv_dtype);
                (setup.layout, setup.padding, setup.head_scales) = (layout, padding, head_scales);
                let mut world = World::new(setup, 2);
                world.fill(0, 70);
                world.step(&[(0, 9), (1, 40)]);
                world.step(&[(0, 1), (1, 1)]);
            }
        }
    }
}

#[test]
fn batch_invariant_results_of_long_heads_have_the_same_bits() {
    for heads in unusual() {
        let mut setup = setup(heads, 16, 100);
        setup.batch_invariant = true;
        let run = |others: usize, chunks: &[usize]| {
            let mut world = World::new(setup.clone(), 3);
            world.fill(0, 700);
            world.fill(1, 100);
            world.fill(2, 200);
            let mut found = Vec::new();
            for &chunk in chunks {
                let mut rows = vec![(0, chunk)];
                rows.extend((1..=others).map(|sequence| (sequence, sequence)));
                found.extend_from_slice(&world.step(&rows).out[..chunk * 4 * heads.v_head_dim]);
            }
            found
        };
        let alone = run(0, &[20]);
        assert_eq!(run(2, &[20]), alone);
        assert_eq!(run(1, &[1, 6, 13]), alone);
    }
}

#[test]
fn pages_of_long_heads_are_copied() {
    for heads in unusual() {
        steps::copied(setup(heads, 16, 20));
    }
}

/// What there are no kernels for is said, by the names of the configuration.
#[test]
fn heads_without_kernels_are_refused() {
    let driver = Driver::get();
    let refused = |lengths: Heads| {
        let geometry = Setup::of(lengths, 16).geometry;
        let dtypes = (Dtype::Bf16, Dtype::Bf16);
        CudaBackend::supports(&driver.config(), &geometry, lengths.latent, dtypes, false)
            .map_err(|error| error.to_string())
    };
    refused(latent()).unwrap();
    for (head_dim, v_head_dim, is_latent, words) in [
        (576, 512, false, "head_dim 576 with v_head_dim 512 is none of"),
        (512, 256, false, "head_dim 512 with v_head_dim 256 is none of"),
        (576, 576, true, "head_dim 576 with V of 576 in K is none of"),
        (128, 64, true, "head_dim 128 with V of 64 in K is none of"),
        (128, 64, false, "head_dim 128 with v_head_dim 64 is none of"),
        (100, 100, false, "head_dim 100 is none of"),
    ] {
        let message = refused(Heads { head_dim, v_head_dim, latent: is_latent }).unwrap_err();
        assert!(message.contains(words), "{message}");
    }
    if is_real() {
        return;
    }
    // A device that has no room for a tile of so long rows.
    driver.shared_memory(48 << 10);
    let setup = Setup::of(latent(), 16);
    let dtypes = (Dtype::Bf16, Dtype::Bf16);
    let made = CudaBackend::new(&driver.config(), setup.geometry, true, dtypes, false);
    let message = made.unwrap_err().to_string();
    assert!(message.contains("too few for head_dim 576"), "{message}");
}

/// Devices whose blocks have 99 KB have tiles of few rows alone, for any number of rows.
// K20
#[test]
fn k20_long_heads_where_shared_memory_is_small() {
    if is_real() {
        return;
    }
    for heads in unusual() {
        let mut setup = setup(heads, 16, 40);
        setup.shared_bytes = 99 << 10;
        let mut world = World::new(setup, 2);
        world.fill(0, 131);
        world.step(&[(0, 1), (1, 30)]);
        world.step(&[(0, 20), (1, 1)]);
    }
}
