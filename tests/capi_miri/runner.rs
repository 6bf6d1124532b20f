//! Runner and plan, with shapes as small as there are and on one thread.
use crate::{Pair, list, ok, sized};
use radixkv::capi::*;
use std::ffi::c_void;
use std::ptr;

const QUERY_HEADS: usize = 2;
const DIM: usize = 64;
const QUERY: usize = QUERY_HEADS * DIM;
const KV_HEADS: usize = 2;
const KEY: usize = KV_HEADS * DIM;
/// Elements of a page of `Pair`.
const PAGE: usize = 4 * KEY;
const PAGES: usize = 12;

fn small() -> rkv_runner_config {
    let mut config = sized::<rkv_runner_config>();
    // SAFETY: the struct has the size that is stated.
    ok(unsafe { rkv_runner_config_init(&mut config, size_of_val(&config)) });
    config.layer_count = 1;
    config.query_head_count = QUERY_HEADS as u32;
    config.kv_head_count = KV_HEADS as u32;
    config.head_dim = DIM as u32;
    config.thread_count = 1;
    config
}

/// A runner and a plan; the runner goes first.
struct Compute(*mut rkv_runner, *mut rkv_plan);

impl Compute {
    fn new(pair: &Pair, config: &rkv_runner_config) -> Self {
        let mut made = Self(ptr::null_mut(), ptr::null_mut());
        // SAFETY: all pointers lead to live values.
        unsafe {
            ok(rkv_runner_create(pair.0, config, &mut made.0));
            ok(rkv_plan_create(pair.0, &mut made.1));
        }
        made
    }

    /// Plans positions of a sequence; gives where they lie.
    fn plan(&self, sequence: rkv_sequence_id, start: u64, count: u64) -> Vec<i64> {
        let regions = [rkv_region { start: 1, end: 3 }];
        let row = rkv_plan_row {
            sequence,
            slot: 0,
            region_count: 1,
            regions: regions.as_ptr(),
            start,
            count,
            tree_masks: ptr::null(),
            mask: 0,
            reserved: 0,
        };
        let mut arrays = sized::<rkv_plan_arrays>();
        // SAFETY: all pointers lead to live values; the arrays are the plan's.
        unsafe {
            let capacity = rkv_plan_capacity {
                flags: RKV_PLAN_REGIONS,
                row_count: 1,
                position_count: 100,
                page_count: 100,
                ..sized()
            };
            ok(rkv_plan_reserve(self.1, &capacity));
            ok(rkv_runner_reserve_plan(self.0, self.1));
            ok(rkv_plan_set(self.1, &row, 1, size_of_val(&row)));
            ok(rkv_plan_check(self.1));
            ok(rkv_plan_view(self.1, &mut arrays));
            let copies = arrays.copy_count as usize;
            let waiting = std::slice::from_raw_parts(arrays.copy_sequence, copies);
            assert!(waiting.iter().all(|&id| id == sequence));
            for (from, most) in [
                (arrays.copy_group, 0),
                (arrays.copy_source_page, PAGES as i32 - 1),
                (arrays.copy_target_page, PAGES as i32 - 1),
                (arrays.copy_position_count, 3),
            ] {
                let from = std::slice::from_raw_parts(from, copies);
                assert!(from.iter().all(|value| (0..=most).contains(value)));
            }
            ok(rkv_runner_prepare_plan(self.0, self.1, 0, ptr::null_mut()));
            let rows = std::slice::from_raw_parts(arrays.query_indptr, 2);
            assert_eq!((arrays.row_count, rows), (1, &[0, count as i32][..]));
            let pages = std::slice::from_raw_parts(arrays.indptr, 2)[1];
            let pages = std::slice::from_raw_parts(arrays.indices, pages as usize);
            assert!(pages.iter().all(|&page| (1..PAGES as i32).contains(&page)));
            assert!((1..=4).contains(&*arrays.last_page_len));
            std::slice::from_raw_parts(arrays.slot_mapping, count as usize).to_vec()
        }
    }
}

impl Drop for Compute {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handles.
        unsafe {
            rkv_runner_destroy(self.0);
            rkv_plan_destroy(self.1);
        }
    }
}

unsafe extern "C-unwind" fn backwards(
    user_data: *mut c_void,
    count: usize,
    run: rkv_parallel_task,
    task: *mut c_void,
) {
    // SAFETY: the test passes a usize that outlives the runner; each task runs once.
    unsafe {
        *user_data.cast::<usize>() += 1;
        (0..count).rev().for_each(|index| run.unwrap()(task, index));
    }
}

/// K20, K21, B08
#[test]
fn prompts_and_decoding_in_lent_memory() {
    let pair = Pair::new();
    let (mut calls, mut k, mut v) =
        (0usize, vec![f32::NAN; PAGES * PAGE], vec![f32::NAN; PAGES * PAGE]);
    let layer = rkv_runner_kv_memory {
        k: k.as_mut_ptr().cast(),
        v: v.as_mut_ptr().cast(),
        page_stride: PAGE as u64,
        position_stride: KEY as u64,
        head_stride: DIM as u64,
        v_page_stride: 0,
        v_position_stride: 0,
        v_head_stride: 0,
    };
    let config = rkv_runner_config {
        kv_layers: &layer,
        kv_layer_size: size_of_val(&layer),
        parallel_for: Some(backwards),
        parallel_user_data: (&raw mut calls).cast(),
        thread_count: 2,
        ..small()
    };
    let compute = Compute::new(&pair, &config);
    let first = pair.begin(&list(&[1, 2, 3, 4, 5, 6]));
    let places = compute.plan(first.sequence, 0, 6);

    // Strided q and out, dense k and v.
    let (q, sinks) = (vec![0.5f32; 6 * (QUERY + 8)], [-30.0f32; QUERY_HEADS]);
    let keys = vec![0.25f32; 6 * KEY];
    let values: Vec<f32> = (0..6 * KEY).map(|at| (at / KEY) as f32).collect();
    let (mut out, mut lse) = (vec![9.0f32; 6 * (QUERY + 8)], vec![9.0f32; 6 * QUERY_HEADS]);
    let args = rkv_runner_append_prefill_args {
        q: q.as_ptr().cast(),
        k: keys.as_ptr().cast(),
        v: values.as_ptr().cast(),
        out: out.as_mut_ptr().cast(),
        lse: lse.as_mut_ptr(),
        q_position_stride: (QUERY + 8) as u64,
        out_position_stride: (QUERY + 8) as u64,
        sinks: sinks.as_ptr(),
        ..sized()
    };
    // SAFETY: all tensors have six positions, with the strides that are stated.
    ok(unsafe { rkv_runner_append_prefill(compute.0, compute.1, &args) });
    // Equal weights: the middle of what each position sees; 1 and 2 see each other.
    for (position, middle) in [0.0, 1.0, 1.0, 1.5, 2.0, 2.5].into_iter().enumerate() {
        let got = out[position * (QUERY + 8) + DIM + 3];
        assert!((got - middle).abs() < 1e-4, "{position}: {got}");
    }
    assert!(out[QUERY..QUERY + 8].iter().all(|&between| between == 9.0));
    assert!(lse.iter().all(|lse| lse.is_finite()));
    let mut result = sized::<rkv_sequence_publish_result>();
    // SAFETY: all pointers lead to live values.
    unsafe {
        ok(rkv_sequence_publish(pair.1, first.sequence, 6, &mut result));
        assert_eq!(
            rkv_runner_append_prefill(compute.0, compute.1, &args),
            rkv_status::InvalidState
        );
    }

    // Decoding over a page that was reused in part: preparing the plan copies it.
    let second = pair.begin(&list(&[1, 2, 3, 9]));
    let copy = pair.copy_of(second.sequence);
    assert_eq!((second.cached_position_count, copy.position_count), (3, 3));
    compute.plan(second.sequence, 3, 1);
    let memory = {
        let mut memory = layer;
        // SAFETY: all pointers lead to live values.
        ok(unsafe {
            rkv_runner_read_kv_memory(compute.0, 0, &mut memory, size_of::<rkv_runner_kv_memory>())
        });
        memory
    };
    let target = copy.target_page as usize * PAGE;
    // SAFETY: the runner's memory, which nobody computes in now.
    let copied = unsafe { std::slice::from_raw_parts(memory.v.cast::<f32>().add(target), PAGE) };
    assert_eq!((copied[0], copied[2 * KEY]), (0.0, 2.0));
    assert!(copied[3 * KEY].is_nan());
    let args = rkv_runner_append_prefill_args { lse: ptr::null_mut(), sinks: ptr::null(), ..args };
    // SAFETY: the tensors have at least one position.
    ok(unsafe { rkv_runner_append_prefill(compute.0, compute.1, &args) });
    assert!((out[0] - 0.75).abs() < 1e-4, "{}", out[0]); // 0, 1, 2 and what is new: 0
    assert!(places[0] >= 4 && calls > 0);
    pair.check();
}

/// K22, K23
#[test]
fn halves_in_fp8_and_other_outputs() {
    let pair = Pair::new();
    let config = rkv_runner_config {
        dtype: RKV_DTYPE_BF16,
        kv_dtype: RKV_DTYPE_FP8_E4M3,
        kv_layout: RKV_KV_LAYOUT_HND,
        flags: RKV_RUNNER_BATCH_INVARIANT,
        ..small()
    };
    let (mut page_bytes, mut stats) = (0, sized::<rkv_runner_stats>());
    let compute = Compute::new(&pair, &config);
    // SAFETY: all pointers lead to live values.
    unsafe {
        ok(rkv_runner_supports(&config, 4, &mut page_bytes));
        ok(rkv_runner_read_stats(compute.0, &mut stats));
    }
    assert_eq!((page_bytes, stats.page_bytes), (2 * PAGE as u64, 2 * PAGE as u64));
    assert!(stats.kv_bytes >= PAGES as u64 * page_bytes);

    let state = pair.begin(&list(&[1, 2, 3]));
    compute.plan(state.sequence, 0, 3);
    let (half, one) = (0x3F00u16, 0x3F80u16);
    let (q, kv) = (vec![half; 3 * QUERY], vec![one; 3 * KEY]);
    let (mut out, mut lse) = (vec![0u16; 3 * QUERY], vec![0f32; 3 * QUERY_HEADS]);
    let args = rkv_runner_append_prefill_args {
        q: q.as_ptr().cast(),
        k: kv.as_ptr().cast(),
        v: kv.as_ptr().cast(),
        out: out.as_mut_ptr().cast(),
        lse: lse.as_mut_ptr(),
        k_scale: 0.5,
        v_scale: 0.5,
        ..sized()
    };
    // SAFETY: all tensors have three positions.
    ok(unsafe { rkv_runner_append_prefill(compute.0, compute.1, &args) });
    assert!(out.iter().all(|&got| got == one));

    // The merged state of two equal ones, in place of the first.
    let other = (out.clone(), lse.clone());
    let outs: [*const c_void; 2] = [out.as_mut_ptr().cast(), other.0.as_ptr().cast()];
    let lses: [*const f32; 2] = [lse.as_mut_ptr(), other.1.as_ptr()];
    let merge = rkv_runner_merge_states_args {
        state_count: 2,
        position_count: 3,
        outs: outs.as_ptr(),
        lses: lses.as_ptr(),
        out: outs[0].cast_mut(),
        lse: lses[0].cast_mut(),
        ..sized()
    };
    // SAFETY: all states have three positions.
    ok(unsafe { rkv_runner_merge_states(compute.0, &merge) });
    assert!(out.iter().all(|&got| got == one));
    assert!((lse[0] - other.1[0] - 2f32.ln()).abs() < 1e-5);

    let (mut pages, mut logits, mut bin, mut value) = ([0; 2], vec![0f32; 1024], 0, 0.0);
    logits[1023] = 1.0;
    // SAFETY: all pointers lead to live values, the buffers have the room that is stated.
    unsafe {
        ok(rkv_page_table_allocate_pages(pair.0, 2, pages.as_mut_ptr()));
        let copy = rkv_page_copy {
            source_page: pages[0],
            target_page: pages[1],
            position_count: 4,
            group: 0,
        };
        ok(rkv_runner_copy_pages(compute.0, &copy, 1, size_of::<rkv_page_copy>()));
        ok(rkv_spatial_decode(RKV_TOKEN_COORD, logits.as_ptr(), 1024, &mut bin, &mut value));
        assert_eq!((bin, value), (1023, 1.0));
        // Handles of another kind.
        let mixed_up = compute.1.cast::<rkv_runner>();
        assert_eq!(rkv_runner_read_stats(mixed_up, &mut stats), rkv_status::InvalidArgument);
        rkv_runner_destroy(ptr::null_mut());
        rkv_plan_destroy(ptr::null_mut());
    }
}

/// J04: two runners of different shapes compute one plan, and either goes before it or after it.
#[test]
fn j04_runners_come_and_go() {
    let pair = Pair::new();
    let first = Compute::new(&pair, &small());
    let state = pair.begin(&list(&[1, 2, 3]));
    first.plan(state.sequence, 0, 3);
    for kv_heads in [1, QUERY_HEADS as u32, 1] {
        let other = rkv_runner_config { kv_head_count: kv_heads, ..small() };
        let other = Compute::new(&pair, &other);
        let key = kv_heads as usize * DIM;
        for (runner, plan, key) in [(first.0, first.1, KEY), (other.0, first.1, key)] {
            let (q, kv) = (vec![0.5f32; 3 * QUERY], vec![1.0f32; 3 * key]);
            let mut out = vec![0f32; 3 * QUERY];
            let args = rkv_runner_append_prefill_args {
                q: q.as_ptr().cast(),
                k: kv.as_ptr().cast(),
                v: kv.as_ptr().cast(),
                out: out.as_mut_ptr().cast(),
                ..sized()
            };
            // SAFETY: all tensors have three positions.
            ok(unsafe { rkv_runner_append_prefill(runner, plan, &args) });
            assert!(out.iter().all(|&got| got == 1.0));
        }
    }
    pair.check();
}
