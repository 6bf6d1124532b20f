//! Plans: what one step computes, as the arrays that attention kernels take.
use std::ptr::{null, null_mut};
use std::sync::{PoisonError, RwLock};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::array::{Array, empty};
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

/// The rows' regions: a list with None or an (n, 2) array of 64-bit positions for each.
fn regions(list: Option<&Bound<'_, PyList>>, count: usize) -> PyResult<Vec<Option<Array>>> {
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
        let array = Array::integers(&item, &name, 8, false)?;
        match array.shape()[..] {
            [_, 2] => Ok(Some(array)),
            _ => Err(PyValueError::new_err(format!("{name}: an array of (n, 2) is needed"))),
        }
    };
    list.iter().enumerate().map(one).collect()
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

    /// Gives the plan up, and what runners keep with it. Calls that run in other threads end first.
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
    /// regions: a list with None or an (m, 2) array of 64-bit positions for each row: what attends
    ///     in both directions, see `Tokens.regions()`.
    ///
    /// Raises InvalidArgument naming the row, StaleSequence, InvalidState; the plan is as before.
    #[pyo3(signature = (sequences, starts, counts=None, *, slots=None, regions=None))]
    fn set(
        &self,
        py: Python<'_>,
        sequences: Option<&Bound<'_, PyAny>>,
        starts: &Bound<'_, PyAny>,
        counts: Option<&Bound<'_, PyAny>>,
        slots: Option<&Bound<'_, PyAny>>,
        regions: Option<&Bound<'_, PyList>>,
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
        let regions = self::regions(regions, n)?;
        // SAFETY: of these sizes, as checked.
        let (starts, ids, counts, slots) = unsafe {
            (
                starts.read::<u64>(),
                sequences.as_ref().map(|it| it.read::<u64>()),
                counts.as_ref().map(|it| it.read::<u64>()),
                slots.as_ref().map(|it| it.read::<u32>()),
            )
        };
        let row = |at: usize| {
            let mine = regions.get(at).and_then(Option::as_ref);
            rkv_plan_row {
                sequence: ids.map_or(0, |ids| ids[at]),
                slot: slots.map_or(0, |slots| slots[at]),
                region_count: mine.map_or(0, |it| it.count as u32 / 2),
                regions: mine.filter(|it| it.count > 0).map_or(null(), |it| it.data()),
                start: starts[at],
                count: counts.map_or(1, |counts| counts[at]),
            }
        };
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
    #[pyo3(signature = (*, rows, positions, pages, row_positions=0, regions=false, separate=false))]
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
    ) -> PyResult<()> {
        let plan = self.handle.get(py)?;
        let mut flags = if regions { RKV_PLAN_REGIONS } else { 0 };
        flags |= if separate { RKV_PLAN_SEPARATE } else { 0 };
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

    /// (rows, new positions of all rows, pages of all rows, copies) of the step that was set: how
    /// much room `read()` needs.
    fn sizes(&self, py: Python<'_>) -> PyResult<(usize, usize, usize, usize)> {
        let plan = self.handle.get(py)?;
        let seen = long(py, true, || {
            let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
            let mut view = rkv_plan_arrays::sized();
            // SAFETY: a live handle; the arrays stay as they are for this turn.
            unsafe {
                let status = rkv_plan_view(plan.raw(), &mut view);
                (status, if status == RKV_STATUS_OK { Sizes::of(&view) } else { Sizes::NONE })
            }
        });
        check(py, seen.0)?;
        Ok((seen.1.rows, seen.1.positions, seen.1.pages, seen.1.copies))
    }

    /// Copies the step's arrays to the caller's, e.g. to pinned tensors; those that are None are
    /// left out. An array may be longer: its front is written.
    ///
    /// query_indptr: int32, rows + 1: where the new positions of each row begin.
    /// indptr, indices: int32, rows + 1 and pages: the pages of each row up to its last new
    /// position. last_page_len: int32, rows: positions in each row's last page.
    /// slot_mapping: int64, new positions: page * page_size + offset of each.
    /// copies: dtypes.page_copy: copies to carry out before the step; then
    ///     `Sequence.confirm_copies()` for each of `copy_sequences` (64-bit). A runner does both.
    ///
    /// Returns `sizes()`. Raises ValueError naming an array that is too short.
    #[pyo3(signature = (*, query_indptr=None, indptr=None, indices=None, last_page_len=None,
                        slot_mapping=None, copies=None, copy_sequences=None))]
    #[allow(clippy::too_many_arguments)]
    fn read(
        &self,
        py: Python<'_>,
        query_indptr: Option<&Bound<'_, PyAny>>,
        indptr: Option<&Bound<'_, PyAny>>,
        indices: Option<&Bound<'_, PyAny>>,
        last_page_len: Option<&Bound<'_, PyAny>>,
        slot_mapping: Option<&Bound<'_, PyAny>>,
        copies: Option<&Bound<'_, PyAny>>,
        copy_sequences: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(usize, usize, usize, usize)> {
        let plan = self.handle.get(py)?;
        let take = |object: Option<&Bound<'_, PyAny>>, name: &'static str, size| {
            let array = object.map(|it| Array::integers(it, name, size, true)).transpose()?;
            PyResult::Ok(Target {
                name,
                start: Raw(array.as_ref().map_or(null_mut(), |it| it.data())),
                room: array.as_ref().map_or(usize::MAX, |it| it.count),
                size,
                _kept: Raw(array),
            })
        };
        let targets = [
            take(query_indptr, "query_indptr", 4)?,
            take(indptr, "indptr", 4)?,
            take(indices, "indices", 4)?,
            take(last_page_len, "last_page_len", 4)?,
            take(slot_mapping, "slot_mapping", 8)?,
            take(copy_sequences, "copy_sequences", 8)?,
        ];
        let pages = |it| Array::structs::<rkv_page_copy>(it, "copies", "page_copy", true);
        let copies = copies.map(pages).transpose()?;
        let (copy_room, copies) = match &copies {
            Some(array) => (array.count, array.data()),
            None => (usize::MAX, null_mut::<rkv_page_copy>()),
        };
        let copies = Raw(copies);
        let done = long(py, true, || {
            let _turn = self.turn.read().unwrap_or_else(PoisonError::into_inner);
            let mut view = rkv_plan_arrays::sized();
            // SAFETY: a live handle; the arrays stay as they are for this turn, and are as long as
            // `Sizes` says; each target has that room.
            unsafe {
                let status = rkv_plan_view(plan.raw(), &mut view);
                if status != RKV_STATUS_OK {
                    return Err((status, None));
                }
                let sizes = Sizes::of(&view);
                let sources: [(*const u8, usize); 6] = [
                    (view.query_indptr.cast(), sizes.rows + 1),
                    (view.indptr.cast(), sizes.rows + 1),
                    (view.indices.cast(), sizes.pages),
                    (view.last_page_len.cast(), sizes.rows),
                    (view.slot_mapping.cast(), sizes.positions),
                    (view.copy_sequence.cast(), sizes.copies),
                ];
                for (target, (_, count)) in targets.iter().zip(sources) {
                    if target.room < count {
                        return Err((RKV_STATUS_OK, Some((target.name, count))));
                    }
                }
                if copy_room < sizes.copies {
                    return Err((RKV_STATUS_OK, Some(("copies", sizes.copies))));
                }
                for (target, (from, count)) in targets.iter().zip(sources) {
                    if !target.start.get().is_null() && count > 0 && !from.is_null() {
                        target.start.get().copy_from(from, count * target.size);
                    }
                }
                if !copies.get().is_null() {
                    for at in 0..sizes.copies {
                        copies.get().add(at).write(rkv_page_copy {
                            source_page: *view.copy_source_page.add(at) as u32,
                            target_page: *view.copy_target_page.add(at) as u32,
                            position_count: *view.copy_position_count.add(at) as u32,
                            group: *view.copy_group.add(at) as u32,
                        });
                    }
                }
                Ok(sizes)
            }
        });
        match done {
            Ok(it) => Ok((it.rows, it.positions, it.pages, it.copies)),
            Err((_, Some((name, count)))) => {
                Err(PyValueError::new_err(format!("{name}: room for {count} is needed")))
            }
            Err((status, None)) => Err(check(py, status).expect_err("a call that failed")),
        }
    }

    /// The step's arrays as new NumPy arrays by name, those of `read()`: for a look, and for
    /// engines that do not mind the allocation.
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        loop {
            let sizes = self.sizes(py)?;
            let (rows, positions, pages, copies) = sizes;
            let made = PyDict::new(py);
            for (name, count, kind) in [
                ("query_indptr", rows + 1, "i4"),
                ("indptr", rows + 1, "i4"),
                ("indices", pages, "i4"),
                ("last_page_len", rows, "i4"),
                ("slot_mapping", positions, "i8"),
                ("copies", copies, "page_copy"),
                ("copy_sequences", copies, "u8"),
            ] {
                made.set_item(name, empty(py, count, kind)?)?;
            }
            let get = |name| made.get_item(name).ok().flatten();
            let given: Vec<_> = [
                "query_indptr",
                "indptr",
                "indices",
                "last_page_len",
                "slot_mapping",
                "copies",
                "copy_sequences",
            ]
            .map(get)
            .into();
            let [a, b, c, d, e, f, g] = &given[..] else { unreachable!("seven names") };
            let read = self.read(
                py,
                a.as_ref(),
                b.as_ref(),
                c.as_ref(),
                d.as_ref(),
                e.as_ref(),
                f.as_ref(),
                g.as_ref(),
            );
            // Another thread may have set it since.
            match read {
                Ok(now) if now != sizes => continue,
                Ok(_) => return Ok(made),
                Err(_) if self.sizes(py)? != sizes => continue,
                Err(reason) => return Err(reason),
            }
        }
    }
}

/// An array of the caller's, or none: then it has room for everything.
struct Target {
    name: &'static str,
    start: Raw<*mut u8>,
    room: usize,
    size: usize,
    _kept: Raw<Option<Array>>,
}

#[derive(Clone, Copy)]
pub struct Sizes {
    rows: usize,
    pub positions: usize,
    pages: usize,
    copies: usize,
}

impl Sizes {
    const NONE: Sizes = Sizes { rows: 0, positions: 0, pages: 0, copies: 0 };

    /// # Safety
    /// The view is of a plan that nobody sets meanwhile.
    pub unsafe fn of(view: &rkv_plan_arrays) -> Self {
        let rows = view.row_count as usize;
        let pages = if view.indptr.is_null() {
            0
        } else {
            // SAFETY: rows + 1 offsets.
            unsafe { *view.indptr.add(rows) as usize }
        };
        let (positions, copies) = (view.position_count as usize, view.copy_count as usize);
        Sizes { rows, positions, pages, copies }
    }
}

/// New positions of the step that a plan has. To be called within its turn.
pub fn positions(plan: &Handle<rkv_plan>) -> usize {
    let mut view = rkv_plan_arrays::sized();
    // SAFETY: a live handle; nobody sets it in this turn.
    unsafe {
        match rkv_plan_view(plan.raw(), &mut view) {
            RKV_STATUS_OK => Sizes::of(&view).positions,
            _ => 0,
        }
    }
}
