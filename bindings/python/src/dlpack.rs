//! DLPack: tensors of other libraries without a copy, in and out.
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::Kind;
use crate::cuda_array::{dense, is_dense};

// The codes of https://dmlc.github.io/dlpack/latest/c_api.html.
const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const INT: u8 = 0;
pub const UINT: u8 = 1;
pub const FLOAT: u8 = 2;
pub const BFLOAT: u8 = 4;
const NAME: &std::ffi::CStr = c"dltensor";
const USED: &std::ffi::CStr = c"used_dltensor";

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// A tensor that another library lent.
pub struct Borrowed(*mut Managed);

impl Borrowed {
    /// None for an object that has no DLPack.
    pub fn of(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<Self>> {
        let py = object.py();
        let Ok(method) = object.getattr(intern!(py, "__dlpack__")) else { return Ok(None) };
        // Without a version: that form has no flag for read-only arrays, which are refused then.
        // Stream -1: the caller says on which stream to work, nothing is to wait for another.
        let device = object.call_method0(intern!(py, "__dlpack_device__"));
        let is_cuda = device.and_then(|it| it.extract::<(i32, i32)>()).is_ok_and(|it| it.0 == CUDA);
        let asked = if is_cuda {
            let arguments = PyDict::new(py);
            arguments.set_item("stream", -1)?;
            method.call((), Some(&arguments))
        } else {
            method.call0()
        };
        let refused = |e: PyErr| PyValueError::new_err(format!("{name}: {}", e.value(py)));
        let capsule = asked.map_err(refused)?;
        // SAFETY: a capsule with this name holds this struct. It is marked as used, so that its
        // own destructor leaves the tensor to us.
        let managed = unsafe {
            let managed = ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr());
            if managed.is_null() {
                return Err(PyErr::fetch(py));
            }
            ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr());
            managed.cast::<Managed>()
        };
        let borrowed = Borrowed(managed);
        let Tensor { device, bits, lanes, .. } = *borrowed.tensor();
        if !matches!(device.kind, CPU | CUDA | CUDA_HOST) {
            return Err(PyValueError::new_err(format!("{name}: neither on the host nor on CUDA")));
        }
        // Two elements in a byte have no size of their own here: they would count as nothing.
        if lanes != 1 || bits == 0 || !bits.is_multiple_of(8) {
            let message = format!("{name}: elements of {lanes} * {bits} bits, not of whole bytes");
            return Err(PyValueError::new_err(message));
        }
        Ok(Some(borrowed))
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: ours until the deleter is called.
        unsafe { &(*self.0).tensor }
    }

    pub fn data(&self) -> *mut u8 {
        self.tensor().data.cast::<u8>().wrapping_add(self.tensor().byte_offset as usize)
    }

    pub fn item_size(&self) -> usize {
        usize::from(self.tensor().bits) / 8
    }

    pub fn kind(&self) -> Kind {
        match self.tensor().code {
            INT | UINT => Kind::Integer,
            FLOAT => Kind::Float,
            BFLOAT => Kind::Brain,
            _ => Kind::Other,
        }
    }

    pub fn device(&self) -> u32 {
        let device = self.tensor().device;
        if device.kind == CUDA { device.number as u32 + 1 } else { 0 }
    }

    pub fn shape(&self) -> &[i64] {
        let tensor = self.tensor();
        if tensor.dimensions == 0 {
            return &[];
        }
        // SAFETY: a tensor has an extent for each dimension.
        unsafe { std::slice::from_raw_parts(tensor.shape, tensor.dimensions as usize) }
    }

    pub fn strides(&self) -> Vec<i64> {
        let tensor = self.tensor();
        if !tensor.strides.is_null() {
            let count = tensor.dimensions as usize;
            // SAFETY: and a stride for each, unless there are none at all.
            return unsafe { std::slice::from_raw_parts(tensor.strides, count) }.to_vec();
        }
        dense(self.shape())
    }

    pub fn is_dense(&self) -> bool {
        is_dense(self.shape(), &self.strides())
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: the tensor was handed over with the capsule; this is its one end.
        unsafe {
            if let Some(delete) = (*self.0).deleter {
                delete(self.0);
            }
        }
    }
}

/// Memory of a runner that other libraries may look at.
pub struct Lent {
    pub data: *mut c_void,
    /// None for the host, else the number of the CUDA device.
    pub cuda: Option<i32>,
    pub code: u8,
    pub bits: u8,
    pub shape: [i64; 4],
    pub strides: [i64; 4],
}

/// What a lent tensor's deleter frees.
struct Context {
    managed: Managed,
    shape: [i64; 4],
    strides: [i64; 4],
    /// Keeps the memory.
    _owner: Box<dyn Send + Sync>,
}

impl Lent {
    pub fn device(&self) -> (i32, i32) {
        self.cuda.map_or((CPU, 0), |number| (CUDA, number))
    }

    /// A capsule as `__dlpack__()` returns it; `owner` keeps the memory until it is let go of.
    pub fn capsule<'py>(
        &self,
        py: Python<'py>,
        owner: Box<dyn Send + Sync>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (kind, number) = self.device();
        let tensor = Tensor {
            data: self.data,
            device: Device { kind, number },
            dimensions: 4,
            code: self.code,
            bits: self.bits,
            lanes: 1,
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let managed = Managed { tensor, context: null_mut(), deleter: Some(delete) };
        let (shape, strides) = (self.shape, self.strides);
        let context = Box::into_raw(Box::new(Context { managed, shape, strides, _owner: owner }));
        // SAFETY: a struct of our own; the capsule takes it over, or it is freed here.
        unsafe {
            (*context).managed.context = context.cast();
            (*context).managed.tensor.shape = (*context).shape.as_mut_ptr();
            (*context).managed.tensor.strides = (*context).strides.as_mut_ptr();
            let managed = &raw mut (*context).managed;
            let capsule = ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(unused));
            if capsule.is_null() {
                delete(managed);
                return Err(PyBufferError::new_err("no memory for the capsule"));
            }
            Ok(Bound::from_owned_ptr(py, capsule))
        }
    }
}

/// Frees what `Lent::capsule` made.
///
/// # Safety
/// Called once, by whoever took the tensor.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: `context` is the box that holds it.
    unsafe { drop(Box::from_raw((*managed).context.cast::<Context>())) }
}

/// The destructor of a capsule that nobody may have taken.
///
/// # Safety
/// Called by Python, with a capsule of ours.
unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
    let name: *const c_char = NAME.as_ptr();
    // SAFETY: the name tells whether the tensor was taken.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name) == 1 as c_int {
            delete(ffi::PyCapsule_GetPointer(capsule, name).cast());
        }
    }
}
