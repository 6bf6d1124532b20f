//! The caller's arrays: anything with the buffer protocol (NumPy, array.array, memoryview), with
//! DLPack (torch tensors), or with CUDA's array interface, taken as it lies in memory.
use std::ffi::{CStr, c_int};

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::cuda_array::{self, Described};
use crate::dlpack::Borrowed;

/// Of `Array::device`: on a GPU, and its owner does not say on which.
pub const SOME_GPU: u32 = u32::MAX;

/// What an element is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Integer,
    Float,
    /// The upper half of a 32-bit float, of which only DLPack knows.
    Brain,
    Struct,
    Other,
}

/// Who has to be told when the array is no longer read.
enum Owner {
    Buffer(Box<ffi::Py_buffer>),
    Dlpack(Borrowed),
    Cuda(Described),
}

/// An array of somebody else, kept as it is for as long as this lives.
pub struct Array {
    owner: Owner,
    data: *mut u8,
    pub item_size: usize,
    pub kind: Kind,
    /// Elements in all.
    pub count: usize,
    pub is_dense: bool,
    /// 0 for the host, else one more than the number of the CUDA device, or SOME_GPU.
    pub device: u32,
    dimensions: usize,
}

fn kind_of(format: *const std::ffi::c_char) -> Kind {
    if format.is_null() {
        return Kind::Other;
    }
    // SAFETY: NUL-terminated, as the buffer protocol says.
    let text = unsafe { CStr::from_ptr(format) }.to_bytes();
    let text = match text {
        [b'@' | b'=' | b'<', rest @ ..] => rest,
        _ => text,
    };
    match text {
        [b'T', b'{', ..] => Kind::Struct,
        [b'b' | b'B' | b'h' | b'H' | b'i' | b'I' | b'l' | b'L' | b'q' | b'Q'] => Kind::Integer,
        [b'e' | b'f' | b'd'] => Kind::Float,
        _ => Kind::Other,
    }
}

/// Empty tensors of torch's lie nowhere, which the library would take for none that was given, and
/// an empty array.array where nothing is aligned: where one without elements lies says nothing.
fn place(data: *mut u8, count: usize) -> *mut u8 {
    let is_nowhere = data.is_null() || count == 0;
    if is_nowhere { std::ptr::NonNull::<u128>::dangling().as_ptr().cast() } else { data }
}

impl Array {
    /// An array of any shape. `name` is the argument's, for messages.
    pub fn of(object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Array> {
        // SAFETY: any object may be asked.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 1 {
            return Array::of_tensor(object, name, writable);
        }
        Array::of_buffer(object, name, writable).or_else(|refused| {
            if let Some(array) = Array::of_bits(object, name, writable)? {
                return Ok(array);
            }
            // JAX' arrays have a buffer on the host alone, and none of bf16. Not to write to:
            // DLPack would not say that they are read-only.
            let tensor = if writable { None } else { Array::of_tensor(object, name, false).ok() };
            tensor.ok_or(refused)
        })
    }

    /// Arrays of floats of ml_dtypes', by their bits: NumPy lends none of a type that it does not
    /// know.
    fn of_bits(object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Option<Array>> {
        let numpy = object.py().import("numpy")?;
        if !object.is_instance(&numpy.getattr("ndarray")?)? {
            return Ok(None);
        }
        let (bits, kind) = match object.getattr("dtype")?.str()?.to_str()? {
            "bfloat16" => ("u2", Kind::Brain),
            "float8_e4m3fn" => ("u1", Kind::Other),
            _ => return Ok(None),
        };
        let mut array = Array::of_buffer(&object.call_method1("view", (bits,))?, name, writable)?;
        array.kind = kind;
        Ok(Some(array))
    }

    fn of_tensor(object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Array> {
        let Some(borrowed) = Borrowed::of(object, name)? else {
            if let Some(described) = Described::of(object, name, writable)? {
                let count = described.shape.iter().product::<i64>() as usize;
                return Ok(Array {
                    data: place(described.data, count),
                    item_size: described.item_size,
                    kind: described.kind,
                    count,
                    is_dense: cuda_array::is_dense(&described.shape, &described.strides),
                    device: SOME_GPU,
                    dimensions: described.shape.len(),
                    owner: Owner::Cuda(described),
                });
            }
            let kind = object.get_type().name()?;
            let message = format!(
                "{name}: an array is needed (numpy, array.array, or with DLPack), not {kind}"
            );
            return Err(PyTypeError::new_err(message));
        };
        let count = borrowed.shape().iter().product::<i64>() as usize;
        Ok(Array {
            data: place(borrowed.data(), count),
            item_size: borrowed.item_size(),
            kind: borrowed.kind(),
            count,
            is_dense: borrowed.is_dense(),
            device: borrowed.device(),
            dimensions: borrowed.shape().len(),
            owner: Owner::Dlpack(borrowed),
        })
    }

    fn of_buffer(object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Array> {
        let mut view = Box::new(ffi::Py_buffer::new());
        let wanted = if writable { ffi::PyBUF_FULL } else { ffi::PyBUF_FULL_RO } as c_int;
        // SAFETY: `view` stays where it is until PyBuffer_Release.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *view, wanted) } != 0 {
            let reason = PyErr::fetch(object.py());
            let message = format!("{name}: {}", reason.value(object.py()));
            return Err(PyValueError::new_err(message));
        }
        // SAFETY: the exporter filled the view; it is asked for nothing but its form.
        let is_dense = unsafe { ffi::PyBuffer_IsContiguous(&*view, b'C' as _) } == 1;
        let item_size = view.itemsize as usize;
        // Its strides are those of pointers then.
        let is_indirect = !view.suboffsets.is_null();
        let count = (view.len as usize).checked_div(item_size).unwrap_or(0);
        let array = Array {
            data: place(view.buf.cast(), count),
            item_size,
            kind: kind_of(view.format),
            count,
            is_dense,
            device: 0,
            dimensions: view.ndim as usize,
            owner: Owner::Buffer(view),
        };
        if is_indirect {
            let message = format!("{name}: its rows lie behind pointers");
            return Err(PyValueError::new_err(message));
        }
        Ok(array)
    }

    /// The array's shape.
    pub fn shape(&self) -> Vec<i64> {
        match &self.owner {
            Owner::Dlpack(borrowed) => borrowed.shape().to_vec(),
            Owner::Cuda(described) => described.shape.clone(),
            // SAFETY: with PyBUF_FULL the exporter gives `ndim` of them.
            Owner::Buffer(view) => unsafe { list(view.shape, self.dimensions) },
        }
    }

    /// Whether it is one list: all dimensions before the last, as of a batch of one, have 1 entry.
    pub fn is_list(&self) -> bool {
        self.dimensions <= 1 || self.shape()[..self.dimensions - 1].iter().all(|count| *count == 1)
    }

    /// Elements from one entry of each dimension to the next.
    pub fn strides(&self) -> Vec<i64> {
        match &self.owner {
            Owner::Dlpack(borrowed) => borrowed.strides(),
            Owner::Cuda(described) => described.strides.clone(),
            Owner::Buffer(view) => {
                // SAFETY: as above.
                let bytes = unsafe { list(view.strides, self.dimensions) };
                // 0, which nobody takes, where it is no number of elements: of fields of packed
                // records.
                let size = self.item_size as i64;
                let whole = |stride: i64| if stride % size == 0 { stride / size } else { 0 };
                bytes.into_iter().map(whole).collect()
            }
        }
    }

    /// Where the first element lies.
    pub fn data<T>(&self) -> *mut T {
        self.data.cast()
    }

    /// Refuses an array that is on a GPU or not dense.
    pub fn on_host(self, name: &str) -> PyResult<Array> {
        if self.device != 0 {
            return Err(PyValueError::new_err(format!("{name}: must be in the host's memory")));
        }
        if !self.is_dense {
            return Err(PyValueError::new_err(format!("{name}: must be C-contiguous")));
        }
        Ok(self)
    }

    /// Refuses the same, and one whose numbers can't be read where they lie.
    pub fn readable(self, name: &str) -> PyResult<Array> {
        let array = self.on_host(name)?;
        // Structs are of numbers of 4 or 8 bytes, and whole multiples of the longest.
        let alignment = 1 << array.item_size.trailing_zeros().min(3);
        if array.data.addr().is_multiple_of(alignment) {
            return Ok(array);
        }
        Err(PyValueError::new_err(format!("{name}: must be aligned to {alignment} bytes")))
    }

    /// A dense array of integers of so many bytes.
    pub fn integers(
        object: &Bound<'_, PyAny>,
        name: &str,
        bytes: usize,
        writable: bool,
    ) -> PyResult<Array> {
        let array = Array::of(object, name, writable)?;
        if array.kind != Kind::Integer || array.item_size != bytes {
            let message = format!("{name}: an array of {}-bit integers is needed", bytes * 8);
            return Err(PyTypeError::new_err(message));
        }
        array.readable(name)
    }

    /// A dense array of 32-bit floats.
    pub fn floats(object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Array> {
        let array = Array::of(object, name, writable)?;
        if array.kind != Kind::Float || array.item_size != 4 {
            return Err(PyTypeError::new_err(format!("{name}: an array of float32 is needed")));
        }
        if !array.is_dense {
            return Err(PyValueError::new_err(format!("{name}: must be C-contiguous")));
        }
        Ok(array)
    }

    /// A dense array of structs with a layout of `radixkv.dtypes`.
    pub fn structs<T>(
        object: &Bound<'_, PyAny>,
        name: &str,
        layout: &str,
        writable: bool,
    ) -> PyResult<Array> {
        debug_assert_eq!(crate::record::layout_size(layout), size_of::<T>());
        let array = Array::of(object, name, writable)?;
        if array.kind != Kind::Struct || array.item_size != size_of::<T>() {
            let message = format!("{name}: an array of radixkv.dtypes.{layout} is needed");
            return Err(PyTypeError::new_err(message));
        }
        array.readable(name)
    }

    /// Refuses an array that has not exactly so many elements.
    pub fn exactly(self, name: &str, count: usize) -> PyResult<Array> {
        if self.count == count {
            return Ok(self);
        }
        let message = format!("{name}: {count} elements are needed, {} are there", self.count);
        Err(PyValueError::new_err(message))
    }

    /// Refuses an array that has fewer elements.
    pub fn at_least(self, name: &str, count: usize) -> PyResult<Array> {
        if self.count >= count {
            return Ok(self);
        }
        let message = format!("{name}: room for {count} is needed, there is {}", self.count);
        Err(PyValueError::new_err(message))
    }

    /// The elements of a dense array on the host.
    ///
    /// # Safety
    /// T has the size that was checked; nobody writes the array meanwhile, as for any other
    /// function of C that is given it.
    pub unsafe fn read<T>(&self) -> &[T] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: the array is kept, it is dense and on the host, the rest is promised.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.count) }
    }
}

/// # Safety
/// `from` leads to so many numbers, or to none with 0.
unsafe fn list(from: *const ffi::Py_ssize_t, count: usize) -> Vec<i64> {
    // SAFETY: as promised.
    (0..count).map(|at| unsafe { *from.add(at) } as i64).collect()
}

impl Drop for Array {
    fn drop(&mut self) {
        if let Owner::Buffer(view) = &mut self.owner {
            // SAFETY: filled by PyObject_GetBuffer, released once; arrays are dropped by functions
            // that Python called, with the interpreter's lock.
            unsafe { ffi::PyBuffer_Release(&mut **view) }
        }
    }
}

/// An optional array of the caller's to write to: its start and its room, (null, 0) without.
pub fn output(array: &Option<Array>) -> (*mut u32, usize) {
    array.as_ref().map_or((std::ptr::null_mut(), 0), |array| (array.data(), array.count))
}

/// Of what no integers can be made of: one out of range, or no number at all. `name` is the
/// argument's.
pub fn no_numbers(py: Python<'_>, name: &str, reason: &PyErr) -> PyErr {
    let message = format!("{name}: {}", reason.value(py));
    match reason.is_instance_of::<PyOverflowError>(py) {
        true => PyOverflowError::new_err(message),
        false => PyTypeError::new_err(message),
    }
}

/// NumPy's `empty(count, dtype)`, for the calls that make an array for their result.
pub fn empty<'py>(py: Python<'py>, count: usize, kind: &str) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: pyo3::sync::PyOnceLock<Py<PyAny>> = pyo3::sync::PyOnceLock::new();
    let empty = EMPTY.get_or_try_init(py, || {
        PyResult::Ok(py.import("radixkv.dtypes")?.getattr("empty")?.unbind())
    })?;
    empty.bind(py).call1((count, kind))
}
