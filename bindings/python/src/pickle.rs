//! Values that pickle and copy make anew.
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// What `__reduce__()` gives: a call that takes the class, and the class.
pub type Remade<'py> = (Bound<'py, PyAny>, (Bound<'py, PyType>,));

/// To be made by a method of the class: `call` is its name and its arguments. Static methods of
/// such classes can't be pickled themselves, they don't know where they are.
pub fn by_method<'py>(
    this: &Bound<'py, PyAny>,
    call: impl PyCallArgs<'py>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Remade<'py>> {
    let caller = this.py().import("operator")?.getattr("methodcaller")?;
    Ok((caller.call(call, named)?, (this.get_type(),)))
}
