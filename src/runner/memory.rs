//! Where K and V lie: memory of the runner's own, or the engine's.
use super::RunnerConfig;
use super::backend::Backend;
use crate::attention::{Geometry, KvLayer, KvStrides};
use crate::cpu::HostMemory;
use crate::error::Error;
use crate::error::text;
use crate::gpu::DeviceMemory;
use crate::memory::{TryGrow, try_collect};

/// K and V of one layer.
#[derive(Debug, Clone, Copy)]
pub struct KvPointers {
    /// K of page 0.
    pub k: *mut u8,
    /// V of page 0.
    pub v: *mut u8,
    /// Of K, in elements.
    pub strides: KvStrides,
    /// Of V.
    pub v_strides: KvStrides,
}

/// Each layer's part begins in a cache line of its own.
const ALIGNMENT: usize = 64;

/// Memory of the runner's own.
#[derive(Debug)]
enum Own {
    Host(HostMemory),
    Device(DeviceMemory),
}

impl Own {
    fn new(bytes: usize, backend: &Backend) -> Result<Self, Error> {
        match backend {
            Backend::Cpu(_) => HostMemory::new(bytes).map(Self::Host),
            Backend::Cuda(cuda) => cuda.allocate(bytes).map(Self::Device),
        }
    }

    fn start(&self) -> *mut u8 {
        match self {
            Self::Host(host) => host.address(),
            Self::Device(device) => device.address(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Host(host) => host.bytes(),
            Self::Device(device) => device.bytes(),
        }
    }
}

/// K and V of every layer.
#[derive(Debug)]
pub(super) struct KvMemory {
    layers: Vec<KvLayer<*mut u8>>,
    /// Those of them that are memory of their own: the engine's layers may share theirs.
    apart: Vec<KvLayer<*mut u8>>,
    page_count: usize,
    own: Option<Own>,
}
// SAFETY: the pointers lead to memory that lives as long as this does, or as the engine promised;
// who may access which part of it when is the callers' business, see `Runner`.
unsafe impl Send for KvMemory {}
// SAFETY: as above.
unsafe impl Sync for KvMemory {}

impl KvMemory {
    /// Memory of its own, zeroed: K of all pages, then V, layer after layer. Latent V has none.
    pub(super) fn allocate(
        config: &RunnerConfig,
        geometry: &Geometry,
        pages: usize,
        backend: &Backend,
    ) -> Result<Self, Error> {
        let dense = |head_dim| KvStrides::dense(config.kv_layout, geometry, head_dim);
        let strides = dense(geometry.head_dim)?;
        let v_strides = if config.latent { strides } else { dense(geometry.v_head_dim)? };
        let bytes = |strides: &KvStrides, head_dim| {
            span(strides, geometry, head_dim, pages)?
                .checked_mul(config.kv_dtype.bytes())?
                .checked_next_multiple_of(ALIGNMENT)
        };
        let of_layer = bytes(&strides, geometry.head_dim).and_then(|k| match config.latent {
            true => Some((0, k)),
            false => Some((k, k.checked_add(bytes(&v_strides, geometry.v_head_dim)?)?)),
        });
        let total = of_layer.and_then(|(_, both)| both.checked_mul(config.layers));
        let (Some((to_v, both)), Some(total)) = (of_layer, total) else {
            return Err(Error::memory("KV: config.layer_count and the pages"));
        };
        let own = Own::new(total, backend)?;
        let part = |at: usize| own.start().wrapping_add(at);
        let layers = try_collect((0..config.layers).map(|layer| KvLayer {
            k: part(layer * both),
            v: part(layer * both + to_v),
            strides,
            v_strides,
            dtype: config.kv_dtype,
        }))?;
        Self::over(layers, pages, Some(own))
    }

    /// The engine's memory.
    pub(super) fn borrow(
        config: &RunnerConfig,
        geometry: &Geometry,
        pages: usize,
        backend: &Backend,
        given: &[KvPointers],
    ) -> Result<Self, Error> {
        if given.len() != config.layers {
            // Layers are counted by the config, and copied by the list.
            let (count, layers) = (given.len(), config.layers);
            return Err(Error::argument(text!("kv_layers: {count} for layer_count {layers}")));
        }
        let size = config.kv_dtype.bytes();
        let mut layers = Vec::new();
        for (at, layer) in given.iter().enumerate() {
            let wrong = |what: &str| Err(Error::argument(text!("kv_layers[{at}]{what}")));
            if config.latent && !layer.v.is_null() {
                return wrong(".v is not NULL, with V in K");
            }
            let latent = KvPointers { v: layer.k, v_strides: layer.strides, ..*layer };
            let layer = if config.latent { &latent } else { layer };
            for (pointer, name) in [(layer.k, "k"), (layer.v, "v")] {
                if pointer.is_null() {
                    return wrong(&text!(".{name} is NULL"));
                }
                if !pointer.addr().is_multiple_of(size) {
                    return wrong(&text!(".{name} is not aligned for its dtype"));
                }
            }
            let KvPointers { k, v, strides, v_strides } = *layer;
            // What copies pages asks the config whether V is in K.
            if v == k && !config.latent {
                return wrong(".v is k, which takes RKV_RUNNER_LATENT");
            }
            for (strides, head_dim, name) in
                [(&strides, geometry.head_dim, "k"), (&v_strides, geometry.v_head_dim, "v")]
            {
                let elements = span(strides, geometry, head_dim, pages);
                let bytes = elements.and_then(|elements| elements.checked_mul(size));
                if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
                    let what = "two elements share a place, or its strides are out of range";
                    return wrong(&text!(".{name}: {what}"));
                }
            }
            let layer = KvLayer { k, v, strides, v_strides, dtype: config.kv_dtype };
            if let Backend::Cuda(cuda) = backend {
                cuda.check_layer(&layer, &text!("kv_layers[{at}]"))?;
            }
            layers.try_push(layer)?;
        }
        Self::over(layers, pages, None)
    }

    fn over(
        layers: Vec<KvLayer<*mut u8>>,
        page_count: usize,
        own: Option<Own>,
    ) -> Result<Self, Error> {
        let mut apart: Vec<KvLayer<*mut u8>> = Vec::new();
        for (at, layer) in layers.iter().enumerate() {
            let meets = |other: &&KvLayer<*mut u8>| {
                [other.k, other.v].iter().any(|part| [layer.k, layer.v].contains(part))
            };
            match apart.iter().find(meets) {
                None => apart.try_push(*layer)?,
                Some(other) if (other.k, other.v) == (layer.k, layer.v) => {}
                // What is done once for each memory would be done twice for that part.
                Some(_) => {
                    return Err(Error::argument(text!(
                        "kv_layers[{at}] is in part another layer's: k and v may both be, or \
                         neither"
                    )));
                }
            }
        }
        Ok(Self { layers, apart, page_count, own })
    }

    pub(super) fn layer(&self, at: usize) -> &KvLayer<*mut u8> {
        &self.layers[at]
    }

    pub(super) fn layers(&self) -> &[KvLayer<*mut u8>] {
        &self.layers
    }

    /// The layers, without those whose memory is an earlier one's: for what may be done once alone.
    pub(super) fn layers_apart(&self) -> &[KvLayer<*mut u8>] {
        &self.apart
    }

    pub(super) fn page_count(&self) -> usize {
        self.page_count
    }

    pub(super) fn own_bytes(&self) -> usize {
        self.own.as_ref().map_or(0, Own::bytes)
    }

    pub(super) fn pointers(&self, layer: usize) -> KvPointers {
        let KvLayer { k, v, strides, v_strides, .. } = self.layers[layer];
        KvPointers { k, v, strides, v_strides }
    }
}

/// Elements from the first to the last of K or V; None when two of them would share a place.
fn span(strides: &KvStrides, geometry: &Geometry, head_dim: usize, pages: usize) -> Option<usize> {
    super::compute::span(
        head_dim,
        [
            (strides.page, pages),
            (strides.position, geometry.page_size),
            (strides.head, geometry.kv_heads),
        ],
    )
}
