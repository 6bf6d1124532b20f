//! The runner: KV memory and the backend that computes over the rows of a page table.
mod kv;
mod branch;
mod compute;
mod threads;
mod tier;

pub use branch::*;
pub use compute::*;
pub use kv::*;
pub use threads::*;
pub use tier::*;

use crate::capi::ffi::{
    AbiStruct, GivenElements, Handle, Object, Opaque, check_fit, check_flags, destroy, guard,
    init_struct, out, put, read_struct, rkv_status, with, write_struct,
};
use crate::capi::page_table::{RKV_PAGE_SIZE_MAX, rkv_page_table};
use crate::cpu::Threads;
use crate::error::Error;
use crate::error::text;
use crate::gpu::{CudaConfig, Images};
use crate::memory::TryGrow;
use crate::runner::{BackendConfig, KvPointers, Runner, RunnerConfig};
use std::ffi::c_void;

/// Backend of rkv_runner_config: the processor.
pub const RKV_BACKEND_CPU: u32 = 0;
/// Backend of rkv_runner_config: an NVIDIA GPU.
pub const RKV_BACKEND_CUDA: u32 = 1;
/// Flag of rkv_runner_config: a row's result has the same bits whatever else is in the batch, for
/// any number of threads and however its prompt is cut into chunks.
pub const RKV_RUNNER_BATCH_INVARIANT: u32 = 1;
/// Flag of rkv_runner_config: V of a position is the first v_head_dim elements of its K, and memory
/// has K alone. It is for multi-head latent attention whose up-projections are absorbed into q and
/// into what follows: kv_head_count 1, head_dim 576, v_head_dim 512. `v` is NULL in kv_layers and
/// in every call, and v_scale is k_scale.
pub const RKV_RUNNER_LATENT: u32 = 2;

/// Attention over the rows of one group of a page table, and the KV memory behind its pages. A
/// model with several groups, or with layers of several shapes, has a runner for each, over one
/// page table; all of them compute the same plans. Created by rkv_runner_create().
pub struct rkv_runner {
    // Opaque to C and to debug information: behind the pointer lies a Handle.
    _private: [u8; 0],
}

impl Object for Runner {
    fn is_poisoned(&self) -> bool {
        self.shared().is_poisoned()
    }

    /// What a broken computation left in the pages is unknown, so the cache over them is of no more
    /// use.
    fn poison(&self) {
        self.shared().poison();
    }
}

impl Opaque for rkv_runner {
    type Object = Runner;
    const NAME: &'static str = "runner";
    const MAGIC: u64 = u64::from_le_bytes(*b"rkvrunnr");
}

/// How to build a runner. Fill with rkv_runner_config_init(), then change fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_runner_config {
    /// sizeof(rkv_runner_config).
    pub struct_size: u32,
    /// RKV_BACKEND_CPU, the default, or RKV_BACKEND_CUDA.
    pub backend: u32,
    /// Layers of the model that it computes, 1 to 65536. Default 0, which is refused: set it.
    pub layer_count: u32,
    /// Heads of a query, 1 to 65536. Default 0, which is refused.
    pub query_head_count: u32,
    /// Heads of K and V; divides query_head_count. Default 0, which is refused.
    pub kv_head_count: u32,
    /// Elements of a head of Q and K: 64, 80, 96, 112, 128, 192, 256, 512 or 576, on CUDA 576 with
    /// RKV_RUNNER_LATENT alone. Default 128.
    pub head_dim: u32,
    /// Of q, k, v and out: RKV_DTYPE_F32, the default, _F16 or _BF16; on CUDA not F32.
    pub dtype: u32,
    /// Of K and V in memory: the same as dtype, or RKV_DTYPE_FP8_E4M3. Default RKV_DTYPE_F32: set
    /// it together with dtype.
    pub kv_dtype: u32,
    /// Of memory of its own: RKV_KV_LAYOUT_NHD, the default, or _HND. Of no meaning with
    /// kv_layers.
    pub kv_layout: u32,
    /// Threads that compute, at most 1024: of its own, the calling one included, or with
    /// parallel_for the engine's. Default 0: as many as the process may use.
    pub thread_count: u32,
    /// RKV_RUNNER_ bits; on CUDA RKV_RUNNER_LATENT with head_dim 576 and v_head_dim 512 alone.
    pub flags: u32,
    /// Ordinal of the GPU; 0 for the CPU.
    pub device: u32,
    /// The engine's memory, layer_count of them, for every page of the group's pool, page 0
    /// included; it must outlive the runner. On CUDA it is the device's, and begins at multiples of
    /// 16 bytes, as does every head of it. NULL: the runner allocates memory of its own.
    pub kv_layers: *const rkv_runner_kv_memory,
    /// sizeof(rkv_runner_kv_memory), to be set with kv_layers; not read without. Default 0.
    pub kv_layer_size: usize,
    /// The engine's threads. NULL: threads of its own; so on CUDA, where none compute.
    pub parallel_for: rkv_parallel_for,
    /// Passed to parallel_for.
    pub parallel_user_data: *mut c_void,
    /// The group of layers whose K and V it has, see docs/groups.md: no STATE group; on CUDA no
    /// CHUNK group and no sinks. Default 0.
    pub group: u32,
    /// Elements of a head of V and of the result: one of the sizes listed at head_dim. Default 0:
    /// the same as head_dim. On CUDA it must be the same, except head_dim 192 with 128, and 576
    /// with 512.
    pub v_head_dim: u32,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiStruct for rkv_runner_config {
    const NAME: &'static str = "config";
    const V1: usize = 80;
}

/// What a runner has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_runner_stats {
    /// sizeof(rkv_runner_stats).
    pub struct_size: u32,
    /// Threads of the host that compute; 0 on CUDA.
    pub thread_count: u32,
    /// Bytes of KV memory of its own; 0 over the engine's.
    pub kv_bytes: u64,
    /// Bytes that one page takes, K and V of all layers, when they lie densely.
    pub page_bytes: u64,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiStruct for rkv_runner_stats {
    const NAME: &'static str = "out_stats";
    const V1: usize = 24;
}

/// Checks what the numbers mean, not yet whether they can be done.
fn config_of(raw: &rkv_runner_config) -> Result<RunnerConfig, Error> {
    match raw.backend {
        RKV_BACKEND_CPU if raw.device != 0 => {
            return Err(Error::argument(text!("config.device {} with the CPU", raw.device)));
        }
        RKV_BACKEND_CPU => {}
        RKV_BACKEND_CUDA if raw.parallel_for.is_some() => {
            return Err(Error::argument("config.parallel_for with CUDA"));
        }
        RKV_BACKEND_CUDA => {}
        other => return Err(Error::argument(text!("config.backend {other} is unknown"))),
    }
    check_flags(raw.flags, RKV_RUNNER_BATCH_INVARIANT | RKV_RUNNER_LATENT, "config.flags")?;
    let v_head_dim = if raw.v_head_dim == 0 { raw.head_dim } else { raw.v_head_dim };
    Ok(RunnerConfig {
        group: raw.group as usize,
        v_head_dim: v_head_dim as usize,
        layers: raw.layer_count as usize,
        query_heads: raw.query_head_count as usize,
        kv_heads: raw.kv_head_count as usize,
        head_dim: raw.head_dim as usize,
        dtype: dtype(raw.dtype, "dtype")?,
        kv_dtype: dtype(raw.kv_dtype, "kv_dtype")?,
        kv_layout: kv_layout(raw.kv_layout)?,
        batch_invariant: raw.flags & RKV_RUNNER_BATCH_INVARIANT != 0,
        latent: raw.flags & RKV_RUNNER_LATENT != 0,
    })
}

fn backend_of(raw: &rkv_runner_config) -> Result<BackendConfig, Error> {
    if raw.backend == RKV_BACKEND_CUDA {
        let (device, images) = (raw.device as usize, Images::available()?);
        return Ok(CudaConfig { device, images, sm90: None, staging_bytes: None }.into());
    }
    let count = raw.thread_count as usize;
    Ok(BackendConfig::Cpu(match raw.parallel_for {
        None => Threads::Own(count),
        Some(parallel_for) => engine_threads(count, parallel_for, raw.parallel_user_data)?,
    }))
}

/// Writes the defaults into a config.
///
/// @param config receives the defaults
/// @param struct_size pass sizeof(rkv_runner_config)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_config_init(
    config: *mut rkv_runner_config,
    struct_size: usize,
) -> rkv_status {
    let made = rkv_runner_config {
        struct_size: 0,
        backend: RKV_BACKEND_CPU,
        layer_count: 0,
        query_head_count: 0,
        kv_head_count: 0,
        head_dim: 128,
        dtype: RKV_DTYPE_F32,
        kv_dtype: RKV_DTYPE_F32,
        kv_layout: RKV_KV_LAYOUT_NHD,
        thread_count: 0,
        flags: 0,
        device: 0,
        kv_layers: std::ptr::null(),
        kv_layer_size: 0,
        parallel_for: None,
        parallel_user_data: std::ptr::null_mut(),
        group: 0,
        v_head_dim: 0,
    };
    // SAFETY: the caller's contract on config.
    guard(|| unsafe { init_struct(config, struct_size, &made) })
}

/// Whether this build, on this machine, can run such a runner, and how much memory a page takes:
/// to be asked before a page table is made.
///
/// @param config how the runner would be built; memory and threads are not looked at
/// @param page_size positions of a page, 1 to RKV_PAGE_SIZE_MAX
/// @param out_page_bytes receives the bytes of one page, K and V of all layers together, when they
/// lie densely; NULL when not wanted
/// @return RKV_STATUS_OK; RKV_STATUS_UNSUPPORTED saying what is not, e.g. pages of more than 256
/// positions; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_DEVICE when the driver or the device cannot
/// be had; RKV_STATUS_OUT_OF_MEMORY
/// @par Cost
/// O(1), but for CUDA it opens the driver and loads the kernels; no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_supports(
    config: *const rkv_runner_config,
    page_size: u32,
    out_page_bytes: *mut u64,
) -> rkv_status {
    guard(|| {
        // SAFETY: the caller's contract on config.
        let raw = unsafe { read_struct(config)? };
        let raw = rkv_runner_config { parallel_for: None, ..raw };
        let config = config_of(&raw)?;
        if !(1..=RKV_PAGE_SIZE_MAX).contains(&page_size) {
            let message = text!("page_size {page_size} is not in 1..={RKV_PAGE_SIZE_MAX}");
            return Err(Error::argument(message).into());
        }
        config.supports(page_size as usize, &backend_of(&raw)?)?;
        if out_page_bytes.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's contract on out_page_bytes.
        unsafe {
            put(config.page_bytes(page_size as usize) as u64, out_page_bytes, "out_page_bytes")
        }
    })
}

/// Creates a runner over a page table. The page table lives until the runner is destroyed too.
///
/// On the CPU each call that ends with RKV_STATUS_OUT_OF_MEMORY changed nothing, and memory that a
/// thread of the runner's may need is there before it computes. With CUDA that is best effort: a
/// host without memory may end the process.
///
/// @param table the page table, with or without a cache
/// @param config how to build it; not NULL
/// @param out_runner receives the runner, owned by the caller
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the field; RKV_STATUS_UNSUPPORTED,
/// e.g. for pages of more than 256 positions, also for a page table with an external pool;
/// RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_DEVICE; RKV_STATUS_POISONED
/// @par Cost
/// O(bytes of KV memory of its own); shared lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_create(
    table: *mut rkv_page_table,
    config: *const rkv_runner_config,
    out_runner: *mut *mut rkv_runner,
) -> rkv_status {
    // SAFETY: the caller's contract on table, config and out_runner.
    unsafe {
        with(table, |shared| {
            let (raw, into) = (read_struct(config)?, out(out_runner, "out_runner")?);
            let (config, backend) = (config_of(&raw)?, backend_of(&raw)?);
            // Before kv_layers is read, which is as long as layer_count says.
            config.check_over(shared, &backend)?;
            let runner = if raw.kv_layers.is_null() {
                Runner::new(shared.clone(), config, backend)?
            } else {
                let size = (raw.kv_layer_size, "config.kv_layer_size");
                let (layers, name) = (config.layers, "config.kv_layers");
                let given = GivenElements::new(raw.kv_layers, layers, size, name)?;
                let mut layers = Vec::new();
                for memory in given.iter() {
                    let (k, v) = (memory.k.cast(), memory.v.cast());
                    let [strides, v_strides] = strides(&memory)?;
                    layers.try_push(KvPointers { k, v, strides, v_strides })?;
                }
                Runner::over(shared.clone(), config, backend, &layers)?
            };
            into.write(Handle::new(runner)?.into_raw());
            Ok(())
        })
    }
}

/// Destroys a runner, the memory of its own, and what it keeps with plans. NULL is allowed and does
/// nothing. Runners and plans can be destroyed in any order.
///
/// @param runner the runner
/// @par Cost
/// O(1), and memory of its own; no lock
/// @par Thread safety
/// the caller must be the last user of this handle
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_destroy(runner: *mut rkv_runner) {
    // SAFETY: the caller's contract: from rkv_runner_create(), not destroyed yet.
    unsafe { destroy(runner, |_| {}) }
}

/// What a runner has.
///
/// @param runner the runner
/// @param out_stats receives the numbers; set its struct_size first
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_read_stats(
    runner: *const rkv_runner,
    out_stats: *mut rkv_runner_stats,
) -> rkv_status {
    // SAFETY: the caller's contract on runner and out_stats.
    unsafe {
        with(runner, |runner| {
            check_fit(out_stats)?;
            let made = rkv_runner_stats {
                struct_size: 0,
                thread_count: runner.threads() as u32,
                kv_bytes: runner.own_bytes() as u64,
                page_bytes: runner.page_bytes() as u64,
            };
            write_struct(out_stats, &made)
        })
    }
}
