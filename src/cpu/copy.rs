//! Copies of pages.
use crate::attention::{Geometry, KvLayer, KvStrides, PackedPage, PageCopy, PositionMove};

/// Memory of a layer, its strides, and elements of a head: K, and V unless that is the beginning of
/// K.
type Part = (*mut u8, KvStrides, usize);

fn parts(layer: &KvLayer<*mut u8>, geometry: &Geometry) -> impl Iterator<Item = Part> {
    let v = (layer.v, layer.v_strides, geometry.v_head_dim);
    let own = Some(v).filter(|_| layer.v != layer.k);
    std::iter::once((layer.k, layer.strides, geometry.head_dim)).chain(own)
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
            parts(layer, geometry).for_each(|part| unsafe {
                copy_page(part, layer, geometry, copy);
            });
        }
    }
}

/// # Safety
/// That of [`super::CpuBackend::copy_pages`].
unsafe fn copy_page(
    (base, strides, head_dim): Part,
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
/// That of [`super::CpuBackend::move_positions`].
pub(super) unsafe fn move_positions(
    layers: &[KvLayer<*mut u8>],
    geometry: &Geometry,
    moves: &[PositionMove],
) {
    for layer in layers {
        for (base, strides, head_dim) in parts(layer, geometry) {
            let bytes = layer.dtype.bytes();
            for PositionMove { source, target } in moves {
                for head in 0..geometry.kv_heads {
                    let at = |(page, offset): (u32, u32)| {
                        let page = page as usize * strides.page;
                        (page + offset as usize * strides.position + head * strides.head) * bytes
                    };
                    // SAFETY: the caller's contract.
                    unsafe {
                        let source = base.add(at(*source)).cast_const();
                        source.copy_to_nonoverlapping(base.add(at(*target)), head_dim * bytes);
                    }
                }
            }
        }
    }
}

/// # Safety
/// That of [`super::CpuBackend::copy_packed`].
pub(super) unsafe fn copy_packed(
    layers: &[KvLayer<*mut u8>],
    geometry: &Geometry,
    packed: &PackedPage<*mut u8>,
) {
    let mut host = packed.host;
    for layer in layers {
        for part in parts(layer, geometry) {
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
    (base, strides, head_dim): Part,
    bytes: usize,
    geometry: &Geometry,
    packed: &PackedPage<*mut u8>,
    mut host: *mut u8,
) -> *mut u8 {
    let (positions, heads) = (geometry.page_size, geometry.kv_heads);
    let is_dense = (strides.head == head_dim && strides.position == heads * head_dim)
        || strides.is_by_head(geometry, head_dim);
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
