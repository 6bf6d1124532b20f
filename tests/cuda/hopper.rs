//! attn_sm90 on Hopper: more than 64 packed rows, or 16 where values are latent. Each step is
//! checked against attention in f64.
use super::device;
use super::emulator::{Conduct, Driver, is_real};
use super::steps::{SIZES, large_soft_caps, scales_of_nothing};
use super::world::{Setup, World};
use cudarc::driver::sys::{self, CUdevice_attribute};
use radixkv::attention::{Dtype, KvLayout, Region};
use radixkv::gpu::{CudaBackend, CudaConfig, Heads, heads_of_sm90};
use std::io::Write;
use std::process::Command;

/// Whether the device can run it; the emulated one can. On others its tests say that they skip.
pub fn has_hopper() -> bool {
    if !is_real() {
        return true;
    }
    let _driver = Driver::get();
    let _entered = device::enter();
    let (mut device, mut major) = (0, 0);
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    // SAFETY: both write a number.
    unsafe {
        assert_eq!(sys::cuDeviceGet(&mut device, 0), sys::CUresult::CUDA_SUCCESS);
        let asked = sys::cuDeviceGetAttribute(&mut major, attribute, device);
        assert_eq!(asked, sys::CUresult::CUDA_SUCCESS);
    }
    if major != 9 {
        // Not through the captured standard error: it is to be seen.
        let reason = b"SKIP attn_sm90: the device is no Hopper\n";
        std::io::stderr().write_all(reason).unwrap();
    }
    major == 9
}

const FP8: Dtype = Dtype::Fp8E4m3;

/// Those whose values have another length than keys, or are in them.
fn unusual() -> impl Iterator<Item = Heads> {
    heads_of_sm90().filter(|heads| !heads.are_alike())
}

/// Eight query heads over two KV heads: 17 queries have more rows than attn_mma's tiles take.
fn setup(page_size: usize) -> Setup {
    Setup::new(64, page_size).heads(8, 2).sm90()
}

fn setup_of(heads: Heads, page_size: usize) -> Setup {
    let mut setup = Setup::of(heads, page_size).heads(8, 1).sm90();
    setup.pages = 700 / page_size + 8;
    setup
}

#[test]
fn any_order_of_threads_and_any_landing_is_fine() {
    if !has_hopper() {
        return;
    }
    for greedy in [true, false] {
        for landing in 0..3 {
            for page_size in [7, 16] {
                let mut world = World::new(setup(page_size), 2);
                world.driver.conduct(Conduct { greedy, landing, seed: 5, ..Conduct::default() });
                world.fill(0, 450);
                world.fill(1, 70);
                world.step(&[(0, 40), (1, 60)]);
            }
        }
    }
    for heads in unusual() {
        for (greedy, landing, page_size) in [
            (true, 0, 7),
            (true, 1, 16),
            (true, 2, 7),
            (false, 0, 16),
            (false, 1, 7),
            (false, 2, 16),
        ] {
            let mut world = World::new(setup_of(heads, page_size), 2);
            world.driver.conduct(Conduct { greedy, landing, seed: 5, ..Conduct::default() });
            world.fill(0, 450);
            world.fill(1, 70);
            world.step(&[(0, 40), (1, 20)]);
        }
    }
}

// K20
#[test]
fn k20_any_cut_of_a_prompt_gives_the_same_with_attn_sm90() {
    if !has_hopper() {
        return;
    }
    for chunks in [&[190][..], &[1, 189], &[133, 57], &[16, 64, 84, 26]] {
        let mut world = World::new(setup(16), 1);
        for &chunk in chunks {
            world.step(&[(0, chunk)]);
        }
    }
    for heads in unusual() {
        for chunks in [&[190][..], &[1, 189], &[2, 5, 183]] {
            let mut world = World::new(setup_of(heads, 16), 1);
            for &chunk in chunks {
                world.step(&[(0, chunk)]);
            }
        }
    }
}

#[test]
fn every_head_dim_and_format_of_attn_sm90() {
    if !has_hopper() {
        return;
    }
    for heads in heads_of_sm90() {
        let formats = [Dtype::Bf16, Dtype::F16].into_iter();
        for (dtype, kv_dtype) in formats.flat_map(|dtype| [(dtype, dtype), (dtype, FP8)]) {
            if kv_dtype == FP8 && !heads.are_alike() {
                continue;
            }
            let setup = Setup::of(heads, 16).heads(8, 2).dtypes(dtype, kv_dtype).sm90();
            let mut world = World::new(setup, 2);
            let (layer, pages) = (world.layer(), world.setup.pages);
            // What is widened does not come in boxes.
            let positions = if kv_dtype == FP8 { 0 } else { 16 };
            assert_eq!(world.backend.positions_of_box(&layer, pages).unwrap(), positions);
            world.fill(1, 270);
            world.step(&[(0, 33), (1, 20)]);
        }
    }
}

// K22
/// Scales of the whole and of heads; a soft cap, which comes after K's; pages of any size; orders
/// of threads.
#[test]
fn k22_fp8_kv_with_attn_sm90() {
    if !has_hopper() {
        return;
    }
    for (page_size, head_scales, soft_cap) in
        [(1, false, None), (7, true, Some(15.0)), (16, true, None), (64, false, Some(15.0))]
    {
        for (greedy, layout) in [(true, KvLayout::Nhd), (false, KvLayout::Hnd)] {
            let mut setup = setup(page_size).dtypes(Dtype::Bf16, FP8);
            (setup.head_scales, setup.params.soft_cap) = (head_scales, soft_cap);
            (setup.layout, setup.pages) = (layout, 700 / page_size + 8);
            setup.sinks = true;
            let mut world = World::new(setup, 2);
            world.driver.conduct(Conduct { greedy, seed: 3, ..Conduct::default() });
            world.fill(0, 450);
            world.step(&[(0, 40), (1, 60)]);
        }
    }
}

// K22
#[test]
fn k22_fp8_scales_that_come_to_nothing_with_attn_sm90() {
    if has_hopper() {
        scales_of_nothing(&setup(16));
    }
}

/// Pages that boxes divide and pages that they don't; tiles that begin and end inside pages.
#[test]
fn strides_layouts_and_page_sizes_of_attn_sm90() {
    if !has_hopper() {
        return;
    }
    for layout in [KvLayout::Nhd, KvLayout::Hnd] {
        // With padding pages lie at distances that are no multiples of those within: the driver may
        // take no map of them.
        let cases = [(1, 0, 0), (8, 0, 8), (12, 8, 0), (24, 8, 0), (24, 0, 8), (64, 16, 0)];
        for (page_size, padding, positions) in cases.into_iter().chain([(64, 0, 16), (256, 0, 16)])
        {
            let mut setup = setup(page_size);
            (setup.layout, setup.padding) = (layout, padding);
            let mut world = World::new(setup, 2);
            // Without maps all results would be right, too.
            let (layer, pages) = (world.layer(), world.setup.pages);
            let found = world.backend.positions_of_box(&layer, pages).unwrap();
            let may_differ = is_real() && padding > 0;
            assert!(found == positions || may_differ, "{found} of {page_size} in {layout:?}");
            world.fill(0, 300);
            world.step(&[(0, 19), (1, 70)]);
        }
    }
    for heads in unusual() {
        for (page_size, padding, layout) in [
            (1, 0, KvLayout::Nhd),
            (8, 8, KvLayout::Hnd),
            (64, 0, KvLayout::Hnd),
            (24, 16, KvLayout::Nhd),
        ] {
            let mut setup = setup_of(heads, page_size).heads(16, 2);
            (setup.layout, setup.padding) = (layout, padding);
            let mut world = World::new(setup, 2);
            world.fill(0, 300);
            world.step(&[(0, 9), (1, 20)]);
        }
    }
}

/// Tiles of 128 keys, of 112, of 80 and of 64: in boxes as large as divide them.
#[test]
fn every_tile_is_made_of_boxes() {
    if !has_hopper() {
        return;
    }
    for heads in heads_of_sm90() {
        let boxes = if [64, 256].contains(&heads.head_dim) { [8, 16, 16] } else { [8, 32, 64] };
        for (page_size, positions) in [8, 32, 64].into_iter().zip(boxes) {
            let mut world = World::new(Setup::of(heads, page_size).heads(8, 2).sm90(), 1);
            let (layer, pages) = (world.layer(), world.setup.pages);
            assert_eq!(world.backend.positions_of_box(&layer, pages).unwrap(), positions);
            world.fill(0, 260);
            world.step(&[(0, 18)]);
        }
    }
}

// K21
#[test]
fn k21_windows_soft_caps_and_regions_with_attn_sm90() {
    if !has_hopper() {
        return;
    }
    for (window, cap, regions) in [
        (Some(200), None, false),
        (None, Some(20.0), false),
        (Some(9), Some(5.0), true),
        (None, None, true),
    ] {
        let mut setup = setup(16);
        (setup.params.view.window, setup.params.soft_cap) = (window, cap);
        setup.q_size = 3.0;
        let mut world = World::new(setup, 1);
        if regions {
            world.sequences[0].regions = vec![
                Region { start: 3, end: 40 },
                Region { start: 60, end: 97 },
                Region { start: 97, end: 330 },
            ];
        }
        world.step(&[(0, 60)]);
        world.step(&[(0, 275)]);
    }
    for heads in unusual() {
        for (window, cap) in [(Some(60), None), (None, Some(20.0))] {
            let mut setup = setup_of(heads, 16);
            (setup.params.view.window, setup.params.soft_cap) = (window, cap);
            (setup.q_size, setup.sinks) = (3.0, true);
            let mut world = World::new(setup, 1);
            world.sequences[0].regions = vec![Region { start: 60, end: 97 }];
            world.step(&[(0, 70)]);
            world.step(&[(0, 30)]);
        }
    }
}

// K20
#[test]
fn k20_large_soft_caps_with_attn_sm90() {
    if has_hopper() {
        large_soft_caps(&setup(16), &SIZES);
    }
}

#[test]
fn rows_are_split_merged_and_shared_with_attn_sm90() {
    if !has_hopper() {
        return;
    }
    let mut setup = setup(16);
    (setup.sinks, setup.pages) = (true, 300);
    let mut world = World::new(setup, 6);
    world.fill(0, 1640);
    for to in 1..5 {
        world.share(0, to, 96);
        world.fill(to, 10 * to);
    }
    world.step(&[(0, 20)]);
    let rows: Vec<_> = (0..6).map(|sequence| (sequence, 8)).collect();
    world.step(&rows);
}

/// Decoding with latent values: 128 heads of a query are two tiles, 17 go to a tile of 64 rows, 16
/// to one of attn_mma; some rows share pages, others are long and split.
// K20
#[test]
fn k20_latent_decoding_with_attn_sm90() {
    if !has_hopper() {
        return;
    }
    let latent = unusual().find(|heads| heads.latent).expect("there is one");
    for query_heads in [16, 17, 128] {
        let mut setup = setup_of(latent, 16).heads(query_heads, 1);
        setup.pages = 150;
        let mut world = World::new(setup, 4);
        world.fill(0, 1100);
        for to in 1..3 {
            world.share(0, to, 40);
            world.fill(to, 10 * to);
        }
        let rows: Vec<_> = (0..4).map(|sequence| (sequence, 1)).collect();
        world.step(&rows);
        world.step(&[(3, 2), (1, 1)]);
    }
}

/// A query of more heads than a tile has rows, and heads that no tile ends with.
#[test]
fn groups_of_any_size_with_attn_sm90() {
    if !has_hopper() {
        return;
    }
    for heads in [(160, 1), (7, 1)] {
        let mut world = World::new(Setup::new(64, 16).heads(heads.0, heads.1).sm90(), 1);
        world.fill(0, 300);
        world.step(&[(0, 11)]);
    }
}

/// It is used on Hopper unless it is switched off, and for what it computes.
#[test]
fn what_attn_sm90_is_used_for() {
    if is_real() {
        return;
    }
    let driver = Driver::get();
    let uses = |sm90, capability, head_dim, kv_dtype, batch_invariant| {
        driver.capability(capability);
        let config = CudaConfig { sm90, ..driver.config() };
        let geometry = Setup::new(head_dim, 16).geometry;
        let (dtypes, invariant) = ((Dtype::Bf16, kv_dtype), batch_invariant);
        CudaBackend::new(&config, geometry, false, dtypes, invariant).unwrap().uses_sm90()
    };
    let wish = Some(true);
    assert!(uses(wish, 9, 128, Dtype::Bf16, false));
    assert!(!uses(Some(false), 9, 128, Dtype::Bf16, false));
    assert!(!uses(wish, 8, 128, Dtype::Bf16, false));
    assert!(!uses(wish, 10, 128, Dtype::Bf16, false));
    assert!(!uses(wish, 9, 96, Dtype::Bf16, false));
    assert!(uses(wish, 9, 128, Dtype::Fp8E4m3, false));
    assert!(!uses(wish, 9, 128, Dtype::Bf16, true));
}

/// The environment's setting, by which `attn_sm90` is switched off.
const SETTING: &str = "RADIXKV_ATTN_SM90";
/// Says to such a process whether it has to be used on Hopper.
const EXPECTED: &str = "RKV_TEST_USES_SM90";

/// Nobody has to ask for it, and "0" alone switches it off. In processes of their own, which run
/// this test again: the environment is the process's.
#[test]
fn attn_sm90_is_the_default_on_hopper() {
    if is_real() && !has_hopper() {
        return;
    }
    if let Ok(expected) = std::env::var(EXPECTED) {
        return by_the_environment(expected == "1");
    }
    for (setting, expected) in [(None, "1"), (Some("0"), "0"), (Some("1"), "1"), (Some(""), "1")] {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "cuda::hopper::attn_sm90_is_the_default_on_hopper"]);
        process.env_remove(SETTING).envs(setting.map(|value| (SETTING, value)));
        let done = process.env(EXPECTED, expected).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{setting:?}: {said}");
    }
}

fn by_the_environment(on_hopper: bool) {
    let driver = Driver::get();
    // A real device has its own.
    let capabilities = if is_real() { &[9][..] } else { &[8, 9, 10, 12] };
    for &capability in capabilities {
        driver.capability(capability);
        let config = CudaConfig { sm90: None, ..driver.config() };
        let (geometry, dtypes) = (Setup::new(128, 16).geometry, (Dtype::Bf16, Dtype::Bf16));
        let backend = CudaBackend::new(&config, geometry, false, dtypes, false).unwrap();
        assert_eq!(backend.uses_sm90(), on_hopper && capability == 9, "{capability}");
    }
}

/// Strides that the driver takes for no map are read row by row; what else it says is an error.
#[test]
fn m04_a_tensor_map_that_fails_is_an_error_and_the_next_step_is_right() {
    if is_real() {
        return;
    }
    for after in [0, 1] {
        let mut world = World::new(setup(16), 1);
        world.fill(0, 200);
        world.failing = Some(("cuTensorMapEncodeTiled", after, 1, 1));
        world.step(&[(0, 40)]);
        world.failing = Some(("cuTensorMapEncodeTiled", after, 1, 2));
        let message = world.run(&[(0, 40)]).unwrap_err();
        let wanted = "cuTensorMapEncodeTiled: CUDA_ERROR_OUT_OF_MEMORY (2)";
        assert!(message.contains(wanted), "{message}");
        world.step(&[(0, 40)]);
    }
}
