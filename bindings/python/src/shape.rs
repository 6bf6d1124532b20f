//! The shapes of a runner: what its tensors must look like.
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::array::{Array, Kind, SOME_GPU};
use crate::c::*;

/// RKV_DTYPE_ of a name: "f32", "float32", what str() makes of torch's and of NumPy's, or that of a
/// class, as NumPy's scalars and those of ml_dtypes are.
pub fn dtype(object: &Bound<'_, PyAny>, name: &str) -> PyResult<u32> {
    let text = match object.cast::<PyType>() {
        Ok(class) => class.name()?.to_string(),
        Err(_) => object.str()?.to_string(),
    };
    match text.trim_start_matches("torch.") {
        "f32" | "float32" => Ok(RKV_DTYPE_F32),
        "f16" | "float16" => Ok(RKV_DTYPE_F16),
        "bf16" | "bfloat16" => Ok(RKV_DTYPE_BF16),
        "fp8_e4m3" | "float8_e4m3fn" => Ok(RKV_DTYPE_FP8_E4M3),
        _ => {
            // What is in memory alone may be shorter.
            let more = if name == "kv_dtype" { ", 'fp8_e4m3'" } else { "" };
            let message = format!("{name}: 'float32', 'float16', 'bfloat16'{more}, not {text:?}");
            Err(PyValueError::new_err(message))
        }
    }
}

/// Bytes of an element.
pub fn bytes(dtype: u32) -> usize {
    match dtype {
        RKV_DTYPE_F32 => 4,
        RKV_DTYPE_FP8_E4M3 => 1,
        _ => 2,
    }
}

/// Integers of the right size are taken as the bits of floats that NumPy does not know.
fn is_of(array: &Array, dtype: u32) -> bool {
    let size = array.item_size == bytes(dtype);
    match dtype {
        RKV_DTYPE_F32 => size && array.kind == Kind::Float,
        RKV_DTYPE_F16 => size && matches!(array.kind, Kind::Float | Kind::Integer),
        RKV_DTYPE_BF16 => size && matches!(array.kind, Kind::Brain | Kind::Integer),
        _ => size,
    }
}

/// What a runner was made with.
pub struct Shape {
    pub layers: u32,
    pub query_heads: u32,
    pub kv_heads: u32,
    /// Of Q and K.
    pub head_dim: u32,
    /// Of V and of results.
    pub v_head_dim: u32,
    /// V is the beginning of K.
    pub is_latent: bool,
    pub dtype: u32,
    pub kv_dtype: u32,
    pub kv_layout: u32,
    /// 0 for the CPU, else one more than the number of the GPU.
    pub device: u32,
    /// Pages of the group's pool, the reserved one included.
    pub pages: u64,
    pub page_size: u32,
}

impl Shape {
    /// Heads of q, and elements of each.
    pub fn q(&self) -> (u32, u32) {
        (self.query_heads, self.head_dim)
    }

    /// Likewise of k.
    pub fn k(&self) -> (u32, u32) {
        (self.kv_heads, self.head_dim)
    }

    /// Likewise of v.
    pub fn v(&self) -> (u32, u32) {
        (self.kv_heads, self.v_head_dim)
    }

    /// Likewise of results.
    pub fn out(&self) -> (u32, u32) {
        (self.query_heads, self.v_head_dim)
    }

    /// Refuses a tensor on another device.
    pub fn same_device(&self, array: &Array, name: &str) -> PyResult<()> {
        // An owner that does not say on which GPU it is has to mean the right one.
        let here = array.device == SOME_GPU && self.device != 0;
        if here || array.device == self.device {
            return Ok(());
        }
        let place = match self.device {
            0 => "the host's memory".to_owned(),
            device => format!("CUDA device {}", device - 1),
        };
        Err(PyValueError::new_err(format!("{name}: must be in {place}")))
    }

    /// A tensor of [positions][heads][dim], with dense elements of a head. Returns it with the
    /// strides of positions and heads.
    pub fn tensor(
        &self,
        object: &Bound<'_, PyAny>,
        name: &str,
        (heads, dim): (u32, u32),
        writable: bool,
    ) -> PyResult<(Array, u64, u64)> {
        let array = Array::of(object, name, writable)?;
        if !is_of(&array, self.dtype) {
            let message = format!("{name}: elements of another type than the runner's");
            return Err(PyTypeError::new_err(message));
        }
        self.same_device(&array, name)?;
        let (shape, strides) = (array.shape(), array.strides());
        let (heads, dim) = (i64::from(heads), i64::from(dim));
        if shape.len() != 3 || shape[1..] != [heads, dim] {
            let message =
                format!("{name}: a shape of (positions, {heads}, {dim}) is needed, not {shape:?}");
            return Err(PyValueError::new_err(message));
        }
        // Of what there is one or none, the stride says nothing.
        let stride = |at: usize, dense: i64| if shape[at] <= 1 { dense } else { strides[at] };
        let (position, head) = (stride(0, heads * dim), stride(1, dim));
        if stride(2, 1) != 1 {
            let message = format!("{name}: the elements of a head must lie side by side");
            return Err(PyValueError::new_err(message));
        }
        // 0 would mean "dense" to the library, not a tensor that was broadcast.
        if position <= 0 || head <= 0 {
            let message = format!("{name}: positions and heads must lie one behind the other");
            return Err(PyValueError::new_err(message));
        }
        Ok((array, position as u64, head as u64))
    }

    /// K or V of a layer in the engine's memory: [page][position][head][dim], or with heads before
    /// positions. Returns it with the strides of pages, positions and heads.
    pub fn kv(
        &self,
        object: &Bound<'_, PyAny>,
        name: &str,
        dim: u32,
    ) -> PyResult<(Array, [u64; 3])> {
        let array = Array::of(object, name, true)?;
        if !is_of(&array, self.kv_dtype) {
            let message = format!("{name}: elements of another type than kv_dtype");
            return Err(PyTypeError::new_err(message));
        }
        self.same_device(&array, name)?;
        let (shape, strides) = (array.shape(), array.strides());
        let (heads, size) = (i64::from(self.kv_heads), i64::from(self.page_size));
        let inner = match self.kv_layout {
            RKV_KV_LAYOUT_NHD => [size, heads, i64::from(dim)],
            _ => [heads, size, i64::from(dim)],
        };
        let pages = self.pages as i64;
        if shape.len() != 4 || shape[1..] != inner || shape[0] < pages {
            let message = format!(
                "{name}: a shape of ({pages}, {}, {}, {}) is needed, not {shape:?}",
                inner[0], inner[1], inner[2]
            );
            return Err(PyValueError::new_err(message));
        }
        // Of what there is one, the stride says nothing: torch lends 1 there, NumPy 0.
        let dense = [inner[0] * inner[1] * inner[2], inner[1] * inner[2], inner[2], 1];
        let strides: [i64; 4] =
            std::array::from_fn(|at| if shape[at] <= 1 { dense[at] } else { strides[at] });
        if strides[3] != 1 {
            let message = format!("{name}: the elements of a head must lie side by side");
            return Err(PyValueError::new_err(message));
        }
        if strides.iter().any(|stride| *stride <= 0) {
            let message =
                format!("{name}: pages, positions and heads must lie one behind the other");
            return Err(PyValueError::new_err(message));
        }
        let (position, head) = match self.kv_layout {
            RKV_KV_LAYOUT_NHD => (strides[1], strides[2]),
            _ => (strides[2], strides[1]),
        };
        Ok((array, [strides[0], position, head].map(|stride| stride as u64)))
    }
}
