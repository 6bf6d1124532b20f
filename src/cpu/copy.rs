//! Copies of pages.
use crate::attention::{Geometry, KvLayer, KvStrides, PageCopy};

/// # Safety
/// That of [`super::CpuBackend::copy_pages`].
pub(super) unsafe fn copy_pages(
    layers: &[KvLayer<*mut u8>],
    geometry: &Geometry,
    copies: &[PageCopy],
) {
    for layer in layers {
        for copy in copies {
            // SAFETY: the caller's contract.
            unsafe {
                let (k, v) = (layer.strides, layer.v_strides);
                copy_page((layer.k, k, geometry.head_dim), layer, geometry, copy);
                if layer.v != layer.k {
                    copy_page((layer.v, v, geometry.v_head_dim), layer, geometry, copy);
                }
            }
        }
    }
}

/// # Safety
/// That of [`super::CpuBackend::copy_pages`].
unsafe fn copy_page(
    (base, strides, head_dim): (*mut u8, KvStrides, usize),
    layer: &KvLayer<*mut u8>,
    geometry: &Geometry,
    copy: &PageCopy,
) {
    let bytes = layer.dtype.bytes();
    for position in 0..copy.positions {
        for head in 0..geometry.kv_heads {
            let inside = position * strides.position + head * strides.head;
            let at = |page: u32| (page as usize * strides.page + inside) * bytes;
            // SAFETY: both pages are in the layer's memory.
            unsafe {
                let source = base.add(at(copy.source)).cast_const();
                source.copy_to(base.add(at(copy.target)), head_dim * bytes);
            }
        }
    }
}
