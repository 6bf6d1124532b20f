//! KV memory: number formats, layouts, where it lies, copies of its pages.
use crate::attention::{Dtype, KvLayout, KvStrides};
use crate::capi::ffi::{
    AbiElement, Fail, GivenElements, WantedElements, count_of, rkv_status, with,
};
use crate::capi::runner::rkv_runner;
use crate::error::Error;
use crate::error::text;
use crate::memory::try_collect;
use crate::paging::PageCopy;
use crate::store::GroupCopy;
use std::ffi::c_void;

/// 32-bit IEEE 754 floats.
pub const RKV_DTYPE_F32: u32 = 0;
/// 16-bit IEEE 754 floats.
pub const RKV_DTYPE_F16: u32 = 1;
/// The upper half of 32-bit floats.
pub const RKV_DTYPE_BF16: u32 = 2;
/// 8-bit floats of 4 exponent bits and 3 of mantissa, without infinities: OCP E4M3. For K and V in
/// memory only; what is too large becomes the largest, 448.
pub const RKV_DTYPE_FP8_E4M3: u32 = 3;
/// Layout of a layer's K or V: [page][position][head][head_dim].
pub const RKV_KV_LAYOUT_NHD: u32 = 0;
/// Layout of a layer's K or V: [page][head][position][head_dim].
pub const RKV_KV_LAYOUT_HND: u32 = 1;

/// Where K and V of one layer lie; element (page, position in the page, head, d) at
/// page * page_stride + position * position_stride + head * head_stride + d. An array element.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_runner_kv_memory {
    /// K of page 0. Layers may have one memory between them, with both k and v: one alone of
    /// another layer's is refused.
    pub k: *mut c_void,
    /// V of page 0. With RKV_RUNNER_LATENT NULL where it is given, and k where it is read; without
    /// it never k.
    pub v: *mut c_void,
    /// Elements of K from one page to the next, and of V unless it has strides of its own.
    pub page_stride: u64,
    /// Elements from one position of a page to the next.
    pub position_stride: u64,
    /// Elements from one head to the next.
    pub head_stride: u64,
    /// The same three of V. All 0: as those of K.
    pub v_page_stride: u64,
    /// Elements of V from one position of a page to the next.
    pub v_position_stride: u64,
    /// Elements of V from one head to the next.
    pub v_head_stride: u64,
}
// SAFETY: integers and pointers, no padding.
unsafe impl AbiElement for rkv_runner_kv_memory {
    const V1: usize = 40;
}

/// A copy of the first positions of a page to another page.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rkv_page_copy {
    /// The page to copy from: cached or private.
    pub source_page: u32,
    /// The page to copy to: private.
    pub target_page: u32,
    /// How many positions, at most page_size.
    pub position_count: u32,
    /// The group of layers whose pages these are; 0 with one.
    pub group: u32,
}
// SAFETY: plain integers, no padding.
unsafe impl AbiElement for rkv_page_copy {
    const V1: usize = 16;
}

impl From<&GroupCopy> for rkv_page_copy {
    fn from(copy: &GroupCopy) -> Self {
        Self {
            source_page: copy.source,
            target_page: copy.target,
            position_count: copy.positions as u32,
            group: copy.group as u32,
        }
    }
}

impl From<&PageCopy> for rkv_page_copy {
    fn from(copy: &PageCopy) -> Self {
        Self {
            source_page: copy.source,
            target_page: copy.target,
            position_count: copy.positions as u32,
            group: 0,
        }
    }
}

pub(crate) fn dtype(value: u32, name: &str) -> Result<Dtype, Error> {
    Ok(match value {
        RKV_DTYPE_F32 => Dtype::F32,
        RKV_DTYPE_F16 => Dtype::F16,
        RKV_DTYPE_BF16 => Dtype::Bf16,
        RKV_DTYPE_FP8_E4M3 => Dtype::Fp8E4m3,
        _ => return Err(Error::argument(text!("config.{name} {value} is no RKV_DTYPE_"))),
    })
}

pub(crate) fn kv_layout(value: u32) -> Result<KvLayout, Error> {
    match value {
        RKV_KV_LAYOUT_NHD => Ok(KvLayout::Nhd),
        RKV_KV_LAYOUT_HND => Ok(KvLayout::Hnd),
        _ => Err(Error::argument(text!("config.kv_layout {value} is no RKV_KV_LAYOUT_"))),
    }
}

/// Of K and of V.
pub(crate) fn strides(memory: &rkv_runner_kv_memory) -> Result<[KvStrides; 2], Fail> {
    let k = KvStrides {
        page: count_of(memory.page_stride, "kv_layers: page_stride")?,
        position: count_of(memory.position_stride, "kv_layers: position_stride")?,
        head: count_of(memory.head_stride, "kv_layers: head_stride")?,
    };
    let v = KvStrides {
        page: count_of(memory.v_page_stride, "kv_layers: v_page_stride")?,
        position: count_of(memory.v_position_stride, "kv_layers: v_position_stride")?,
        head: count_of(memory.v_head_stride, "kv_layers: v_head_stride")?,
    };
    let has_own = v != KvStrides { page: 0, position: 0, head: 0 };
    Ok([k, if has_own { v } else { k }])
}

/// Where K and V of a layer lie, for an engine that looks at them or has kernels of its own.
///
/// @param runner the runner
/// @param layer below layer_count
/// @param out_memory receives pointers, good until the runner is destroyed, and strides
/// @param memory_size sizeof(rkv_runner_kv_memory)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT; RKV_STATUS_POISONED
/// @par Cost
/// O(1); no lock
/// @par Thread safety
/// any thread; what is behind the pointers changes with rkv_runner_append_prefill()
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_read_kv_memory(
    runner: *const rkv_runner,
    layer: u32,
    out_memory: *mut rkv_runner_kv_memory,
    memory_size: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on runner and out_memory.
    unsafe {
        with(runner, |runner| {
            let names = ["out_memory", "memory_size"];
            let mut into = WantedElements::new(out_memory, memory_size, 1, names)?;
            let kv = runner.kv(layer as usize)?;
            let made = rkv_runner_kv_memory {
                k: kv.k.cast(),
                v: kv.v.cast(),
                page_stride: kv.strides.page as u64,
                position_stride: kv.strides.position as u64,
                head_stride: kv.strides.head as u64,
                v_page_stride: kv.v_strides.page as u64,
                v_position_stride: kv.v_strides.position as u64,
                v_head_stride: kv.v_strides.head as u64,
            };
            into.put(0, &made);
            Ok(())
        })
    }
}

/// Copies the first positions of pages of the runner's group to other pages, K and V of every
/// layer.
///
/// The copies that sequences wait for are carried out with a step, see rkv_runner_prepare_plan();
/// this is for an engine that moves pages for reasons of its own. On CUDA they are put on the
/// legacy default stream, and the call does not wait for them.
///
/// @param runner the runner
/// @param copies copy_count copies; no target is another's source or target
/// @param copy_count how many
/// @param element_size sizeof(rkv_page_copy)
/// @return RKV_STATUS_OK; RKV_STATUS_INVALID_ARGUMENT naming the copy; on CUDA
/// RKV_STATUS_INVALID_STATE while somebody captures a blocking stream, for nobody can use the
/// default stream then; RKV_STATUS_OUT_OF_MEMORY; RKV_STATUS_DEVICE; RKV_STATUS_POISONED
/// @par Cost
/// O(copies) for the checks, under the shared lock; O(bytes) for the copies, without
/// @par Thread safety
/// any thread, while nobody writes the sources or uses the targets
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rkv_runner_copy_pages(
    runner: *mut rkv_runner,
    copies: *const rkv_page_copy,
    copy_count: usize,
    element_size: usize,
) -> rkv_status {
    // SAFETY: the caller's contract on runner and copies.
    unsafe {
        with(runner, |runner| {
            let size = (element_size, "element_size");
            let given = GivenElements::new(copies, copy_count, size, "copies")?.iter();
            let group = runner.config().group as u32;
            if let Some(at) = given.clone().position(|copy| copy.group != group) {
                return Err(Error::argument(text!(
                    "copies[{at}].group is not the runner's, {group}"
                ))
                .into());
            }
            let copies = try_collect(given.map(|copy| PageCopy {
                source: copy.source_page,
                target: copy.target_page,
                positions: copy.position_count as usize,
            }))?;
            Ok(runner.copy_pages(&copies)?)
        })
    }
}
