//! Plans: what one step computes.
use std::ptr::{null, null_mut};
use std::sync::{PoisonError, RwLock};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::array::{Array, no_numbers};
use crate::c::*;
use crate::handle::{Closable, Handle, Raw, long};
use crate::page_table::PageTable;
use crate::status::check;

/// What one step computes: new positions of any mix of rows, prefill chunks and decodes alike. Made
/// once and set anew for each step. An engine with kernels of its own reads its arrays, a Runner
/// over the same table computes it.
///
/// A context manager: leaving it closes the plan. Raises Unsupported with an external pool.
#[pyclass(frozen, weakref, module = "radixkv")]
pub struct Plan {
    pub handle: Closable<rkv_plan>,
    /// Setting takes it alone, so that nobody computes or reads arrays of another size than it
    /// looked at. Taken and let go of without the interpreter's lock.
    pub turn: RwLock<()>,
}

/// Regions of a row: the caller's array, or a copy of pairs, as `Tokens.regions()` has them.
enum Regions {
    Array(Array),
    Pairs(Vec<rkv_region>),
}

impl Regions {
    fn count(&self) -> usize {
        match self {
            Regions::Array(array) => array.count / 2,
            Regions::Pairs(pairs) => pairs.len(),
        }
    }

    fn data(&self) -> *const rkv_region {
        match self {
            _ if self.count() == 0 => null(),
            Regions::Array(array) => array.data(),
            Regions::Pairs(pairs) => pairs.as_ptr(),
        }
    }
}

/// The rows' regions: a list with None, pairs or an (n, 2) array of 64-bit positions for each.
fn regions(list: Option<&Bound<'_, PyList>>, count: usize) -> PyResult<Vec<Option<Regions>>> {
    let Some(list) = list else { return Ok(Vec::new()) };
    if list.len() != count {
        let message = format!("regions: {count} are needed, {} are there", list.len());
        return Err(PyValueError::new_err(message));
    }
    let one = |(at, item): (usize, Bound<'_, PyAny>)| {
        if item.is_none() {
            return Ok(None);
        }
        let name = format!("regions[{at}]");
        if item.is_instance_of::<PyList>() || item.is_instance_of::<PyTuple>() {
            let pairs: Vec<[u64; 2]> =
                item.extract().map_err(|reason| no_numbers(item.py(), &name, &reason))?;
            let region = |[start, end]: [u64; 2]| rkv_region { start, end };
            return Ok(Some(Regions::Pairs(pairs.into_iter().map(region).collect())));
        }
        // NumPy makes one of floats of a list without any.
        if Array::of(&item, &name, false)?.count == 0 {
            return Ok(None);
        }
        let array = Array::integers(&item, &name, 8, false)?;
        match array.shape()[..] {
            [_, 2] => Ok(Some(Regions::Array(array))),
            _ => Err(PyValueError::new_err(format!("{name}: an array of (n, 2) is needed"))),
        }
    };
    list.iter().take(count).enumerate().map(one).collect()
}

/// The rows' tree masks: a list with None or an array of 64-bit masks for each.
fn trees(list: Option<&Bound<'_, PyList>>, count: usize) -> PyResult<Vec<Option<Array>>> {
    let Some(list) = list else { return Ok(Vec::new()) };
    if list.len() != count {
        let message = format!("tree_masks: {count} are needed, {} are there", list.len());
        return Err(PyValueError::new_err(message));
    }
    let one = |(at, item): (usize, Bound<'_, PyAny>)| match item.is_none() {
        true => Ok(None),
        false => Array::integers(&item, &format!("tree_masks[{at}]"), 8, false).map(Some),
    };
    list.iter().take(count).enumerate().map(one).collect()
}

#[pymethods]
impl Plan {
    #[new]
    fn new(py: Python<'_>, table: &Bound<'_, PageTable>) -> PyResult<Self> {
        let table = table.get().handle.get(py)?;
        let mut plan = null_mut();
        // SAFETY: a live handle.
        check(py, unsafe { rkv_plan_create(table.raw(), &mut plan) })?;
        Ok(Plan { handle: Closable::new(Handle::new(plan)), turn: RwLock::new(()) })
    }

    /// Gives the plan up, and what runners keep with it. The last call that runs in another thread
    /// ends it.
    fn close(&self, py: Python<'_>) {
        self.handle.close(py);
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.handle.close(py);
    }

    /// The rkv_plan pointer, for C code in the same process. Good until the plan is closed.
    #[getter]
    fn handle(&self, py: Python<'_>) -> PyResult<usize> {
        self.handle.address(py)
    }

    /// Sets what the next step computes, for n rows in the order in which q, k, v and out hold
    /// their new positions.
    ///
    /// sequences: an array of n 64-bit ids; None with `slots`.
    /// starts: n 64-bit integers, the first new position of each.
    /// counts: n 64-bit integers, new positions of each; None: one each, a step of decoding.
    /// slots: n 32-bit integers, for rows of the page table that are no sequence's.
    /// regions: a list with None, what `Tokens.regions()` returns, or an (m, 2) array of 64-bit
    ///     positions for each row: what attends in both directions.
    /// tree_masks: a list with None or, for each row, an array of a 64-bit mask for each of its new
    ///     positions: bit j says that it sees the row's new position j. At most 64 of them.
    /// masks: n 32-bit integers, which keys each row's new positions see: 0, those before them, 1,
    ///     those behind them too, 2, as queries that are no positions the first `starts`; None: 0.
    ///
    /// Raises InvalidArgument naming the row, StaleSequence, InvalidState; the plan is as before.
    #[pyo3(signature = (
        sequences, starts, counts=None, *, slots=None, regions=None, tree_masks=None,
        masks=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn set(
        &self,
        py: Python<'_>,
        sequences: Option<&Bound<'_, PyAny>>,
        starts: &Bound<'_, PyAny>,
        counts: Option<&Bound<'_, PyAny>>,
        slots: Option<&Bound<'_, PyAny>>,
        regions: Option<&Bound<'_, PyList>>,
        tree_masks: Option<&Bound<'_, PyList>>,
        masks: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let plan = self.handle.get(py)?;
        if sequences.is_some() == slots.is_some() {
            return Err(PyTypeError::new_err("sequences, slots: one of them is needed"));
        }
        let starts = Array::integers(starts, "starts", 8, false)?;
        let n = starts.count;
        let wide = |it, name| Array::integers(it, name, 8, false)?.exactly(name, n);
        let sequences = sequences.map(|it| wide(it, "sequences")).transpose()?;
        let counts = counts.map(|it| wide(it, "counts")).transpose()?;
        let slots = slots
            .map(|it| Array::integers(it, "slots", 4, false)?.exactly("slots", n))
            .transpose()?;
        let masks = masks
            .map(|it| Array::integers(it, "masks", 4, false)?.exactly("masks", n))
            .transpose()?;
        let regions = self::regions(regions, n)?;
        let trees = self::trees(tree_masks, n)?;
        // SAFETY: of these sizes, as checked.
        let (starts, ids, counts, slots, masks) = unsafe {
            (
                starts.read::<u64>(),
                sequences.as_ref().map(|it| it.read::<u64>()),
                counts.as_ref().map(|it| it.read::<u64>()),
                slots.as_ref().map(|it| it.read::<u32>()),
                masks.as_ref().map(|it| it.read::<u32>()),
            )
        };
        let row = |at: usize| {
            let mine = regions.get(at).and_then(Option::as_ref);
            rkv_plan_row {
                sequence: ids.map_or(0, |ids| ids[at]),
                slot: slots.map_or(0, |slots| slots[at]),
                region_count: mine.map_or(0, |it| it.count() as u32),
                regions: mine.map_or(null(), Regions::data),
                start: starts[at],
                count: counts.map_or(1, |counts| counts[at]),
                tree_masks: trees.get(at).and_then(Option::as_ref).map_or(null(), |it| it.data()),
                mask: masks.map_or(0, |masks| masks[at]),
                reserved: 0,
            }
        };
        for (at, trees) in trees.iter().enumerate() {
            let count = counts.map_or(1, |counts| counts[at]);
            if trees.as_ref().is_some_and(|trees| trees.count as u64 != count) {
                let message = format!("tree_masks[{at}]: one for each of {count} new positions");
                return Err(PyValueError::new_err(message));
            }
        }
        // A sequence of id 0 would be taken for slot 0.
        if let Some(at) = ids.and_then(|ids| ids.iter().position(|id| *id == 0)) {
            return Err(PyValueError::new_err(format!("sequences[{at}]: 0 names no sequence")));
        }
        let rows: Vec<_> = (0..n).map(row).collect();
        let call = Raw(rows.as_ptr());
        let status = long(py, true, || {
            let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: a live handle, n rows.
            unsafe { rkv_plan_set(plan.raw(), call.get(), n, size_of::<rkv_plan_row>()) }
        });
        check(py, status)
    }

    /// Makes room for every step up to a size, and refuses larger ones from then on; for CUDA
    /// graphs, together with `Runner.reserve_plan()`.
    ///
    /// rows, positions, pages: of a step; positions are the new ones of all rows, pages those of
    ///     all rows up to their last new position.
    /// row_positions: new positions of one row; 0: `positions`.
    /// regions: rows may have regions.
    /// separate: rows that begin with the same pages do not attend to those together.
    /// trees: rows may have tree masks.
    #[pyo3(signature = (
        *, rows, positions, pages, row_positions=0, regions=false, separate=false, trees=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn reserve(
        &self,
        py: Python<'_>,
        rows: u64,
        positions: u64,
        pages: u64,
        row_positions: u64,
        regions: bool,
        separate: bool,
        trees: bool,
    ) -> PyResult<()> {
        let plan = self.handle.get(py)?;
        let mut flags = if regions { RKV_PLAN_REGIONS } else { 0 };
        flags |= if separate { RKV_PLAN_SEPARATE } else { 0 };
        flags |= if trees { RKV_PLAN_TREES } else { 0 };
        let capacity = rkv_plan_capacity {
            flags,
            row_count: rows,
            position_count: positions,
            row_position_count: row_positions,
            page_count: pages,
            ..rkv_plan_capacity::sized()
        };
        let status = long(py, true, || {
            let _turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: a live handle.
            unsafe { rkv_plan_reserve(plan.raw(), &capacity) }
        });
        check(py, status)
    }

    /// Whether the plan may still be computed, for an engine with kernels of its own: right before
    /// it starts them. Raises InvalidState naming the row that changed, StaleSequence.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let plan = self.handle.get(py)?;
        // SAFETY: a live handle.
        let status = long(py, true, || unsafe { rkv_plan_check(plan.raw()) });
        check(py, status)
    }
}
