//! A request's row, with one group of layers or with several.
use pyo3::prelude::*;

use crate::engine_row::EngineRow;
use crate::group_row::GroupRow;
use crate::growing_row::GrowingRow;

/// A request's row.
pub enum Row<'py> {
    One(Bound<'py, GrowingRow>),
    Several(Bound<'py, GroupRow>),
}

impl<'py> Row<'py> {
    pub fn of(row: Bound<'py, PyAny>) -> PyResult<Self> {
        // A cast that fails takes longer than one that does not.
        if row.is_exact_instance_of::<GrowingRow>() {
            Ok(Row::One(row.cast_into()?))
        } else {
            Ok(Row::Several(row.cast_into()?))
        }
    }
}

/// Does the same with either kind of row.
macro_rules! with {
    ($row:expr, $of:ident => $what:expr) => {
        match $row {
            Row::One($of) => $what,
            Row::Several($of) => $what,
        }
    };
}
pub(crate) use with;

pub fn published<R: EngineRow>(py: Python<'_>, row: &R) -> PyResult<usize> {
    Ok(R::published(&*row.state(py)?))
}

pub fn is_late<R: EngineRow>(py: Python<'_>, row: &R) -> PyResult<bool> {
    Ok(R::is_late(&*row.state(py)?))
}

/// Ends the time in which a row keeps its pages to itself; whether there was one.
pub fn end_late<R: EngineRow>(py: Python<'_>, row: &R) -> PyResult<bool> {
    let mut state = row.state(py)?;
    let was_late = R::is_late(&state);
    R::end_late(&mut state);
    Ok(was_late)
}

pub fn release<R: EngineRow>(py: Python<'_>, row: &R) -> PyResult<()> {
    row.let_go(py, &mut *row.state(py)?)
}
