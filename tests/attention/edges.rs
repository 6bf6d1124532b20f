//! Numbers that are none, sizes that are extreme, and what is refused.
use super::check::Bits;
use super::compare::Sizes;
use super::numbers::encode;
use super::setup::{DTYPES, Masking, Setup};
use super::world::{Chunk, Kind, World};
use radixkv::attention::{Batch, Dtype, Geometry, KvLayer, KvLayout, KvStrides, PageCopy, Region};
use radixkv::cpu::{CpuBackend, Isa, Threads};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A key or value that is NaN reaches those that see it, and no others.
pub fn nan_stays_where_it_is_seen() {
    for dtypes in DTYPES {
        for in_k in [true, false] {
            for isa in Isa::available() {
                let mut setup = Setup { isa, ..Setup::default() }.with_dtypes(dtypes);
                setup.params.view.window = Some(20);
                let mut world = World::new(setup, 1);
                world.fill(0, 90);
                let (clean, clean_lse) = world.run_written(&[Chunk::new(0, 90)]);
                let place = world.place(Kind::K, 0, 40, 1);
                let mut nan = Vec::new();
                encode(f32::NAN, dtypes.1, &mut nan);
                let at = place.start + 7 * nan.len();
                let memory = if in_k { &mut world.k } else { &mut world.v };
                memory[at..at + nan.len()].copy_from_slice(&nan);
                let (out, lse) = world.run_written(&[Chunk::new(0, 90)]);
                for (index, lse) in lse.iter().enumerate() {
                    let (position, head) = (index / 4, index % 4);
                    let numbers = |out: &[f32]| out[index * 64..(index + 1) * 64].to_vec();
                    let sees = (40..60).contains(&position) && head / 2 == 1;
                    if !sees {
                        assert_eq!(numbers(&out), numbers(&clean), "position {position}");
                        assert_eq!(*lse, clean_lse[index]);
                    } else if in_k {
                        assert!(numbers(&out).iter().all(|number| number.is_nan()));
                        assert!(lse.is_nan());
                    } else {
                        let mut numbers = numbers(&out);
                        assert!(numbers.remove(7).is_nan());
                        assert!(numbers.iter().all(|number| number.is_finite()));
                    }
                }
            }
        }
    }
}

/// So does a segment of keys of which a row sees nothing but NaN: the last one's only key is the
/// query's own, or all of the first one's are NaN.
pub fn nan_stays_where_a_segment_has_nothing_else() {
    const SEGMENT: usize = 512;
    for (isa, threads) in Isa::available().flat_map(|isa| [(isa, 1), (isa, 2)]) {
        for wrong in [SEGMENT..SEGMENT + 1, 0..SEGMENT] {
            let mut world = World::new(Setup { isa, threads, room: 640, ..Setup::default() }, 1);
            world.fill(0, SEGMENT + 1);
            for (position, head) in wrong.clone().flat_map(|at| [(at, 0), (at, 1)]) {
                let place = world.place(Kind::K, 0, position, head);
                world.k[place.start..place.start + 4].copy_from_slice(&f32::NAN.to_ne_bytes());
            }
            let (out, lse) = world.run_written(&[Chunk::new(0, 1)]);
            let all = out.iter().chain(&lse);
            assert!(all.copied().all(f32::is_nan), "{isa:?}, {threads} threads, {wrong:?}");
        }
    }
}

/// Where the largest logit of a query leads the others by so much that nothing is left of their
/// weights, the result is the value of its key: the bounds for any logits say nothing about that.
/// Returns for how many it does.
fn leading_keys_alone_count(world: &World, bits: &Bits, positions: usize) -> usize {
    let Geometry { query_heads, kv_heads, head_dim, .. } = world.setup.geometry;
    let [k, v] = [Kind::K, Kind::V].map(|kind| world.stored(0, 0..positions, kind));
    let scale = f64::from(world.setup.params.scale);
    let mut count = 0;
    for position in 0..positions {
        let q = world.numbers(0, position, Kind::Q);
        for (head, q) in q.chunks_exact(head_dim).enumerate() {
            let at = |key: usize| (key * kv_heads + head * kv_heads / query_heads) * head_dim;
            let (mut logits, mut size) = (Vec::new(), 0.0f64);
            for key in 0..=position {
                let products = q.iter().zip(&k[at(key)..]).map(|(q, k)| f64::from(*q) * k);
                size = size.max(products.clone().map(f64::abs).sum::<f64>() * scale);
                logits.push((products.sum::<f64>() * scale, key));
            }
            logits.sort_by(|left, right| right.0.total_cmp(&left.0));
            let error = Sizes { logit: size, value: 1.0 }.logit_error();
            let lead = logits.get(1).map_or(f64::INFINITY, |second| logits[0].0 - second.0);
            if lead > 2.0 * error + 90.0 {
                let out = &bits[&(0, position)][head * head_dim..][..head_dim];
                for (found, v) in out.iter().zip(&v[at(logits[0].1)..]) {
                    let found = f64::from(f32::from_bits(*found));
                    let near = (found - v).abs() <= 1e-6 * v.abs();
                    assert!(near, "position {position}, head {head}: {found} not {v}");
                }
                count += 1;
            }
        }
    }
    count
}

/// Logits far beyond what exp() can take, and a sink that outweighs all.
pub fn extreme_logits() {
    for (size, isa) in
        [1e-30, 1e3, 1e6].into_iter().flat_map(|size| Isa::available().map(move |isa| (size, isa)))
    {
        let mut world = World::new(Setup { q_size: size, isa, ..Setup::default() }, 1);
        let bits = world.step(&[Chunk::new(0, 70)]);
        let leaders = leading_keys_alone_count(&world, &bits, 70);
        assert!(size < 1e6 || leaders > 200, "{leaders} of 280 queries");
    }
    // Every score is +inf and every logit -inf: no key has a weight.
    let mut world = World::new(Setup::default(), 1);
    world.fill(0, 20);
    world.setup.params.scale = -1.0;
    world.setup.q_size = f32::INFINITY;
    let ones = [1f32.to_ne_bytes(), (-1f32).to_ne_bytes()];
    let q = world.numbers(0, 19, Kind::Q);
    for (position, head) in (0..20).flat_map(|position| [(position, 0), (position, 1)]) {
        let place = world.place(Kind::K, 0, position, head);
        for (bytes, q) in world.k[place].chunks_exact_mut(4).zip(&q[head * 128..]) {
            bytes.copy_from_slice(&ones[usize::from(q.is_sign_negative())]);
        }
    }
    // Heads 1 and 3 have other signs than the keys, so their scores are NaN.
    let (out, lse) = world.run_written(&[Chunk::new(0, 1)]);
    for head in [0, 2] {
        assert_eq!(out[head * 64..(head + 1) * 64], [0.0; 64]);
        assert_eq!(lse[head], f32::NEG_INFINITY);
    }
    assert!(lse[1].is_nan() && lse[3].is_nan());
}

/// A thread for each task.
fn spawned(count: usize, task: &(dyn Fn(usize) + Sync)) {
    std::thread::scope(|scope| {
        (0..count).for_each(|at| drop(scope.spawn(move || task(at))));
    });
}

/// Every format in so few steps that an interpreter can follow: rows that are converted for on the
/// way and rows that are converted for before, on two threads.
pub fn small_shapes() {
    let formats = [DTYPES[1], DTYPES[2], DTYPES[3]];
    for (turn, dtypes) in formats.into_iter().enumerate() {
        let masking = if turn % 2 == 0 { Masking::Everything } else { Masking::Causal };
        let mut setup = Setup::default().with_dtypes(dtypes).with_heads((2, 1));
        setup.geometry.page_size = 3;
        setup.padding = turn % 2;
        setup.room = 9;
        let setup = Setup { isa: Isa::Portable, ..setup.with_masking(masking) };
        let threads = Threads::Engine { count: 2, parallel_for: Box::new(spawned) };
        let mut world = World::on(threads, setup, 2);
        world.sequences[0].regions = vec![Region { start: 2, end: 4 }];
        world.step(&[Chunk::new(1, 1), Chunk::new(0, 5)]);
        world.step(&[Chunk::new(0, 1)]);
        world.check_poison();
    }
}

/// An engine's threads: any order, any number of them at a time.
pub fn threads_of_the_engine() {
    let setup = Setup { room: 3000, ..Setup::default() };
    let mut own = World::new(setup.clone(), 2);
    let run = |world: &mut World| {
        world.fill(0, 2500);
        world.step(&[Chunk::new(0, 3), Chunk::new(1, 150)])
    };
    let expected = run(&mut own);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let backwards = move |count: usize, task: &(dyn Fn(usize) + Sync)| {
        counted.fetch_add(1, Ordering::Relaxed);
        (0..count).rev().for_each(task);
    };
    for count in [1, 2, 5] {
        let threads = Threads::Engine { count, parallel_for: Box::new(backwards.clone()) };
        assert!(run(&mut World::on(threads, setup.clone(), 2)) == expected);
        let threads = Threads::Engine { count, parallel_for: Box::new(spawned) };
        assert!(run(&mut World::on(threads, setup.clone(), 2)) == expected);
    }
    assert!(calls.load(Ordering::Relaxed) > 0, "the engine's threads were not asked");
}

/// Several calls of one backend at once.
pub fn calls_at_once() {
    let backend = CpuBackend::new(Threads::Own(2)).unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let backend = &backend;
            scope.spawn(move || {
                let setup = Setup { seed, ..Setup::default() };
                let mut world = World::new(setup, 1);
                world.fill(0, 100);
                let expected = world.run_written(&[Chunk::new(0, 60)]);
                for _ in 0..20 {
                    assert!(world.run_written_on(Some(backend), &[Chunk::new(0, 60)]) == expected);
                }
            });
        }
    });
}

/// The first positions of pages, in each layer and head, and nothing else.
pub fn copies_of_pages() {
    for (layout, padding, dtype) in [
        (KvLayout::Nhd, 0, Dtype::F32),
        (KvLayout::Hnd, 0, Dtype::Bf16),
        (KvLayout::Nhd, 3, Dtype::F16),
    ] {
        let geometry =
            Geometry { query_heads: 2, kv_heads: 2, head_dim: 64, v_head_dim: 64, page_size: 5 };
        let strides = KvStrides::dense(layout, &geometry, 64 + padding).unwrap();
        let bytes = dtype.bytes();
        let memory = |layer: usize| -> Vec<u8> {
            (0..6 * strides.page * bytes).map(|at| (at * 7 + layer) as u8).collect()
        };
        let mut found: Vec<Vec<u8>> = (0..4).map(memory).collect();
        let mut expected = found.clone();
        let copies = [
            PageCopy { source: 1, target: 4, positions: 5 },
            PageCopy { source: 2, target: 3, positions: 2 },
            PageCopy { source: 2, target: 5, positions: 0 },
        ];
        for memory in &mut expected {
            for copy in copies {
                for position in 0..copy.positions {
                    for head in 0..2 {
                        let inside = position * strides.position + head * strides.head;
                        let at = |page: u32| (page as usize * strides.page + inside) * bytes;
                        let from = at(copy.source);
                        memory.copy_within(from..from + 64 * bytes, at(copy.target));
                    }
                }
            }
        }
        let layers: Vec<KvLayer<*mut u8>> = found
            .chunks_exact_mut(2)
            .map(|pair| {
                let [k, v] = pair else { unreachable!() };
                KvLayer { k: k.as_mut_ptr(), v: v.as_mut_ptr(), strides, v_strides: strides, dtype }
            })
            .collect();
        let backend = CpuBackend::new(Threads::Own(2)).unwrap();
        // SAFETY: the memory has six pages, of which each is the target of one copy at most.
        unsafe { backend.copy_pages(&layers, &geometry, &copies) };
        assert!(found == expected, "{layout:?}, {padding}, {dtype:?}");
    }
}

/// What is not supported says what it is.
pub fn refusals() {
    let good =
        Geometry { query_heads: 4, kv_heads: 2, head_dim: 64, v_head_dim: 64, page_size: 16 };
    let refused = |geometry: Geometry, dtype, kv_dtype, word: &str| {
        let error = CpuBackend::supports(&geometry, dtype, kv_dtype).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    let (f32, bf16, fp8) = (Dtype::F32, Dtype::Bf16, Dtype::Fp8E4m3);
    CpuBackend::supports(&good, bf16, fp8).unwrap();
    refused(Geometry { head_dim: 72, ..good }, f32, f32, "head_dim");
    refused(Geometry { v_head_dim: 88, ..good }, f32, f32, "v_head_dim");
    refused(Geometry { kv_heads: 3, ..good }, f32, f32, "kv_head_count");
    refused(Geometry { kv_heads: 0, ..good }, f32, f32, "kv_head_count");
    refused(Geometry { page_size: 0, ..good }, f32, f32, "page_size");
    refused(Geometry { page_size: 257, ..good }, f32, f32, "page_size");
    refused(good, fp8, fp8, "dtype");
    refused(good, f32, bf16, "kv_dtype");
    let error = CpuBackend::new(Threads::Own(100_000)).err().unwrap().to_string();
    assert!(error.contains("thread_count"), "{error}");
    let huge = Geometry { kv_heads: usize::MAX / 64, ..good };
    KvStrides::dense(KvLayout::Hnd, &huge, 64).unwrap_err();
}

/// A row that is refused leaves the batch as it was.
pub fn refused_rows() {
    let mut batch = Batch::new(4).unwrap();
    batch.push_row(3, 3, &[7, 5, 9], &[Region { start: 1, end: 5 }]).unwrap();
    let before = format!("{batch:?}");
    let overlapping = [Region { start: 1, end: 5 }, Region { start: 4, end: 9 }];
    let refusals: [(usize, usize, &[Region], &str); 5] = [
        (0, 0, &[], "count"),
        (0, 13, &[], "12 positions"),
        (usize::MAX, 2, &[], "start"),
        (0, 1, &overlapping, "regions[1]"),
        (0, 1, &[Region { start: 3, end: 3 }], "regions[0]"),
    ];
    for (start, count, regions, word) in refusals {
        let error = batch.push_row(start, count, &[1, 2, 3], regions).unwrap_err().to_string();
        assert!(error.contains("rows[1]") && error.contains(word), "{error}");
        assert_eq!(format!("{batch:?}"), before);
    }
    assert_eq!(batch.slot_mapping(), [31, 20, 21]);
    assert_eq!((batch.pages(), batch.last_page_len()), (&[7, 5][..], &[2][..]));
    assert_eq!((batch.page_indptr(), batch.query_indptr()), (&[0, 2][..], &[0, 3][..]));
    batch.clear();
    assert_eq!(format!("{batch:?}"), format!("{:?}", Batch::new(4).unwrap()));
}

/// No rows: nothing happens.
pub fn empty_batch() {
    let mut world = World::new(Setup::default(), 1);
    assert_eq!(world.run(&[]), (Vec::new(), Vec::new()));
    world.check_poison();
}
