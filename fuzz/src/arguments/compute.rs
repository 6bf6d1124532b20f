//! A runner over the engine's memory, a plan, and what both hold.
use crate::abi::{Sized32, ok};
use radixkv::capi::*;
use std::ptr;

pub const LAYERS: usize = 2;
pub const QUERY_HEADS: usize = 2;
pub const KV_HEADS: usize = 1;
pub const HEAD_DIM: usize = 64;

/// A runner, and a plan over the same page table.
pub struct Compute {
    pub runner: *mut rkv_runner,
    pub plan: *mut rkv_plan,
    /// K and V of each layer, apart, so that AddressSanitizer sees each end.
    memory: Vec<Vec<f32>>,
}

/// What a call that fails must leave as it was.
#[derive(PartialEq)]
pub struct Held {
    memory: Vec<Vec<u8>>,
    plan: [Vec<i32>; 4],
    slots: Vec<i64>,
}

impl Compute {
    pub fn new(table: *mut rkv_page_table, pages: u32, page_size: u32) -> Self {
        let position = KV_HEADS * HEAD_DIM;
        let page = page_size as usize * position;
        let memory = vec![vec![f32::NAN; pages as usize * page]; 2 * LAYERS];
        let mut made = Self { runner: ptr::null_mut(), plan: ptr::null_mut(), memory };
        let layers: Vec<_> = made
            .memory
            .chunks_mut(2)
            .map(|layer| rkv_runner_kv_memory {
                k: layer[0].as_mut_ptr().cast(),
                v: layer[1].as_mut_ptr().cast(),
                page_stride: page as u64,
                position_stride: position as u64,
                head_stride: HEAD_DIM as u64,
                v_page_stride: 0,
                v_position_stride: 0,
                v_head_stride: 0,
            })
            .collect();
        let config = rkv_runner_config {
            layer_count: LAYERS as u32,
            query_head_count: QUERY_HEADS as u32,
            kv_head_count: KV_HEADS as u32,
            head_dim: HEAD_DIM as u32,
            thread_count: 1,
            kv_layers: layers.as_ptr(),
            kv_layer_size: size_of::<rkv_runner_kv_memory>(),
            ..Sized32::sized()
        };
        // SAFETY: the memory is as large as the strides say and outlives the runner.
        unsafe {
            ok(rkv_runner_create(table, &config, &mut made.runner));
            ok(rkv_plan_create(table, &mut made.plan));
        }
        made
    }

    pub fn arrays(&self) -> rkv_plan_arrays {
        let mut arrays = rkv_plan_arrays::sized();
        // SAFETY: the plan is alive, the struct has its size.
        ok(unsafe { rkv_plan_view(self.plan, &mut arrays) });
        arrays
    }

    pub fn held(&self) -> Held {
        let arrays = self.arrays();
        let rows = arrays.row_count as usize;
        // SAFETY: the plan is alive, and the header states the lengths.
        let list = |start, count| unsafe { std::slice::from_raw_parts(start, count) }.to_vec();
        let indptr = list(arrays.indptr, rows + 1);
        let indices = list(arrays.indices, indptr[rows] as usize);
        Held {
            memory: self.memory.iter().map(|part| bytes(part).to_vec()).collect(),
            plan: [
                list(arrays.query_indptr, rows + 1),
                list(arrays.last_page_len, rows),
                indptr,
                indices,
            ],
            // SAFETY: as above.
            slots: unsafe {
                std::slice::from_raw_parts(arrays.slot_mapping, arrays.position_count as usize)
            }
            .to_vec(),
        }
    }
}

/// NaN is equal to itself here, and a comparison of bytes is quick when it is instrumented, too.
fn bytes(values: &[f32]) -> &[u8] {
    // SAFETY: floats have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

impl Drop for Compute {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the handles.
        unsafe {
            rkv_runner_destroy(self.runner);
            rkv_plan_destroy(self.plan);
        }
    }
}
