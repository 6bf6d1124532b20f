//! `__cuda_array_interface__`: memory of a GPU of libraries that have no DLPack, such as Numba's.
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::Kind;

/// An array on a GPU, as its owner describes it; it does not say on which.
pub struct Described {
    pub data: *mut u8,
    pub item_size: usize,
    pub kind: Kind,
    pub shape: Vec<i64>,
    /// In elements.
    pub strides: Vec<i64>,
    /// Keeps the memory.
    _owner: Py<PyAny>,
}

impl Described {
    /// None for an object that has no such interface. The caller says on which stream to work:
    /// that in the description is not waited for, as with DLPack.
    pub fn of(object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Option<Self>> {
        let py = object.py();
        let Ok(found) = object.getattr(intern!(py, "__cuda_array_interface__")) else {
            return Ok(None);
        };
        let refused = |what: &str| PyValueError::new_err(format!("{name}: {what}"));
        let found = found.cast_into::<PyDict>()?;
        let entry = |key: &str| {
            let missing = || refused(&format!("__cuda_array_interface__ has no {key}"));
            found.get_item(key)?.ok_or_else(missing)
        };
        let (address, read_only) = entry("data")?.extract::<(usize, bool)>()?;
        if read_only && writable {
            return Err(refused("must be writable"));
        }
        let shape = entry("shape")?.extract::<Vec<i64>>()?;
        let form = entry("typestr")?.extract::<String>()?;
        let (kind, item_size) =
            element(&form).ok_or_else(|| refused("elements of no such kind"))?;
        let strides = match found.get_item("strides")?.filter(|it| !it.is_none()) {
            Some(bytes) => elements(&bytes.extract::<Vec<i64>>()?, item_size as i64)
                .filter(|it| it.len() == shape.len())
                .ok_or_else(|| refused("strides that are no elements"))?,
            None => dense(&shape),
        };
        let data = address as *mut u8;
        let owner = object.clone().unbind();
        Ok(Some(Described { data, item_size, kind, shape, strides, _owner: owner }))
    }
}

/// The kind and the bytes of an element by its name, such as `<f2`.
fn element(form: &str) -> Option<(Kind, usize)> {
    let mut letters = form.chars();
    let kind = match (letters.next()?, letters.next()?) {
        ('<' | '|' | '=', 'i' | 'u') => Kind::Integer,
        ('<' | '|' | '=', 'f') => Kind::Float,
        ('<' | '|' | '=', _) => Kind::Other,
        _ => return None,
    };
    Some((kind, letters.as_str().parse().ok().filter(|size| *size > 0)?))
}

fn elements(bytes: &[i64], size: i64) -> Option<Vec<i64>> {
    bytes.iter().map(|stride| (stride % size == 0).then_some(stride / size)).collect()
}

/// Strides of elements one after another.
pub fn dense(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for at in (1..strides.len()).rev() {
        strides[at - 1] = strides[at] * shape[at];
    }
    strides
}

/// Whether the elements lie one after another.
pub fn is_dense(shape: &[i64], strides: &[i64]) -> bool {
    let mut entries = shape.iter().zip(strides).zip(dense(shape));
    entries.all(|((extent, stride), next)| *extent <= 1 || *stride == next)
}
