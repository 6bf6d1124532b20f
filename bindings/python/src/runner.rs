//! Runners: attention over the rows of a group of layers, and the KV memory behind their pages.
use std::ffi::c_void;
use std::ptr::{null, null_mut};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::Array;
use crate::c::*;
use crate::handle::{Closable, Handle, Raw, filled, long, stream};
use crate::page_table::PageTable;
use crate::record::RunnerStats;
use crate::shape::{Shape, dtype};
use crate::status::check;

/// Attention over the rows of one group of layers of a page table, and the KV memory behind their
/// pages. A model with several groups, or with layers of several shapes, has a runner for each, and
/// they compute one plan.
///
/// layers: of the model, those that this runner computes.
/// query_heads, kv_heads, head_dim: of the model; head_dim, of Q and K, is 64, 80, 96, 112,
///     128, 192, 256, 512 or 576, on CUDA 576 with latent alone.
/// dtype: of q, k, v and out: "f32", "f16" or "bf16", or torch's, NumPy's or ml_dtypes'.
/// kv_dtype: of K and V in memory: the same, or "fp8_e4m3", or `float8_e4m3fn` of theirs.
/// kv_layout: "nhd", [page][position][head][head_dim], or "hnd", heads before positions.
/// backend, device: "cpu", or "cuda" and the number of the GPU.
/// threads: of the CPU; 0: as many as the process may use.
/// batch_invariant: a row's result has the same bits whatever else is in the batch.
/// kv_layers: the engine's memory, (k, v) of each layer in this layout, for every page of the
///     group's pool; None: memory of the runner's own. k and v are two, and layers share both
///     or neither.
/// group: the group of layers; not one of states, on CUDA not one of chunks or with sinks.
/// v_head_dim: of V and of results; None or 0: head_dim, which it is on CUDA but for 192 with 128,
///     and 576 with 512.
/// latent: V of a position is the first v_head_dim elements of its K, and memory has K alone:
///     multi-head latent attention, absorbed. v is None in every call and in kv_layers.
///
/// Tensors are taken by DLPack, `__cuda_array_interface__` or the buffer protocol, where they lie.
/// NumPy has no bf16: arrays of ml_dtypes' are taken, and integers of 16 bits as its bits.
///
/// A context manager: leaving it closes the runner. Raises InvalidArgument naming the field,
/// Unsupported, DeviceError.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct Runner {
    // Before what it stands on.
    pub handle: Closable<rkv_runner>,
    pub shape: Shape,
    /// The engine's memory.
    _kept: Raw<Vec<Array>>,
}

/// K of a layer, and V unless that is the beginning of K.
type GivenLayer<'py> = (Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

pub fn layout(name: &str) -> PyResult<u32> {
    match name {
        "nhd" => Ok(RKV_KV_LAYOUT_NHD),
        "hnd" => Ok(RKV_KV_LAYOUT_HND),
        _ => Err(PyValueError::new_err(format!("kv_layout: 'nhd' or 'hnd', not {name:?}"))),
    }
}

pub fn backend(name: &str) -> PyResult<u32> {
    match name {
        "cpu" => Ok(RKV_BACKEND_CPU),
        "cuda" => Ok(RKV_BACKEND_CUDA),
        _ => Err(PyValueError::new_err(format!("backend: 'cpu' or 'cuda', not {name:?}"))),
    }
}

#[pymethods]
impl Runner {
    #[new]
    #[pyo3(signature = (table, *, layers, query_heads, kv_heads, head_dim=128, dtype=None,
                        kv_dtype=None, kv_layout="nhd", backend="cpu", device=0, threads=0,
                        batch_invariant=false, kv_layers=None, group=0, v_head_dim=None,
                        latent=false),
           text_signature = "(table, *, layers, query_heads, kv_heads, head_dim=128, dtype=None, \
                             kv_dtype=None, kv_layout='nhd', backend='cpu', device=0, threads=0, \
                             batch_invariant=False, kv_layers=None, group=0, v_head_dim=None, \
                             latent=False)")]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        table: &Bound<'_, PageTable>,
        layers: u32,
        query_heads: u32,
        kv_heads: u32,
        head_dim: u32,
        dtype: Option<&Bound<'_, PyAny>>,
        kv_dtype: Option<&Bound<'_, PyAny>>,
        kv_layout: &str,
        backend: &str,
        device: u32,
        threads: u32,
        batch_invariant: bool,
        kv_layers: Option<Vec<GivenLayer<'_>>>,
        group: u32,
        v_head_dim: Option<u32>,
        latent: bool,
    ) -> PyResult<Self> {
        let on = table.get().handle.get(py)?;
        let dtype = dtype.map_or(Ok(RKV_DTYPE_F32), |it| self::dtype(it, "dtype"))?;
        let kv_dtype = kv_dtype.map_or(Ok(dtype), |it| self::dtype(it, "kv_dtype"))?;
        let (kv_layout, backend) = (layout(kv_layout)?, self::backend(backend)?);
        // A group that there is not is refused by the library, whatever memory comes with it.
        let pages = match table.get().groups.get(group as usize) {
            None => 0,
            Some(group) => {
                // SAFETY: a live handle.
                let pool = filled(py, |out: *mut rkv_pool_stats| unsafe {
                    rkv_page_table_read_pool_stats(on.raw(), group.pool, out)
                })?;
                pool.total_page_count + 1
            }
        };
        let shape = Shape {
            layers,
            query_heads,
            kv_heads,
            head_dim,
            v_head_dim: v_head_dim.filter(|dim| *dim != 0).unwrap_or(head_dim),
            is_latent: latent,
            dtype,
            kv_dtype,
            kv_layout,
            device: if backend == RKV_BACKEND_CPU { 0 } else { device + 1 },
            pages,
            page_size: table.get().page_size,
        };
        let (kept, memory) = engine_memory(&shape, kv_layers)?;
        let config = rkv_runner_config {
            backend,
            layer_count: layers,
            query_head_count: query_heads,
            kv_head_count: kv_heads,
            head_dim,
            dtype,
            kv_dtype,
            kv_layout,
            thread_count: threads,
            flags: (if batch_invariant { RKV_RUNNER_BATCH_INVARIANT } else { 0 })
                | (if latent { RKV_RUNNER_LATENT } else { 0 }),
            device,
            kv_layers: if memory.is_empty() { null() } else { memory.as_ptr() },
            kv_layer_size: size_of::<rkv_runner_kv_memory>(),
            group,
            v_head_dim: shape.v_head_dim,
            ..rkv_runner_config::sized()
        };
        let mut runner = null_mut();
        let call = Raw((&config, &raw mut runner));
        let status = long(py, true, || {
            let (config, runner) = call.get();
            // SAFETY: live handles; the engine's memory is kept.
            unsafe { rkv_runner_create(on.raw(), config, runner) }
        });
        check(py, status)?;
        let handle = Closable::new(Handle::new(runner));
        Ok(Runner { handle, shape, _kept: Raw(kept) })
    }

    /// Gives the runner up, and memory of its own when no array looks at it any more. The last
    /// call that runs in another thread ends it.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.handle.close(py);
    }

    /// The rkv_runner pointer, for C code in the same process. Good until the runner is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.address(py)
    }

    /// Threads, and bytes of memory.
    fn stats(&self, py: Python<'_>) -> PyResult<RunnerStats> {
        let runner = self.handle.get(py)?;
        // SAFETY: a live handle.
        filled(py, |out| unsafe { rkv_runner_read_stats(runner.raw(), out) }).map(RunnerStats)
    }

    /// Copies the first positions of pages to other pages, K and V of every layer: an array of
    /// `dtypes.page_copy`, each with the runner's group. For an engine that moves pages for reasons
    /// of its own; the copies that sequences wait for go with a step. Raises InvalidArgument naming
    /// the copy.
    fn copy_pages(&self, py: Python<'_>, copies: &Bound<'_, PyAny>) -> PyResult<()> {
        let runner = self.handle.get(py)?;
        let copies = Array::structs::<rkv_page_copy>(copies, "copies", "page_copy", false)?;
        let (from, count) = (Raw(copies.data()), copies.count);
        let status = long(py, true, || {
            let size = size_of::<rkv_page_copy>();
            // SAFETY: a live handle, `count` copies.
            unsafe { rkv_runner_copy_pages(runner.raw(), from.get(), count, size) }
        });
        check(py, status)
    }

    /// Carries out copies that `Cache.poll()` gave, between the KV memory and host memory, now;
    /// `Cache.complete()` is for the caller to call. In host memory a page is K and V of each layer
    /// in turn, `stats().page_bytes` in all: that is the page_bytes of the tiers.
    ///
    /// jobs: an array of `dtypes.copy_job`, as they came, of the runner's group.
    ///
    /// On CUDA they go on a stream of the runner's own, after what its calls put on streams before,
    /// but for graphs that were launched: wait for those. It returns when they have arrived. Pinned
    /// host memory is faster.
    ///
    /// Lets other Python threads run; no step that begins meanwhile may use the pages of loads, or
    /// write those of stores. Raises InvalidArgument naming the copy, and nothing was copied.
    fn copy_tier_pages(&self, py: Python<'_>, jobs: &Bound<'_, PyAny>) -> PyResult<()> {
        let runner = self.handle.get(py)?;
        let jobs = Array::structs::<rkv_copy_job>(jobs, "jobs", "copy_job", false)?;
        let (from, count) = (Raw(jobs.data()), jobs.count);
        let status = long(py, true, || {
            let size = size_of::<rkv_copy_job>();
            // SAFETY: a live handle, `count` copies, each to memory that the tiers have.
            unsafe { rkv_runner_copy_tier_pages(runner.raw(), from.get(), count, size) }
        });
        check(py, status)
    }
}

/// The engine's memory as the library takes it, and what keeps it.
fn engine_memory(
    shape: &Shape,
    layers: Option<Vec<GivenLayer<'_>>>,
) -> PyResult<(Vec<Array>, Vec<rkv_runner_kv_memory>)> {
    let (mut kept, mut memory) = (Vec::new(), Vec::new());
    let Some(layers) = layers else { return Ok((kept, memory)) };
    if layers.len() != shape.layers as usize {
        let message =
            format!("kv_layers: {} layers are needed, {} are there", shape.layers, layers.len());
        return Err(PyValueError::new_err(message));
    }
    for (at, (k, v)) in layers.iter().enumerate() {
        let (k, strides) = shape.kv(k, &format!("kv_layers[{at}]: k"), shape.head_dim)?;
        let name = format!("kv_layers[{at}]: v");
        if v.is_some() == shape.is_latent {
            let message = format!("{name}: None of a latent runner, and of no other");
            return Err(PyValueError::new_err(message));
        }
        let v = v.as_ref().map(|v| shape.kv(v, &name, shape.v_head_dim)).transpose()?;
        let of_v = v.as_ref().map_or(strides, |(_, strides)| *strides);
        memory.push(rkv_runner_kv_memory {
            k: k.data(),
            v: v.as_ref().map_or(null_mut(), |(v, _)| v.data()),
            page_stride: strides[0],
            position_stride: strides[1],
            head_stride: strides[2],
            v_page_stride: of_v[0],
            v_position_stride: of_v[1],
            v_head_stride: of_v[2],
        });
        kept.push(k);
        kept.extend(v.map(|(v, _)| v));
    }
    Ok((kept, memory))
}

/// The stream to work on: the caller's, or on CUDA torch's current one.
pub fn stream_of(py: Python<'_>, shape: &Shape, given: Option<usize>) -> PyResult<*mut c_void> {
    match given {
        Some(number) => Ok(stream(number)),
        None if shape.device == 0 => Ok(null_mut()),
        None => {
            let current = py.import("radixkv.streams")?.getattr("current")?;
            Ok(stream(current.call1((shape.device - 1,))?.extract()?))
        }
    }
}
