//! KV memory, and a runner over it, which computes every other sequence. Keys say what tokens they
//! are of, in numbers that floats hold exactly; values count positions, so that attention which
//! weighs all keys alike gives the middle of what a query sees.
use super::World;
use crate::abi::{Pair, Sized32, last_message, ok};
use radixkv::capi::*;
use std::ops::Range;
use std::ptr;

const HEAD_DIM: usize = 64;
/// Bits of a content that one element of a key holds.
const BITS: u32 = 24;
/// Queries times keys that are computed; of more only the places are looked at.
const ATTENTION_LIMIT: usize = 2048;

pub(super) struct Kv {
    runner: *mut rkv_runner,
    plan: *mut rkv_plan,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Kv {
    pub(super) fn new(pair: &Pair, page_size: usize, page_count: usize) -> Self {
        let memory = || vec![0.0; page_count * page_size * HEAD_DIM];
        let (mut k, mut v) = (memory(), memory());
        let layer = rkv_runner_kv_memory {
            k: k.as_mut_ptr().cast(),
            v: v.as_mut_ptr().cast(),
            page_stride: (page_size * HEAD_DIM) as u64,
            position_stride: HEAD_DIM as u64,
            head_stride: HEAD_DIM as u64,
            v_page_stride: 0,
            v_position_stride: 0,
            v_head_stride: 0,
        };
        let config = rkv_runner_config {
            layer_count: 1,
            query_head_count: 1,
            kv_head_count: 1,
            head_dim: HEAD_DIM as u32,
            thread_count: 1,
            kv_layers: &layer,
            kv_layer_size: size_of_val(&layer),
            ..Sized32::sized()
        };
        let (mut runner, mut plan) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the memory is as large as the strides say, and outlives the runner.
        unsafe {
            ok(rkv_runner_create(pair.table, &config, &mut runner));
            ok(rkv_plan_create(pair.table, &mut plan));
        }
        Self { runner, plan, k, v }
    }

    pub(super) fn content(&self, place: usize) -> u64 {
        let key = &self.k[place * HEAD_DIM..];
        (0..3).map(|at| (key[at] as u64) << (BITS * at as u32)).sum()
    }

    pub(super) fn write(&mut self, place: usize, content: u64, position: usize) {
        let range = place * HEAD_DIM..(place + 1) * HEAD_DIM;
        key(&mut self.k[range.clone()], content);
        value(&mut self.v[range], position);
    }

    pub(super) fn copy(&mut self, source: usize, target: usize, positions: usize) {
        for memory in [&mut self.k, &mut self.v] {
            let start = source * HEAD_DIM;
            memory.copy_within(start..start + positions * HEAD_DIM, target * HEAD_DIM);
        }
    }

    pub(super) fn clear(&mut self, places: Range<usize>) {
        for memory in [&mut self.k, &mut self.v] {
            memory[places.start * HEAD_DIM..places.end * HEAD_DIM].fill(0.0);
        }
    }

    fn slot_mapping(&self) -> &[i64] {
        let mut arrays = rkv_plan_arrays::sized();
        // SAFETY: the plan is alive and is set by nobody while the arrays are borrowed.
        unsafe {
            ok(rkv_plan_view(self.plan, &mut arrays));
            std::slice::from_raw_parts(arrays.slot_mapping, arrays.position_count as usize)
        }
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handles.
        unsafe {
            rkv_plan_destroy(self.plan);
            rkv_runner_destroy(self.runner);
        }
    }
}

fn key(into: &mut [f32], content: u64) {
    for (at, element) in into.iter_mut().take(3).enumerate() {
        *element = (content >> (BITS * at as u32) & ((1 << BITS) - 1)) as f32;
    }
}

fn value(into: &mut [f32], position: usize) {
    (into[0], into[1]) = (1.0, position as f32);
}

impl World {
    /// Whether the runner computes a sequence; the others are an engine's with its own kernels.
    pub(super) fn is_computed_by_the_runner(&self, at: usize) -> bool {
        self.live[at].id & 1 == 1
    }

    /// Sets the plan to new positions of a sequence, and carries out the copy that it waits for.
    pub(super) fn plan(&mut self, at: usize, todo: &Range<usize>) {
        let live = &self.live[at];
        let regions = live.prompt.regions();
        let row = rkv_plan_row {
            sequence: live.id,
            slot: 0,
            region_count: regions.len() as u32,
            regions: if regions.is_empty() { ptr::null() } else { regions.as_ptr() },
            start: todo.start as u64,
            count: todo.len() as u64,
            tree_masks: ptr::null(),
            mask: 0,
            reserved: 0,
        };
        // SAFETY: all pointers lead to live values, and nobody computes meanwhile.
        let status = unsafe { rkv_plan_set(self.kv.plan, &row, 1, size_of_val(&row)) };
        assert!(self.after(status), "plan: {status:?}: {}", last_message());
        let none = ptr::null_mut();
        // SAFETY: as above.
        let status = unsafe { rkv_runner_prepare_plan(self.kv.runner, self.kv.plan, 0, none) };
        assert!(self.after(status), "prepare: {status:?}: {}", last_message());
    }

    /// Computes new positions of a sequence, whose copy is done.
    pub(super) fn compute_by_the_runner(&mut self, at: usize, todo: Range<usize>) {
        self.plan(at, &todo);
        let live = &self.live[at];
        let row = self.pair.row(live.slot);
        let places: Vec<_> = todo.clone().map(|position| self.place(&row, position)).collect();
        let planned: Vec<_> = self.kv.slot_mapping().iter().map(|&slot| slot as usize).collect();
        assert_eq!(planned, places, "the plan and the row name different places");
        let contents: Vec<_> =
            todo.clone().map(|position| live.prompt.content(live.namespace, position)).collect();
        if todo.len() * todo.end > ATTENTION_LIMIT {
            for (position, (place, content)) in todo.zip(places.into_iter().zip(contents)) {
                self.kv.write(place, content, position);
            }
            return;
        }
        let q = vec![0f32; todo.len() * HEAD_DIM];
        let (mut k, mut v, mut out) = (q.clone(), q.clone(), q.clone());
        for (i, position) in todo.clone().enumerate() {
            let range = i * HEAD_DIM..(i + 1) * HEAD_DIM;
            key(&mut k[range.clone()], contents[i]);
            value(&mut v[range], position);
        }
        let args = rkv_runner_append_prefill_args {
            q: q.as_ptr().cast(),
            k: k.as_ptr().cast(),
            v: v.as_ptr().cast(),
            out: out.as_mut_ptr().cast(),
            ..Sized32::sized()
        };
        // SAFETY: the tensors have the plan's positions, dense.
        let status = unsafe { rkv_runner_append_prefill(self.kv.runner, self.kv.plan, &args) };
        assert!(self.after(status), "append_prefill: {status:?}: {}", last_message());
        let regions = self.live[at].prompt.regions();
        for (position, result) in todo.zip(out.chunks(HEAD_DIM)) {
            let inside =
                |region: &&rkv_region| (region.start..region.end).contains(&(position as u64));
            let seen =
                regions.iter().find(inside).map_or(position + 1, |region| region.end as usize);
            let middle = (seen - 1) as f32 / 2.0;
            let near = |got: f32, want: f32| (got - want).abs() <= 1e-4 * (1.0 + want);
            assert!(
                near(result[0], 1.0) && near(result[1], middle),
                "position {position} sees {seen} positions around {middle}, not {result:?}"
            );
        }
    }
}
