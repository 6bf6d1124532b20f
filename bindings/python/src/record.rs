//! What calls fill in, as Python objects, and as layouts of arrays.
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::c::*;
use crate::pickle::{self, Remade};

/// A struct of C whose values lie in arrays.
pub struct Layout {
    name: &'static str,
    size: usize,
    /// Name, NumPy's name of the type, offset.
    fields: &'static [(&'static str, &'static str, usize)],
}

include!(concat!(env!("OUT_DIR"), "/records.rs"));

/// The size in bytes of an element with this layout.
pub fn layout_size(name: &str) -> usize {
    LAYOUTS.iter().find(|layout| layout.name == name).expect("a layout of the header").size
}

/// The layouts of structs in arrays by name, as dicts that `numpy.dtype()` takes.
#[pyfunction]
pub fn layouts(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let found = PyDict::new(py);
    for layout in LAYOUTS {
        let entry = PyDict::new(py);
        entry.set_item("names", PyList::new(py, layout.fields.iter().map(|field| field.0))?)?;
        entry.set_item("formats", PyList::new(py, layout.fields.iter().map(|field| field.1))?)?;
        entry.set_item("offsets", PyList::new(py, layout.fields.iter().map(|field| field.2))?)?;
        entry.set_item("itemsize", layout.size)?;
        found.set_item(layout.name, entry)?;
    }
    Ok(found)
}
