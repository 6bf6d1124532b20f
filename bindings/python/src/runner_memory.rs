//! KV memory of a runner, for whoever looks at it; and what a runner would need.
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::c::*;
use crate::dlpack::{BFLOAT, FLOAT, Lent, UINT};
use crate::handle::Handle;
use crate::runner::{Runner, backend, layout};
use crate::shape::{bytes, dtype};
use crate::status::check;

/// K or V of a layer, where it lies: a tensor for `torch.from_dlpack()` and `numpy.from_dlpack()`
/// of shape (pages, page_size, kv_heads, head_dim), or with heads before positions; of V the last
/// is v_head_dim, and pages are those of the group's pool. It keeps the memory; what is in it
/// changes with `Runner.append_prefill()`.
#[pyclass(frozen, module = "radixkv")]
pub struct KvMemory {
    lent: Lent,
    handle: Arc<Handle<rkv_runner>>,
    runner: Py<Runner>,
}

// SAFETY: the pointer inside leads to memory that the handle keeps.
unsafe impl Send for KvMemory {}
// SAFETY: likewise; it is only passed on.
unsafe impl Sync for KvMemory {}

#[pymethods]
impl KvMemory {
    /// The address of the first element, on CUDA the device's.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.lent.data as usize
    }

    /// Extents of the four dimensions.
    #[getter]
    fn shape(&self) -> (i64, i64, i64, i64) {
        self.lent.shape.into()
    }

    /// Elements from one entry of each dimension to the next.
    #[getter]
    fn strides(&self) -> (i64, i64, i64, i64) {
        self.lent.strides.into()
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The caller orders its streams; the form without a version is good for all.
        drop((stream, max_version));
        if copy == Some(true) || dl_device.is_some_and(|device| device != self.lent.device()) {
            return Err(PyBufferError::new_err("the memory is lent where it is, without a copy"));
        }
        self.lent.capsule(py, Box::new((self.handle.clone(), self.runner.clone_ref(py))))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        self.lent.device()
    }
}

#[pymethods]
impl Runner {
    /// K and V of a layer, as two KvMemory tensors without a copy. With `as_bits` their elements
    /// are unsigned integers of the same size, for libraries that do not know bf16 or fp8 (fp8 is
    /// always so). Raises InvalidArgument for a layer that there is not.
    #[pyo3(signature = (layer, *, as_bits=false))]
    fn kv_memory(
        this: &Bound<'_, Self>,
        layer: u32,
        as_bits: bool,
    ) -> PyResult<(KvMemory, KvMemory)> {
        let (py, runner) = (this.py(), this.get());
        let (handle, shape) = (runner.handle.get(py)?, &runner.shape);
        let mut memory = rkv_runner_kv_memory::zeroed();
        // SAFETY: a live handle.
        check(py, unsafe {
            let size = size_of::<rkv_runner_kv_memory>();
            rkv_runner_read_kv_memory(handle.raw(), layer, &mut memory, size)
        })?;
        let k = [memory.page_stride, memory.position_stride, memory.head_stride];
        let v = [memory.v_page_stride, memory.v_position_stride, memory.v_head_stride];
        let (pages, size) = (shape.pages as i64, i64::from(shape.page_size));
        let code = match shape.kv_dtype {
            _ if as_bits => UINT,
            RKV_DTYPE_FP8_E4M3 => UINT,
            RKV_DTYPE_BF16 => BFLOAT,
            _ => FLOAT,
        };
        let form = |(heads, dim): (u32, u32), strides: [u64; 3]| {
            let (heads, dim) = (i64::from(heads), i64::from(dim));
            let [page, position, head] = strides.map(|stride| stride as i64);
            match shape.kv_layout {
                RKV_KV_LAYOUT_NHD => ([pages, size, heads, dim], [page, position, head, 1]),
                _ => ([pages, heads, size, dim], [page, head, position, 1]),
            }
        };
        let tensor = |data, (extents, strides)| KvMemory {
            lent: Lent {
                data,
                cuda: shape.device.checked_sub(1).map(|number| number as i32),
                code,
                bits: bytes(shape.kv_dtype) as u8 * 8,
                shape: extents,
                strides,
            },
            handle: handle.clone(),
            runner: this.clone().unbind(),
        };
        Ok((tensor(memory.k, form(shape.k(), k)), tensor(memory.v, form(shape.v(), v))))
    }
}

/// Bytes that a page of such a runner takes, K and V of all layers: to be asked before a page table
/// is made. Raises Unsupported saying what this build, on this machine, cannot run.
#[pyfunction]
#[pyo3(signature = (page_size, *, layers, query_heads, kv_heads, head_dim=128, dtype=None,
                    kv_dtype=None, kv_layout="nhd", backend="cpu", device=0, v_head_dim=None,
                    latent=false))]
#[allow(clippy::too_many_arguments)]
pub fn runner_supports(
    py: Python<'_>,
    page_size: u32,
    layers: u32,
    query_heads: u32,
    kv_heads: u32,
    head_dim: u32,
    dtype: Option<&Bound<'_, PyAny>>,
    kv_dtype: Option<&Bound<'_, PyAny>>,
    kv_layout: &str,
    backend: &str,
    device: u32,
    v_head_dim: Option<u32>,
    latent: bool,
) -> PyResult<u64> {
    let dtype = dtype.map_or(Ok(RKV_DTYPE_F32), |it| self::dtype(it, "dtype"))?;
    let config = rkv_runner_config {
        backend: self::backend(backend)?,
        layer_count: layers,
        query_head_count: query_heads,
        kv_head_count: kv_heads,
        head_dim,
        dtype,
        kv_dtype: kv_dtype.map_or(Ok(dtype), |it| self::dtype(it, "kv_dtype"))?,
        kv_layout: layout(kv_layout)?,
        device,
        v_head_dim: v_head_dim.unwrap_or(0),
        flags: if latent { RKV_RUNNER_LATENT } else { 0 },
        ..rkv_runner_config::sized()
    };
    let mut bytes = 0;
    // SAFETY: a whole config.
    check(py, unsafe { rkv_runner_supports(&config, page_size, &mut bytes) })?;
    Ok(bytes)
}
