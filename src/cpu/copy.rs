//! Copies of pages.
use crate::attention::{Geometry, KvLayer, KvStrides, PageCopy};

/// A page of all layers as one piece of host memory: K and V of each in turn.
#[derive(Debug, Clone, Copy)]
pub struct PackedPage {
    /// The page.
    pub page: u32,
    /// Where the piece lies.
    pub host: *mut u8,
    /// From there to the page, or the other way.
    pub is_load: bool,
}

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

/// # Safety
/// That of [`super::CpuBackend::copy_packed`].
pub(super) unsafe fn copy_packed(
    layers: &[KvLayer<*mut u8>],
    geometry: &Geometry,
    packed: &PackedPage,
) {
    let mut host = packed.host;
    for layer in layers {
        let (k, v) = (layer.strides, layer.v_strides);
        let parts = [(layer.k, k, geometry.head_dim), (layer.v, v, geometry.v_head_dim)];
        for part in parts {
            // SAFETY: the caller's contract: the memory goes on as far as there are parts.
            host = unsafe { copy_part(part, layer.dtype.bytes(), geometry, packed, host) };
        }
    }
}

/// K or V of a page; returns where the packed memory goes on.
///
/// # Safety
/// That of [`super::CpuBackend::copy_packed`].
unsafe fn copy_part(
    (base, strides, head_dim): (*mut u8, KvStrides, usize),
    bytes: usize,
    geometry: &Geometry,
    packed: &PackedPage,
    mut host: *mut u8,
) -> *mut u8 {
    let (positions, heads) = (geometry.page_size, geometry.kv_heads);
    let is_dense = (strides.head == head_dim && strides.position == heads * head_dim)
        || (strides.position == head_dim && strides.head == positions * head_dim);
    // In the order of the memory where that has no gaps.
    let (rows, columns, row) = match is_dense {
        true => (1, 1, positions * heads * head_dim * bytes),
        false => (positions, heads, head_dim * bytes),
    };
    for position in 0..rows {
        for head in 0..columns {
            let inside = position * strides.position + head * strides.head;
            let at = (packed.page as usize * strides.page + inside) * bytes;
            // SAFETY: the page is in the layer's memory, and the rest is the caller's contract.
            unsafe {
                let page = base.add(at);
                let (from, to) = if packed.is_load { (host, page) } else { (page, host) };
                from.copy_to_nonoverlapping(to, row);
                host = host.add(row);
            }
        }
    }
    host
}
