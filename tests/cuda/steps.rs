//! Steps of many kinds: chunks, decodes, drafts, splits, shared prefixes, masks, layouts.
use super::buffers::Buffers;
use super::emulator::Conduct;
use super::numbers::decode;
use super::world::{Kind, Setup, World};
use radixkv::attention::{Dtype, KvLayout, PageCopy, Region, View, e4m3_from_f32};
use radixkv::gpu::StepOfPlan;

/// Every order of threads and every landing of copies that the emulator knows.
pub fn conducts() -> impl Iterator<Item = Conduct> {
    let greedy = [false, true].into_iter();
    greedy.flat_map(|greedy| {
        (0..3).map(move |landing| Conduct { greedy, landing, seed: 3, ..Conduct::default() })
    })
}

// K20
#[test]
fn k20_any_cut_of_a_prompt_gives_the_same() {
    let setup = Setup::new(64, 16);
    for chunks in [&[90][..], &[1, 89], &[33, 57], &[16, 16, 32, 26]] {
        let mut world = World::new(setup.clone(), 1);
        for &chunk in chunks {
            world.step(&[(0, chunk)]);
        }
    }
}

#[test]
fn any_order_of_threads_and_any_landing_of_copies_is_fine() {
    for conduct in conducts() {
        let mut world = World::new(Setup::new(64, 7), 2);
        world.driver.conduct(conduct);
        world.fill(0, 150);
        world.fill(1, 70);
        // few rows (key warps), and many (row warps)
        world.step(&[(0, 1), (1, 2)]);
        world.step(&[(0, 40), (1, 1)]);
    }
}

/// Prefill, decode and drafts in one batch, with chunks of these sizes.
pub fn mixed_batch(setup: Setup, chunks: [usize; 2]) {
    let mut world = World::new(setup, 4);
    world.fill(0, 100);
    world.fill(1, 200);
    world.fill(3, 5);
    world.step(&[(2, chunks[0]), (0, 1), (1, 5), (3, 1)]);
    world.step(&[(0, 1), (1, 1), (2, 1), (3, 1)]);
    world.step(&[(3, chunks[1]), (1, 1)]);
}

#[test]
fn a_mixed_batch_of_prefill_decode_and_drafts() {
    mixed_batch(Setup::new(64, 16).heads(6, 2), [64, 30]);
}

/// Rows long enough to be split.
pub fn split_and_merged(mut setup: Setup) {
    setup.sinks = true;
    let mut world = World::new(setup, 2);
    world.fill(0, 1200);
    world.fill(1, 300);
    world.step(&[(0, 1), (1, 1)]);
    world.step(&[(0, 3), (1, 20)]);
}

#[test]
fn long_rows_are_split_and_merged() {
    split_and_merged(Setup::new(64, 16));
}

/// Logits that outgrow the maximum of the tiles before them, and such that do so by too little for
/// sums to be rescaled.
#[test]
fn sharp_distributions() {
    for (kv_dtype, q_size) in [(Dtype::Bf16, 4.0), (Dtype::Bf16, 16.0), (Dtype::Fp8E4m3, 16.0)] {
        let mut setup = Setup::new(64, 16).dtypes(Dtype::Bf16, kv_dtype);
        (setup.sinks, setup.q_size) = (true, q_size);
        let mut world = World::new(setup, 2);
        world.fill(0, 700);
        world.fill(1, 300);
        world.step(&[(0, 1), (1, 1)]);
        world.step(&[(0, 40), (1, 20)]);
    }
}

#[test]
fn a_row_of_more_heads_than_a_tile_has_rows() {
    let mut world = World::new(Setup::new(64, 16).heads(160, 1), 1);
    world.fill(0, 600);
    world.step(&[(0, 1)]);
    world.step(&[(0, 2)]);
}

#[test]
fn rows_that_begin_with_the_same_pages_attend_to_them_together() {
    for (page_size, sinks) in [(1, false), (16, true)] {
        let mut setup = Setup::new(64, page_size);
        setup.sinks = sinks;
        setup.pages += 600 / page_size;
        let mut world = World::new(setup, 6);
        world.fill(0, 640);
        for to in 1..5 {
            world.share(0, to, (512 + 16 * to) / page_size);
            world.fill(to, 10 * to);
        }
        world.fill(5, 40);
        let rows: Vec<_> = (0..6).map(|sequence| (sequence, 1)).collect();
        world.step(&rows);
        world.setup.params.view.window = Some(60);
        world.step(&rows);
        world.setup.params.view.window = None;
        world.step(&[(3, 2), (5, 1), (1, 20), (0, 1)]);
    }
}

#[test]
fn windows_soft_caps_and_regions() {
    for (window, cap, regions) in [
        (Some(37), None, false),
        (None, Some(20.0), false),
        (Some(9), Some(5.0), true),
        (None, None, true),
    ] {
        let mut setup = Setup::new(64, 16);
        setup.params.view.window = window;
        setup.params.soft_cap = cap;
        setup.q_size = 3.0;
        let mut world = World::new(setup, 1);
        if regions {
            world.sequences[0].regions = vec![
                Region { start: 3, end: 40 },
                Region { start: 60, end: 97 },
                Region { start: 97, end: 130 },
            ];
        }
        // K21
        world.step(&[(0, 60)]);
        world.step(&[(0, 75)]);
        world.step(&[(0, 1)]);
    }
}

/// A soft cap far beyond all logits leaves them as they are.
// K20
#[test]
fn k20_soft_caps_beyond_all_logits() {
    large_soft_caps(&Setup::new(64, 16), &[3.0; 8]);
}

/// Logits of a large cap's size are not what they were.
// K20
#[test]
fn k20_large_soft_caps_of_the_size_of_logits() {
    large_soft_caps(&Setup::new(64, 16), &SIZES);
}

/// About as large as the caps, or a twentieth.
pub const SIZES: [f32; 8] = [3.0, 100.0, 16384.0, 1000.0, 30000.0, 1e6, 5e8, 1e18];

/// Soft caps beside logits of these sizes.
pub fn large_soft_caps(setup: &Setup, sizes: &[f32; 8]) {
    let caps = [65.0, 300.0, 16384.0, 20000.0, 20000.0, 1e6, 1e10, 1e18];
    for (cap, &q_size) in caps.into_iter().zip(sizes) {
        let mut setup = setup.clone();
        (setup.params.soft_cap, setup.q_size) = (Some(cap), q_size);
        let mut world = World::new(setup, 1);
        // Many rows, and few.
        world.step(&[(0, 60)]);
        world.step(&[(0, 1)]);
    }
}

/// A window of 0 is one of 1: a query always sees itself.
// K21
#[test]
fn k21_a_window_of_nothing_shows_the_position_itself() {
    let outcome = |window| {
        let mut setup = Setup::new(64, 16);
        setup.params.view.window = Some(window);
        let mut world = World::new(setup, 1);
        world.fill(0, 40);
        world.run(&[(0, 20)]).unwrap()
    };
    assert_eq!(outcome(0), outcome(1));
}

#[test]
fn strides_layouts_and_page_sizes() {
    for layout in [KvLayout::Nhd, KvLayout::Hnd] {
        for (page_size, padding) in [(1, 0), (3, 8), (64, 16), (256, 0)] {
            let mut setup = Setup::new(64, page_size);
            (setup.layout, setup.padding) = (layout, padding);
            let mut world = World::new(setup, 2);
            world.fill(0, 70);
            world.step(&[(0, 9), (1, 70)]);
            world.step(&[(0, 1), (1, 1)]);
        }
    }
}

// K22
#[test]
fn k22_fp8_kv_with_scales() {
    for dtype in [Dtype::Bf16, Dtype::F16] {
        let setup = Setup::new(64, 16).dtypes(dtype, Dtype::Fp8E4m3);
        let mut world = World::new(setup, 2);
        world.fill(0, 90);
        world.step(&[(0, 40), (1, 30)]);
        world.step(&[(0, 1), (1, 2)]);
    }
}

/// Scales whose product is 0, as is the scale of a head whose keys are: all logits are 0, and what
/// is not seen stays so.
// K22
#[test]
fn k22_fp8_scales_that_come_to_nothing() {
    scales_of_nothing(&Setup::new(64, 16).heads(8, 2));
}

/// With and without a soft cap, many rows and few.
pub fn scales_of_nothing(setup: &Setup) {
    for (zero_scale, soft_cap) in
        [(false, None), (false, Some(15.0)), (true, None), (true, Some(15.0))]
    {
        let mut setup = setup.clone().dtypes(Dtype::Bf16, Dtype::Fp8E4m3);
        if !zero_scale {
            (setup.params.scale, setup.params.k_scale) = (1e-30, 1e-20);
        }
        (setup.head_scales, setup.zero_scale) = (zero_scale, zero_scale);
        setup.params.soft_cap = soft_cap;
        let mut world = World::new(setup, 1);
        world.step(&[(0, 60)]);
        world.step(&[(0, 1)]);
    }
}

/// Every number there is, NaN, infinities and both zeros too: the bytes that a division leads to.
/// By these scales a product with 1 / scale has other ones, for quotients lie in the middle of two
/// numbers of the format.
// K22
#[test]
fn k22_fp8_has_the_bits_of_a_division() {
    for (dtype, scales) in [
        (Dtype::Bf16, [0x3e2d_097c, 0x4139_9999]),
        (Dtype::Bf16, [0x3c7d_a130, 0x3bc1_2f69]),
        (Dtype::F16, [0x3ce9_1eb7, 0x3f8a_5a5a]),
        (Dtype::F16, [0x41a6_d2d2, 0x4101_72c2]),
    ] {
        let scales = scales.map(f32::from_bits);
        let mut setup = Setup::new(64, 16).heads(2, 2).dtypes(dtype, Dtype::Fp8E4m3);
        (setup.params.k_scale, setup.params.v_scale) = scales.into();
        let mut world = World::new(setup, 1);
        let chunks = [(0, 65536 / 128)];
        let (batch, slots) = world.rows(&chunks);
        let buffers = Buffers::new(&world, batch.query_count());
        buffers.load(&world, &chunks);
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        buffers.replace_kv(&all);
        let step = StepOfPlan { number: world.next_number(), batch: &batch, slots: &slots };
        let (call, stream) = (buffers.call(&world, step), world.stream());
        // SAFETY: device memory of these shapes, which lives until it is read.
        unsafe { world.backend.append_prefill(&call, &mut world.plan, stream) }.unwrap();
        world.stream.synchronize();
        for (kind, scale) in [Kind::K, Kind::V].into_iter().zip(scales) {
            let memory = world.memory(kind).read();
            for (row, numbers) in all.chunks_exact(2 * 64).enumerate() {
                let (position, head) = (row / 2, row % 2);
                let place = (world.sequences[0].pages[position / 16], position as u32 % 16);
                let expected: Vec<u8> = numbers
                    .chunks_exact(2)
                    .map(|number| e4m3_from_f32(decode(number, dtype) / scale))
                    .collect();
                let found = &memory[world.place_of_head(kind, place, head)];
                assert_eq!(found, expected, "{dtype:?} / {scale}: from {:?}", &numbers[..2]);
            }
        }
    }
}

#[test]
fn batch_invariant_results_have_the_same_bits() {
    let mut setup = Setup::new(64, 16);
    setup.batch_invariant = true;
    setup.pages = 300;
    let run = |others: usize, chunks: &[usize]| {
        let mut world = World::new(setup.clone(), 4);
        world.fill(0, 2000);
        (1..4).for_each(|sequence| world.fill(sequence, 100 * sequence));
        let (mut out, mut lse) = (Vec::new(), Vec::new());
        for &chunk in chunks {
            let mut rows = vec![(0, chunk)];
            rows.extend((1..=others).map(|sequence| (sequence, sequence)));
            let outcome = world.step(&rows);
            out.extend_from_slice(&outcome.out[..chunk * 4 * 64]);
            lse.extend_from_slice(&outcome.lse[..chunk * 4]);
        }
        (out, lse)
    };
    let alone = run(0, &[60]);
    assert_eq!(run(3, &[60]), alone);
    assert_eq!(run(1, &[1, 20, 39]), alone);
}

/// Also where a chunk's first position sees a piece of keys that those behind it don't.
#[test]
fn batch_invariant_results_of_a_window_have_the_same_bits() {
    let view = View { window: Some(4096), ..View::default() };
    let mut setup = Setup::new(64, 16).heads(8, 4);
    setup.batch_invariant = true;
    setup.pages = 400;
    setup.params.view = view;
    let run = |chunks: &[usize]| {
        let mut world = World::new(setup.clone(), 1);
        world.backend = world.backend.with_view(view);
        world.fill(0, 6140);
        let (mut out, mut lse) = (Vec::new(), Vec::new());
        for &chunk in chunks {
            let outcome = world.step(&[(0, chunk)]);
            out.extend_from_slice(&outcome.out);
            lse.extend_from_slice(&outcome.lse);
        }
        (out, lse)
    };
    let whole = run(&[60]);
    assert!(run(&[10, 50]) == whole);
    assert!(run(&[1, 20, 39]) == whole);
}

/// A row goes on with a copy of a page.
pub fn copied(setup: Setup) {
    let mut world = World::new(setup, 1);
    world.fill(0, 40);
    let (source, target) = (world.sequences[0].pages[2], world.take_page());
    world.copy_pages(&[PageCopy { source, target, positions: 8 }]);
    world.sequences[0].pages[2] = target;
    world.step(&[(0, 5)]);
}

#[test]
fn pages_are_copied_in_every_layer() {
    copied(Setup::new(96, 16));
}

#[test]
fn streams_may_change_from_call_to_call() {
    let mut world = World::new(Setup::new(64, 16), 2);
    for step in 0..4 {
        world.step(&[(0, 1 + step), (1, 3)]);
        let fresh = super::device::EngineStream::new();
        // The old one goes only after the next call, which waits for it by an event.
        let old = std::mem::replace(&mut world.stream, fresh);
        world.step(&[(0, 1)]);
        drop(old);
    }
}
/// A sink above every logit takes most of the weight, whichever way a result is written.
#[test]
fn sinks_larger_than_every_logit() {
    for kv_dtype in [Dtype::Bf16, Dtype::Fp8E4m3] {
        let mut setup = Setup::new(64, 16).heads(8, 2).dtypes(Dtype::Bf16, kv_dtype);
        (setup.sinks, setup.q_size) = (true, 0.1);
        let mut world = World::new(setup, 2);
        world.fill(1, 600);
        world.step(&[(0, 70), (1, 1)]);
        world.step(&[(0, 1), (1, 10)]);
    }
}
