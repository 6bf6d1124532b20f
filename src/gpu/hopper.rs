//! attn_sm90, the kernel of Hopper's own instructions: when it is used, and the maps of KV memory
//! by which the device copies whole boxes of positions.
use super::CudaConfig;
use super::arguments::TensorMap;
use super::driver::{Context, check};
use super::shapes::{Heads, Shape, hopper_shape};
use crate::attention::{Dtype, Geometry, KvLayer, KvStrides};
use crate::error::Error;
use cudarc::driver::sys::{self, CUdevice_attribute};

/// "0" switches it off where the configuration does not say.
const SETTING: &str = "RADIXKV_ATTN_SM90";

/// Fewer positions are not worth a copy of their own, and would not begin where eight rows do.
const BOX_MIN: usize = 8;
/// Elements of a row of a box: 128 bytes.
const BOX_ELEMENTS: u32 = 64;

/// Its shape, where it can run and is not switched off.
pub(super) fn shape(
    config: &CudaConfig,
    context: &Context,
    heads: Heads,
    kv_dtype: Dtype,
) -> Result<Option<&'static Shape>, Error> {
    let is_on = || std::env::var_os(SETTING).is_none_or(|value| value != "0");
    if !config.sm90.unwrap_or_else(is_on) || !config.images.has_hopper() {
        return Ok(None);
    }
    let major =
        context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor =
        context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(hopper_shape(heads, kv_dtype).filter(|_| (major, minor) == (9, 0)))
}

/// Maps of a layer's keys and values.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Maps {
    pub k: TensorMap,
    pub v: TensorMap,
    /// 0: its pages or strides are such that there are none.
    pub box_positions: i32,
    /// Positions come before heads.
    pub position_first: bool,
}

impl Maps {
    /// Of KV memory of so many pages, for a shape's boxes. The context is current.
    pub(super) fn of(
        shape: &Shape,
        layer: &KvLayer<*mut u8>,
        geometry: &Geometry,
        page_count: usize,
    ) -> Result<Self, Error> {
        let of = |strides: &KvStrides, head_dim: usize| {
            let heads = (geometry.kv_heads, head_dim);
            Layout::of(
                shape.box_most(),
                layer.dtype,
                strides,
                heads,
                geometry.page_size,
                page_count,
            )
        };
        let Some(keys) = of(&layer.strides, geometry.head_dim) else {
            return Ok(Self::default());
        };
        let Some(k) = keys.encode(layer.k)? else {
            return Ok(Self::default());
        };
        let v = match shape.heads().latent {
            true => Some(k),
            false => match of(&layer.v_strides, geometry.v_head_dim) {
                // The order of dimensions is said once for both.
                Some(values) if values.position_first == keys.position_first => {
                    values.encode(layer.v)?
                }
                _ => None,
            },
        };
        let Some(v) = v else {
            return Ok(Self::default());
        };
        let positions = keys.boxes[1].max(keys.boxes[2]);
        Ok(Self { k, v, box_positions: positions as i32, position_first: keys.position_first })
    }
}

/// Dimensions: element; head and position of the page, the one with shorter strides first, for
/// drivers may want strides to grow; page.
#[derive(Debug)]
struct Layout {
    position_first: bool,
    extents: [u64; 4],
    /// Of the last three, in bytes.
    strides: [u64; 3],
    boxes: [u32; 4],
}

impl Layout {
    /// None where the device takes no such map.
    fn of(
        box_most: usize,
        dtype: Dtype,
        given: &KvStrides,
        (kv_heads, head_dim): (usize, usize),
        page_size: usize,
        page_count: usize,
    ) -> Option<Self> {
        let positions = 1 << page_size.trailing_zeros();
        // Fp8 is widened on its way, which no copy of boxes does.
        if positions < BOX_MIN || dtype == Dtype::Fp8E4m3 {
            return None;
        }
        let mut extents = [head_dim, kv_heads, page_size, page_count].map(|extent| extent as u64);
        let position_first = kv_heads == 1 || given.position < given.head;
        let mut given = [given.head, given.position, given.page];
        let mut boxes = [BOX_ELEMENTS, 1, positions.min(box_most) as u32, 1];
        if position_first {
            extents.swap(1, 2);
            given.swap(0, 1);
            boxes.swap(1, 2);
        }
        let mut strides = [0; 3];
        let mut before = (head_dim * dtype.bytes()) as u64;
        for ((stride, elements), extent) in strides.iter_mut().zip(given).zip(&extents[1..]) {
            let bytes = (elements as u64).checked_mul(dtype.bytes() as u64)?;
            // Where there is only one, nobody goes to the next.
            *stride = if *extent == 1 { before } else { bytes };
            before = *stride;
            if *stride == 0 || *stride >= 1 << 40 || *stride % 16 != 0 {
                return None;
            }
        }
        let fits = extents.iter().all(|extent| (1..=1 << 32).contains(extent));
        fits.then_some(Self { position_first, extents, strides, boxes })
    }

    /// None where the driver does not take these strides.
    fn encode(&self, start: *mut u8) -> Result<Option<TensorMap>, Error> {
        let mut map = TensorMap::default();
        let ones = [1u32; 4];
        // SAFETY: the map is aligned to 64 bytes and has their 128; arrays of four, and of three.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                (&raw mut map).cast(),
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
                4,
                start.cast(),
                self.extents.as_ptr(),
                self.strides.as_ptr(),
                self.boxes.as_ptr(),
                ones.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        if result == sys::CUresult::CUDA_ERROR_INVALID_VALUE {
            return Ok(None);
        }
        check(result, "cuTensorMapEncodeTiled").map(|()| Some(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(page_size: usize, strides: [usize; 3], kv_heads: usize) -> Option<Layout> {
        let [page, position, head] = strides;
        let strides = KvStrides { page, position, head };
        Layout::of(64, Dtype::Bf16, &strides, (kv_heads, 128), page_size, 100)
    }

    #[test]
    fn boxes_divide_pages() {
        let strides = [1 << 20, 1024, 128];
        for (page_size, positions) in [(8, 8), (16, 16), (24, 8), (64, 64), (96, 32), (256, 64)] {
            assert_eq!(layout(page_size, strides, 8).unwrap().boxes, [64, 1, positions, 1]);
        }
        for page_size in [1, 4, 12, 23, 250] {
            assert!(layout(page_size, strides, 8).is_none(), "{page_size}");
        }
    }

    #[test]
    fn strides_are_taken_as_they_are_or_there_is_no_map() {
        let made = layout(16, [16 * 1032, 1032, 136], 8).unwrap();
        assert_eq!(made.strides, [136 * 2, 1032 * 2, 16 * 1032 * 2]);
        assert_eq!(made.extents, [128, 8, 16, 100]);
        // Heads outside positions.
        let made = layout(16, [8 * 2048, 128, 2048], 8).unwrap();
        assert_eq!((made.position_first, made.boxes), (true, [64, 16, 1, 1]));
        assert_eq!(made.strides, [256, 4096, 32768]);
        assert_eq!(made.extents, [128, 16, 8, 100]);
        assert!(layout(16, [1 << 39, 1024, 128], 8).is_none());
        assert!(layout(16, [16 * 1024, 1024, 0], 8).is_none());
        assert_eq!(layout(16, [16 * 136, 136, 0], 1).unwrap().strides, [272, 272, 4352]);
    }
}
